#include "kernels/cpu/isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "kernels/common/check.h"

namespace isobar::cpu {

static Isa detect() {
  __builtin_cpu_init();
  Isa best = Isa::generic;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
    best = Isa::avx2;
  if (best == Isa::avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    best = Isa::avx512;
  if (const char* limit = std::getenv("ISOBAR_MAX_ISA")) {
    const std::string_view name = limit;
    const Isa most = name == "generic" ? Isa::generic : name == "avx2" ? Isa::avx2 : Isa::avx512;
    if (most < best) best = most;
  }
  return best;
}

Isa best_isa() {
  static const Isa isa = detect();
  return isa;
}

const char* name_of(Isa isa) {
  return isa == Isa::avx512 ? "avx512" : isa == Isa::avx2 ? "avx2" : "generic";
}

// The CPU has AMX for bf16, and the system saves its registers and lets this process use them.
static bool may_use_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kTiles = 1u << 24, kBf16 = 1u << 22;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kTiles) == 0 || (d & kBf16) == 0) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM: Linux 5.16 and later
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

static Amx detect_amx() {
  const char* emulate = std::getenv("ISOBAR_EMULATE_AMX");
  if (emulate != nullptr && std::string_view(emulate) == "1") {
    ISOBAR_CHECK(best_isa() == Isa::avx512, "ISOBAR_EMULATE_AMX needs a CPU with AVX-512");
    return Amx::emulated;
  }
  const bool limited = std::getenv("ISOBAR_MAX_ISA") != nullptr;
  return best_isa() == Isa::avx512 && !limited && may_use_amx() ? Amx::present : Amx::absent;
}

Amx amx() {
  static const Amx found = detect_amx();
  return found;
}

}  // namespace isobar::cpu
