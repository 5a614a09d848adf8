// The meeting of processes, with ranks as threads of one process and strangers at the port: each sentence, who tells
// it, and random bytes.
#include "comm/meeting.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "comm/challenge.h"
#include "comm/hmac.h"
#include "comm/messages.h"
#include "comm/neighbours.h"
#include "comm/sockets.h"
#include "kernels/common/check.h"
#include "kernels/common/host_name.h"
#include "tests/harness/error_of.h"
#include "tests/harness/testing.h"

using namespace isobar;
using isobar::testing::ContainsSubstring;
using isobar::testing::error_of;
using isobar::testing::Matches;

namespace {

constexpr const char* kHere = "127.0.0.1";
constexpr double kLong = 60;  // seconds: what a busy machine may take

RankDescription attendee(int rank, int ranks) {
  return {.rank = rank,
          .ranks = ranks,
          .host = "node" + std::to_string(rank),
          .process = 100 + rank,
          .version = "1",
          .config = "c0ffee",
          .layout = "dp " + std::to_string(ranks)};
}

MeetingPlace at(int port) {
  return {.addresses = {kHere}, .port = port};
}

MeetingOptions options(double seconds = kLong) {
  return {.key = "job", .timeout_seconds = seconds, .payload = "an id", .late_seconds = 0.2};
}

// What each rank has ended with: "" for well, "told elsewhere", or its sentence.
using Ends = std::vector<std::string>;

// Starts ranks in threads; those that `come` says. Each calls `body` with its meeting.
Ends meet(int ranks, const std::function<void(Meeting&, int rank)>& body,
          const std::function<void(RankDescription&)>& change = {}, double seconds = kLong,
          const std::function<bool(int)>& comes = {}, bool reporter_ends_all = false) {
  MeetingPort port(kHere, 0);
  const int number = port.port();
  Ends ends(static_cast<std::size_t>(ranks));
  const auto take_part = [&](int rank) {
    try {
      RankDescription me = attendee(rank, ranks);
      if (change) change(me);
      MeetingOptions mine = options(seconds);
      mine.reporter_ends_all = reporter_ends_all;
      if (rank == 0) {
        Meeting meeting(me, std::move(port), mine);
        body(meeting, rank);
      } else {
        Meeting meeting(me, at(number), mine);
        body(meeting, rank);
      }
    } catch (const ErrorReportedByAnotherRank&) {
      ends[static_cast<std::size_t>(rank)] = "told elsewhere";
    } catch (const Error& error) {
      ends[static_cast<std::size_t>(rank)] = error.what();
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    if (!comes || comes(rank)) threads.emplace_back(take_part, rank);
  for (std::thread& thread : threads) thread.join();
  return ends;
}

// Two that have met; rank 1 waits so long for rank 0.
struct TwoRanks {
  explicit TwoRanks(double seconds) {
    MeetingPort port(kHere, 0);
    const int number = port.port();
    std::thread entering([&] { first.emplace(attendee(0, 2), std::move(port), options()); });
    second.emplace(attendee(1, 2), at(number), options(seconds));
    entering.join();
  }

  std::optional<Meeting> first, second;
};

void leave(Meeting& meeting, int /*rank*/) {
  meeting.leave();
}

Ends told_by_the_first(int ranks, const std::string& sentence) {
  Ends ends(static_cast<std::size_t>(ranks), "told elsewhere");
  ends[0] = sentence;
  return ends;
}

// A stranger's connection.
class Stranger {
 public:
  explicit Stranger(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    inet_pton(AF_INET, kHere, &address.sin_addr);
    is_connected_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  ~Stranger() { ::close(socket_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  bool is_connected() const { return is_connected_; }
  int descriptor() const { return socket_; }
  void say(const std::string& bytes) const {
    static_cast<void>(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  // What comes; fewer bytes where the other end hangs up.
  std::string hear(std::size_t count) const {
    std::string all(count, '\0');
    const ssize_t got = ::recv(socket_, all.data(), count, MSG_WAITALL);
    all.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return all;
  }
  // What has come is dropped; hears_something() then waits for what comes next.
  void drop_what_came() const {
    std::array<char, 4096> bytes;
    while (::recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) continue;
  }
  bool hears_something() const {
    pollfd polled{socket_, POLLIN, 0};
    return ::poll(&polled, 1, static_cast<int>(kLong * 1000)) > 0;
  }
  // Answers rank 0's challenge, with the job's key or with another one.
  void enter(const std::string& key) {
    const std::string mine = random_bytes(kRandomBytes);
    say(std::string(kGreeting) + mine);
    const std::string answer = hear(kAnswerBytes);
    if (answer.size() < kAnswerBytes) return;
    const Challenge challenge(key, mine, answer.substr(0, kRandomBytes));
    seal_ = challenge.to_first();
    say(challenge.proof_of_rank());
  }
  void say(const Message& message) { say(sealed(message)); }
  std::string sealed(const Message& message) { return to_wire(message, &seal_); }
  // Whether the other end hangs up within the seconds.
  bool is_dropped(double seconds = kLong) const {
    pollfd polled{socket_, POLLIN, 0};
    char byte = 0;
    return ::poll(&polled, 1, static_cast<int>(seconds * 1000)) > 0 && ::recv(socket_, &byte, 1, 0) <= 0;
  }

 private:
  int socket_;
  bool is_connected_ = false;
  Seal seal_;
};

// Listens at a free port of this host.
Socket make_listener() {
  Socket listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, kHere, &address.sin_addr);
  ISOBAR_CHECK(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                   ::listen(listener.get(), 64) == 0,
               "there is no port");
  return listener;
}

int port_of(const Socket& listener) {
  sockaddr_in address = {};
  socklen_t size = sizeof address;
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

Message hello(int rank, int ranks, const std::string& process = "7") {
  return {.type = 1,
          .texts = {std::to_string(rank), std::to_string(ranks), "node", "", process, "1", "c0ffee",
                    "dp " + std::to_string(ranks), "", "0", "", ""}};
}

std::int64_t resident_bytes() {
  std::ifstream status("/proc/self/statm");
  std::int64_t pages = 0, resident = 0;
  status >> pages >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

// What hostile work of this process costs in memory: looked at now and then, said where the work is done by hand.
class Memory {
 public:
  void look() { most_ = std::max(most_, resident_bytes()); }
  void check(const std::string& work, bool says) {
    look();
    if (says)
      std::printf("%s: %.1f MB before, %.1f MB at most\n", work.c_str(), static_cast<double>(before_) / 1e6,
                  static_cast<double>(most_) / 1e6);
#ifdef ISOBAR_SANITIZED  // keeps what was freed
    CHECK(most_ > 0);
#else
    CHECK(most_ - before_ < 32 << 20);
#endif
  }

 private:
  std::int64_t before_ = resident_bytes(), most_ = before_;
};

// Messages of the tests below: 10^4, or as many as ISOBAR_FUZZ_MESSAGES says.
int messages_to_try() {
  const char* count = std::getenv("ISOBAR_FUZZ_MESSAGES");
  return count != nullptr ? std::atoi(count) : 10000;
}

// Bytes that are a message, nearly one, or none at all.
std::string noise(std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const auto any = [&](int most) {
    std::string bytes(static_cast<std::size_t>(below(most + 1)), '\0');
    for (char& byte : bytes) byte = static_cast<char>(below(256));
    return bytes;
  };
  const std::vector<std::string> known{"0", "1", "2", "-1", "99999999999999999999", "0,1,2", ",,", "", "dp 3", "x"};
  switch (below(4)) {
    case 0:
      return any(64);
    case 1: {  // a length and then something
      std::string bytes = any(40);
      const auto length = below(2) == 0 ? static_cast<std::uint32_t>(bytes.size()) : random();
      for (int shift = 24; shift >= 0; shift -= 8) bytes.insert(0, 1, static_cast<char>(length >> shift & 0xff));
      return bytes;
    }
    default: {
      Message message{.type = static_cast<std::uint8_t>(below(11))};
      for (int i = below(11); i > 0; --i)
        message.texts.push_back(below(3) == 0 ? any(20)
                                              : known[static_cast<std::size_t>(below(static_cast<int>(known.size())))]);
      std::string bytes = to_wire(message);
      for (int flips = below(3); flips > 0; --flips)
        bytes[static_cast<std::size_t>(below(static_cast<int>(bytes.size())))] ^= static_cast<char>(1 << below(8));
      return bytes;
    }
  }
}

}  // namespace

TEST_CASE("meeting: all come, in any order, get rank 0's payload, and leave together") {
  for (const int ranks : {1, 2, 5}) {
    std::mutex mutex;
    int payloads = 0;
    const Ends ends = meet(ranks, [&](Meeting& meeting, int /*rank*/) {
      {
        const std::lock_guard lock(mutex);
        payloads += meeting.payload() == "an id" ? 1 : 0;
      }
      meeting.leave();
      CHECK(!meeting.has_failed());
    });
    CHECK(ends == Ends(static_cast<std::size_t>(ranks)));
    CHECK(payloads == ranks);
  }
}

TEST_CASE("meeting: what does not fit is told once, by the first rank") {
  const auto changed = [](int rank, const std::function<void(RankDescription&)>& change) {
    return meet(4, leave, [&](RankDescription& me) {
      if (me.rank == rank) change(me);
    });
  };
  CHECK(changed(2, [](RankDescription& me) { me.version = "2"; }) ==
        told_by_the_first(4, "rank 2 (process 102 on node2) is isobar 2, rank 0 1"));
  CHECK(changed(3, [](RankDescription& me) { me.layout = "dp 2 x tp 2"; }) ==
        told_by_the_first(4, "rank 3 (process 103 on node3) has the layout dp 2 x tp 2, rank 0 dp 4"));
  CHECK(changed(1, [](RankDescription& me) { me.config = "decaf"; }) ==
        told_by_the_first(4, "rank 1 (process 101 on node1) has another config than rank 0: give all the same flags"));
  CHECK(changed(2, [](RankDescription& me) { me.failure = "no key learning_rat"; }) ==
        told_by_the_first(4, "rank 2: no key learning_rat"));
  CHECK(meet(4, leave, [](RankDescription& me) { me.device = me.rank % 2 == 0 ? "" : "GPU-5c"; }) ==
        told_by_the_first(4, "ranks 1 and 3 use the same GPU, GPU-5c"));
  CHECK(changed(2, [](RankDescription& me) { me.ranks = 8; })[0] ==
        "rank 2 (process 102 on node2) counts 8 ranks, rank 0 4");
  CHECK(meet(2, leave, [](RankDescription& me) { me.instructions = me.rank == 1 ? "avx2" : "avx512"; }) ==
        told_by_the_first(2,
                          "rank 1 (process 101 on node1) computes with avx2, rank 0 with avx512: set "
                          "ISOBAR_MAX_ISA=avx2 on all"));
  CHECK(changed(2, [](RankDescription& me) { me.compares_calls = true; }) ==
        told_by_the_first(4, "ISOBAR_COMM_CHECK=1 is set on rank 2 and not on rank 0: set it on all"));
  CHECK(meet(4, leave, [](RankDescription& me) { me.compares_calls = me.rank != 2; }) ==
        told_by_the_first(4, "ISOBAR_COMM_CHECK=1 is set on rank 0 and not on rank 2: set it on all"));
  CHECK_THAT(meet(2, leave, [](RankDescription& me) { me.instructions = me.rank == 1 ? "avx2" : "generic"; })[0],
             ContainsSubstring("computes with avx2, rank 0 with generic: set ISOBAR_MAX_ISA=generic on all"));
  // A rank that has found an error by itself is told before what differs.
  CHECK(meet(4, leave, [](RankDescription& me) {
          if (me.rank == 1) me.version = "2";
          if (me.rank == 3) me.failure = "no key learning_rat";
        }) == told_by_the_first(4, "rank 3: no key learning_rat"));
  const std::string twice = changed(2, [](RankDescription& me) { me.rank = 1; })[0];
  CHECK_THAT(twice, ContainsSubstring("two processes say that they are rank 1: process 10"));
  CHECK_THAT(changed(2, [](RankDescription& me) { me.rank = 4; })[0],
             ContainsSubstring("on node2 says that it is rank 4 of 4"));
}

TEST_CASE("meeting: who does not come is named by number") {
  const Ends ends = meet(5, leave, {}, 0.5, [](int rank) { return rank != 2 && rank != 4; });
  CHECK_THAT(ends[0], ContainsSubstring("ranks 2, 4 have not come to the meeting at 127.0.0.1:") &&
                          ContainsSubstring("within 0.5 s"));
  const Ends alone = meet(2, leave, {}, 0.1, [](int rank) { return rank == 0; });
  CHECK_THAT(alone[0], ContainsSubstring("rank 1 has not come"));
  CHECK_THROWS_WITH(Meeting(attendee(3, 4), at(1), options(0.1)),
                    "rank 3: no meeting at 127.0.0.1:1 within 0.1 s: Connection refused");
  CHECK_THROWS_WITH(Meeting(attendee(3, 4), {.addresses = {kHere, kHere}, .port = 1, .ports = 3}, options(0.1)),
                    "rank 3: no meeting at 127.0.0.1, 127.0.0.1:1 to 3 within 0.1 s: Connection refused");
  CHECK_THROWS_WITH(Meeting(attendee(1, 4), {.addresses = {"no.such.host.invalid"}, .port = 1}, options(0.1)),
                    "rank 1: no meeting at no.such.host.invalid:1 within 0.1 s: the address cannot be resolved");
  MeetingPort port(kHere, 0);
  const std::string where = port.text();
  MeetingOptions mine = options(0.1);
  mine.why_absent = "its name leads elsewhere";
  CHECK_THROWS_WITH(
      Meeting(attendee(0, 4), std::move(port), mine),
      concat("ranks 1, 2, 3 have not come to the meeting at ", where, " within 0.1 s; its name leads elsewhere"));
}

TEST_CASE("meeting: who comes after something was found wrong is told what, within a time of its own") {
  MeetingPort port(kHere, 0);
  const int number = port.port();
  MeetingOptions mine = options();
  std::string sentence;
  const auto attend = [&](MeetingPort own) {
    return std::thread([&, own = std::move(own)]() mutable {
      sentence = error_of([&] { const Meeting meeting(attendee(0, 3), std::move(own), mine); });
    });
  };
  SECTION("and all end when they have come") {
    mine.late_seconds = kLong;
    std::thread rank_0 = attend(std::move(port));
    for (const int ranks : {8, 9}) {  // the first complaint is the one
      Stranger wrong(number);
      wrong.enter("job");
      wrong.say(hello(2, ranks));
      CHECK(wrong.hear(1).size() == 1);  // it is told so
    }
    std::vector<std::thread> others;
    std::atomic<int> told = 0;
    for (const int rank : {1, 2})
      others.emplace_back([&, rank] {
        try {
          const Meeting meeting(attendee(rank, 3), at(number), options());
        } catch (const ErrorReportedByAnotherRank&) {
          ++told;
        }
      });
    for (std::thread& other : others) other.join();
    rank_0.join();
    CHECK(told == 2);
  }
  SECTION("and nobody waits until the time to come is over") {
    mine.late_seconds = 0.1;
    const auto start = std::chrono::steady_clock::now();
    std::thread rank_0 = attend(std::move(port));
    Stranger wrong(number);
    wrong.enter("job");
    wrong.say(hello(2, 8));
    rank_0.join();
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::duration<double>(kLong / 2));
  }
  CHECK(sentence == "rank 2 (process 7 on node) counts 8 ranks, rank 0 3");
}

TEST_CASE("meeting: what was found wrong gives nobody more time than all have") {
  MeetingPort port(kHere, 0);
  Stranger other(port.port());
  std::thread entering([&] {
    other.enter("job");
    other.say(hello(1, 8));
  });
  MeetingOptions mine = options(0.5);
  mine.late_seconds = kLong;
  const auto begin = std::chrono::steady_clock::now();
  CHECK_THROWS_WITH(Meeting(attendee(0, 3), std::move(port), mine),
                    "rank 1 (process 7 on node) counts 8 ranks, rank 0 3");
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::duration<double>(kLong / 2));
  entering.join();
}

TEST_CASE("meeting: a connection that does not prove in time that it is of the job is dropped") {
  MeetingPort port(kHere, 0);
  const int number = port.port();
  MeetingOptions mine = options();
  mine.identify_seconds = 0.1;
  std::thread rank_0([&] { Meeting(attendee(0, 2), std::move(port), mine).leave(); });
  const Stranger silent(number), half(number);
  half.say(std::string(kGreeting) + std::string(kRandomBytes, 'r'));
  half.hear(kAnswerBytes);
  CHECK(silent.is_dropped());
  CHECK(half.is_dropped());
  Meeting(attendee(1, 2), at(number), options()).leave();
  rank_0.join();
}

TEST_CASE("meeting: a name is resolved once a second at most, known or not") {
  for (const bool is_known : {true, false}) {
    MeetingOptions mine = options(1.5);
    int questions = 0;
    mine.resolve = [&](const std::string& host) {
      CHECK(host == "node0");
      ++questions;
      return is_known ? addresses_of(kHere) : Addresses();
    };
    const auto start = std::chrono::steady_clock::now();
    const MeetingPlace place{.addresses = {"node0"}, .port = 1, .ports = 3};  // three attempts a turn
    CHECK_THROWS_WITH(Meeting(attendee(1, 2), place, mine), ContainsSubstring("within 1.5 s"));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    CHECK(questions >= 1);
    CHECK(questions <= 1 + static_cast<int>(took.count()));
  }
}

TEST_CASE("meeting: a rank whose time is over still hears what rank 0 says, whose time began later") {
  MeetingPort port(kHere, 0);
  std::string heard;
  std::thread early([&heard, number = port.port()] {
    try {
      Meeting(attendee(1, 3), at(number), options(1.5));
    } catch (const ErrorReportedByAnotherRank&) {
      heard = "told elsewhere";
    } catch (const Error& error) {
      heard = error.what();
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(900));
  CHECK_THROWS_WITH(Meeting(attendee(0, 3), std::move(port), options(1.5)), ContainsSubstring("rank 2"));
  early.join();
  CHECK(heard == "told elsewhere");
}

TEST_CASE("meeting: an address of another host, and a port that is taken") {
  CHECK_THROWS_WITH(MeetingPort("192.0.2.1", 0), concat("the meeting: 192.0.2.1 is no address of ", host_name(),
                                                        ", where rank 0 is; set MASTER_ADDR to one"));
  CHECK_THROWS_WITH(MeetingPort("no.such.host.invalid", 0),
                    "the meeting: the address of rank 0, no.such.host.invalid, cannot be resolved");
  const MeetingPort port(kHere, 0);
  CHECK_THROWS_WITH(MeetingPort(kHere, port.port()),
                    concat("the meeting: port ", port.port(),
                           " of 127.0.0.1 is taken by another process; set MASTER_PORT to a free one"));
  CHECK(port.text() == concat("127.0.0.1:", port.port()));
}

TEST_CASE("meeting: a port is free again at once, while connections of the job before still fade") {
  int number = 0;
  {
    const Socket before(::socket(AF_INET, SOCK_STREAM, 0));
    const int on = 1;
    REQUIRE(::setsockopt(before.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    sockaddr_in place{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size = sizeof place;
    auto* const address = reinterpret_cast<sockaddr*>(&place);
    REQUIRE(::bind(before.get(), address, size) == 0);
    REQUIRE(::listen(before.get(), 1) == 0);
    REQUIRE(::getsockname(before.get(), address, &size) == 0);
    number = ntohs(place.sin_port);
    const Socket client(::socket(AF_INET, SOCK_STREAM, 0));
    REQUIRE(::connect(client.get(), address, size) == 0);
    // Who closes first keeps the address for a minute (TIME_WAIT).
    const Socket accepted(::accept(before.get(), nullptr, nullptr));
  }
  CHECK(error_of([&] { MeetingPort(kHere, number); }) == "");
}

TEST_CASE("meeting: rank 0 listens at all addresses of its host, or says which ports are taken") {
  const MeetingPort port("", 0);
  CHECK(port.text() == concat("port ", port.port(), " of ", host_name(), " (all its addresses)"));
  CHECK(Stranger(port.port()).is_connected());
  // Two neighbouring ports, both taken.
  for (int first = port.port(); first < port.port() + 100; ++first) {
    std::optional<MeetingPort> one, two;
    if (error_of([&] { one.emplace("", first), two.emplace("", first + 1); }) != "") continue;
    CHECK_THROWS_WITH(MeetingPort("", first, 2),
                      concat("the meeting: ports ", first, " to ", first + 1, " of ", host_name(),
                             " are taken by another process; set MASTER_PORT to a free one"));
    return;
  }
  FAIL("no two free ports");
}

TEST_CASE("meeting: the first error of any rank reaches all, and one tells it") {
  for (const int failing : {0, 2}) {
    std::vector<std::string> heard(4);
    int tellers = 0;
    std::atomic<int> asked = 0;
    std::mutex mutex;
    meet(4, [&](Meeting& meeting, int rank) {
      if (rank == failing) meeting.fail("the disk is full");
      while (!meeting.has_failed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const std::string first = meeting.fail("another error, because of the first");
      {
        const std::lock_guard lock(mutex);
        heard[static_cast<std::size_t>(rank)] = first;
        tellers += meeting.reports_error() ? 1 : 0;
        CHECK(meeting.reports_error() == (rank == 0));
      }
      ++asked;
      while (asked < 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (rank == 0) meeting.note_reported();
      CHECK(meeting.is_reported(kLong));
    });
    CHECK(heard == std::vector<std::string>(4, concat("rank ", failing, ": the disk is full")));
    CHECK(tellers == 1);
  }
}

TEST_CASE("meeting: a rank that is gone is dead, and nobody leaves without the others") {
  for (const int dying : {0, 2}) {
    const Ends ends = meet(3, [&](Meeting& meeting, int rank) {
      if (rank != dying) meeting.leave();
    });
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == dying) continue;
      CHECK(ends[static_cast<std::size_t>(rank)] ==
            (dying == 0 ? "rank 0: it has died" : "rank 2: it has died (process 102 on node2)"));
    }
  }
}

TEST_CASE("meeting: a death is told by rank 0 as soon as it is known, and by nobody again") {
  std::mutex mutex;
  std::vector<std::string> deaths, failures(2);
  int told = 0, tellers = 0;
  MeetingPort port(kHere, 0);
  const int number = port.port();
  MeetingOptions mine = options();
  mine.report_death = [&](const std::string& sentence) {
    const std::lock_guard lock(mutex);
    deaths.push_back(sentence);
  };
  std::atomic<int> met = 0;
  const auto survive = [&](const Meeting& meeting, std::size_t which) {
    ++met;
    const bool is_told = meeting.is_reported(kLong);
    while (!meeting.has_failed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::lock_guard lock(mutex);
    told += is_told ? 1 : 0;
    tellers += meeting.reports_error() ? 1 : 0;
    failures[which] = meeting.failure();
  };
  std::thread first([&] { survive(Meeting(attendee(0, 3), std::move(port), mine), 0); });
  std::thread dying([&] {
    const Meeting meeting(attendee(2, 3), at(number), options());
    while (met < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  survive(Meeting(attendee(1, 3), at(number), options()), 1);
  first.join();
  dying.join();
  const std::string sentence = "rank 2: it has died (process 102 on node2)";
  CHECK(deaths == std::vector<std::string>{sentence});
  CHECK(failures == std::vector<std::string>(2, sentence));
  CHECK(told == 2);
  CHECK(tellers == 0);
}

TEST_CASE("meeting: who leaves waits for a rank that works alone, though its own time is over several times") {
  TwoRanks ranks(0.4);
  Meeting &first = *ranks.first, &second = *ranks.second;
  first.begin_work("writing a checkpoint", kAnyTime);
  std::string end = "it still waits";
  std::thread leaving([&] { end = error_of([&] { second.leave(); }, "it has left"); });
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  first.leave();
  leaving.join();
  CHECK(end == "it has left");
}

TEST_CASE("meeting: who leaves and waits in vain for the others names them, as in any call") {
  TwoRanks ranks(0.5);
  Meeting &first = *ranks.first, &second = *ranks.second;
  const std::string sentence = "rank 1: rank 0 has not come to the end of the run, within 0.5 s";
  CHECK(error_of([&] { second.leave(); }) == sentence);
  while (!first.has_failed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // it hears it last
  CHECK(first.failure() == sentence);
}

namespace {

// A rank 0 that welcomes rank 1 of two, and never says a word again.
class Mute {
 public:
  Mute() : thread_([this] { welcome_one(); }) {}
  ~Mute() { thread_.join(); }
  int port() const { return port_of(listener_); }

 private:
  std::string hear(std::size_t count) const {
    std::string all(count, '\0');
    const ssize_t got = ::recv(rank_.get(), all.data(), count, MSG_WAITALL);
    all.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return all;
  }
  void welcome_one() {
    rank_ = Socket(::accept(listener_.get(), nullptr, nullptr));
    const std::string opening = hear(kOpeningBytes), mine(kRandomBytes, 'm');
    const Challenge challenge("job", opening.substr(kGreeting.size()), mine);
    send_all(rank_.get(), mine + challenge.proof_of_first());
    hear(kProofBytes);
    Seal seal = challenge.to_rank();
    send_all(rank_.get(), to_wire({.type = 2, .texts = {"an id", "1", "2", "1", "0"}}, &seal));
  }

  Socket listener_ = make_listener(), rank_;
  std::thread thread_;
};

}  // namespace

// The seconds that rank 0 has for an answer: all three wait at once.
TEST_CASE("meeting: a rank that gets no answer of rank 0 ends by its own sentence, and tells it") {
  const std::vector<int> both{0, 1};
  std::vector<std::string> sentences(3), failures(3);
  std::vector<int> tells(3);
  std::vector<std::thread> ranks;
  for (const std::size_t how : {0, 1, 2})
    ranks.emplace_back([&, how] {
      const Mute first;
      Meeting meeting(attendee(1, 2), at(first.port()), options());
      meeting.set_place("barrier");
      sentences[how] = how == 0   ? meeting.report_timeout(both, 9)
                       : how == 1 ? meeting.fail("the disk is full")
                                  : meeting.fail("NCCL: a rank has left", Meeting::Cause::perhaps_another);
      failures[how] = meeting.failure();
      tells[how] = meeting.reports_error() ? 1 : 0;
    });
  for (std::thread& rank : ranks) rank.join();
  CHECK(sentences == std::vector<std::string>{"rank 1: rank 0 does not answer, nor come to barrier, within 9 s",
                                              "rank 1: the disk is full",
                                              "rank 1: rank 0 does not answer; NCCL: a rank has left"});
  CHECK(failures == sentences);
  CHECK(tells == std::vector<int>(3, 1));
}

TEST_CASE("meeting: when a rank's time is over, the one that has not come is named") {
  const std::vector<int> all{0, 1, 2, 3}, pair{1, 2};
  // The places of four ranks, one of whom asks when all are there.
  const auto ended_by = [&](const std::vector<std::string>& places, int asker, const std::vector<int>& members) {
    std::string sentence;
    std::mutex mutex;
    std::atomic<int> there = 0;
    meet(4, [&](Meeting& meeting, int rank) {
      meeting.set_place(places[static_cast<std::size_t>(rank)]);
      ++there;
      while (there < 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (rank == asker) meeting.report_timeout(members, 3);
      while (!meeting.has_failed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const std::lock_guard lock(mutex);
      sentence = meeting.failure();
    });
    return sentence;
  };
  const std::string call = "all_reduce of 4 fp32, call 2 of group world", other = "barrier, call 2 of group world";
  CHECK(ended_by({call, call, call, ""}, 1, all) == "rank 1: rank 3 has not come to " + call + ", within 3 s");
  CHECK(ended_by({"", call, call, ""}, 1, all) == "rank 1: ranks 0, 3 have not come to " + call + ", within 3 s");
  CHECK(ended_by({call, call, other, call}, 0, all) ==
        "rank 0: rank 2 has not come to " + call + ", within 3 s; rank 2 is in " + other);
  // Who is in no call is why the others wait.
  CHECK(ended_by({call, other, call, ""}, 2, all) == "rank 2: rank 3 has not come to " + call + ", within 3 s");
  CHECK(ended_by({"", call, "", ""}, 1, pair) == "rank 1: rank 2 has not come to " + call + ", within 3 s");
  CHECK(ended_by({call, other, other, call}, 0, all) ==
        "rank 0: ranks 1, 2 have not come to " + call + ", within 3 s; rank 1 is in " + other);
  // Who is waited for may wait in another group.
  CHECK(ended_by({"", call, other, ""}, 1, pair) == "rank 1: rank 2 has not come to " + call +
                                                        ", within 3 s; rank 2 is in " + other +
                                                        ", ranks 0, 3 are in no call");
  CHECK(ended_by({other, call, other, ""}, 1, pair) ==
        "rank 1: rank 2 has not come to " + call + ", within 3 s; rank 2 is in " + other + ", rank 3 is in no call");
  CHECK(ended_by({call, call, call, call}, 1, all) ==
        "rank 1: all have come to " + call + ", which has not ended, within 3 s");
}

TEST_CASE("meeting: a rank that does not even answer is named first") {
  MeetingPort port(kHere, 0);
  Stranger silent(port.port());
  std::thread entering([&] {
    silent.enter("job");
    silent.say(hello(1, 2));
  });
  MeetingOptions mine = options();
  mine.answer_seconds = 0.1;
  Meeting meeting(attendee(0, 2), std::move(port), mine);
  entering.join();
  SECTION("when a rank's time is over, though it has itself just worked alone") {
    meeting.begin_work("writing a checkpoint", 3);
    meeting.end_work();
    meeting.set_place("barrier");
    const std::vector<int> both{0, 1};
    CHECK(meeting.report_timeout(both, 9) ==
          "rank 0: rank 1 has not come to barrier, within 9 s; no answer from process 7 on node");
  }
  SECTION("when a library says that another one has failed") {
    CHECK(meeting.fail("NCCL: a rank has failed or left", Meeting::Cause::perhaps_another) ==
          "rank 1 does not answer (process 7 on node); rank 0: NCCL: a rank has failed or left");
  }
}

namespace {

// A meeting of three, of whom ranks 1 and 2 have come in and say nothing more of themselves.
struct TwoSilent {
  explicit TwoSilent(double answer_seconds) : port(kHere, 0), one(port.port()), other(port.port()) {
    std::thread entering([&] {
      for (const auto& [stranger, rank] : {std::pair(&one, 1), std::pair(&other, 2)}) {
        stranger->enter("job");
        stranger->say(hello(rank, 3, std::to_string(6 + rank)));
      }
    });
    MeetingOptions mine = options();
    mine.answer_seconds = answer_seconds;
    meeting.emplace(attendee(0, 3), std::move(port), mine);
    entering.join();
  }

  MeetingPort port;
  Stranger one, other;
  std::optional<Meeting> meeting;
};

}  // namespace

TEST_CASE("meeting: several ranks that do not answer are named together, with the place of the first") {
  TwoSilent silent(0.1);
  Meeting& meeting = *silent.meeting;
  SECTION("when a rank's time is over") {
    meeting.set_place("barrier");
    const std::vector<int> all{0, 1, 2};
    CHECK(meeting.report_timeout(all, 9) ==
          "rank 0: ranks 1, 2 have not come to barrier, within 9 s; no answer from process 7 on node");
  }
  SECTION("when a library says that another one has failed") {
    CHECK(meeting.fail("NCCL: a rank has failed or left", Meeting::Cause::perhaps_another) ==
          "ranks 1, 2 do not answer (process 7 on node); rank 0: NCCL: a rank has failed or left");
  }
}

TEST_CASE("meeting: an answer that comes twice is one, and one to an earlier question is none") {
  TwoSilent silent(kLong);  // nobody waits so long: all answer
  Meeting& meeting = *silent.meeting;
  Stranger &one = silent.one, &other = silent.other;
  meeting.set_place("barrier");
  // Where a rank is; with a work it is one that may take any time.
  const auto answers = [](Stranger& rank, const std::string& inquiry, const std::string& place,
                          const std::string& work = "") {
    rank.say(Message{.type = 5, .texts = {inquiry, place, work, "1", "0", "1e9", "1e9"}});
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  };
  const std::vector<int> all{0, 1, 2};
  std::string sentence = "none";
  const auto ask = [&] {
    for (const Stranger* rank : {&one, &other}) rank->drop_what_came();
    std::thread asking([&] { sentence = meeting.report_timeout(all, 9); });
    for (const Stranger* rank : {&one, &other}) CHECK(rank->hears_something());
    return asking;
  };
  SECTION("twice") {
    std::thread asking = ask();
    for (int i = 0; i < 2; ++i) answers(one, "1", "");
    answers(other, "1", "barrier");
    asking.join();
    CHECK(sentence == "rank 0: rank 1 has not come to barrier, within 9 s");
  }
  SECTION("to an earlier question") {
    std::thread asking = ask();
    answers(one, "1", "", "writing a checkpoint");
    answers(other, "1", "barrier");
    asking.join();
    CHECK(sentence == "");
    std::this_thread::sleep_for(std::chrono::milliseconds(600));  // that answer holds no more
    asking = ask();
    answers(one, "1", "");
    answers(other, "2", "barrier");
    answers(one, "2", "barrier");
    asking.join();
    CHECK(sentence == "rank 0: all have come to barrier, which has not ended, within 9 s");
  }
}

TEST_CASE("meeting: of all that is asked at once, the first doubt ends the run, and not a time that is over") {
  MeetingPort port(kHere, 0);
  const int number = port.port();
  Stranger silent(number);  // rank 2, so that a question stays open for a while
  std::thread entering([&] {
    silent.enter("job");
    silent.say(hello(2, 3));
  });
  const bool is_doubted_before = GENERATE(false, true);
  std::string heard;
  std::thread other([&] {
    Meeting meeting(attendee(1, 3), at(number), options());
    meeting.set_place("barrier");
    const std::vector<int> all{0, 1, 2};
    if (is_doubted_before)
      meeting.fail("NCCL: the first doubt", Meeting::Cause::perhaps_another);
    else
      static_cast<void>(meeting.report_timeout(all, 9));
    while (!meeting.has_failed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    heard = meeting.failure();
  });
  MeetingOptions mine = options();
  mine.answer_seconds = 1;
  Meeting meeting(attendee(0, 3), std::move(port), mine);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // rank 1 has asked
  meeting.fail("NCCL: another doubt", Meeting::Cause::perhaps_another);
  other.join();
  entering.join();
  CHECK(heard == concat("rank 2 does not answer (process 7 on node); rank ",
                        is_doubted_before ? "1: NCCL: the first doubt" : "0: NCCL: another doubt"));
}

TEST_CASE("meeting: a rank that dies while others have still to come is named") {
  MeetingPort port(kHere, 0);
  const int number = port.port();
  std::string sentence;
  std::thread rank_0([&] {
    try {
      const Meeting meeting(attendee(0, 3), std::move(port), options());
    } catch (const Error& error) {
      sentence = error.what();
    }
  });
  {
    Stranger rank_1(number);
    rank_1.enter("job");
    rank_1.say(hello(1, 3));
    CHECK(!rank_1.is_dropped(0.3));
  }
  rank_0.join();
  CHECK(sentence == "rank 1: it died before all had met (process 7 on node)");
}

TEST_CASE("meeting: an error that another rank may be the cause of is told where all answer") {
  std::vector<std::string> heard(3);
  meet(3, [&](Meeting& meeting, int rank) {
    if (rank == 2) meeting.fail("NCCL: a rank has failed or left", Meeting::Cause::perhaps_another);
    while (!meeting.has_failed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    heard[static_cast<std::size_t>(rank)] = meeting.failure();
  });
  CHECK(heard == std::vector<std::string>(3, "rank 2: NCCL: a rank has failed or left"));
}

namespace {

// Four ranks of one host, of whom the first two have gone before the user was told. What the others have to tell, each.
std::vector<std::string> told_without_the_first(const std::function<void(Meeting&, int rank)>& before) {
  std::vector<std::string> told(4);
  std::atomic<int> ready = 0;
  meet(
      4,
      [&](Meeting& meeting, int rank) {
        before(meeting, rank);
        ++ready;
        while (ready < 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (rank == 0) return;
        while (!meeting.has_failed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (rank == 1) return;
        if (!meeting.must_report(kLong)) return;
        told[static_cast<std::size_t>(rank)] = meeting.failure();
        meeting.note_reported();
      },
      [](RankDescription& me) { me.host_identity = "boot"; });
  return told;
}

}  // namespace

// Whether rank 3 has heard of it in time depends on how busy the machine is.
TEST_CASE("meeting: where those who were to tell are gone, the next rank tells") {
  const std::vector<std::string> dead = told_without_the_first([](Meeting&, int) {});
  CHECK(dead[2] == "rank 0: it has died");
  CHECK((dead[3].empty() || dead[3] == dead[2]));
  const std::vector<std::string> failed = told_without_the_first([](Meeting& meeting, int rank) {
    if (rank == 3) meeting.fail("the disk is full");
    while (!meeting.has_failed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  CHECK(failed[2] == "rank 3: the disk is full");
  CHECK((failed[3].empty() || failed[3] == failed[2]));
}

TEST_CASE("meeting: neighbours hear that the user has been told, and from nobody else") {
  const auto neighbour = [](const std::string& key, int local_rank) {
    return Neighbours(key, "boot/" + std::to_string(::getpid()), 4711, {.local_rank = local_rank, .local_ranks = 3});
  };
  const Neighbours first = neighbour("job", 0), second = neighbour("job", 1), third = neighbour("job", 2);
  const Neighbours stranger = neighbour("another job", 0);
  stranger.tell();
  const PlaceOnHost there{.local_rank = 0, .local_ranks = 3};
  Neighbours("job", "boot/" + std::to_string(::getpid()), 4712, there).tell();  // at another port
  Neighbours("job", "another boot", 4711, there).tell();
  CHECK(!second.has_been_notified());
  second.tell();
  CHECK(first.has_been_notified());
  CHECK(third.has_been_notified());
  CHECK(!second.has_been_notified());
  CHECK(!stranger.has_been_notified());
  CHECK(!third.has_been_notified());  // it has been read
  sockaddr_storage name = {};         // which everybody on the host can see
  socklen_t size = sizeof name;
  getsockname(second.descriptor(), reinterpret_cast<sockaddr*>(&name), &size);
  REQUIRE(::sendto(stranger.descriptor(), "told", 4, 0, reinterpret_cast<const sockaddr*>(&name), size) == 4);
  CHECK(!second.has_been_notified());
  const Neighbours twice = neighbour("job", 1);  // hears nothing, and harms nobody
  CHECK(!twice.has_been_notified());
  third.tell();
  CHECK(second.has_been_notified());
}

TEST_CASE("meeting: who works alone is waited for, as long as that may last") {
  const std::vector<int> both{0, 1};
  std::mutex mutex;
  std::vector<std::string> told, answers;
  MeetingPort port(kHere, 0);
  const int number = port.port();
  MeetingOptions mine = options();
  mine.report_work = [&](const std::string& sentence) {
    const std::lock_guard lock(mutex);
    told.push_back(sentence);
  };
  std::thread worker([&] {
    Meeting meeting(attendee(0, 2), std::move(port), mine);
    meeting.begin_work("writing a checkpoint", 3);
    while (!meeting.has_failed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  });
  Meeting meeting(attendee(1, 2), at(number), options());
  meeting.set_place("barrier");
  while (answers.size() < 100 && (answers.empty() || answers.back().empty())) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    answers.push_back(meeting.report_timeout(both, 0.3));
    CHECK(!meeting.is_reported(0));  // to wait on is no end that the user has heard of
  }
  worker.join();
  CHECK(answers.size() >= 3);  // 0.9 s
  // How long it takes until the question is asked is the machine's business.
  CHECK_THAT(answers.back(), Matches(".*rank 1: rank 0 has not come to barrier, within 0.3 s; rank 0 is writing a "
                                     "checkpoint since [1-9][0-9]* s.*"));
  REQUIRE(told.size() == 1);
  CHECK_THAT(told[0], Matches(".*rank 0 is writing a checkpoint since [0-9]+ s: the others wait for it.*"));
}

TEST_CASE("meeting: of each work for which others wait the user is told once, however often they ask") {
  const std::vector<int> both{0, 1};
  std::vector<std::string> told;  // in a thread of rank 0's meeting
  MeetingPort port(kHere, 0);
  const int number = port.port();
  MeetingOptions mine = options();
  mine.report_work = [&](const std::string& sentence) { told.push_back(sentence); };
  {
    std::optional<Meeting> second;
    std::thread entering([&] { second.emplace(attendee(1, 2), at(number), options()); });
    Meeting first(attendee(0, 2), std::move(port), mine);
    entering.join();
    second->set_place("barrier");
    for (const char* work : {"reading the data", "writing a checkpoint"}) {
      first.begin_work(work, kAnyTime);
      for (int i = 0; i < 2; ++i) {
        CHECK(second->report_timeout(both, 10) == "");
        // Until the answer holds no more, and the next question is asked of all.
        std::this_thread::sleep_for(std::chrono::milliseconds(600));
      }
      first.end_work();
    }
  }
  REQUIRE(told.size() == 2);
  CHECK_THAT(told[0], Matches("rank 0 is reading the data since [0-9]+ s: the others wait for it"));
  CHECK_THAT(told[1], Matches("rank 0 is writing a checkpoint since [0-9]+ s: the others wait for it"));
}

TEST_CASE("meeting: a rank that worked alone a moment ago is waited for, and no longer") {
  const std::vector<int> both{0, 1};
  MeetingPort port(kHere, 0);
  const int number = port.port();
  std::optional<Meeting> second;
  std::thread entering([&] { second.emplace(attendee(1, 2), at(number), options()); });
  Meeting first(attendee(0, 2), std::move(port), options());
  entering.join();
  first.set_place("barrier");
  second->begin_work("writing a checkpoint", 3);
  second->end_work();
  CHECK(first.report_timeout(both, 30) == "");
  std::this_thread::sleep_for(std::chrono::milliseconds(600));  // that answer holds no more
  CHECK(first.report_timeout(both, 0.1) == "rank 0: rank 1 has not come to barrier, within 0.1 s");
}

namespace {

// The answers to rank 1 while rank 0 works alone: to a question whose time excuses that, and to one whose time does
// not. Nothing where more than `seconds` lay between the first question and the last answer.
std::optional<std::vector<std::string>> answers_within(double seconds) {
  const std::vector<int> both{0, 1};
  MeetingPort port(kHere, 0);
  const int number = port.port();
  std::atomic<bool> is_at_work = false, is_over = false;
  std::thread worker([&] {
    Meeting meeting(attendee(0, 2), std::move(port), options());
    meeting.begin_work("writing a checkpoint", 3);
    is_at_work = true;
    while (!is_over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  Meeting meeting(attendee(1, 2), at(number), options());
  meeting.set_place("barrier");
  while (!is_at_work) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::string> answers;
  for (const double asked : {10.0, 1e-9}) answers.push_back(meeting.report_timeout(both, asked));
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  is_over = true;
  worker.join();
  return passed.count() < seconds ? std::optional(answers) : std::nullopt;
}

}  // namespace

TEST_CASE("meeting: whose time is over a little later than another's gets the same answer") {
  std::optional<std::vector<std::string>> answers;
  for (int tries = 0; tries < 50 && !answers; ++tries) answers = answers_within(0.4);  // a busy machine is slower
  REQUIRE(answers);
  CHECK(*answers == std::vector<std::string>{"", ""});
}

TEST_CASE("meeting: a process that does not end of itself is ended, the teller with the sentence") {
  using Clock = std::chrono::steady_clock;
  std::mutex mutex;
  std::vector<std::optional<std::string>> resorts(2);
  std::vector<Clock::time_point> ended(2);
  bool has_heard = false;  // rank 1, that the user has been told
  MeetingPort port(kHere, 0);
  const int number = port.port();
  Clock::time_point begin;
  const auto take_part = [&](int rank) {
    MeetingOptions mine = options();
    mine.grace_seconds = 0.4;
    mine.force_exit = [&, rank](const std::string& sentence) {
      const std::lock_guard lock(mutex);
      const auto who = static_cast<std::size_t>(rank);
      if (resorts[who]) return;  // the first call would have ended the process
      resorts[who] = sentence;
      ended[who] = Clock::now();
    };
    std::optional<Meeting> meeting;
    if (rank == 0)
      meeting.emplace(attendee(0, 2), std::move(port), mine);
    else
      meeting.emplace(attendee(1, 2), at(number), mine);
    if (rank == 1) {
      begin = Clock::now();
      meeting->fail("no memory");
      has_heard = meeting->is_reported(kLong);
    }
    while (true) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const std::lock_guard lock(mutex);
      if (resorts[0] && resorts[1]) return;
    }
  };
  std::thread other(take_part, 1);
  take_part(0);
  other.join();
  CHECK(resorts[0] == "rank 1: no memory");
  CHECK(resorts[1] == "");
  CHECK(has_heard);
  CHECK(ended[0] - begin >= std::chrono::milliseconds(400));
  CHECK(ended[1] - begin >= std::chrono::milliseconds(600));  // half as long again, so that the teller goes first
}

TEST_CASE("meeting: messages are cut out of a stream, and what is too long or damaged is refused") {
  MessageStream stream;
  const std::string wire = to_wire({.type = 5, .texts = {"a", "", std::string("\0b", 2)}}) + to_wire({.type = 8});
  std::vector<Message> messages;
  for (const char byte : wire) {
    stream.add({&byte, 1});
    while (const auto message = stream.next()) messages.push_back(*message);
  }
  REQUIRE(messages.size() == 2);
  CHECK(messages[0].type == 5);
  CHECK(messages[0].texts == std::vector<std::string>{"a", "", std::string("\0b", 2)});
  CHECK(messages[1].texts.empty());
  CHECK(to_wire({.type = 3, .texts = std::vector<std::string>(100, std::string(10000, 'x'))}).size() <=
        kMaxMessageBytes + 4);
  const auto refused = [](const std::string& bytes, const std::string& why) {
    MessageStream damaged;
    damaged.add(bytes);
    CHECK_THROWS_WITH(damaged.next(), why);
  };
  refused(std::string("\xff\xff\xff\xff", 4), "a message of 4294967295 bytes");
  refused(std::string("\1\0\1\0", 4), "a message of 65537 bytes");
  refused(std::string("\0\0\0\0", 4), "a message of 0 bytes");
  refused(std::string("\5\0\0\0\1\7\0\0\0", 9), "a message ends within a text");
  refused(std::string("\3\0\0\0\1\0\0", 7), "a message ends within a length");
  // What is left out of a message that would be too long leaves room for its seal.
  const Challenge challenge("job", std::string(kRandomBytes, 'a'), std::string(kRandomBytes, 'b'));
  for (std::size_t length = 1000; length < 1040; ++length) {
    Seal seal = challenge.to_rank();
    MessageStream sealed(challenge.to_rank());
    sealed.add(to_wire({.type = 3, .texts = std::vector<std::string>(100, std::string(length, 'x'))}, &seal));
    const auto message = sealed.next();
    REQUIRE(message);
    CHECK(message->texts.size() == ((std::size_t{1} << 16) - 16 - 1) / (length + 4));
  }
}

TEST_CASE("meeting: a sealed message of nothing has no type, and is refused") {
  const Challenge both("key", std::string(kRandomBytes, 'a'), std::string(kRandomBytes, 'b'));
  MessageStream stream(both.to_first());
  Seal seal = both.to_first();
  const std::string nothing = seal.close("");
  stream.add(std::string{static_cast<char>(nothing.size()), 0, 0, 0} + nothing);
  CHECK_THROWS_WITH(stream.next(), "a message without a type");
}

TEST_CASE("meeting: a message's texts and numbers are those that it has, within what they may be") {
  const Message message{.type = 3, .texts = {"5", "5x", ""}};
  CHECK(message.number(0, 5, 5) == 5);
  CHECK_THROWS_WITH(message.number(0, 6, 9), "a message of type 3 has no number from 6 to 9");
  CHECK_THROWS_WITH(message.number(0, 0, 4), "a message of type 3 has no number from 0 to 4");
  for (const std::size_t none : {1, 2}) CHECK_THROWS_AS(message.number(none, 0, 9), Error);
  CHECK_THROWS_WITH(message.text(3), "a message of type 3 has 3 texts only");
  // A sentence that is too long is cut, and what comes behind it travels whole.
  MessageStream stream;
  stream.add(to_wire({.type = 3, .texts = {std::string(60000, 'x'), "behind"}}));
  const auto cut = stream.next();
  REQUIRE(cut);
  CHECK(cut->texts == std::vector<std::string>{std::string(48 << 10, 'x'), "behind"});
}

TEST_CASE("meeting: strangers are dropped, and the ranks meet all the same") {
  MeetingPort port(kHere, 0);
  const int number = port.port();
  std::thread rank_0([&] { Meeting(attendee(0, 2), std::move(port), options()).leave(); });
  Stranger silent(number), other_job(number), web(number), oversized(number), damaged(number), unsealed(number);
  other_job.enter("another job");
  web.say("GET / HTTP/1.0\r\nHost: node1\r\nAccept: */*\r\n\r\n");
  oversized.enter("job");
  oversized.say(std::string("\xff\xff\xff\x7f", 4));
  damaged.enter("job");
  damaged.say({.type = 1, .texts = {"one", "2"}});
  unsealed.enter("job");
  unsealed.say(to_wire(hello(1, 2)));
  CHECK(other_job.is_dropped());
  CHECK(web.is_dropped());
  CHECK(oversized.is_dropped());
  CHECK(damaged.is_dropped());
  CHECK(unsealed.is_dropped());
  Meeting(attendee(1, 2), at(number), options()).leave();
  rank_0.join();
}

TEST_CASE("meeting: a rank that says what no rank says has failed, and is named") {
  MeetingPort port(kHere, 0);
  Stranger rank_1(port.port());
  std::thread entering([&] {
    rank_1.enter("job");
    rank_1.say(hello(1, 2));
  });
  const Meeting meeting(attendee(0, 2), std::move(port), options());
  entering.join();
  rank_1.say(Message{.type = 99});
  for (int i = 0; i < 1000 && !meeting.has_failed(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(meeting.failure() == "rank 1: it has sent a message of type 99");
}

TEST_CASE("meeting: a rank that leaves twice has left once, and rank 0 goes on") {
  MeetingPort port(kHere, 0);
  std::optional<Stranger> rank_1(std::in_place, port.port());
  std::thread entering([&] {
    rank_1->enter("job");
    rank_1->say(hello(1, 2));
  });
  const Meeting meeting(attendee(0, 2), std::move(port), options());
  entering.join();
  for (int i = 0; i < 2; ++i) rank_1->say(Message{.type = 7});
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // an end may overtake what is not read yet
  rank_1.reset();
  for (int i = 0; i < 1000 && !meeting.has_failed(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(meeting.failure() == "rank 1: it has died (process 7 on node)");
}

TEST_CASE("meeting: a rank whose hello comes in pieces is a rank all the same") {
  MeetingPort port(kHere, 0);
  const int number = port.port();
  bool is_running = false;
  std::thread rank_0([&] {
    try {
      const Meeting meeting(attendee(0, 2), std::move(port), options());
      is_running = true;
    } catch (const Error&) {  // is_running tells
    }
  });
  {
    Stranger rank_1(number);
    rank_1.enter("job");
    const std::string whole = rank_1.sealed(hello(1, 2));
    rank_1.say(whole.substr(0, whole.size() / 2));
    CHECK(!rank_1.is_dropped(0.3));
    rank_1.say(whole.substr(whole.size() / 2));
    CHECK(rank_1.hear(1).size() == 1);  // the welcome
  }
  rank_0.join();
  CHECK(is_running);
}

TEST_CASE("meeting: a key is not found by guessing, and all wrong ones end alike") {
  MeetingPort port(kHere, 0);
  const int number = port.port();
  std::thread rank_0([&] { Meeting(attendee(0, 2), std::move(port), options()).leave(); });
  // A part is judged when it is whole: neither the right greeting nor a wrong one is answered before.
  const Stranger right(number), wrong(number);
  right.say(std::string(kGreeting) + "123456789012345");
  wrong.say(std::string(kGreeting.size() + 15, 'x'));
  CHECK(!right.is_dropped(0.2));
  CHECK(!wrong.is_dropped(0));
  wrong.say("x");
  CHECK(wrong.is_dropped());
  // What one connection has shown is of no use in the next one.
  Stranger first(number), second(number);
  const std::string mine(kRandomBytes, 'r');
  first.say(std::string(kGreeting) + mine);
  const std::string answer = first.hear(kAnswerBytes);
  REQUIRE(answer.size() == kAnswerBytes);
  second.say(std::string(kGreeting) + mine);
  CHECK(second.hear(kAnswerBytes) != answer);
  second.say(Challenge("job", mine, answer.substr(0, kRandomBytes)).proof_of_rank());
  CHECK(second.is_dropped());
  Meeting(attendee(1, 2), at(number), options()).leave();
  rank_0.join();
}

TEST_CASE("meeting: ranks do not believe who does not know the key, nor wait for it") {
  // A listener that says nothing, and one that answers anything.
  for (const std::string& says : {std::string(), std::string(200, 'x')}) {
    Socket listener = make_listener();
    const int port = port_of(listener);
    std::thread speaker([&] {
      const int other = ::accept(listener.get(), nullptr, nullptr);
      static_cast<void>(::send(other, says.data(), says.size(), MSG_NOSIGNAL));
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      listener = Socket();
      std::string all;
      char buffer[64];
      for (ssize_t got = 0; (got = ::recv(other, buffer, sizeof buffer, 0)) > 0;)
        all.append(buffer, static_cast<std::size_t>(got));
      ::close(other);
      CHECK(all.size() == kOpeningBytes);  // nothing of the rank, nor of the key
    });
    MeetingOptions mine = options(0.3);
    mine.identify_seconds = 0.5;
    CHECK_THROWS_WITH(Meeting(attendee(1, 2), at(port), mine),
                      ContainsSubstring("rank 1: no meeting at 127.0.0.1:") && ContainsSubstring("within 0.3 s"));
    speaker.join();
  }
}

// From 0.05 s on each pause is half as long again, up to one second, and each is shortened by up to a half.
TEST_CASE("meeting: a rank looks for rank 0 often at first, and then more seldom") {
  const Socket listener = make_listener();
  int tries = 0;
  std::thread other([&] {
    for (int rank = 0; (rank = ::accept(listener.get(), nullptr, nullptr)) >= 0; ++tries) ::close(rank);
  });
  CHECK_THROWS_AS(Meeting(attendee(1, 2), at(port_of(listener)), options(1)), Error);
  ::shutdown(listener.get(), SHUT_RDWR);
  other.join();
  CHECK(tries >= 4);
  CHECK(tries <= 10);
}

TEST_CASE("meeting: a rank that finds the rank 0 of another job says so") {
  MeetingPort port(kHere, 0);
  const int number = port.port();
  std::thread rank_0([&] { Meeting(attendee(0, 2), std::move(port), options()).leave(); });
  MeetingOptions other = options(0.2);
  other.key = "another job";
  CHECK(error_of([&] { Meeting(attendee(1, 2), at(number), other); }) ==
        concat("rank 1: no meeting at 127.0.0.1:", number, " within 0.2 s: who listens there is not of this job"));
  Meeting(attendee(1, 2), at(number), options()).leave();
  rank_0.join();
}

TEST_CASE("meeting: rank 0 takes the first free one of some ports, and the others look at all") {
  const MeetingPort taken("", 0);
  MeetingPort port("", taken.port(), 3);
  CHECK(port.port() != taken.port());
  CHECK_THAT(port.text(), ContainsSubstring("(all its addresses)"));
  const MeetingPlace place{.addresses = {"no.such.host.invalid", "::1", kHere}, .port = taken.port(), .ports = 3};
  std::thread rank_0([&] { Meeting(attendee(0, 2), std::move(port), options()).leave(); });
  MeetingOptions mine = options();
  mine.identify_seconds = 0.5;  // at the port that is taken nobody answers
  Meeting meeting(attendee(1, 2), place, mine);
  CHECK(meeting.hosts() == 2);
  CHECK(meeting.place_on_host().local_ranks == 1);
  meeting.leave();
  rank_0.join();
}

TEST_CASE("meeting: rank 0 is found at the first of several ports, in the middle and at the last") {
  constexpr int kPorts = 3;
  for (int before = 0; before < kPorts; ++before) {
    MeetingPort port(kHere, 0);
    const MeetingPlace place{.addresses = {kHere}, .port = port.port() - before, .ports = kPorts};
    MeetingOptions mine = options(10);
    mine.identify_seconds = 0.5;  // another process may listen at a port beside
    std::string of_first, of_second;
    std::thread rank_0([&] { of_first = error_of([&] { Meeting(attendee(0, 2), std::move(port), mine).leave(); }); });
    of_second = error_of([&] { Meeting(attendee(1, 2), place, mine).leave(); });
    rank_0.join();
    INFO("ports before it: " << before);
    CHECK(of_first == "");
    CHECK(of_second == "");
  }
}

TEST_CASE("meeting: each rank hears which one of its host it is") {
  std::mutex mutex;
  std::vector<int> local(4), of(4), host(4);
  meet(
      4,
      [&](Meeting& meeting, int rank) {
        {
          const std::lock_guard lock(mutex);
          local[static_cast<std::size_t>(rank)] = meeting.place_on_host().local_rank;
          of[static_cast<std::size_t>(rank)] = meeting.place_on_host().local_ranks;
          host[static_cast<std::size_t>(rank)] = meeting.place_on_host().host;
          CHECK(meeting.hosts() == 2);
        }
        meeting.leave();
      },
      [](RankDescription& me) { me.host_identity = me.rank == 1 ? "boot2" : "boot1"; });
  CHECK(local == std::vector<int>{0, 0, 1, 2});
  CHECK(of == std::vector<int>{3, 1, 3, 3});
  CHECK(host == std::vector<int>{0, 1, 0, 0});
}

// A signal must reach the rank's own threads: those stop the run.
TEST_CASE("meeting: its threads take no signals, and a rank takes those that it took before") {
  const auto blocked = [] {
    sigset_t signals = {};
    pthread_sigmask(SIG_SETMASK, nullptr, &signals);
    std::vector<int> all;
    for (int signal = 1; signal < NSIG; ++signal)
      if (sigismember(&signals, signal) == 1) all.push_back(signal);
    return all;
  };
  const auto deaf_threads = [] {
    int deaf = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream status(task.path() / "status");
      for (std::string line; std::getline(status, line);)
        if (line.starts_with("SigBlk:")) deaf += std::stoull(line.substr(7), nullptr, 16) >> (SIGTERM - 1) & 1;
    }
    return deaf;
  };
  std::thread([] {}).join();  // with the first thread a sanitizer begins one of its own
  const int before = deaf_threads();
  std::barrier<> both(2);
  std::mutex mutex;
  meet(2, [&](Meeting& meeting, int rank) {
    const std::vector<int> mine = blocked();
    both.arrive_and_wait();
    if (rank == 0) CHECK(deaf_threads() == before + 2);  // one of each rank
    both.arrive_and_wait();
    meeting.leave();
    const std::lock_guard lock(mutex);
    CHECK(mine.empty());
  });
}

TEST_CASE("meeting: only one rank of a host says that rank 0 cannot be reached") {
  MeetingOptions mine = options(0.1);
  mine.reports_unreachable = false;
  CHECK_THROWS_AS(Meeting(attendee(3, 4), at(1), mine), ErrorReportedByAnotherRank);
}

TEST_CASE("meeting: who waits for the user to be told hears when that is so") {
  meet(3, [&](Meeting& meeting, int rank) {
    if (rank == 2) meeting.fail("the disk is full");
    while (!meeting.has_failed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK(!meeting.is_reported(0));
    static std::atomic<int> asked = 0;
    ++asked;
    while (asked < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (meeting.reports_error()) meeting.note_reported();
    CHECK(meeting.is_reported(kLong));
    CHECK_THROWS_WITH(meeting.leave(), "rank 2: the disk is full");  // that it is told makes nothing well
  });
}

// Who may tell that rank 0 is gone: the first five ranks of the first three hosts, one after another.
TEST_CASE("meeting: where rank 0 is gone, ranks far behind it leave it to others to tell") {
  const auto silent = [](int ranks, const std::vector<int>& asked, const std::function<std::string(int)>& host) {
    std::mutex mutex;
    std::vector<int> none;
    meet(
        ranks,
        [&](Meeting& meeting, int rank) {
          if (rank == 0) return;
          while (!meeting.has_failed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          if (std::ranges::find(asked, rank) == asked.end()) return;
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
          const bool tells = meeting.reports_error();
          const std::lock_guard lock(mutex);
          if (!tells) none.push_back(rank);
        },
        [&](RankDescription& me) { me.host_identity = host(me.rank); });
    std::ranges::sort(none);
    return none;
  };
  CHECK(silent(7, {1, 5, 6}, [](int) { return "boot"; }) == std::vector<int>{5, 6});
  CHECK(silent(5, {3, 4}, [](int rank) { return "boot" + std::to_string(rank); }) == std::vector<int>{3, 4});
}

// Three seconds after one another. Where each process ends by itself the fourth would tell after one second.
TEST_CASE("meeting: where the teller ends all others, they leave it the time for that") {
  std::atomic<int> ready = 0, decided = 0;
  bool first_tells = false, last_tells = false;
  meet(
      4,
      [&](Meeting& meeting, int rank) {
        ++ready;
        while (ready < 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (rank == 0) return;
        while (!meeting.has_failed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (rank == 1) first_tells = meeting.must_report(kLong);
        if (rank == 3) last_tells = meeting.must_report(1.5);
        ++decided;
        while (decided < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      },
      [](RankDescription& me) { me.host_identity = "boot"; }, kLong, {}, /*reporter_ends_all=*/true);
  CHECK(first_tells);
  CHECK_FALSE(last_tells);
}

TEST_CASE("meeting: a rank that ends when all have left has not died") {
  MeetingPort port(kHere, 0);
  const int number = port.port();
  std::mutex mutex;
  std::vector<std::string> deaths;
  MeetingOptions mine = options();
  mine.report_death = [&](const std::string& sentence) {
    const std::lock_guard lock(mutex);
    deaths.push_back(sentence);
  };
  std::thread other([&] { Meeting(attendee(1, 2), at(number), options()).leave(); });
  Meeting meeting(attendee(0, 2), std::move(port), mine);
  meeting.leave();
  other.join();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const std::lock_guard lock(mutex);
  CHECK(deaths.empty());
  CHECK(!meeting.has_failed());
}

namespace {

// What stands between two hosts and forgets a connection in which nothing has come for a while.
class Forgetful {
 public:
  Forgetful(int port, double idle_seconds) : to_(port) {
    thread_ = std::thread([this, idle_seconds] { forward(static_cast<int>(idle_seconds * 1000)); });
  }
  ~Forgetful() { thread_.join(); }
  int port() const { return port_of(listener_); }
  int passed_on() const { return passed_on_; }  // from rank 0

 private:
  void forward(int idle_milliseconds) {
    const int from = ::accept(listener_.get(), nullptr, nullptr);
    pollfd ends[2] = {{from, POLLIN, 0}, {to_.descriptor(), POLLIN, 0}};
    // From the welcome on: rank 0's second word.
    while (::poll(ends, 2, passed_on_ >= 2 ? idle_milliseconds : static_cast<int>(kLong * 1000)) > 0) {
      for (int i = 0; i < 2; ++i) {
        char buffer[4096];
        if (ends[i].revents == 0) continue;
        const ssize_t got = ::recv(ends[i].fd, buffer, sizeof buffer, 0);
        if (got <= 0) {
          ::close(from);
          return;
        }
        static_cast<void>(::send(ends[1 - i].fd, buffer, static_cast<std::size_t>(got), MSG_NOSIGNAL));
        passed_on_ += i;
      }
    }
    ::close(from);
  }

  Stranger to_;
  Socket listener_ = make_listener();
  std::atomic<int> passed_on_ = 0;
  std::thread thread_;
};

void leave_if_well(Meeting& meeting) {
  try {
    meeting.leave();
  } catch (const Error&) {  // the meeting's failure() says it
  }
}

}  // namespace

TEST_CASE("meeting: a connection in which nothing happens is not taken for unused") {
  for (const bool beats : {true, false}) {
    MeetingPort port(kHere, 0);
    const int number = port.port();
    MeetingOptions mine = options();
    mine.beat_seconds = beats ? 0.05 : kLong;
    std::string sentence;
    std::atomic<bool> is_enough = false;
    std::thread rank_0([&] {
      Meeting meeting(attendee(0, 2), std::move(port), mine);
      while (!is_enough && !meeting.has_failed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      leave_if_well(meeting);
      sentence = meeting.failure();
    });
    {
      Forgetful between(number, beats ? kLong : 0.2);
      Meeting meeting(attendee(1, 2), at(between.port()), mine);
      const int met = between.passed_on();
      while (between.passed_on() < met + 3 && !meeting.has_failed())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      is_enough = true;
      leave_if_well(meeting);
    }
    rank_0.join();
    CHECK(sentence == (beats ? "" : "rank 1: it has died (process 101 on node1)"));
  }
}

// Ranks as threads of this process: 1,000, or as many as ISOBAR_MEETING_RANKS says (8,000 by hand).
TEST_CASE("meeting: many ranks meet at once") {
  const char* count = std::getenv("ISOBAR_MEETING_RANKS");
  const int ranks = count != nullptr ? std::atoi(count) : 1000;
  const auto start = std::chrono::steady_clock::now();
  std::mutex mutex;
  std::condition_variable bell;
  int met = 0;
  double seconds = 0;
  const auto wait_for_all = [&](Meeting& meeting, int /*rank*/) {
    {
      std::unique_lock lock(mutex);
      if (++met == ranks) {
        seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        bell.notify_all();
      }
      bell.wait(lock, [&] { return met == ranks; });
    }
    meeting.leave();
  };
  const auto of_eight = [](RankDescription& me) { me.host_identity = "host " + std::to_string(me.rank / 8); };
  // As over MPI: the hosts' own sockets would all be of this process.
  const Ends ends = meet(ranks, wait_for_all, of_eight, kLong, {}, /*reporter_ends_all=*/true);
  CHECK(ends == Ends(static_cast<std::size_t>(ranks)));
  if (count != nullptr) std::printf("%d ranks have met after %.2f s\n", ranks, seconds);
  CHECK(seconds < kLong);
}

// Connections of those who do not know the key: 300, or as many as ISOBAR_HOSTILE_CONNECTIONS says (10,000 by hand).
TEST_CASE("meeting: a flood of strangers keeps nobody out, and costs no memory") {
  const char* count = std::getenv("ISOBAR_HOSTILE_CONNECTIONS");
  const int strangers = count != nullptr ? std::atoi(count) : 300;
  MeetingPort port(kHere, 0);
  const int number = port.port();
  std::thread rank_0([&] { Meeting(attendee(0, 2), std::move(port), options()).leave(); });
  Memory memory;
  std::deque<Stranger> held;
  for (int i = 0; i < strangers; ++i) {
    if (held.size() > 1000) held.pop_front();
    Stranger& stranger = held.emplace_back(number);
    if (i % 4 == 1) stranger.say("GET / HTTP/1.0\r\n");
    if (i % 4 == 2) stranger.say(std::string(kGreeting) + "123456789012345");
    if (i % 4 == 3) stranger.say(std::string(kGreeting) + std::string(60000, 'x'));
    memory.look();
  }
  const auto start = std::chrono::steady_clock::now();
  Meeting(attendee(1, 2), at(number), options()).leave();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  rank_0.join();
  if (count != nullptr) std::printf("the rank came in %.3f s\n", took.count());
  memory.check(concat(strangers, " strangers"), count != nullptr);
}

TEST_CASE("meeting: more strangers than there is room for push nobody out who has had no time to speak") {
  MeetingPort port(kHere, 0);
  const int number = port.port();
  // All stand at the door before it opens, a rank first.
  const Stranger first(number);
  first.say(std::string(kGreeting) + std::string(kRandomBytes, 'r'));
  std::deque<Stranger> others;
  for (int i = 0; i < 600; ++i) others.emplace_back(number);
  std::thread rank_0([&] { Meeting(attendee(0, 2), std::move(port), options()).leave(); });
  CHECK(first.hear(kAnswerBytes).size() == kAnswerBytes);
  Meeting(attendee(1, 2), at(number), options()).leave();
  rank_0.join();
}

TEST_CASE("meeting: too few open files are an error of their own") {
  int ends[2] = {};
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit few{.rlim_cur = 64, .rlim_max = 64};
    setrlimit(RLIMIT_NOFILE, &few);
    std::string said = "nothing";
    try {
      const Meeting meeting(attendee(0, 100), MeetingPort(kHere, 0), options(1));
    } catch (const Error& error) {
      said = error.what();
    }
    static_cast<void>(!::write(ends[1], said.data(), said.size()));
    _exit(0);
  }
  char said[512] = "";
  ::close(ends[1]);
  REQUIRE(::read(ends[0], said, sizeof said - 1) > 0);
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  CHECK_THAT(said, ContainsSubstring("the meeting of 100 ranks needs 100 open files, and ") &&
                       ContainsSubstring(" allows 64: raise its hard limit (ulimit -Hn)"));
}

// Without the error it would try again at once, for ever: the connection stays at the port.
TEST_CASE("meeting: a connection that finds no free descriptor ends the meeting with a sentence") {
  MeetingPort port(kHere, 0);
  const int number = port.port();
  int from_child[2] = {}, to_child[2] = {};
  REQUIRE((::pipe(from_child) == 0 && ::pipe(to_child) == 0));
  const pid_t child = fork();
  if (child == 0) {
    std::thread([&] {
      char byte = 0;
      static_cast<void>(!::read(to_child[0], &byte, 1));
      const rlimit none{.rlim_cur = 3, .rlim_max = 3};
      setrlimit(RLIMIT_NOFILE, &none);
      static_cast<void>(!::write(from_child[1], &byte, 1));
    }).detach();
    std::string said = "nothing";
    try {
      const Meeting meeting(attendee(0, 2), std::move(port), options(20));
    } catch (const Error& error) {
      said = error.what();
    }
    static_cast<void>(!::write(from_child[1], said.data(), said.size()));
    _exit(0);
  }
  ::close(from_child[1]);
  const Stranger first(number);
  first.say(std::string(kGreeting) + std::string(kRandomBytes, 'r'));
  CHECK(first.hear(kAnswerBytes).size() == kAnswerBytes);  // the meeting has begun
  char byte = 'x';
  REQUIRE(::write(to_child[1], &byte, 1) == 1);
  REQUIRE(::read(from_child[0], &byte, 1) == 1);  // no descriptor is free any more
  const Stranger second(number);
  char said[512] = "";
  REQUIRE(::read(from_child[0], said, sizeof said - 1) > 0);
  for (const int end : {from_child[0], to_child[0], to_child[1]}) ::close(end);
  ::waitpid(child, nullptr, 0);
  CHECK_THAT(said, ContainsSubstring("the meeting: no more connections can be taken: ") &&
                       ContainsSubstring("raise the limit of open files (ulimit -n)"));
}

TEST_CASE("meeting: random messages at the port do no harm") {
  std::mt19937 random(7);
  const int messages = messages_to_try();
  const bool says = std::getenv("ISOBAR_FUZZ_MESSAGES") != nullptr;
  Memory memory;
  SECTION("cut out of a stream") {
    for (int i = 0; i < messages; ++i) {
      MessageStream stream;
      try {
        for (int more = 0; more < 3; ++more) stream.add(noise(random));
        while (stream.next()) continue;
      } catch (const Error&) {
      }
      if (i % 1000 == 0) memory.look();
    }
    memory.check(concat(messages, " messages cut out of a stream"), says);
  }
  SECTION("before the ranks have met") {
    MeetingPort port(kHere, 0);
    const int number = port.port();
    std::thread rank_0([&] { Meeting(attendee(0, 2), std::move(port), options(10 * kLong)).leave(); });
    for (int i = 0; i < messages; i += 4) {
      std::optional<Stranger> stranger(number);
      while (!stranger->is_connected()) {  // no port is free: those of the last ones are kept for a while
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        stranger.emplace(number);
      }
      // Before the challenge, within it, and behind it, with the right seal or none.
      const unsigned how = random() % 8;
      if (how == 0) stranger->say(std::string(kGreeting));
      if (how == 1) stranger->enter("guess");
      if (how > 2) stranger->enter("job");
      for (int more = 0; more < 4; ++more) {
        std::string next = noise(random);
        if (next.size() > 4 && next[4] == 1) next[4] = 2;  // who says the right thing with the job's key is a rank
        if (how < 6) stranger->say(next);
        if (how >= 6) stranger->say(Message{.type = 5, .texts = {next}});
      }
      if (i % 1000 == 0) memory.look();
    }
    Meeting(attendee(1, 2), at(number), options(10 * kLong)).leave();
    rank_0.join();
    memory.check(concat(messages, " messages before the ranks have met"), says);
  }
  SECTION("of a rank that has gone mad") {
    for (int i = 0; i < messages; i += 100) {
      MeetingPort port(kHere, 0);
      Stranger mad(port.port());
      std::thread entering([&] {
        mad.enter("job");
        mad.say(hello(1, 2));
      });
      RankDescription me = attendee(0, 2);
      Meeting meeting(me, std::move(port), options());
      entering.join();
      for (int more = 0; more < 100; ++more) {
        Message message{.type = static_cast<std::uint8_t>(random() % 12)};
        for (unsigned texts = random() % 8; texts > 0; --texts) message.texts.push_back(noise(random));
        if (random() % 8 == 0)
          mad.say(noise(random));
        else
          mad.say(message);
      }
      mad.say(Message{.type = 99});
      CHECK_THAT(meeting.fail("enough"), ContainsSubstring("rank "));
      memory.look();
    }
    memory.check(concat(messages, " messages of a rank that has gone mad"), says);
  }
}
