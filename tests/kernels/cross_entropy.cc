// cross_entropy: the loss, its statistics, the predictions and the gradient against the formula and against PyTorch;
// rows that do not count, bad labels, logits that are not finite, finite differences; in two halves over ranks.
#include "kernels/cases/cross_entropy.h"

#include <limits>

#include "tests/harness/kernel_testing.h"

namespace isobar::testing {
namespace {

const std::vector<DeviceKind> kDevices = all_devices();
constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();

struct Case {
  std::int64_t rows, classes;  // classes: columns
  DType dtype;
  std::int32_t ignore = kIgnoredLabel;
  std::int64_t padding = 0;
  Values logits = {};
  std::vector<std::int32_t> labels = {};
  bool has_prediction = true;

  std::int64_t counted_classes() const { return classes - padding; }
  DType acc() const { return accumulator_of(dtype); }
  bool counts(std::int64_t row) const { return label(row) != ignore; }
  std::int32_t label(std::int64_t row) const { return labels[static_cast<std::size_t>(row)]; }
  double logit(std::int64_t row, std::int64_t c) const { return logits.v[static_cast<std::size_t>(row * classes + c)]; }
  std::int64_t counted() const { return rows - std::count(labels.begin(), labels.end(), ignore); }
  Values label_values() const { return values_of({labels.begin(), labels.end()}, DType::i32); }
};

// Large positive and negative logits, one that dwarfs the others, and equal ones; labels at both ends, some ignored.
Case filled(Case c) {
  c.logits = random_values(c.rows * c.classes, c.dtype, 1, 3);
  for (std::int64_t row = 0; row < c.rows; ++row) {
    for (std::int64_t i = 0; i < c.classes; ++i) {
      double& x = c.logits[row * c.classes + i];
      if (row % 7 == 1) x += 1000;
      if (row % 7 == 2) x -= 1000;
      if (row % 7 == 3 && i == c.classes - 1) x += 60;
      if (row % 7 == 4) x = -2;
      if (row % 7 == 5) x = std::round(x / 4);  // many of the greatest
      x = round_to(x, c.dtype);
    }
    const std::int64_t last = c.counted_classes() - 1, anywhere = (row * 7919 + 13) % (last + 1);
    const std::int64_t label = row % 5 == 1 ? last : row % 5 == 2 ? 0 : anywhere;
    c.labels.push_back(row % 6 == 5 ? c.ignore : static_cast<std::int32_t>(label));
  }
  return c;
}

std::string name_of_case(const Case& c) {
  return std::string(name_of(c.dtype)) + ", " + std::to_string(c.rows) + " x " + std::to_string(c.classes);
}

template <class F>
void for_each_case(const F& f) {
  for (DType dtype : kFloating) {
    for (std::int64_t classes : {1, 2, 10, 31, 32, 33, 384, 1000})
      for (std::int64_t rows : kRaggedRows) f(filled({rows, classes, dtype}));
    // Many rows; rows that take a block of a GPU each; the vocabularies of GPT-2 (odd) and of the largest models.
    for (const auto& [rows, classes] : {std::pair{600, 65}, {13, 1030}, {9, 8201}, {3, 50257}, {2, 250000}})
      f(filled({rows, classes, dtype}));
  }
}

// max, sum, row_loss, loss
template <class Real>
std::array<std::vector<Real>, 4> naive_fwd(const Case& c) {
  std::array<std::vector<Real>, 4> out;
  auto& [maxima, sums, losses, mean] = out;
  Real total = 0;
  for (std::int64_t row = 0; row < c.rows; ++row) {
    if (!c.counts(row)) {
      for (auto* values : {&maxima, &sums, &losses}) values->push_back(0);
      continue;
    }
    Real max = -std::numeric_limits<Real>::infinity(), sum = 0;
    for (std::int64_t i = 0; i < c.counted_classes(); ++i) max = std::max(max, static_cast<Real>(c.logit(row, i)));
    for (std::int64_t i = 0; i < c.counted_classes(); ++i) sum += std::exp(static_cast<Real>(c.logit(row, i)) - max);
    maxima.push_back(max);
    sums.push_back(sum);
    losses.push_back(std::log(sum) + (max - static_cast<Real>(c.logit(row, c.label(row)))));
    total += losses.back();
  }
  mean = {total / static_cast<Real>(c.counted())};
  return out;
}

Values naive_prediction(const Case& c) {
  Values prediction = constant_values(c.rows, DType::i32, -1);
  for (std::int64_t row = 0; row < c.rows; ++row) {
    if (!c.counts(row)) continue;
    std::int64_t best = 0;
    for (std::int64_t i = 1; i < c.counted_classes(); ++i)
      if (c.logit(row, i) > c.logit(row, best)) best = i;
    prediction[row] = static_cast<double>(best);
  }
  return prediction;
}

struct Statistics {
  Values max, sum;
};

Statistics exact_statistics(const Case& c) {
  const auto [max, sum, losses, mean] = naive_fwd<long double>(c);
  return {values_of({max.begin(), max.end()}, c.acc()), values_of({sum.begin(), sum.end()}, c.acc())};
}

// dlogits
template <class Real>
std::array<std::vector<Real>, 1> naive_bwd(const Case& c, const Statistics& s, Real upstream) {
  std::array<std::vector<Real>, 1> dlogits;
  const Real scale = upstream / static_cast<Real>(c.counted());
  for (std::int64_t row = 0; row < c.rows; ++row)
    for (std::int64_t i = 0; i < c.classes; ++i) {
      if (!c.counts(row) || i >= c.counted_classes()) {
        dlogits[0].push_back(0);
        continue;
      }
      const Real e = std::exp(static_cast<Real>(c.logit(row, i)) - static_cast<Real>(s.max.v[row]));
      dlogits[0].push_back(scale * (e / static_cast<Real>(s.sum.v[row]) - (i == c.label(row) ? Real(1) : Real(0))));
    }
  return dlogits;
}

CrossEntropyFwdArgs forward_arguments(const Case& c, Workbench& bench, std::int64_t shift = 0) {
  return cases::cross_entropy_fwd(
      {.rows = c.rows, .classes = c.classes, .padding = c.padding, .dtype = c.dtype, .ignore = c.ignore},
      bench.operands({{"logits", c.logits, shift}, {"labels", c.label_values()}, {"prediction", c.has_prediction}}));
}

// in_place: dlogits lies over the logits.
CrossEntropyBwdArgs backward_arguments(const Case& c, const Statistics& s, Workbench& bench, double upstream = 1,
                                       const Values* device_upstream = nullptr, bool in_place = false) {
  std::vector<Given> logits = {{"logits", c.logits}};
  if (in_place) {
    const Pointer both = bench.in_out(c.logits);
    logits = {{"logits", both}, {"dlogits", both}};
  }
  return cases::cross_entropy_bwd(
      {.rows = c.rows,
       .classes = c.classes,
       .padding = c.padding,
       .dtype = c.dtype,
       .ignore = c.ignore,
       .upstream = upstream},
      bench.operands({{"labels", c.label_values()},
                      {"max", s.max},
                      {"sum", s.sum},
                      {"counted", constant_values(1, DType::i32, static_cast<double>(c.counted()))},
                      {"device_upstream", device_upstream}},
                     logits));
}

void check_forward(const Case& c, std::int64_t shift = 0) {
  const auto [max, sum, row_loss, loss] =
      expected(c.dtype, [&]<class Real>(Arithmetic<Real>) { return naive_fwd<Real>(c); });
  const Values prediction = naive_prediction(c);
  INFO(name_of_case(c) << ", moved by " << shift);
  on_devices(kDevices, {c.dtype}, [&](Workbench& bench) {
    const CrossEntropyFwdArgs a = forward_arguments(c, bench, shift);
    ISOBAR_RUN(bench.device(), cross_entropy_fwd, a);
    bench.check("max", {a.max}, max);
    bench.check("sum", {a.sum}, sum);
    bench.check("row_loss", {a.row_loss}, row_loss);
    bench.check("loss", {a.loss}, loss);
    bench.check_equal("counted", {a.counted}, constant_values(1, DType::i32, static_cast<double>(c.counted())));
    if (c.has_prediction) bench.check_equal("prediction", {a.prediction}, prediction);
  });
}

// A small case whose row 2 is to be spoilt; all other rows count.
Case small_case(DType dtype, std::int64_t classes = 6) {
  Case c = filled({5, classes, dtype});
  return c;
}

}  // namespace

TEST_CASE("cross_entropy_fwd follows its formula") {
  for_each_case([](const Case& c) { check_forward(c); });
  for (DType dtype : kFloating) {  // logits off the alignment of a chunk; a class that does not count; no predictions
    check_forward(filled({7, 64, dtype}), 1);
    Case c = filled({13, 8, dtype, 3});
    c.has_prediction = false;
    check_forward(c);
  }
}

TEST_CASE("cross_entropy_bwd follows its formula") {
  for_each_case([](const Case& c) {
    const Statistics s = exact_statistics(c);
    const Values factor = values_of({1.3}, c.acc());
    for (bool on_device : {false, true}) {
      const auto [dlogits] = expected(c.dtype, [&]<class Real>(Arithmetic<Real>) {
        return naive_bwd<Real>(c, s, Real(64) * (on_device ? static_cast<Real>(factor.v[0]) : Real(1)));
      });
      INFO(name_of_case(c) << ", upstream on the device " << on_device);
      on_devices(kDevices, {c.dtype}, [&](Workbench& bench) {
        const CrossEntropyBwdArgs a = backward_arguments(c, s, bench, 64, on_device ? &factor : nullptr, on_device);
        ISOBAR_RUN(bench.device(), cross_entropy_bwd, a);
        bench.check("dlogits", {a.dlogits}, dlogits);
      });
    }
  });
}

// F.cross_entropy(logits, labels) and its gradient in fp64 by PyTorch 2.15; the fourth label is ignored.
TEST_CASE("cross_entropy gives PyTorch's numbers") {
  const std::vector<double> logits = {1.5, -0.25, 3,   0.5, -2,  0,   0.75, 1.25, 120, 119,
                                      -40, 0,     0.5, 0.5, 0.5, 0.5, 7,    -3,   2,   2.5};
  const std::vector<double> row_loss = {0.29564233031672116, 3.908457213548218, 1.3132616875182228, 0,
                                        4.517734159556808};
  const std::vector<double> dlogits = {0.041505194477882666,
                                       0.00721252131809931,
                                       -0.06398662354621745,
                                       0.015268907750235509,
                                       -0.24498213921560516,
                                       0.03707725483251754,
                                       0.078492549096392,
                                       0.12941233528669563,
                                       0.18276464465750122,
                                       -0.18276464465750122,
                                       5.953537340647856e-71,
                                       1.4013749755525779e-53,
                                       0,
                                       0,
                                       0,
                                       0,
                                       0.2456055412976813,
                                       1.1150474324191803e-05,
                                       0.0016548771199454734,
                                       -0.24727156889195093};
  for (DType dtype : {DType::fp32, DType::fp64}) {
    const Case c{
        .rows = 5, .classes = 4, .dtype = dtype, .logits = values_of(logits, dtype), .labels = {2, 0, 1, -100, 3}};
    const double tolerance = 4 * epsilon_of(dtype);
    const auto near = [&](const Values& got, const std::vector<double>& wanted) {
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        INFO("element " << i << ": " << got.v[i] << ", PyTorch's " << wanted[i]);
        CHECK(std::abs(got.v[i] - wanted[i]) <= tolerance * std::max(1.0, std::abs(wanted[i])));
      }
    };
    on_devices(kDevices, {dtype}, [&](Workbench& bench) {
      const CrossEntropyFwdArgs a = forward_arguments(c, bench);
      ISOBAR_RUN(bench.device(), cross_entropy_fwd, a);
      near(bench.read({a.loss}), {2.508773847734992});
      near(bench.read({a.row_loss}), row_loss);
      bench.check_equal("prediction", {a.prediction}, values_of({2, 3, 0, -1, 0}, DType::i32));
      const CrossEntropyBwdArgs b = backward_arguments(c, {bench.read({a.max}), bench.read({a.sum})}, bench);
      ISOBAR_RUN(bench.device(), cross_entropy_bwd, b);
      near(bench.read({b.dlogits}), dlogits);
    });
  }
}

// The padded logits are NaN: they must not be read.
TEST_CASE("cross_entropy: padded columns have no probability, no gradient and are not read") {
  for (DType dtype : kFloating)
    for (const auto& [rows, classes, padding] :
         {std::array<std::int64_t, 3>{7, 2, 1}, {7, 40, 1}, {7, 40, 7}, {19, 128, 63}, {5, 1100, 75}, {1, 50304, 47}}) {
      Case c = filled({.rows = rows, .classes = classes, .dtype = dtype, .padding = padding});
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t i = classes - padding; i < classes; ++i) c.logits[row * classes + i] = kNaN;
      check_forward(c, rows % 2);
      const Statistics s = exact_statistics(c);
      const auto [dlogits] =
          expected(dtype, [&]<class Real>(Arithmetic<Real>) { return naive_bwd<Real>(c, s, Real(1)); });
      INFO(name_of_case(c) << ", " << padding << " padded");
      for (const bool in_place : {false, true})
        on_devices(kDevices, {dtype}, [&](Workbench& bench) {
          const CrossEntropyBwdArgs b = backward_arguments(c, s, bench, 1, nullptr, in_place);
          ISOBAR_RUN(bench.device(), cross_entropy_bwd, b);
          bench.check("dlogits", {b.dlogits}, dlogits);
        });
    }
}

TEST_CASE("cross_entropy: a padded column is no label") {
  Case c = small_case(DType::fp32, 40);
  c.padding = 8;
  c.labels = {0, 1, 32, 31, 2};
  on_devices(kDevices, {c.dtype}, [&](Workbench& bench) {
    const CrossEntropyFwdArgs a = forward_arguments(c, bench);
    ISOBAR_RUN(bench.device(), cross_entropy_fwd, a);
    const Values losses = bench.read({a.row_loss});
    for (int row = 0; row < 5; ++row) CHECK(std::isnan(losses[row]) == (row == 2));
  });
}

TEST_CASE("cross_entropy: a label that is no class makes the loss and its row's gradient NaN, and nothing else") {
  for (DType dtype : kFloating)
    for (std::int64_t classes : {6, 1100})
      for (const std::int32_t bad : {-1, static_cast<std::int32_t>(classes), -101, 2147483647}) {
        Case c = small_case(dtype, classes);
        c.labels = {0, 1, bad, 3, 2};
        const Statistics s{constant_values(5, c.acc(), 0), constant_values(5, c.acc(), 1)};
        INFO(name_of_case(c) << ", label " << bad);
        on_devices(kDevices, {dtype}, [&](Workbench& bench) {
          const CrossEntropyFwdArgs a = forward_arguments(c, bench);
          ISOBAR_RUN(bench.device(), cross_entropy_fwd, a);
          CHECK(std::isnan(bench.read({a.loss})[0]));
          const Values losses = bench.read({a.row_loss});
          for (int row = 0; row < 5; ++row) CHECK(std::isnan(losses[row]) == (row == 2));
          bench.check_equal("prediction", {a.prediction}, naive_prediction(c));

          const CrossEntropyBwdArgs b = backward_arguments(c, {bench.read({a.max}), bench.read({a.sum})}, bench);
          ISOBAR_RUN(bench.device(), cross_entropy_bwd, b);
          const Values dlogits = bench.read({b.dlogits});
          for (std::int64_t i = 0; i < dlogits.size(); ++i) REQUIRE(std::isnan(dlogits[i]) == (i / classes == 2));
        });
      }
}

TEST_CASE("cross_entropy: nothing to count is NaN, its gradient 0, and ignored logits are not read") {
  for (DType dtype : kFloating)
    for (std::int64_t classes : {6, 1100}) {
      Case c = small_case(dtype, classes);
      c.labels.assign(5, kIgnoredLabel);
      for (double& x : c.logits.v) x = kNaN;
      const Values zeros = constant_values(5, c.acc(), 0);
      on_devices(kDevices, {dtype}, [&](Workbench& bench) {
        const CrossEntropyFwdArgs a = forward_arguments(c, bench);
        ISOBAR_RUN(bench.device(), cross_entropy_fwd, a);
        CHECK(std::isnan(bench.read({a.loss})[0]));
        bench.check_equal("counted", {a.counted}, constant_values(1, DType::i32, 0));
        for (void* zero : {a.max, a.sum, a.row_loss}) bench.check_equal("ignored", {zero}, zeros);
        bench.check_equal("prediction", {a.prediction}, constant_values(5, DType::i32, -1));
        const CrossEntropyBwdArgs b = backward_arguments(c, {zeros, zeros}, bench);
        ISOBAR_RUN(bench.device(), cross_entropy_bwd, b);
        bench.check_equal("dlogits", {b.dlogits}, constant_values(5 * classes, dtype, 0));
      });
    }
}

TEST_CASE("cross_entropy: logits that are not finite") {
  struct Bad {
    double first, others;  // of the spoilt row: one logit, and all others (0: as they were)
    bool loss_is_nan;
    double prediction;  // -2: as it was
  };
  const std::vector<Bad> bads = {{kNaN, 0, true, -1},          {kInfinity, 0, true, -1},
                                 {-kInfinity, 0, false, -2},   {-kInfinity, -kInfinity, true, 0},
                                 {kNaN, -kInfinity, true, -1}, {5, -kInfinity, false, 4}};
  for (DType dtype : kFloating)
    for (std::int64_t classes : {6, 1100})
      for (const Bad& bad : bads) {
        Case c = small_case(dtype, classes);
        c.labels = {0, 1, 4, 3, 2};
        const std::int64_t row = 2 * classes, place = bad.loss_is_nan || bad.others != 0 ? 4 : 5;
        for (std::int64_t i = 0; i < classes && bad.others != 0; ++i) c.logits[row + i] = bad.others;
        c.logits[row + place] = bad.first;
        Values prediction = naive_prediction(c);
        if (bad.prediction != -2) prediction[2] = bad.prediction;
        INFO(name_of_case(c) << ", " << bad.first << " among " << bad.others);
        on_devices(kDevices, {dtype}, [&](Workbench& bench) {
          const CrossEntropyFwdArgs a = forward_arguments(c, bench);
          ISOBAR_RUN(bench.device(), cross_entropy_fwd, a);
          CHECK(std::isnan(bench.read({a.loss})[0]) == bad.loss_is_nan);
          CHECK(std::isfinite(bench.read({a.loss})[0]) == !bad.loss_is_nan);
          for (int i : {0, 1, 3, 4}) CHECK(std::isfinite(bench.read({a.row_loss})[i]));
          bench.check_equal("prediction", {a.prediction}, prediction);
          const CrossEntropyBwdArgs b = backward_arguments(c, {bench.read({a.max}), bench.read({a.sum})}, bench);
          ISOBAR_RUN(bench.device(), cross_entropy_bwd, b);
          const Values dlogits = bench.read({b.dlogits});
          for (std::int64_t i = 0; i < dlogits.size(); ++i)
            if (i / classes != 2 || !bad.loss_is_nan) REQUIRE(std::isfinite(dlogits[i]));
          if (bad.loss_is_nan) CHECK(std::isnan(dlogits[row + 4]));
        });
      }
}

TEST_CASE("cross_entropy: the lowest finite logit is still above -∞") {
  for (const auto& [dtype, lowest] : {std::pair{DType::fp32, double{std::numeric_limits<float>::lowest()}},
                                      {DType::fp64, std::numeric_limits<double>::lowest()}})
    for (std::int64_t classes : {6, 1100}) {
      Case c{.rows = 1, .classes = classes, .dtype = dtype, .labels = {4}};
      c.logits = constant_values(classes, dtype, -kInfinity);
      c.logits[4] = lowest;
      on_devices(kDevices, {dtype}, [&](Workbench& bench) {
        const CrossEntropyFwdArgs a = forward_arguments(c, bench);
        ISOBAR_RUN(bench.device(), cross_entropy_fwd, a);
        bench.check_equal("prediction", {a.prediction}, values_of({4}, DType::i32));
        bench.check_equal("loss", {a.loss}, values_of({0}, accumulator_of(dtype)));
      });
    }
}

TEST_CASE("cross_entropy_bwd is the gradient of cross_entropy_fwd") {
  Case c = filled({7, 5, DType::fp64});
  c.logits = random_values(35, DType::fp64, 3, 2);
  Workbench bench({});
  const CrossEntropyFwdArgs forward = forward_arguments(c, bench);
  cpu::cross_entropy_fwd(forward);
  const Statistics s{bench.read({forward.max}), bench.read({forward.sum})};
  const CrossEntropyBwdArgs backward = backward_arguments(c, s, bench, 1.7);
  cpu::cross_entropy_bwd(backward);
  check_gradient("dlogits", c.logits, bench.read({backward.dlogits}), [&](const Values& moved) {
    Case other = c;
    other.logits = moved;
    Workbench inner({});
    const CrossEntropyFwdArgs a = forward_arguments(other, inner);
    cpu::cross_entropy_fwd(a);
    return 1.7 * inner.read({a.loss})[0];
  });
}

// ---- in two halves --------------------------------------------------------------------------------------------------

namespace {

// The columns of some ranks: as many as possible alike, the padding at the end of all.
struct Share {
  std::int64_t first, count, padding;
};
std::vector<Share> shares_of(const Case& c, std::int64_t ranks) {
  std::vector<Share> shares;
  for (std::int64_t r = 0; r < ranks; ++r) {
    const std::int64_t first = c.classes * r / ranks, end = c.classes * (r + 1) / ranks;
    shares.push_back({first, end - first, std::clamp<std::int64_t>(end - c.counted_classes(), 0, end - first)});
  }
  return shares;
}

Values columns_of(const Case& c, const Values& matrix, const Share& share) {
  Values own = constant_values(c.rows * share.count, c.dtype, 0);
  for (std::int64_t row = 0; row < c.rows; ++row)
    for (std::int64_t i = 0; i < share.count; ++i)
      own[row * share.count + i] = matrix.v[static_cast<std::size_t>(row * c.classes + share.first + i)];
  return own;
}

// max, sum, row_loss, loss, as an honest implementation makes them of the ranks' parts.
template <class Real>
std::array<std::vector<Real>, 4> naive_halves(const Case& c, const std::vector<Share>& shares) {
  std::array<std::vector<Real>, 4> out;
  auto& [maxima, sums, losses, mean] = out;
  Real total = 0;
  for (std::int64_t row = 0; row < c.rows; ++row) {
    if (!c.counts(row)) {
      for (auto* values : {&maxima, &sums, &losses}) values->push_back(0);
      continue;
    }
    std::vector<Real> max, sum;
    for (const Share& share : shares) {
      Real most = std::numeric_limits<Real>::lowest(), all = 0;
      for (std::int64_t i = 0; i < share.count - share.padding; ++i)
        most = std::max(most, static_cast<Real>(c.logit(row, share.first + i)));
      for (std::int64_t i = 0; i < share.count - share.padding; ++i)
        all += std::exp(static_cast<Real>(c.logit(row, share.first + i)) - most);
      max.push_back(most);
      sum.push_back(all);
    }
    const Real most = *std::max_element(max.begin(), max.end());
    Real all = 0;
    for (std::size_t s = 0; s < shares.size(); ++s) all += sum[s] * std::exp(max[s] - most);
    maxima.push_back(most);
    sums.push_back(all);
    losses.push_back(std::log(all) + (most - static_cast<Real>(c.logit(row, c.label(row)))));
    total += losses.back();
  }
  mean = {total / static_cast<Real>(c.counted())};
  return out;
}

// The parts of all ranks, gathered.
struct Parts {
  Values numbers, bests;
};
Parts parts_of(const Case& c, const std::vector<Share>& shares, Workbench& bench) {
  Parts parts{constant_values(0, c.acc(), 0), constant_values(0, DType::i32, 0)};
  for (const Share& share : shares) {
    const CrossEntropyPartialArgs a = cases::cross_entropy_partial(
        {.rows = c.rows,
         .classes = share.count,
         .padding = share.padding,
         .columns = {share.first, c.counted_classes()},
         .dtype = c.dtype,
         .ignore = c.ignore},
        bench.operands({{"logits", columns_of(c, c.logits, share)}, {"labels", c.label_values()}, {"best", true}}));
    ISOBAR_RUN(bench.device(), cross_entropy_partial, a);
    for (void* of : {a.max, a.sum, a.at_label}) {
      const Values values = bench.read({of});
      parts.numbers.v.insert(parts.numbers.v.end(), values.v.begin(), values.v.end());
    }
    const Values best = bench.read({a.best});
    parts.bests.v.insert(parts.bests.v.end(), best.v.begin(), best.v.end());
  }
  return parts;
}

CrossEntropyJoinArgs join_arguments(const Case& c, std::size_t ranks, const Parts& parts, Workbench& bench) {
  return cases::cross_entropy_join(
      {.rows = c.rows, .ranks = static_cast<std::int64_t>(ranks), .dtype = c.dtype, .ignore = c.ignore},
      bench.operands(
          {{"labels", c.label_values()}, {"parts", parts.numbers}, {"bests", parts.bests}, {"prediction", true}}));
}

void check_halves(const Case& c, std::int64_t ranks) {
  const std::vector<Share> shares = shares_of(c, ranks);
  const auto [max, sum, row_loss, loss] =
      expected(c.dtype, [&]<class Real>(Arithmetic<Real>) { return naive_halves<Real>(c, shares); });
  INFO(name_of_case(c) << ", " << c.padding << " padded, over " << ranks << " ranks");
  on_devices(kDevices, {c.dtype}, [&](Workbench& bench) {
    const CrossEntropyJoinArgs a = join_arguments(c, shares.size(), parts_of(c, shares, bench), bench);
    ISOBAR_RUN(bench.device(), cross_entropy_join, a);
    bench.check("max", {a.max}, max);
    bench.check("sum", {a.sum}, sum);
    bench.check("row_loss", {a.row_loss}, row_loss);
    bench.check_equal("prediction", {a.prediction}, naive_prediction(c));
    const CrossEntropyFinishArgs f =
        cases::cross_entropy_finish({.dtype = c.dtype}, bench.operands({{"sums", bench.read({a.sums})}}));
    ISOBAR_RUN(bench.device(), cross_entropy_finish, f);
    bench.check("loss", {f.loss}, loss);
    bench.check_equal("counted", {f.counted}, constant_values(1, DType::i32, static_cast<double>(c.counted())));
  });
}

}  // namespace

TEST_CASE("cross_entropy in two halves follows its formula, over any number of ranks") {
  for (DType dtype : kFloating)
    for (const auto& [rows, classes, padding] :
         {std::array<std::int64_t, 3>{7, 5, 0}, {7, 6, 2}, {19, 128, 63}, {13, 1030, 5}, {2, 8201, 9}}) {
      Case c = filled({.rows = rows, .classes = classes, .dtype = dtype, .padding = padding});
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t i = classes - padding; i < classes; ++i) c.logits[row * classes + i] = kNaN;
      for (const std::int64_t ranks : {1, 2, 3, 5}) check_halves(c, ranks);
    }
}

TEST_CASE("cross_entropy in two halves has the bits of the whole where one rank has all columns") {
  for (DType dtype : kFloating)
    for (std::int64_t classes : {10, 1030}) {
      const Case c = filled({13, classes, dtype});
      on_devices(kDevices, {dtype}, [&](Workbench& bench) {
        const CrossEntropyFwdArgs whole = forward_arguments(c, bench);
        ISOBAR_RUN(bench.device(), cross_entropy_fwd, whole);
        const CrossEntropyJoinArgs a = join_arguments(c, 1, parts_of(c, shares_of(c, 1), bench), bench);
        ISOBAR_RUN(bench.device(), cross_entropy_join, a);
        const CrossEntropyFinishArgs f =
            cases::cross_entropy_finish({.dtype = dtype}, bench.operands({{"sums", bench.read({a.sums})}}));
        ISOBAR_RUN(bench.device(), cross_entropy_finish, f);
        bench.check_equal("max", {a.max}, bench.read({whole.max}));
        bench.check_equal("sum", {a.sum}, bench.read({whole.sum}));
        bench.check_equal("row_loss", {a.row_loss}, bench.read({whole.row_loss}));
        bench.check_equal("loss", {f.loss}, bench.read({whole.loss}));
      });
    }
}

TEST_CASE("cross_entropy_bwd of a rank's columns is that part of the gradient") {
  for (DType dtype : kFloating)
    for (const auto& [rows, classes, padding] : {std::array<std::int64_t, 3>{7, 6, 2}, {13, 1030, 5}, {5, 3300, 64}})
      for (const std::int64_t ranks : {1, 2, 3}) {
        const Case c = filled({.rows = rows, .classes = classes, .dtype = dtype, .padding = padding});
        const Statistics s = exact_statistics(c);
        INFO(name_of_case(c) << ", over " << ranks << " ranks");
        for (const Share& share : shares_of(c, ranks)) {
          const auto [dlogits] = expected(dtype, [&]<class Real>(Arithmetic<Real>) {
            const auto [all] = naive_bwd<Real>(c, s, Real(3));
            std::array<std::vector<Real>, 1> own;
            for (std::int64_t row = 0; row < c.rows; ++row)
              for (std::int64_t i = 0; i < share.count; ++i)
                own[0].push_back(all[static_cast<std::size_t>(row * c.classes + share.first + i)]);
            return own;
          });
          on_devices(kDevices, {dtype}, [&](Workbench& bench) {
            const CrossEntropyBwdArgs b = cases::cross_entropy_bwd(
                {.rows = c.rows,
                 .classes = share.count,
                 .padding = share.padding,
                 .columns = {share.first, c.counted_classes()},
                 .dtype = dtype,
                 .ignore = c.ignore,
                 .upstream = 3},
                bench.operands({{"logits", columns_of(c, c.logits, share)},
                                {"labels", c.label_values()},
                                {"max", s.max},
                                {"sum", s.sum},
                                {"counted", constant_values(1, DType::i32, static_cast<double>(c.counted()))}}));
            ISOBAR_RUN(bench.device(), cross_entropy_bwd, b);
            bench.check("dlogits", {b.dlogits}, dlogits);
          });
        }
      }
}

// What one rank alone can see: a label that is no class of any rank, a row of a rank with nothing but -∞ or padding, a
// NaN in another rank's columns.
TEST_CASE("cross_entropy in two halves: what is not finite on one rank") {
  struct Spoilt {
    double value;  // of the logits from `from` on, in row 2
    std::int64_t from;
    std::int32_t label, prediction;
    bool is_nan;
  };
  for (DType dtype : kFloating)
    for (const Spoilt& spoilt : {Spoilt{kNaN, 8, 1, -1, true},
                                 {kInfinity, 8, 1, -1, true},
                                 {-kInfinity, 4, 1, -2, false},  // ranks without any finite logit
                                 {-kInfinity, 0, 1, 0, true},    // all of them
                                 {1, 11, 12, -2, true},          // a label that no rank has
                                 {1, 11, -1, -2, true}})
      for (const std::int64_t ranks : {2, 3}) {
        Case c = small_case(dtype, 12);
        c.labels = {0, 1, spoilt.label, 3, 2};
        for (std::int64_t i = spoilt.from; i < 12; ++i) c.logits[24 + i] = spoilt.value;
        Values prediction = naive_prediction(c);
        if (spoilt.prediction != -2) prediction[2] = spoilt.prediction;
        INFO(name_of_case(c) << ", " << spoilt.value << " from " << spoilt.from << ", label " << spoilt.label);
        on_devices(kDevices, {dtype}, [&](Workbench& bench) {
          const CrossEntropyJoinArgs a =
              join_arguments(c, static_cast<std::size_t>(ranks), parts_of(c, shares_of(c, ranks), bench), bench);
          ISOBAR_RUN(bench.device(), cross_entropy_join, a);
          const Values losses = bench.read({a.row_loss});
          for (int row = 0; row < 5; ++row) CHECK(std::isnan(losses[row]) == (row == 2 && spoilt.is_nan));
          bench.check_equal("prediction", {a.prediction}, prediction);
        });
      }
}

}  // namespace isobar::testing
