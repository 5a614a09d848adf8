// Signals that ask a run to stop: they are noted, and what they meet goes on.
#include "apps/train/signals.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "tests/harness/testing.h"

using namespace isobar;

namespace {

// In a child process: a signal that was noted stays so. Its status is 0 where a read() that signals came to got the
// byte that it waited for.
[[noreturn]] void read_a_byte(int from, int ready) {
  install_stop_handlers();
  char byte = 0;
  if (::write(ready, &byte, 1) != 1) ::_exit(1);
  const bool has_read = ::read(from, &byte, 1) == 1;
  ::_exit(!has_read ? 2 : stop_requested() && stop_signal_name() == "SIGUSR1" ? 0 : 3);
}

// What a child process is left with to which these signals come, one after another: "ended by 2" by one of them, or the
// name of the signal that is noted at the end.
std::string after_signals(const std::vector<int>& signals) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    for (const int signal : {SIGTERM, SIGUSR1, SIGINT}) std::signal(signal, SIG_DFL);
    install_stop_handlers();
    for (const int signal : signals) ::raise(signal);
    const std::string noted = stop_requested() ? stop_signal_name() : "none";
    ::_exit(::write(ends[1], noted.data(), noted.size()) > 0 ? 0 : 1);
  }
  ::close(ends[1]);
  char noted[20] = "";
  const ssize_t count = ::read(ends[0], noted, sizeof noted - 1);
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  if (WIFSIGNALED(status)) return "ended by " + std::to_string(WTERMSIG(status));
  CHECK((WEXITSTATUS(status) == 0 && count > 0));
  return noted;
}

}  // namespace

TEST_CASE("signals: one that asks to stop interrupts no system call") {
  int bytes[2], ready[2];
  REQUIRE((::pipe(bytes) == 0 && ::pipe(ready) == 0));
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) read_a_byte(bytes[0], ready[1]);
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  for (int i = 0; i < 50; ++i) {  // some of them when it waits
    ::kill(child, SIGUSR1);
    ::usleep(2000);
  }
  CHECK(::write(bytes[1], &byte, 1) == 1);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  for (const int end : {bytes[0], bytes[1], ready[0], ready[1]}) ::close(end);
}

// A scheduler may send its signal again and again; who presses Ctrl-C twice does not want to wait.
TEST_CASE("signals: a second Ctrl-C ends the process at once, a second one of the others does not") {
  const std::string ended = "ended by " + std::to_string(SIGINT);
  CHECK(after_signals({}) == "none");
  CHECK(after_signals({SIGINT}) == "SIGINT");
  CHECK(after_signals({SIGINT, SIGINT}) == ended);
  for (const int other : {SIGTERM, SIGUSR1}) {
    const std::string name = other == SIGTERM ? "SIGTERM" : "SIGUSR1";
    CHECK(after_signals({other}) == name);
    CHECK(after_signals({other, other, other}) == name);
    CHECK(after_signals({other, SIGINT}) == "SIGINT");
    CHECK(after_signals({SIGINT, other}) == name);
    CHECK(after_signals({SIGINT, other, SIGINT}) == ended);
    CHECK(after_signals({other, SIGINT, SIGINT}) == ended);
  }
}
