// A parser that is fed with any bytes. A file fuzz_NAME.cc has one target:
//
//   FUZZ_TARGET(NAME) {  // const std::uint8_t* data, std::size_t size
//     ...
//     return 0;
//   }
//
// In the preset fuzz it is the entry of a program of its own, which libFuzzer drives. Otherwise one program,
// fuzz_replay, has all targets: a program each would link the same libraries a dozen times.
#pragma once

#include <cstddef>
#include <cstdint>

namespace isobar::testing {

using FuzzTarget = int(const std::uint8_t* data, std::size_t size);

struct NamedFuzzTarget {
  NamedFuzzTarget(const char* name, FuzzTarget* target);  // adds itself to those that fuzz_replay knows
};

}  // namespace isobar::testing

#ifdef ISOBAR_FUZZ
#define FUZZ_TARGET(name) extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
#else
#define FUZZ_TARGET(name)                                                         \
  static isobar::testing::FuzzTarget fuzz_##name;                                 \
  static const isobar::testing::NamedFuzzTarget named_##name(#name, fuzz_##name); \
  static int fuzz_##name(const std::uint8_t* data, std::size_t size)
#endif
