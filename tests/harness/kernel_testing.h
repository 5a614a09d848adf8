// Shared by all kernel tests: inputs, guarded memory on every device, and the comparison by the 2x rule.
//
// A case looks like this:
//
//   TEST_CASE("gelu_fwd") {
//     for (DType dtype : kFloating) for (std::int64_t n : {1, 31, 1000}) {
//       const Values x = random_values(n, dtype, 1);
//       const auto [y] = expected(dtype, [&](auto math) { return naive_gelu_fwd(math, x); });
//       on_devices(all_devices(), {dtype}, [&](Workbench& bench) {
//         const GeluFwdArgs a = cases::gelu_fwd({.n = n, .dtype = dtype}, bench.operands({{"x", x}}));
//         ISOBAR_RUN(bench.device(), gelu_fwd, a);
//         bench.check("y", {a.y}, y);
//       });
//     }
//   }
//
// The case, kernels/cases/gelu.h, states the number of elements and the dtype of every operand. isobar-bench times the
// same case.
//
// The naive implementation is written once, as `template <class Real>` with `Arithmetic<Real> math` as its first
// argument, and returns std::array<std::vector<Real>, outputs>. It runs twice. In double (long double for fp64) it is
// the oracle. In float (double for fp64) it is the yardstick: a straightforward implementation in the kernel's own
// precision. The 2x rule:
//
//   err(kernel) <= 2 · err(yardstick) + one rounding of the output
//
// The factor is 4 if fewer than 16 elements dominate the yardstick's error, which then varies a lot. An unwritten
// output is NaN, and a NaN is never within a tolerance: elements that a kernel forgets to write are found.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/cases/operands.h"
#include "kernels/common/device.h"
#include "kernels/common/dtype.h"
#include "kernels/common/rng.h"
#include "kernels/common/run.h"
#include "kernels/cpu/isa.h"
#include "tests/harness/testing.h"

namespace isobar::testing {

// ---- values ---------------------------------------------------------------------------------------------------------

// While one lives, reading a Values perturbs some elements by one ulp of the kernel's arithmetic. This shows how much
// the yardstick's error varies.
class OneUlpNoise {
 public:
  OneUlpNoise(DType dtype, std::uint64_t seed);
  ~OneUlpNoise();
  OneUlpNoise(const OneUlpNoise&) = delete;
  OneUlpNoise& operator=(const OneUlpNoise&) = delete;

  static inline double size = 0;
  static double apply(double value);

 private:
  static inline std::uint64_t seed_ = 0, drawn_ = 0;
  static inline Philox4 block_;
};

// Elements of a dtype, each stored exactly in a double.
struct Values {
  DType dtype = DType::fp32;
  std::vector<double> v;

  std::int64_t size() const { return static_cast<std::int64_t>(v.size()); }
  double operator[](std::int64_t i) const {
    const double value = v[static_cast<std::size_t>(i)];
    return OneUlpNoise::size == 0 ? value : OneUlpNoise::apply(value);
  }
  double& operator[](std::int64_t i) { return v[static_cast<std::size_t>(i)]; }
};

// A value rounded to a dtype.
double round_to(double value, DType dtype);
// Relative distance between neighbouring numbers of a dtype (2^-23 for fp32), and its smallest positive number.
double epsilon_of(DType dtype);
double smallest_of(DType dtype);

Values values_of(std::vector<double> values, DType dtype);  // rounded to the dtype
Values constant_values(std::int64_t n, DType dtype, double value);
Values random_values(std::int64_t n, DType dtype, std::uint64_t seed, double scale = 1, double mean = 0);  // normal
Values uniform_values(std::int64_t n, DType dtype, std::uint64_t seed, double low, double high);

inline const std::vector<DType> kFloating = {DType::fp32, DType::bf16, DType::fp16, DType::fp64};
// Row lengths near the widths of vectors, warps and blocks, and row counts near the splits of threads and blocks.
inline const std::vector<std::int64_t> kRaggedCols = {1, 31, 32, 33, 384, 1000};
inline const std::vector<std::int64_t> kRaggedRows = {0, 1, 7, 67};
inline const std::vector<std::int64_t> kRaggedLengths = {0, 1, 7, 8, 9, 31, 33, 1000, 4099, 70001};

// ---- oracle and yardstick -------------------------------------------------------------------------------------------

// The arithmetic in which a naive implementation computes.
template <class Real>
struct Arithmetic {
  bool is_oracle = true;

  // An intermediate value that a kernel stores in this dtype; the oracle keeps it exact.
  Real stored(Real value, DType dtype) const {
    return is_oracle ? value : static_cast<Real>(round_to(static_cast<double>(value), dtype));
  }
};

struct Expected {
  DType computed_in;
  std::vector<long double> exact;
  std::vector<std::vector<double>> yardsticks;  // several runs: one may round well by chance
};

// Runs naive(Arithmetic<Real>) as oracle and as yardstick of a kernel that computes in accumulator_of(dtype).
template <class Naive>
auto expected(DType dtype, const Naive& naive) {
  constexpr std::size_t kOutputs = std::tuple_size_v<decltype(naive(Arithmetic<double>{}))>;
  std::array<Expected, kOutputs> all;
  std::size_t min_elements = 64;
  const auto add_oracle = [&](const auto& exact) {
    for (std::size_t i = 0; i < kOutputs; ++i) {
      all[i].computed_in = accumulator_of(dtype);
      all[i].exact.assign(exact[i].begin(), exact[i].end());
      min_elements = std::min(min_elements, exact[i].size());
    }
  };
  const auto add_yardstick = [&](const auto& outputs) {
    for (std::size_t i = 0; i < kOutputs; ++i) all[i].yardsticks.emplace_back(outputs[i].begin(), outputs[i].end());
  };
  const auto run = [&](auto oracle, auto yardstick) {
    add_oracle(naive(oracle));
    add_yardstick(naive(yardstick));
    const std::uint64_t noisy_runs = min_elements < 64 ? 4 : 1;
    for (std::uint64_t seed = 1; seed <= noisy_runs; ++seed) {
      const OneUlpNoise noise(accumulator_of(dtype), seed);
      add_yardstick(naive(yardstick));
    }
  };
  if (dtype == DType::fp64)
    run(Arithmetic<long double>{.is_oracle = true}, Arithmetic<double>{.is_oracle = false});
  else
    run(Arithmetic<double>{.is_oracle = true}, Arithmetic<float>{.is_oracle = false});
  return all;
}

// The same for several manners in which devices compute. Manner: an ordered type. `make(manner)` returns the result of
// expected(); it runs when a device first asks for that manner.
template <class Manner, class Make>
class ExpectedBy {
 public:
  explicit ExpectedBy(Make make) : make_(std::move(make)) {}
  const auto& operator[](const Manner& manner) {
    const auto found = made_.find(manner);
    return found != made_.end() ? found->second : made_.emplace(manner, make_(manner)).first->second;
  }

 private:
  Make make_;
  std::map<Manner, std::invoke_result_t<Make, const Manner&>> made_;
};
template <class Manner, class Make>
ExpectedBy<Manner, Make> expected_by(Make make) {
  return ExpectedBy<Manner, Make>(std::move(make));
}

// How errors are measured. tensor: by the maximum and the root-mean-square error of the whole output, for sums that
// cancel. ulps: by the maximum error in units of each element's own last place, for elementwise formulas.
enum class Norm { tensor, ulps };

struct Verdict {
  bool ok = false;
  std::string text;  // "y: 41 % of budget", or the error
};
Verdict compare(const std::string& name, const Values& actual, const Expected& expected, Norm norm = Norm::tensor);

// ---- devices and memory ---------------------------------------------------------------------------------------------

// The devices of a case: the CPU always, the emulator and CUDA if they are built.
std::vector<DeviceKind> all_devices();

// Whether a sanitizer looks on. What it finds depends little on values and types: of many cases it sees some.
bool is_sanitized();
std::vector<DeviceKind> cpu_only();
std::vector<DeviceKind> wanted_devices(const std::vector<DeviceKind>& kinds);  // those that on_devices runs
bool gpu_is_present();

using cases::Pointer;

class Workbench;

// What a test says of an operand of a case: its values, to which the kernel may add; or where it lies; or, of one that
// the kernel can do without, whether it is wanted.
struct Given : cases::Given {
  using cases::Given::Given;
  // `shift` moves it by that many elements off its 256-byte alignment.
  Given(const char* operand, const Values& its, std::int64_t its_shift = 0)
      : cases::Given(operand), values(&its), shift(its_shift) {}
  Given(const char* operand, const Values* its)
      : cases::Given(operand, its != nullptr), values(its) {}  // null: not wanted

  const Values* values = nullptr;
  std::int64_t shift = 0;
};

// The operands of a case on a workbench. Throws Error where an input is not given, or with another size or dtype than
// the case says. An output starts as NaN, whatever values are given, unless the kernel adds to it.
class TestOperands final : public cases::Operands {
 public:
  TestOperands(Workbench& bench, std::vector<Given> given)
      : Operands({given.begin(), given.end()}), bench_(bench), given_(std::move(given)) {}

 private:
  void* allocate(const cases::Operand& operand) override;

  Workbench& bench_;
  std::vector<Given> given_;
};

// The device memory of one run. Every buffer lies between guard bytes (poisoned for AddressSanitizer). Inputs must stay
// unchanged and lie between NaNs; outputs and workspaces start as NaN.
class Workbench {
 public:
  explicit Workbench(Device device);
  ~Workbench();
  Workbench(const Workbench&) = delete;
  Workbench& operator=(const Workbench&) = delete;

  Device device() const { return device_; }

  // `shift` moves a buffer by that many elements off its 256-byte alignment.
  Pointer input(const Values& values, std::int64_t shift = 0);
  Pointer in_out(const Values& values, std::int64_t shift = 0);
  Pointer output(std::int64_t n, DType dtype, std::int64_t shift = 0);
  Pointer workspace(std::size_t bytes);
  // For one case, in the expression that the values live in: cases::gelu_fwd({.n = 3}, bench.operands({{"x", x}})).
  TestOperands operands(std::vector<Given> given = {}, const std::vector<Given>& more = {}) {
    given.insert(given.end(), more.begin(), more.end());
    return {*this, std::move(given)};
  }

  Values read(Pointer pointer) const;
  void check(const std::string& name, Pointer pointer, const Expected& expected, Norm norm = Norm::tensor) const;
  // Checks that the output has exactly these numbers (NaN for NaN).
  void check_equal(const std::string& name, Pointer pointer, const Values& values) const;

  // Checks that guards and inputs are unchanged; returns the bytes of all outputs, to compare runs.
  std::vector<std::byte> finish() const;

 private:
  struct Buffer;
  enum class Role { input, output, scratch };
  Pointer add(std::vector<std::byte> bytes, DType dtype, std::int64_t shift, Role role);
  const Buffer& buffer(Pointer pointer) const;

  Device device_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

// An offset that masks add to their stream number, 2^62, in the memory of the bench's device: the bits of 2.0.
inline constexpr auto kStreamOffset = std::bit_cast<std::uint64_t>(2.0);
inline Pointer stream_offset(Workbench& bench) {
  return bench.input(values_of({2.0}, DType::fp64));
}

struct CpuKernels {
  cpu::Isa isa;
  cpu::Bf16Products products;
};
// Selects these kernels while it lives.
class UsedKernels {
 public:
  explicit UsedKernels(const CpuKernels& kernels) : saved_{cpu::best_isa(), cpu::bf16_products()} {
    cpu::use(kernels.isa, kernels.products);
  }
  ~UsedKernels() { cpu::use(saved_.isa, saved_.products); }
  UsedKernels(const UsedKernels&) = delete;
  UsedKernels& operator=(const UsedKernels&) = delete;

 private:
  CpuKernels saved_;
};

struct DeviceOptions {
  bool any_thread_count = true;  // the contract promises the same bits for any number of CPU threads
  bool multiplies = false;       // the kernel has products, which AVX512_BF16 and AMX compute for bf16
};

// Runs body on each device several times (on the CPU with one and with three threads, in the emulator with every
// schedule) and requires the same bits each time. The CPU repeats this with each of its instruction sets, and with
// AVX512_BF16 and AMX, emulated if it lacks them. A case with fp64 among `dtypes` runs only on the CPU.
// ISOBAR_TEST_DEVICES=cpu,emulator,cuda restricts the devices. If it names a GPU that does not exist, the test counts
// as skipped.
void on_devices(const std::vector<DeviceKind>& kinds, std::initializer_list<DType> dtypes,
                const std::function<void(Workbench&)>& body, DeviceOptions options = {});

// ---- gradients ------------------------------------------------------------------------------------------------------

// Checks gradient[i] = d loss / d x[i] by fourth-order central differences. `loss` must contract the output with a
// random cotangent, and compute in fp64.
void check_gradient(const std::string& name, const Values& x, const Values& gradient,
                    const std::function<double(const Values&)>& loss);
double dot(const Values& a, const Values& b);

}  // namespace isobar::testing
