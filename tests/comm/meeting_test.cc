// The meeting of processes, with ranks as threads of one process and strangers at the port: each sentence, who tells
// it, and random bytes.
#include "comm/meeting.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iomanip>
#include <mutex>
#include <optional>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

#include "comm/messages.h"
#include "engine/files/checksum.h"
#include "kernels/common/check.h"
#include "tests/harness/testing.h"

using namespace isobar;
using isobar::testing::ContainsSubstring;

namespace {

constexpr const char* kHere = "127.0.0.1";
constexpr double kLong = 60;  // seconds: what a busy machine may take

Attendee attendee(int rank, int ranks) {
  return {.rank = rank,
          .ranks = ranks,
          .host = "node" + std::to_string(rank),
          .process = 100 + rank,
          .version = "1",
          .config = "c0ffee",
          .layout = "dp " + std::to_string(ranks)};
}

MeetingOptions options(double seconds = kLong) {
  return {.key = "job", .timeout_seconds = seconds, .payload = "an id"};
}

// What each rank has ended with: "" for well, "told elsewhere", or its sentence.
using Ends = std::vector<std::string>;

// Starts ranks in threads; those that `come` says. Each calls `body` with its meeting.
Ends meet(int ranks, const std::function<void(Meeting&, int rank)>& body,
          const std::function<void(Attendee&)>& change = {}, double seconds = kLong,
          const std::function<bool(int)>& comes = {}) {
  MeetingPort port(kHere, 0);
  const int number = port.port();
  Ends ends(static_cast<std::size_t>(ranks));
  const auto take_part = [&](int rank) {
    try {
      Attendee me = attendee(rank, ranks);
      if (change) change(me);
      if (rank == 0) {
        Meeting meeting(me, std::move(port), options(seconds));
        body(meeting, rank);
      } else {
        Meeting meeting(me, kHere, number, options(seconds));
        body(meeting, rank);
      }
    } catch (const ToldElsewhere&) {
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
  void say(const std::string& bytes) const {
    static_cast<void>(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  // Whether the other end hangs up within the seconds.
  bool is_dropped(double seconds = kLong) const {
    pollfd polled{socket_, POLLIN, 0};
    char byte = 0;
    return ::poll(&polled, 1, static_cast<int>(seconds * 1000)) > 0 && ::recv(socket_, &byte, 1, 0) <= 0;
  }

 private:
  int socket_;
  bool is_connected_ = false;
};

std::string preamble(const std::string& key) {
  std::ostringstream out;
  out << "isobar meeting 1\n"
      << std::hex << std::setw(16) << std::setfill('0') << xxh64(std::as_bytes(std::span(key))) << '\n';
  return out.str();
}

std::string hello(int rank, int ranks) {
  return to_wire({.type = 1,
                  .texts = {std::to_string(rank), std::to_string(ranks), "node", "7", "1", "c0ffee",
                            "dp " + std::to_string(ranks), "", ""}});
}

// Messages of the tests below: 10^4, or as many as ISOBAR_FUZZ_MESSAGES says.
int messages_to_try() {
  const char* count = std::getenv("ISOBAR_FUZZ_MESSAGES");
  return count != nullptr ? std::atoi(count) : 10000;
}

// Bytes that are a message, nearly one, or none at all.
std::string random_bytes(std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const auto noise = [&](int most) {
    std::string bytes(static_cast<std::size_t>(below(most + 1)), '\0');
    for (char& byte : bytes) byte = static_cast<char>(below(256));
    return bytes;
  };
  const std::vector<std::string> known{"0", "1", "2", "-1", "99999999999999999999", "0,1,2", ",,", "", "dp 3", "x"};
  switch (below(4)) {
    case 0:
      return noise(64);
    case 1: {  // a length and then something
      std::string bytes = noise(40);
      const auto length = below(2) == 0 ? static_cast<std::uint32_t>(bytes.size()) : random();
      for (int shift = 24; shift >= 0; shift -= 8) bytes.insert(0, 1, static_cast<char>(length >> shift & 0xff));
      return bytes;
    }
    default: {
      Message message{.type = static_cast<std::uint8_t>(below(11))};
      for (int i = below(11); i > 0; --i)
        message.texts.push_back(below(3) == 0 ? noise(20)
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
    const Ends ends = meet(ranks, [&](Meeting& meeting, int rank) {
      {
        const std::lock_guard lock(mutex);
        payloads += meeting.payload() == "an id" ? 1 : 0;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20 * (ranks - rank)));
      meeting.leave();
      CHECK(!meeting.has_failed());
    });
    CHECK(ends == Ends(static_cast<std::size_t>(ranks)));
    CHECK(payloads == ranks);
  }
}

TEST_CASE("meeting: what does not fit is told once, by the first rank") {
  const auto changed = [](int rank, const std::function<void(Attendee&)>& change) {
    return meet(4, leave, [&](Attendee& me) {
      if (me.rank == rank) change(me);
    });
  };
  CHECK(changed(2, [](Attendee& me) { me.version = "2"; }) ==
        told_by_the_first(4, "rank 2 (process 102 on node2) is isobar 2, rank 0 1"));
  CHECK(changed(3, [](Attendee& me) { me.layout = "dp 2 x tp 2"; }) ==
        told_by_the_first(4, "rank 3 (process 103 on node3) has the layout dp 2 x tp 2, rank 0 dp 4"));
  CHECK(changed(1, [](Attendee& me) { me.config = "decaf"; }) ==
        told_by_the_first(4, "rank 1 (process 101 on node1) has another config than rank 0: give all the same flags"));
  CHECK(changed(2, [](Attendee& me) { me.failure = "no key learning_rat"; }) ==
        told_by_the_first(4, "rank 2: no key learning_rat"));
  CHECK(meet(4, leave, [](Attendee& me) { me.device = me.rank % 2 == 0 ? "" : "GPU-5c"; }) ==
        told_by_the_first(4, "ranks 1 and 3 use the same GPU, GPU-5c"));
  CHECK(changed(2, [](Attendee& me) { me.ranks = 8; })[0] == "rank 2 (process 102 on node2) counts 8 ranks, rank 0 4");
  const std::string twice = changed(2, [](Attendee& me) { me.rank = 1; })[0];
  CHECK_THAT(twice, ContainsSubstring("two processes say that they are rank 1: process 10"));
  CHECK_THAT(changed(2, [](Attendee& me) { me.rank = 4; })[0],
             ContainsSubstring("on node2 says that it is rank 4 of 4"));
}

TEST_CASE("meeting: who does not come is named by number") {
  const Ends ends = meet(5, leave, {}, 1, [](int rank) { return rank != 2 && rank != 4; });
  CHECK_THAT(ends[0], ContainsSubstring("ranks 2, 4 have not come to the meeting at 127.0.0.1:") &&
                          ContainsSubstring("within 1 s"));
  CHECK(ends[1] == "told elsewhere");
  const Ends alone = meet(2, leave, {}, 0.5, [](int rank) { return rank == 0; });
  CHECK_THAT(alone[0], ContainsSubstring("rank 1 has not come"));
  CHECK_THROWS_WITH(Meeting(attendee(3, 4), kHere, 1, options(0.5)),
                    ContainsSubstring("rank 3: no meeting at 127.0.0.1:1 within 0.5 s: Connection refused"));
  CHECK_THROWS_WITH(Meeting(attendee(1, 4), "no.such.host.invalid", 1, options(0.3)),
                    ContainsSubstring("the address cannot be resolved"));
}

TEST_CASE("meeting: an address of another host, and a port that is taken") {
  CHECK_THROWS_WITH(MeetingPort("192.0.2.1", 0), ContainsSubstring("192.0.2.1 is no address of "));
  CHECK_THROWS_WITH(MeetingPort("no.such.host.invalid", 0), ContainsSubstring("cannot be resolved"));
  const MeetingPort port(kHere, 0);
  CHECK_THROWS_WITH(MeetingPort(kHere, port.port()), ContainsSubstring("is taken by another process; set MASTER_PORT"));
}

TEST_CASE("meeting: the first error of any rank reaches all, and one tells it") {
  for (const int failing : {0, 2}) {
    std::vector<std::string> heard(4);
    int tellers = 0;
    std::mutex mutex;
    meet(4, [&](Meeting& meeting, int rank) {
      if (rank == failing) meeting.fail("the disk is full");
      while (!meeting.has_failed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const std::string first = meeting.fail("another error, because of the first");
      const std::lock_guard lock(mutex);
      heard[static_cast<std::size_t>(rank)] = first;
      tellers += meeting.is_teller() ? 1 : 0;
      CHECK(meeting.is_teller() == (rank == 0));
    });
    CHECK(heard == std::vector<std::string>(4, concat("rank ", failing, ": the disk is full")));
    CHECK(tellers == 1);
  }
}

TEST_CASE("meeting: a rank that is gone is dead, and nobody leaves without the others") {
  for (const int dying : {0, 2}) {
    const Ends ends = meet(3, [&](Meeting& meeting, int rank) {
      if (rank == dying) return std::this_thread::sleep_for(std::chrono::milliseconds(50));
      meeting.leave();
    });
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == dying) continue;
      CHECK(ends[static_cast<std::size_t>(rank)] ==
            (dying == 0 ? "rank 0: it has died" : "rank 2: it has died (process 102 on node2)"));
    }
  }
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
      if (rank == asker) meeting.time_is_over(members, 3);
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
  // Who is waited for may wait in another group.
  CHECK(ended_by({other, call, other, ""}, 1, pair) ==
        "rank 1: rank 2 has not come to " + call + ", within 3 s; rank 2 is in " + other + ", rank 3 is in no call");
  CHECK(ended_by({call, call, call, call}, 1, all) ==
        "rank 1: all have come to " + call + ", which has not ended, within 3 s");
}

TEST_CASE("meeting: a rank that does not even answer is named first") {
  MeetingPort port(kHere, 0);
  const Stranger silent(port.port());
  silent.say(preamble("job") + hello(1, 2));
  Meeting meeting(
      {.rank = 0, .ranks = 2, .host = "here", .process = 1, .version = "1", .config = "c0ffee", .layout = "dp 2"},
      std::move(port), options());
  meeting.set_place("barrier");
  const std::vector<int> both{0, 1};
  CHECK(meeting.time_is_over(both, 9) ==
        "rank 0: rank 1 has not come to barrier, within 9 s; no answer from process 7 on node");
}

TEST_CASE("meeting: who works alone is waited for, as long as that may last") {
  const std::vector<int> both{0, 1};
  std::mutex mutex;
  std::vector<std::string> told, answers;
  MeetingPort port(kHere, 0);
  const int number = port.port();
  MeetingOptions mine = options();
  mine.tell_work = [&](const std::string& sentence) {
    const std::lock_guard lock(mutex);
    told.push_back(sentence);
  };
  std::thread worker([&] {
    Meeting meeting(attendee(0, 2), std::move(port), mine);
    meeting.begin_work("writing a checkpoint", 3);
    while (!meeting.has_failed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  });
  Meeting meeting(attendee(1, 2), kHere, number, options());
  meeting.set_place("barrier");
  while (answers.size() < 100 && (answers.empty() || answers.back().empty())) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    answers.push_back(meeting.time_is_over(both, 0.3));
  }
  worker.join();
  CHECK(answers.size() >= 3);  // 0.9 s
  CHECK_THAT(answers.back(), ContainsSubstring("rank 1: rank 0 has not come to barrier, within 0.3 s; rank 0 is "
                                               "writing a checkpoint since 1 s"));
  REQUIRE(told.size() == 1);
  CHECK_THAT(told[0], ContainsSubstring("rank 0 is writing a checkpoint since 0 s: the others wait for it"));
}

TEST_CASE("meeting: a process that does not end of itself is ended, the teller with the sentence") {
  std::mutex mutex;
  std::vector<std::optional<std::string>> resorts(2);
  MeetingPort port(kHere, 0);
  const int number = port.port();
  const auto take_part = [&](int rank) {
    MeetingOptions mine = options();
    mine.grace_seconds = 0.2;
    mine.last_resort = [&, rank](const std::string& sentence) {
      const std::lock_guard lock(mutex);
      resorts[static_cast<std::size_t>(rank)] = sentence;
    };
    std::optional<Meeting> meeting;
    if (rank == 0)
      meeting.emplace(attendee(0, 2), std::move(port), mine);
    else
      meeting.emplace(attendee(1, 2), kHere, number, mine);
    if (rank == 1) meeting->fail("no memory");
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
        kMostMessageBytes + 4);
  const auto refused = [](const std::string& bytes) {
    MessageStream damaged;
    damaged.add(bytes);
    CHECK_THROWS_AS(damaged.next(), Error);
  };
  refused(std::string("\xff\xff\xff\xff", 4));
  refused(std::string("\0\0\0\0", 4));
  refused(std::string("\5\0\0\0\1\7\0\0\0", 9));
  refused(std::string("\3\0\0\0\1\0\0", 7));
}

TEST_CASE("meeting: strangers are dropped, and the ranks meet all the same") {
  MeetingPort port(kHere, 0);
  const int number = port.port();
  std::thread rank_0([&] { Meeting(attendee(0, 2), std::move(port), options()).leave(); });
  const Stranger silent(number), other_job(number), web(number), oversized(number), damaged(number);
  other_job.say(preamble("another job") + hello(1, 2));
  web.say("GET / HTTP/1.0\r\n\r\n");
  oversized.say(preamble("job") + std::string("\xff\xff\xff\x7f", 4));
  damaged.say(preamble("job") + to_wire({.type = 1, .texts = {"one", "2"}}));
  CHECK(other_job.is_dropped());
  CHECK(web.is_dropped());
  CHECK(oversized.is_dropped());
  CHECK(damaged.is_dropped());
  Meeting(attendee(1, 2), kHere, number, options()).leave();
  rank_0.join();
}

TEST_CASE("meeting: random messages at the port do no harm") {
  std::mt19937 random(7);
  const int messages = messages_to_try();
  SECTION("cut out of a stream") {
    for (int i = 0; i < messages; ++i) {
      MessageStream stream;
      try {
        for (int more = 0; more < 3; ++more) stream.add(random_bytes(random));
        while (stream.next()) continue;
      } catch (const Error&) {
      }
    }
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
      std::string bytes = random() % 8 == 0 ? "" : preamble(random() % 8 == 0 ? "guess" : "job");
      for (int more = 0; more < 4; ++more) {
        std::string next = random_bytes(random);
        if (next.size() > 4 && next[4] == 1) next[4] = 2;  // who says the right thing with the job's key is a rank
        bytes += next;
      }
      stranger->say(bytes);
    }
    Meeting(attendee(1, 2), kHere, number, options(10 * kLong)).leave();
    rank_0.join();
  }
  SECTION("of a rank that has gone mad") {
    for (int i = 0; i < messages; i += 100) {
      MeetingPort port(kHere, 0);
      const Stranger mad(port.port());
      mad.say(preamble("job") + hello(1, 2));
      Attendee me = attendee(0, 2);
      Meeting meeting(me, std::move(port), options());
      for (int more = 0; more < 100; ++more) mad.say(random_bytes(random));
      CHECK_THAT(meeting.fail("enough"), ContainsSubstring("rank "));
    }
  }
}
