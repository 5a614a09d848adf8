#include "data/files/trial.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <new>
#include <thread>

namespace isobar {
namespace {

constexpr rlim_t kSeconds = 10;
constexpr rlim_t kMoreBytes = rlim_t{2} << 30;
constexpr int kOutOfBounds = 3;  // exit status: the task returned, but it failed or exceeded a limit
constexpr const char* kDoesNotComeBack = "does not come back";

// A lock of AddressSanitizer's allocator (GCC 12) that another thread holds at the fork stays locked in the child. The
// child then waits for ever, which says nothing about the task, so that another child has to.
#ifdef __SANITIZE_ADDRESS__
constexpr int kChildren = 4;
#else
constexpr int kChildren = 1;
#endif

// The size of this process's address space; 0 if it is unknown.
rlim_t bytes_held() {
  unsigned long pages = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "re")) {
    if (std::fscanf(file, "%lu", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

void limit(int resource, rlim_t max) {
  rlimit value{};
  ::getrlimit(resource, &value);
  if (max < value.rlim_max) value.rlim_max = max;
  if (max < value.rlim_cur) value.rlim_cur = max;
  ::setrlimit(resource, &value);
}

[[noreturn]] void run_as_child(const std::function<bool()>& task, rlim_t held) {
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGXCPU}) std::signal(signal, SIG_DFL);
  if (const int nowhere = ::open("/dev/null", O_RDWR); nowhere >= 0) {
    ::dup2(nowhere, STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
  }
  // Allocation failure must throw in the child, whatever handler the program has installed
  std::set_new_handler(nullptr);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_CPU, kSeconds);
  if (held > 0) limit(RLIMIT_AS, held + kMoreBytes);
  bool within_bounds = false;
  try {
    within_bounds = task();
  } catch (...) {
  }
  ::_exit(within_bounds ? 0 : kOutOfBounds);
}

// The exit status of a child; none if it has not ended within `seconds`.
std::optional<int> status_within(pid_t child, double seconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  auto pause = std::chrono::microseconds(100);
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) return status;
    if (ended < 0 && errno != EINTR) return 0;  // the child was already waited for elsewhere
    if (Clock::now() > end) return std::nullopt;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::microseconds(10000));
  }
}

std::optional<std::string> outcome_of(pid_t child, double seconds) {
  constexpr double kSecondsToDie = 2;
  const std::optional<int> ended = status_within(child, seconds);
  if (!ended) {
    ::kill(child, SIGKILL);
    status_within(child, kSecondsToDie);  // a process that waits for a disk cannot be killed, so this wait is bounded
    return kDoesNotComeBack;
  }
  const int status = *ended;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kOutOfBounds) return "asks for too much memory";
  if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL)) return "does not end";
  return "crashes";
}

}  // namespace

std::optional<std::string> trial(const std::function<bool()>& task, double seconds) {
  const rlim_t held = bytes_held();
  std::optional<std::string> outcome = kDoesNotComeBack;
  for (int children = 0; children < kChildren && outcome == kDoesNotComeBack; ++children) {
    const pid_t child = ::fork();
    if (child < 0) return std::nullopt;
    if (child == 0) run_as_child(task, held);
    outcome = outcome_of(child, seconds / kChildren);
  }
  return outcome;
}

std::optional<std::string> trial(const std::vector<std::string>& command, double seconds) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  if (::posix_spawn(&child, arguments[0], nullptr, nullptr, arguments.data(), environ) != 0) return std::nullopt;
  return outcome_of(child, seconds);
}

void run_trial(const std::function<bool()>& task) {
  run_as_child(task, bytes_held());
}

}  // namespace isobar
