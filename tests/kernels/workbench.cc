// The harness's own part in what kernel tests find: kernels that go beyond a test's buffer meet memory poisoned for
// AddressSanitizer, and a case runs with all kernels that the CPU has for it.
#include <omp.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/cases/column_sum.h"
#include "kernels/cases/elementwise.h"
#include "kernels/cases/layernorm.h"
#include "kernels/cpu/isa.h"
#include "tests/harness/hidden_cases.h"
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

namespace {

constexpr std::int64_t kElements = 1000;

// 1000 numbers between 1 and 2, and a yardstick that is off by error(i) at the i-th.
template <class Error>
Expected expected_with(const Error& error) {
  Expected expected{.computed_in = DType::fp32, .exact = {}, .yardsticks = {{}}};
  for (std::int64_t i = 0; i < kElements; ++i) {
    const double exact = 1 + static_cast<double>(i) / kElements;
    expected.exact.push_back(exact);
    expected.yardsticks[0].push_back(exact + error(i));
  }
  return expected;
}

// What is said of a kernel that is off by that much everywhere.
bool is_accepted(const Expected& expected, double error, Norm norm = Norm::tensor) {
  std::vector<double> values;
  for (const long double exact : expected.exact) values.push_back(static_cast<double>(exact) + error);
  return compare("y", values_of(values, DType::fp32), expected, norm).ok;
}

}  // namespace

TEST_CASE("the 2x rule accepts one and a half times the yardstick's error, and not three times") {
  constexpr double kError = 1e-4, kUlp = 0x1p-23;
  const Expected even = expected_with([](std::int64_t) { return kError; });
  CHECK(is_accepted(even, 1.5 * kError));
  CHECK_FALSE(is_accepted(even, 3 * kError));
  CHECK_FALSE(is_accepted(even, -3 * kError));
  // The root mean square alone: one element of the yardstick is far off, and all of the kernel are a little.
  const Expected one_far = expected_with([](std::int64_t i) { return i == 7 ? 10 * kError : kError; });
  CHECK(is_accepted(one_far, 1.5 * kError));
  CHECK_FALSE(is_accepted(one_far, 3 * kError));
  const Expected ulps = expected_with([](std::int64_t) { return 4 * kUlp; });
  CHECK(is_accepted(ulps, 6 * kUlp, Norm::ulps));
  CHECK_FALSE(is_accepted(ulps, 12 * kUlp, Norm::ulps));
  // Where few elements dominate the yardstick's error, whose size then varies: four times.
  const Expected few = expected_with([](std::int64_t i) { return i < 3 ? kError : 0; });
  std::vector<double> values;
  for (std::int64_t i = 0; i < kElements; ++i)
    values.push_back(static_cast<double>(few.exact[static_cast<std::size_t>(i)]) + (i == 1 ? 3.5 * kError : 0));
  CHECK(compare("y", values_of(values, DType::fp32), few).ok);
  values[1] += 1.5 * kError;
  CHECK_FALSE(compare("y", values_of(values, DType::fp32), few).ok);
}

// Kernels that do what none may, each in a case that must fail.

TEST_CASE("a kernel that writes to its input", "[.must fail]") {
  Workbench bench({.kind = DeviceKind::cpu});
  float* const x = bench.input(constant_values(4, DType::fp32, 1));
  x[2] = 3;
  bench.finish();
}

TEST_CASE("a kernel that writes beyond its output", "[.must fail]") {
  Workbench bench({.kind = DeviceKind::cpu});
  volatile float* const y = static_cast<float*>(bench.output(4, DType::fp32));
  y[4] = 3;
  bench.finish();
}

TEST_CASE("a kernel that writes before its output", "[.must fail]") {
  Workbench bench({.kind = DeviceKind::cpu});
  volatile float* const y = static_cast<float*>(bench.output(4, DType::fp32));
  y[-1] = 3;
  bench.finish();
}

TEST_CASE("a kernel whose bits depend on the threads", "[.must fail]") {
  on_devices(cpu_only(), {DType::fp32}, [](Workbench& bench) {
    float* const y = bench.output(1, DType::fp32);
    y[0] = static_cast<float>(omp_get_max_threads());
  });
}

TEST_CASE("a kernel that leaves its output unwritten", "[.must fail]") {
  Workbench bench({.kind = DeviceKind::cpu});
  bench.check_equal("y", bench.output(4, DType::fp32), constant_values(4, DType::fp32, 0));
}

TEST_CASE("a kernel that does what it may", "[.must fail]") {
  on_devices(cpu_only(), {DType::fp32}, [](Workbench& bench) {
    const float* const x = bench.input(constant_values(1, DType::fp32, 2));
    float* const y = bench.output(1, DType::fp32);
    y[0] = x[0];
    bench.check_equal("y", Pointer{y}, constant_values(1, DType::fp32, 2));
  });
}

TEST_CASE("kernel tests fail where a kernel does what none may") {
  CHECK(status_of_cases("a kernel that does what it may") == 0);
  CHECK(fails("a kernel that writes to its input"));
  CHECK(fails("a kernel that leaves its output unwritten"));
  // AddressSanitizer ends the process itself.
  for (const char* beyond : {"a kernel that writes beyond its output", "a kernel that writes before its output"})
    CHECK(status_of_cases(beyond) != 0);
#if !defined(ISOBAR_SANITIZED_THREAD)  // runs with one thread only
  if (!wanted_devices(cpu_only()).empty()) CHECK(fails("a kernel whose bits depend on the threads"));
#endif
}

TEST_CASE("a test that gives a case's operands wrongly is told so") {
  Workbench bench({.kind = DeviceKind::cpu});
  const AddArgs sizes{.n = 3, .b_dtype = DType::bf16};
  const Values a = constant_values(3, DType::fp32, 1), b = constant_values(3, DType::bf16, 1);
  CHECK_NOTHROW(cases::add(sizes, bench.operands({{"a", a}, {"b", b}})));
  CHECK_THROWS_WITH(cases::add(sizes, bench.operands({{"a", a}})), "a test gives no b to a kernel that reads it");
  CHECK_THROWS_WITH(cases::add(sizes, bench.operands({{"a", a}, {"b", a}})),
                    "a test gives 3 elements of fp32 as b, whose case has 3 of bf16");
  CHECK_THROWS_WITH(cases::add(sizes, bench.operands({{"a", a}, {"b", constant_values(4, DType::bf16, 1)}})),
                    "a test gives 4 elements of bf16 as b, whose case has 3 of bf16");
  CHECK_THROWS_WITH(cases::add(sizes, bench.operands({{"a", a}, {"b", b}, {"c", b}})),
                    "a case is given c, and its kernel has no such operand");
}

TEST_CASE("operands that a kernel can do without are null in its case unless they are given") {
  Workbench bench({.kind = DeviceKind::cpu});
  const LayernormFwdArgs sizes{.rows = 1, .cols = 3};
  const Values x = constant_values(3, DType::fp32, 1);
  const auto with = [&](const Values* branch, bool sum) {
    return cases::layernorm_fwd(
        sizes, bench.operands({{"x", x}, {"branch", branch}, {"weight", x}, {"bias", x}, {"sum", sum}}));
  };
  CHECK(with(nullptr, false).branch == nullptr);
  CHECK(with(nullptr, false).sum == nullptr);
  const LayernormFwdArgs both = with(&x, true);
  bench.check_equal("branch", {const_cast<void*>(both.branch)}, x);
  CHECK(std::isnan(bench.read({both.sum})[0]));
  const Pointer over = bench.in_out(x);
  const LayernormFwdArgs in_place =
      cases::layernorm_fwd(sizes, bench.operands({{"x", over}, {"weight", x}, {"bias", x}, {"sum", over}}));
  CHECK(in_place.x == over.raw);
  CHECK(in_place.sum == over.raw);
}

TEST_CASE("a case's output starts as NaN, and where its kernel adds to it, with the values that are given") {
  Workbench bench({.kind = DeviceKind::cpu});
  const Values x = constant_values(3, DType::fp32, 1), before = constant_values(3, DType::fp32, 5);
  for (const Grad mode : {Grad::overwrite, Grad::accumulate}) {
    const ColumnSumArgs a =
        cases::column_sum({.rows = 1, .cols = 3, .mode = mode}, bench.operands({{"x", x}, {"out", before}}));
    bench.check_equal("out", {a.out}, mode == Grad::accumulate ? before : constant_values(3, DType::fp32, NAN));
  }
}

TEST_CASE("kernels that the CPU does not have are refused") {
  CHECK_THROWS_WITH(cpu::use(cpu::Isa::avx2, cpu::Bf16Products::emulated_tiles),
                    "emulated amx goes with avx512, not with avx2");
  CHECK_THROWS_WITH(cpu::use(cpu::Isa::generic, cpu::Bf16Products::pairs),
                    "avx512_bf16 goes with avx512, not with generic");
}

}  // namespace isobar::testing
