// What one rank does alone while the others wait for it in a call, such as writing a checkpoint. The rank announces it
// (Working), and the timeouts of the others are suspended as long as its process lives.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace isobar {

// How long a rank may work alone, in multiples of the timeout of a call. This bounds work that can hang (a disk that
// does not answer). Computation always ends, and may take any time.
inline constexpr double kMaxTimeoutsOfWork = 12;
inline constexpr double kAnyTime = std::numeric_limits<double>::infinity();

// Called at the begin and the end of a rank's work. Both may be empty.
struct WorkListener {
  std::function<void(const std::string& what, double max_timeouts)> begin{};
  std::function<void()> end{};
};

// The work of one rank at one moment, as it is sent to others.
struct Work {
  std::string what{};       // "writing a checkpoint"; empty: none, or the rank is in a call
  std::int64_t number = 0;  // differs between the works of a rank
  double seconds = 0;       // since it began, or since the rank's last call within it
  double max_timeouts = kAnyTime;
  double seconds_since_last = kAnyTime;  // since the rank last worked alone

  // Whether a rank that has waited for `timeout` seconds must go on waiting.
  bool excuses(double timeout) const;
};

// "; rank 0 is writing a checkpoint since 61 s"; empty if the rank does not work.
std::string text_of_work(int rank, const Work& work);

// Records one rank's works and calls. Not thread-safe.
class WorkAccount {
 public:
  using Clock = std::chrono::steady_clock;

  // Works may be nested: the innermost one is reported.
  void begin(const std::string& what, double max_timeouts);
  void end();
  void note_call(bool is_in_call);  // may be repeated

  Work now() const;

 private:
  struct Begun {
    std::string what;
    double max_timeouts;
    std::int64_t number;
    Clock::time_point since;
  };
  void note_pause();

  std::vector<Begun> works_;
  std::int64_t begun_ = 0;
  bool is_in_call_ = false;
  Clock::time_point out_of_call_ = Clock::now();
  Clock::time_point last_worked_ = Clock::time_point::min();
};

}  // namespace isobar
