// Progress: what the lines say at every width, and what a terminal shows when lines are printed in between.
#include "apps/train/progress.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/environment_variable.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

ProgressState example() {
  return {.label = "train",
          .done = 420,
          .total = 1000,
          .seconds = 31.2,
          .per_second = 13.44,
          .samples = 16,
          .loss = 0.12341};
}

// Columns of a UTF-8 text of characters one column wide.
int columns_of(const std::string& text) {
  int columns = 0;
  for (const char byte : text) columns += (byte & 0xc0) != 0x80;
  return columns;
}

TEST_CASE("durations are short", "[progress]") {
  CHECK(format_duration(0) == "00:00");
  CHECK(format_duration(65.9) == "01:05");
  CHECK(format_duration(3599.9) == "59:59");
  CHECK(format_duration(7265) == "2:01:05");
  CHECK(format_duration(360000) == "100:00:00");
  CHECK(format_duration(-1) == "?");
  CHECK(format_duration(std::numeric_limits<double>::quiet_NaN()) == "?");
  CHECK(format_duration(std::numeric_limits<double>::infinity()) == "?");
}

TEST_CASE("a bar fills the width it is given", "[progress]") {
  CHECK(format_bar(example(), 90, false) ==
        "train  42% |######         | 420/1000 [00:31<00:43, loss 0.1234, 13.4 it/s, 215 samples/s]");
  CHECK(format_bar(example(), 90, true) ==
        "train  42% |██████▎        | 420/1000 [00:31<00:43, loss 0.1234, 13.4 it/s, 215 samples/s]");
  CHECK(format_bar(example(), 80, false) ==
        "train  42% |########            | 420/1000 [00:31<00:43, loss 0.1234, 13.4 it/s]");
  CHECK(format_bar(example(), 60, true) == "train  42% 420/1000 [00:31<00:43, loss 0.1234, 13.4 it/s]");
  CHECK(format_bar(example(), 30, true) == "train  42% 420/1000");
  CHECK(format_bar(example(), 7, true) == "train  ");
  for (int width = 0; width < 200; ++width) {
    for (const bool unicode : {false, true}) {
      const int columns = columns_of(format_bar(example(), width, unicode));
      REQUIRE(columns <= width);
      if (width >= 90) REQUIRE(columns == width);
    }
  }
}

TEST_CASE("a bar says no more than is known", "[progress]") {
  ProgressState state{.label = "valid", .done = 0, .total = 8, .loss = {}};
  CHECK(format_bar(state, 40, false) == "valid   0% |             | 0/8 [00:00<?]");
  CHECK(format_plain(state) == "valid: iteration 0/8 (0%), ? to go");
  state.done = 8;
  state.per_second = 0.25;
  CHECK(format_plain(state) == "valid: iteration 8/8 (100%), 4.00 s/it, 00:00 to go");
  state.done = 9;  // more than was announced
  CHECK(columns_of(format_bar(state, 60, true)) == 60);
  state = {.label = "train", .done = 999, .total = 1000, .per_second = 2, .loss = std::nan("")};
  CHECK(format_plain(state) == "train: iteration 999/1000 (99%), loss nan, 2.0 it/s, 00:00 to go");
  state.total = 0;
  CHECK(columns_of(format_bar(state, 70, true)) == 70);
  CHECK(format_plain(example()) ==
        "train: iteration 420/1000 (42%), loss 0.1234, 13.4 it/s, 215 samples/s, 00:43 to go");
}

// A terminal to write to, and what its lines show in the end: enough of one for \r, \n and "clear to the end of line".
class Terminal {
 public:
  Terminal() : master_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    REQUIRE(master_ >= 0);
    REQUIRE(::grantpt(master_) == 0);
    REQUIRE(::unlockpt(master_) == 0);
    slave_ = std::fopen(::ptsname(master_), "w");
    REQUIRE(slave_ != nullptr);
    const winsize size{.ws_row = 24, .ws_col = 60, .ws_xpixel = 0, .ws_ypixel = 0};
    REQUIRE(::ioctl(master_, TIOCSWINSZ, &size) == 0);
  }
  ~Terminal() {
    std::fclose(slave_);
    ::close(master_);
  }
  std::FILE* stream() { return slave_; }

  std::vector<std::string> lines() {
    std::vector<std::string> shown(1);
    std::size_t column = 0;
    const std::string written = everything_written();
    for (std::size_t i = 0; i < written.size(); ++i) {
      std::string& line = shown.back();
      if (written[i] == '\r') {
        column = 0;
      } else if (written[i] == '\n') {
        shown.emplace_back();
      } else if (written.compare(i, 3, "\x1b[K") == 0) {
        line.resize(column);
        i += 2;
      } else {
        line.resize(std::max(line.size(), column + 1));
        line[column++] = written[i];
      }
    }
    return shown;
  }

 private:
  std::string everything_written() {
    std::fflush(slave_);
    REQUIRE(::fcntl(master_, F_SETFL, O_NONBLOCK) == 0);
    std::string written;
    char piece[4096];
    for (ssize_t count; (count = ::read(master_, piece, sizeof piece)) > 0;) {
      written.append(piece, static_cast<std::size_t>(count));
    }
    return written;
  }

  int master_;
  std::FILE* slave_;
};

TEST_CASE("progress that is not shown leaves a terminal to other lines") {
  Terminal terminal;
  {
    Progress progress({.total = 3, .stream = terminal.stream(), .seconds_between_bars = 0, .is_shown = false});
    progress.update(1, 0.5);
    progress.print(" iteration        1/       3 |", terminal.stream());
    progress.begin_validation(5);
    progress.validated(3);
    progress.end_validation();
    progress.update(2, 0.5);
  }
  CHECK(terminal.lines() == std::vector<std::string>{" iteration        1/       3 |", ""});
}

TEST_CASE("lines printed while a bar is shown stand above it", "[progress]") {
  ::setenv("TERM", "xterm", 1);
  ::setenv("LC_ALL", "C", 1);
  Terminal terminal;
  {
    Progress progress({.total = 3, .stream = terminal.stream(), .seconds_between_bars = 0});
    progress.print("before", terminal.stream());
    progress.update(1, 0.5);
    progress.print("a line longer than the bar, and longer than the sixty columns of this terminal", terminal.stream());
    progress.print("short", terminal.stream());
    progress.update(2, 0.25);
    progress.update(3, 0.125);
  }
  const std::vector<std::string> lines = terminal.lines();
  REQUIRE(lines.size() == 5);
  CHECK(lines[0] == "before");
  CHECK(lines[1] == "a line longer than the bar, and longer than the sixty columns of this terminal");
  CHECK(lines[2] == "short");
  CHECK(lines[3].starts_with("train 100% "));
  CHECK(lines[3].find("loss 0.125") != std::string::npos);
  CHECK(lines[3].size() <= 59);
  CHECK(lines[4].empty());
}

TEST_CASE("a validation is shown in the place of the loop's bar, and leaves it as it was", "[progress]") {
  ::setenv("TERM", "xterm", 1);
  ::setenv("LC_ALL", "C", 1);
  Terminal during, after, before;
  {
    Progress progress({.total = 3, .stream = during.stream(), .seconds_between_bars = 0});
    progress.begin_validation(9);
    progress.validated(3);
    CHECK(during.lines().back().starts_with("valid  33% "));
    progress.validated(6);
    CHECK_THAT(during.lines().back(), testing::ContainsSubstring(" 6/9 [00:00<00:00, "));
    progress.end_validation();
  }
  CHECK(during.lines().back().empty());
  {
    Progress progress({.total = 3, .stream = after.stream(), .seconds_between_bars = 0});
    progress.update(2, 0.25);
    progress.begin_validation(9);
    progress.validated(9);
    progress.end_validation();
  }
  const std::vector<std::string> lines = after.lines();
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].starts_with("train  66% "));
  {
    Progress progress({.total = 3, .stream = before.stream(), .seconds_between_bars = 1000});
    progress.begin_validation(9);
    progress.validated(9);  // too short to be shown
    progress.end_validation();
  }
  CHECK(before.lines() == std::vector<std::string>{""});
}

using Variable = testing::EnvironmentVariable;

// What a terminal shows in the end of one iteration of two.
std::vector<std::string> shown_in(const char* lc_all, const char* lc_ctype, const char* lang, const char* term) {
  const Variable a("LC_ALL", lc_all), b("LC_CTYPE", lc_ctype), c("LANG", lang), d("TERM", term);
  Terminal terminal;
  {
    Progress progress({.label = "t", .total = 2, .stream = terminal.stream()});
    ::usleep(100000);  // so that the rate has few digits, and leaves room for a bar
    progress.update(1, 0.5);
  }
  return terminal.lines();
}

TEST_CASE("the first locale that is set says how bars are drawn, a dumb terminal gets lines", "[progress]") {
  const auto drawn = [](const std::vector<std::string>& lines) {
    REQUIRE(!lines.empty());
    return lines[0].find("\u2588") != std::string::npos ? "blocks"
           : lines[0].find('#') != std::string::npos    ? "signs"
                                                        : "";
  };
  CHECK(drawn(shown_in("en_US.UTF-8", "C", "C", "xterm")) == std::string("blocks"));
  CHECK(drawn(shown_in("C", "C.UTF-8", "C.UTF-8", "xterm")) == std::string("signs"));
  CHECK(drawn(shown_in("", "C.utf8", "C", "xterm")) == std::string("blocks"));
  CHECK(drawn(shown_in(nullptr, nullptr, "C.UTF-8", nullptr)) == std::string("blocks"));
  CHECK(drawn(shown_in(nullptr, "", nullptr, "xterm")) == std::string("signs"));
  const std::vector<std::string> dumb = shown_in("C", nullptr, nullptr, "dumb");
  CHECK(dumb[0].starts_with("t: iteration 1/2 (50%), loss 0.5"));
}

TEST_CASE("srun's tasks get lines unless their terminal is the user's, or a bar is asked for", "[progress]") {
  const auto draws_bar = [] {
    const std::vector<std::string> lines = shown_in("C", nullptr, nullptr, "xterm");
    return lines[0].starts_with("t  50% ");
  };
  const Variable no_pty("SLURM_PTY_PORT", nullptr), no_wish("ISOBAR_PROGRESS", nullptr), alone("SLURM_PROCID", nullptr);
  CHECK(draws_bar());
  const Variable task("SLURM_PROCID", "0");
  CHECK_FALSE(draws_bar());
  {
    const Variable pty("SLURM_PTY_PORT", "4711");
    CHECK(draws_bar());
    const Variable lines("ISOBAR_PROGRESS", "lines");
    CHECK_FALSE(draws_bar());
  }
  const Variable bar("ISOBAR_PROGRESS", "bar");
  CHECK(draws_bar());
}

TEST_CASE("bars at the edges of what they can show", "[progress]") {
  ProgressState state{.label = "t", .done = 1, .total = 2, .seconds = 3, .loss = {}};
  CHECK(format_bar(state, 31, false) == "t  50% |####    | 1/2 [00:03<?]");  // eight columns are the smallest bar
  CHECK(format_bar(state, 30, false) == "t  50% 1/2 [00:03<?]");
  state.per_second = 1;
  CHECK(format_plain(state) == "t: iteration 1/2 (50%), 1.0 it/s, 00:01 to go");
  state.per_second = 0.999;
  CHECK(format_plain(state) == "t: iteration 1/2 (50%), 1.00 s/it, 00:01 to go");
  state.samples = 3;
  CHECK(format_plain(state) == "t: iteration 1/2 (50%), 1.00 s/it, 3 samples/s, 00:01 to go");
  CHECK(format_duration(3600) == "1:00:00");
  CHECK(format_duration(60) == "01:00");
  CHECK(format_duration(0.999) == "00:00");
  CHECK(format_duration(1e300) == "277777777:46:40");
  state = {.label = "t", .done = 3, .total = 0, .loss = {}};
  CHECK(format_plain(state) == "t: iteration 3/0 (100%), ? to go");
  state = {.label = "t", .done = 1, .total = 3, .seconds = 0, .loss = 2};
  for (const auto& [done, bar] : {std::pair(0, "          "), std::pair(1, "███▎      "), std::pair(2, "██████▋   "),
                                  std::pair(3, "██████████")}) {
    state.done = done;
    CHECK_THAT(format_bar(state, 45, true), testing::ContainsSubstring("|" + std::string(bar) + "|"));
  }
}

// What a Progress writes to a file, line by line.
template <class Use>
std::vector<std::string> lines_in_file(double seconds_between_lines, const Use& use) {
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  {
    Progress progress({.total = 4, .stream = file, .seconds_between_lines = seconds_between_lines});
    use(progress, file);
  }
  std::rewind(file);
  std::vector<std::string> lines;
  for (char line[256]; std::fgets(line, sizeof line, file) != nullptr;) lines.emplace_back(line);
  std::fclose(file);
  return lines;
}

TEST_CASE("without a terminal there are plain lines, and few", "[progress]") {
  const std::vector<std::string> few = lines_in_file(1000, [](Progress& progress, std::FILE* file) {
    for (int i = 1; i <= 4; ++i) {
      progress.update(i, 1.0 / i);
      if (i == 2) progress.print("a word", file);
    }
  });
  REQUIRE(few.size() == 3);
  CHECK(few[0].starts_with("train: iteration 1/4 (25%), loss 1"));
  CHECK(few[1] == "a word\n");
  CHECK(few[2].starts_with("train: iteration 4/4 (100%), loss 0.25"));
  CHECK(few[2].find('\r') == std::string::npos);

  const std::vector<std::string> all = lines_in_file(0, [](Progress& progress, std::FILE*) {
    for (int i = 1; i <= 4; ++i) progress.update(i, 1);
  });
  CHECK(all.size() == 4);
  CHECK(lines_in_file(0, [](Progress&, std::FILE*) {}).empty());
  const std::vector<std::string> ended = lines_in_file(0, [](Progress& progress, std::FILE* file) {
    progress.update(1, 1);
    progress.finish();
    progress.update(2, 1);
    progress.begin_validation(8);
    progress.validated(4);
    progress.end_validation();
    progress.finish();
    progress.print("a word", file);
  });
  REQUIRE(ended.size() == 2);
  CHECK(ended[0].starts_with("train: iteration 1/4"));
  CHECK(ended[1] == "a word\n");
}

TEST_CASE("without a terminal a long validation has lines of its own", "[progress]") {
  const auto validate = [](Progress& progress) {
    progress.begin_validation(8);
    progress.validated(4);
    progress.end_validation();
  };
  const std::vector<std::string> lines = lines_in_file(0, [&](Progress& progress, std::FILE*) { validate(progress); });
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].starts_with("valid: sample 4/8 (50%), "));
  CHECK_THAT(lines[0], testing::ContainsSubstring(" samples/s, 00:00 to go\n"));
  CHECK(lines_in_file(1000, [&](Progress& progress, std::FILE*) {
          progress.update(1, 1);
          validate(progress);
          progress.update(2, 1);  // the pause between lines goes on
        }).size() == 2);          // the first and the last
}

TEST_CASE("the rate is that of this process's own iterations", "[progress]") {
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  {
    Progress progress({.first = 900, .total = 1000, .stream = file});
    ::usleep(100000);
    progress.update(910, 1);
  }
  std::rewind(file);
  char line[256] = "";
  REQUIRE(std::fgets(line, sizeof line, file) != nullptr);
  std::fclose(file);
  const std::string text = line;
  CHECK_THAT(text, testing::ContainsSubstring("iteration 910/1000"));
  const std::size_t at = text.find(" it/s");
  REQUIRE(at != std::string::npos);
  CHECK(std::stod(text.substr(text.rfind(' ', at - 1))) <= 100);  // 9100, were all 910 its own
}

TEST_CASE("pauses do not count as the loop's time", "[progress]") {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  double paused = 0;
  const Clock::time_point start = Clock::now();
  const std::vector<std::string> lines = lines_in_file(1000, [&](Progress& progress, std::FILE*) {
    progress.pause();
    const Clock::time_point pause = Clock::now();
    ::usleep(300000);
    progress.pause();  // already pausing
    paused = seconds_since(pause);
    progress.resume();
    progress.resume();
    progress.update(4, 1);
  });
  const double most = seconds_since(start) - paused;  // however slow this machine is at the moment
  REQUIRE(lines.size() == 1);
  const std::size_t at = lines[0].find(" it/s");
  REQUIRE(at != std::string::npos);
  CHECK(std::stod(lines[0].substr(lines[0].rfind(' ', at - 1))) > 4 / most - 0.1);
}

}  // namespace
}  // namespace isobar
