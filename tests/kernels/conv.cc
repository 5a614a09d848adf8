// conv: the three kernels against the sums of their contract as nested loops, at shapes around everything that is done
// apart: strides, paddings, edges, few channels, several passes over the terms.
#include "kernels/cases/conv.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <compare>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/common/check.h"
#include "kernels/conv/window.h"
#include "tests/harness/kernel_testing.h"
#include "tests/harness/tensor_core.h"

namespace isobar::testing {
namespace {

// Of isobar's own kernels, also where cuDNN could compute (lab/virtual_gpu/convolutions.cc), unless the caller wants
// it.
[[maybe_unused]] const int kOwnKernels = ::setenv("ISOBAR_CONV", "own", /*overwrite=*/0);

// ---- the oracle -----------------------------------------------------------------------------------------------------

// Which element of x the kernel's element k meets at output o; -1: none.
std::int64_t met(const ConvAxis& axis, std::int64_t o, std::int64_t k) {
  const std::int64_t at = o * axis.stride - axis.pad + k;
  if (at >= 0 && at < axis.in) return at;
  return axis.edge == Edge::zeros ? -1 : (at + 2 * axis.in) % axis.in;
}

// Calls f(element of y, element of the weight, element of x) for every product of the convolution, where elements are
// counted without y's channel, the weight's channels and x's.
template <class F>
void for_each_tap(const ConvShape& s, const F& f) {
  const ConvAxis &d = s.axes[0], &h = s.axes[1], &w = s.axes[2];
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t o0 = 0; o0 < d.out; ++o0)
      for (std::int64_t o1 = 0; o1 < h.out; ++o1)
        for (std::int64_t o2 = 0; o2 < w.out; ++o2)
          for (std::int64_t k0 = 0; k0 < d.kernel; ++k0)
            for (std::int64_t k1 = 0; k1 < h.kernel; ++k1)
              for (std::int64_t k2 = 0; k2 < w.kernel; ++k2) {
                const std::int64_t i0 = met(d, o0, k0), i1 = met(h, o1, k1), i2 = met(w, o2, k2);
                if (i0 < 0 || i1 < 0 || i2 < 0) continue;
                f(((b * d.out + o0) * h.out + o1) * w.out + o2, (k0 * h.kernel + k1) * w.kernel + k2,
                  ((b * d.in + i0) * h.in + i1) * w.in + i2);
              }
}

// Calls f(index into y, into the weight, into x) for every product.
template <class F>
void for_each_product(const ConvShape& s, const F& f) {
  for_each_tap(s, [&](std::int64_t y, std::int64_t tap, std::int64_t x) {
    for (std::int64_t co = 0; co < s.out_channels; ++co)
      for (std::int64_t ci = 0; ci < s.in_channels; ++ci)
        f(y * s.out_channels + co, (co * s.taps() + tap) * s.in_channels + ci, x * s.in_channels + ci);
  });
}

template <class Real>
Real activate(Pointwise kind, Real x) {
  if (kind == Pointwise::tanh) return std::tanh(x);
  if (kind == Pointwise::none || x > 0) return x;
  return kind == Pointwise::relu ? Real(0) : static_cast<Real>(0.01L) * x;
}

// ---- cases ----------------------------------------------------------------------------------------------------------

struct Case {
  std::string name;
  ConvShape shape;
  DType dtype = DType::fp32, out_dtype = DType::fp32;
  bool has_bias = false;
  Pointwise activation = Pointwise::none;
  Grad mode = Grad::overwrite;
  bool tf32 = false;
  std::int64_t shift = 0;  // of the operands of the product, elements off their alignment
  bool on_cpu = true;
};

std::vector<DeviceKind> devices_of(const Case& c) {
  std::vector<DeviceKind> devices = all_devices();
  if (!c.on_cpu) std::erase(devices, DeviceKind::cpu);
  return devices;
}

std::string describe(const Case& c) {
  std::string text =
      concat(c.name, ": ", c.shape.batch, " samples, ", c.shape.in_channels, " -> ", c.shape.out_channels,
             " channels, ", name_of(c.dtype), " -> ", name_of(c.out_dtype), ", bias ", c.has_bias, ", ",
             name_of(c.activation), ", accumulate ", c.mode == Grad::accumulate, c.tf32 ? ", tf32" : "");
  for (const ConvAxis& a : c.shape.axes)
    text += concat("; ", a.in, " -> ", a.out, " k", a.kernel, " s", a.stride, " p", a.pad,
                   a.edge == Edge::wrap ? " wrapped" : "");
  return text;
}

Values random_of(std::int64_t n, DType dtype, std::uint64_t seed, std::int64_t terms = 1) {
  return random_values(n, dtype, seed, 1 / std::sqrt(static_cast<double>(terms)));
}

// How a device multiplies: whether it rounds operands to TF32, and whether it adds as tensor cores do (the emulator's
// are more accurate).
struct Manner {
  bool rounds = false, cuts = false;
  auto operator<=>(const Manner&) const = default;
};
Manner manner_of(const Case& c, Device device) {
  if (device.kind == DeviceKind::cpu || !conv_on_tensor_cores(c.shape, c.dtype, c.tf32)) return {};
  return {.rounds = c.dtype == DType::fp32, .cuts = device.kind == DeviceKind::cuda};
}

// The `n` sums of a kernel: each(add) calls add(i, a, b) for every product a·b of sum i.
template <class Real, class Each>
std::vector<Real> sums_of(Arithmetic<Real> math, const Manner& manner, std::int64_t n, const Each& each) {
  const auto operand = [&](double value) {
    return manner.rounds ? static_cast<Real>(in_tf32(static_cast<float>(value))) : static_cast<Real>(value);
  };
  if (manner.cuts && !math.is_oracle) {
    std::vector<TensorCoreSum> sums(static_cast<std::size_t>(n));
    each([&](std::int64_t i, double a, double b) {
      sums[static_cast<std::size_t>(i)].add_product(static_cast<float>(operand(a)), static_cast<float>(operand(b)));
    });
    std::vector<Real> all;
    for (TensorCoreSum& sum : sums) all.push_back(static_cast<Real>(sum.sum()));
    return all;
  }
  std::vector<Real> sums(static_cast<std::size_t>(n));
  each([&](std::int64_t i, double a, double b) { sums[static_cast<std::size_t>(i)] += operand(a) * operand(b); });
  return sums;
}

// What follows the sums.
template <class Real>
std::array<std::vector<Real>, 1> finished(const Case& c, std::vector<Real> sums, const Values& before,
                                          const Values& bias) {
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(sums.size()); ++i) {
    Real& sum = sums[static_cast<std::size_t>(i)];
    if (c.mode == Grad::accumulate) sum += static_cast<Real>(before[i]);
    if (c.has_bias) sum += static_cast<Real>(bias[i % bias.size()]);
    sum = activate(c.activation, sum);
  }
  return {std::move(sums)};
}

constexpr DeviceOptions kMultiplies = {.multiplies = true};

void run_fwd(const Case& c) {
  INFO("conv_fwd " << describe(c));
  const ConvShape& s = c.shape;
  const Values x = random_of(s.x(), c.dtype, 1), bias = random_of(s.out_channels, accumulator_of(c.dtype), 3);
  const Values weight = random_of(s.weight(), c.dtype, 2, s.taps() * s.in_channels);
  auto y = expected_by<Manner>([&](const Manner& manner) {
    return expected(c.dtype, [&]<class Real>(Arithmetic<Real> math) {
      return finished(c,
                      sums_of(math, manner, s.y(),
                              [&](const auto& add) {
                                for_each_product(s, [&](std::int64_t i, std::int64_t k, std::int64_t j) {
                                  add(i, weight[k], x[j]);
                                });
                              }),
                      {}, bias);
    });
  });
  const auto check = [&](Workbench& bench) {
    const ConvFwdArgs a = cases::conv_fwd(
        {.shape = s, .dtype = c.dtype, .out_dtype = c.out_dtype, .activation = c.activation, .tf32 = c.tf32},
        bench.operands({{"x", x, c.shift}, {"weight", weight, c.shift}, {"bias", c.has_bias ? &bias : nullptr}}));
    ISOBAR_RUN(bench.device(), conv_fwd, a);
    bench.check("y", {a.y}, y[manner_of(c, bench.device())][0]);
  };
  on_devices(devices_of(c), {c.dtype, c.out_dtype}, check, kMultiplies);
}

void run_bwd_data(const Case& c) {
  INFO("conv_bwd_data " << describe(c));
  const ConvShape& s = c.shape;
  const Values dy = random_of(s.y(), c.dtype, 1), bias = random_of(s.in_channels, accumulator_of(c.dtype), 3);
  const Values weight = random_of(s.weight(), c.dtype, 2, s.taps() * s.out_channels);
  const Values before = random_of(s.x(), c.out_dtype, 4);
  auto dx = expected_by<Manner>([&](const Manner& manner) {
    return expected(c.dtype, [&]<class Real>(Arithmetic<Real> math) {
      return finished(c,
                      sums_of(math, manner, s.x(),
                              [&](const auto& add) {
                                for_each_product(s, [&](std::int64_t i, std::int64_t k, std::int64_t j) {
                                  add(j, weight[k], dy[i]);
                                });
                              }),
                      before, bias);
    });
  });
  const auto check = [&](Workbench& bench) {
    const ConvBwdDataArgs a = cases::conv_bwd_data({.shape = s,
                                                    .dtype = c.dtype,
                                                    .out_dtype = c.out_dtype,
                                                    .activation = c.activation,
                                                    .mode = c.mode,
                                                    .tf32 = c.tf32},
                                                   bench.operands({{"dy", dy, c.shift},
                                                                   {"weight", weight, c.shift},
                                                                   {"bias", c.has_bias ? &bias : nullptr},
                                                                   {"dx", before}}));
    ISOBAR_RUN(bench.device(), conv_bwd_data, a);
    bench.check("dx", {a.dx}, dx[manner_of(c, bench.device())][0]);
  };
  on_devices(devices_of(c), {c.dtype, c.out_dtype}, check, kMultiplies);
}

void run_bwd_weight(const Case& c) {
  INFO("conv_bwd_weight " << describe(c));
  const ConvShape& s = c.shape;
  const Values x = random_of(s.x(), c.dtype, 1);
  const Values dy = random_of(s.y(), c.dtype, 2, s.batch * s.out_points() + 1);
  const Values before = random_of(s.weight(), accumulator_of(c.dtype), 4);
  Case plain = c;  // without what only the others have
  plain.has_bias = false;
  plain.activation = Pointwise::none;
  auto dweight = expected_by<Manner>([&](const Manner& manner) {
    return expected(c.dtype, [&]<class Real>(Arithmetic<Real> math) {
      return finished(plain,
                      sums_of(math, manner, s.weight(),
                              [&](const auto& add) {
                                for_each_product(
                                    s, [&](std::int64_t i, std::int64_t k, std::int64_t j) { add(k, dy[i], x[j]); });
                              }),
                      before, {});
    });
  });
  const auto check = [&](Workbench& bench) {
    const ConvBwdWeightArgs a =
        cases::conv_bwd_weight({.shape = s, .dtype = c.dtype, .mode = c.mode, .tf32 = c.tf32},
                               bench.operands({{"x", x, c.shift}, {"dy", dy, c.shift}, {"dweight", before}}));
    ISOBAR_RUN(bench.device(), conv_bwd_weight, a);
    bench.check("dweight", {a.dweight}, dweight[manner_of(c, bench.device())][0]);
  };
  on_devices(devices_of(c), {c.dtype}, check, kMultiplies);
}

void run_all(const Case& c) {
  run_fwd(c);
  run_bwd_data(c);
  run_bwd_weight(c);
}

// An axis whose windows fit with `behind` elements of padding behind.
ConvAxis axis(std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t pad, std::int64_t behind,
              Edge edge = Edge::zeros) {
  return {in, (in + pad + behind - kernel) / stride + 1, kernel, stride, pad, edge};
}

struct Types {
  DType in, out;
  bool tf32 = false;
};
const std::vector<Types> kTypes = {{DType::fp32, DType::fp32}, {DType::fp32, DType::fp32, true},
                                   {DType::bf16, DType::bf16}, {DType::bf16, DType::fp32},
                                   {DType::fp16, DType::fp16}, {DType::fp16, DType::fp32},
                                   {DType::fp64, DType::fp64}};
// Operands of each type alone.
const std::vector<Types> kOperands = {{DType::fp32, DType::fp32},
                                      {DType::fp32, DType::fp32, true},
                                      {DType::bf16, DType::bf16},
                                      {DType::fp16, DType::fp16},
                                      {DType::fp64, DType::fp64}};

// ThreadSanitizer looks at the barriers of a kernel, and the virtual GPU at streams and launches. Both are the same for
// all shapes: they see each kernel at a few.
#if defined(ISOBAR_SANITIZED_THREAD) || defined(ISOBAR_ON_VIRTUAL_GPU)
constexpr bool kFewShapes = true;
#else
constexpr bool kFewShapes = false;
#endif

Case with_types(Case c, const Types& types, bool on_cpu = true) {
  c.on_cpu = on_cpu;
  c.dtype = types.in;
  c.out_dtype = types.out;
  c.tf32 = types.tf32;
  return c;
}

// Every kernel, stride and padding is here, in 1 to 3 dimensions, with extents that do and do not divide.
const std::vector<Case> kShapes = {
    {"pointwise", {2, 5, 3, {{}, {}, axis(7, 1, 1, 0, 0)}}},
    {"1-D, kernel 3", {3, 3, 8, {{}, {}, axis(9, 3, 1, 1, 1)}}},
    {"1-D, kernel 5, stride 3, unequal padding", {1, 1, 5, {{}, {}, axis(11, 5, 3, 2, 0)}}},
    {"1-D, kernel 1, stride 2", {2, 3, 2, {{}, {}, axis(7, 1, 2, 0, 0)}}},
    {"1-D, wrapped", {2, 3, 4, {{}, {}, axis(6, 3, 1, 1, 1, Edge::wrap)}}},
    {"1-D, wrapped, stride 2", {2, 3, 4, {{}, {}, axis(8, 4, 2, 1, 1, Edge::wrap)}}},
    {"1-D, wrapped, an odd length and stride 2", {1, 2, 3, {{}, {}, axis(7, 4, 2, 2, 1, Edge::wrap)}}},
    {"1-D, wrapped, a kernel longer than the axis", {1, 2, 3, {{}, {}, axis(3, 5, 1, 2, 2, Edge::wrap)}}},
    {"2-D, kernel 3", {2, 8, 5, {{}, axis(6, 3, 1, 1, 1), axis(5, 3, 1, 1, 1)}}},
    {"2-D, kernel 3 x 5, strides 2 x 1", {1, 5, 8, {{}, axis(7, 3, 2, 0, 1), axis(6, 5, 1, 2, 2)}}},
    {"2-D, zeros x wrap", {2, 4, 6, {{}, axis(4, 3, 1, 1, 1), axis(6, 3, 1, 1, 1, Edge::wrap)}}},
    {"2-D, no padding", {1, 6, 7, {{}, axis(5, 3, 1, 0, 0), axis(8, 3, 2, 0, 0)}}},
    {"3-D, kernel 4, stride 2", {2, 4, 9, {axis(4, 4, 2, 1, 1), axis(6, 4, 2, 1, 1), axis(4, 4, 2, 1, 1)}}},
    {"3-D, extents that do not divide", {1, 3, 5, {axis(5, 3, 2, 1, 1), axis(3, 4, 3, 1, 2), axis(7, 3, 2, 1, 0)}}},
    {"3-D, one voxel", {3, 5, 7, {axis(1, 3, 1, 1, 1), axis(1, 3, 1, 1, 1), axis(1, 3, 1, 1, 1)}}},
    {"3-D, to one voxel", {3, 9, 5, {axis(2, 4, 2, 1, 1), axis(2, 4, 2, 1, 1), axis(2, 4, 2, 1, 1)}}},
    {"padding beyond the kernel", {1, 2, 2, {{}, axis(3, 1, 1, 2, 1), axis(4, 2, 1, 3, 3)}}},
};

std::vector<Case> all_of(const std::vector<Case>& shapes) {
  std::vector<Case> all;
  for (const Types types : kTypes)
    for (const Case& shape : shapes) all.push_back(with_types(shape, types));
  return all;
}

}  // namespace

TEST_CASE("conv: windows hold each product of an axis once, and each result") {
  using Products = std::map<std::array<std::int64_t, 3>, int>;  // of (i, o, k)
  for (const Edge edge : {Edge::zeros, Edge::wrap})
    for (std::int64_t in = 1; in <= 7; ++in)
      for (std::int64_t kernel = 1; kernel <= 5; ++kernel)
        for (std::int64_t stride = 1; stride <= 3; ++stride)
          for (std::int64_t pad = 0; pad <= 3; ++pad)
            for (std::int64_t behind = 0; behind <= 2; ++behind) {
              if (in + pad + behind < kernel) continue;
              const ConvAxis a = axis(in, kernel, stride, pad, behind, edge);
              if (edge == Edge::wrap && (pad > in || a.reach() > 2 * in)) continue;
              Products wanted, of_fwd, of_bwd_data;
              for (std::int64_t o = 0; o < a.out; ++o)
                for (std::int64_t k = 0; k < kernel; ++k)
                  if (const std::int64_t i = met(a, o, k); i >= 0) ++wanted[{i, o, k}];
              const ConvWindowAxis fwd = conv_fwd_window({1, 1, 1, {{}, {}, a}}).axes[2];
              for (std::int64_t o = 0; o < fwd.results; ++o)
                for (std::int64_t t = 0; t < fwd.taps; ++t)
                  if (const std::int64_t i = fwd.position(o, t); i >= 0)
                    ++of_fwd[{i, fwd.result_at(o), fwd.kernel_of(t)}];
              std::vector<int> made(static_cast<std::size_t>(in));
              for (std::int64_t c = 0; c < stride; ++c) {
                const ConvWindowAxis w = conv_bwd_data_axis(a, c);
                for (std::int64_t j = 0; j < w.results; ++j) {
                  ++made.at(static_cast<std::size_t>(w.result_at(j)));
                  for (std::int64_t t = 0; t < w.taps; ++t)
                    if (const std::int64_t o = w.position(j, t); o >= 0)
                      ++of_bwd_data[{w.result_at(j), o, w.kernel_of(t)}];
                }
              }
              INFO(in << " -> " << a.out << ", k" << kernel << " s" << stride << " p" << pad << ", " << behind
                      << (edge == Edge::wrap ? " wrapped" : ""));
              REQUIRE(of_fwd == wanted);
              REQUIRE(of_bwd_data == wanted);
              REQUIRE(made == std::vector<int>(static_cast<std::size_t>(in), 1));
            }
}

TEST_CASE("conv: products of every shape and dtype") {
  for (const Case& c : all_of(kShapes)) run_all(c);
}

TEST_CASE("conv applies bias and activation, and adds to gradients") {
  for (const Types types : kTypes)
    for (const Pointwise activation : {Pointwise::none, Pointwise::relu, Pointwise::leaky_relu, Pointwise::tanh})
      for (const bool has_bias : {false, true})
        for (const std::int64_t channels : {2, 49}) {
          Case c =
              with_types({"epilogue", {2, channels, channels, {{}, axis(3, 3, 1, 1, 1), axis(4, 3, 2, 1, 1)}}}, types);
          c.has_bias = has_bias;
          c.activation = activation;
          run_fwd(c);
          run_bwd_data(c);
          if (activation != Pointwise::none || has_bias) continue;
          c.mode = Grad::accumulate;
          run_bwd_data(c);
          run_bwd_weight(c);
        }
}

TEST_CASE("conv adds to the gradient of a class of elements that no tap reaches, and clears it") {
  for (const Types types : kTypes)
    for (const Grad mode : {Grad::overwrite, Grad::accumulate})
      for (const std::int64_t channels : {1, 50}) {
        Case c = with_types({"no taps", {2, channels, 3, {{}, {}, axis(7, 2, 3, 0, 0)}}}, types);
        c.mode = mode;
        c.has_bias = mode == Grad::overwrite;
        run_bwd_data(c);
        if (channels > 1 || mode == Grad::accumulate || types.out != types.in) continue;
        c.shape.out_channels =
            types.in == DType::fp32 && !types.tf32 ? 1100 : 16400;  // where others have several parts
        c.shape.batch = 1;
        run_bwd_data(c);
      }
}

TEST_CASE("conv: channels around the panels, and few of them") {
  for (const std::int64_t in : {1, 8, 48, 65})
    for (const std::int64_t out : {1, 5, 48, 64})
      for (const Types& types : kOperands)
        run_all(with_types({"channels", {1, in, out, {{}, axis(3, 3, 1, 1, 1), axis(4, 3, 1, 1, 1)}}}, types));
}

TEST_CASE("conv sums in several passes over the terms") {
  // More terms than a pass of the CPU takes, and than a part of the GPU; odd, so that pairs cross from tap to tap.
  for (const Types types : kTypes) {
    run_all(with_types({"deep", {1, 131, 67, {{}, axis(2, 3, 1, 1, 1), axis(3, 3, 1, 1, 1)}}}, types));
    run_bwd_weight(with_types({"long", {3, 3, 2, {{}, {}, axis(700, 3, 1, 1, 1)}}}, types));
  }
}

TEST_CASE("conv splits many rows and many columns over threads") {
  run_all({"rows", {4, 6, 20, {{}, axis(12, 3, 1, 1, 1), axis(12, 3, 1, 1, 1)}}});
  run_all({"columns", {1, 6, 300, {{}, {}, axis(4, 3, 1, 1, 1)}}});
}

// Shapes whose results and terms are several tiles and steps of the kernels that multiply by tensor cores, and no
// multiples of them. Tiles have 128 rows and 64 or 128 columns; steps have 32 terms, of tf32 16.
const std::vector<Case> kTiled = {
    {"three tiles of rows", {3, 16, 72, {{}, axis(9, 3, 1, 1, 1), axis(11, 3, 1, 1, 1)}}},
    {"two by two tiles", {1, 24, 136, {axis(5, 3, 2, 1, 0), axis(9, 3, 1, 0, 1), axis(9, 2, 1, 1, 0)}}},
    {"two by two tiles of dx", {1, 136, 40, {{}, axis(12, 3, 1, 1, 1), axis(12, 2, 1, 0, 1)}}},
    {"several taps a step", {1, 8, 8, {{}, axis(7, 5, 2, 2, 3), axis(20, 3, 1, 1, 1)}}},
    {"wrapped", {2, 40, 96, {{}, axis(5, 3, 1, 1, 1, Edge::wrap), axis(6, 4, 2, 1, 1, Edge::wrap)}}},
    {"wrapped, an odd length and stride 2", {2, 16, 24, {{}, axis(7, 4, 2, 2, 1, Edge::wrap), axis(9, 3, 1, 2, 0)}}},
    {"stride 3, padding behind", {1, 16, 72, {axis(5, 4, 3, 0, 2), axis(6, 1, 2, 0, 0), axis(7, 3, 3, 2, 1)}}},
    {"four channels", {1, 4, 72, {axis(6, 4, 2, 1, 1), axis(6, 4, 2, 1, 1), axis(8, 4, 2, 1, 1)}}},
    {"to five channels", {1, 72, 5, {{}, axis(6, 4, 2, 1, 1), axis(24, 4, 2, 1, 1)}}},
    {"one channel", {1, 1, 130, {{}, axis(9, 3, 1, 1, 1), axis(16, 3, 1, 1, 1)}}},
    {"a window beyond the table of taps", {1, 2, 3, {{}, {}, axis(1030, 1025, 1, 0, 2)}}},
};

TEST_CASE("conv over tiles and steps that do not divide") {
  for (const Case& shape : kTiled)
    for (const Types& types : kOperands) {
      if (kFewShapes && &shape > &kTiled[2]) continue;
      const bool is_told_by_bf16 = types.in == DType::fp16 && &shape != kTiled.data();  // one code
      if (types.in != DType::fp64 && !is_told_by_bf16) run_all(with_types(shape, types, /*on_cpu=*/false));
    }
}

TEST_CASE("conv over tiles, with bias and activation, and added to gradients") {
  for (const Types& types : kTypes) {
    if (types.in == DType::fp64) continue;
    Case c = with_types({"tiles", {1, 72, 136, {{}, axis(5, 3, 1, 1, 1), axis(27, 2, 1, 1, 0)}}}, types, false);
    c.has_bias = true;
    c.activation = Pointwise::tanh;
    run_fwd(c);
    run_bwd_data(c);
    c.has_bias = false;
    c.activation = Pointwise::none;
    c.mode = Grad::accumulate;
    run_bwd_data(c);
    run_bwd_weight(c);
  }
}

TEST_CASE("conv sums in parts of the terms by blocks of their own, some rows at a time") {
  for (const Types& types : kOperands) {
    if (types.in == DType::fp64 || types.in == DType::fp16) continue;  // fp16 is bf16's code
    Case c = with_types({"parts", {1, 1832, 8, {{}, axis(12, 3, 1, 1, 1), axis(11, 3, 1, 1, 1)}}}, types, false);
    c.has_bias = true;
    c.activation = Pointwise::relu;
    run_fwd(c);
    std::swap(c.shape.in_channels, c.shape.out_channels);
    run_bwd_data(c);
    run_bwd_weight(with_types({"parts", {2, 8, 16, {{}, {}, axis(2100, 3, 1, 1, 1)}}}, types, false));
  }
}

TEST_CASE("conv_bwd_data sums in parts where a window has each tap three times") {
  // 6 taps of 550 channels: four parts by FMA, where 2 taps have two. The workspace holds the sums of all.
  for (const Types& types : kOperands)
    run_bwd_data(with_types({"images", {1, 3, 550, {{}, {}, axis(7, 4, 2, 2, 1, Edge::wrap)}}}, types));
}

TEST_CASE("conv of operands that are not aligned") {
  for (const Types& types : kOperands) {
    Case c = with_types({"not aligned", {1, 16, 72, {{}, axis(9, 3, 1, 1, 1), axis(16, 3, 1, 1, 1)}}}, types);
    c.shift = 1;
    run_all(c);
  }
}

TEST_CASE("conv without samples") {
  for (const Types types : kTypes)
    for (const Grad mode : {Grad::overwrite, Grad::accumulate}) {
      Case c = with_types({"empty", {0, 3, 5, {{}, axis(4, 3, 1, 1, 1), axis(4, 3, 2, 1, 1)}}}, types);
      c.mode = mode;
      run_all(c);
    }
}

TEST_CASE("conv_bwd_data and conv_bwd_weight are the gradients of conv_fwd") {
  const ConvShape s{2, 3, 4, {axis(3, 2, 1, 0, 1), axis(4, 3, 2, 1, 1), axis(4, 3, 1, 1, 1, Edge::wrap)}};
  const Values x = random_of(s.x(), DType::fp64, 1), weight = random_of(s.weight(), DType::fp64, 2);
  const Values dy = random_of(s.y(), DType::fp64, 3);
  const auto loss = [&](const Values& x_moved, const Values& weight_moved) {
    Workbench bench({});
    const ConvFwdArgs a = cases::conv_fwd({.shape = s, .dtype = DType::fp64, .out_dtype = DType::fp64},
                                          bench.operands({{"x", x_moved}, {"weight", weight_moved}}));
    cpu::conv_fwd(a);
    return dot(bench.read({a.y}), dy);
  };
  Workbench bench({});
  const ConvBwdDataArgs data = cases::conv_bwd_data({.shape = s, .dtype = DType::fp64, .out_dtype = DType::fp64},
                                                    bench.operands({{"dy", dy}, {"weight", weight}}));
  cpu::conv_bwd_data(data);
  check_gradient("dx", x, bench.read({data.dx}), [&](const Values& moved) { return loss(moved, weight); });
  const ConvBwdWeightArgs of_weight =
      cases::conv_bwd_weight({.shape = s, .dtype = DType::fp64}, bench.operands({{"x", x}, {"dy", dy}}));
  cpu::conv_bwd_weight(of_weight);
  check_gradient("dweight", weight, bench.read({of_weight.dweight}),
                 [&](const Values& moved) { return loss(x, moved); });
}

namespace {

// Rows [first, first + count) of the first axis of [rows, row].
Values rows_of(const Values& all, std::int64_t rows, std::int64_t first, std::int64_t count) {
  const std::int64_t row = all.size() / rows;
  return {all.dtype, {all.v.begin() + first * row, all.v.begin() + (first + count) * row}};
}

Values fwd_of(Workbench& bench, const ConvShape& s, const Types& types, const Values& x, const Values& weight,
              const Values& bias) {
  const ConvFwdArgs a = cases::conv_fwd(
      {.shape = s, .dtype = types.in, .out_dtype = types.out, .activation = Pointwise::leaky_relu, .tf32 = types.tf32},
      bench.operands({{"x", x}, {"weight", weight}, {"bias", bias}}));
  ISOBAR_RUN(bench.device(), conv_fwd, a);
  return bench.read({a.y});
}

Values bwd_data_of(Workbench& bench, const ConvShape& s, const Types& types, const Values& dy, const Values& weight) {
  const ConvBwdDataArgs a =
      cases::conv_bwd_data({.shape = s, .dtype = types.in, .out_dtype = types.out, .tf32 = types.tf32},
                           bench.operands({{"dy", dy}, {"weight", weight}}));
  ISOBAR_RUN(bench.device(), conv_bwd_data, a);
  return bench.read({a.dx});
}

// Rounded to 16 bits, sums in different orders are nearly always equal.
Types with_unrounded_sums(const Types& types) {
  return {types.in, accumulator_of(types.in), types.tf32};
}

}  // namespace

// All that is asked of the kernels where a volume is divided: what splits it brings the halo.
TEST_CASE("conv of a slab with its halo gives the rows of the whole, bit for bit") {
  struct Slab {
    ConvAxis cut;  // the axis that is cut
    std::int64_t first, count;
  };
  const std::vector<Slab> slabs = {{axis(9, 3, 1, 1, 1), 0, 4},
                                   {axis(9, 3, 1, 1, 1), 3, 4},
                                   {axis(9, 3, 1, 1, 1), 5, 4},
                                   {axis(10, 4, 2, 1, 1), 0, 2},
                                   {axis(10, 4, 2, 1, 1), 2, 3}};
  struct Sizes {
    std::int64_t in, out, width = 4;
  };
  // Also terms in several parts; and rows that are two tiles, computed by wide blocks of tensor cores, of which the
  // slab's are one, computed by narrow ones.
  const std::vector<Sizes> sizes = {{5, 7}, {60, 50}, {150, 3}, {8, 72}, {640, 8}, {16, 136, 6}, {136, 16, 6}};
  for (const Types& operands : kOperands)
    for (const auto& [in, out, width] : sizes)
      for (const Slab& slab : slabs) {
        const Types types = with_unrounded_sums(operands);
        const bool once = in > 600 || width > 4;
        if (once && (&slab != &slabs[1] || types.in == DType::fp64)) continue;
        // The first sizes are cut everywhere; the others once with stride 1 and once with 2. fp16 is bf16's code.
        const bool everywhere = in == 5;
        if (kFewShapes && (!everywhere || &slab != &slabs[1])) continue;
        if (!everywhere && (types.in == DType::fp16 || (&slab != &slabs[1] && &slab != &slabs[4]))) continue;
        const DType dtype = types.in;
        const ConvShape whole{1, in, out, {slab.cut, axis(3, 3, 1, 1, 1), axis(width, 3, 1, 1, 1)}};
        const ConvAxis& cut = slab.cut;
        INFO(name_of(dtype) << (types.tf32 ? ", tf32, " : ", ") << in << " -> " << out << " channels, rows "
                            << slab.first << " to " << slab.first + slab.count - 1 << ", stride " << cut.stride);
        const Values x = random_of(whole.x(), dtype, 1), weight = random_of(whole.weight(), dtype, 2, in);
        const Values bias = random_of(out, accumulator_of(dtype), 3), dy = random_of(whole.y(), dtype, 4);
        // What the slab's windows read of x, and the padding that is left at its beginning.
        const std::int64_t begin = slab.first * cut.stride - cut.pad, first = std::max<std::int64_t>(begin, 0);
        const std::int64_t end = std::min(begin + (slab.count - 1) * cut.stride + cut.kernel, cut.in);
        ConvShape part = whole;
        part.axes[0] = {end - first, slab.count, cut.kernel, cut.stride, first - begin};
        on_devices(
            all_devices(), {dtype},
            [&](Workbench& bench) {
              const Values y = fwd_of(bench, whole, types, x, weight, bias);
              const Values y_part = fwd_of(bench, part, types, rows_of(x, cut.in, first, end - first), weight, bias);
              CHECK(y_part.v == rows_of(y, cut.out, slab.first, slab.count).v);
            },
            kMultiplies);
        if (cut.stride > 1) continue;
        // Rows [first, end) of dx need those of dy that read them.
        const std::int64_t o_first = std::max<std::int64_t>(first + cut.pad - cut.kernel + 1, 0);
        const std::int64_t o_end = std::min(end + cut.pad, cut.out);
        part.axes[0] = {end - first, o_end - o_first, cut.kernel, 1, first + cut.pad - o_first};
        on_devices(
            all_devices(), {dtype},
            [&](Workbench& bench) {
              const Values dx = bwd_data_of(bench, whole, types, dy, weight);
              const Values dx_part =
                  bwd_data_of(bench, part, types, rows_of(dy, cut.out, o_first, o_end - o_first), weight);
              CHECK(dx_part.v == rows_of(dx, cut.in, first, end - first).v);
            },
            kMultiplies);
      }
}

namespace {

// y and dx of sample 1 alone have the bits that they have in the batch. The terms of dx are as many as those of y.
void check_a_sample_alone(const ConvShape& all, const Types& types) {
  const DType dtype = types.in;
  INFO(name_of(dtype) << (types.tf32 ? ", tf32, " : ", ") << all.batch << " samples, " << all.in_channels
                      << " channels");
  ConvShape back = all;
  std::swap(back.in_channels, back.out_channels);
  const auto alone = [](ConvShape s) { return s.batch = 1, s; };
  const auto sample = [&](const Values& values) { return rows_of(values, all.batch, 1, 1); };
  const Values x = random_of(all.x(), dtype, 1), dy = random_of(back.y(), dtype, 4);
  const Values weight = random_of(all.weight(), dtype, 2, all.in_channels);
  const Values bias = random_of(all.out_channels, accumulator_of(dtype), 3);
  on_devices(
      all_devices(), {dtype},
      [&](Workbench& bench) {
        const Values y = fwd_of(bench, all, types, x, weight, bias);
        CHECK(fwd_of(bench, alone(all), types, sample(x), weight, bias).v == sample(y).v);
        const Values dx = bwd_data_of(bench, back, types, dy, weight);
        CHECK(bwd_data_of(bench, alone(back), types, sample(dy), weight).v == sample(dx).v);
      },
      kMultiplies);
}

}  // namespace

TEST_CASE("conv gives a sample the same bits in every batch") {
  const ConvShape small{3, 20, 50, {{}, axis(5, 3, 1, 1, 1), axis(4, 3, 2, 1, 1)}};
  for (const Types& types : kTypes) check_a_sample_alone(small, types);
  if (kFewShapes) return;
  // A sample is one tile of rows, and the batch has two. The terms are several parts: more than kConvTerms by FMA, more
  // than kTensorCoreSum on tensor cores. A rule that cuts terms by the number of tiles gives the batch other parts.
  const ConvAxis eight = axis(8, 3, 1, 1, 1), five_taps = axis(8, 5, 1, 2, 2);
  const ConvShape by_fma{2, 400, 50, {{}, eight, eight}}, by_tensor_cores{3, 560, 8, {{}, five_taps, five_taps}};
  check_a_sample_alone(by_fma, {DType::fp32, DType::fp32});
  check_a_sample_alone(by_fma, {DType::fp64, DType::fp64});
  check_a_sample_alone(by_tensor_cores, {DType::bf16, DType::fp32});  // the rule of all types
}

TEST_CASE("conv in tf32 rounds its operands on a GPU, in fp32, and nowhere else") {
  const ConvShape s{1, 16, 24, {{}, {}, axis(20, 3, 1, 1, 1)}};
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    const Values x = random_of(s.x(), dtype, 1), weight = random_of(s.weight(), dtype, 2),
                 dy = random_of(s.y(), dtype, 4);
    const Values bias = random_of(24, DType::fp32, 3);
    on_devices(
        all_devices(), {dtype},
        [&](Workbench& bench) {
          const auto outputs = [&](bool tf32) {
            const Types types{dtype, dtype, tf32};
            const ConvBwdWeightArgs a = cases::conv_bwd_weight({.shape = s, .dtype = dtype, .tf32 = tf32},
                                                               bench.operands({{"x", x}, {"dy", dy}}));
            ISOBAR_RUN(bench.device(), conv_bwd_weight, a);
            return std::array{fwd_of(bench, s, types, x, weight, bias).v, bwd_data_of(bench, s, types, dy, weight).v,
                              bench.read({a.dweight}).v};
          };
          const bool rounds = dtype == DType::fp32 && bench.device().kind != DeviceKind::cpu;
          const auto without = outputs(false), with = outputs(true);
          for (std::size_t i = 0; i < with.size(); ++i) CHECK((with[i] != without[i]) == rounds);
        },
        kMultiplies);
  }
}

namespace {

// The dimensions of the lesson's table: a convolution of the U-Net, or that whose data gradient one is.
ConvShape unet_layer(std::int64_t batch, std::int64_t in, std::int64_t in_channels, std::int64_t out_channels) {
  const ConvAxis halving = axis(in, 4, 2, 1, 1);
  return {batch, in_channels, out_channels, {halving, halving, halving}};
}

std::vector<std::int64_t> sizes_of(const ConvProduct& p) {
  return {p.m, p.n, p.k};
}

// To one decimal.
double flops_per_byte(const Cost& cost) {
  return std::round(10 * cost.flops / cost.bytes) / 10;
}

}  // namespace

TEST_CASE("the worked example of docs/learn/8_a_convolution.md") {
  const Values x{DType::fp32, {1, 2, 0, 1, 0, 1, 3, 2, 2, 0, 1, 1, 1, 3, 2, 0}};
  const Values weight{DType::fp32, {1, 0, -1, 2, 1, 0, 0, -1, 1}}, dy{DType::fp32, {1, 2, -1, 3}};
  const auto shape = [](const ConvAxis& rows, const ConvAxis& columns) {
    return ConvShape{1, 1, 1, {{}, rows, columns}};
  };
  const ConvAxis same = axis(4, 3, 1, 1, 1), halved = axis(4, 3, 2, 1, 0), halved_behind = axis(4, 3, 2, 0, 1);
  const ConvAxis wrapped = axis(4, 3, 1, 1, 1, Edge::wrap), inside = axis(4, 3, 1, 0, 0);
  for (const DeviceKind kind : wanted_devices(all_devices())) {
    INFO(name_of(kind));
    Workbench bench(Device{kind});
    const auto y_of = [&](const ConvShape& s) {
      const ConvFwdArgs a = cases::conv_fwd({.shape = s}, bench.operands({{"x", x}, {"weight", weight}}));
      ISOBAR_RUN(bench.device(), conv_fwd, a);
      return bench.read({a.y}).v;
    };
    using Numbers = std::vector<double>;
    CHECK(y_of(shape(same, same)) == Numbers{2, 6, 3, -1, -4, 3, 6, 7, 3, 0, -2, 6, 1, 6, 7, 5});
    CHECK(y_of(shape(same, wrapped)) == Numbers{4, 6, 3, -1, 1, 3, 6, 8, 7, 0, -2, 7, 2, 6, 7, 3});
    CHECK(y_of(shape(wrapped, wrapped)) == Numbers{1, 5, 6, 0, 1, 3, 6, 8, 7, 0, -2, 7, 3, 4, 8, 3});
    CHECK(y_of(shape(inside, inside)) == Numbers{3, 6, 0, -2});
    CHECK(y_of(shape(halved, halved)) == Numbers{2, 3, 3, -2});
    CHECK(y_of(shape(halved_behind, halved_behind)) == Numbers{3, 7, 6, 5});

    const ConvShape s = shape(halved, halved);
    CHECK(bwd_data_of(bench, s, {DType::fp32, DType::fp32}, dy, weight).v ==
          Numbers{1, 4, 2, 0, -1, 5, -2, -1, -1, 6, 3, 0, 1, -1, -3, 3});
    const ConvBwdWeightArgs a = cases::conv_bwd_weight({.shape = s}, bench.operands({{"x", x}, {"dy", dy}}));
    ISOBAR_RUN(bench.device(), conv_bwd_weight, a);
    CHECK(bench.read({a.dweight}).v == Numbers{3, 9, 5, 4, 2, 7, 11, 11, 2});
  }
}

TEST_CASE("the sizes and costs of docs/learn/8_a_convolution.md") {
  using Sizes = std::vector<std::int64_t>;
  const ConvShape down2 = unet_layer(8, 32, 64, 128), last = unet_layer(8, 64, 5, 128);
  CHECK(sizes_of(conv_fwd_product(down2)) == Sizes{32768, 128, 4096});
  CHECK(sizes_of(conv_bwd_data_product(down2)) == Sizes{32768, 64, 1024});
  CHECK(sizes_of(conv_bwd_weight_product(down2)) == Sizes{128, 4096, 32768});
  CHECK(sizes_of(conv_bwd_data_product(last)) == Sizes{262144, 5, 1024});

  const auto fwd = [](const ConvShape& s, DType dtype) {
    return flops_per_byte(conv_fwd_cost({.shape = s, .dtype = dtype, .out_dtype = dtype}));
  };
  CHECK(fwd(down2, DType::bf16) == 799.2);
  CHECK(fwd(unet_layer(8, 2, 512, 512), DType::bf16) == 8.0);
  CHECK(flops_per_byte(conv_bwd_data_cost({.shape = last, .dtype = DType::bf16, .out_dtype = DType::fp32})) == 196.8);
  const ConvAxis same = axis(128, 3, 1, 1, 1);
  CHECK(fwd({32, 1, 64, {{}, same, same}}, DType::fp32) == 4.4);
  CHECK(fwd({32, 64, 64, {{}, same, same}}, DType::fp32) == 143.9);
}

TEST_CASE("conv refuses what it cannot do") {
  const ConvShape good{1, 2, 3, {{}, {}, axis(5, 3, 1, 1, 1)}};
  const auto with = [&](auto change) {
    ConvFwdArgs a{.shape = good};
    change(a);
    return a;
  };
  std::vector<float> room(1000);
  for (const DeviceKind kind : wanted_devices(all_devices())) {
    const Device device{kind};
    const auto fwd = [&](const ConvFwdArgs& a) { ISOBAR_RUN(device, conv_fwd, a); };
    INFO(name_of(kind));
    CHECK_THROWS_WITH(fwd(with([](auto& a) { a.shape.axes[1].stride = 0; })),
                      "conv_fwd: no axis has 1 elements in, 1 out, a kernel of 1, a stride of 0 and a padding of 0");
    CHECK_THROWS_WITH(fwd(with([](auto& a) { a.shape.axes[2].out = 0; })),
                      "conv_fwd: no axis has 5 elements in, 0 out, a kernel of 3, a stride of 1 and a padding of 1");
    CHECK_THROWS_WITH(fwd(with([](auto& a) { a.shape.in_channels = 0; })),
                      "conv_fwd: bad sizes, 1 samples of 0 channels in and 3 out");
    CHECK_THROWS_WITH(
        fwd(with([](auto& a) { a.shape.axes[2] = {.in = 3, .out = 9, .kernel = 3, .pad = 4, .edge = Edge::wrap}; })),
        "conv_fwd: a wrapped axis of 3 elements is read from -4 to 6, more than its own length beyond an end");
    CHECK_THROWS_WITH(fwd(with([](auto& a) { a.shape.axes[0].in = std::int64_t{1} << 30; })),
                      "conv_fwd: a sample of x of 1073741824 x 1 x 5 x 2 elements has 2^31 or more");
    CHECK_THROWS_WITH(fwd(with([](auto& a) { a.shape.in_channels = a.shape.out_channels = 30000; })),
                      "conv_fwd: the weight of 1 x 1 x 3 x 900000000 elements has 2^31 or more");
    CHECK_THROWS_WITH(fwd(with([](auto& a) { a.out_dtype = DType::bf16; })),
                      "conv_fwd: cannot convolve fp32 into bf16");
    const ConvBwdDataArgs adds{.shape = good, .bias = room.data(), .mode = Grad::accumulate};
    CHECK_THROWS_WITH([&] { ISOBAR_RUN(device, conv_bwd_data, adds); }(),
                      "conv_bwd_data: bias and activation cannot be combined with accumulation");
    const ConvBwdWeightArgs integers{.shape = good, .dtype = DType::i32};
    CHECK_THROWS_WITH([&] { ISOBAR_RUN(device, conv_bwd_weight, integers); }(),
                      "conv_bwd_weight: cannot convolve i32 into fp32");
    if (kind == DeviceKind::cpu) continue;
    const ConvFwdArgs wide{.shape = good, .dtype = DType::fp64, .out_dtype = DType::fp64};
    CHECK_THROWS_WITH(fwd(wide), "conv_fwd: fp64 is not a CUDA dtype; use fp32, bf16 or fp16, or the CPU");
  }
}

}  // namespace isobar::testing
