// OpenMP threads that wait for work or for each other spin for a fraction of a millisecond, and then sleep.
//
// libgomp's default is 300,000 spins, which takes milliseconds. If something else computes on the machine, a spinning
// thread takes the core that the thread it waits for needs: training was ten times slower than necessary. But an idle
// machine needs a short spin: the time between two parallel regions of a small model, or between two threads in a
// region, is often some hundreds of microseconds, and waking a thread on a virtual machine costs tens of them. On two
// cores `tiny` was 14 to 20 % slower with 1000 pauses, and 3 to 6 % slower without any; from 20,000 on it was as fast
// as with 300,000.
//
// If other processes compute, every spin takes a core from one of them, so threads sleep at once. This is decided once,
// at the start: the machine is busy if, in several looks in a row, more threads want to run than there are CPUs.
//
// libgomp reads the count, GOMP_SPINCOUNT, from the environment before main and before every constructor of the
// program, and has no call for it. So the program starts itself again with the variable set, in the same process,
// before any library is initialised. It does not restart if the user has set how threads wait, if its own file cannot
// be found or started, or under a debugger or Valgrind, which would follow the wrong program. Builds with sanitizers
// leave it out.
#include "kernels/cpu/brief_spin.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace isobar::cpu {

bool is_too_busy_to_spin(const char* loadavg, long threads, long cpus) {
  const char* slash = std::strchr(loadavg, '/');  // "0.52 0.58 0.59 3/602 29797": 3 of 602 threads want to run
  if (slash == nullptr) return false;
  const char* running = slash;
  while (running > loadavg && running[-1] != ' ') --running;
  return std::atol(running) - 1 + threads > cpus;
}

}  // namespace isobar::cpu

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
namespace {

// 0.4 ms on a Sapphire Rapids CPU.
char brief_spin[] = "GOMP_SPINCOUNT=20000";
char no_spin[] = "GOMP_SPINCOUNT=0";

// The value of a variable in an environment; null if it is not set. getenv does not work yet.
const char* value_of(const char* name, char** environment) {
  const std::size_t length = std::strlen(name);
  for (; *environment != nullptr; ++environment)
    if (std::strncmp(*environment, name, length) == 0 && (*environment)[length] == '=')
      return *environment + length + 1;
  return nullptr;
}

bool user_decides(char** environment) {
  return value_of("GOMP_SPINCOUNT", environment) != nullptr || value_of("OMP_WAIT_POLICY", environment) != nullptr;
}

// The beginning of a file of /proc; empty if it cannot be read.
template <std::size_t kSize>
const char* read_text(const char* path, char (&text)[kSize]) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t size = file < 0 ? -1 : read(file, text, kSize - 1);
  if (file >= 0) close(file);
  text[size < 0 ? 0 : size] = '\0';
  return text;
}

// With ptrace, as debuggers do.
bool is_traced() {
  char text[4096];
  const char* status = read_text("/proc/self/status", text);
  const char* tracer = std::strstr(status, "TracerPid:");
  return tracer != nullptr && std::atoi(tracer + std::strlen("TracerPid:")) != 0;
}

bool is_under_valgrind(char** environment) {
  const char* preloaded = value_of("LD_PRELOAD", environment);
  return preloaded != nullptr && std::strstr(preloaded, "vgpreload") != nullptr;
}

// The number of threads that OpenMP will start.
long thread_count(char** environment) {
  const char* wanted = value_of("OMP_NUM_THREADS", environment);
  if (wanted != nullptr && std::atol(wanted) > 0) return std::atol(wanted);
  cpu_set_t mine;
  return sched_getaffinity(0, sizeof mine, &mine) == 0 ? CPU_COUNT(&mine) : 1;
}

// A process that runs only briefly is not seen in every look.
bool machine_is_busy(char** environment) {
  const long threads = thread_count(environment), cpus = sysconf(_SC_NPROCESSORS_ONLN);
  constexpr int kLooks = 5;
  char text[256];
  for (int look = 0; look < kLooks; ++look) {
    if (!isobar::cpu::is_too_busy_to_spin(read_text("/proc/loadavg", text), threads, cpus)) return false;
    const timespec pause = {0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
  return true;
}

void start_again(int, char** arguments, char** environment) {
  if (user_decides(environment) || is_under_valgrind(environment) || is_traced()) return;
  char program[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length < 0) return;
  program[length] = '\0';
  std::size_t count = 0;
  while (environment[count] != nullptr) ++count;
  char** extended = static_cast<char**>(std::malloc((count + 2) * sizeof(char*)));
  if (extended == nullptr) return;
  std::memcpy(extended, environment, count * sizeof(char*));
  extended[count] = machine_is_busy(environment) ? no_spin : brief_spin;
  extended[count + 1] = nullptr;
  execve(program, arguments, extended);  // returns only if it fails
  std::free(extended);
}

}  // namespace

// The loader calls the functions of this section before it initialises any library. The name makes the linker add this
// file to every program (kernels/CMakeLists.txt).
extern "C" {
__attribute__((section(".preinit_array"), used)) void (*isobar_brief_spin)(int, char**, char**) = start_again;
}

#else
extern "C" {
char isobar_brief_spin = 0;
}
#endif
