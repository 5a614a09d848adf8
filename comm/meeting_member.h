// What each end of the meeting (comm/meeting.h) has: what a rank knows of the run, and the messages that travel.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <string>

#include "comm/meeting.h"
#include "comm/messages.h"
#include "comm/work.h"

namespace isobar {

using MeetingClock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

MeetingClock::duration duration_of(double seconds);

enum MeetingMessage : std::uint8_t {
  kHello = 1,  // an Attendee
  kWelcome,    // payload, place on the host, number of hosts, of the host
  kFailed,     // to rank 0: a sentence; from it: the run's first error
  kWhere,      // number of the inquiry: where are you?
  kPlace,      // number of the inquiry, call, work
  kOver,       // call, members, seconds: this rank's time is over there
  kLeft,       // its work is done well
  kDone,       // everybody's is
  kWaitOn,     // a rank works alone
  kTold,       // the user has been told of the failure
  kBeat,       // nothing: the connection is in use
  kSuspects    // to rank 0: a sentence, of which a rank that does not answer may be the cause
};

inline constexpr double kSecondsToAnswer = 5;  // of rank 0, when a rank's time is over; then that rank decides

std::string place_of(const Attendee& who);  // "process 4711 on node1"

Message hello(const Attendee& me);
Attendee attendee_in(const Message& hello);
Message welcome(const std::string& payload, PlaceOnHost place, int hosts);
Message place_message(const std::string& inquiry, const std::string& place, const Work& work);
double seconds_in(const Message& message, std::size_t index);
Work work_in(const Message& message, std::size_t index);

// No signal of the process is handled in a thread of the meeting.
class SignalsBlocked {
 public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_ = {};
};

// What a rank knows of the meeting. `receive` is called in the meeting's thread, all else in the rank's.
struct Meeting::Member {
  Member(Attendee attendee, MeetingOptions given) : me(std::move(attendee)), options(std::move(given)) {}
  virtual ~Member() = default;
  virtual void send(const Message& message) = 0;  // to rank 0
  virtual void say_told() = 0;                    // to all, in the meeting's thread: the user has been told

  void receive(const Message& message);
  void take_welcome(const Message& message);
  // tell_after: seconds in which another rank may have told it; this one does if nobody has ended it by then.
  void note_failure(const std::string& sentence, bool tells, double tell_after = 0);
  // The run has failed, and who was to tell may be gone: this rank does in so many seconds, if nobody has.
  void succeed_teller(double tell_after);
  bool wait_for_failure(double seconds);

  enum class Answer : std::uint8_t { failed, wait_on, none };
  Answer wait_for_answer(double seconds, std::int64_t waited_on);

  // Rank 0 itself may have been stopped, and go on while it is being ended: another rank may have told why, then.
  bool has_just_woken() const;
  void note_turn();      // of rank 0's thread, which comes ten times a second
  void look_at_clock();  // in the meeting's thread, now and then

  const Attendee me;
  const MeetingOptions options;
  std::string payload;
  PlaceOnHost place_on_host;
  int hosts = 1;

  std::mutex mutex;
  std::condition_variable bell;
  std::atomic<bool> failed = false;
  std::string failure;
  bool is_teller = false, is_told = false;
  MeetingClock::time_point failed_at, tell_at;
  bool is_done = false;
  std::string place;
  WorkAccount work;
  std::int64_t times_to_wait_on = 0;

  // Of the meeting's thread alone.
  MeetingClock::time_point last_turn = MeetingClock::now(), woken_at = {};
  bool has_told = false;
};

}  // namespace isobar
