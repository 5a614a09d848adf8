// The harness's own part in what AddressSanitizer finds: kernels that go beyond a test's buffer meet poisoned memory.
#if defined(ISOBAR_SANITIZED_ADDRESS)
#include <sanitizer/asan_interface.h>

#include "tests/harness/kernel_testing.h"

namespace isobar::testing {

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

}  // namespace isobar::testing
#endif
