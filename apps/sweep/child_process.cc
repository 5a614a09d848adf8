#include "apps/sweep/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>
#include <utility>

#include "engine/files/descriptor.h"
#include "engine/files/system_error.h"
#include "kernels/common/check.h"

namespace isobar {

namespace {

constexpr std::array kStopSignals{SIGTERM, SIGINT, SIGUSR1};
constexpr int kCannotStart = 127;

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> environment_with(const std::vector<std::string>& own) {
  const auto is_replaced = [&](std::string_view entry) {
    const std::string_view name = entry.substr(0, entry.find('=') + 1);
    for (const std::string& other : own)
      if (other.starts_with(name)) return true;
    return false;
  };
  std::vector<std::string> all = own;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!is_replaced(*entry)) all.emplace_back(*entry);
  return all;
}

Descriptor opened(const char* file, int flags) {
  Descriptor descriptor(::open(file, flags | O_CLOEXEC, 0666));
  if (!descriptor) fail_with_errno(file, "opened");
  return descriptor;
}

// Stop signals wait while this object lives.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t stop;
    sigemptyset(&stop);
    for (const int signal : kStopSignals) sigaddset(&stop, signal);
    sigprocmask(SIG_BLOCK, &stop, &before_);
  }
  ~SignalsBlocked() { restore(); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  void restore() const { sigprocmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// In the child, between fork() and execve(): only calls that are safe there.
[[noreturn]] void become(char* const* command, char* const* environment, int input, int log, int inherited,
                         pid_t parent, const SignalsBlocked& blocked) {
  for (const int signal : kStopSignals) std::signal(signal, SIG_DFL);  // the parent's handler would swallow one
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(kCannotStart);  // it has ended before that call
  if (inherited >= 0) ::fcntl(inherited, F_SETFD, 0);
  const bool is_ready =
      ::dup2(input, STDIN_FILENO) >= 0 && ::dup2(log, STDOUT_FILENO) >= 0 && ::dup2(log, STDERR_FILENO) >= 0;
  blocked.restore();
  if (is_ready) ::execve(command[0], command, environment);
  ::_exit(kCannotStart);
}

}  // namespace

ChildProcess::ChildProcess(const Setup& setup) {
  const std::vector<std::string> environment = environment_with(setup.environment);
  const std::vector<char*> command = pointers_to(setup.command), variables = pointers_to(environment);
  ISOBAR_CHECK(::access(command[0], X_OK) == 0, command[0], ": cannot be run: ", std::strerror(errno));
  const Descriptor input = opened("/dev/null", O_RDONLY);
  const Descriptor log = opened(setup.log.c_str(), O_WRONLY | O_CREAT | O_APPEND);
  const pid_t parent = ::getpid();
  const SignalsBlocked blocked;
  id_ = ::fork();
  if (id_ == 0) become(command.data(), variables.data(), input.get(), log.get(), setup.inherited, parent, blocked);
  ISOBAR_CHECK(id_ > 0, "a process cannot be started: ", std::strerror(errno));
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : id_(std::exchange(other.id_, -1)), is_stopped_(other.is_stopped_), status_(other.status_) {}

ChildProcess::~ChildProcess() {
  if (id_ < 0 || status_) return;
  stop();
  int status = 0;
  while (::waitpid(id_, &status, 0) < 0 && errno == EINTR) {
  }
}

std::optional<int> ChildProcess::ended() {
  int status = 0;
  if (!status_ && ::waitpid(id_, &status, WNOHANG) == id_) status_ = status;
  return status_;
}

void ChildProcess::stop() {
  if (!status_ && !std::exchange(is_stopped_, true)) ::kill(id_, SIGTERM);
}

}  // namespace isobar
