#include "bench/accesses/cases.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "kernels/adam.h"
#include "kernels/attention/attention.h"
#include "kernels/column_sum.h"
#include "kernels/common/check.h"
#include "kernels/elementwise.h"
#include "kernels/emulator/devices.h"
#include "kernels/forecast_loss.h"
#include "kernels/gelu.h"
#include "kernels/grad_norm.h"
#include "kernels/layernorm.h"
#include "kernels/normalize.h"
#include "kernels/patchify.h"

namespace isobar::accesses {
namespace {

constexpr DType kBf16 = DType::bf16, kFp32 = DType::fp32, kFp64 = DType::fp64;

// Zeros, each array at a multiple of 256 bytes as CUDA's allocations are, until the case has run.
class Arrays {
 public:
  void* add(std::int64_t n, DType dtype) { return add_bytes(static_cast<std::size_t>(n) * size_of(dtype)); }
  void* add_bytes(std::size_t bytes) {
    constexpr std::size_t kAlignment = 256;
    std::vector<std::byte>& room = rooms_.emplace_back(bytes + kAlignment);
    void* begin = room.data();
    std::size_t space = room.size();
    std::align(kAlignment, bytes, begin, space);
    all_.emplace_back(static_cast<const std::byte*>(begin), bytes);
    return begin;
  }
  double* add_doubles(std::int64_t n, double value) {
    auto* const values = static_cast<double*>(add(n, kFp64));
    std::fill_n(values, n, value);
    return values;
  }
  std::span<const std::span<const std::byte>> all() const { return all_; }

 private:
  std::vector<std::vector<std::byte>> rooms_;
  std::vector<std::span<const std::byte>> all_;
};

// Which kernel of the report a launch is.
struct Named {
  std::string launch, kernel;
};

class Report {
 public:
  void run(const Arrays& arrays, const std::vector<Named>& kernels, const std::function<void()>& launches) {
    std::map<std::string, Costs> found = count(arrays.all(), launches);
    for (const auto& [launch, kernel] : kernels) {
      const auto costs = found.find(launch);
      ISOBAR_CHECK(costs != found.end(), "counting ", kernel, ": nothing was launched as ", launch);
      counted_.push_back({kernel, std::move(costs->second)});
    }
  }
  std::vector<Counted>& counted() { return counted_; }

 private:
  std::vector<Counted> counted_;
};

struct Model {
  std::string name;
  std::int64_t width, head;
};

// ---- attention ------------------------------------------------------------------------------------------------------

// As many tokens over whole tiles of 64, 128 and 192 as 4050 are, which the pictures have.
constexpr std::int64_t kTokens = 210, kHeads = 2;

// Of the emulated GPU, while it lives.
class Capability {
 public:
  explicit Capability(int capability) : before_(emulator::capability()) { emulator::set_capability(capability); }
  ~Capability() { emulator::set_capability(before_); }
  Capability(const Capability&) = delete;
  Capability& operator=(const Capability&) = delete;

 private:
  int before_;
};

// Products of fp32 are in TF32.
std::string of_head(const std::string& kernel, const Model& model, DType dtype) {
  const char* const in = dtype == kBf16 ? "" : kernel == "attention_delta" ? " in fp32" : " in TF32";
  const char* const by = dtype == kBf16 && emulator::capability() == emulator::kHopper ? " by wgmma" : "";
  return kernel + in + by + " (" + model.name + ", head " + std::to_string(model.head) + ")";
}

// q, k and v of a fused product [T, 3, NH, HS], or their gradients.
struct Fused {
  std::byte *q, *k, *v;

  Fused(Arrays& arrays, std::int64_t row, DType dtype)
      : q(static_cast<std::byte*>(arrays.add(kTokens * 3 * row, dtype))),
        k(q + static_cast<std::size_t>(row) * size_of(dtype)),
        v(k + static_cast<std::size_t>(row) * size_of(dtype)) {}
};

void attention_forward(Report& report, const Model& model, DType dtype) {
  Arrays arrays;
  const std::int64_t row = kHeads * model.head;
  const Fused qkv(arrays, row, dtype);
  const AttentionFwdArgs a = {.shape = {1, kHeads, kTokens, kTokens, model.head},
                              .dtype = dtype,
                              .scale = 1 / std::sqrt(static_cast<double>(model.head)),
                              .tf32 = dtype == kFp32,
                              .dropout = {},
                              .q = qkv.q,
                              .k = qkv.k,
                              .v = qkv.v,
                              .o = arrays.add(kTokens * row, dtype),
                              .lse = arrays.add(kHeads * kTokens, kFp32),
                              .q_stride = 3 * row,
                              .k_stride = 3 * row,
                              .v_stride = 3 * row,
                              .o_stride = row};
  report.run(arrays, {{"attention_fwd", of_head("attention_fwd", model, dtype)}}, [&] { emulator::attention_fwd(a); });
}

void attention_backward(Report& report, const Model& model, DType dtype) {
  Arrays arrays;
  const std::int64_t row = kHeads * model.head;
  const Fused qkv(arrays, row, dtype), dqkv(arrays, row, dtype);
  AttentionBwdArgs a = {.shape = {1, kHeads, kTokens, kTokens, model.head},
                        .dtype = dtype,
                        .scale = 1 / std::sqrt(static_cast<double>(model.head)),
                        .tf32 = dtype == kFp32,
                        .dropout = {},
                        .q = qkv.q,
                        .k = qkv.k,
                        .v = qkv.v,
                        .o = arrays.add(kTokens * row, dtype),
                        .lse = arrays.add(kHeads * kTokens, kFp32),
                        .d_o = arrays.add(kTokens * row, dtype),
                        .dq = dqkv.q,
                        .dk = dqkv.k,
                        .dv = dqkv.v,
                        .q_stride = 3 * row,
                        .k_stride = 3 * row,
                        .v_stride = 3 * row,
                        .o_stride = row,
                        .do_stride = row,
                        .dq_stride = 3 * row,
                        .dk_stride = 3 * row,
                        .dv_stride = 3 * row};
  a.workspace = arrays.add_bytes(attention_bwd_workspace(a.shape, a.dtype));
  std::vector<Named> kernels = {{"attention_dkdv", of_head("attention_dkdv", model, dtype)},
                                {"attention_dq", of_head("attention_dq", model, dtype)}};
  if (emulator::capability() == emulator::kAmpere)  // GPUs of 9.0 have the same
    kernels.push_back({"attention_delta", of_head("attention_delta", model, dtype)});
  report.run(arrays, kernels, [&] { emulator::attention_bwd(a); });
}

// ---- kernels that memory binds --------------------------------------------------------------------------------------

constexpr std::int64_t kRows = 130;

std::string of_columns(const std::string& kernel, const Model& model) {
  return kernel + " (" + model.name + ", " + std::to_string(model.width) + " columns)";
}

void layernorm(Report& report, const Model& model) {
  Arrays arrays;
  const std::int64_t n = kRows * model.width;
  const LayernormFwdArgs fwd = {.rows = kRows,
                                .cols = model.width,
                                .stream_dtype = kFp32,
                                .dtype = kBf16,
                                .x = arrays.add(n, kFp32),
                                .branch = arrays.add(n, kBf16),
                                .weight = arrays.add(model.width, kFp32),
                                .bias = arrays.add(model.width, kFp32),
                                .sum = arrays.add(n, kFp32),
                                .y = arrays.add(n, kBf16),
                                .mean = arrays.add(kRows, kFp32),
                                .rstd = arrays.add(kRows, kFp32)};
  report.run(arrays, {{"layernorm_fwd", of_columns("layernorm_fwd", model)}}, [&] { emulator::layernorm_fwd(fwd); });
  const LayernormBwdArgs bwd = {.rows = kRows,
                                .cols = model.width,
                                .stream_dtype = kFp32,
                                .dtype = kBf16,
                                .dy = fwd.y,
                                .x = fwd.x,
                                .weight = fwd.weight,
                                .mean = fwd.mean,
                                .rstd = fwd.rstd,
                                .dsum = fwd.sum,
                                .dx = arrays.add(n, kFp32),
                                .dbranch = arrays.add(n, kBf16),
                                .dweight = arrays.add(model.width, kFp32),
                                .dbias = arrays.add(model.width, kFp32),
                                .workspace = arrays.add_bytes(layernorm_bwd_workspace(model.width, kFp32))};
  report.run(arrays, {{"layernorm_bwd", of_columns("layernorm_bwd", model)}}, [&] { emulator::layernorm_bwd(bwd); });
}

void column_sum(Report& report, const Model& model) {
  Arrays arrays;
  const ColumnSumArgs a = {.rows = 8 * kRows,
                           .cols = model.width,
                           .dtype = kFp32,
                           .x = arrays.add(8 * kRows * model.width, kFp32),
                           .out = arrays.add(model.width, kFp32),
                           .workspace = arrays.add_bytes(column_sum_workspace(8 * kRows, model.width, kFp32))};
  report.run(arrays, {{"column_sum", of_columns("column_sum", model)}}, [&] { emulator::column_sum(a); });
}

void gelu(Report& report, const Model& model) {
  Arrays arrays;
  const std::int64_t n = 4 * kRows * model.width;
  void* const x = arrays.add(n, kBf16);
  const GeluFwdArgs fwd = {.n = n, .dtype = kBf16, .x = x, .y = arrays.add(n, kBf16)};
  const GeluBwdArgs bwd = {.n = n, .dtype = kBf16, .dy = fwd.y, .x = x, .dx = arrays.add(n, kBf16)};
  report.run(arrays, {{"gelu_fwd", "gelu_fwd (" + model.name + ")"}}, [&] { emulator::gelu_fwd(fwd); });
  report.run(arrays, {{"gelu_bwd", "gelu_bwd (" + model.name + ")"}}, [&] { emulator::gelu_bwd(bwd); });
}

void adam(Report& report, const Model& model) {
  Arrays arrays;
  const std::int64_t n = kRows * model.width;
  const AdamArgs a = {.n = n,
                      .decay_end = n,
                      .lr = 1e-3,
                      .grad_scale = arrays.add_doubles(1, 1),
                      .grad = arrays.add(n, kFp32),
                      .weight = arrays.add(n, kFp32),
                      .m = arrays.add(n, kFp32),
                      .v = arrays.add(n, kFp32),
                      .compute = arrays.add(n, kBf16)};
  report.run(arrays, {{"adam", "adam (" + model.name + ")"}}, [&] { emulator::adam(a); });
}

// ---- kernels around the transformer of `base` -----------------------------------------------------------------------

constexpr std::int64_t kBatch = 2, kChannels = 20, kHeight = 16, kWidth = 720, kPatch = 8;
constexpr std::int64_t kPixels = kBatch * kChannels * kHeight * kWidth;

void fields(Report& report) {
  Arrays arrays;
  const auto image = static_cast<float*>(arrays.add(kPixels, kFp32));
  void* const target = arrays.add(kPixels, kFp32);
  const NormalizeArgs normalize = {.batch = kBatch,
                                   .channels = kChannels,
                                   .height = kHeight,
                                   .width = kWidth,
                                   .x = image,
                                   .mean = arrays.add_doubles(kChannels, 0),
                                   .std = arrays.add_doubles(kChannels, 1),
                                   .y = target};
  report.run(arrays, {{"normalize", "normalize (base)"}}, [&] { emulator::normalize(normalize); });

  const PatchifyArgs patchify = {.batch = kBatch,
                                 .channels = kChannels,
                                 .height = kHeight,
                                 .width = kWidth,
                                 .patch = kPatch,
                                 .token_dtype = kBf16,
                                 .image = image,
                                 .tokens = arrays.add(kPixels, kFp32)};
  report.run(arrays, {{"patchify", "patchify (base)"}}, [&] { emulator::patchify(patchify); });

  const ForecastLossSumsArgs sums = {.batch = kBatch,
                                     .channels = kChannels,
                                     .height = kHeight,
                                     .width = kWidth,
                                     .patch = kPatch,
                                     .pred = image,
                                     .target = target,
                                     .sums = arrays.add_doubles(2 * kBatch, 1),
                                     .workspace = arrays.add_bytes(forecast_loss_workspace(kBatch))};
  report.run(arrays, {{"forecast_loss_sums", "forecast_loss_sums (base)"}},
             [&] { emulator::forecast_loss_sums(sums); });
  const ForecastLossBwdArgs bwd = {.batch = kBatch,
                                   .channels = kChannels,
                                   .height = kHeight,
                                   .width = kWidth,
                                   .sample_size = kPixels / kBatch,
                                   .patch = kPatch,
                                   .dpred_dtype = kBf16,
                                   .pred = image,
                                   .target = target,
                                   .sums = sums.sums,
                                   .upstream = arrays.add(1, kFp32),
                                   .dpred = arrays.add(kPixels, kBf16)};
  report.run(arrays, {{"forecast_loss_bwd", "forecast_loss_bwd (base)"}}, [&] { emulator::forecast_loss_bwd(bwd); });
}

void passes(Report& report) {
  Arrays arrays;
  const std::int64_t n = kRows * 384;
  const auto x = static_cast<float*>(arrays.add(kBatch * n, kFp32));
  const AddRowArgs row = {
      .groups = kBatch, .n = n, .x = x, .row = arrays.add(n, kFp32), .y = arrays.add(kBatch * n, kFp32)};
  report.run(arrays, {{"add_row", "add_row (base)"}}, [&] { emulator::add_row(row); });
  const CastArgs cast = {.n = n, .y_dtype = kBf16, .x = x, .y = arrays.add(n, kBf16)};
  report.run(arrays, {{"cast", "cast (base)"}}, [&] { emulator::cast(cast); });
  const SumOfSquaresArgs squares = {
      .n = n, .x = x, .sum = arrays.add_doubles(1, 0), .workspace = arrays.add_doubles(kSumOfSquaresBlocks, 0)};
  report.run(arrays, {{"sum_of_squares", "sum_of_squares (base)"}}, [&] { emulator::sum_of_squares(squares); });
}

}  // namespace

std::vector<Counted> count_kernels() {
  Report report;
  const Model base = {"base", 384, 48}, mp = {"mp", 1024, 128};
  for (const Model& model : {base, mp}) {
    for (const int capability : {emulator::kAmpere, emulator::kHopper}) {
      const Capability scope(capability);
      attention_forward(report, model, kBf16);
      attention_backward(report, model, kBf16);
    }
    layernorm(report, model);
    column_sum(report, model);
    gelu(report, model);
    adam(report, model);
  }
  attention_forward(report, base, kFp32);
  attention_backward(report, base, kFp32);
  fields(report);
  passes(report);
  return std::move(report.counted());
}

}  // namespace isobar::accesses
