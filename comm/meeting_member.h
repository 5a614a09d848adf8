// What both ends of the meeting (comm/meeting.h) share: a rank's state of the run, and the types of messages.
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
  kHello = 1,  // an RankDescription
  kWelcome,    // payload, place on the host, number of hosts, of the host
  kFailed,     // to rank 0: a sentence; from rank 0: the run's first error
  kWhere,      // number of the inquiry: where are you?
  kPlace,      // number of the inquiry, call, work
  kTimedOut,   // call, members, seconds: this rank's timeout there has expired
  kLeft,       // this rank has finished without an error
  kDone,       // so have all ranks
  kWaitOn,     // a rank works alone
  kReported,   // the failure has been reported to the user
  kBeat,       // empty: keeps the connection in use
  kSuspects    // to rank 0: a sentence, whose cause may be a rank that does not answer
};

inline constexpr double kSecondsToAnswer = 5;  // for rank 0, when a rank's timeout has expired; then that rank decides

std::string place_of(const RankDescription& who);  // "process 4711 on node1"

Message hello(const RankDescription& me);
RankDescription description_in(const Message& hello);
Message welcome(const std::string& payload, PlaceOnHost place, int hosts);
Message place_message(const std::string& inquiry, const std::string& place, const Work& work);
double seconds_in(const Message& message, std::size_t index);
Work work_in(const Message& message, std::size_t index);

// While it lives, threads start with all signals blocked: those of the meeting handle none.
class SignalsBlocked {
 public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_ = {};
};

// A rank's state of the meeting. `receive` is called in the meeting's thread, everything else in the rank's.
struct Meeting::Member {
  Member(RankDescription attendee, MeetingOptions given) : me(std::move(attendee)), options(std::move(given)) {}
  virtual ~Member() = default;
  virtual void send(const Message& message) = 0;  // to rank 0
  virtual void announce_report() = 0;             // to all, in the meeting's thread: the failure has been reported

  void receive(const Message& message);
  void take_welcome(const Message& message);
  // report_after: seconds that another rank has to report it; this rank reports if nothing has ended it by then.
  void note_failure(const std::string& sentence, bool tells, double report_after = 0);
  // The run has failed, and the rank that had to report may be gone: this rank reports after that time, if no other
  // has.
  void become_reporter(double report_after);
  bool wait_for_failure(double seconds);

  enum class Answer : std::uint8_t { failed, wait_on, none };
  Answer wait_for_answer(double seconds, std::int64_t waited_on);

  // Rank 0 may itself have been stopped and resumed while it is being ended. Another rank may then have reported why.
  bool has_just_woken() const;
  void note_turn();      // by rank 0's thread, ten times a second
  void look_at_clock();  // by the meeting's thread, now and then

  const RankDescription me;
  const MeetingOptions options;
  std::string payload;
  PlaceOnHost place_on_host;
  int hosts = 1;

  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<bool> failed = false;
  std::string failure;
  bool reports_error = false, is_reported = false;
  MeetingClock::time_point failed_at, report_at;
  bool is_done = false;
  std::string place;
  WorkAccount work;
  std::int64_t times_to_wait_on = 0;

  // Used by the meeting's thread alone.
  MeetingClock::time_point last_turn = MeetingClock::now(), woken_at = {};
  bool has_reported = false;
};

}  // namespace isobar
