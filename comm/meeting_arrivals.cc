// Until all ranks have come: strangers at rank 0's port become guests, and guests that know the key become ranks.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "comm/hmac.h"
#include "comm/meeting_hub.h"
#include "comm/rank_list.h"
#include "kernels/common/check.h"
#include "kernels/cpu/isa.h"

namespace isobar {
namespace {

constexpr std::size_t kMaxUnknownConnections = 512;
constexpr double kSecondsToSpeak = 0.05;
constexpr int kMaxAcceptsAtOnce = 4096;

// The lesser of two names of instruction sets.
std::string lesser(const std::string& a, const std::string& b) {
  for (const cpu::Isa isa : {cpu::Isa::generic, cpu::Isa::avx2, cpu::Isa::avx512})
    if (a == cpu::name_of(isa) || b == cpu::name_of(isa)) return cpu::name_of(isa);
  return a;
}

std::string identity_of(const RankDescription& who) {
  return who.host_identity.empty() ? who.host : who.host_identity;
}

}  // namespace

void MeetingHub::collect(const MeetingPort& port) {
  MeetingClock::time_point until = MeetingClock::now() + duration_of(options.timeout_seconds);
  std::string wrong;
  while (absent_ > 0 && MeetingClock::now() < until) {
    const std::string complaint = serve_pending(port);
    if (complaint.empty() || !wrong.empty()) continue;
    wrong = complaint;  // those who come a little later are told too
    until = std::min(until, MeetingClock::now() + duration_of(options.late_seconds));
  }
  if (wrong.empty() && absent_ > 0)
    wrong =
        concat(ranks_text(missing()), absent_ == 1 ? " has" : " have", " not come to the meeting at ", port.text(),
               " within ", options.timeout_seconds, " s", options.why_absent.empty() ? "" : "; ", options.why_absent);
  if (wrong.empty()) wrong = find_mismatch();
  pending_.clear();
  std::vector<std::string> identities;
  for (const Peer& peer : peers_) identities.push_back(peer.who ? identity_of(*peer.who) : "");
  const std::vector<PlaceOnHost> places = places_on_hosts(identities);
  place_on_host = places[0];
  std::ranges::sort(identities);
  // Clang 14, which fuzzes, cannot compile std::ranges::unique of libstdc++ 12.
  hosts = static_cast<int>(std::unique(identities.begin(), identities.end()) - identities.begin());
  for (std::size_t r = 1; r < peers_.size(); ++r)
    if (peers_[r].who)
      send_to(static_cast<int>(r),
              wrong.empty() ? welcome(payload, places[r], hosts) : Message{.type = kFailed, .texts = {wrong}});
  ISOBAR_CHECK(wrong.empty(), wrong);
}

std::vector<int> MeetingHub::missing() const {
  std::vector<int> ranks;
  for (std::size_t r = 0; r < peers_.size(); ++r)
    if (!peers_[r].who) ranks.push_back(static_cast<int>(r));
  return ranks;
}

// Waits a little for guests and what they say. Returns what is wrong with one of them, or nothing.
std::string MeetingHub::serve_pending(const MeetingPort& port) {
  std::string wrong;
  for (const std::uint64_t id : wait(100)) {
    if (id == kListener) {
      admit(port);
    } else if (id < kListener) {
      const Peer& peer = peers_[id];
      std::string bytes;
      if (receive_some(peer.socket.get(), bytes) == Received::end)
        return concat("rank ", id, ": it died before all had met (", place_of(*peer.who), ")");
    } else if (const auto guest = pending_.find(id); guest != pending_.end() && !serve(guest->second, wrong)) {
      pending_.erase(guest);
    }
  }
  const MeetingClock::time_point late = MeetingClock::now() - duration_of(options.identify_seconds);
  while (!pending_.empty() && pending_.begin()->second.since < late) pending_.erase(pending_.begin());
  return wrong;
}

// Those who wait at the door. Where there is no room, the oldest guest goes, but none that has had no time to speak:
// then the others wait, so that a flood of strangers keeps no rank out.
void MeetingHub::admit(const MeetingPort& port) {
  // All ranks may stand at the door at once.
  const std::size_t max_pending = kMaxUnknownConnections + static_cast<std::size_t>(absent_);
  for (int i = 0; i < kMaxAcceptsAtOnce; ++i) {
    if (pending_.size() >= max_pending) {
      const PendingConnection& oldest = pending_.begin()->second;
      if (has_input(oldest.socket.get())) return;
      if (Seconds(MeetingClock::now() - oldest.since).count() < kSecondsToSpeak) return;
      pending_.erase(pending_.begin());
    }
    Socket socket(::accept4(port.socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.get() < 0) {
      const int error = errno;
      if (error == EINTR || error == ECONNABORTED) continue;
      const bool is_out = error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
      if (!is_out) return;
      ISOBAR_CHECK(!pending_.empty(), "the meeting: no more connections can be taken: ", std::strerror(error),
                   "; raise the limit of open files (ulimit -n)");
      if (has_input(pending_.begin()->second.socket.get())) return;
      pending_.erase(pending_.begin());
      continue;
    }
    watch(socket.get(), next_pending_);
    pending_.emplace(next_pending_++, PendingConnection{.socket = std::move(socket)});
  }
}

// Reads what a guest says; false where it goes: as a rank that is known now, or as a stranger. wrong: of a rank.
bool MeetingHub::serve(PendingConnection& guest, std::string& wrong) {
  if (!guest.is_known) {
    const std::size_t awaited = guest.challenge ? kProofBytes : kOpeningBytes;
    if (!receive_part(guest, awaited)) return false;
    if (guest.received.size() < awaited) return true;
    const std::string part = std::exchange(guest.received, "");
    if (!guest.challenge) {
      if (!part.starts_with(kGreeting)) return false;
      const std::string mine = random_bytes(kRandomBytes);
      guest.challenge.emplace(options.key, part.substr(kGreeting.size()), mine);
      return send_all(guest.socket.get(), mine + guest.challenge->proof_of_first());
    }
    if (!are_equal_in_constant_time(part, guest.challenge->proof_of_rank())) return false;
    guest.is_known = true;
    keep_alive(guest.socket.get(), options.unreachable_seconds);
    guest.stream = MessageStream(guest.challenge->to_first());
    return true;
  }
  std::string bytes;
  const Received received = receive_some(guest.socket.get(), bytes);
  if (received != Received::some) return received == Received::nothing;
  try {
    guest.stream.add(bytes);
    const std::optional<Message> message = guest.stream.next();
    if (!message) return true;
    const std::string complaint = seat(description_in(*message), guest);
    Seal seal = guest.challenge->to_rank();
    if (!complaint.empty()) send_all(guest.socket.get(), to_wire({.type = kFailed, .texts = {complaint}}, &seal));
    if (wrong.empty()) wrong = complaint;
  } catch (const Error&) {  // no message
  }
  return false;
}

bool MeetingHub::receive_part(PendingConnection& guest, std::size_t awaited) {
  std::string bytes;
  const Received received = receive_some(guest.socket.get(), bytes, awaited - guest.received.size());
  guest.received += bytes;
  return received != Received::end;
}

// Takes a guest for the rank that it says it is, or returns what is wrong with that.
std::string MeetingHub::seat(RankDescription who, PendingConnection& guest) {
  if (who.ranks != me.ranks)
    return concat("rank ", who.rank, " (", place_of(who), ") counts ", who.ranks, " ranks, rank 0 ", me.ranks);
  if (who.rank >= me.ranks) return concat(place_of(who), " says that it is rank ", who.rank, " of ", me.ranks);
  Peer& peer = peers_[static_cast<std::size_t>(who.rank)];
  if (peer.who)
    return concat("two processes say that they are rank ", who.rank, ": ", place_of(*peer.who), " and ", place_of(who));
  epoll_event event = {.events = EPOLLIN, .data = {.u64 = static_cast<std::uint64_t>(who.rank)}};
  epoll_ctl(events_.get(), EPOLL_CTL_MOD, guest.socket.get(), &event);
  peer.who = std::move(who);
  --absent_;
  peer.socket = std::move(guest.socket);
  peer.seal = guest.challenge->to_rank();
  peer.stream = std::move(guest.stream);
  return "";
}

// What does not fit, of ranks that have all come; empty where all does.
std::string MeetingHub::find_mismatch() const {
  for (const Peer& peer : peers_)
    if (!peer.who->failure.empty()) return concat("rank ", peer.who->rank, ": ", peer.who->failure);
  const RankDescription& first = me;
  const auto differs = [&](const RankDescription& who, const char* has, const std::string& its,
                           const std::string& firsts) {
    return concat("rank ", who.rank, " (", place_of(who), ") ", has, ' ', its, ", rank 0 ", firsts);
  };
  std::map<std::string, int> devices;
  for (const Peer& peer : peers_) {
    const RankDescription& who = *peer.who;
    if (who.version != first.version) return differs(who, "is isobar", who.version, first.version);
    if (who.layout != first.layout) return differs(who, "has the layout", who.layout, first.layout);
    if (who.config != first.config)
      return concat("rank ", who.rank, " (", place_of(who),
                    ") has another config than rank 0: give all the same flags");
    if (who.instructions != first.instructions)
      return concat(differs(who, "computes with", who.instructions, "with " + first.instructions),
                    ": set ISOBAR_MAX_ISA=", lesser(who.instructions, first.instructions), " on all");
    if (who.compares_calls != first.compares_calls)
      return concat("ISOBAR_COMM_CHECK=1 is set on ", first.compares_calls ? "rank 0" : concat("rank ", who.rank),
                    " and not on ", first.compares_calls ? concat("rank ", who.rank) : "rank 0", ": set it on all");
    if (who.device.empty()) continue;
    const auto [other, is_new] = devices.emplace(who.device, who.rank);
    if (!is_new) return concat("ranks ", other->second, " and ", who.rank, " use the same GPU, ", who.device);
  }
  return "";
}

}  // namespace isobar
