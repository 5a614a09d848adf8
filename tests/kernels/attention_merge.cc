// attention_merge: two attentions over different keys become one; sides without keys, weights that differ by much, NaN.
#include "kernels/cases/attention.h"

#include <limits>

#include "tests/harness/kernel_testing.h"

namespace isobar::testing {
namespace {

constexpr double kNoKeys = -std::numeric_limits<double>::infinity();
constexpr double kUnwritten = std::numeric_limits<double>::quiet_NaN();

struct Case {
  std::int64_t batch, heads, tokens, head_size, gap, other_gap;
  DType dtype = DType::fp32;

  std::int64_t stride(std::int64_t between) const { return heads * head_size + between; }
  std::int64_t size(std::int64_t between) const { return batch * tokens * stride(between); }
  std::int64_t rows() const { return batch * heads * tokens; }
  // Element c of row (b, h, t) of lse.
  std::int64_t at(std::int64_t row, std::int64_t c, std::int64_t between) const {
    const std::int64_t b = row / (heads * tokens), h = row / tokens % heads, t = row % tokens;
    return (b * tokens + t) * stride(between) + h * head_size + c;
  }
};

struct Side {
  Values o, lse;
};
Side random_side(const Case& a, std::int64_t gap, std::uint64_t seed) {
  Side side{constant_values(a.size(gap), a.dtype, kUnwritten), random_values(a.rows(), a.dtype, seed, 3)};
  const Values random = random_values(a.size(gap), a.dtype, seed + 10);
  for (std::int64_t row = 0; row < a.rows(); ++row)
    for (std::int64_t c = 0; c < a.head_size; ++c) side.o[a.at(row, c, gap)] = random[a.at(row, c, gap)];
  return side;
}

// o, lse
template <class Real>
std::array<std::vector<Real>, 2> naive(Arithmetic<Real>, const Case& a, const Side& x, const Side& y) {
  std::array<std::vector<Real>, 2> out;
  auto& [o, lse] = out;
  o.assign(x.o.v.begin(), x.o.v.end());
  for (std::int64_t row = 0; row < a.rows(); ++row) {
    const Real l = static_cast<Real>(x.lse[row]), other = static_cast<Real>(y.lse[row]);
    const Real most = std::max(l, other), least = std::min(l, other);
    const bool no_keys = l == static_cast<Real>(kNoKeys), no_other = other == static_cast<Real>(kNoKeys);
    const Real sum = std::isnan(l + other) ? static_cast<Real>(kUnwritten)
                     : no_keys && no_other ? static_cast<Real>(kNoKeys)
                                           : most + std::log1p(std::exp(least - most));
    lse.push_back(sum);
    for (std::int64_t c = 0; c < a.head_size; ++c) {
      const Real mine = static_cast<Real>(x.o[a.at(row, c, a.gap)]),
                 yours = static_cast<Real>(y.o[a.at(row, c, a.other_gap)]);
      o[static_cast<std::size_t>(a.at(row, c, a.gap))] =
          (no_keys ? 0 : mine * std::exp(l - sum)) + (no_other ? 0 : yours * std::exp(other - sum));
    }
  }
  return out;
}

AttentionMergeArgs arguments_of(const Case& a, const Side& x, const Side& y, Workbench& bench) {
  return cases::attention_merge({.batch = a.batch,
                                 .heads = a.heads,
                                 .tokens = a.tokens,
                                 .head_size = a.head_size,
                                 .dtype = a.dtype,
                                 .o_stride = a.stride(a.gap),
                                 .other_stride = a.stride(a.other_gap)},
                                bench.operands({{"o", x.o}, {"lse", x.lse}, {"other_o", y.o}, {"other_lse", y.lse}}));
}

void run(const Case& a, const Side& x, const Side& y) {
  INFO(name_of(a.dtype) << " B " << a.batch << " NH " << a.heads << " T " << a.tokens << " HS " << a.head_size);
  const auto [o, lse] = expected(a.dtype, [&](auto math) { return naive(math, a, x, y); });
  on_devices(all_devices(), {a.dtype}, [&](Workbench& bench) {
    const AttentionMergeArgs merge = arguments_of(a, x, y, bench);
    ISOBAR_RUN(bench.device(), attention_merge, merge);
    bench.check("o", {merge.o}, o);
    bench.check("lse", {merge.lse}, lse);
  });
}

}  // namespace

TEST_CASE("attention_merge gives the output and the log-sum-exp over both sets of keys") {
  for (const DType dtype : {DType::fp32, DType::fp64})
    for (const Case& shape : std::vector<Case>{{1, 1, 1, 4, 0, 0},
                                               {2, 3, 7, 8, 4, 12},
                                               {1, 8, 25, 48, 0, 16},
                                               {3, 5, 13, 128, 8, 0},
                                               {1, 131, 3, 12, 0, 4}}) {
      Case a = shape;
      a.dtype = dtype;
      run(a, random_side(a, a.gap, 1), random_side(a, a.other_gap, 2));
    }
}

TEST_CASE("attention_merge leaves out a side without keys, whatever its output holds") {
  for (const DType dtype : {DType::fp32, DType::fp64}) {
    const Case a{2, 3, 20, 16, 4, 0, dtype};
    Side x = random_side(a, a.gap, 1), y = random_side(a, a.other_gap, 2);
    for (std::int64_t row = 0; row < a.rows(); ++row) {
      const std::int64_t kind = row % 5;  // both, neither, only x, only y, then weights that differ by much
      const auto empty = [&](Side& side, std::int64_t gap) {
        side.lse[row] = kNoKeys;
        for (std::int64_t c = 0; c < a.head_size; ++c) side.o[a.at(row, c, gap)] = kUnwritten;
      };
      if (kind == 1 || kind == 3) empty(x, a.gap);
      if (kind == 1 || kind == 2) empty(y, a.other_gap);
      if (kind == 4) x.lse[row] = row % 2 == 0 ? 2000 : -2000;
    }
    run(a, x, y);
  }
}

TEST_CASE("attention_merge passes NaN on") {
  for (const DType dtype : {DType::fp32, DType::fp64})
    for (const int which : {0, 1, 2, 3}) {
      const Case a{1, 2, 5, 8, 0, 4, dtype};
      Side x = random_side(a, a.gap, 1), y = random_side(a, a.other_gap, 2);
      (which == 0 ? x.o : which == 1 ? x.lse : which == 2 ? y.o : y.lse).v[which % 2 == 0 ? 17 : 3] = kUnwritten;
      run(a, x, y);
    }
}

TEST_CASE("attention_merge refuses what it does not merge") {
  Case a{1, 2, 5, 8, 0, 0};
  Workbench bench({});
  const auto merge = [&] { cpu::attention_merge(arguments_of(a, random_side(a, 0, 1), random_side(a, 0, 2), bench)); };
  a.dtype = DType::bf16;
  CHECK_THROWS_WITH(merge(),
                    "attention_merge: outputs are merged in fp32 or fp64, the accumulator's type, not in bf16");
  a.dtype = DType::fp32;
  a.head_size = 6;
  CHECK_THROWS_WITH(merge(), "attention_merge: bad shape: batch 1, 2 heads of 6, 5 tokens");
}

}  // namespace isobar::testing
