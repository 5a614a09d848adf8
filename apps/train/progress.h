// Progress of a long loop: a bar that redraws itself on a terminal, a plain line from time to time elsewhere.
//
//   train  42% |████████▍           | 420/1000 [00:31<00:43, loss 0.1234, 13.4 it/s, 214 samples/s]
//
// While a bar is shown, print through print(), which puts the line above the bar. Not thread-safe: only the thread of
// the loop calls it.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "apps/train/clock.h"

namespace isobar {

struct ProgressState {
  std::string label;            // "train"
  bool counts_samples = false;  // true for a validation; else iterations, counted over the whole run
  std::int64_t done = 0, total = 0;
  double seconds = 0;     // that this process spent on them
  double per_second = 0;  // iterations (or samples) per second; 0: unknown
  double samples = 0;     // per iteration; 0: not shown
  std::optional<double> loss;
};

// One line without newline, at most `width` columns. If there is not enough room, samples per second are dropped first,
// then the bar, then figures from the right. unicode: draw with block characters (UTF-8), else with '#'.
std::string format_bar(const ProgressState& state, int width, bool unicode);

// "train: iteration 420/1000 (42%), loss 0.1234, 13.4 it/s, 214 samples/s, 00:43 to go"
std::string format_plain(const ProgressState& state);

// "01:05", "2:01:05"; "?" if it is unknown (negative or not finite).
std::string format_duration(double seconds);

class Progress {
 public:
  struct Options {
    std::string label = "train";
    std::int64_t first = 0;  // iterations done by earlier processes of a resumed run
    std::int64_t total = 0;
    double samples_per_iteration = 0;
    std::FILE* stream = stdout;
    double seconds_between_bars = 0.1;
    double seconds_between_lines = 10;  // if the stream is not a terminal
    bool is_shown = true;               // false: neither bars nor lines
  };

  explicit Progress(Options options);
  ~Progress();  // finishes
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(std::int64_t done, double loss);

  // Prints a line (without its newline) to a stream, above the bar if there is one.
  void print(std::string_view line, std::FILE* stream = stdout);

  // A validation, or another pass over a set, of `samples` samples. Its progress replaces the loop's until it ends, if
  // it takes longer than the time between two bars (lines). On a terminal it is erased at its end.
  void begin_validation(std::int64_t samples, const std::string& label = "valid");
  void validated(std::int64_t samples);
  void end_validation();

  // The time between pause() and resume(), of validation and checkpoints, does not count as the loop's.
  void pause();
  void resume();

  // Shows the last state and leaves it on the screen. Nothing is shown afterwards.
  void finish();

 private:
  struct Validation {
    std::string label;
    std::int64_t samples = 0, done = 0;
    bool over_bar = false;  // the loop's bar was shown
    std::optional<Clock::time_point> shown_before;
    Clock::time_point start = Clock::now();
  };

  ProgressState state() const;
  ProgressState loop_state() const;
  ProgressState validation_state() const;
  double seconds() const;
  bool due() const;
  void show();
  void clear();

  Options options_;
  bool terminal_;
  bool unicode_;
  bool bar_is_shown_ = false;  // it is on the terminal's last line
  bool finished_ = false;
  std::int64_t done_;
  std::int64_t shown_;  // the last iteration shown
  std::optional<double> loss_;
  std::optional<Validation> validation_;  // the one in progress
  Clock::time_point start_;               // pauses move it forward
  std::optional<Clock::time_point> paused_;
  std::optional<Clock::time_point> last_shown_;
};

}  // namespace isobar
