// gemm: every layout, dtype and epilogue against the formula, at sizes around the tiles of rows, columns and terms.
#include "kernels/cases/gemm.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <tuple>
#include <type_traits>

#include "kernels/common/check.h"
#include "kernels/cpu/isa.h"
#include "kernels/gemm/few_rows.h"
#include "kernels/gemm/onednn.h"
#include "kernels/gemm/packed.h"
#include "tests/harness/kernel_testing.h"
#include "tests/harness/tensor_core.h"

namespace isobar::testing {
namespace {

struct Case {
  std::int64_t m, n, k;
  bool transpose_a = false, transpose_b = false;
  DType in = DType::fp32, out = DType::fp32;
  bool has_bias = false, has_pre = false;
  DType bias = accumulator_of(in);
  Activation activation = Activation::none;
  Grad mode = Grad::overwrite;
};

struct Operands {
  Values a, b, bias, c;
};

Operands operands_of(const Case& g) {
  return {random_values(g.m * g.k, g.in, 1), random_values(g.k * g.n, g.in, 2, 1 / std::sqrt(g.k)),
          random_values(g.n, g.bias, 3), random_values(g.m * g.n, g.out, 4)};
}

template <class Real>
Real activate(Activation kind, Real x) {
  switch (kind) {
    case Activation::gelu_erf:
      return x / 2 * std::erfc(-x / std::numbers::sqrt2_v<Real>);
    case Activation::gelu_tanh:
      return x / 2 *
             (1 +
              std::tanh(std::sqrt(2 * std::numbers::inv_pi_v<Real>) * (x + static_cast<Real>(0.044715) * x * x * x)));
    default:
      return x;
  }
}

struct Manner {
  bool rounds_pre = false;  // the activation follows the rounding of pre, as cuBLASLt and a GELU kernel do it
  bool cuts = false;        // sums are those of tensor cores

  auto operator<=>(const Manner&) const = default;
};

// Σ_k A[i, k]·B[k, j]
template <class Real>
Real dot(Arithmetic<Real> math, const Case& g, const Operands& x, std::int64_t i, std::int64_t j, bool cuts) {
  const auto a = [&](std::int64_t k) { return static_cast<Real>(x.a[g.transpose_a ? k * g.m + i : i * g.k + k]); };
  const auto b = [&](std::int64_t k) { return static_cast<Real>(x.b[g.transpose_b ? j * g.k + k : k * g.n + j]); };
  if constexpr (std::is_same_v<Real, float>) {
    if (cuts && !math.is_oracle) {
      TensorCoreSum sum;
      for (std::int64_t k = 0; k < g.k; ++k) sum.add_product(a(k), b(k));
      return sum.sum();
    }
  }
  Real sum = 0;
  for (std::int64_t k = 0; k < g.k; ++k) sum += a(k) * b(k);
  return sum;
}

// c, pre
template <class Real>
std::array<std::vector<Real>, 2> naive(Arithmetic<Real> math, const Case& g, const Operands& x, Manner manner) {
  std::array<std::vector<Real>, 2> out;
  for (std::int64_t i = 0; i < g.m; ++i)
    for (std::int64_t j = 0; j < g.n; ++j) {
      Real sum = dot(math, g, x, i, j, manner.cuts);
      if (g.mode == Grad::accumulate) sum += static_cast<Real>(x.c[i * g.n + j]);
      if (g.has_bias) sum += static_cast<Real>(x.bias[j]);
      out[1].push_back(sum);
      out[0].push_back(activate(g.activation, manner.rounds_pre ? math.stored(sum, g.out) : sum));
    }
  return out;
}

GemmArgs arguments_of(const Case& g, const Operands& x, Workbench& bench, bool has_a_sums = false) {
  return cases::gemm({.m = g.m,
                      .n = g.n,
                      .k = g.k,
                      .transpose_a = g.transpose_a,
                      .transpose_b = g.transpose_b,
                      .in_dtype = g.in,
                      .out_dtype = g.out,
                      .bias_dtype = g.bias,
                      .activation = g.activation,
                      .mode = g.mode},
                     bench.operands({{"a", x.a},
                                     {"b", x.b},
                                     {"bias", g.has_bias ? &x.bias : nullptr},
                                     {"c", x.c},
                                     {"pre", g.has_pre},
                                     {"a_sums", has_a_sums}}));
}

// How a device makes this product (kernels/gemm/gemm.h), the CPU with the kernels that it uses now.
Manner manner_of(DeviceKind device, const Case& g) {
  const bool is_cuda = device == DeviceKind::cuda;
  const bool is_onednn = !is_cuda && g.in == DType::bf16 && cpu::are_on_tiles(cpu::bf16_products());
  return {.rounds_pre = is_cuda || is_onednn, .cuts = is_cuda && is_16_bit(g.in)};
}

std::string describe(const Case& g) {
  return concat(name_of(g.in), " -> ", name_of(g.out), ", ", g.m, " x ", g.n, " x ", g.k, ", transposes ",
                g.transpose_a, g.transpose_b, ", bias ", g.has_bias, ", pre ", g.has_pre, ", activation ",
                static_cast<int>(g.activation), ", accumulate ", g.mode == Grad::accumulate);
}

void run(const Case& g, const Operands& x, const std::vector<DeviceKind>& devices = all_devices()) {
  INFO(describe(g));
  auto want = expected_by<Manner>(
      [&](Manner manner) { return expected(g.in, [&](auto math) { return naive(math, g, x, manner); }); });
  const auto check = [&](Workbench& bench) {
    const auto& [c_expected, pre_expected] = want[manner_of(bench.device().kind, g)];
    const GemmArgs a = arguments_of(g, x, bench);
    ISOBAR_RUN(bench.device(), gemm, a);
    bench.check("c", {a.c}, c_expected);
    if (g.has_pre) bench.check("pre", {a.pre}, pre_expected);
  };
  on_devices(devices, {g.in, g.out}, check, {.multiplies = true});
}
void run(const Case& g, const std::vector<DeviceKind>& devices = all_devices()) {
  run(g, operands_of(g), devices);
}

struct Types {
  DType in, out;
};
const std::vector<Types> kTypes = {{DType::fp32, DType::fp32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::fp32},
                                   {DType::fp16, DType::fp16}, {DType::fp16, DType::fp32}, {DType::fp64, DType::fp64},
                                   {DType::fp64, DType::fp32}};

}  // namespace

TEST_CASE("gemm multiplies ragged sizes in every layout and dtype") {
  for (const Types types : kTypes)
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true})
        for (const auto& [m, n, k] : std::vector<std::array<std::int64_t, 3>>{
                 {1, 1, 1}, {7, 49, 15}, {8, 48, 16}, {9, 24, 17}, {3, 130, 33}, {130, 3, 8}})
          run({.m = m,
               .n = n,
               .k = k,
               .transpose_a = transpose_a,
               .transpose_b = transpose_b,
               .in = types.in,
               .out = types.out});
}

TEST_CASE("gemm sums in several passes over C, and adds to it") {
  for (const Types types : kTypes)
    for (const std::int64_t k : {cpu::kGemmDepth, cpu::kGemmDepth + 1, 3 * cpu::kGemmDepth - 5})
      for (const Grad mode : {Grad::overwrite, Grad::accumulate})
        run({.m = 9,
             .n = 50,
             .k = k,
             .transpose_a = k % 2 == 0,
             .transpose_b = k % 2 == 1,
             .in = types.in,
             .out = types.out,
             .has_bias = mode == Grad::overwrite,
             .mode = mode});
}

TEST_CASE("gemm splits many rows and many columns over threads") {
  run({.m = 300, .n = 50, .k = 20});
  run({.m = 5, .n = 1000, .k = 40});
  run({.m = 5, .n = 1000, .k = 40, .transpose_b = true, .in = DType::bf16, .out = DType::bf16});
}

// 17 MB of fp32: more than is packed at a time.
TEST_CASE("gemm packs a wide B in several groups of columns") {
  for (const bool transpose_b : {false, true})
    run({.m = 9, .n = 8250, .k = cpu::kGemmDepth + 1, .transpose_b = transpose_b, .has_bias = true}, cpu_only());
}

TEST_CASE("gemm: few rows that may differ from many are scalar products, of every type and size") {
  const cpu::FewRowsScope few_rows;
  for (const Types types : kTypes)
    for (const std::int64_t m : {1, 2, 3, 4, 5, 8})
      for (const auto& [n, k] : std::vector<std::array<std::int64_t, 2>>{
               {1, 1}, {2, 5}, {47, 16}, {48, 33}, {97, cpu::kGemmDepth + 3}, {130, 2 * cpu::kGemmDepth + 37}})
        run({.m = m, .n = n, .k = k, .transpose_b = true, .in = types.in, .out = types.out, .has_bias = true},
            cpu_only());
}

// Of scalar products: among up to kFewRows rows. What is generated from a prompt must not depend on the prompts beside
// it, nor what is forecast on the samples of a batch.
TEST_CASE("gemm gives a row the same bits among few rows as among many") {
  for (const Types types : kTypes)
    for (const bool transpose_a : {false, true})
      for (const auto& [n, k] : std::vector<std::array<std::int64_t, 2>>{
               {1, 5}, {47, 16}, {48, 33}, {97, cpu::kGemmDepth + 3}, {130, 2 * cpu::kGemmDepth + 37}}) {
        for (const bool is_of_dots : {false, true}) {
          if (is_of_dots && (transpose_a || k % 2 == 0)) continue;
          const auto multiply = is_of_dots ? &cpu::gemm_dots : &cpu::gemm_packed;
          const Case many{.m = is_of_dots ? cpu::kFewRows : 20,
                          .n = n,
                          .k = k,
                          .transpose_a = transpose_a,
                          .transpose_b = k % 2 == 1,
                          .in = types.in,
                          .out = types.out,
                          .has_bias = true,
                          .has_pre = true,
                          .activation = Activation::gelu_tanh};
          INFO(describe(many));
          const Operands x = operands_of(many);
          on_devices(cpu_only(), {types.in, types.out},
                     [&](Workbench& bench) {
                       const GemmArgs all = arguments_of(many, x, bench);
                       multiply(all, {});
                       for (const std::int64_t m : {1, 2, 3, 5, 8}) {
                         Case few = many;
                         few.m = m;
                         Operands first = x;
                         for (std::int64_t i = 0; i < m * k; ++i)
                           first.a[i] = transpose_a ? x.a.v[static_cast<std::size_t>(i / m * many.m + i % m)]
                                                    : x.a.v[static_cast<std::size_t>(i)];
                         for (auto* values : {&first.a, &first.c})
                           values->v.resize(static_cast<std::size_t>(m * (values == &first.a ? k : n)));
                         const GemmArgs some = arguments_of(few, first, bench);
                         multiply(some, {});
                         for (const auto& [name, of_all, of_some] :
                              {std::tuple("c", all.c, some.c), std::tuple("pre", all.pre, some.pre)}) {
                           Values rows = bench.read({of_all});
                           rows.v.resize(static_cast<std::size_t>(m * n));
                           bench.check_equal(concat(name, " of ", m, " rows"), {of_some}, rows);
                         }
                       }
                     },
                     {.multiplies = true});
        }
      }
}

TEST_CASE("gemm applies bias and activation") {
  for (const Types types : kTypes)
    for (const Activation activation : {Activation::none, Activation::gelu_erf, Activation::gelu_tanh})
      for (const bool has_bias : {false, true})
        for (const bool has_pre : {false, true})
          for (const std::int64_t n : {99, 104})  // rows of which cuBLASLt can store `pre` in 16 bits, and others
            run({.m = 10,
                 .n = n,
                 .k = 20,
                 .transpose_b = true,
                 .in = types.in,
                 .out = types.out,
                 .has_bias = has_bias,
                 .has_pre = has_pre,
                 .activation = activation});
}

TEST_CASE("gemm passes NaN and infinity on, to their row or column only") {
  for (const Types types : kTypes)
    for (const Activation activation : {Activation::none, Activation::gelu_erf}) {
      const Case g{.m = 20, .n = 60, .k = 30, .in = types.in, .out = types.out, .activation = activation};
      Operands x = operands_of(g);
      x.a[3 * g.k + 7] = std::nan("");
      x.b[5 * g.n + 49] = std::nan("");
      x.a[11 * g.k + 2] = std::numeric_limits<double>::infinity();
      run(g, x);
    }
}

// cpu::gemm takes this way on machines with AMX only; oneDNN computes the same with AVX-512.
TEST_CASE("gemm through oneDNN") {
  if (cpu::best_isa() != cpu::Isa::avx512) ISOBAR_SKIP("oneDNN multiplies bf16 on AVX-512 and above");
  for (const DType out : {DType::bf16, DType::fp32})
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true})
        for (const bool has_pre : {false, true})
          for (const Activation activation : {Activation::none, Activation::gelu_erf, Activation::gelu_tanh})
            for (const Grad mode : {Grad::overwrite, Grad::accumulate}) {
              const bool is_plain = !has_pre && activation == Activation::none;
              if (mode == Grad::accumulate && !is_plain) continue;
              const Case g{.m = 33,
                           .n = 70,
                           .k = 50,
                           .transpose_a = transpose_a,
                           .transpose_b = transpose_b,
                           .in = DType::bf16,
                           .out = out,
                           .has_bias = !is_plain,
                           .has_pre = has_pre,
                           .activation = activation,
                           .mode = mode};
              INFO(describe(g));
              const Operands x = operands_of(g);
              const auto [c_expected, pre_expected] =
                  expected(g.in, [&](auto math) { return naive(math, g, x, {.rounds_pre = true}); });
              on_devices(cpu_only(), {g.in, g.out}, [&](Workbench& bench) {
                const GemmArgs a = arguments_of(g, x, bench);
                cpu::gemm_onednn(a);
                bench.check("c", {a.c}, c_expected);
                if (has_pre) bench.check("pre", {a.pre}, pre_expected);
              });
            }
}

namespace {

// What this CPU makes of one sum of products of bf16.
float sum_of_products(const std::vector<double>& a, const std::vector<double>& b) {
  const auto k = static_cast<std::int64_t>(a.size());
  Workbench bench({.kind = DeviceKind::cpu});
  const GemmArgs product =
      cases::gemm({.m = 1, .n = 1, .k = k, .in_dtype = DType::bf16},
                  bench.operands({{"a", values_of(a, DType::bf16)}, {"b", values_of(b, DType::bf16)}}));
  cpu::gemm(product);
  const auto sum = static_cast<float>(bench.read({product.c})[0]);
  bench.finish();
  return sum;
}

std::vector<cpu::Bf16Products> ways_in_pairs() {
  if (cpu::best_isa() != cpu::Isa::avx512) return {};
  if (!cpu::has_pairs()) return {cpu::Bf16Products::emulated_pairs};
  return {cpu::Bf16Products::emulated_pairs, cpu::Bf16Products::pairs};
}

}  // namespace

TEST_CASE("gemm in pairs rounds each product's sum, the odd one first, and flushes what is below 2^-126") {
  if (ways_in_pairs().empty()) ISOBAR_SKIP("products of pairs need AVX-512");
  for (const cpu::Bf16Products products : ways_in_pairs()) {
    const UsedKernels used({cpu::Isa::avx512, products});
    INFO(name_of(products));
    CHECK(sum_of_products({1, 0, 1, 1}, {1, 0, 0x1p-24, 0x1p-24}) == 1);     // each of the two is lost to rounding
    CHECK(sum_of_products({0x1p24, 0, 2, 1}, {1, 1, 1, 1}) == 0x1p24f + 2);  // 2^24 + 4 the other way round
    CHECK(sum_of_products({0x1p-127, 0}, {0x1p10, 0}) == 0);
    CHECK(sum_of_products({0x1p-126, 0}, {0x1p10, 0}) == 0x1p-116f);
    CHECK(sum_of_products({0x1p-70, 0}, {0x1p-57, 0}) == 0);
    CHECK(sum_of_products({0x1p-70, 0}, {0x1p-56, 0}) == 0x1p-126f);
    CHECK(sum_of_products({0, 0x1p-126, -0x1.8p-126, 0}, {0, 1, 1, 0}) == 0);
  }
}

TEST_CASE("gemm and its emulation in pairs give the same bits") {
  if (!cpu::has_pairs() || cpu::best_isa() != cpu::Isa::avx512) ISOBAR_SKIP("this CPU has no AVX512_BF16");
  const Case g{.m = 9, .n = 50, .k = 2 * cpu::kGemmDepth + 3, .in = DType::bf16, .out = DType::fp32};
  // Numbers of one size, so that each rounding shows, the two of a pair in their order; and of very different ones.
  for (const std::int64_t neighbours : {0, 1, 2}) {
    INFO(neighbours << " of the same size");
    Operands x = operands_of(g);
    for (std::int64_t i = 0; i < g.m * g.k && neighbours > 0; ++i)
      x.a[i] = std::ldexp(x.a[i], static_cast<int>(i / neighbours % 5) * -30);
    x.a = values_of(x.a.v, DType::bf16);
    std::vector<std::vector<std::byte>> bits;
    for (const cpu::Bf16Products products : ways_in_pairs()) {
      const UsedKernels used({cpu::Isa::avx512, products});
      Workbench bench({.kind = DeviceKind::cpu});
      cpu::gemm(arguments_of(g, x, bench));
      bits.push_back(bench.finish());
    }
    CHECK(bits.at(0) == bits.at(1));
  }
}

TEST_CASE("gemm on a GPU adds a bias in the type of its output") {
  for (const DType dtype : {DType::bf16, DType::fp16})
    for (const bool has_pre : {false, true})
      run({.m = 10,
           .n = 99,
           .k = 20,
           .in = dtype,
           .out = dtype,
           .has_bias = true,
           .has_pre = has_pre,
           .bias = dtype,
           .activation = has_pre ? Activation::gelu_erf : Activation::none},
          {DeviceKind::cuda});
}

TEST_CASE("gemm on a GPU sums A on the way") {
  for (const DType in : {DType::fp32, DType::bf16, DType::fp16})
    for (const Grad mode : {Grad::overwrite, Grad::accumulate})
      for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1}, {7, 5, 33}, {40, 72, 131}}) {
        const Case g{.m = m, .n = n, .k = k, .transpose_a = true, .in = in, .mode = mode};
        const Operands x = operands_of(g);
        INFO(describe(g));
        const auto products =
            expected(in, [&](auto math) { return naive(math, g, x, manner_of(DeviceKind::cuda, g)); });
        const auto sums = expected(in, [&]<class Real>(Arithmetic<Real>) {
          std::array<std::vector<Real>, 1> sums{std::vector<Real>(static_cast<std::size_t>(m))};
          for (std::int64_t p = 0; p < k; ++p)
            for (std::int64_t i = 0; i < m; ++i)
              sums[0][static_cast<std::size_t>(i)] += static_cast<Real>(x.a[p * m + i]);
          return sums;
        });
        on_devices({DeviceKind::cuda}, {in}, [&](Workbench& bench) {
          const GemmArgs a = arguments_of(g, x, bench, true);
          ISOBAR_RUN(bench.device(), gemm, a);
          bench.check("c", {a.c}, products[0]);
          bench.check("the sums of A", {a.a_sums}, sums[0]);
        });
      }
}

TEST_CASE("gemm without rows or columns does nothing") {
  for (const auto& [m, n] : std::vector<std::array<std::int64_t, 2>>{{0, 5}, {5, 0}}) run({.m = m, .n = n, .k = 3});
}

TEST_CASE("gemm refuses what it cannot do") {
  float x = 1, c = 1;
  GemmArgs g{.m = 1, .n = 1, .k = 1, .a = &x, .b = &x, .c = &c};
  g.out_dtype = DType::bf16;
  CHECK_THROWS_WITH(cpu::gemm(g), "gemm: cannot multiply fp32 into bf16");
  g.out_dtype = DType::fp32;
  g.k = 0;
  CHECK_THROWS_WITH(cpu::gemm(g), "gemm: bad sizes m=1 n=1 k=0");
  g.k = 1;
  g.mode = Grad::accumulate;
  g.bias = &x;
  CHECK_THROWS_WITH(cpu::gemm(g), "gemm: bias and activation cannot be combined with accumulation");
  CHECK_THROWS_WITH(
      cpu::gemm({.m = 1, .n = 1, .k = 1, .bias_dtype = DType::bf16, .a = &x, .b = &x, .bias = &x, .c = &c}),
      "gemm: a bias in bf16 is added by a GPU only");
  CHECK_THROWS_WITH(cpu::gemm({.m = 1, .n = 1, .k = 1, .transpose_a = true, .a = &x, .b = &x, .c = &c, .a_sums = &c}),
                    "gemm: sums of A on the way are made by a GPU only; use column_sum");
}

}  // namespace isobar::testing
