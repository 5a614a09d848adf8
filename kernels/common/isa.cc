#include "kernels/common/isa.h"

#include <cpuid.h>

#include <cstdlib>
#include <string_view>

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

bool has_amx_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  const bool tile = d & (1u << 24), bf16 = d & (1u << 22);
  return tile && bf16 && best_isa() == Isa::avx512;
}

}  // namespace isobar::cpu
