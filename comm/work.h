// What one rank does alone, while the others wait for it in a call: it writes a checkpoint, or computes what the others
// do not. It says so (Working), and the others' clocks stand still for it as long as its process lives.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace isobar {

// How long a rank may work alone, in units of the time that the others wait without a word. What hangs (a disk that
// does not answer) ends so; what computes comes to its end, and may take any time.
inline constexpr double kMostTimeoutsOfWork = 12;
inline constexpr double kAnyTime = std::numeric_limits<double>::infinity();

// Whom a rank tells of its work. Both may be empty.
struct WorkListener {
  std::function<void(const std::string& what, double most_timeouts)> begin{};
  std::function<void()> end{};
};

// The work of one rank at one moment, as it is told to others.
struct Work {
  std::string what{};       // "writing a checkpoint"; empty: none, or the rank is in a call
  std::int64_t number = 0;  // tells one work of the rank from another
  double seconds = 0;       // since it began, or since the rank's last call within it
  double most_timeouts = kAnyTime;
  double seconds_since_last = kAnyTime;  // since there was any

  // Whether a rank that has waited for `timeout` seconds has to wait on.
  bool excuses(double timeout) const;
};

// "; rank 0 is writing a checkpoint since 61 s"; nothing where it does not work.
std::string text_of_work(int rank, const Work& work);

// Keeps the account of one rank's works and calls. Not safe for threads by itself.
class WorkAccount {
 public:
  using Clock = std::chrono::steady_clock;

  // Works may lie within each other: the innermost counts.
  void begin(const std::string& what, double most_timeouts);
  void end();
  void note_call(bool is_in_call);  // may be said again and again

  Work now() const;

 private:
  struct Begun {
    std::string what;
    double most_timeouts;
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
