// Progress of a long loop: a bar that redraws itself on a terminal, now and then a plain line elsewhere.
//
//   train  42% |████████▍           | 420/1000 [00:31<00:43, 13.4 it/s, 214 samples/s, loss 0.1234]
//
// Whoever prints while a bar is shown does so through print(), which puts the line above the bar. Not thread-safe: the
// loop that owns it calls it.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace isobar {

struct ProgressState {
  std::string label;       // "train"
  std::int64_t done = 0;   // iterations, counted over the whole run
  std::int64_t total = 0;  // iterations
  double seconds = 0;      // since the loop (this process's part of it) began
  double iterations_per_second = 0;
  double samples_per_second = 0;  // 0: not shown
  double loss = 0;
  bool has_loss = false;
};

// One line without its end, at most `width` columns wide; the bar takes what the figures leave, and where there is no
// room for all of it, loses the bar first, then figures from the right.
std::string format_bar(const ProgressState& state, int width);
// "train: iteration 420/1000 (42%), loss 0.1234, 214 samples/s, 00:31 passed, 00:43 to go"
std::string format_plain(const ProgressState& state);
// "01:05", "2:01:05"; "?" where unknown (negative, not finite).
std::string format_duration(double seconds);

class Progress {
 public:
  struct Options {
    std::string label = "train";
    std::int64_t first = 0;            // iterations done before (a resumed run)
    std::int64_t total = 0;            // iterations in all
    double samples_per_iteration = 0;  // 0: samples a second are not shown
    std::FILE* stream = stdout;
    double seconds_between_bars = 0.1;
    double seconds_between_lines = 10;  // where the stream is no terminal
  };

  explicit Progress(Options options);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(std::int64_t done, double loss);
  // Prints a line (without its end) to a stream, above the bar if there is one.
  void print(std::string_view line, std::FILE* stream = stdout);
  // Time between pause() and resume() counts for nothing: validation, checkpoints.
  void pause();
  void resume();
  // Draws the last state and leaves it on the screen; the destructor does so too.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  ProgressState state() const;
  void draw();
  void clear();

  Options options_;
  bool terminal_;
  bool shown_ = false;  // a bar is on the terminal's last line
  bool finished_ = false;
  bool paused_ = false;
  std::int64_t done_;
  double loss_ = 0;
  bool has_loss_ = false;
  Clock::time_point start_;
  Clock::time_point paused_at_;
  Clock::time_point last_drawn_;
  double rate_ = 0;  // iterations a second, smoothed
};

}  // namespace isobar
