#include "comm/meeting_client.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "comm/challenge.h"
#include "comm/hmac.h"
#include "kernels/common/check.h"
#include "kernels/common/comma_list.h"

namespace isobar {
namespace {

std::string text_of(const MeetingPlace& place) {
  const std::string text = concat(comma_list(place.addresses), ':', place.port);
  return place.ports > 1 ? concat(text, " to ", place.port + place.ports - 1) : text;
}

}  // namespace

MeetingClient::MeetingClient(RankDescription me, const MeetingPlace& place, MeetingOptions given)
    : Member(std::move(me), std::move(given)), random_(static_cast<unsigned>(this->me.rank + 1)) {
  const MeetingClock::duration time = duration_of(options.timeout_seconds);
  const MeetingClock::time_point until = MeetingClock::now() + time;
  std::string why = "nobody listens";
  while (!try_all(place, until + time, why)) {  // rank 0's timeout may begin when this rank's ends
    if (MeetingClock::now() >= until) {
      if (!options.reports_unreachable) throw ErrorReportedByAnotherRank();
      throw_error("rank ", this->me.rank, ": no meeting at ", text_of(place), " within ", options.timeout_seconds,
                  " s: ", why);
    }
    pause();
  }
  resolved_.clear();
  if (!options.reporter_ends_all && place_on_host.local_ranks > 1)
    neighbours_.emplace(options.key, this->me.host_identity, port_, place_on_host);
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { listen(); });
}

MeetingClient::~MeetingClient() {
  stop_ = true;
  ::shutdown(socket_.get(), SHUT_RDWR);
  thread_.join();
}

void MeetingClient::send(const Message& message) {
  {
    const std::lock_guard lock(send_mutex_);
    send_all(socket_.get(), to_wire(message, &seal_));
  }
  if (message.type != kReported) return;
  receive(message);  // may run in any thread, under the mutex; rank 0 may be gone
  if (neighbours_) neighbours_->tell();
}

// ---- Until the welcome ----------------------------------------------------------------------------------------------

// Exponential backoff with random factors: thousands of ranks may wait for rank 0.
void MeetingClient::pause() {
  constexpr double kMaxSeconds = 1;
  const double factor = std::uniform_real_distribution<double>(0.5, 1)(random_);
  std::this_thread::sleep_for(Seconds(pause_seconds_ * factor));
  pause_seconds_ = std::min(kMaxSeconds, 1.5 * pause_seconds_);
}

// False if rank 0 of this job is not there (yet).
bool MeetingClient::try_all(const MeetingPlace& place, MeetingClock::time_point until, std::string& why) {
  for (const std::string& address : place.addresses)
    for (int i = 0; i < place.ports; ++i)
      if (meet(resolved(address), place.port + i, until, why)) return true;
  return false;
}

// Name servers are asked at most once a second.
const addrinfo* MeetingClient::resolved(const std::string& address) {
  Resolved& known = resolved_[address];
  const MeetingClock::time_point now = MeetingClock::now();
  if (known.at == MeetingClock::time_point() || (known.addresses == nullptr && now - known.at > Seconds(1)) ||
      now - known.at > Seconds(10))
    known = {options.resolve(address), now};
  return known.addresses.get();
}

bool MeetingClient::meet(const addrinfo* addresses, int port, MeetingClock::time_point until, std::string& why) {
  socket_ = connect_to(addresses, port, why);
  if (socket_.get() < 0) return false;
  keep_alive(socket_.get(), options.unreachable_seconds);
  port_ = port;
  why = "who listens there is not of this job";
  return show_key() && take_answer(until);
}

// Rank 0 proves first that it knows the key. A listener that does not answer soon is given up.
bool MeetingClient::show_key() {
  const std::string mine = random_bytes(kRandomBytes);
  if (!send_all(socket_.get(), concat(kGreeting, mine))) return false;
  const std::optional<std::string> answer =
      receive_exactly(kAnswerBytes, MeetingClock::now() + duration_of(options.identify_seconds));
  if (!answer) return false;
  const Challenge challenge(options.key, mine, answer->substr(0, kRandomBytes));
  if (!are_equal_in_constant_time(answer->substr(kRandomBytes), challenge.proof_of_first())) return false;
  seal_ = challenge.to_first();
  stream_ = MessageStream(challenge.to_rank());
  return send_all(socket_.get(), challenge.proof_of_rank() + to_wire(hello(me), &seal_));
}

std::optional<std::string> MeetingClient::receive_exactly(std::size_t count, MeetingClock::time_point until) {
  std::string all;
  while (all.size() < count && MeetingClock::now() < until) {
    pollfd polled{socket_.get(), POLLIN, 0};
    if (::poll(&polled, 1, 100) <= 0) continue;
    std::string bytes;
    const Received received = receive_some(socket_.get(), bytes, count - all.size());
    if (received == Received::end) return std::nullopt;
    all += bytes;
  }
  return all.size() == count ? std::optional(all) : std::nullopt;
}

bool MeetingClient::take_answer(MeetingClock::time_point until) {
  while (MeetingClock::now() < until) {
    pollfd polled{socket_.get(), POLLIN, 0};
    if (::poll(&polled, 1, 100) <= 0) continue;
    std::string bytes;
    if (receive_some(socket_.get(), bytes) == Received::end) return false;
    try {
      stream_.add(bytes);
      const std::optional<Message> answer = stream_.next();
      if (!answer) continue;
      if (answer->type == kFailed) throw ErrorReportedByAnotherRank();
      if (answer->type != kWelcome) return false;
      take_welcome(*answer);
      return true;
    } catch (const Error&) {
      return false;
    }
  }
  return false;
}

// ---- Afterwards -----------------------------------------------------------------------------------------------------

void MeetingClient::listen() {
  constexpr int kMilliseconds = 1000, kMillisecondsOfFailed = 100;
  bool is_open = take_messages();  // the first one may have arrived with the welcome
  if (!is_open) lose();
  while (!stop_) {
    pollfd polled[2] = {{is_open ? socket_.get() : -1, POLLIN, 0},
                        {neighbours_ ? neighbours_->descriptor() : -1, POLLIN, 0}};
    ::poll(polled, 2, failed ? kMillisecondsOfFailed : kMilliseconds);
    if (polled[0].revents != 0 && !serve()) {
      is_open = false;
      lose();
    }
    if (polled[1].revents != 0 && neighbours_->has_been_notified()) receive({.type = kReported});
    look_at_clock();
  }
}

// False if rank 0 is gone.
bool MeetingClient::serve() {
  std::string bytes;
  const Received received = receive_some(socket_.get(), bytes);
  is_unreachable_ = received == Received::end && is_error_of_unreachable(errno);
  stream_.add(bytes);
  return received != Received::end && take_messages();
}

bool MeetingClient::take_messages() {
  try {
    while (const std::optional<Message> message = stream_.next()) receive(*message);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Rank 0 is gone: the next rank reports that, or what rank 0 had to report. If it is dead too, a later rank does.
void MeetingClient::lose() {
  {
    const std::lock_guard lock(mutex);
    if (is_done) return;
  }
  const std::optional<double> seconds = seconds_to_report();
  note_failure(is_unreachable_ ? "rank 0: its host does not answer any more" : "rank 0: it has died", false);
  if (seconds) become_reporter(*seconds);
}

// Time for the ranks before this one to report, if they live. If the reporting rank ends all others, this process ends
// in that time. Otherwise ranks of the same host learn of the report, and a launcher ends the other hosts. Some
// launchers do not, and then a few ranks report.
std::optional<double> MeetingClient::seconds_to_report() const {
  constexpr double kSecondsEach = 3, kMaxSeconds = 9;
  if (options.reporter_ends_all) return std::min(kMaxSeconds, kSecondsEach * (me.rank - 1));
  constexpr double kSecondsANeighbour = 0.5, kSecondsAHost = 2.5;
  constexpr int kNeighbours = 4, kHosts = 3;
  const int before = place_on_host.host == 0 ? place_on_host.local_rank - 1 : place_on_host.local_rank;
  if (before >= kNeighbours || place_on_host.host >= kHosts) return std::nullopt;
  return kSecondsANeighbour * before + kSecondsAHost * place_on_host.host;
}

}  // namespace isobar
