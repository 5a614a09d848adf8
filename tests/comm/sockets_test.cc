// Sockets, one function at a time: what is received and what its end means, what the system is asked to watch, which
// errors say that a host cannot be reached.
#include "comm/sockets.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <string>
#include <utility>

#include "kernels/common/check.h"
#include "tests/harness/kept.h"
#include "tests/harness/resource_limit.h"
#include "tests/harness/testing.h"

using namespace isobar;
using isobar::testing::ContainsSubstring;

namespace {

struct Pair {
  Socket one, other;
};

Pair connected() {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  return {Socket(ends[0]), Socket(ends[1])};
}

int option_of(int socket, int level, int option) {
  int value = -1;
  socklen_t size = sizeof value;
  getsockopt(socket, level, option, &value, &size);
  return value;
}

// Listens at a port of its own.
struct Listener {
  Listener() {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    socklen_t size = sizeof address;
    REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(socket.get(), 1) == 0);
    REQUIRE(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port = ntohs(address.sin_port);
  }
  Socket socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  int port = 0;
};

}  // namespace

TEST_CASE("sockets: three errors say that the other host cannot be reached") {
  for (const int error : {ETIMEDOUT, EHOSTUNREACH, ENETUNREACH}) CHECK(is_error_of_unreachable(error));
  for (const int error : {0, ECONNREFUSED, ECONNRESET, EPIPE, EAGAIN}) CHECK(!is_error_of_unreachable(error));
}

TEST_CASE("sockets: what has come is received in pieces, and the end is told from an empty moment") {
  Pair pair = connected();
  std::string bytes = "before";
  CHECK(receive_some(pair.one.get(), bytes) == Received::nothing);
  CHECK(bytes == "before");
  REQUIRE(send_all(pair.other.get(), "abcde"));
  CHECK(receive_some(pair.one.get(), bytes, 2) == Received::some);
  CHECK(bytes == "ab");
  CHECK(receive_some(pair.one.get(), bytes) == Received::some);
  CHECK(bytes == "cde");
  REQUIRE(send_all(pair.other.get(), std::string(5000, 'x')));
  CHECK(receive_some(pair.one.get(), bytes, 10000) == Received::some);
  CHECK(bytes == std::string(4096, 'x'));
  CHECK(receive_some(pair.one.get(), bytes, 10000) == Received::some);
  CHECK(bytes.size() == 904);
  REQUIRE(send_all(pair.other.get(), "z"));
  CHECK(receive_some(pair.one.get(), bytes) == Received::some);
  CHECK(bytes == "z");
  pair.other = Socket();
  errno = EPERM;
  CHECK(receive_some(pair.one.get(), bytes) == Received::end);
  CHECK(errno == 0);
  CHECK(!send_all(pair.one.get(), "x"));  // and no signal
}

TEST_CASE("sockets: who does not read is found when its buffer is full") {
  const Pair pair = connected();
  CHECK(send_all(pair.one.get(), ""));
  CHECK(!send_all(pair.one.get(), std::string(std::size_t{64} << 20, 'x')));
}

TEST_CASE("sockets: the system is asked to find a host that is gone, in the time given") {
  const Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  for (const auto& [asked, idle, between, milliseconds] :
       {std::array{60, 30, 10, 60000}, std::array{7, 3, 1, 7000}, std::array{0, 1, 1, 2000}}) {
    keep_alive(socket.get(), asked);
    CHECK(option_of(socket.get(), IPPROTO_TCP, TCP_NODELAY) != 0);
    CHECK(option_of(socket.get(), SOL_SOCKET, SO_KEEPALIVE) != 0);
    CHECK(option_of(socket.get(), IPPROTO_TCP, TCP_KEEPIDLE) == idle);
    CHECK(option_of(socket.get(), IPPROTO_TCP, TCP_KEEPINTVL) == between);
    CHECK(option_of(socket.get(), IPPROTO_TCP, TCP_KEEPCNT) == 3);
    CHECK(option_of(socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT) == milliseconds);
  }
}

TEST_CASE("sockets: a connection is made, or the system's reason is told") {
  const Addresses here = addresses_of("127.0.0.1");
  REQUIRE(here != nullptr);
  std::string why;
  CHECK(connect_to(nullptr, 1, why).get() < 0);
  CHECK(why == "the address cannot be resolved");
  int port = 0;
  {
    const Listener listener;
    port = listener.port;
    CHECK(connect_to(here.get(), port, why).get() >= 0);
  }
  CHECK(connect_to(here.get(), port, why).get() < 0);
  CHECK(why == "Connection refused");
  CHECK(addresses_of("") == nullptr);
  // Nobody accepts at this port, and its queue of two is full: the system leaves a third one without an answer.
  const Listener full;
  const Socket first = connect_to(here.get(), full.port, why), second = connect_to(here.get(), full.port, why);
  REQUIRE((first.get() >= 0 && second.get() >= 0));
  CHECK(connect_to(here.get(), full.port, why).get() < 0);
  CHECK(why == "Connection timed out");
}

TEST_CASE("sockets: a socket is closed with its object, once") {
  int descriptor = -1;
  {
    Pair pair = connected();
    descriptor = pair.one.get();
    Socket moved(std::move(pair.one));
    CHECK(pair.one.get() == -1);
    CHECK(moved.get() == descriptor);
    Socket assigned;
    assigned = std::move(moved);
    CHECK(assigned.get() == descriptor);
    CHECK(send_all(descriptor, "x"));
  }
  CHECK(!send_all(descriptor, "x"));
}

TEST_CASE("sockets: more open files than the host allows are refused by number") {
  rlimit limit = {};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  allow_open_files(1, "rank 0");
  rlimit kept = {};
  getrlimit(RLIMIT_NOFILE, &kept);
  CHECK(kept.rlim_cur >= limit.rlim_cur);
  CHECK(kept.rlim_max == limit.rlim_max);
  if (limit.rlim_max == RLIM_INFINITY || limit.rlim_max >= (rlim_t{1} << 30)) return;
  CHECK_THROWS_WITH(allow_open_files(1 << 30, "rank 0"),
                    ContainsSubstring("rank 0 needs 1073741824 open files, and ") &&
                        ContainsSubstring(concat(" allows ", limit.rlim_max, ": raise its hard limit")));
  setrlimit(RLIMIT_NOFILE, &limit);
}

TEST_CASE("sockets: the limit of open files is raised by what else a process opens, and never lowered") {
  rlimit limit = {};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  if (limit.rlim_max < 4096) ISOBAR_SKIP("the hard limit of open files is too low");
  const testing::ResourceLimit low(RLIMIT_NOFILE, 512);
  allow_open_files(1500, "the meeting of 1500 ranks");
  getrlimit(RLIMIT_NOFILE, &limit);
  CHECK(limit.rlim_cur == 1500 + 1024);
  allow_open_files(100, "the meeting of 100 ranks");
  getrlimit(RLIMIT_NOFILE, &limit);
  CHECK(limit.rlim_cur == 1500 + 1024);
}

TEST_CASE("sockets: the addresses of a name, and a connection that none of them takes, are given back") {
  const testing::Kept kept = testing::kept_by(200, [] {
    std::string why;
    CHECK_FALSE(connect_to(addresses_of("127.0.0.1").get(), 1, why));
    CHECK(why == "Connection refused");
  });
  CHECK(kept.bytes < 200 * 16);
  CHECK(kept.files == 0);
}
