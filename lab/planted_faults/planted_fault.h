// Included where a fault is planted (lab/planted_faults). isobar_fault(N): whether fault N is on; it notes that the
// place was reached.
// ISOBAR_FAULTS: the numbers that are on, `3,17`. ISOBAR_REACHED: a file of kFaults bytes, one a fault, 1 where it was
// asked for. The file has its size already, since a test may forbid its process to make a file longer (ulimit -f).
#pragma once
// A wrong statement may well be one that the compiler warns of; the build makes warnings errors.
#pragma GCC diagnostic warning "-Wparentheses"
#pragma GCC diagnostic warning "-Wsign-compare"
#pragma GCC diagnostic warning "-Wtype-limits"
#pragma GCC diagnostic warning "-Wreturn-type"
#pragma GCC diagnostic warning "-Wunused-variable"
#pragma GCC diagnostic warning "-Wunused-but-set-variable"
#pragma GCC diagnostic warning "-Wunused-parameter"
#pragma GCC diagnostic warning "-Wunused-function"
#pragma GCC diagnostic warning "-Wunused-value"
#pragma GCC diagnostic warning "-Wbool-operation"
#pragma GCC diagnostic warning "-Wbool-compare"
#pragma GCC diagnostic warning "-Wint-in-bool-context"
#pragma GCC diagnostic warning "-Wtautological-compare"
#pragma GCC diagnostic warning "-Wdangling-else"
#pragma GCC diagnostic warning "-Wmisleading-indentation"
#pragma GCC diagnostic warning "-Wmaybe-uninitialized"
#pragma GCC diagnostic warning "-Wuninitialized"
#pragma GCC diagnostic warning "-Wempty-body"
#pragma GCC diagnostic warning "-Wrestrict"
#pragma GCC diagnostic warning "-Warray-bounds"
#pragma GCC diagnostic warning "-Wstringop-overflow"
#pragma GCC diagnostic warning "-Wnonnull"
#pragma GCC diagnostic warning "-Wlogical-not-parentheses"
#pragma GCC diagnostic warning "-Wsequence-point"
#pragma GCC diagnostic warning "-Wimplicit-fallthrough"
#pragma GCC diagnostic warning "-Wclobbered"
#pragma GCC diagnostic warning "-Wmissing-field-initializers"
#pragma GCC diagnostic warning "-Wdiv-by-zero"
#pragma GCC diagnostic warning "-Woverflow"
#pragma GCC diagnostic warning "-Wignored-qualifiers"
#pragma GCC diagnostic warning "-Wpessimizing-move"
#pragma GCC diagnostic warning "-Wredundant-move"
#pragma GCC diagnostic warning "-Wrange-loop-construct"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

namespace isobar_planted {
constexpr int kFaults = 65536;
struct State {
  bool on[kFaults] = {};
  volatile unsigned char* reached = nullptr;
  State() {
    for (const char* p = std::getenv("ISOBAR_FAULTS"); p != nullptr && *p != '\0';) {
      char* end = nullptr;
      const long number = std::strtol(p, &end, 10);
      if (end == p || number < 0 || number >= kFaults) std::abort();
      on[number] = true;
      p = *end == ',' ? end + 1 : end;
    }
    const char* path = std::getenv("ISOBAR_REACHED");
    if (path == nullptr) return;
    const int file = ::open(path, O_RDWR | O_CLOEXEC);
    struct stat status = {};
    if (file < 0 || ::fstat(file, &status) != 0 || status.st_size != kFaults) std::abort();
    void* bytes = ::mmap(nullptr, kFaults, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (bytes == MAP_FAILED) std::abort();
    reached = static_cast<volatile unsigned char*>(bytes);
    ::close(file);
  }
};
inline State& state() {
  static State* all = new State;  // for ever: threads may ask while the program ends
  return *all;
}
}  // namespace isobar_planted

inline bool isobar_fault(int number) {
  isobar_planted::State& all = isobar_planted::state();
  if (all.reached != nullptr) all.reached[number] = 1;
  return all.on[number];
}
