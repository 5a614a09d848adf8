#include "kernels/cpu/isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "kernels/common/check.h"

namespace isobar::cpu {

namespace {

Isa best_of_machine() {
  __builtin_cpu_init();
  Isa best = Isa::generic;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
    best = Isa::avx2;
  if (best == Isa::avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    best = Isa::avx512;
  return best;
}

Isa detect() {
  const Isa best = best_of_machine();
  if (const char* limit = std::getenv("ISOBAR_MAX_ISA")) {
    const std::string_view name = limit;
    const Isa most = name == "generic" ? Isa::generic : name == "avx2" ? Isa::avx2 : Isa::avx512;
    return std::min(most, best);
  }
  return best;
}

// The CPU has AMX for bf16, and the system saves its registers and lets this process use them.
bool may_use_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kTiles = 1u << 24, kBf16 = 1u << 22;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kTiles) == 0 || (d & kBf16) == 0) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM: Linux 5.16 and later
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

Amx detect_amx() {
  const char* emulate = std::getenv("ISOBAR_EMULATE_AMX");
  if (emulate != nullptr && std::string_view(emulate) == "1") {
    ISOBAR_CHECK(best_isa() == Isa::avx512, "ISOBAR_EMULATE_AMX needs a CPU with AVX-512");
    return Amx::emulated;
  }
  const bool limited = std::getenv("ISOBAR_MAX_ISA") != nullptr;
  return best_isa() == Isa::avx512 && !limited && may_use_amx() ? Amx::present : Amx::absent;
}

Isa& isa_in_use() {
  static Isa isa = detect();
  return isa;
}

Amx& amx_in_use() {
  static Amx amx = detect_amx();
  return amx;
}

}  // namespace

Isa best_isa() {
  return isa_in_use();
}

const char* name_of(Isa isa) {
  return isa == Isa::avx512 ? "avx512" : isa == Isa::avx2 ? "avx2" : "generic";
}

Amx amx() {
  return amx_in_use();
}

void use(Isa isa, Amx amx) {
  ISOBAR_CHECK(isa <= best_of_machine(), "this CPU has no ", name_of(isa));
  ISOBAR_CHECK(amx == Amx::absent || isa == Isa::avx512, "AMX goes with avx512, not with ", name_of(isa));
  ISOBAR_CHECK(amx != Amx::present || may_use_amx(), "this CPU has no AMX");
  isa_in_use() = isa;
  amx_in_use() = amx;
}

}  // namespace isobar::cpu
