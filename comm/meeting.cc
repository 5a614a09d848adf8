#include "comm/meeting.h"

#include <pthread.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "comm/meeting_client.h"
#include "comm/meeting_hub.h"
#include "comm/meeting_member.h"
#include "comm/mesh.h"
#include "comm/rank_list.h"
#include "kernels/common/check.h"
#include "kernels/common/number_text.h"

namespace isobar {

// ---- Messages -------------------------------------------------------------------------------------------------------

MeetingClock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<MeetingClock::duration>(Seconds(seconds));
}

std::string place_of(const RankDescription& who) {
  return concat("process ", who.process, " on ", who.host);
}

Message hello(const RankDescription& me) {
  return {.type = kHello,
          .texts = {std::to_string(me.rank), std::to_string(me.ranks), me.host, me.host_identity,
                    std::to_string(me.process), me.version, me.config, me.layout, me.instructions,
                    me.compares_calls ? "1" : "0", me.device, me.failure}};
}

RankDescription description_in(const Message& hello) {
  ISOBAR_CHECK(hello.type == kHello && hello.texts.size() == 12, "no rank says so of itself");
  return {.rank = static_cast<int>(hello.number(0, 0, kMaxRanks)),
          .ranks = static_cast<int>(hello.number(1, 1, kMaxRanks)),
          .host = hello.text(2),
          .host_identity = hello.text(3),
          .process = hello.number(4, 0, std::numeric_limits<std::int64_t>::max()),
          .version = hello.text(5),
          .config = hello.text(6),
          .layout = hello.text(7),
          .instructions = hello.text(8),
          .compares_calls = hello.number(9, 0, 1) == 1,
          .device = hello.text(10),
          .failure = hello.text(11)};
}

Message welcome(const std::string& payload, PlaceOnHost place, int hosts) {
  return {.type = kWelcome,
          .texts = {payload, std::to_string(place.local_rank), std::to_string(place.local_ranks), std::to_string(hosts),
                    std::to_string(place.host)}};
}

double seconds_in(const Message& message, std::size_t index) {
  const std::string& text = message.text(index);
  const std::optional<double> seconds = number_from<double>(text);
  ISOBAR_CHECK(seconds && *seconds >= 0, "no number of seconds");
  return *seconds;
}

Message place_message(const std::string& inquiry, const std::string& place, const Work& work) {
  return {.type = kPlace,
          .texts = {inquiry, place, work.what, std::to_string(work.number), concat(work.seconds),
                    concat(work.max_timeouts), concat(work.seconds_since_last)}};
}

Work work_in(const Message& message, std::size_t index) {
  return {.what = message.text(index),
          .number = message.number(index + 1, 0, std::numeric_limits<std::int64_t>::max()),
          .seconds = seconds_in(message, index + 2),
          .max_timeouts = seconds_in(message, index + 3),
          .seconds_since_last = seconds_in(message, index + 4)};
}

SignalsBlocked::SignalsBlocked() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before_);
}

SignalsBlocked::~SignalsBlocked() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

// ---- One rank's end -------------------------------------------------------------------------------------------------

void Meeting::Member::receive(const Message& message) {
  constexpr double kSecondsToBeEnded = 2;  // by the rank that reported while rank 0 was stopped
  std::unique_lock lock(mutex);
  switch (message.type) {
    case kFailed:
      lock.unlock();
      note_failure(message.text(0), me.rank == 0 && !has_reported, has_just_woken() ? kSecondsToBeEnded : 0);
      return;
    case kWhere: {
      const Message answer = place_message(message.text(0), place, work.now());
      lock.unlock();
      return send(answer);
    }
    case kWaitOn:
      ++times_to_wait_on;
      break;
    case kReported:
      is_reported = true;
      break;
    case kDone:
      is_done = true;
      break;
    default:
      return;
  }
  changed.notify_all();
}

void Meeting::Member::take_welcome(const Message& message) {
  payload = message.text(0);
  place_on_host.local_rank = static_cast<int>(message.number(1, 0, me.ranks));
  place_on_host.local_ranks = static_cast<int>(message.number(2, 1, me.ranks));
  hosts = static_cast<int>(message.number(3, 1, me.ranks));
  place_on_host.host = static_cast<int>(message.number(4, 0, hosts - 1));
}

void Meeting::Member::note_failure(const std::string& sentence, bool tells, double report_after) {
  const std::lock_guard lock(mutex);
  if (failed) return;
  failure = sentence;
  reports_error = tells;
  failed_at = MeetingClock::now();
  report_at = failed_at + duration_of(report_after);
  failed = true;
  changed.notify_all();
}

void Meeting::Member::become_reporter(double report_after) {
  const std::lock_guard lock(mutex);
  if (reports_error || is_reported) return;
  reports_error = true;
  report_at = MeetingClock::now() + duration_of(report_after);
  changed.notify_all();
}

bool Meeting::Member::wait_for_failure(double seconds) {
  std::unique_lock lock(mutex);
  return changed.wait_for(lock, Seconds(seconds), [&] { return failed.load(); });
}

Meeting::Member::Answer Meeting::Member::wait_for_answer(double seconds, std::int64_t waited_on) {
  std::unique_lock lock(mutex);
  changed.wait_for(lock, Seconds(seconds), [&] { return failed || times_to_wait_on != waited_on; });
  return failed ? Answer::failed : times_to_wait_on != waited_on ? Answer::wait_on : Answer::none;
}

bool Meeting::Member::has_just_woken() const {
  return Seconds(MeetingClock::now() - woken_at).count() < kSecondsToAnswer;
}

void Meeting::Member::note_turn() {
  const MeetingClock::time_point now = MeetingClock::now();
  if (Seconds(now - last_turn).count() > kSecondsToAnswer) woken_at = now;
  last_turn = now;
}

void Meeting::Member::look_at_clock() {
  if (!failed || !options.force_exit) return;
  std::string sentence;
  {
    const std::lock_guard lock(mutex);
    const double grace = options.grace_seconds * (reports_error ? 1 : 1.5);  // the reporting rank first
    if (Seconds(MeetingClock::now() - failed_at).count() < grace) return;
    if (reports_error && !is_reported) sentence = failure;
  }
  if (!sentence.empty()) announce_report();
  options.force_exit(sentence);
}

// ---- Meeting --------------------------------------------------------------------------------------------------------

Meeting::Meeting(RankDescription me, MeetingPort port, MeetingOptions options)
    : member_(std::make_shared<MeetingHub>(std::move(me), std::move(port), std::move(options))) {}

Meeting::Meeting(RankDescription me, const MeetingPlace& place, MeetingOptions options)
    : member_(std::make_shared<MeetingClient>(std::move(me), place, std::move(options))) {}

Meeting::~Meeting() = default;

const std::string& Meeting::payload() const {
  return member_->payload;
}

PlaceOnHost Meeting::place_on_host() const {
  return member_->place_on_host;
}

int Meeting::hosts() const {
  return member_->hosts;
}

bool Meeting::has_failed() const {
  return member_->failed;
}

std::string Meeting::failure() const {
  const std::lock_guard lock(member_->mutex);
  return member_->failure;
}

bool Meeting::reports_error() const {
  std::unique_lock lock(member_->mutex);
  if (member_->reports_error)
    member_->changed.wait_until(lock, member_->report_at, [&] { return member_->is_reported; });
  return member_->reports_error && !member_->is_reported;
}

void Meeting::note_reported() {
  member_->send({.type = kReported});
}

bool Meeting::is_reported(double seconds) const {
  std::unique_lock lock(member_->mutex);
  return member_->changed.wait_for(lock, Seconds(seconds), [&] { return member_->is_reported; });
}

bool Meeting::must_report(double seconds) const {
  const MeetingClock::time_point end = MeetingClock::now() + duration_of(seconds);
  std::unique_lock lock(member_->mutex);
  while (!member_->is_reported) {
    const MeetingClock::time_point now = MeetingClock::now();
    if (member_->reports_error && now >= member_->report_at) return true;
    if (now >= end) return false;
    member_->changed.wait_until(lock, member_->reports_error ? std::min(end, member_->report_at) : end);
  }
  return false;
}

std::string Meeting::fail(const std::string& sentence, Cause cause) {
  constexpr double kSecondsEach = 3, kMaxSeconds = 9;  // for the reporting rank to end the job
  const int rank = member_->me.rank;
  const bool asks = cause == Cause::perhaps_another;
  if (!has_failed())
    member_->send({.type = static_cast<std::uint8_t>(asks ? kSuspects : kFailed), .texts = {sentence}});
  const double seconds = kSecondsToAnswer + (asks ? std::clamp(kSecondsEach * (rank - 1), 0.0, kMaxSeconds) : 0);
  if (!member_->wait_for_failure(seconds))
    member_->note_failure(concat("rank ", rank, ": ", asks && rank > 0 ? "rank 0 does not answer; " : "", sentence),
                          /*tells=*/true);
  return failure();
}

void Meeting::set_place(const std::string& call) {
  const std::lock_guard lock(member_->mutex);
  member_->place = call;
  member_->work.note_call(!call.empty());
}

void Meeting::begin_work(const std::string& what, double max_timeouts) {
  const std::lock_guard lock(member_->mutex);
  member_->work.begin(what, max_timeouts);
}

void Meeting::end_work() {
  const std::lock_guard lock(member_->mutex);
  member_->work.end();
}

std::string Meeting::report_timeout(std::span<const int> members, double seconds) {
  constexpr double kSecondsEach = 3, kMaxSeconds = 9;  // for the reporting rank to end the job
  std::string place;
  std::int64_t waited_on = 0;
  {
    const std::lock_guard lock(member_->mutex);
    place = member_->place;
    waited_on = member_->times_to_wait_on;
  }
  member_->send({.type = kTimedOut, .texts = {place, encoded_ranks(members), concat(seconds)}});
  // If rank 0 itself does not answer, the next rank reports that; if it cannot, a later one does.
  const int rank = member_->me.rank;
  const Member::Answer answer =
      member_->wait_for_answer(kSecondsToAnswer + std::min(kMaxSeconds, kSecondsEach * rank), waited_on);
  if (answer == Member::Answer::wait_on) return "";
  if (answer == Member::Answer::none)
    member_->note_failure(
        concat("rank ", rank, ": rank 0 does not answer, nor come to ", place, ", within ", seconds, " s"),
        /*tells=*/true);
  return failure();
}

void Meeting::leave() {
  set_place("the end of the run");
  member_->send({.type = kLeft});
  std::vector<int> all(static_cast<std::size_t>(member_->me.ranks));
  std::iota(all.begin(), all.end(), 0);
  while (true) {
    std::unique_lock lock(member_->mutex);
    member_->changed.wait_for(lock, Seconds(member_->options.timeout_seconds),
                              [&] { return member_->is_done || member_->failed; });
    const bool is_done = member_->is_done, failed = member_->failed;
    lock.unlock();
    if (is_done) return;
    if (failed) throw_error(failure());
    const std::string sentence = report_timeout(all, member_->options.timeout_seconds);
    if (!sentence.empty()) throw_error(sentence);
  }
}

}  // namespace isobar
