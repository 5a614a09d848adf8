// Progress of a long loop: a bar that redraws itself on a terminal, a plain line now and then elsewhere.
//
//   train  42% |████████▍           | 420/1000 [00:31<00:43, loss 0.1234, 13.4 it/s, 214 samples/s]
//
// Whoever prints while a bar is shown does so through print(), which puts the line above the bar. Not thread-safe: the
// loop that owns it calls it.
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
  bool counts_samples = false;  // of a validation; else iterations, counted over the whole run
  std::int64_t done = 0, total = 0;
  double seconds = 0;     // that this process spent on them
  double per_second = 0;  // iterations (samples) a second; 0: not known yet
  double samples = 0;     // samples an iteration; 0: not shown
  std::optional<double> loss;
};

// One line without its end, at most `width` columns wide. Where there is no room for all of it, samples a second go
// first, then the bar, then figures from the right. unicode: draw with block characters (UTF-8), else with '#'.
std::string format_bar(const ProgressState& state, int width, bool unicode);

// "train: iteration 420/1000 (42%), loss 0.1234, 13.4 it/s, 214 samples/s, 00:43 to go"
std::string format_plain(const ProgressState& state);

// "01:05", "2:01:05"; "?" where it is not known (negative or not finite).
std::string format_duration(double seconds);

class Progress {
 public:
  struct Options {
    std::string label = "train";
    std::int64_t first = 0;  // iterations done before this process began (a resumed run)
    std::int64_t total = 0;
    double samples_per_iteration = 0;
    std::FILE* stream = stdout;
    double seconds_between_bars = 0.1;
    double seconds_between_lines = 10;  // where the stream is no terminal
  };

  explicit Progress(Options options);
  ~Progress();  // finishes
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(std::int64_t done, double loss);

  // Prints a line (given without its end) to a stream, above the bar if there is one.
  void print(std::string_view line, std::FILE* stream = stdout);

  // A validation of so many samples, or another pass over a set, and how many of them are done: shown in the place of
  // the loop until it ends, where it takes longer than two bars (lines) lie apart. Nothing of it stays on a terminal.
  void begin_validation(std::int64_t samples, const std::string& label = "valid");
  void validated(std::int64_t samples);
  void end_validation();

  // What happens between pause() and resume() does not count as the loop's time: validation, checkpoints.
  void pause();
  void resume();

  // Shows the last state and leaves it on the screen. Nothing is shown after it.
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
  bool bar_is_shown_ = false;  // on the terminal's last line
  bool finished_ = false;
  std::int64_t done_;
  std::int64_t shown_;  // the last iteration that was shown
  std::optional<double> loss_;
  std::optional<Validation> validation_;  // that goes on
  Clock::time_point start_;               // moved forward by pauses
  std::optional<Clock::time_point> paused_;
  std::optional<Clock::time_point> last_shown_;
};

}  // namespace isobar
