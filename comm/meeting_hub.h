// The middle of the star of the meeting (comm/meeting.h): rank 0's own end, and the other ranks' connections.
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
  MeetingHub(Attendee me, MeetingPort port, MeetingOptions given);
  ~MeetingHub() override;

  void send(const Message& message) override;  // from rank 0 to itself, in the thread that has the connections
  void say_told() override { tell_all({.type = kTold}); }

 private:
  // Of descriptors that epoll watches: ranks have their number.
  static constexpr std::uint64_t kDoor = std::uint64_t{1} << 32, kWake = kDoor + 1, kFirstGuest = kDoor + 2;

  struct Peer {
    Socket socket;
    Seal seal;
    MessageStream stream;
    std::optional<Attendee> who;
    bool has_left = false;
  };
  // Who has not yet shown that it knows the key, or not yet said who it is.
  struct Guest {
    Socket socket;
    MeetingClock::time_point since = MeetingClock::now();
    std::string received = {};                // of the part that is awaited, never more than that
    std::optional<Challenge> challenge = {};  // from its opening on
    bool is_known = false;                    // it knows the key
    MessageStream stream{};
  };
  struct Place {
    std::string call;
    Work work;
  };
  // Somebody's time is over in a call: everybody is asked where they are.
  struct Inquiry {
    int asker = 0;
    std::string call = {};
    std::vector<int> members = {};
    double seconds = 0;
    std::vector<std::optional<Place>> places = {};  // by rank; none: no answer yet
    std::size_t answers = 0;
    MeetingClock::time_point until = {};
    std::string suspicion = {};  // of the asker; empty: its time is over
  };

  void wake() const;
  void watch(int socket, std::uint64_t id) const;
  // The ids of what has something to say, in the order in which it came.
  std::vector<std::uint64_t> wait(int milliseconds) const;

  // Until all have come.
  void collect(const MeetingPort& port);
  std::vector<int> missing() const;
  std::string serve_guests(const MeetingPort& port);
  void admit(const MeetingPort& port);
  bool serve(Guest& guest, std::string& wrong);
  bool receive_part(Guest& guest, std::size_t bytes);
  std::string seat(Attendee who, Guest& guest);
  std::string misfit() const;

  // Afterwards.
  void listen();
  void beat();
  void serve_posted();
  void serve_peer(int rank);
  void handle(int rank, const Message& message);
  bool send_to(int rank, const Message& message);
  void tell_all(const Message& message);
  void lose(const std::string& sentence);
  void fail_all(const std::string& sentence);
  void take_over(int asker, const Message& message);
  void take_suspicion(int asker, const Message& message);
  void ask_everybody(Inquiry inquiry);
  void take_place(int rank, const Message& message);
  void conclude();
  void conclude_suspicion(const Inquiry& asked);
  void wait_on(const Inquiry& asked, const std::vector<int>& excused);

  Socket events_;                          // epoll
  std::vector<Peer> peers_;                // by rank; the first is this one, without a connection
  std::map<std::uint64_t, Guest> guests_;  // by id, the oldest first
  std::uint64_t next_guest_;
  std::optional<Inquiry> inquiry_;
  std::int64_t inquiries_ = 0;
  MeetingClock::time_point waited_on_ = {};  // when an inquiry has found that somebody works alone
  std::map<int, std::int64_t> told_works_;   // by rank, the last that the user was told of
  MeetingClock::time_point beaten_ = MeetingClock::now();
  bool is_over_ = false, all_have_left_ = false;
  int absent_ = 0, left_ = 0;  // ranks

  Socket wake_;
  std::mutex posted_mutex_;
  std::deque<Message> posted_;  // of rank 0 itself
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace isobar
