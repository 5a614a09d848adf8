// One source, three instruction sets. Every kernels/*_cpu.cc that says ISOBAR_CPU_KERNEL is compiled three times, for
// plain x86-64, for AVX2 and for AVX-512, each time into its own namespace (ISOBAR_ISA); the public function picks the
// best that this machine has. ISOBAR_MAX_ISA=generic|avx2|avx512 lowers it; AMX is off then.
//
// Rules for such a file: everything lives in namespace isobar::cpu::ISOBAR_ISA (or an anonymous namespace inside it),
// and nothing from the standard library that is not always inlined may be instantiated there: the linker keeps one copy
// of an inline function, and it could be the AVX-512 one. tools/check_isa_symbols.py looks for offenders.
#pragma once

#include "kernels/common/device.h"

namespace isobar::cpu {

enum class Isa { generic, avx2, avx512 };

Isa best_isa();  // of this machine, lowered by ISOBAR_MAX_ISA; decided once, unless a test calls use()
const char* name_of(Isa);

// The tile registers of AMX for products of bf16 (kernels/cpu/amx.h). ISOBAR_EMULATE_AMX=1 makes a machine with
// AVX-512 compute bf16 as if it had them: slowly, for tests.
enum class Amx { absent, emulated, present };

Amx amx();  // decided as the instruction set is; throws where ISOBAR_EMULATE_AMX asks for what the machine cannot do

// For tests, while no kernel runs: what the two above answer from now on. Throws where the machine has no such kernels.
void use(Isa, Amx);

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
