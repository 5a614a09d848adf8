#include "comm/work.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/check.h"

namespace isobar {
namespace {

double seconds_between(WorkAccount::Clock::time_point from, WorkAccount::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

bool Work::excuses(double timeout) const {
  return what.empty() ? seconds_since_last < timeout : seconds < max_timeouts * timeout;
}

std::string text_of_work(int rank, const Work& work) {
  if (work.what.empty()) return "";
  return concat("; rank ", rank, " is ", work.what, " since ", std::lround(work.seconds), " s");
}

void WorkAccount::begin(const std::string& what, double max_timeouts) {
  works_.push_back({what, max_timeouts, ++begun_, Clock::now()});
}

void WorkAccount::end() {
  note_pause();
  works_.pop_back();
}

void WorkAccount::note_call(bool is_in_call) {
  if (is_in_call == is_in_call_) return;
  if (is_in_call) note_pause();
  is_in_call_ = is_in_call;
  out_of_call_ = Clock::now();
}

void WorkAccount::note_pause() {
  if (!works_.empty() && !is_in_call_) last_worked_ = Clock::now();
}

Work WorkAccount::now() const {
  const Clock::time_point now = Clock::now();
  Work work;
  if (last_worked_ != Clock::time_point::min()) work.seconds_since_last = seconds_between(last_worked_, now);
  if (works_.empty() || is_in_call_) return work;
  const Begun& innermost = works_.back();
  work.what = innermost.what;
  work.number = innermost.number;
  work.max_timeouts = innermost.max_timeouts;
  work.seconds = seconds_between(std::max(innermost.since, out_of_call_), now);
  return work;
}

}  // namespace isobar
