// The harness's own part in what kernel tests find: kernels that go beyond a test's buffer meet memory poisoned for
// AddressSanitizer, and a case runs with all kernels that the CPU has for it.
#include <string>
#include <vector>

#include "kernels/cpu/isa.h"
#include "tests/harness/kernel_testing.h"

#if defined(ISOBAR_SANITIZED_ADDRESS)
#include <sanitizer/asan_interface.h>
#endif

namespace isobar::testing {

#if defined(ISOBAR_SANITIZED_ADDRESS)
TEST_CASE("buffers of kernel tests lie between poisoned memory, while they are used") {
  Workbench bench({.kind = DeviceKind::cpu});
  constexpr std::int64_t kCount = 3, kShift = 2;  // eight bytes: what is poisoned ends at multiples of them
  for (const Pointer buffer : {bench.output(kCount, DType::fp32), bench.input(constant_values(kCount, DType::fp32, 1)),
                               bench.output(kCount, DType::fp32, kShift), bench.workspace(kCount * sizeof(float))}) {
    const auto* const first = static_cast<const std::byte*>(buffer.raw);
    CHECK(__asan_address_is_poisoned(first - 1) != 0);
    CHECK(__asan_address_is_poisoned(first) == 0);
    CHECK(__asan_address_is_poisoned(first + kCount * sizeof(float) - 1) == 0);
    CHECK(__asan_address_is_poisoned(first + kCount * sizeof(float)) != 0);
  }
  bench.finish();
}

#endif

namespace {

// What a case on the CPU ran with, each a word: "avx2", "amx".
std::vector<std::string> kernels_of_a_case(DType dtype, DeviceOptions options) {
  std::vector<std::string> used;
  on_devices(
      cpu_only(), {dtype},
      [&](Workbench&) {
        const std::string kernels = cpu::name_of_level();
        if (used.empty() || used.back() != kernels) used.push_back(kernels);
      },
      options);
  return used;
}

}  // namespace

TEST_CASE("a case on the CPU runs with every instruction set that it has, and those for bf16 where they count") {
  if (wanted_devices(cpu_only()).empty()) {
    CHECK(kernels_of_a_case(DType::bf16, {}).empty());
    return;
  }
  const cpu::Isa best = cpu::best_isa();
  const cpu::Bf16Products products = cpu::bf16_products();
#if defined(ISOBAR_SANITIZED_THREAD) || defined(ISOBAR_SANITIZED_ADDRESS)
  const std::vector<std::string> want{cpu::name_of_level()}, want_of_bf16 = want;
#else
  std::vector<std::string> want;
  for (const cpu::Isa isa : {cpu::Isa::avx512, cpu::Isa::avx2, cpu::Isa::generic})
    if (isa <= best) want.push_back(cpu::name_of(isa));
  std::vector<std::string> want_of_bf16 = want;
  if (best == cpu::Isa::avx512) {
    const bool has_tiles = products == cpu::Bf16Products::tiles;
    want_of_bf16.insert(want_of_bf16.begin(), {has_tiles ? "amx" : "emulated amx",
                                               cpu::has_pairs() ? "avx512_bf16" : "emulated avx512_bf16"});
  }
#endif
  CHECK(kernels_of_a_case(DType::bf16, {}) == want);
  CHECK(kernels_of_a_case(DType::bf16, {.multiplies = true}) == want_of_bf16);
  CHECK(kernels_of_a_case(DType::fp32, {.multiplies = true}) == want);
  CHECK(cpu::best_isa() == best);  // as it was
  CHECK(cpu::bf16_products() == products);
}

TEST_CASE("kernels that the CPU does not have are refused") {
  CHECK_THROWS_WITH(cpu::use(cpu::Isa::avx2, cpu::Bf16Products::emulated_tiles),
                    "emulated amx goes with avx512, not with avx2");
  CHECK_THROWS_WITH(cpu::use(cpu::Isa::generic, cpu::Bf16Products::pairs),
                    "avx512_bf16 goes with avx512, not with generic");
}

}  // namespace isobar::testing
