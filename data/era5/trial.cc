#include "data/era5/trial.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <new>

namespace isobar {
namespace {

constexpr rlim_t kSeconds = 10;
constexpr rlim_t kMoreBytes = rlim_t{2} << 30;
constexpr int kOutOfBounds = 3;  // exit status: the task came back, but asked for more than it was given

// The address space of this process; 0 where the system does not tell.
rlim_t bytes_held() {
  unsigned long pages = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "re")) {
    if (std::fscanf(file, "%lu", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

void limit(int resource, rlim_t most) {
  rlimit value{};
  ::getrlimit(resource, &value);
  if (most < value.rlim_max) value.rlim_max = most;
  if (most < value.rlim_cur) value.rlim_cur = most;
  ::setrlimit(resource, &value);
}

[[noreturn]] void run_as_child(const std::function<bool()>& task, rlim_t held) {
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGXCPU}) std::signal(signal, SIG_DFL);
  if (const int nowhere = ::open("/dev/null", O_RDWR); nowhere >= 0) {
    ::dup2(nowhere, STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
  }
  std::set_new_handler(nullptr);  // lack of memory is thrown here, whatever the program does about it
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

}  // namespace

std::optional<std::string> trial(const std::function<bool()>& task) {
  const rlim_t held = bytes_held();
  const pid_t child = ::fork();
  if (child < 0) return std::nullopt;
  if (child == 0) run_as_child(task, held);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return std::nullopt;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kOutOfBounds) return "asks for too much memory";
  if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL)) return "does not end";
  return "crashes";
}

}  // namespace isobar
