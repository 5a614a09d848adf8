// attention: forward and backward against the formulas, at every head size, at token counts around the blocks, with
// strides, dropout, scores that grow or lie far from zero, and NaN; gradients by finite differences. Blocks of a whole:
// their masks, and keys that come in parts. Intervals of keys. Causal, with queries that see no key of a block. In TF32
// where that is asked for, and nowhere else.
#include "kernels/cases/attention.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/common/check.h"
#include "kernels/common/rng.h"
#include "kernels/cpu/isa.h"
#include "tests/harness/kernel_testing.h"
#include "tests/harness/tensor_core.h"

namespace isobar::testing {
namespace {

constexpr double kUnwritten = std::numeric_limits<double>::quiet_NaN();

struct Case {
  AttentionShape shape;
  DType dtype = DType::fp32;
  bool causal = false, tf32 = false;
  AttentionWindow window = {};
  AttentionDropout dropout = {};
  std::int64_t gap = 0;                 // elements between the heads of neighbouring tokens
  bool wide = false;                    // o and the gradients in the accumulator's type
  bool adds = false;                    // the gradients are added to what is there
  Values key_begin = {}, key_end = {};  // [B, Tq], of the whole; empty: not given

  std::int64_t stride() const { return shape.heads * shape.head_size + gap; }
  std::int64_t pairs() const { return shape.batch * shape.heads; }
  DType out_dtype() const { return wide ? accumulator_of(dtype) : dtype; }
  double scale() const { return cases::attention_scale(shape); }
};

// The tokens [B, T, NH, HS] of an operand, at the case's stride.
struct Layout {
  const Case& of;
  std::int64_t tokens;

  std::int64_t size() const { return of.shape.batch * tokens * of.stride(); }
  std::int64_t at(std::int64_t pair, std::int64_t token, std::int64_t c) const {
    const auto [b, h] = std::array{pair / of.shape.heads, pair % of.shape.heads};
    return (b * tokens + token) * of.stride() + h * of.shape.head_size + c;
  }
};
Layout queries(const Case& a) {
  return {a, a.shape.q_tokens};
}
Layout keys(const Case& a) {
  return {a, a.shape.kv_tokens};
}

// In every dtype, and in fp32 that a GPU may round to TF32.
std::vector<Case> in_every_precision(const Case& a) {
  std::vector<Case> cases;
  for (const DType dtype : kFloating) {
    cases.push_back(a);
    cases.back().dtype = dtype;
  }
  cases.push_back(cases.front());
  cases.back().tf32 = true;
  return cases;
}

// Normal values; NaN between the tokens, where nothing may be read.
Values random_tokens(const Layout& layout, DType dtype, std::uint64_t seed, double size = 1) {
  const Values random = random_values(layout.size(), dtype, seed, size);
  Values x = constant_values(layout.size(), dtype, kUnwritten);
  for (std::int64_t pair = 0; pair < layout.of.pairs(); ++pair)
    for (std::int64_t t = 0; t < layout.tokens; ++t)
      for (std::int64_t c = 0; c < layout.of.shape.head_size; ++c)
        x[layout.at(pair, t, c)] = random[layout.at(pair, t, c)];
  return x;
}

struct Inputs {
  Values q, k, v, d_o;
};
Inputs inputs_of(const Case& a) {
  return {random_tokens(queries(a), a.dtype, 1), random_tokens(keys(a), a.dtype, 2, 1.5),
          random_tokens(keys(a), a.dtype, 3), random_tokens(queries(a), a.dtype, 4)};
}

// The index in the whole of element (i, j) of P.
std::int64_t index_of(const Case& a, std::int64_t pair, std::int64_t i, std::int64_t j) {
  const AttentionWindow& w = a.window;
  const auto total = [](const Span& span, std::int64_t count) { return span.total == 0 ? count : span.total; };
  const std::int64_t b = w.samples.first + pair / a.shape.heads * w.samples.step;
  const std::int64_t h = w.heads.first + pair % a.shape.heads;
  return ((b * total(w.heads, a.shape.heads) + h) * total(w.queries, a.shape.q_tokens) + w.queries.first + i) *
             total(w.keys, a.shape.kv_tokens) +
         w.keys.first + j;
}

double keep_factor(const Case& a, std::int64_t pair, std::int64_t i, std::int64_t j) {
  if (a.dropout.p == 0) return 1;
  const std::int64_t index = index_of(a, pair, i, j);
  const bool dropped =
      random_bits(a.dropout.seed, a.dropout.stream, static_cast<std::uint64_t>(index)) < drop_threshold(a.dropout.p);
  return dropped ? 0 : 1 / (1 - static_cast<double>(a.dropout.p));
}

// A number as a product takes it; the oracle's does not round it.
template <class Real>
Real in_tf32(Arithmetic<Real> math, Real value) {
  return math.is_oracle ? value : static_cast<Real>(testing::in_tf32(static_cast<float>(value)));
}

bool is_seen(const Case& a, std::int64_t pair, std::int64_t i, std::int64_t j) {
  const std::int64_t key = a.window.keys.first + j, query = pair / a.shape.heads * a.shape.q_tokens + i;
  if (a.key_begin.size() > 0 && static_cast<double>(key) < a.key_begin[query]) return false;
  if (a.key_end.size() > 0 && static_cast<double>(key) >= a.key_end[query]) return false;
  return !a.causal || key <= a.window.queries.first + i;
}
bool sees_any(const Case& a, std::int64_t pair, std::int64_t i) {
  for (std::int64_t j = 0; j < a.shape.kv_tokens; ++j)
    if (is_seen(a, pair, i, j)) return true;
  return false;
}

// Those of keys that the query does not see are -inf.
template <class Real>
std::vector<Real> scores_of(Arithmetic<Real> math, const Case& a, const Inputs& x, std::int64_t pair, std::int64_t i,
                            bool rounds) {
  const auto operand = [&](double value) {
    return a.tf32 && rounds ? in_tf32(math, static_cast<Real>(value)) : static_cast<Real>(value);
  };
  std::vector<Real> scores;
  for (std::int64_t j = 0; j < a.shape.kv_tokens; ++j) {
    if (!is_seen(a, pair, i, j)) {
      scores.push_back(-std::numeric_limits<Real>::infinity());
      continue;
    }
    Real s = 0;
    for (std::int64_t c = 0; c < a.shape.head_size; ++c)
      s += operand(x.q[queries(a).at(pair, i, c)]) * operand(x.k[keys(a).at(pair, j, c)]);
    scores.push_back(s * static_cast<Real>(a.scale()));
  }
  return scores;
}

// o, lse. With `rounds_p` P is rounded before it meets V, as tensor cores need it: to the dtype, or with tf32 both are.
template <class Real>
std::array<std::vector<Real>, 2> naive_fwd(Arithmetic<Real> math, const Case& a, const Inputs& x, bool rounds_p) {
  std::array<std::vector<Real>, 2> out;
  auto& [o, lse] = out;
  o.assign(static_cast<std::size_t>(queries(a).size()), static_cast<Real>(kUnwritten));
  const auto rounded = [&](Real value) {
    return !rounds_p ? value : a.tf32 ? in_tf32(math, value) : math.stored(value, a.dtype);
  };
  for (std::int64_t pair = 0; pair < a.pairs(); ++pair)
    for (std::int64_t i = 0; i < a.shape.q_tokens; ++i) {
      std::vector<Real> p = scores_of(math, a, x, pair, i, rounds_p);
      const bool sees_one = sees_any(a, pair, i);
      const Real most = sees_one ? *std::max_element(p.begin(), p.end()) : Real{0};
      Real sum = 0;
      for (Real& value : p) sum += value = std::exp(value - most);
      lse.push_back(most + std::log(sum));
      for (std::int64_t j = 0; j < a.shape.kv_tokens; ++j) {
        Real& weight = p[static_cast<std::size_t>(j)];
        weight = rounded(weight * static_cast<Real>(keep_factor(a, pair, i, j)));
      }
      for (std::int64_t c = 0; c < a.shape.head_size; ++c) {
        Real total = 0;
        for (std::int64_t j = 0; j < a.shape.kv_tokens; ++j) {
          const Real v = static_cast<Real>(x.v[keys(a).at(pair, j, c)]);
          total += p[static_cast<std::size_t>(j)] * (a.tf32 ? rounded(v) : v);
        }
        o[static_cast<std::size_t>(queries(a).at(pair, i, c))] = sees_one ? total / sum : Real{0};
      }
    }
  return out;
}

// dq, dk, dv
template <class Real>
std::array<std::vector<Real>, 3> naive_bwd(Arithmetic<Real> math, const Case& a, const Inputs& x, const Values& o,
                                           const Values& lse, bool rounds_p) {
  std::array<std::vector<Real>, 3> out;
  auto& [dq, dk, dv] = out;
  dq.assign(static_cast<std::size_t>(queries(a).size()), static_cast<Real>(kUnwritten));
  for (auto* gradient : {&dk, &dv})
    gradient->assign(static_cast<std::size_t>(keys(a).size()), static_cast<Real>(kUnwritten));
  const auto rounded = [&](Real value) {
    return !rounds_p ? value : a.tf32 ? in_tf32(math, value) : math.stored(value, a.dtype);
  };
  const auto operand = [&](double value) {
    return a.tf32 ? rounded(static_cast<Real>(value)) : static_cast<Real>(value);
  };
  for (std::int64_t pair = 0; pair < a.pairs(); ++pair) {
    const auto q_at = [&](std::int64_t i, std::int64_t c) {
      return static_cast<std::size_t>(queries(a).at(pair, i, c));
    };
    const auto k_at = [&](std::int64_t j, std::int64_t c) { return static_cast<std::size_t>(keys(a).at(pair, j, c)); };
    for (std::int64_t c = 0; c < a.shape.head_size; ++c) {
      for (std::int64_t j = 0; j < a.shape.kv_tokens; ++j) dk[k_at(j, c)] = dv[k_at(j, c)] = 0;
      for (std::int64_t i = 0; i < a.shape.q_tokens; ++i) dq[q_at(i, c)] = 0;
    }
    for (std::int64_t i = 0; i < a.shape.q_tokens; ++i) {
      const std::vector<Real> scores = scores_of(math, a, x, pair, i, rounds_p);
      Real delta = 0;
      for (std::int64_t c = a.shape.head_size; c-- > 0;)  // another order than dP: else they cancel exactly at Tk = 1
        delta += static_cast<Real>(x.d_o.v[q_at(i, c)]) * static_cast<Real>(o.v[q_at(i, c)]);
      for (std::int64_t j = 0; j < a.shape.kv_tokens; ++j) {
        if (!is_seen(a, pair, i, j)) continue;
        const Real p =
            std::exp(scores[static_cast<std::size_t>(j)] - static_cast<Real>(lse[pair * a.shape.q_tokens + i]));
        const Real keep = static_cast<Real>(keep_factor(a, pair, i, j));
        Real dp = 0;
        for (std::int64_t c = 0; c < a.shape.head_size; ++c)
          dp += operand(x.d_o.v[q_at(i, c)]) * operand(x.v.v[k_at(j, c)]);
        const Real ds = rounded(p * (dp * keep - delta)), dropped_p = rounded(p * keep);
        const Real scale = static_cast<Real>(a.scale());
        for (std::int64_t c = 0; c < a.shape.head_size; ++c) {
          dv[k_at(j, c)] += dropped_p * operand(x.d_o.v[q_at(i, c)]);
          dk[k_at(j, c)] += ds * scale * operand(x.q.v[q_at(i, c)]);
          dq[q_at(i, c)] += ds * scale * operand(x.k.v[k_at(j, c)]);
        }
      }
    }
  }
  return out;
}

std::vector<Given> given_keys(const Case& a) {
  std::vector<Given> given;
  if (a.key_begin.size() > 0) given.push_back({"key_begin", a.key_begin});
  if (a.key_end.size() > 0) given.push_back({"key_end", a.key_end});
  return given;
}

AttentionFwdArgs forward_arguments(const Case& a, const Inputs& x, Workbench& bench) {
  return cases::attention_fwd({.shape = a.shape,
                               .dtype = a.dtype,
                               .o_dtype = a.out_dtype(),
                               .scale = a.scale(),
                               .causal = a.causal,
                               .tf32 = a.tf32,
                               .window = a.window,
                               .dropout = a.dropout,
                               .q_stride = a.stride(),
                               .k_stride = a.stride(),
                               .v_stride = a.stride(),
                               .o_stride = a.stride()},
                              bench.operands({{"q", x.q}, {"k", x.k}, {"v", x.v}}, given_keys(a)));
}

// `gradients`: what dq, dk and dv are added to, or where they lie.
AttentionBwdArgs backward_arguments(const Case& a, const Inputs& x, const Values& o, const Values& lse,
                                    Workbench& bench, const std::vector<Given>& gradients = {}) {
  const Grad mode = a.adds ? Grad::accumulate : Grad::overwrite;
  std::vector<Given> more = gradients;
  for (const Given& keys : given_keys(a)) more.push_back(keys);
  return cases::attention_bwd(
      {.shape = a.shape,
       .dtype = a.dtype,
       .o_dtype = a.out_dtype(),
       .grad_dtype = a.out_dtype(),
       .scale = a.scale(),
       .causal = a.causal,
       .tf32 = a.tf32,
       .window = a.window,
       .dropout = a.dropout,
       .q_stride = a.stride(),
       .k_stride = a.stride(),
       .v_stride = a.stride(),
       .o_stride = a.stride(),
       .do_stride = a.stride(),
       .dq_stride = a.stride(),
       .dk_stride = a.stride(),
       .dv_stride = a.stride(),
       .dq_mode = mode,
       .dkv_mode = mode},
      bench.operands({{"q", x.q}, {"k", x.k}, {"v", x.v}, {"o", o}, {"lse", lse}, {"d_o", x.d_o}}, more));
}

struct Outputs {
  Values o, lse;
};
// Whether the yardstick rounds P and dS, as these kernels do. Of the CPU those that it uses now.
bool device_rounds_p(const Case& a, Device device) {
  if (device.kind == DeviceKind::cpu)
    return a.dtype == DType::bf16 && cpu::bf16_products() != cpu::Bf16Products::widened;
  return is_16_bit(a.dtype) || a.tf32;
}

Values rounded_values(const Expected& expected, DType dtype) {
  return values_of({expected.exact.begin(), expected.exact.end()}, dtype);
}

void run(const Case& a, const Inputs& x, const std::vector<DeviceKind>& devices = all_devices()) {
  INFO(name_of(a.dtype) << " B " << a.shape.batch << " NH " << a.shape.heads << " Tq " << a.shape.q_tokens << " Tk "
                        << a.shape.kv_tokens << " HS " << a.shape.head_size << " dropout " << a.dropout.p << " gap "
                        << a.gap << (a.causal ? ", causal, first query " : ", first query ") << a.window.queries.first
                        << ", first key " << a.window.keys.first << (a.tf32 ? ", tf32" : "") << (a.wide ? ", wide" : "")
                        << (a.adds ? ", adds" : "") << (a.key_begin.size() > 0 ? ", begins" : "")
                        << (a.key_end.size() > 0 ? ", ends" : ""));
  auto fwd = expected_by<bool>(
      [&](bool rounds_p) { return expected(a.dtype, [&](auto math) { return naive_fwd(math, a, x, rounds_p); }); });
  const std::vector<DeviceKind> here = wanted_devices(devices);
  if (here.empty()) return;
  const auto& exact = fwd[device_rounds_p(a, {.kind = here.front()})];
  const Outputs out{rounded_values(exact[0], a.out_dtype()), rounded_values(exact[1], accumulator_of(a.dtype))};
  const auto check_forward = [&](Workbench& bench) {
    const AttentionFwdArgs arguments = forward_arguments(a, x, bench);
    ISOBAR_RUN(bench.device(), attention_fwd, arguments);
    const auto& want = fwd[device_rounds_p(a, bench.device())];
    bench.check("o", {arguments.o}, want[0]);
    bench.check("lse", {arguments.lse}, want[1]);
  };
  on_devices(devices, {a.dtype}, check_forward, {.multiplies = true});

  // What the gradients are added to.
  const Values before[] = {random_tokens(queries(a), a.out_dtype(), 5), random_tokens(keys(a), a.out_dtype(), 6),
                           random_tokens(keys(a), a.out_dtype(), 7)};
  auto bwd = expected_by<bool>([&](bool rounds_p) {
    return expected(a.dtype, [&]<class Real>(Arithmetic<Real> math) {
      auto gradients = naive_bwd(math, a, x, out.o, out.lse, rounds_p);
      for (std::size_t g = 0; g < gradients.size() && a.adds; ++g)
        for (std::size_t i = 0; i < gradients[g].size(); ++i) gradients[g][i] += static_cast<Real>(before[g].v[i]);
      return gradients;
    });
  });
  const auto check_backward = [&](Workbench& bench) {
    const AttentionBwdArgs arguments =
        backward_arguments(a, x, out.o, out.lse, bench, {{"dq", before[0]}, {"dk", before[1]}, {"dv", before[2]}});
    ISOBAR_RUN(bench.device(), attention_bwd, arguments);
    const auto& want = bwd[device_rounds_p(a, bench.device())];
    bench.check("dq", {arguments.dq}, want[0]);
    bench.check("dk", {arguments.dk}, want[1]);
    bench.check("dv", {arguments.dv}, want[2]);
  };
  on_devices(devices, {a.dtype}, check_backward, {.any_thread_count = false, .multiplies = true});
}
void run(const Case& a, const std::vector<DeviceKind>& devices = all_devices()) {
  run(a, inputs_of(a), devices);
}

const std::vector<AttentionShape> kShapes = {{1, 1, 1, 1, 8},    {1, 1, 1, 63, 16},  {2, 1, 7, 2, 48},
                                             {1, 2, 63, 7, 40},  {2, 2, 65, 50, 48}, {1, 1, 49, 130, 64},
                                             {1, 1, 30, 65, 128}};

}  // namespace

TEST_CASE("attention at ragged token counts, in every precision") {
  for (const AttentionShape& shape : kShapes)
    for (const Case& a : in_every_precision({.shape = shape, .gap = 8 * (shape.q_tokens % 3)})) run(a);
}

TEST_CASE("attention at every head size") {
  for (std::int64_t head_size = 8; head_size <= 128; head_size += 8)
    run({.shape = {1, 1, 17, 19, head_size}, .dtype = head_size % 16 == 0 ? DType::fp32 : DType::bf16});
}

TEST_CASE("attention over several blocks and stages, at every head size that has kernels of its own") {
  for (const std::int64_t head_size : {32, 48, 64, 80, 96, 128}) {
    const DType dtype = head_size % 32 == 0 ? DType::bf16 : DType::fp16;
    run({.shape = {1, 1, 133, 70, head_size}, .dtype = dtype});
    run({.shape = {1, 1, 70, 133, head_size}, .dtype = dtype, .dropout = {.p = 0.2f, .seed = 7, .stream = 8}});
  }
}

TEST_CASE("attention over more keys, and more queries, than any ring of tiles holds") {
  for (const float p : {0.0f, 0.2f}) {
    const AttentionDropout dropout{.p = p, .seed = 7, .stream = 8};
    run({.shape = {1, 1, 5, 1190, 48}, .dtype = DType::bf16, .dropout = dropout});
    run({.shape = {1, 1, 5, 650, 128}, .dtype = DType::fp16, .dropout = dropout});
    run({.shape = {1, 1, 600, 5, 48}, .dtype = DType::fp16, .dropout = dropout});
    run({.shape = {1, 1, 600, 5, 128}, .dtype = DType::bf16, .dropout = dropout});
  }
}

TEST_CASE("attention in tf32, over several blocks and stages, at every head size that has kernels of its own") {
  for (const std::int64_t head_size : {32, 48, 64, 128}) {
    run({.shape = {1, 1, 133, 70, head_size}, .tf32 = true, .adds = head_size == 48});
    run({.shape = {1, 1, 70, 133, head_size}, .causal = true, .tf32 = true});
    run({.shape = {1, 1, 70, 133, head_size},
         .causal = head_size < 64,
         .tf32 = true,
         .window = {.queries = {67, 137}, .keys = {4, 137}},
         .dropout = {.p = 0.2f, .seed = 7, .stream = 8}});
  }
}

TEST_CASE("attention with dropout") {
  for (const Case& a : in_every_precision({.shape = {2, 2, 70, 101, 24},  // two blocks of queries, two of keys
                                           .dropout = {.p = 0.3f, .seed = 5, .stream = 1ull << 40},
                       .gap = 8}))
    run(a);
}

TEST_CASE("attention with dropout, of a block of the whole") {
  const AttentionWindow window{
      .samples = {.first = 1, .step = 3}, .heads = {1, 5}, .queries = {13, 90}, .keys = {7, 120}};
  for (const Case& a : in_every_precision(
           {.shape = {2, 2, 70, 101, 24}, .window = window, .dropout = {.p = 0.3f, .seed = 5, .stream = 6}}))
    run(a);
}

TEST_CASE("attention that is causal, at ragged token counts, in every precision") {
  std::vector<AttentionShape> shapes = kShapes;
  shapes[2] = {2, 3, 17, 9, 48};           // fewer sums of two terms of one size, whose errors vary a lot
  shapes.push_back({1, 1, 133, 200, 24});  // tiles of all kinds: all, some and none of their scores seen
  for (const AttentionShape& shape : shapes)
    for (const Case& a : in_every_precision({.shape = shape, .causal = true, .gap = 8 * (shape.q_tokens % 3)})) run(a);
}

TEST_CASE("attention that is causal, over several blocks and stages, at every head size that has kernels of its own") {
  for (const std::int64_t head_size : {32, 48, 64, 80, 96, 128}) {
    const DType dtype = head_size % 32 == 0 ? DType::bf16 : DType::fp16;
    run({.shape = {1, 1, 133, 200, head_size}, .dtype = dtype, .causal = true});
    run({.shape = {1, 1, 70, 133, head_size},
         .dtype = dtype,
         .causal = true,
         .window = {.queries = {67, 137}, .keys = {4, 137}},
         .dropout = {.p = 0.2f, .seed = 7, .stream = 8}});
  }
  for (const std::int64_t head_size : {32, 64, 128}) run({.shape = {1, 1, 70, 75, head_size}, .causal = true});
}

TEST_CASE("attention that is causal, of blocks before, on and behind the diagonal") {
  // The queries are 100 to 249 of 400. The keys: seen by all queries; all but one by all; some by every query, and all
  // by some; by none of the first 80 queries; by the last 10 only; by none at all.
  for (const std::int64_t first_key : {0, 31, 75, 180, 240, 250})
    for (const Case& a : in_every_precision({.shape = {1, 2, 150, 71, 16},
                         .causal = true,
                         .window = {.queries = {100, 400}, .keys = {first_key, 400}},
                         .dropout = {.p = first_key % 2 == 0 ? 0.0f : 0.25f, .seed = 5, .stream = 6},
                         .wide = first_key < 100,
                         .adds = first_key % 2 == 0}))
      run(a);
}

TEST_CASE("attention that is causal, where the scores and the values that are not seen are far larger") {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp64}) {
    const Case a{.shape = {1, 1, 90, 140, 16}, .dtype = dtype, .causal = true};
    std::vector<DeviceKind> devices = all_devices();
    if (is_16_bit(dtype)) std::erase(devices, DeviceKind::cuda);  // as for scores far from zero
    Inputs x = inputs_of(a);
    for (std::int64_t t = 0; t < 90; ++t) x.q[queries(a).at(0, t, 0)] = round_to(20, dtype);
    for (std::int64_t t = 0; t < 140; ++t) x.k[keys(a).at(0, t, 0)] = round_to(2.0 * static_cast<double>(t), dtype);
    for (std::int64_t t = 90; t < 140; ++t) x.v[keys(a).at(0, t, 3)] = round_to(1e36, dtype);  // no query sees these
    run(a, x, devices);
  }
}

namespace {

// Of queries in documents of these lengths, one sample after the other: the first token of a query's document.
Values begins_of(const std::vector<std::vector<std::int64_t>>& samples) {
  std::vector<double> begins;
  for (const std::vector<std::int64_t>& lengths : samples) {
    std::int64_t begin = 0;
    for (const std::int64_t length : lengths) {
      begins.insert(begins.end(), static_cast<std::size_t>(length), static_cast<double>(begin));
      begin += length;
    }
  }
  return values_of(begins, DType::i32);
}
Values ends_of(const std::vector<std::vector<std::int64_t>>& samples) {
  std::vector<double> ends;
  for (const std::vector<std::int64_t>& lengths : samples) {
    std::int64_t end = 0;
    for (const std::int64_t length : lengths) {
      end += length;
      ends.insert(ends.end(), static_cast<std::size_t>(length), static_cast<double>(end));
    }
  }
  return values_of(ends, DType::i32);
}
// For every query of every sample.
Values limits_of(const Case& a, const std::function<std::int64_t(std::int64_t sample, std::int64_t query)>& limit) {
  std::vector<double> limits;
  for (std::int64_t b = 0; b < a.shape.batch; ++b)
    for (std::int64_t i = 0; i < a.shape.q_tokens; ++i) limits.push_back(static_cast<double>(limit(b, i)));
  return values_of(limits, DType::i32);
}

}  // namespace

// Documents of one token, of a tile, around it, all in one tile, one document; each sample has its own.
TEST_CASE("attention over packed documents") {
  const std::vector<std::vector<std::int64_t>> documents = {
      {1, 1, 62, 64, 65, 7}, {200}, {63, 1, 128, 8}, {3, 4, 5, 100, 88}};
  for (const Case& shape : in_every_precision({.shape = {4, 1, 200, 200, 16}}))
    for (const bool causal : {false, true}) {
      Case a = shape;
      a.causal = causal;
      a.dropout = causal ? AttentionDropout{} : AttentionDropout{.p = 0.2f, .seed = 5, .stream = 6};
      a.wide = causal;
      a.key_begin = begins_of(documents);
      if (!causal) a.key_end = ends_of(documents);
      run(a);
    }
}

TEST_CASE("attention over intervals of keys: lengths, windows, queries that see nothing") {
  for (const Case& shape : in_every_precision({.shape = {2, 2, 133, 150, 24}, .gap = 8})) {
    // The keys of a sample end where it ends, for all queries alike.
    Case lengths = shape;
    lengths.key_end = limits_of(shape, [](std::int64_t b, std::int64_t) { return b == 0 ? 70 : 1; });
    run(lengths);
    // A window of 40 keys up to the query itself; the first keys of a causal triangle are not seen.
    Case window = shape;
    window.causal = true;
    window.adds = true;
    window.key_begin = limits_of(shape, [](std::int64_t, std::int64_t i) { return std::max<std::int64_t>(0, i - 39); });
    run(window);
    // Queries in the middle, and all of the second sample, see nothing.
    Case nothing = shape;
    nothing.key_begin = limits_of(shape, [](std::int64_t, std::int64_t i) { return i < 30 ? 5 : 100; });
    nothing.key_end = limits_of(shape, [](std::int64_t b, std::int64_t i) { return b == 1 ? 0 : i < 90 ? 67 : 149; });
    run(nothing);
  }
}

// The limits are those of whole samples: the keys of the call are a block of them.
TEST_CASE("attention over intervals of keys, of blocks of a whole") {
  for (const std::int64_t first_key : {0, 75, 180, 250})
    for (const Case& shape : in_every_precision({.shape = {1, 2, 150, 71, 16},
                             .causal = true,
                             .window = {.queries = {100, 400}, .keys = {first_key, 400}},
                             .dropout = {.p = first_key % 2 == 0 ? 0.0f : 0.25f, .seed = 5, .stream = 6}})) {
      Case a = shape;
      a.key_begin = limits_of(shape, [](std::int64_t, std::int64_t i) { return 100 + i < 190 ? 20 : 190; });
      run(a);
    }
}

// Pairs are counted one by one beside what the cost model says of a share.
TEST_CASE("attention: the cost model counts the pairs that intervals of keys leave") {
  const Case square{.shape = {2, 3, 60, 60, 8}, .causal = true}, wide{.shape = {2, 1, 50, 70, 8}};
  std::vector<Case> cases(5, square);
  cases[0].key_begin = begins_of({{1, 1, 30, 28}, {60}});
  cases[1].key_begin = limits_of(square, [](std::int64_t, std::int64_t i) { return std::max<std::int64_t>(0, i - 9); });
  cases[2] = wide;
  cases[2].key_begin = limits_of(wide, [](std::int64_t, std::int64_t i) { return i < 30 ? 5 : 100; });
  cases[2].key_end = limits_of(wide, [](std::int64_t b, std::int64_t) { return b == 1 ? 0 : 67; });
  cases[3].window = {.queries = {100, 400}, .keys = {75, 400}};  // some keys come after their queries
  cases[3].key_begin = limits_of(square, [](std::int64_t, std::int64_t i) { return 100 + i < 130 ? 20 : 130; });
  cases[4].window = {.queries = {0, 400}, .keys = {200, 400}};  // all do
  cases[4].key_begin = begins_of({{60}, {60}});
  for (const Case& a : cases) {
    const auto whole_numbers = [](const Values& values) {
      std::vector<std::int32_t> numbers;
      for (std::int64_t i = 0; i < values.size(); ++i) numbers.push_back(static_cast<std::int32_t>(values[i]));
      return numbers;
    };
    const std::vector<std::int32_t> begin = whole_numbers(a.key_begin), end = whole_numbers(a.key_end);
    AttentionFwdArgs call{.shape = a.shape,
                          .causal = a.causal,
                          .window = a.window,
                          .dropout = {},
                          .keys = {begin.data(), end.empty() ? nullptr : end.data()}};
    const double limits = (end.empty() ? 1 : 2) * 4.0 * static_cast<double>(begin.size());
    AttentionFwdArgs without = call;
    without.keys = {};
    CHECK(attention_fwd_cost(call).bytes == attention_fwd_cost(without).bytes + limits);
    call.keys.share = attention_share(call);
    double pairs = 0;
    for (std::int64_t pair = 0; pair < a.pairs(); ++pair)
      for (std::int64_t i = 0; i < a.shape.q_tokens; ++i)
        for (std::int64_t j = 0; j < a.shape.kv_tokens; ++j) pairs += is_seen(a, pair, i, j) ? 1 : 0;
    CHECK(std::abs(attention_pairs(call) - pairs) < 1e-6);
    CHECK(attention_fwd_cost(call).flops == 4 * attention_pairs(call) * 8);
  }
}

TEST_CASE("attention over intervals of keys, at every head size") {
  for (const DType dtype : {DType::fp32, DType::bf16})
    for (const std::int64_t head_size : {8, 32, 48, 64, 80, 96, 128}) {
      Case a{.shape = {1, 1, 90, 90, head_size}, .dtype = dtype, .causal = true};
      a.key_begin = begins_of({{33, 57}});
      run(a);
    }
}

TEST_CASE("attention writes its outputs in the accumulator's type too, and adds to gradients") {
  for (const DType dtype : kFloating)
    for (const auto& [wide, adds] : std::vector<std::array<bool, 2>>{{false, true}, {true, false}, {true, true}})
      for (const std::int64_t head_size : {16, 40})
        run({.shape = {2, 2, 70, 67, head_size}, .dtype = dtype, .gap = 8, .wide = wide, .adds = adds});
}

namespace {

// Ranges [cuts[i], cuts[i + 1]) of a dimension.
struct Range {
  std::int64_t first, count;
};
std::vector<Range> ranges(const std::vector<std::int64_t>& cuts) {
  std::vector<Range> parts;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) parts.push_back({cuts[i], cuts[i + 1] - cuts[i]});
  return parts;
}

// Row t of every head is the unit vector t.
Values unit_vectors(const Layout& layout) {
  Values x = constant_values(layout.size(), layout.of.dtype, 0);
  for (std::int64_t pair = 0; pair < layout.of.pairs(); ++pair)
    for (std::int64_t t = 0; t < layout.tokens; ++t) x[layout.at(pair, t, t)] = 1;
  return x;
}

// What o, dq, dk and dv show of a block's mask: 1 where an element of P was kept. By the element's index in the whole.
// With q, k, d_o of unit vectors, o, lse = 0 and the right v, element (i, j) of P alone decides about one of theirs.
void read_masks(const Case& a, Workbench& bench, std::array<std::vector<int>, 4>& masks) {
  const Inputs units{unit_vectors(queries(a)), unit_vectors(keys(a)), unit_vectors(keys(a)), unit_vectors(queries(a))};
  Inputs ones = units;
  ones.v = constant_values(keys(a).size(), a.dtype, 1);
  const Values no_o = constant_values(queries(a).size(), a.dtype, 0);
  const Values no_lse = constant_values(a.pairs() * a.shape.q_tokens, accumulator_of(a.dtype), 0);
  const AttentionFwdArgs fwd = forward_arguments(a, units, bench);
  const AttentionBwdArgs bwd = backward_arguments(a, ones, no_o, no_lse, bench);
  ISOBAR_RUN(bench.device(), attention_fwd, fwd);
  ISOBAR_RUN(bench.device(), attention_bwd, bwd);
  const Values outputs[] = {bench.read({fwd.o}), bench.read({bwd.dq}), bench.read({bwd.dk}), bench.read({bwd.dv})};
  for (std::int64_t pair = 0; pair < a.pairs(); ++pair)
    for (std::int64_t i = 0; i < a.shape.q_tokens; ++i)
      for (std::int64_t j = 0; j < a.shape.kv_tokens; ++j)
        for (std::size_t which = 0; which < 4; ++which) {
          const std::int64_t at = which < 2 ? queries(a).at(pair, i, j) : keys(a).at(pair, j, i);
          const double value = outputs[which].v[static_cast<std::size_t>(at)];
          int& mark = masks[which].at(static_cast<std::size_t>(index_of(a, pair, i, j)));
          mark = mark != -1 || std::isnan(value) ? 2 : value != 0;  // 2: written twice, or not at all
        }
}

constexpr const char* kNames[] = {"o", "dq", "dk", "dv"};

}  // namespace

TEST_CASE("attention draws the masks of blocks as those of the whole, element by element") {
  for (const Case& whole :
       in_every_precision({.shape = {3, 2, 70, 72, 72}, .dropout = {.p = 0.4f, .seed = 7, .stream = 8}})) {
    const auto elements = static_cast<std::size_t>(whole.pairs() * 70 * 72);
    const auto unread = [&] {
      std::array<std::vector<int>, 4> masks;
      masks.fill(std::vector<int>(elements, -1));
      return masks;
    };
    on_devices(all_devices(), {whole.dtype},
               [&](Workbench& bench) {
                 auto of_whole = unread(), of_blocks = unread();
                 read_masks(whole, bench, of_whole);
                 for (const std::int64_t sample : {0, 1})  // samples 0 and 2; sample 1
                   for (const Range& heads : ranges({0, 1, 2}))
                     for (const Range& q : ranges({0, 33, 70}))
                       for (const Range& k : ranges({0, 7, 72})) {
                         Case block = whole;
                         block.shape = {2 - sample, heads.count, q.count, k.count, 72};
                         block.dropout.stream = whole.dropout.stream - kStreamOffset;
                         block.dropout.stream_offset = stream_offset(bench);
                         block.window = {.samples = {sample, 2},
                                         .heads = {heads.first, 2},
                                         .queries = {q.first, 70},
                                         .keys = {k.first, 72}};
                         read_masks(block, bench, of_blocks);
                       }
                 for (std::size_t which = 0; which < 4; ++which) {
                   std::vector<int> contract;
                   for (std::int64_t pair = 0; pair < whole.pairs(); ++pair)
                     for (std::int64_t i = 0; i < 70; ++i)
                       for (std::int64_t j = 0; j < 72; ++j) contract.push_back(keep_factor(whole, pair, i, j) != 0);
                   INFO("in " << kNames[which] << " of " << name_of(whole.dtype) << (whole.tf32 ? ", tf32" : ""));
                   const bool whole_is_right = of_whole[which] == contract,
                              blocks_are_right = of_blocks[which] == contract;
                   CHECK(whole_is_right);
                   CHECK(blocks_are_right);
                 }
               },
               {.any_thread_count = false, .multiplies = true});
  }
}

namespace {

// Keys [range.first, ...) of a case.
Case with_keys(const Case& a, const Range& range) {
  Case part = a;
  part.shape.kv_tokens = range.count;
  const Span& keys = a.window.keys;
  part.window.keys = {keys.first + range.first, keys.total};
  return part;
}
Inputs with_keys(const Case& a, const Inputs& x, const Range& range) {
  const Case part = with_keys(a, range);
  const auto rows = [&](const Values& all) {
    Values some = constant_values(keys(part).size(), a.dtype, kUnwritten);
    for (std::int64_t pair = 0; pair < a.pairs(); ++pair)
      for (std::int64_t t = 0; t < range.count; ++t)
        for (std::int64_t c = 0; c < a.shape.head_size; ++c)
          some[keys(part).at(pair, t, c)] = all[keys(a).at(pair, range.first + t, c)];
    return some;
  };
  return {x.q, rows(x.k), rows(x.v), x.d_o};
}

// The same by parts of the keys, one after the other: o and lse merged, dq a sum, dk and dv side by side.
struct Parts {
  const Case& a;
  const Inputs& x;
  Workbench& bench;
  std::vector<Range> ranges;

  AttentionFwdArgs forward() const {
    AttentionFwdArgs merged;
    for (const Range& range : ranges) {
      const AttentionFwdArgs part = forward_arguments(with_keys(a, range), with_keys(a, x, range), bench);
      ISOBAR_RUN(bench.device(), attention_fwd, part);
      if (range.first == 0) {
        merged = part;
        continue;
      }
      const AttentionMergeArgs merge = cases::attention_merge(
          {.batch = a.shape.batch,
           .heads = a.shape.heads,
           .tokens = a.shape.q_tokens,
           .head_size = a.shape.head_size,
           .dtype = a.out_dtype(),
           .o_stride = a.stride(),
           .other_stride = a.stride()},
          bench.operands({{"o", merged.o}, {"lse", merged.lse}, {"other_o", part.o}, {"other_lse", part.lse}}));
      ISOBAR_RUN(bench.device(), attention_merge, merge);
    }
    return merged;
  }

  // dq where it lies; dk and dv as values of all keys.
  struct Gradients {
    Pointer dq;
    Values dk, dv;
  };
  Gradients backward(const Values& o, const Values& lse) const {
    Gradients all{bench.output(queries(a).size(), a.out_dtype()),
                  constant_values(keys(a).size(), a.out_dtype(), kUnwritten),
                  constant_values(keys(a).size(), a.out_dtype(), kUnwritten)};
    for (const Range& range : ranges) {
      const Case part = with_keys(a, range);
      AttentionBwdArgs bwd = backward_arguments(part, with_keys(a, x, range), o, lse, bench, {{"dq", all.dq}});
      bwd.dq_mode = range.first == 0 ? Grad::overwrite : Grad::accumulate;
      ISOBAR_RUN(bench.device(), attention_bwd, bwd);
      const Values dk_part = bench.read({bwd.dk}), dv_part = bench.read({bwd.dv});
      for (std::int64_t pair = 0; pair < a.pairs(); ++pair)
        for (std::int64_t t = 0; t < range.count; ++t)
          for (std::int64_t c = 0; c < a.shape.head_size; ++c) {
            all.dk[keys(a).at(pair, range.first + t, c)] = dk_part[keys(part).at(pair, t, c)];
            all.dv[keys(a).at(pair, range.first + t, c)] = dv_part[keys(part).at(pair, t, c)];
          }
    }
    return all;
  }
};

void check_values(const std::string& name, const Values& actual, const Expected& want) {
  const Verdict verdict = compare(name, actual, want);
  INFO(verdict.text);
  CHECK(verdict.ok);
}

// The largest difference, of the largest element.
double distance(const Values& a, const Values& b) {
  double most = 0, size = 0;
  for (std::size_t i = 0; i < a.v.size(); ++i) {
    if (std::isnan(a.v[i]) && std::isnan(b.v[i])) continue;
    most = std::fabs(a.v[i] - b.v[i]) <= most ? most : std::fabs(a.v[i] - b.v[i]);
    size = std::max(size, std::fabs(b.v[i]));
  }
  return most / size;
}

std::vector<std::pair<DType, bool>> cases_of(const std::vector<DType>& dtypes) {
  std::vector<std::pair<DType, bool>> cases;
  for (const DType dtype : dtypes)
    for (const bool causal : {false, true}) cases.emplace_back(dtype, causal);
  return cases;
}

}  // namespace

TEST_CASE("attention over keys in three parts, merged, is that over all keys, and so are its gradients") {
  const AttentionWindow window{
      .samples = {.first = 1, .step = 2}, .heads = {2, 4}, .queries = {11, 61}, .keys = {0, 150}};
  // Causal, the queries see all of the first part, some of the second and none of the third.
  for (const auto& [dtype, causal] : cases_of(kFloating)) {
    INFO(name_of(dtype) << (causal ? ", causal" : ""));
    const Case a{.shape = {2, 2, 45, 150, 24},
                 .dtype = dtype,
                 .causal = causal,
                 .window = window,
                 .dropout = {.p = 0.2f, .seed = 3, .stream = 9},
                 .gap = 8,
                 .wide = true};
    const Inputs x = inputs_of(a);
    auto fwd = expected_by<bool>(
        [&](bool rounds_p) { return expected(dtype, [&](auto math) { return naive_fwd(math, a, x, rounds_p); }); });
    // The yardstick's backward pass starts from its own o and lse, as the kernels start from what they merged.
    auto bwd = expected_by<bool>([&](bool rounds_p) {
      return expected(dtype, [&](auto math) {
        const auto [o, lse] = naive_fwd(math, a, x, rounds_p);
        return naive_bwd(math, a, x, values_of({o.begin(), o.end()}, a.out_dtype()),
                         values_of({lse.begin(), lse.end()}, a.out_dtype()), rounds_p);
      });
    });
    on_devices(all_devices(), {dtype},
               [&](Workbench& bench) {
                 const bool rounds = device_rounds_p(a, bench.device());
                 const Parts parts{a, x, bench, ranges({0, 37, 101, 150})};
                 const AttentionFwdArgs merged = parts.forward();
                 const Values o = bench.read({merged.o}), lse = bench.read({merged.lse});
                 check_values("o", o, fwd[rounds][0]);
                 check_values("lse", lse, fwd[rounds][1]);
                 const Parts::Gradients of_merged = parts.backward(o, lse);
                 bench.check("dq", of_merged.dq, bwd[rounds][0]);
                 check_values("dk", of_merged.dk, bwd[rounds][1]);
                 check_values("dv", of_merged.dv, bwd[rounds][2]);
                 if (dtype != DType::fp64) return;
                 const AttentionFwdArgs whole = forward_arguments(a, x, bench);
                 ISOBAR_RUN(bench.device(), attention_fwd, whole);
                 const Values whole_o = bench.read({whole.o}), whole_lse = bench.read({whole.lse});
                 const AttentionBwdArgs back = backward_arguments(a, x, whole_o, whole_lse, bench);
                 ISOBAR_RUN(bench.device(), attention_bwd, back);
                 CHECK(distance(o, whole_o) < 1e-13);
                 CHECK(distance(lse, whole_lse) < 1e-13);
                 CHECK(distance(bench.read(of_merged.dq), bench.read({back.dq})) < 1e-13);
                 CHECK(distance(of_merged.dk, bench.read({back.dk})) < 1e-13);
                 CHECK(distance(of_merged.dv, bench.read({back.dv})) < 1e-13);
               },
               {.any_thread_count = false, .multiplies = true});
  }
}

TEST_CASE("attention refuses blocks that do not lie in the whole, and outputs in other types") {
  const Case a{.shape = {1, 2, 5, 7, 8}, .dtype = DType::bf16};
  const Inputs x = inputs_of(a);
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::emulator}) {
    if (kind == DeviceKind::emulator && !ISOBAR_HAS_EMULATOR) continue;
    Workbench bench({.kind = kind});
    const AttentionFwdArgs fwd = forward_arguments(a, x, bench);
    const auto refuses = [&](const AttentionWindow& window, const std::string& sentence) {
      AttentionFwdArgs moved = fwd;
      moved.window = window;
      CHECK_THROWS_WITH(([&] { ISOBAR_RUN(bench.device(), attention_fwd, moved); }()), sentence);
    };
    refuses({.heads = {2, 3}}, "attention_fwd: heads 2 to 3 do not lie in a whole of 3");
    refuses({.queries = {-1, 9}}, "attention_fwd: queries -1 to 3 do not lie in a whole of 9");
    refuses({.keys = {3, 0}}, "attention_fwd: the block's keys begin at 3 of a whole whose size is not given");
    refuses({.samples = {0, 0}}, "attention_fwd: samples 0, 0, ... are not those of a batch");
    for (const double scale : {0.0, -1.0, HUGE_VAL, kUnwritten}) {
      AttentionFwdArgs scaled = fwd;
      scaled.scale = scale;
      CHECK_THROWS_WITH(([&] { ISOBAR_RUN(bench.device(), attention_fwd, scaled); }()),
                        concat("attention_fwd: a scale of ", scale, " is not positive and finite"));
    }
    AttentionFwdArgs narrow = fwd;
    narrow.k_stride = 12;
    CHECK_THROWS_WITH(([&] { ISOBAR_RUN(bench.device(), attention_fwd, narrow); }()),
                      "attention_fwd: the tokens of an operand are 12 elements apart, which must be a multiple of 8");
    AttentionFwdArgs other = fwd;
    other.o_dtype = DType::fp16;
    CHECK_THROWS_WITH(([&] { ISOBAR_RUN(bench.device(), attention_fwd, other); }()),
                      "attention_fwd: o of bf16 operands can be in bf16 or in fp32, not in fp16");
    AttentionBwdArgs bwd = backward_arguments(a, x, constant_values(queries(a).size(), a.dtype, 0),
                                              constant_values(10, DType::fp32, 0), bench);
    AttentionBwdArgs narrow_bwd = bwd;
    narrow_bwd.dv_stride = 20;
    CHECK_THROWS_WITH(([&] { ISOBAR_RUN(bench.device(), attention_bwd, narrow_bwd); }()),
                      "attention_bwd: the tokens of an operand are 20 elements apart, which must be a multiple of 8");
    bwd.grad_dtype = DType::fp64;
    CHECK_THROWS_WITH(([&] { ISOBAR_RUN(bench.device(), attention_bwd, bwd); }()),
                      "attention_bwd: dq, dk and dv of bf16 operands can be in bf16 or in fp32, not in fp64");
  }
}

TEST_CASE("attention over many blocks of queries and keys") {
  for (const auto& [q_tokens, kv_tokens] : std::vector<std::array<std::int64_t, 2>>{{3, 4050}, {4050, 3}, {410, 390}})
    run({.shape = {1, 1, q_tokens, kv_tokens, 16}}, cpu_only());
}

TEST_CASE("attention with scores that grow, and that lie far from zero") {
  for (const Case& a : in_every_precision({.shape = {1, 1, 20, 300, 16}})) {
    const DType dtype = a.dtype;
    if (dtype == DType::fp16) continue;  // has no such numbers
    // A tensor core may add products of this size with fewer bits than the yardstick.
    std::vector<DeviceKind> devices = all_devices();
    if (is_16_bit(dtype) || a.tf32) std::erase(devices, DeviceKind::cuda);
    for (const double far : {-400.0, 400.0}) {
      Inputs x = inputs_of(a);
      for (std::int64_t t = 0; t < 20; ++t) x.q[queries(a).at(0, t, 0)] = round_to(20, dtype);
      for (std::int64_t t = 0; t < 300; ++t) x.k[keys(a).at(0, t, 0)] = round_to(far / 5 + 0.05 * t, dtype);
      run(a, x, devices);
    }
  }
}

TEST_CASE("attention passes NaN on, to what depends on it only") {
  for (const Case& a : in_every_precision({.shape = {1, 2, 20, 70, 24}}))
    for (const int which : {0, 1, 2, 3}) {
      Inputs x = inputs_of(a);
      Values* const operands[] = {&x.q, &x.k, &x.v, &x.d_o};
      operands[which]->v[static_cast<std::size_t>((which % 3 == 0 ? queries(a) : keys(a)).at(1, 11, 5))] = std::nan("");
      run(a, x);
    }
}

TEST_CASE("attention does not see what an earlier call left behind") {
  for (const DType dtype : kFloating) {
    const Case larger{.shape = {1, 1, 50, 64, 24}, .dtype = dtype},
        smaller{.shape = {1, 1, 50, 33, 24}, .dtype = dtype};
    Inputs x = inputs_of(larger);
    for (std::int64_t t = 0; t < 50; ++t) x.q[queries(larger).at(0, t, 2)] = std::nan("");
    run(larger, x);
    run(smaller);
  }
}

TEST_CASE("attention reads and writes q, k and v interleaved in one buffer") {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    const Case a{.shape = {2, 2, 37, 37, 16}, .dtype = dtype};
    const std::int64_t width = 2 * 16, tokens = 2 * 37;
    const Inputs x = inputs_of(a);
    Values qkv = constant_values(tokens * 3 * width, dtype, 0);
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t c = 0; c < width; ++c) {
        qkv[(3 * t + 0) * width + c] = x.q[t * width + c];
        qkv[(3 * t + 1) * width + c] = x.k[t * width + c];
        qkv[(3 * t + 2) * width + c] = x.v[t * width + c];
      }
    on_devices(all_devices(), {a.dtype},
               [&](Workbench& bench) {
                 const auto part = [&](Pointer whole, std::int64_t i) {
                   return static_cast<char*>(whole) + i * width * static_cast<std::int64_t>(size_of(dtype));
                 };
                 const AttentionFwdArgs apart = forward_arguments(a, x, bench);
                 ISOBAR_RUN(bench.device(), attention_fwd, apart);
                 const Values o_values = bench.read({apart.o}), lse_values = bench.read({apart.lse});
                 const AttentionBwdArgs apart_bwd = backward_arguments(a, x, o_values, lse_values, bench);
                 ISOBAR_RUN(bench.device(), attention_bwd, apart_bwd);

                 AttentionFwdArgs fwd = apart;
                 const auto packed = bench.input(qkv), packed_o = bench.output(tokens * width, a.dtype);
                 fwd.q = part(packed, 0), fwd.k = part(packed, 1), fwd.v = part(packed, 2), fwd.o = packed_o;
                 fwd.q_stride = fwd.k_stride = fwd.v_stride = 3 * width;
                 ISOBAR_RUN(bench.device(), attention_fwd, fwd);
                 bench.check_equal("o", packed_o, o_values);

                 const auto gradient = bench.output(tokens * 3 * width, a.dtype);
                 AttentionBwdArgs bwd = apart_bwd;
                 bwd.q = fwd.q, bwd.k = fwd.k, bwd.v = fwd.v;
                 bwd.dq = part(gradient, 0), bwd.dk = part(gradient, 1), bwd.dv = part(gradient, 2);
                 bwd.q_stride = bwd.k_stride = bwd.v_stride = bwd.dq_stride = bwd.dk_stride = bwd.dv_stride = 3 * width;
                 ISOBAR_RUN(bench.device(), attention_bwd, bwd);
                 Values want = qkv;
                 const Values dq_values = bench.read({apart_bwd.dq}), dk_values = bench.read({apart_bwd.dk}),
                              dv_values = bench.read({apart_bwd.dv});
                 for (std::int64_t t = 0; t < tokens; ++t)
                   for (std::int64_t c = 0; c < width; ++c) {
                     want[(3 * t + 0) * width + c] = dq_values[t * width + c];
                     want[(3 * t + 1) * width + c] = dk_values[t * width + c];
                     want[(3 * t + 2) * width + c] = dv_values[t * width + c];
                   }
                 bench.check_equal("dq, dk, dv", gradient, want);
               },
               {.any_thread_count = false, .multiplies = true});
  }
}

TEST_CASE("attention takes a stride of its own for every operand") {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    const Case a{.shape = {2, 2, 5, 7, 16}, .dtype = dtype};
    const Inputs x = inputs_of(a);
    const std::int64_t width = a.stride();
    // The same tokens that much further apart, NaN between them.
    const auto spread = [&](const Values& packed, std::int64_t gap) {
      Values apart = constant_values(packed.size() / width * (width + gap), a.dtype, kUnwritten);
      for (std::int64_t i = 0; i < packed.size(); ++i) apart[i / width * (width + gap) + i % width] = packed[i];
      return apart;
    };
    on_devices(all_devices(), {a.dtype},
               [&](Workbench& bench) {
                 AttentionFwdArgs fwd = forward_arguments(a, x, bench);
                 ISOBAR_RUN(bench.device(), attention_fwd, fwd);
                 const Values o_values = bench.read({fwd.o}), lse_values = bench.read({fwd.lse});
                 AttentionBwdArgs bwd = backward_arguments(a, x, o_values, lse_values, bench);
                 ISOBAR_RUN(bench.device(), attention_bwd, bwd);
                 const Values dq = bench.read({bwd.dq}), dk = bench.read({bwd.dk}), dv = bench.read({bwd.dv});

                 const auto input = [&](const Values& packed, std::int64_t gap, std::int64_t& stride) {
                   stride = width + gap;
                   return bench.input(spread(packed, gap));
                 };
                 const auto output = [&](const Values& packed, std::int64_t gap, std::int64_t& stride) {
                   stride = width + gap;
                   return bench.output(spread(packed, gap).size(), a.dtype);
                 };
                 const auto apart_o = output(x.q, 32, fwd.o_stride);
                 fwd.o = apart_o;
                 fwd.q = input(x.q, 8, fwd.q_stride);
                 fwd.k = input(x.k, 16, fwd.k_stride);
                 fwd.v = input(x.v, 24, fwd.v_stride);
                 ISOBAR_RUN(bench.device(), attention_fwd, fwd);
                 bench.check_equal("o", apart_o, spread(o_values, 32));

                 const auto apart_dq = output(x.q, 48, bwd.dq_stride), apart_dk = output(x.k, 56, bwd.dk_stride);
                 const auto apart_dv = output(x.v, 64, bwd.dv_stride);
                 bwd.dq = apart_dq, bwd.dk = apart_dk, bwd.dv = apart_dv;
                 bwd.q = input(x.q, 8, bwd.q_stride);
                 bwd.k = input(x.k, 16, bwd.k_stride);
                 bwd.v = input(x.v, 24, bwd.v_stride);
                 bwd.o = input(o_values, 32, bwd.o_stride);
                 bwd.d_o = input(x.d_o, 40, bwd.do_stride);
                 ISOBAR_RUN(bench.device(), attention_bwd, bwd);
                 bench.check_equal("dq", apart_dq, spread(dq, 48));
                 bench.check_equal("dk", apart_dk, spread(dk, 56));
                 bench.check_equal("dv", apart_dv, spread(dv, 64));
               },
               {.any_thread_count = false, .multiplies = true});
  }
}

TEST_CASE("attention in tf32 errs more than fp32 can, on a GPU, in fp32, and nowhere else") {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    const Case exact{.shape = {1, 1, 70, 75, 48}, .dtype = dtype};
    Case rounded = exact;
    rounded.tf32 = true;
    const Inputs x = inputs_of(exact);
    const auto fwd = expected(dtype, [&](auto math) { return naive_fwd(math, exact, x, false); });
    const Values o_in = rounded_values(fwd[0], dtype), lse_in = rounded_values(fwd[1], accumulator_of(dtype));
    const auto bwd = expected(dtype, [&](auto math) { return naive_bwd(math, exact, x, o_in, lse_in, false); });
    const auto outputs = [&](const Case& a, Workbench& bench) {
      const AttentionFwdArgs there = forward_arguments(a, x, bench);
      const AttentionBwdArgs back = backward_arguments(a, x, o_in, lse_in, bench);
      ISOBAR_RUN(bench.device(), attention_fwd, there);
      ISOBAR_RUN(bench.device(), attention_bwd, back);
      return std::array{bench.read({there.o}), bench.read({there.lse}), bench.read({back.dq}), bench.read({back.dk}),
                        bench.read({back.dv})};
    };
    const std::array wants{fwd[0], fwd[1], bwd[0], bwd[1], bwd[2]};
    constexpr const char* kOutputs[] = {"o", "lse", "dq", "dk", "dv"};
    on_devices(all_devices(), {dtype},
               [&](Workbench& bench) {
                 const auto without = outputs(exact, bench), with = outputs(rounded, bench);
                 const bool rounds = dtype == DType::fp32 && bench.device().kind != DeviceKind::cpu;
                 for (std::size_t i = 0; i < wants.size(); ++i) {
                   INFO(kOutputs[i] << " in " << name_of(dtype));
                   if (!rounds) {
                     CHECK(with[i].v == without[i].v);
                     continue;
                   }
                   const Verdict fits_without = compare("without", without[i], wants[i]);
                   const Verdict fits_with = compare("with", with[i], wants[i]);
                   INFO(fits_without.text << "; " << fits_with.text);
                   CHECK(fits_without.ok);
                   CHECK_FALSE(fits_with.ok);
                 }
               },
               {.any_thread_count = false, .multiplies = true});
  }
}

TEST_CASE("attention_bwd is the gradient of attention_fwd") {
  Case a{.shape = {1, 2, 5, 7, 8}, .dtype = DType::fp64, .dropout = {.p = 0.25f, .seed = 3, .stream = 4}};
  SECTION("over all keys") {}
  SECTION("causal") {
    a.causal = true;
  }
  SECTION("causal, the first query sees no key") {
    a.causal = true;
    a.window = {.queries = {2, 9}, .keys = {3, 12}};
  }
  const Inputs x = inputs_of(a);
  const auto forward = [&](const Inputs& in) {
    Workbench bench({});
    const AttentionFwdArgs arguments = forward_arguments(a, in, bench);
    cpu::attention_fwd(arguments);
    return Outputs{bench.read({arguments.o}), bench.read({arguments.lse})};
  };
  const Outputs out = forward(x);
  Workbench bench({});
  const AttentionBwdArgs back = backward_arguments(a, x, out.o, out.lse, bench);
  cpu::attention_bwd(back);
  const auto loss_with = [&](Values Inputs::*moved) {
    return [&, moved](const Values& values) {
      Inputs in = x;
      in.*moved = values;
      return dot(forward(in).o, x.d_o);
    };
  };
  check_gradient("dq", x.q, bench.read({back.dq}), loss_with(&Inputs::q));
  check_gradient("dk", x.k, bench.read({back.dk}), loss_with(&Inputs::k));
  check_gradient("dv", x.v, bench.read({back.dv}), loss_with(&Inputs::v));
}

}  // namespace isobar::testing
