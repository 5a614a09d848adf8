#include "comm/meeting_hub.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "comm/rank_list.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr double kSecondsOfAnAnswer = 0.5;  // an answer holds this long for ranks whose timeouts expire a little later

}  // namespace

MeetingHub::MeetingHub(RankDescription me, MeetingPort port, MeetingOptions given)
    : Member(std::move(me), std::move(given)),
      events_(epoll_create1(EPOLL_CLOEXEC)),
      next_pending_(kFirstPending),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  payload = options.payload;
  peers_.resize(static_cast<std::size_t>(this->me.ranks));
  peers_[0].who = this->me;
  absent_ = this->me.ranks - 1;
  allow_open_files(this->me.ranks, concat("the meeting of ", this->me.ranks, " ranks"));
  watch(wake_.get(), kWake);
  watch(port.socket_.get(), kListener);
  collect(port);
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { listen(); });
}

MeetingHub::~MeetingHub() {
  stop_ = true;
  wake();
  thread_.join();
}

void MeetingHub::send(const Message& message) {
  {
    const std::lock_guard lock(posted_mutex_);
    posted_.push_back(message);
  }
  wake();
}

void MeetingHub::wake() const {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(wake_.get(), &one, sizeof one));
}

void MeetingHub::watch(int socket, std::uint64_t id) const {
  epoll_event event = {.events = EPOLLIN, .data = {.u64 = id}};
  ISOBAR_CHECK(epoll_ctl(events_.get(), EPOLL_CTL_ADD, socket, &event) == 0,
               "the meeting: a connection cannot be watched: ", std::strerror(errno));
}

std::vector<std::uint64_t> MeetingHub::wait(int milliseconds) const {
  std::array<epoll_event, 256> events;
  const int count = epoll_wait(events_.get(), events.data(), static_cast<int>(events.size()), milliseconds);
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back(events[static_cast<std::size_t>(i)].data.u64);
  return ids;
}

void MeetingHub::listen() {
  while (!stop_) {
    const std::vector<std::uint64_t> ids = wait(100);
    note_turn();
    std::uint64_t count = 0;
    static_cast<void>(!::read(wake_.get(), &count, sizeof count));
    serve_posted();
    for (const std::uint64_t id : ids)
      if (id < kListener) serve_peer(static_cast<int>(id));
    if (inquiry_ && MeetingClock::now() > inquiry_->until) conclude();
    beat();
    look_at_clock();
  }
}

void MeetingHub::beat() {
  if (Seconds(MeetingClock::now() - beaten_).count() < options.beat_seconds) return;
  beaten_ = MeetingClock::now();
  for (std::size_t r = 1; r < peers_.size(); ++r) send_to(static_cast<int>(r), {.type = kBeat});
}

void MeetingHub::serve_posted() {
  while (true) {
    Message message;
    {
      const std::lock_guard lock(posted_mutex_);
      if (posted_.empty()) return;
      message = std::move(posted_.front());
      posted_.pop_front();
    }
    handle(0, message);
  }
}

// Reads a rank's bytes and handles its complete messages.
void MeetingHub::serve_peer(int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.socket.get() < 0) return;
  std::string bytes;
  const Received received = receive_some(peer.socket.get(), bytes);
  const bool is_gone = is_error_of_unreachable(errno);
  try {
    if (received == Received::end)
      throw_error(is_gone ? "its host does not answer any more (" : "it has died (", place_of(*peer.who), ")");
    peer.stream.add(bytes);
    while (const std::optional<Message> message = peer.stream.next()) handle(rank, *message);
  } catch (const Error& error) {
    peer.socket = Socket();
    if (!all_have_left_) lose(concat("rank ", rank, ": ", error.what()));
  }
}

// Throws Error for an invalid message.
void MeetingHub::handle(int rank, const Message& message) {
  switch (message.type) {
    case kFailed:
      return fail_all(concat("rank ", rank, ": ", message.text(0)));
    case kTimedOut:
      return take_timeout(rank, message);
    case kSuspects:
      return take_suspicion(rank, message);
    case kPlace:
      return take_place(rank, message);
    case kReported:
      return announce_report();
    case kLeft:
      left_ += std::exchange(peers_[static_cast<std::size_t>(rank)].has_left, true) ? 0 : 1;
      if (left_ < me.ranks) return;
      all_have_left_ = true;
      return send_to_all({.type = kDone});
    default:
      throw_error("it has sent a message of type ", static_cast<int>(message.type));
  }
}

bool MeetingHub::send_to(int rank, const Message& message) {
  if (rank == 0) {
    receive(message);
    return true;
  }
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  return peer.socket.get() >= 0 && send_all(peer.socket.get(), to_wire(message, &peer.seal));
}

void MeetingHub::send_to_all(const Message& message) {
  for (std::size_t r = peers_.size(); r-- > 0;) send_to(static_cast<int>(r), message);  // this rank last
}

void MeetingHub::lose(const std::string& sentence) {
  if (is_over_) return;
  has_reported = options.report_death && !has_just_woken();
  if (has_reported) options.report_death(sentence);
  fail_all(sentence);
  if (has_reported) announce_report();
}

void MeetingHub::fail_all(const std::string& sentence) {
  if (std::exchange(is_over_, true)) return;
  send_to_all({.type = kFailed, .texts = {sentence}});
}

void MeetingHub::take_timeout(int asker, const Message& message) {
  if (inquiry_ || is_over_) return;
  if (Seconds(MeetingClock::now() - waited_on_).count() < kSecondsOfAnAnswer) {
    send_to(asker, {.type = kWaitOn});
    return;
  }
  ask_all_ranks({.asker = asker,
                 .call = message.text(0),
                 .members = decoded_ranks(message.text(1), me.ranks),
                 .seconds = seconds_in(message, 2)});
}

void MeetingHub::take_suspicion(int asker, const Message& message) {
  if (is_over_) return;
  if (!inquiry_) return ask_all_ranks({.asker = asker, .suspicion = message.text(0)});
  if (!inquiry_->suspicion.empty()) return;
  inquiry_->asker = asker;  // this asker ends the run, whatever the answers are
  inquiry_->suspicion = message.text(0);
}

void MeetingHub::ask_all_ranks(Inquiry inquiry) {
  inquiry.places.resize(peers_.size());
  inquiry.until = MeetingClock::now() + duration_of(options.answer_seconds);
  inquiry_ = std::move(inquiry);
  send_to_all({.type = kWhere, .texts = {std::to_string(++inquiries_)}});
}

void MeetingHub::take_place(int rank, const Message& message) {
  const Place place{message.text(1), work_in(message, 2)};
  if (!inquiry_ || message.number(0, 0, inquiries_) != inquiries_) return;  // answers an earlier inquiry
  std::optional<Place>& known = inquiry_->places[static_cast<std::size_t>(rank)];
  inquiry_->answers += known ? 0 : 1;
  known = place;
  if (inquiry_->answers == peers_.size()) conclude();
}

void MeetingHub::conclude_suspicion(const Inquiry& asked) {
  std::vector<int> silent;
  for (std::size_t r = 0; r < asked.places.size(); ++r)
    if (!asked.places[r]) silent.push_back(static_cast<int>(r));
  const std::string its = concat("rank ", asked.asker, ": ", asked.suspicion);
  if (silent.empty()) return fail_all(its);
  fail_all(concat(ranks_text(silent), silent.size() == 1 ? " does" : " do", " not answer (",
                  place_of(*peers_[static_cast<std::size_t>(silent.front())].who), "); ", its));
}

// Names the ranks that have not joined: first those that do not answer, else those that are in no call, else the
// others. The latter may themselves wait in another group for a rank that is in no call.
void MeetingHub::conclude() {
  const Inquiry asked = *std::exchange(inquiry_, std::nullopt);
  if (!asked.suspicion.empty()) return conclude_suspicion(asked);
  std::vector<bool> is_member(peers_.size());
  for (const int rank : asked.members) is_member[static_cast<std::size_t>(rank)] = true;
  std::vector<int> silent, idle, elsewhere, idle_others, excused;
  std::string works;
  for (std::size_t r = 0; r < asked.places.size(); ++r) {
    const auto rank = static_cast<int>(r);
    const std::optional<Place>& place = asked.places[r];
    if (!place)
      silent.push_back(rank);
    else if (is_member[r] && place->call.empty())
      idle.push_back(rank);
    else if (place->call.empty())
      idle_others.push_back(rank);
    else if (is_member[r] && place->call != asked.call)
      elsewhere.push_back(rank);
    if (place) works += text_of_work(rank, place->work);
    if (place && place->work.excuses(asked.seconds)) excused.push_back(rank);
  }
  if (silent.empty() && !excused.empty()) return wait_on(asked, excused);
  const std::vector<int>& absent = !silent.empty() ? silent : !idle.empty() ? idle : elsewhere;
  std::string sentence = concat("rank ", asked.asker, ": ");
  if (absent.empty())
    sentence += concat("all have come to ", asked.call, ", which has not ended");
  else
    sentence += concat(ranks_text(absent), absent.size() == 1 ? " has" : " have", " not come to ", asked.call);
  sentence += concat(", within ", asked.seconds, " s");
  if (!silent.empty())
    sentence += concat("; no answer from ", place_of(*peers_[static_cast<std::size_t>(silent.front())].who));
  if (silent.empty() && idle.empty() && !elsewhere.empty()) {
    const int first = elsewhere.front();
    sentence += concat("; rank ", first, " is in ", asked.places[static_cast<std::size_t>(first)]->call);
    if (!idle_others.empty())
      sentence += concat(", ", ranks_text(idle_others), idle_others.size() == 1 ? " is" : " are", " in no call");
  }
  fail_all(sentence + works);
}

// Some rank works alone, and is alive.
void MeetingHub::wait_on(const Inquiry& asked, const std::vector<int>& excused) {
  for (const int rank : excused) {
    const Work& work = asked.places[static_cast<std::size_t>(rank)]->work;
    std::int64_t& reported = reported_works_[rank];
    if (work.what.empty() || work.number == reported || !options.report_work) continue;
    reported = work.number;
    options.report_work(
        concat("rank ", rank, " is ", work.what, " since ", std::lround(work.seconds), " s: the others wait for it"));
  }
  waited_on_ = MeetingClock::now();
  send_to_all({.type = kWaitOn});
}

}  // namespace isobar
