// The center of the meeting's star (comm/meeting.h): rank 0's own end, and the connections of the other ranks.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/challenge.h"
#include "comm/meeting_member.h"
#include "comm/sockets.h"

namespace isobar {

class MeetingHub : public Meeting::Member {
 public:
  MeetingHub(RankDescription me, MeetingPort port, MeetingOptions given);
  ~MeetingHub() override;

  void send(const Message& message) override;  // from rank 0 to itself, in the thread that owns the connections
  void announce_report() override { send_to_all({.type = kReported}); }

 private:
  // Of descriptors that epoll watches: ranks have their number.
  static constexpr std::uint64_t kListener = std::uint64_t{1} << 32, kWake = kListener + 1,
                                 kFirstPending = kListener + 2;

  struct Peer {
    Socket socket;
    Seal seal;
    MessageStream stream;
    std::optional<RankDescription> who;
    bool has_left = false;
  };
  // A connection that has not yet proved that it knows the key, or not yet described itself.
  struct PendingConnection {
    Socket socket;
    MeetingClock::time_point since = MeetingClock::now();
    std::string received = {};                // of the part that is awaited, never more
    std::optional<Challenge> challenge = {};  // from the opening on
    bool is_known = false;                    // has proved that it knows the key
    MessageStream stream{};
  };
  struct Place {
    std::string call;
    Work work;
  };
  // A rank's timeout in a call has expired: all ranks are asked where they are.
  struct Inquiry {
    int asker = 0;
    std::string call = {};
    std::vector<int> members = {};
    double seconds = 0;
    std::vector<std::optional<Place>> places = {};  // by rank; none: no answer yet
    std::size_t answers = 0;
    MeetingClock::time_point until = {};
    std::string suspicion = {};  // the asker's error; empty: its timeout has expired
  };

  void wake() const;
  void watch(int socket, std::uint64_t id) const;
  // The ids of the descriptors with events, in the order of arrival.
  std::vector<std::uint64_t> wait(int milliseconds) const;

  // Until all have connected.
  void collect(const MeetingPort& port);
  std::vector<int> missing() const;
  std::string serve_pending(const MeetingPort& port);
  void admit(const MeetingPort& port);
  bool serve(PendingConnection& guest, std::string& wrong);
  bool receive_part(PendingConnection& guest, std::size_t bytes);
  std::string seat(RankDescription who, PendingConnection& guest);
  std::string find_mismatch() const;

  // Afterwards.
  void listen();
  void beat();
  void serve_posted();
  void serve_peer(int rank);
  void handle(int rank, const Message& message);
  bool send_to(int rank, const Message& message);
  void send_to_all(const Message& message);
  void lose(const std::string& sentence);
  void fail_all(const std::string& sentence);
  void take_timeout(int asker, const Message& message);
  void take_suspicion(int asker, const Message& message);
  void ask_all_ranks(Inquiry inquiry);
  void take_place(int rank, const Message& message);
  void conclude();
  void conclude_suspicion(const Inquiry& asked);
  void wait_on(const Inquiry& asked, const std::vector<int>& excused);

  Socket events_;                                       // epoll
  std::vector<Peer> peers_;                             // by rank; the first is this rank, without a connection
  std::map<std::uint64_t, PendingConnection> pending_;  // by id, the oldest first
  std::uint64_t next_pending_;
  std::optional<Inquiry> inquiry_;
  std::int64_t inquiries_ = 0;
  MeetingClock::time_point waited_on_ = {};     // when an inquiry last found a rank that works alone
  std::map<int, std::int64_t> reported_works_;  // by rank, the last one that was reported to the user
  MeetingClock::time_point beaten_ = MeetingClock::now();
  bool is_over_ = false, all_have_left_ = false;
  int absent_ = 0, left_ = 0;  // ranks

  Socket wake_;
  std::mutex posted_mutex_;
  std::deque<Message> posted_;  // by rank 0 itself
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace isobar
