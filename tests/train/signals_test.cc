// Signals that ask a run to stop: they are noted, and what they meet goes on.
#include "apps/train/signals.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

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
