#include "apps/train/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

namespace isobar {
namespace {

constexpr int kWidthIfUnknown = 80;
constexpr int kSmallestBar = 8;
constexpr const char* kClearLine = "\r\x1b[K";

template <class... Values>
std::string printed(const char* format, Values... values) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, format, values...);
  return buffer;
}

double fraction_of(const ProgressState& state) {
  if (state.total <= 0) return 1;
  return std::clamp(static_cast<double>(state.done) / static_cast<double>(state.total), 0.0, 1.0);
}

std::string percent(const ProgressState& state) {
  // Rounded down: 100 % means done.
  return printed("%3d%%", static_cast<int>(100 * fraction_of(state)));
}

std::string counts(const ProgressState& state) {
  return std::to_string(state.done) + "/" + std::to_string(state.total);
}

std::string remaining(const ProgressState& state) {
  return format_duration(static_cast<double>(state.total - state.done) / state.per_second);
}

// Loss and rates, the most important first.
std::vector<std::string> figures(const ProgressState& state) {
  std::vector<std::string> list;
  if (state.loss) list.push_back(printed("loss %#.4g", *state.loss));  // constant width, so that the line does not jump
  if (state.per_second > 0) {
    if (state.counts_samples)
      list.push_back(printed("%.3g samples/s", state.per_second));
    else
      list.push_back(state.per_second >= 1 ? printed("%.1f it/s", state.per_second)
                                           : printed("%.2f s/it", 1 / state.per_second));
    if (state.samples > 0) list.push_back(printed("%.3g samples/s", state.per_second * state.samples));
  }
  return list;
}

std::string drawn_bar(double fraction, int columns, bool unicode) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(fraction * columns * 8);
  const int full = eighths / 8;
  std::string bar;
  for (int i = 0; i < full; ++i) bar += unicode ? "█" : "#";
  const char* part = unicode ? kEighths[eighths % 8] : "";
  bar += part;
  bar.append(static_cast<std::size_t>(columns - full - (*part != '\0' ? 1 : 0)), ' ');
  return "|" + bar + "|";
}

// Under srun -u tasks have pseudo-terminals whose output goes to a file; under srun --pty the terminal is the user's.
bool is_task_without_user() {
  return std::getenv("SLURM_PROCID") != nullptr && std::getenv("SLURM_PTY_PORT") == nullptr;
}

// Whether bars may be drawn on this stream.
bool is_terminal(std::FILE* stream) {
  if (const char* wanted = std::getenv("ISOBAR_PROGRESS")) return std::strcmp(wanted, "bar") == 0;
  if (is_task_without_user()) return false;
  const char* kind = std::getenv("TERM");
  return ::isatty(::fileno(stream)) != 0 && (kind == nullptr || std::strcmp(kind, "dumb") != 0);
}

bool is_utf8() {
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(variable);
    if (value == nullptr || *value == '\0') continue;
    const std::string_view locale = value;
    return locale.find("UTF-8") != locale.npos || locale.find("utf8") != locale.npos;
  }
  return false;
}

int columns_of(std::FILE* stream) {
  winsize size{};
  const bool known = ::ioctl(::fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kWidthIfUnknown;
}

}  // namespace

std::string format_duration(double seconds) {
  if (!(seconds >= 0) || !std::isfinite(seconds)) return "?";
  const auto whole = static_cast<long long>(std::min(seconds, 1e12));
  const int s = static_cast<int>(whole % 60);
  const int m = static_cast<int>(whole / 60 % 60);
  return whole < 3600 ? printed("%02d:%02d", m, s) : printed("%lld:%02d:%02d", whole / 3600, m, s);
}

std::string format_bar(const ProgressState& state, int width, bool unicode) {
  const std::string head = state.label + " " + percent(state) + " ";
  std::vector<std::string> list = figures(state);
  list.insert(list.begin(), format_duration(state.seconds) + "<" + remaining(state));
  const auto tail = [&] {
    std::string inside;
    for (const std::string& figure : list) inside += (inside.empty() ? "" : ", ") + figure;
    return counts(state) + (inside.empty() ? "" : " [" + inside + "]");
  };
  const auto room = [&] { return width - static_cast<int>(head.size() + tail().size()); };
  const auto columns = [&] { return room() - static_cast<int>(std::strlen("|| ")); };
  const std::vector<std::string> all = list;
  if (columns() < kSmallestBar && state.samples > 0 && state.per_second > 0) list.pop_back();
  if (columns() >= kSmallestBar) return head + drawn_bar(fraction_of(state), columns(), unicode) + " " + tail();
  list = all;
  while (room() < 0 && !list.empty()) list.pop_back();
  return (head + tail()).substr(0, static_cast<std::size_t>(std::max(width, 0)));
}

std::string format_plain(const ProgressState& state) {
  std::string share = percent(state);
  share.erase(0, share.find_first_not_of(' '));
  std::string line =
      state.label + (state.counts_samples ? ": sample " : ": iteration ") + counts(state) + " (" + share + ")";
  for (const std::string& figure : figures(state)) line += ", " + figure;
  return line + ", " + remaining(state) + " to go";
}

Progress::Progress(Options options)
    : options_(std::move(options)),
      terminal_(is_terminal(options_.stream)),
      unicode_(is_utf8()),
      done_(options_.first),
      shown_(options_.first),
      start_(Clock::now()) {}

Progress::~Progress() {
  finish();
}

double Progress::seconds() const {
  return std::chrono::duration<double>(paused_.value_or(Clock::now()) - start_).count();
}

ProgressState Progress::state() const {
  return validation_ ? validation_state() : loop_state();
}

ProgressState Progress::validation_state() const {
  const double passed = seconds_since(validation_->start);
  return {.label = validation_->label,
          .counts_samples = true,
          .done = validation_->done,
          .total = validation_->samples,
          .seconds = passed,
          .per_second = passed > 0 ? static_cast<double>(validation_->done) / passed : 0,
          .loss = {}};
}

ProgressState Progress::loop_state() const {
  const double passed = seconds();
  return {.label = options_.label,
          .done = done_,
          .total = options_.total,
          .seconds = passed,
          .per_second = passed > 0 ? static_cast<double>(done_ - options_.first) / passed : 0,
          .samples = options_.samples_per_iteration,
          .loss = loss_};
}

bool Progress::due() const {
  if (!last_shown_) return true;
  const double pause = terminal_ ? options_.seconds_between_bars : options_.seconds_between_lines;
  return seconds_since(*last_shown_) >= pause;
}

void Progress::update(std::int64_t done, double loss) {
  done_ = done;
  loss_ = loss;
  if (!finished_ && due()) show();
}

void Progress::show() {
  if (!options_.is_shown) return;
  if (terminal_) {
    // One column stays free: some terminals wrap a full line.
    const std::string bar = format_bar(state(), columns_of(options_.stream) - 1, unicode_);
    std::fprintf(options_.stream, "%s%s", kClearLine, bar.c_str());
    bar_is_shown_ = true;
  } else {
    std::fprintf(options_.stream, "%s\n", format_plain(state()).c_str());
  }
  std::fflush(options_.stream);
  if (!validation_) shown_ = done_;
  last_shown_ = Clock::now();
}

void Progress::clear() {
  if (!bar_is_shown_) return;
  std::fputs(kClearLine, options_.stream);
  std::fflush(options_.stream);
  bar_is_shown_ = false;
}

void Progress::print(std::string_view line, std::FILE* stream) {
  const bool again = bar_is_shown_;
  clear();
  std::fprintf(stream, "%.*s\n", static_cast<int>(line.size()), line.data());
  std::fflush(stream);
  if (again) show();
}

void Progress::begin_validation(std::int64_t samples, const std::string& label) {
  validation_ = Validation{.label = label, .samples = samples, .over_bar = bar_is_shown_, .shown_before = last_shown_};
  last_shown_ = validation_->start;  // a short validation needs no bar
}

void Progress::validated(std::int64_t samples) {
  if (!validation_) return;
  validation_->done = samples;
  if (!finished_ && due()) show();
}

void Progress::end_validation() {
  if (!validation_) return;
  const Validation ended = *std::exchange(validation_, std::nullopt);
  last_shown_ = ended.shown_before;
  if (!bar_is_shown_) return;
  if (ended.over_bar)
    show();
  else
    clear();
}

void Progress::pause() {
  if (!paused_) paused_ = Clock::now();
}

void Progress::resume() {
  if (!paused_) return;
  start_ += Clock::now() - *paused_;
  paused_.reset();
}

void Progress::finish() {
  if (finished_) return;
  if (bar_is_shown_ || shown_ != done_) show();
  if (bar_is_shown_) std::fputc('\n', options_.stream);
  std::fflush(options_.stream);
  bar_is_shown_ = false;
  finished_ = true;
}

}  // namespace isobar
