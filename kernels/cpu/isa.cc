#include "kernels/cpu/isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
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

// The levels in order, with the names that ISOBAR_MAX_ISA takes.
enum class Level : std::uint8_t { generic, avx2, avx512, avx512_bf16, amx };
constexpr const char* kLevelNames[] = {"generic", "avx2", "avx512", "avx512_bf16", "amx"};

// The max level that ISOBAR_MAX_ISA allows.
Level allowed_level() {
  const char* limit = std::getenv("ISOBAR_MAX_ISA");
  if (limit == nullptr || *limit == '\0') return Level::amx;
  const auto* const found = std::find(std::begin(kLevelNames), std::end(kLevelNames), std::string_view(limit));
  ISOBAR_CHECK(found != std::end(kLevelNames), "ISOBAR_MAX_ISA is \"", limit,
               "\"; it is one of generic, avx2, avx512, avx512_bf16 and amx");
  return static_cast<Level>(found - std::begin(kLevelNames));
}

Isa detect_isa() {
  const auto max_isa = static_cast<Isa>(std::min(allowed_level(), Level::avx512));
  return std::min(max_isa, best_of_machine());
}

// Whether the CPU has AMX for bf16, and the system saves its registers and lets this process use them.
bool may_use_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kTiles = 1u << 24, kBf16 = 1u << 22;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kTiles) == 0 || (d & kBf16) == 0) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM: Linux 5.16 and later
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Whether vdpbf16ps, two multiply-adds a lane, takes less time than two FMAs. On Intel's cores with AVX512_FP16 (since
// Sapphire Rapids) it takes twice the time of two FMAs; on AMD's Zen 4 half of it.
bool pairs_are_quick() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kFp16 = 1u << 23;
  const bool has_fp16 = __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kFp16) != 0;
  return has_pairs() && !(__builtin_cpu_is("intel") && has_fp16);
}

bool is_asked_for(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr || std::string_view(value) != "1") return false;
  ISOBAR_CHECK(best_isa() == Isa::avx512, variable, " needs a CPU with AVX-512");
  return true;
}

Bf16Products detect_bf16_products() {
  if (is_asked_for("ISOBAR_EMULATE_AMX")) return Bf16Products::emulated_tiles;
  if (is_asked_for("ISOBAR_EMULATE_AVX512_BF16")) return Bf16Products::emulated_pairs;
  const Level allowed = allowed_level();
  if (best_isa() != Isa::avx512) return Bf16Products::widened;
  if (allowed == Level::amx && may_use_amx()) return Bf16Products::tiles;
  const bool pairs = allowed == Level::avx512_bf16 ? has_pairs() : allowed == Level::amx && pairs_are_quick();
  return pairs ? Bf16Products::pairs : Bf16Products::widened;
}

Isa& isa_in_use() {
  static Isa isa = detect_isa();
  return isa;
}

Bf16Products& bf16_products_in_use() {
  static Bf16Products products = detect_bf16_products();
  return products;
}

}  // namespace

Isa best_isa() {
  return isa_in_use();
}

const char* name_of(Isa isa) {
  return kLevelNames[static_cast<int>(isa)];
}

Bf16Products bf16_products() {
  return bf16_products_in_use();
}

const char* name_of(Bf16Products products) {
  switch (products) {
    case Bf16Products::emulated_pairs:
      return "emulated avx512_bf16";
    case Bf16Products::pairs:
      return "avx512_bf16";
    case Bf16Products::emulated_tiles:
      return "emulated amx";
    case Bf16Products::tiles:
      return "amx";
    default:
      return "fp32";
  }
}

bool has_pairs() {
  return __builtin_cpu_supports("avx512bf16") != 0;
}

const char* name_of_level() {
  return bf16_products() == Bf16Products::widened ? name_of(best_isa()) : name_of(bf16_products());
}

void use(Isa isa, Bf16Products products) {
  const char* const name = name_of(products);
  ISOBAR_CHECK(isa <= best_of_machine(), "this CPU has no ", name_of(isa));
  ISOBAR_CHECK(products == Bf16Products::widened || isa == Isa::avx512, name, " goes with avx512, not with ",
               name_of(isa));
  ISOBAR_CHECK(products != Bf16Products::tiles || may_use_amx(), "this CPU has no AMX");
  ISOBAR_CHECK(products != Bf16Products::pairs || has_pairs(), "this CPU has no AVX512_BF16");
  isa_in_use() = isa;
  bf16_products_in_use() = products;
}

}  // namespace isobar::cpu
