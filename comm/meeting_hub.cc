#include "comm/meeting_hub.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "comm/hmac.h"
#include "comm/rank_list.h"
#include "kernels/common/check.h"
#include "kernels/common/host_name.h"
#include "kernels/cpu/isa.h"

namespace isobar {
namespace {

constexpr double kSecondsOfAnAnswer = 0.5;  // an answer holds this long for ranks whose timeouts expire a little later
constexpr std::size_t kMostStrangers = 512;
constexpr double kSecondsToSpeak = 0.05;
constexpr int kMostAdmittedAtOnce = 4096;

// Ids of the descriptors that epoll watches; a rank's id is its number.
constexpr std::uint64_t kDoor = std::uint64_t{1} << 32, kWake = kDoor + 1, kFirstGuest = kDoor + 2;

// The lower of two instruction sets, by name.
std::string lesser(const std::string& a, const std::string& b) {
  for (const cpu::Isa isa : {cpu::Isa::generic, cpu::Isa::avx2, cpu::Isa::avx512})
    if (a == cpu::name_of(isa) || b == cpu::name_of(isa)) return cpu::name_of(isa);
  return a;
}

std::string identity_of(const Attendee& who) {
  return who.host_identity.empty() ? who.host : who.host_identity;
}

}  // namespace

MeetingHub::MeetingHub(Attendee me, MeetingPort port, MeetingOptions given)
    : Member(std::move(me), std::move(given)),
      events_(epoll_create1(EPOLL_CLOEXEC)),
      next_guest_(kFirstGuest),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  payload = options.payload;
  peers_.resize(static_cast<std::size_t>(this->me.ranks));
  peers_[0].who = this->me;
  absent_ = this->me.ranks - 1;
  allow_open_files(this->me.ranks, concat("the meeting of ", this->me.ranks, " ranks"));
  watch(wake_.get(), kWake);
  watch(port.socket_.get(), kDoor);
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

// ---- Until all have connected ---------------------------------------------------------------------------------------

void MeetingHub::collect(const MeetingPort& port) {
  MeetingClock::time_point until = MeetingClock::now() + duration_of(options.timeout_seconds);
  std::string wrong;
  while (absent_ > 0 && MeetingClock::now() < until) {
    const std::string complaint = serve_guests(port);
    if (complaint.empty() || !wrong.empty()) continue;
    wrong = complaint;  // ranks that connect a little later are answered too
    until = std::min(until, MeetingClock::now() + duration_of(options.late_seconds));
  }
  if (wrong.empty() && absent_ > 0)
    wrong =
        concat(ranks_text(missing()), absent_ == 1 ? " has" : " have", " not come to the meeting at ", port.text(),
               " within ", options.timeout_seconds, " s", options.why_absent.empty() ? "" : "; ", options.why_absent);
  if (wrong.empty()) wrong = misfit();
  guests_.clear();
  std::vector<std::string> identities;
  for (const Peer& peer : peers_) identities.push_back(peer.who ? identity_of(*peer.who) : "");
  const std::vector<PlaceOnHost> places = places_on_hosts(identities);
  place_on_host = places[0];
  std::ranges::sort(identities);
  hosts = static_cast<int>(std::ranges::unique(identities).begin() - identities.begin());
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

// Waits briefly for guests and their messages. Returns what is wrong with one of them, or nothing.
std::string MeetingHub::serve_guests(const MeetingPort& port) {
  std::string wrong;
  for (const std::uint64_t id : wait(100)) {
    if (id == kDoor) {
      admit(port);
    } else if (id < kDoor) {
      const Peer& peer = peers_[id];
      std::string bytes;
      if (receive_some(peer.socket.get(), bytes) == Received::end)
        return concat("rank ", id, ": it died before all had met (", place_of(*peer.who), ")");
    } else if (const auto guest = guests_.find(id); guest != guests_.end() && !serve(guest->second, wrong)) {
      guests_.erase(guest);
    }
  }
  const MeetingClock::time_point late = MeetingClock::now() - duration_of(options.identify_seconds);
  while (!guests_.empty() && guests_.begin()->second.since < late) guests_.erase(guests_.begin());
  return wrong;
}

// Accepts waiting connections. If there is no room, the oldest guest is dropped. A guest that has had no time to speak,
// or whose bytes were not read yet, is kept: then new connections wait, so that a flood of unknown ones keeps no rank
// out.
void MeetingHub::admit(const MeetingPort& port) {
  // All ranks may connect at once.
  const std::size_t most = kMostStrangers + static_cast<std::size_t>(absent_);
  for (int i = 0; i < kMostAdmittedAtOnce; ++i) {
    if (guests_.size() >= most) {
      const Guest& oldest = guests_.begin()->second;
      if (has_input(oldest.socket.get())) return;
      if (Seconds(MeetingClock::now() - oldest.since).count() < kSecondsToSpeak) return;
      guests_.erase(guests_.begin());
    }
    Socket socket(::accept4(port.socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.get() < 0) {
      const int error = errno;
      if (error == EINTR || error == ECONNABORTED) continue;
      const bool is_out = error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
      if (!is_out) return;
      ISOBAR_CHECK(!guests_.empty(), "the meeting: no more connections can be taken: ", std::strerror(error),
                   "; raise the limit of open files (ulimit -n)");
      if (has_input(guests_.begin()->second.socket.get())) return;
      guests_.erase(guests_.begin());
      continue;
    }
    watch(socket.get(), next_guest_);
    guests_.emplace(next_guest_++, Guest{.socket = std::move(socket)});
  }
}

// Reads a guest's bytes. False if it is removed: it is a known rank now, or is rejected. wrong: what is wrong with a
// rank.
bool MeetingHub::serve(Guest& guest, std::string& wrong) {
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
    const std::string complaint = seat(attendee_in(*message), guest);
    Seal seal = guest.challenge->to_rank();
    if (!complaint.empty()) send_all(guest.socket.get(), to_wire({.type = kFailed, .texts = {complaint}}, &seal));
    if (wrong.empty()) wrong = complaint;
  } catch (const Error&) {  // no message
  }
  return false;
}

bool MeetingHub::receive_part(Guest& guest, std::size_t awaited) {
  std::string bytes;
  const Received received = receive_some(guest.socket.get(), bytes, awaited - guest.received.size());
  guest.received += bytes;
  return received != Received::end;
}

// Accepts a guest as the rank that it claims to be, or returns what is wrong with that.
std::string MeetingHub::seat(Attendee who, Guest& guest) {
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

// The first mismatch between ranks that have all connected; empty if there is none.
std::string MeetingHub::misfit() const {
  for (const Peer& peer : peers_)
    if (!peer.who->failure.empty()) return concat("rank ", peer.who->rank, ": ", peer.who->failure);
  const Attendee& first = me;
  const auto differs = [&](const Attendee& who, const char* has, const std::string& its, const std::string& firsts) {
    return concat("rank ", who.rank, " (", place_of(who), ") ", has, ' ', its, ", rank 0 ", firsts);
  };
  std::map<std::string, int> devices;
  for (const Peer& peer : peers_) {
    const Attendee& who = *peer.who;
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

// ---- Afterwards -----------------------------------------------------------------------------------------------------

void MeetingHub::listen() {
  while (!stop_) {
    const std::vector<std::uint64_t> ids = wait(100);
    note_turn();
    std::uint64_t count = 0;
    static_cast<void>(!::read(wake_.get(), &count, sizeof count));
    serve_posted();
    for (const std::uint64_t id : ids)
      if (id < kDoor) serve_peer(static_cast<int>(id));
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
    case kOver:
      return take_over(rank, message);
    case kSuspects:
      return take_suspicion(rank, message);
    case kPlace:
      return take_place(rank, message);
    case kTold:
      return say_told();
    case kLeft:
      left_ += std::exchange(peers_[static_cast<std::size_t>(rank)].has_left, true) ? 0 : 1;
      if (left_ < me.ranks) return;
      all_have_left_ = true;
      return tell_all({.type = kDone});
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

void MeetingHub::tell_all(const Message& message) {
  for (std::size_t r = peers_.size(); r-- > 0;) send_to(static_cast<int>(r), message);  // this rank last
}

void MeetingHub::lose(const std::string& sentence) {
  if (is_over_) return;
  has_told = options.tell_death && !has_just_woken();
  if (has_told) options.tell_death(sentence);
  fail_all(sentence);
  if (has_told) say_told();
}

void MeetingHub::fail_all(const std::string& sentence) {
  if (std::exchange(is_over_, true)) return;
  tell_all({.type = kFailed, .texts = {sentence}});
}

void MeetingHub::take_over(int asker, const Message& message) {
  if (inquiry_ || is_over_) return;
  if (Seconds(MeetingClock::now() - waited_on_).count() < kSecondsOfAnAnswer) {
    send_to(asker, {.type = kWaitOn});
    return;
  }
  ask_everybody({.asker = asker,
                 .call = message.text(0),
                 .members = decoded_ranks(message.text(1), me.ranks),
                 .seconds = seconds_in(message, 2)});
}

void MeetingHub::take_suspicion(int asker, const Message& message) {
  if (is_over_) return;
  if (!inquiry_) return ask_everybody({.asker = asker, .suspicion = message.text(0)});
  if (!inquiry_->suspicion.empty()) return;
  inquiry_->asker = asker;  // this asker ends the run, whatever the answers are
  inquiry_->suspicion = message.text(0);
}

void MeetingHub::ask_everybody(Inquiry inquiry) {
  inquiry.places.resize(peers_.size());
  inquiry.until = MeetingClock::now() + duration_of(options.answer_seconds);
  inquiry_ = std::move(inquiry);
  tell_all({.type = kWhere, .texts = {std::to_string(++inquiries_)}});
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
    std::int64_t& told = told_works_[rank];
    if (work.what.empty() || work.number == told || !options.tell_work) continue;
    told = work.number;
    options.tell_work(
        concat("rank ", rank, " is ", work.what, " since ", std::lround(work.seconds), " s: the others wait for it"));
  }
  waited_on_ = MeetingClock::now();
  tell_all({.type = kWaitOn});
}

// ---- The listening socket -------------------------------------------------------------------------------------------

namespace {

int port_of(int socket) {
  sockaddr_storage bound = {};
  socklen_t size = sizeof bound;
  getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size);
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
}

// Listens at this address and port. Returns 0, or errno.
int listen_at(Socket& socket, sockaddr_storage address, socklen_t size, int port) {
  const auto number = htons(static_cast<std::uint16_t>(port));
  const int on = 1, off = 0;
  if (address.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = number;
  else
    reinterpret_cast<sockaddr_in&>(address).sin_port = number;
  socket = Socket(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.get() < 0) return errno;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.ss_family == AF_INET6) setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  constexpr int kWaiting = 65535;  // the system reduces it to its own maximum
  const bool is_well = ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
                       ::listen(socket.get(), kWaiting) == 0;
  return is_well ? 0 : errno;
}

// On IPv6 and IPv4, or on IPv4 alone if there is no IPv6.
int listen_everywhere(Socket& socket, int port) {
  sockaddr_storage any = {};
  any.ss_family = AF_INET6;
  const int error = listen_at(socket, any, sizeof(sockaddr_in6), port);
  if (error == 0 || error == EADDRINUSE) return error;
  any.ss_family = AF_INET;
  return listen_at(socket, any, sizeof(sockaddr_in), port);
}

}  // namespace

MeetingPort::MeetingPort(std::string address, int port, int ports) : address_(std::move(address)) {
  const Addresses addresses = address_.empty() ? nullptr : addresses_of(address_);
  ISOBAR_CHECK(address_.empty() || addresses != nullptr, "the meeting: the address of rank 0, ", address_,
               ", cannot be resolved");
  sockaddr_storage own = {};
  if (addresses != nullptr) std::memcpy(&own, addresses->ai_addr, addresses->ai_addrlen);
  int error = 0;
  for (int i = 0; i < ports; ++i) {
    error = addresses == nullptr ? listen_everywhere(socket_, port + i)
                                 : listen_at(socket_, own, addresses->ai_addrlen, port + i);
    if (error != EADDRINUSE) break;
  }
  const std::string where = address_.empty() ? host_name() : address_;
  const std::string range = ports > 1 ? concat("ports ", port, " to ", port + ports - 1) : concat("port ", port);
  ISOBAR_CHECK(error != EADDRINUSE, "the meeting: ", range, " of ", where, ports > 1 ? " are" : " is",
               " taken by another process; set MASTER_PORT to a free one");
  ISOBAR_CHECK(error != EADDRNOTAVAIL, "the meeting: ", where, " is no address of ", host_name(),
               ", where rank 0 is; set MASTER_ADDR to one");
  ISOBAR_CHECK(error == 0, "the meeting: cannot listen at ", range, " of ", where, ": ", std::strerror(error));
  port_ = port_of(socket_.get());
}

std::string MeetingPort::text() const {
  return address_.empty() ? concat("port ", port_, " of ", host_name(), " (all its addresses)")
                          : concat(address_, ':', port_);
}

}  // namespace isobar
