// One source, three instruction sets. Every kernels/*_cpu.cc with ISOBAR_CPU_KERNEL is compiled three times, for plain
// x86-64, for AVX2 and for AVX-512, each time in its own namespace (ISOBAR_ISA). The public function calls the best one
// that this machine supports. Products of bf16 have two more levels, AVX512_BF16 and AMX.
// ISOBAR_MAX_ISA=generic|avx2|avx512|avx512_bf16|amx lowers the level.
//
// Rules for such a file. All its code is in namespace isobar::cpu::ISOBAR_ISA (or an anonymous namespace inside it).
// Functions from the standard library must not be instantiated there unless they are always inlined: the linker keeps
// one copy of an inline function, and it could be the AVX-512 one. tools/check_isa_symbols.py finds violations.
#pragma once

#include <cstdint>

#include "kernels/common/stream.h"

namespace isobar::cpu {

enum class Isa { generic, avx2, avx512 };

// Of this machine, lowered by ISOBAR_MAX_ISA; decided once, unless a test calls use().
Isa best_isa();
const char* name_of(Isa);

// How AVX-512 multiplies bf16: widened to fp32; in pairs, with AVX512_BF16's vdpbf16ps (kernels/cpu/pairs.h), if that
// is faster or ISOBAR_MAX_ISA=avx512_bf16 is set; on the tile registers of AMX (kernels/cpu/amx.h). For tests,
// ISOBAR_EMULATE_AMX=1 or ISOBAR_EMULATE_AVX512_BF16=1 makes a machine with AVX-512 emulate these instructions, slowly.
enum class Bf16Products : std::uint8_t { widened, emulated_pairs, pairs, emulated_tiles, tiles };

// Decided at the same time as the instruction set. Throws if the machine cannot do what ISOBAR_EMULATE_* sets.
Bf16Products bf16_products();
const char* name_of(Bf16Products);  // "fp32", "avx512_bf16", "emulated amx" ...

constexpr bool is_emulated(Bf16Products products) {
  return products == Bf16Products::emulated_pairs || products == Bf16Products::emulated_tiles;
}
constexpr bool are_on_tiles(Bf16Products products) {
  return products >= Bf16Products::emulated_tiles;
}

// The level of both together, "generic" to "amx". Processes with the same level compute the same bits.
const char* name_of_level();

bool has_pairs();  // whether the CPU has AVX512_BF16

// For tests, while no kernel runs: sets the results of the functions above. Throws if the machine cannot run these
// kernels.
void use(Isa, Bf16Products);

}  // namespace isobar::cpu

// At the end of the file, once per kernel, outside all namespaces. The definition itself is
// `void name(const Arguments&)` in namespace isobar::cpu::ISOBAR_ISA.
#if defined(ISOBAR_ISA_IS_generic)
#define ISOBAR_CPU_KERNEL(name, Arguments)        \
  namespace isobar::cpu {                         \
  namespace avx2 {                                \
  void name(const Arguments&);                    \
  }                                               \
  namespace avx512 {                              \
  void name(const Arguments&);                    \
  }                                               \
  void name(const Arguments& arguments, Stream) { \
    switch (best_isa()) {                         \
      case Isa::avx512:                           \
        return avx512::name(arguments);           \
      case Isa::avx2:                             \
        return avx2::name(arguments);             \
      default:                                    \
        return generic::name(arguments);          \
    }                                             \
  }                                               \
  }
#else
#define ISOBAR_CPU_KERNEL(name, Arguments)
#endif
