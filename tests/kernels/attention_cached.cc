// attention_cached: one query of each sample over kept keys and values, against the formula; what it writes and what it
// leaves; samples that are left out; large scores; NaN.
#include "kernels/cases/attention.h"

#include <algorithm>

#include "tests/harness/kernel_testing.h"

namespace isobar::testing {
namespace {

struct Case {
  std::int64_t batch, heads, head_size, capacity, gap;
  std::vector<std::int32_t> position = {};
  DType dtype = DType::fp32;

  std::int64_t width() const { return heads * head_size; }
  std::int64_t stride() const { return width() + gap; }
  std::int64_t kept() const { return batch * capacity * width(); }
  Values positions() const { return values_of({position.begin(), position.end()}, DType::i32); }
};

// Beyond the positions the cache holds NaN: nobody may read it.
struct Inputs {
  Values q, k, v, keys, values;

  explicit Inputs(const Case& c, double scale = 1)
      : q(random_values(c.batch * c.stride(), c.dtype, 1, scale)),
        k(random_values(c.batch * c.stride(), c.dtype, 2, scale)),
        v(random_values(c.batch * c.stride(), c.dtype, 3)),
        keys(random_values(c.kept(), c.dtype, 4, scale)),
        values(random_values(c.kept(), c.dtype, 5)) {
    for (std::int64_t b = 0; b < c.batch; ++b)
      for (std::int64_t j = std::max(c.position[static_cast<std::size_t>(b)], 0); j < c.capacity; ++j)
        for (std::int64_t i = 0; i < c.width(); ++i) {
          const std::int64_t at = (b * c.capacity + j) * c.width() + i;
          keys[at] = values[at] = std::nan("");
        }
  }
};

// o [B, stride], without what lies between the samples, which is left as it was: NaN.
template <class Real>
std::array<std::vector<Real>, 1> naive(Arithmetic<Real>, const Case& c, const Inputs& in) {
  std::array<std::vector<Real>, 1> o;
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t i = 0; i < c.width(); ++i) {
      const std::int64_t head = i / c.head_size * c.head_size, position = c.position[static_cast<std::size_t>(b)];
      const auto key = [&](std::int64_t j, std::int64_t at) {
        return static_cast<Real>(j == position ? in.k[b * c.stride() + at]
                                               : in.keys[(b * c.capacity + j) * c.width() + at]);
      };
      const auto value = [&](std::int64_t j) {
        return static_cast<Real>(j == position ? in.v[b * c.stride() + i]
                                               : in.values[(b * c.capacity + j) * c.width() + i]);
      };
      std::vector<Real> scores;
      for (std::int64_t j = 0; j <= position; ++j) {
        Real sum = 0;
        for (std::int64_t at = head; at < head + c.head_size; ++at)
          sum += static_cast<Real>(in.q[b * c.stride() + at]) * key(j, at);
        scores.push_back(static_cast<Real>(0.25) * sum);
      }
      Real all = 0, result = 0;
      const Real max = scores.empty() ? Real(0) : *std::ranges::max_element(scores);
      for (std::int64_t j = 0; j <= position; ++j) {
        const Real p = std::exp(scores[static_cast<std::size_t>(j)] - max);
        all += p;
        result += p * value(j);
      }
      o[0].push_back(position < 0 ? Real(0) : result / all);
    }
  return o;
}

AttentionCachedArgs arguments_of(const Case& c, const Inputs& in, Workbench& bench) {
  return cases::attention_cached({.batch = c.batch,
                                  .heads = c.heads,
                                  .head_size = c.head_size,
                                  .capacity = c.capacity,
                                  .dtype = c.dtype,
                                  .scale = 0.25,
                                  .q_stride = c.stride(),
                                  .k_stride = c.stride(),
                                  .v_stride = c.stride(),
                                  .o_stride = c.width()},
                                 bench.operands({{"position", c.positions()},
                                                 {"q", in.q},
                                                 {"k", in.k},
                                                 {"v", in.v},
                                                 {"keys", in.keys},
                                                 {"values", in.values}}));
}

// What the cache holds afterwards: the new token in its place, and the rest as it was.
Values kept_after(const Case& c, const Values& before, const Values& added) {
  Values after = before;
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t i = 0; i < c.width() && c.position[static_cast<std::size_t>(b)] >= 0; ++i)
      after[(b * c.capacity + c.position[static_cast<std::size_t>(b)]) * c.width() + i] = added[b * c.stride() + i];
  return after;
}

void check_same(const Values& found, const Values& wanted) {
  REQUIRE(found.size() == wanted.size());
  std::int64_t different = 0;
  for (std::int64_t i = 0; i < found.size(); ++i)
    different += found[i] == wanted[i] || (std::isnan(found[i]) && std::isnan(wanted[i])) ? 0 : 1;
  CHECK(different == 0);
}

void run(const Case& c, const Inputs& in) {
  INFO(name_of(c.dtype) << " B " << c.batch << " NH " << c.heads << " HS " << c.head_size << ", position "
                        << c.position[0]);
  const auto [o] = expected(c.dtype, [&](auto math) { return naive(math, c, in); });
  on_devices(all_devices(), {c.dtype}, [&](Workbench& bench) {
    const AttentionCachedArgs a = arguments_of(c, in, bench);
    ISOBAR_RUN(bench.device(), attention_cached, a);
    bench.check("o", {a.o}, o);
    check_same(bench.read({a.keys}), kept_after(c, in.keys, in.k));
    check_same(bench.read({a.values}), kept_after(c, in.values, in.v));
  });
}

}  // namespace

TEST_CASE("attention_cached gives the attention of the newest token, and keeps its key and value") {
  for (const DType dtype : kFloating)
    for (Case c : std::vector<Case>{{1, 1, 8, 1, 0, {0}},
                                    {2, 3, 24, 9, 0, {8, 3}},
                                    {3, 2, 64, 200, 8, {127, 128, 150}},
                                    {1, 2, 128, 300, 0, {299}},
                                    {4, 1, 16, 5, 16, {0, 4, 2, 1}}}) {
      c.dtype = dtype;
      run(c, Inputs(c));
    }
}

TEST_CASE("attention_cached leaves out samples without a position") {
  for (const DType dtype : kFloating) {
    const Case c{3, 2, 8, 6, 0, {-1, 2, -1}, dtype};
    run(c, Inputs(c));
  }
}

TEST_CASE("attention_cached does not overflow, however large the scores are") {
  const Case c{1, 2, 16, 400, 0, {390}};
  run(c, Inputs(c, 12));
}

TEST_CASE("attention_cached passes NaN of a key on, to its own head alone") {
  const Case c{1, 2, 8, 5, 0, {3}};
  Inputs in(c);
  in.keys[2 * c.width() + 1] = std::nan("");
  on_devices(all_devices(), {c.dtype}, [&](Workbench& bench) {
    const AttentionCachedArgs a = arguments_of(c, in, bench);
    ISOBAR_RUN(bench.device(), attention_cached, a);
    const Values o = bench.read({a.o});
    for (std::int64_t i = 0; i < 16; ++i) CHECK(std::isnan(o[i]) == (i < 8));
  });
}

TEST_CASE("attention_cached: a sample has the same bits whatever the others are, and with any threads") {
  const Case both{2, 3, 24, 300, 0, {140, 20}}, alone{1, 3, 24, 300, 0, {140}};
  const Inputs in(both);
  Inputs first(alone);
  const auto cut = [&](const Values& all, std::int64_t n) {
    Values part = all;
    part.v.resize(static_cast<std::size_t>(n));
    return part;
  };
  first.q = cut(in.q, alone.stride()), first.k = cut(in.k, alone.stride()), first.v = cut(in.v, alone.stride());
  first.keys = cut(in.keys, alone.kept()), first.values = cut(in.values, alone.kept());
  on_devices(all_devices(), {DType::fp32}, [&](Workbench& bench) {
    const AttentionCachedArgs a = arguments_of(both, in, bench), b = arguments_of(alone, first, bench);
    ISOBAR_RUN(bench.device(), attention_cached, a);
    ISOBAR_RUN(bench.device(), attention_cached, b);
    const Values of_both = bench.read({a.o}), of_one = bench.read({b.o});
    for (std::int64_t i = 0; i < alone.width(); ++i) CHECK(of_both[i] == of_one[i]);
  });
}

TEST_CASE("attention_cached refuses what it does not compute") {
  const auto refusal = [](Case c, std::int32_t position) {
    Case allocated = c;
    allocated.head_size = 8;
    const Inputs in(allocated);
    allocated.position = {position};
    Workbench bench({});
    AttentionCachedArgs a = arguments_of(allocated, in, bench);
    a.head_size = c.head_size;
    cpu::attention_cached(a);
  };
  CHECK_THROWS_WITH(refusal({1, 1, 12, 3, 0, {0}}, 0),
                    "attention_cached: the head size must be a multiple of 8 up to 128, not 12");
  CHECK_THROWS_WITH(refusal({1, 1, 8, 3, 0, {0}}, 3),
                    "attention_cached: sample 0 is at position 3, beyond the room for 3 tokens");
}

}  // namespace isobar::testing
