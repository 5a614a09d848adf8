#include "comm/meeting.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <iomanip>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "comm/mesh.h"
#include "comm/messages.h"
#include "engine/files/checksum.h"
#include "kernels/common/check.h"
#include "kernels/common/host_name.h"

namespace isobar {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

enum Kind : std::uint8_t {
  kHello = 1,  // an Attendee
  kWelcome,    // payload
  kFailed,     // to rank 0: a sentence; from it: the run's first error
  kWhere,      // number of the inquiry: where are you?
  kPlace,      // number of the inquiry, call
  kOver,       // call, members, seconds: this rank's time is over there
  kLeft,       // its work is done well
  kDone,       // everybody's is
  kWaitOn      // a rank works alone
};

constexpr double kSecondsToIdentify = 5;
constexpr double kSecondsToAnswer = 5;  // of rank 0, when a rank's time is over; then that rank decides
constexpr double kSecondsForLateOnes = 2;
constexpr double kSecondsOfAnAnswer = 0.5;  // for whose time was over when the others' was, but a little later
constexpr std::size_t kMostStrangers = 64;

Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
}

std::string preamble(const std::string& key) {
  std::ostringstream out;
  out << "isobar meeting 1\n"
      << std::hex << std::setw(16) << std::setfill('0') << xxh64(std::as_bytes(std::span(key))) << '\n';
  return out.str();
}

// A socket that is closed with its object.
class Socket {
 public:
  explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}
  ~Socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  int get() const { return descriptor_; }
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

// False where the other end is gone, or has not read for so long that its buffer is full.
bool send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

enum class Received : std::uint8_t { some, nothing, end };

// What has come, to be called when something has.
Received receive_some(int socket, std::string& bytes) {
  char buffer[4096];
  const ssize_t received = ::recv(socket, buffer, sizeof buffer, MSG_DONTWAIT);
  if (received > 0) bytes.assign(buffer, static_cast<std::size_t>(received));
  if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return Received::nothing;
  return received > 0 ? Received::some : Received::end;
}

struct AddressesDeleter {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, AddressesDeleter>;

Addresses addresses_of(const std::string& host, int port) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  return Addresses(getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) == 0 ? found : nullptr);
}

void send_at_once(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// "rank 3", "ranks 1, 2, 5"; of very many the first.
std::string ranks_text(const std::vector<int>& ranks) {
  constexpr std::size_t kMost = 16;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), kMost); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  return ranks.size() > kMost ? concat(text, ", ... (", ranks.size(), " ranks)") : text;
}

std::string numbers_text(std::span<const int> numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

std::vector<int> numbers_in(const std::string& text, int below) {
  std::vector<int> numbers;
  std::istringstream in(text);
  for (std::string number; std::getline(in, number, ',');)
    numbers.push_back(static_cast<int>(Message{.texts = {number}}.number(0, 0, below - 1)));
  return numbers;
}

double seconds_in(const Message& message, std::size_t index) {
  const std::string& text = message.text(index);
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  ISOBAR_CHECK(error == std::errc() && end == text.data() + text.size() && seconds >= 0, "no number of seconds");
  return seconds;
}

// Where a rank is, and what it does alone.
Message place_message(const std::string& inquiry, const std::string& place, const Work& work) {
  return {.type = kPlace,
          .texts = {inquiry, place, work.what, std::to_string(work.number), concat(work.seconds),
                    concat(work.most_timeouts), concat(work.seconds_since_last)}};
}

Work work_in(const Message& message, std::size_t index) {
  return {.what = message.text(index),
          .number = message.number(index + 1, 0, std::numeric_limits<std::int64_t>::max()),
          .seconds = seconds_in(message, index + 2),
          .most_timeouts = seconds_in(message, index + 3),
          .seconds_since_last = seconds_in(message, index + 4)};
}

std::string place_of(const Attendee& who) {
  return concat("process ", who.process, " on ", who.host);
}

Message hello(const Attendee& me) {
  return {.type = kHello,
          .texts = {std::to_string(me.rank), std::to_string(me.ranks), me.host, std::to_string(me.process), me.version,
                    me.config, me.layout, me.device, me.failure}};
}

Attendee attendee_in(const Message& hello) {
  ISOBAR_CHECK(hello.type == kHello && hello.texts.size() == 9, "no rank says so of itself");
  return {.rank = static_cast<int>(hello.number(0, 0, kMostRanks)),
          .ranks = static_cast<int>(hello.number(1, 1, kMostRanks)),
          .host = hello.text(2),
          .process = hello.number(3, 0, std::numeric_limits<std::int64_t>::max()),
          .version = hello.text(4),
          .config = hello.text(5),
          .layout = hello.text(6),
          .device = hello.text(7),
          .failure = hello.text(8)};
}

// What does not fit, of ranks that have all come; empty where all does.
std::string misfit_of(const std::vector<Attendee>& all) {
  for (const Attendee& who : all)
    if (!who.failure.empty()) return concat("rank ", who.rank, ": ", who.failure);
  const Attendee& first = all[0];
  const auto differs = [&](const Attendee& who, const char* has, const std::string& its, const std::string& firsts) {
    return concat("rank ", who.rank, " (", place_of(who), ") ", has, ' ', its, ", rank 0 ", firsts);
  };
  std::map<std::string, int> devices;
  for (const Attendee& who : all) {
    if (who.version != first.version) return differs(who, "is isobar", who.version, first.version);
    if (who.layout != first.layout) return differs(who, "has the layout", who.layout, first.layout);
    if (who.config != first.config)
      return concat("rank ", who.rank, " (", place_of(who),
                    ") has another config than rank 0: give all the same flags");
    if (who.device.empty()) continue;
    const auto [other, is_new] = devices.emplace(who.device, who.rank);
    if (!is_new) return concat("ranks ", other->second, " and ", who.rank, " use the same GPU, ", who.device);
  }
  return "";
}

// No signal of the process is handled in a thread of the meeting.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_ = {};
};

}  // namespace

// ---- One rank's end -------------------------------------------------------------------------------------------------

// What a rank knows of the meeting. `receive` is called in the meeting's thread, all else in the rank's.
struct Meeting::Member {
  Member(Attendee attendee, MeetingOptions given) : me(std::move(attendee)), options(std::move(given)) {}
  virtual ~Member() = default;
  virtual void send(const Message& message) = 0;  // to rank 0

  void receive(const Message& message) {
    if (message.type == kFailed) note_failure(message.text(0), me.rank == 0 && !has_told && !has_just_woken());
    if (message.type == kWhere) {
      std::unique_lock lock(mutex);
      const Message answer = place_message(message.text(0), place, work.now());
      lock.unlock();
      send(answer);
    }
    if (message.type == kWaitOn) {
      const std::lock_guard lock(mutex);
      ++times_to_wait_on;
      bell.notify_all();
    }
    if (message.type == kDone) {
      const std::lock_guard lock(mutex);
      is_done = true;
      bell.notify_all();
    }
  }

  void note_failure(const std::string& sentence, bool tells) {
    const std::lock_guard lock(mutex);
    if (failed) return;
    failure = sentence;
    is_teller = tells;
    failed_at = Clock::now();
    failed = true;
    bell.notify_all();
  }

  // Rank 0 itself may have been stopped, and go on while it is being ended: another rank has told why, then.
  bool has_just_woken() const { return Seconds(Clock::now() - woken_at).count() < kSecondsToAnswer; }
  void note_turn() {  // of the meeting's thread, which comes ten times a second
    const Clock::time_point now = Clock::now();
    if (Seconds(now - last_turn).count() > kSecondsToAnswer) woken_at = now;
    last_turn = now;
  }

  bool wait_for_failure(double seconds) {
    std::unique_lock lock(mutex);
    return bell.wait_for(lock, Seconds(seconds), [&] { return failed.load(); });
  }

  enum class Answer : std::uint8_t { failed, wait_on, none };
  Answer wait_for_answer(double seconds, std::int64_t waited_on) {
    std::unique_lock lock(mutex);
    bell.wait_for(lock, Seconds(seconds), [&] { return failed || times_to_wait_on != waited_on; });
    return failed ? Answer::failed : times_to_wait_on != waited_on ? Answer::wait_on : Answer::none;
  }

  // In the meeting's thread, now and then.
  void look_at_clock() {
    std::string sentence;
    {
      const std::lock_guard lock(mutex);
      const double grace = options.grace_seconds * (is_teller ? 1 : 1.5);  // the teller first
      if (!failed || Seconds(Clock::now() - failed_at).count() < grace || !options.last_resort) return;
      if (is_teller) sentence = failure;
    }
    options.last_resort(sentence);
  }

  const Attendee me;
  const MeetingOptions options;
  std::string payload;

  std::mutex mutex;
  std::condition_variable bell;
  std::atomic<bool> failed = false;
  std::string failure;
  bool is_teller = false;
  Clock::time_point failed_at;
  bool is_done = false;
  std::string place;
  WorkAccount work;
  std::int64_t times_to_wait_on = 0;

  // Of the meeting's thread alone.
  Clock::time_point last_turn = Clock::now(), woken_at = {};
  bool has_told = false;
};

// ---- Rank 0 ---------------------------------------------------------------------------------------------------------

// The middle of the star: rank 0's own end, and the other ranks' connections.
class MeetingHub : public Meeting::Member {
 public:
  MeetingHub(Attendee me, MeetingPort port, MeetingOptions given)
      : Member(std::move(me), std::move(given)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    payload = options.payload;
    peers_.resize(static_cast<std::size_t>(this->me.ranks));
    peers_[0].who = this->me;
    collect(port);
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { listen(); });
  }
  ~MeetingHub() override {
    stop_ = true;
    wake();
    thread_.join();
  }

  void send(const Message& message) override {  // from rank 0 to itself, in the thread that has the connections
    {
      const std::lock_guard lock(posted_mutex_);
      posted_.push_back(message);
    }
    wake();
  }

 private:
  struct Peer {
    Socket socket;
    MessageStream stream;
    std::optional<Attendee> who;
    bool has_left = false;
  };
  struct Guest {  // who has not yet said who it is
    Socket socket;
    std::string head = {};  // until the preamble is whole
    MessageStream stream = {};
    Clock::time_point since = Clock::now();
  };
  struct Place {
    std::string call;
    Work work;
  };
  // Somebody's time is over in a call: everybody is asked where they are.
  struct Inquiry {
    int asker = 0;
    std::string call;
    std::vector<int> members;
    double seconds = 0;
    std::vector<std::optional<Place>> places;  // by rank; none: no answer yet
    Clock::time_point until;
  };

  void wake() const {
    const std::uint64_t one = 1;
    static_cast<void>(!::write(wake_.get(), &one, sizeof one));
  }

  // -- until all have come

  void collect(const MeetingPort& port) {
    Clock::time_point until = Clock::now() + duration_of(options.timeout_seconds);
    std::string wrong;
    while (!missing().empty() && Clock::now() < until) {
      const std::string complaint = serve_guests(port);
      if (complaint.empty() || !wrong.empty()) continue;
      wrong = complaint;  // those who come a little later are told too
      until = std::min(until, Clock::now() + duration_of(kSecondsForLateOnes));
    }
    if (wrong.empty() && !missing().empty())
      wrong = concat(ranks_text(missing()), missing().size() == 1 ? " has" : " have", " not come to the meeting at ",
                     port.address(), ':', port.port(), " within ", options.timeout_seconds, " s");
    if (wrong.empty()) {
      std::vector<Attendee> all;
      for (const Peer& peer : peers_) all.push_back(*peer.who);
      wrong = misfit_of(all);
    }
    guests_.clear();
    const Message answer =
        wrong.empty() ? Message{.type = kWelcome, .texts = {payload}} : Message{.type = kFailed, .texts = {wrong}};
    for (const Peer& peer : peers_)
      if (peer.socket.get() >= 0) send_all(peer.socket.get(), to_wire(answer));
    ISOBAR_CHECK(wrong.empty(), wrong);
  }

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (std::size_t r = 0; r < peers_.size(); ++r)
      if (!peers_[r].who) ranks.push_back(static_cast<int>(r));
    return ranks;
  }

  // Waits a little for guests and what they say. Returns what is wrong with one of them, or nothing.
  std::string serve_guests(const MeetingPort& port) {
    std::vector<pollfd> polled{{port.socket_, POLLIN, 0}};
    for (const Guest& guest : guests_) polled.push_back({guest.socket.get(), POLLIN, 0});
    const std::size_t first_peer = polled.size();
    std::vector<int> ranks;
    for (std::size_t r = 1; r < peers_.size(); ++r) {
      if (!peers_[r].who) continue;
      polled.push_back({peers_[r].socket.get(), POLLIN, 0});
      ranks.push_back(static_cast<int>(r));
    }
    if (::poll(polled.data(), polled.size(), 100) < 0) return "";
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const Peer& peer = peers_[static_cast<std::size_t>(ranks[i])];
      std::string bytes;
      if (polled[first_peer + i].revents != 0 && receive_some(peer.socket.get(), bytes) == Received::end)
        return concat("rank ", ranks[i], ": it died before all had met (", place_of(*peer.who), ")");
    }
    std::deque<Guest> guests = std::exchange(guests_, {});
    std::string wrong;
    for (std::size_t i = 0; i < guests.size(); ++i) {
      const bool is_late = Seconds(Clock::now() - guests[i].since).count() > kSecondsToIdentify;
      const bool is_here = polled[i + 1].revents != 0 ? serve(guests[i], wrong) : !is_late;
      if (is_here) guests_.push_back(std::move(guests[i]));
    }
    if ((polled[0].revents & POLLIN) != 0) admit(port);
    return wrong;
  }

  void admit(const MeetingPort& port) {
    Socket socket(::accept4(port.socket_, nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.get() < 0) return;
    if (guests_.size() >= kMostStrangers + peers_.size()) guests_.pop_front();
    send_at_once(socket.get());
    guests_.push_back({.socket = std::move(socket)});
  }

  // Reads what a guest says; false where it goes: as a rank that is known now, or as a stranger. wrong: of a rank.
  bool serve(Guest& guest, std::string& wrong) {
    std::string bytes;
    const Received received = receive_some(guest.socket.get(), bytes);
    if (received != Received::some) return received == Received::nothing;
    const std::string expected = preamble(options.key);
    if (guest.head.size() < expected.size()) {
      const std::size_t taken = std::min(bytes.size(), expected.size() - guest.head.size());
      guest.head += bytes.substr(0, taken);
      bytes.erase(0, taken);
      if (!expected.starts_with(guest.head)) return false;
    }
    try {
      guest.stream.add(bytes);
      const std::optional<Message> message = guest.stream.next();
      if (!message) return true;
      const std::string complaint = seat(attendee_in(*message), guest);
      if (!complaint.empty()) send_all(guest.socket.get(), to_wire({.type = kFailed, .texts = {complaint}}));
      if (wrong.empty()) wrong = complaint;
    } catch (const Error&) {  // no message: a stranger
    }
    return false;
  }

  // Takes a guest for the rank that it says it is, or returns what is wrong with that.
  std::string seat(Attendee who, Guest& guest) {
    if (who.ranks != me.ranks)
      return concat("rank ", who.rank, " (", place_of(who), ") counts ", who.ranks, " ranks, rank 0 ", me.ranks);
    if (who.rank >= me.ranks) return concat(place_of(who), " says that it is rank ", who.rank, " of ", me.ranks);
    Peer& peer = peers_[static_cast<std::size_t>(who.rank)];
    if (peer.who)
      return concat("two processes say that they are rank ", who.rank, ": ", place_of(*peer.who), " and ",
                    place_of(who));
    peer.who = std::move(who);
    peer.socket = std::move(guest.socket);
    peer.stream = std::move(guest.stream);
    return "";
  }

  // -- afterwards

  void listen() {
    while (!stop_) {
      std::vector<pollfd> polled{{wake_.get(), POLLIN, 0}};
      std::vector<int> ranks{0};
      for (std::size_t r = 1; r < peers_.size(); ++r) {
        if (peers_[r].socket.get() < 0) continue;
        polled.push_back({peers_[r].socket.get(), POLLIN, 0});
        ranks.push_back(static_cast<int>(r));
      }
      ::poll(polled.data(), polled.size(), 100);
      note_turn();
      std::uint64_t count = 0;
      static_cast<void>(!::read(wake_.get(), &count, sizeof count));
      serve_posted();
      for (std::size_t i = 1; i < polled.size(); ++i)
        if (polled[i].revents != 0) serve_peer(ranks[i]);
      if (inquiry_ && Clock::now() > inquiry_->until) conclude();
      look_at_clock();
    }
  }

  void serve_posted() {
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

  // Reads what a rank says, and takes the whole messages of it.
  void serve_peer(int rank) {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    std::string bytes;
    const Received received = receive_some(peer.socket.get(), bytes);
    try {
      if (received == Received::end) throw_error("it has died (", place_of(*peer.who), ")");
      peer.stream.add(bytes);
      while (const std::optional<Message> message = peer.stream.next()) handle(rank, *message);
    } catch (const Error& error) {
      peer.socket = Socket();
      if (!all_have_left_) lose(concat("rank ", rank, ": ", error.what()));
    }
  }

  // Throws Error for a message that is none.
  void handle(int rank, const Message& message) {
    switch (message.type) {
      case kFailed:
        return fail_all(concat("rank ", rank, ": ", message.text(0)));
      case kOver:
        return ask_everybody(rank, message);
      case kPlace:
        if (inquiry_ && message.number(0, 0, inquiries_) == inquiries_) {
          inquiry_->places[static_cast<std::size_t>(rank)] = {message.text(1), work_in(message, 2)};
          if (std::ranges::all_of(inquiry_->places, [](const auto& place) { return place.has_value(); })) conclude();
        }
        return;
      case kLeft:
        peers_[static_cast<std::size_t>(rank)].has_left = true;
        if (!std::ranges::all_of(peers_, &Peer::has_left)) return;
        all_have_left_ = true;
        return tell_all({.type = kDone});
      default:
        throw_error("it has sent a message of type ", static_cast<int>(message.type));
    }
  }

  void send_to(int rank, const Message& message) {
    if (rank == 0) return receive(message);
    send_all(peers_[static_cast<std::size_t>(rank)].socket.get(), to_wire(message));
  }

  void tell_all(const Message& message) {
    for (const Peer& peer : peers_)
      if (peer.socket.get() >= 0) send_all(peer.socket.get(), to_wire(message));
    receive(message);
  }

  void lose(const std::string& sentence) {
    has_told = options.tell_death && !is_over_ && !has_just_woken();
    if (has_told) options.tell_death(sentence);
    fail_all(sentence);
  }

  void fail_all(const std::string& sentence) {
    if (std::exchange(is_over_, true)) return;
    tell_all({.type = kFailed, .texts = {sentence}});
  }

  void ask_everybody(int asker, const Message& message) {
    if (inquiry_ || is_over_) return;
    if (Seconds(Clock::now() - waited_on_).count() < kSecondsOfAnAnswer) return send_to(asker, {.type = kWaitOn});
    inquiry_ = Inquiry{.asker = asker,
                       .call = message.text(0),
                       .members = numbers_in(message.text(1), me.ranks),
                       .seconds = seconds_in(message, 2),
                       .places = std::vector<std::optional<Place>>(peers_.size()),
                       .until = Clock::now() + duration_of(options.answer_seconds)};
    tell_all({.type = kWhere, .texts = {std::to_string(++inquiries_)}});
  }

  // Names who has not come: first those who do not even answer, then those who are in no call, then the others. These
  // may wait in another group themselves: for somebody who is in no call.
  void conclude() {
    const Inquiry asked = *std::exchange(inquiry_, std::nullopt);
    std::vector<int> silent, idle, elsewhere, idle_others, excused;
    std::string works;
    for (std::size_t r = 0; r < asked.places.size(); ++r) {
      const auto rank = static_cast<int>(r);
      const bool is_member = std::ranges::find(asked.members, rank) != asked.members.end();
      const std::optional<Place>& place = asked.places[r];
      if (!place)
        silent.push_back(rank);
      else if (is_member && place->call.empty())
        idle.push_back(rank);
      else if (place->call.empty())
        idle_others.push_back(rank);
      else if (is_member && place->call != asked.call)
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

  // Somebody works alone, and lives.
  void wait_on(const Inquiry& asked, const std::vector<int>& excused) {
    for (const int rank : excused) {
      const Work& work = asked.places[static_cast<std::size_t>(rank)]->work;
      std::int64_t& told = told_works_[rank];
      if (work.what.empty() || work.number == told || !options.tell_work) continue;
      told = work.number;
      options.tell_work(
          concat("rank ", rank, " is ", work.what, " since ", std::lround(work.seconds), " s: the others wait for it"));
    }
    waited_on_ = Clock::now();
    tell_all({.type = kWaitOn});
  }

  std::vector<Peer> peers_;  // by rank; the first is this one, without a connection
  std::deque<Guest> guests_;
  std::optional<Inquiry> inquiry_;
  std::int64_t inquiries_ = 0;
  Clock::time_point waited_on_ = {};        // when an inquiry has found that somebody works alone
  std::map<int, std::int64_t> told_works_;  // by rank, the last that the user was told of
  bool is_over_ = false, all_have_left_ = false;

  Socket wake_;
  std::mutex posted_mutex_;
  std::deque<Message> posted_;  // of rank 0 itself
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// ---- The other ranks ------------------------------------------------------------------------------------------------

namespace {

// A connection, or none with what the system says.
Socket connect_to(const std::string& host, int port, std::string& why) {
  why = "the address cannot be resolved";
  const Addresses addresses = addresses_of(host, port);
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    Socket socket(::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (::connect(socket.get(), address->ai_addr, address->ai_addrlen) != 0 && errno != EINPROGRESS) {
      why = std::strerror(errno);
      continue;
    }
    pollfd polled{socket.get(), POLLOUT, 0};
    int error = ETIMEDOUT;
    socklen_t size = sizeof error;
    if (::poll(&polled, 1, 2000) > 0) getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    why = std::strerror(error);
    if (error != 0) continue;
    sockaddr_storage own = {}, other = {};
    socklen_t own_size = sizeof own, other_size = sizeof other;
    getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &own_size);
    getpeername(socket.get(), reinterpret_cast<sockaddr*>(&other), &other_size);
    // A port nobody listens at may be given to the very socket that tries to reach it.
    why = "nobody listens";
    if (own_size == other_size && std::memcmp(&own, &other, own_size) == 0) continue;
    send_at_once(socket.get());
    return socket;
  }
  return Socket();
}

}  // namespace

class MeetingGuest : public Meeting::Member {
 public:
  MeetingGuest(Attendee me, const std::string& address, int port, MeetingOptions given)
      : Member(std::move(me), std::move(given)) {
    const Clock::duration time = duration_of(options.timeout_seconds);
    const Clock::time_point until = Clock::now() + time;
    std::string why = "nobody listens";
    while (!meet(address, port, until + time, why)) {  // rank 0's time may have begun when this rank's ends
      ISOBAR_CHECK(Clock::now() < until, "rank ", this->me.rank, ": no meeting at ", address, ':', port, " within ",
                   options.timeout_seconds, " s: ", why);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { listen(); });
  }
  ~MeetingGuest() override {
    stop_ = true;
    ::shutdown(socket_.get(), SHUT_RDWR);
    thread_.join();
  }

  void send(const Message& message) override {
    const std::lock_guard lock(send_mutex_);
    send_all(socket_.get(), to_wire(message));
  }

 private:
  // False where nobody of this job is there (yet).
  bool meet(const std::string& address, int port, Clock::time_point until, std::string& why) {
    socket_ = connect_to(address, port, why);
    if (socket_.get() < 0) return false;
    why = "who listens there is not of this job";
    if (!send_all(socket_.get(), preamble(options.key) + to_wire(hello(me)))) return false;
    while (Clock::now() < until) {
      pollfd polled{socket_.get(), POLLIN, 0};
      if (::poll(&polled, 1, 100) <= 0) continue;
      std::string bytes;
      const Received received = receive_some(socket_.get(), bytes);
      if (received == Received::end) return false;
      if (received == Received::nothing) continue;
      try {
        stream_.add(bytes);
        const std::optional<Message> answer = stream_.next();
        if (!answer) continue;
        if (answer->type == kFailed) throw ToldElsewhere();
        payload = answer->text(0);
        return answer->type == kWelcome;
      } catch (const Error&) {
        stream_ = {};
        return false;
      }
    }
    return false;
  }

  void listen() {
    bool is_open = take_messages();  // the first may have come with the welcome
    while (!stop_) {
      pollfd polled{is_open ? socket_.get() : -1, POLLIN, 0};
      ::poll(&polled, 1, 100);
      if (polled.revents != 0 && !serve()) {
        is_open = false;
        lose();
      }
      look_at_clock();
    }
  }

  // False where rank 0 is gone.
  bool serve() {
    std::string bytes;
    const Received received = receive_some(socket_.get(), bytes);
    stream_.add(bytes);
    return received != Received::end && take_messages();
  }

  bool take_messages() {
    try {
      while (const std::optional<Message> message = stream_.next()) receive(*message);
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  void lose() {
    {
      const std::lock_guard lock(mutex);
      if (is_done) return;
    }
    note_failure("rank 0: it has died", me.rank == 1);
  }

  Socket socket_;
  std::mutex send_mutex_;
  MessageStream stream_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// ---- The door -------------------------------------------------------------------------------------------------------

MeetingPort::MeetingPort(std::string address, int port) : address_(std::move(address)) {
  const Addresses addresses = addresses_of(address_, port);
  ISOBAR_CHECK(addresses != nullptr, "the meeting: the address of rank 0, ", address_, ", cannot be resolved");
  Socket socket(::socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket.get(), addresses->ai_addr, addresses->ai_addrlen) != 0 || ::listen(socket.get(), SOMAXCONN) != 0) {
    const int error = errno;
    ISOBAR_CHECK(error != EADDRINUSE, "the meeting: port ", port, " of ", address_,
                 " is taken by another process; set MASTER_PORT to a free one");
    ISOBAR_CHECK(error != EADDRNOTAVAIL, "the meeting: ", address_, " is no address of ", host_name(),
                 ", where rank 0 is; set MASTER_ADDR to one");
    throw_error("the meeting: cannot listen at ", address_, ':', port, ": ", std::strerror(error));
  }
  sockaddr_storage bound = {};
  socklen_t size = sizeof bound;
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size);
  port_ = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                            : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
  socket_ = socket.release();
}

MeetingPort::~MeetingPort() {
  if (socket_ >= 0) ::close(socket_);
}

MeetingPort::MeetingPort(MeetingPort&& other) noexcept
    : address_(std::move(other.address_)), port_(other.port_), socket_(std::exchange(other.socket_, -1)) {}

// ---- Meeting --------------------------------------------------------------------------------------------------------

Meeting::Meeting(Attendee me, MeetingPort port, MeetingOptions options)
    : member_(std::make_shared<MeetingHub>(std::move(me), std::move(port), std::move(options))) {}

Meeting::Meeting(Attendee me, const std::string& address, int port, MeetingOptions options)
    : member_(std::make_shared<MeetingGuest>(std::move(me), address, port, std::move(options))) {}

Meeting::~Meeting() = default;

const std::string& Meeting::payload() const {
  return member_->payload;
}

bool Meeting::has_failed() const {
  return member_->failed;
}

std::string Meeting::failure() const {
  const std::lock_guard lock(member_->mutex);
  return member_->failure;
}

bool Meeting::is_teller() const {
  const std::lock_guard lock(member_->mutex);
  return member_->is_teller;
}

std::string Meeting::fail(const std::string& sentence) {
  if (!has_failed()) member_->send({.type = kFailed, .texts = {sentence}});
  if (!member_->wait_for_failure(kSecondsToAnswer))
    member_->note_failure(concat("rank ", member_->me.rank, ": ", sentence), /*tells=*/true);
  return failure();
}

void Meeting::set_place(const std::string& call) {
  const std::lock_guard lock(member_->mutex);
  member_->place = call;
  member_->work.note_call(!call.empty());
}

void Meeting::begin_work(const std::string& what, double most_timeouts) {
  const std::lock_guard lock(member_->mutex);
  member_->work.begin(what, most_timeouts);
}

void Meeting::end_work() {
  const std::lock_guard lock(member_->mutex);
  member_->work.end();
}

std::string Meeting::time_is_over(std::span<const int> members, double seconds) {
  constexpr double kSecondsEach = 3, kMostSeconds = 9;  // in which the one that tells ends the job
  std::string place;
  std::int64_t waited_on = 0;
  {
    const std::lock_guard lock(member_->mutex);
    place = member_->place;
    waited_on = member_->times_to_wait_on;
  }
  member_->send({.type = kOver, .texts = {place, numbers_text(members), concat(seconds)}});
  // If rank 0 itself is the one that does not answer, the next rank says so, and the others if it cannot.
  const int rank = member_->me.rank;
  const Member::Answer answer =
      member_->wait_for_answer(kSecondsToAnswer + std::min(kMostSeconds, kSecondsEach * rank), waited_on);
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
    member_->bell.wait_for(lock, Seconds(member_->options.timeout_seconds),
                           [&] { return member_->is_done || member_->failed; });
    const bool is_done = member_->is_done, failed = member_->failed;
    lock.unlock();
    if (is_done) return;
    if (failed) throw_error(failure());
    const std::string sentence = time_is_over(all, member_->options.timeout_seconds);
    if (!sentence.empty()) throw_error(sentence);
  }
}

}  // namespace isobar
