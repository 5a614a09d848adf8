// forecast_loss: the three losses and their gradients against the formulas, with and without weights, of fields and of
// rows of patches, whole and with missing points. All values are kept in the order of fields and rearranged on their
// way to the kernel.
#include "kernels/cases/forecast_loss.h"

#include <limits>
#include <stdexcept>

#include "kernels/cases/patchify.h"
#include "tests/harness/kernel_testing.h"

namespace isobar::testing {
namespace {

const std::vector<DeviceKind> kDevices = all_devices();
const std::vector<LossKind> kKinds = {LossKind::relative_l2, LossKind::weighted_mse, LossKind::relative_l2_weighted};

struct Case {
  std::int64_t batch, channels, height, width;
  LossKind kind;
  DType dtype;
  bool has_rows, has_channels;
  std::int64_t patch = 0;
  DType dpred_dtype = dtype;
  Values pred = {}, target = {}, rows = {}, cols = {};
  bool masked = false;

  std::int64_t sample() const { return channels * height * width; }
  std::int64_t size() const { return batch * sample(); }
  DType acc() const { return accumulator_of(dtype); }
  bool is_missing(std::int64_t i) const { return masked && std::isnan(target.v[static_cast<std::size_t>(i)]); }

  template <class Real>
  Real row_weight(std::int64_t i) const {
    return has_rows && kind != LossKind::relative_l2 ? static_cast<Real>(rows[i / width % height]) : Real(1);
  }
  template <class Real>
  Real weight(std::int64_t i) const {
    if (!has_channels || kind == LossKind::relative_l2) return row_weight<Real>(i);
    return row_weight<Real>(i) * static_cast<Real>(cols[i / width / height % channels]);
  }
  // In W and M.
  template <class Real>
  Real share_weight(std::int64_t i) const {
    return kind == LossKind::weighted_mse ? row_weight<Real>(i) : weight<Real>(i);
  }

  // Where element i of the fields lies in pred and dpred.
  std::int64_t place(std::int64_t i) const {
    if (patch == 0) return i;
    const std::int64_t w = i % width, h = i / width % height, c = i / width / height % channels, b = i / sample();
    const std::int64_t token = (b * (height / patch) + h / patch) * (width / patch) + w / patch;
    return ((token * patch + h % patch) * patch + w % patch) * channels + c;
  }
  Values placed_pred() const;
};

template <class T>
std::vector<T> in_place(const Case& c, const std::vector<T>& fields) {
  std::vector<T> placed(fields.size());
  for (std::size_t i = 0; i < fields.size(); ++i)
    placed[static_cast<std::size_t>(c.place(static_cast<std::int64_t>(i)))] = fields[i];
  return placed;
}

Values Case::placed_pred() const {
  return {dtype, in_place(*this, pred.v)};
}

Case filled(Case c) {
  c.target = random_values(c.size(), c.acc(), 1, 1, 0.3);
  c.pred = random_values(c.size(), c.dtype, 2);
  for (std::int64_t i = 0; i < c.size(); ++i) c.pred[i] = round_to(c.target[i] + 0.3 * c.pred[i], c.dtype);
  c.rows = uniform_values(c.height, c.acc(), 3, 0.1, 2);
  c.cols = uniform_values(c.channels, c.acc(), 4, 0.2, 3);
  return c;
}

// Forecasts of missing points.
const std::array<double, 4> kJunk = {std::nan(""), std::numeric_limits<double>::infinity(), 17, -3e4};

// With missing points, whose forecasts are `junk`, from the k-th on: in the first sample at random, in the second none,
// in the third all, in the fourth a channel; and so on.
Case with_missing(Case c, std::size_t k = 0) {
  c.masked = true;
  const Values drawn = uniform_values(c.size(), DType::fp64, 5, 0, 1);
  for (std::int64_t i = 0; i < c.size(); ++i) {
    const std::int64_t manner = i / c.sample() % 4, channel = i / c.width / c.height % c.channels;
    if (manner == 0 ? drawn[i] < 0.4 : manner == 2 || (manner == 3 && channel == 0)) {
      c.target[i] = std::nan("");
      c.pred[i] = round_to(kJunk[k++ % kJunk.size()], c.dtype);
    }
  }
  return c;
}

std::string name_of_case(const Case& c) {
  const char* kind = c.kind == LossKind::relative_l2    ? "relative_l2"
                     : c.kind == LossKind::weighted_mse ? "weighted_mse"
                                                        : "relative_l2_weighted";
  return std::string(kind) + ", " + name_of(c.dtype) + ", " + std::to_string(c.batch) + " x " +
         std::to_string(c.channels) + " x " + std::to_string(c.height) + " x " + std::to_string(c.width) +
         ", row weights " + std::to_string(c.has_rows) + ", channel weights " + std::to_string(c.has_channels) +
         ", patch " + std::to_string(c.patch) + ", gradient in " + name_of(c.dpred_dtype) +
         (c.masked ? ", masked" : "");
}

// (E, T), masked (E, T, W, M), of every sample, and the loss
template <class Real>
std::array<std::vector<Real>, 2> naive_fwd(const Case& c) {
  std::vector<Real> sums;
  Real loss = 0;
  std::int64_t samples = 0;
  for (std::int64_t b = 0; b < c.batch; ++b) {
    Real error = 0, square = 0, present = 0, missing = 0;
    for (std::int64_t i = b * c.sample(); i < (b + 1) * c.sample(); ++i) {
      (c.is_missing(i) ? missing : present) += c.share_weight<Real>(i);
      if (c.is_missing(i)) continue;
      const Real e = static_cast<Real>(c.pred[i]) - static_cast<Real>(c.target[i]);
      error += c.weight<Real>(i) * e * e;
      square += c.weight<Real>(i) * static_cast<Real>(c.target[i]) * static_cast<Real>(c.target[i]);
    }
    sums.push_back(error);
    sums.push_back(square);
    if (c.masked) sums.insert(sums.end(), {present, missing});
    if (present == 0) continue;
    const Real points = static_cast<Real>(c.sample()) * (c.masked ? present / (present + missing) : Real(1));
    loss += c.kind == LossKind::weighted_mse ? error / points : std::sqrt(error) / std::sqrt(square);
    ++samples;
  }
  return {sums, {samples == 0 ? Real(0) : loss / static_cast<Real>(samples)}};
}

template <class Real>
std::array<std::vector<Real>, 1> naive_bwd(const Case& c, const Values& sums, Real upstream) {
  const std::int64_t per_sample = forecast_loss_sums_of(c.masked);
  std::int64_t samples = 0;
  for (std::int64_t b = 0; b < c.batch; ++b) samples += !c.masked || sums.v[static_cast<std::size_t>(4 * b + 2)] > 0;
  std::array<std::vector<Real>, 1> dpred;
  for (std::int64_t i = 0; i < c.size(); ++i) {
    if (c.is_missing(i)) {
      dpred[0].push_back(0);
      continue;
    }
    const std::int64_t at = i / c.sample() * per_sample;
    const Real error = static_cast<Real>(sums[at]), square = static_cast<Real>(sums[at + 1]);
    const Real e = static_cast<Real>(c.pred[i]) - static_cast<Real>(c.target[i]);
    Real share = 1;
    if (c.masked) {
      const Real present = static_cast<Real>(sums[at + 2]);
      share = present / (present + static_cast<Real>(sums[at + 3]));
    }
    Real slope = 2 / (static_cast<Real>(samples * c.sample()) * share);
    if (c.kind != LossKind::weighted_mse)
      slope = error == 0 ? Real(0) : 1 / (static_cast<Real>(samples) * std::sqrt(error) * std::sqrt(square));
    dpred[0].push_back(upstream * slope * c.weight<Real>(i) * e);
  }
  return {in_place(c, dpred[0])};
}

ForecastLossSumsArgs sums_arguments(const Case& c, Workbench& bench) {
  return cases::forecast_loss_sums({.kind = c.kind,
                                    .masked = c.masked,
                                    .batch = c.batch,
                                    .channels = c.channels,
                                    .height = c.height,
                                    .width = c.width,
                                    .patch = c.patch,
                                    .dtype = c.dtype},
                                   bench.operands({{"pred", c.placed_pred()},
                                                   {"target", c.target},
                                                   {"row_weights", c.has_rows ? &c.rows : nullptr},
                                                   {"channel_weights", c.has_channels ? &c.cols : nullptr}}));
}

ForecastLossFinishArgs finish_arguments(const Case& c, const Values& sums, Workbench& bench) {
  return cases::forecast_loss_finish(
      {.kind = c.kind, .masked = c.masked, .batch = c.batch, .sample_size = c.sample(), .dtype = c.dtype},
      bench.operands({{"sums", sums}}));
}

ForecastLossBwdArgs backward_arguments(const Case& c, const Values& sums, Workbench& bench,
                                       const Values* upstream = nullptr, std::int64_t pred_shift = 0,
                                       std::int64_t dpred_shift = 0) {
  return cases::forecast_loss_bwd({.kind = c.kind,
                                   .masked = c.masked,
                                   .batch = c.batch,
                                   .channels = c.channels,
                                   .height = c.height,
                                   .width = c.width,
                                   .sample_size = c.sample(),
                                   .patch = c.patch,
                                   .dtype = c.dtype,
                                   .dpred_dtype = c.dpred_dtype},
                                  bench.operands({{"pred", c.placed_pred(), pred_shift},
                                                  {"target", c.target},
                                                  {"row_weights", c.has_rows ? &c.rows : nullptr},
                                                  {"channel_weights", c.has_channels ? &c.cols : nullptr},
                                                  {"sums", sums},
                                                  {"upstream", upstream},
                                                  {"dpred", bench.output(c.size(), c.dpred_dtype, dpred_shift)}}));
}

// The sums as fp64 holds them.
Values exact_sums(const Case& c) {
  const auto exact = naive_fwd<long double>(c)[0];
  return values_of({exact.begin(), exact.end()}, DType::fp64);
}

// Rows [first, first + count) of every channel.
Case band(const Case& c, std::int64_t first, std::int64_t count) {
  Case part = c;
  part.height = count;
  part.pred.v.clear();
  part.target.v.clear();
  for (std::int64_t plane = 0; plane < c.batch * c.channels; ++plane)
    for (std::int64_t i = first * c.width; i < (first + count) * c.width; ++i) {
      part.pred.v.push_back(c.pred[plane * c.height * c.width + i]);
      part.target.v.push_back(c.target[plane * c.height * c.width + i]);
    }
  part.rows.v.assign(c.rows.v.begin() + first, c.rows.v.begin() + first + count);
  return part;
}

template <class F>
void for_each_case(const F& f) {
  for (LossKind kind : kKinds)
    for (DType dtype : kFloating)
      for (bool weighted : {false, true}) {
        f(filled({1, 1, 1, 1, kind, dtype, weighted, weighted}));
        f(filled({3, 5, 7, 33, kind, dtype, weighted, true}));
        f(filled({2, 20, 13, 52, kind, dtype, true, weighted}));
        // More samples than a block has warps or the emulator's grids have blocks; rows for over 32 blocks of a GPU.
        f(filled({13, 1, 31, 1, kind, dtype, weighted, weighted}));
        f(filled({1, 43, 31, 3, kind, dtype, weighted, true}));
        f(filled({13, 3, 5, 7, kind, dtype, weighted, true, 1}));
        f(filled({3, 5, 4, 6, kind, dtype, true, weighted, 2}));
        f(filled({2, 20, 16, 24, kind, dtype, weighted, true, 8}));
        // Wider, and of more channels, than a tile of the CUDA kernel; its first tile has 126 pixels.
        f(filled({1, 44, 4, 132, kind, dtype, true, weighted, 4}));
        f(filled({1, 47, 3, 129, kind, dtype, weighted, weighted, 3}));
      }
}

const std::vector<DType> kHalves = {DType::bf16, DType::fp16};

// Of rows of patches: with more tiles than the emulator's grids have blocks, ragged ones, those of the others.
std::vector<Case> patched_cases() {
  std::vector<Case> cases;
  for (LossKind kind : kKinds)
    for (DType dpred_dtype : {DType::fp32, DType::bf16, DType::fp16}) {
      cases.push_back(filled({2, 4, 32, 16, kind, DType::fp32, true, true, 4, dpred_dtype}));
      cases.push_back(filled({2, 6, 10, 14, kind, DType::fp32, true, true, 2, dpred_dtype}));
      cases.push_back(filled({1, 1, 3, 3, kind, DType::fp32, true, true, 1, dpred_dtype}));
    }
  for (DType dtype : kFloating) cases.push_back(filled({1, 5, 6, 9, LossKind::weighted_mse, dtype, true, true, 3}));
  return cases;
}

}  // namespace

TEST_CASE("forecast_loss_sums and forecast_loss_finish follow their formulas") {
  for_each_case([](const Case& c) {
    const auto [sums, loss] = expected(c.dtype, [&]<class Real>(Arithmetic<Real>) { return naive_fwd<Real>(c); });
    const Values whole = exact_sums(c);
    INFO(name_of_case(c));
    on_devices(kDevices, {c.dtype}, [&](Workbench& bench) {
      const ForecastLossSumsArgs a = sums_arguments(c, bench);
      ISOBAR_RUN(bench.device(), forecast_loss_sums, a);
      bench.check("sums", {a.sums}, sums);
      const ForecastLossFinishArgs b = finish_arguments(c, whole, bench);
      ISOBAR_RUN(bench.device(), forecast_loss_finish, b);
      bench.check("loss", {b.loss}, loss);
    });
  });
}

TEST_CASE("forecast_loss of bands of rows, their sums added, is that of the whole picture") {
  const auto check = [](const Case& c, const std::vector<std::int64_t>& heights) {
    const Values whole = exact_sums(c);
    // Within a row both add alike, so that rounding differs in fp64 only.
    on_devices(kDevices, {c.dtype}, [&](Workbench& bench) {
      const ForecastLossSumsArgs all = sums_arguments(c, bench);
      ISOBAR_RUN(bench.device(), forecast_loss_sums, all);
      std::vector<double> added(static_cast<std::size_t>(whole.size()), 0.0);
      std::int64_t first = 0;
      for (const std::int64_t height : heights) {
        const ForecastLossSumsArgs a = sums_arguments(band(c, first, height), bench);
        ISOBAR_RUN(bench.device(), forecast_loss_sums, a);
        const Values part = bench.read({a.sums});
        for (std::size_t i = 0; i < added.size(); ++i) added[i] += part.v[i];
        first += height;
      }
      REQUIRE(first == c.height);
      const Values expected_sums = bench.read({all.sums});
      INFO(name_of_case(c));
      for (std::size_t i = 0; i < added.size(); ++i)
        CHECK(std::fabs(added[i] - expected_sums.v[i]) <= 1e-14 * expected_sums.v[i]);

      const ForecastLossBwdArgs all_back = backward_arguments(c, whole, bench);
      ISOBAR_RUN(bench.device(), forecast_loss_bwd, all_back);
      const Values dpred = bench.read({all_back.dpred});
      first = 0;
      for (const std::int64_t height : heights) {
        ForecastLossBwdArgs a = backward_arguments(band(c, first, height), whole, bench);
        a.sample_size = c.sample();
        ISOBAR_RUN(bench.device(), forecast_loss_bwd, a);
        Case gradient = c;
        for (std::int64_t i = 0; i < c.size(); ++i) gradient.pred[i] = dpred[c.place(i)];
        const Case part = band(gradient, first, height);
        bench.check_equal("dpred of a band", {a.dpred}, {c.dtype, in_place(part, part.pred.v)});
        first += height;
      }
    });
  };
  for (LossKind kind : kKinds)
    for (DType dtype : kFloating) {
      for (const std::int64_t patch : {0, 3}) {
        const std::vector<std::int64_t> heights =
            patch == 0 ? std::vector<std::int64_t>{5, 1, 6, 3} : std::vector<std::int64_t>{3, 6, 3, 3};
        check(filled({3, 4, 15, 33, kind, dtype, true, true, patch}), heights);
        check(with_missing(filled({4, 4, 15, 33, kind, dtype, true, true, patch})), heights);
      }
    }
}

TEST_CASE("forecast_loss of rows of patches is that of the fields, its gradient to the last bit") {
  for (const Case& c : patched_cases()) {
    const Values sums = exact_sums(c);
    INFO(name_of_case(c));
    on_devices(kDevices, {c.dtype}, [&](Workbench& bench) {
      Case fields = c;
      fields.patch = 0;
      fields.dpred_dtype = c.dtype;
      const ForecastLossSumsArgs of_fields = sums_arguments(fields, bench), of_rows = sums_arguments(c, bench);
      ISOBAR_RUN(bench.device(), forecast_loss_sums, of_fields);
      ISOBAR_RUN(bench.device(), forecast_loss_sums, of_rows);
      const Values one = bench.read({of_fields.sums}), other = bench.read({of_rows.sums});
      for (std::int64_t i = 0; i < one.size(); ++i)
        CHECK(std::fabs(one[i] - other[i]) <= 4 * epsilon_of(c.acc()) * one[i]);

      const ForecastLossBwdArgs from_fields = backward_arguments(fields, sums, bench);
      ISOBAR_RUN(bench.device(), forecast_loss_bwd, from_fields);
      const PatchifyArgs rows = cases::patchify({.batch = c.batch,
                                                 .channels = c.channels,
                                                 .height = c.height,
                                                 .width = c.width,
                                                 .patch = c.patch,
                                                 .order = PatchOrder::channels_last,
                                                 .image_dtype = c.dtype,
                                                 .token_dtype = c.dpred_dtype},
                                                bench.operands({{"image", from_fields.dpred}}));
      ISOBAR_RUN(bench.device(), patchify, rows);
      const ForecastLossBwdArgs from_rows = backward_arguments(c, sums, bench);
      ISOBAR_RUN(bench.device(), forecast_loss_bwd, from_rows);
      bench.check_equal("dpred", {from_rows.dpred}, bench.read({rows.tokens}));
    });
  }
}

TEST_CASE("forecast_loss_bwd rounds the gradient of fields as well, and refuses what it cannot write") {
  for (DType dpred_dtype : kHalves) {
    const Case c = filled({2, 3, 5, 9, LossKind::weighted_mse, DType::fp32, true, true, 0, dpred_dtype});
    const Values sums = exact_sums(c);
    const auto [dpred] =
        expected(c.dtype, [&]<class Real>(Arithmetic<Real>) { return naive_bwd<Real>(c, sums, Real(1)); });
    on_devices(kDevices, {c.dtype}, [&](Workbench& bench) {
      const ForecastLossBwdArgs a = backward_arguments(c, sums, bench);
      ISOBAR_RUN(bench.device(), forecast_loss_bwd, a);
      bench.check("dpred", {a.dpred}, dpred);
    });
    const Case wrong = filled({1, 1, 2, 2, LossKind::weighted_mse, dpred_dtype, true, true, 0, DType::fp32});
    on_devices(kDevices, {dpred_dtype}, [&](Workbench& bench) {
      const ForecastLossBwdArgs a = backward_arguments(wrong, exact_sums(wrong), bench);
      CHECK_THROWS_AS(([&] { ISOBAR_RUN(bench.device(), forecast_loss_bwd, a); }()), std::runtime_error);
      for (std::int64_t i = 0; i < wrong.size(); ++i) CHECK(std::isnan(bench.read({a.dpred})[i]));
    });
  }
}

TEST_CASE("forecast_loss of rows of patches takes memory that no chunk of four is aligned in") {
  const Case c = filled({1, 4, 4, 8, LossKind::weighted_mse, DType::fp32, true, true, 4});
  const Values sums = exact_sums(c);
  const auto [exact] =
      expected(c.dtype, [&]<class Real>(Arithmetic<Real>) { return naive_bwd<Real>(c, sums, Real(1)); });
  for (const bool shifts_pred : {true, false})
    on_devices(kDevices, {c.dtype}, [&](Workbench& bench) {
      const ForecastLossBwdArgs a = backward_arguments(c, sums, bench, nullptr, shifts_pred, !shifts_pred);
      ISOBAR_RUN(bench.device(), forecast_loss_bwd, a);
      bench.check("dpred", {a.dpred}, exact);
    });
}

TEST_CASE("forecast_loss_bwd follows its formula") {
  for_each_case([](const Case& c) {
    const Values sums = exact_sums(c), factor = values_of({83.2}, c.acc());
    for (bool has_upstream : {false, true}) {
      const auto [dpred] = expected(c.dtype, [&]<class Real>(Arithmetic<Real>) {
        return naive_bwd<Real>(c, sums, has_upstream ? static_cast<Real>(factor[0]) : Real(1));
      });
      INFO(name_of_case(c) << ", upstream given " << has_upstream);
      on_devices(kDevices, {c.dtype}, [&](Workbench& bench) {
        const ForecastLossBwdArgs a = backward_arguments(c, sums, bench, has_upstream ? &factor : nullptr);
        ISOBAR_RUN(bench.device(), forecast_loss_bwd, a);
        bench.check("dpred", {a.dpred}, dpred);
      });
    }
  });
}

TEST_CASE("forecast_loss_bwd gives zeros, not NaN, for a perfect sample") {
  const auto check = [](LossKind kind, DType dtype, std::int64_t patch) {
    Case c = filled({2, 3, 4, 6, kind, dtype, true, true, patch});
    c.target = values_of(c.target.v, dtype);
    c.target.dtype = c.acc();
    for (std::int64_t i = 0; i < c.sample(); ++i) c.pred[i] = c.target[i];
    const Values sums = exact_sums(c);
    REQUIRE(sums[0] == 0);
    const auto [dpred] =
        expected(dtype, [&]<class Real>(Arithmetic<Real>) { return naive_bwd<Real>(c, sums, Real(1)); });
    on_devices(kDevices, {dtype}, [&](Workbench& bench) {
      const ForecastLossBwdArgs a = backward_arguments(c, sums, bench);
      ISOBAR_RUN(bench.device(), forecast_loss_bwd, a);
      bench.check("dpred", {a.dpred}, dpred);
    });
  };
  for (LossKind kind : kKinds)
    for (DType dtype : kFloating)
      for (std::int64_t patch : {0, 2}) check(kind, dtype, patch);
}

TEST_CASE("forecast_loss carries NaN and infinity into the loss") {
  const auto check = [](LossKind kind, double bad, std::int64_t patch) {
    Case c = filled({2, 3, 4, 6, kind, DType::fp32, true, true, patch});
    c.pred[c.size() - 1] = bad;
    on_devices(kDevices, {DType::fp32}, [&](Workbench& bench) {
      const ForecastLossSumsArgs a = sums_arguments(c, bench);
      ISOBAR_RUN(bench.device(), forecast_loss_sums, a);
      const Values sums = bench.read({a.sums});
      CHECK(std::isfinite(sums[0]));
      CHECK(!std::isfinite(sums[2]));
      const ForecastLossFinishArgs b = finish_arguments(c, sums, bench);
      ISOBAR_RUN(bench.device(), forecast_loss_finish, b);
      CHECK(!std::isfinite(bench.read({b.loss})[0]));
    });
  };
  for (LossKind kind : kKinds)
    for (double bad : {std::nan(""), std::numeric_limits<double>::infinity()})
      for (std::int64_t patch : {0, 2}) check(kind, bad, patch);
}

TEST_CASE("forecast_loss_bwd is the gradient of the loss") {
  const auto check = [](const Case& c) {
    Workbench bench({});
    const ForecastLossSumsArgs forward = sums_arguments(c, bench);
    cpu::forecast_loss_sums(forward);
    const Values upstream = values_of({1.7}, DType::fp64);
    const ForecastLossBwdArgs backward = backward_arguments(c, bench.read({forward.sums}), bench, &upstream);
    cpu::forecast_loss_bwd(backward);
    const Values placed = bench.read({backward.dpred});
    Values dpred = placed;
    for (std::int64_t i = 0; i < c.size(); ++i) dpred[i] = placed[c.place(i)];
    check_gradient(name_of_case(c), c.pred, dpred, [&](const Values& moved) {
      Case other = c;
      other.pred = moved;
      Workbench inner({});
      const ForecastLossSumsArgs a = sums_arguments(other, inner);
      cpu::forecast_loss_sums(a);
      const ForecastLossFinishArgs b = finish_arguments(other, inner.read({a.sums}), inner);
      cpu::forecast_loss_finish(b);
      return 1.7 * inner.read({b.loss})[0];
    });
  };
  for (LossKind kind : kKinds)
    for (std::int64_t patch : {0, 2}) {
      check(filled({2, 3, 2, 4, kind, DType::fp64, true, true, patch}));
      const Case whole = filled({4, 3, 2, 4, kind, DType::fp64, true, true, patch});
      Case masked = with_missing(whole);
      masked.pred = whole.pred;  // finite, to be moved
      check(masked);
    }
}

namespace {

// Tails of lines, tiles and chunks; samples of every manner; one point, which is missing.
std::vector<Case> masked_cases() {
  std::vector<Case> cases;
  for (LossKind kind : kKinds)
    for (DType dtype : kFloating)
      for (const Case& c : std::vector<Case>{{3, 1, 1, 1, kind, dtype, true, true},
                                             {5, 5, 7, 33, kind, dtype, true, true},
                                             {4, 20, 13, 52, kind, dtype, false, true},
                                             {1, 43, 31, 3, kind, dtype, true, false},
                                             {13, 3, 5, 7, kind, dtype, true, true, 1},
                                             {4, 5, 4, 6, kind, dtype, true, false, 2},
                                             {2, 20, 16, 24, kind, dtype, false, false, 8},
                                             {1, 44, 4, 132, kind, dtype, true, true, 4},
                                             {1, 47, 3, 129, kind, dtype, true, true, 3}})
        cases.push_back(with_missing(filled(c)));
  for (LossKind kind : kKinds)
    for (DType dpred_dtype : kHalves) {
      cases.push_back(with_missing(filled({4, 4, 32, 16, kind, DType::fp32, true, true, 4, dpred_dtype})));
      cases.push_back(with_missing(filled({4, 3, 5, 9, kind, DType::fp32, true, true, 0, dpred_dtype})));
    }
  return cases;
}

// Every size, with some of the losses and types.
std::vector<Case> some_masked_cases() {
  const std::vector<Case> cases = masked_cases();
  std::vector<Case> some;
  for (std::size_t i = 0; i < cases.size(); i += 4) some.push_back(cases[i]);
  return some;
}

struct MaskedRun {
  Values sums, loss, dpred;
};

// The first place where two outputs differ, and both numbers; "" if none does. Bits: NaN equals NaN.
std::string first_difference(const Values& a, const Values& b) {
  if (a.size() != b.size()) return "sizes differ";
  for (std::size_t i = 0; i < a.v.size(); ++i)
    if (std::bit_cast<std::uint64_t>(a.v[i]) != std::bit_cast<std::uint64_t>(b.v[i]))
      return std::to_string(i) + ": " + std::to_string(a.v[i]) + " and " + std::to_string(b.v[i]);
  return "";
}

// All three kernels on this case.
MaskedRun run_all(const Case& c, Workbench& bench) {
  const ForecastLossSumsArgs a = sums_arguments(c, bench);
  ISOBAR_RUN(bench.device(), forecast_loss_sums, a);
  const Values sums = bench.read({a.sums});
  const ForecastLossFinishArgs b = finish_arguments(c, sums, bench);
  ISOBAR_RUN(bench.device(), forecast_loss_finish, b);
  const ForecastLossBwdArgs d = backward_arguments(c, sums, bench);
  ISOBAR_RUN(bench.device(), forecast_loss_bwd, d);
  return {sums, bench.read({b.loss}), bench.read({d.dpred})};
}

}  // namespace

TEST_CASE("forecast_loss leaves out missing points, whatever is forecast there") {
  for (const Case& c : testing::is_sanitized() ? some_masked_cases() : masked_cases()) {
    const auto [sums, loss] = expected(c.dtype, [&]<class Real>(Arithmetic<Real>) { return naive_fwd<Real>(c); });
    const Values whole = exact_sums(c), factor = values_of({83.2}, c.acc());
    const auto [dpred] = expected(
        c.dtype, [&]<class Real>(Arithmetic<Real>) { return naive_bwd<Real>(c, whole, static_cast<Real>(factor[0])); });
    INFO(name_of_case(c));
    on_devices(kDevices, {c.dtype}, [&](Workbench& bench) {
      const ForecastLossSumsArgs a = sums_arguments(c, bench);
      ISOBAR_RUN(bench.device(), forecast_loss_sums, a);
      bench.check("sums", {a.sums}, sums);
      const ForecastLossFinishArgs b = finish_arguments(c, whole, bench);
      ISOBAR_RUN(bench.device(), forecast_loss_finish, b);
      bench.check("loss", {b.loss}, loss);
      const ForecastLossBwdArgs d = backward_arguments(c, whole, bench, &factor);
      ISOBAR_RUN(bench.device(), forecast_loss_bwd, d);
      bench.check("dpred", {d.dpred}, dpred);
      const Values gradient = bench.read({d.dpred});
      for (std::int64_t i = 0; i < c.size(); ++i) {
        if (!c.is_missing(i)) continue;
        const double at = gradient[c.place(i)];
        if (at != 0 || std::signbit(at)) FAIL_CHECK("the gradient of missing point " << i << " is " << at);
      }
    });
  }
}

TEST_CASE("forecast_loss with a mask and no missing point has the bits of the kernels without") {
  for (Case c : some_masked_cases()) {
    c = filled(c);  // the missing points' numbers are back
    c.masked = false;
    INFO(name_of_case(c));
    on_devices(kDevices, {c.dtype}, [&](Workbench& bench) {
      const MaskedRun plain = run_all(c, bench);
      Case with_mask = c;
      with_mask.masked = true;
      const MaskedRun masked = run_all(with_mask, bench);
      for (std::int64_t b = 0; b < c.batch; ++b) {
        CHECK(masked.sums[4 * b] == plain.sums[2 * b]);
        CHECK(masked.sums[4 * b + 1] == plain.sums[2 * b + 1]);
        CHECK(masked.sums[4 * b + 3] == 0);
      }
      CHECK(first_difference(masked.loss, plain.loss) == "");
      CHECK(first_difference(masked.dpred, plain.dpred) == "");
    });
  }
}

TEST_CASE("forecast_loss has the same bits for other forecasts of missing points") {
  for (const Case& c : some_masked_cases()) {
    const Case other = with_missing(c, 1);
    REQUIRE((c.batch * c.sample() < 9 || other.pred.v != c.pred.v));
    INFO(name_of_case(c));
    on_devices(kDevices, {c.dtype}, [&](Workbench& bench) {
      const MaskedRun one = run_all(c, bench), two = run_all(other, bench);
      CHECK(first_difference(one.sums, two.sums) == "");
      CHECK(first_difference(one.loss, two.loss) == "");
      CHECK(first_difference(one.dpred, two.dpred) == "");
    });
  }
}

TEST_CASE("forecast_loss of a batch without any point is 0, and so is its gradient") {
  for (LossKind kind : kKinds)
    for (DType dtype : kFloating)
      for (std::int64_t patch : {0, 2}) {
        Case c = filled({2, 3, 4, 6, kind, dtype, true, true, patch});
        c.masked = true;
        c.target = constant_values(c.size(), c.acc(), std::nan(""));
        INFO(name_of_case(c));
        on_devices(kDevices, {dtype}, [&](Workbench& bench) {
          const MaskedRun run = run_all(c, bench);
          CHECK(first_difference(run.loss, constant_values(1, c.acc(), 0)) == "");
          CHECK(first_difference(run.dpred, constant_values(c.size(), dtype, 0)) == "");
        });
      }
}

TEST_CASE("forecast_loss with a mask carries NaN and infinity of points that are present, and of no others") {
  for (LossKind kind : kKinds)
    for (double bad : {std::nan(""), std::numeric_limits<double>::infinity()})
      for (std::int64_t patch : {0, 2}) {
        Case c = with_missing(filled({2, 3, 4, 6, kind, DType::fp32, true, true, patch}));
        c.pred[c.size() - 1] = bad;  // of the second sample, where no point is missing
        INFO(name_of_case(c));
        on_devices(kDevices, {DType::fp32}, [&](Workbench& bench) {
          const MaskedRun run = run_all(c, bench);
          CHECK(std::isfinite(run.sums[0]));
          CHECK(!std::isfinite(run.sums[4]));
          CHECK(!std::isfinite(run.loss[0]));
          for (std::int64_t i = 0; i < c.sample(); ++i) CHECK(std::isfinite(run.dpred[c.place(i)]));
        });
      }
}

// A channel without weight cannot be all there is of a sample in the norms: E and T would both be 0.
TEST_CASE("forecast_loss leaves out a sample that has points of no weight alone") {
  const auto check = [](Case c, const std::vector<std::int64_t>& missing) {
    c.masked = true;
    for (const std::int64_t i : missing) c.target[i] = std::nan("");
    const auto [sums, loss] = expected(c.dtype, [&]<class Real>(Arithmetic<Real>) { return naive_fwd<Real>(c); });
    on_devices(kDevices, {c.dtype}, [&](Workbench& bench) {
      const MaskedRun run = run_all(c, bench);
      CHECK(std::isfinite(run.loss[0]));
      for (std::int64_t i = 0; i < c.sample(); ++i) CHECK(run.dpred[c.place(i)] == 0);
      const ForecastLossFinishArgs b = finish_arguments(c, run.sums, bench);
      ISOBAR_RUN(bench.device(), forecast_loss_finish, b);
      bench.check("loss", {b.loss}, loss);
    });
  };
  for (const LossKind kind : {LossKind::relative_l2_weighted, LossKind::weighted_mse})
    for (const std::int64_t patch : {0, 2}) {
      Case c = filled({2, 2, 2, 4, kind, DType::fp32, true, true, patch});
      c.cols[0] = 0;
      check(c, {8, 9, 10, 11, 12, 13, 14, 15});  // all of the second channel
      Case rows = filled({2, 2, 2, 4, kind, DType::fp32, true, true, patch});
      rows.rows[0] = 0;
      check(rows, {4, 5, 6, 7, 12, 13, 14, 15});  // all of the second row
    }
}

}  // namespace isobar::testing
