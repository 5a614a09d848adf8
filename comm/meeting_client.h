// The end of the meeting (comm/meeting.h) of every rank but rank 0.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>

#include "comm/meeting_member.h"
#include "comm/neighbours.h"
#include "comm/sockets.h"

namespace isobar {

class MeetingClient : public Meeting::Member {
 public:
  MeetingClient(RankDescription me, const MeetingPlace& place, MeetingOptions given);
  ~MeetingClient() override;

  void send(const Message& message) override;
  void announce_report() override { send({.type = kReported}); }

 private:
  bool try_all(const MeetingPlace& place, MeetingClock::time_point until, std::string& why);
  const addrinfo* resolved(const std::string& address);
  bool meet(const addrinfo* addresses, int port, MeetingClock::time_point until, std::string& why);
  bool show_key();
  std::optional<std::string> receive_exactly(std::size_t count, MeetingClock::time_point until);
  bool take_answer(MeetingClock::time_point until);
  void pause();

  void listen();
  bool serve();
  bool take_messages();
  void lose();
  std::optional<double> seconds_to_report() const;

  struct Resolved {
    Addresses addresses;
    MeetingClock::time_point at;
  };
  std::map<std::string, Resolved> resolved_;
  std::minstd_rand random_;
  double pause_seconds_ = 0.05;
  int port_ = 0;  // of rank 0

  Socket socket_;
  std::mutex send_mutex_;
  Seal seal_;
  MessageStream stream_;
  bool is_unreachable_ = false;           // rank 0's host does not answer any more
  std::optional<Neighbours> neighbours_;  // if the reporting rank does not end the others
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace isobar
