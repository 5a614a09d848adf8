#include "bench/ops.h"

#include <dnnl.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "bench/onednn.h"
#include "kernels/cases/adam.h"
#include "kernels/cases/attention.h"
#include "kernels/cases/column_sum.h"
#include "kernels/cases/conv.h"
#include "kernels/cases/copy_strided.h"
#include "kernels/cases/cross_entropy.h"
#include "kernels/cases/dropout.h"
#include "kernels/cases/elementwise.h"
#include "kernels/cases/embedding.h"
#include "kernels/cases/forecast_loss.h"
#include "kernels/cases/forecast_scores.h"
#include "kernels/cases/gelu.h"
#include "kernels/cases/gemm.h"
#include "kernels/cases/grad_norm.h"
#include "kernels/cases/layernorm.h"
#include "kernels/cases/mean_loss.h"
#include "kernels/cases/normalize.h"
#include "kernels/cases/patchify.h"
#include "kernels/cases/pointwise.h"
#include "kernels/cases/replace.h"
#include "kernels/cases/turn.h"
#include "kernels/common/check.h"
#include "kernels/common/run.h"
#include "kernels/cpu/isa.h"
#include "kernels/gemm/onednn.h"

// The call of a kernel on its case (kernels/cases/), made of operands and of arguments without them: {.n = 3, ...}.
#define ISOBAR_BENCH_CALL(name, operands, ...)                                \
  call_of(cases::name(__VA_ARGS__, operands), name##_cost, p.memory.device(), \
          [](Device device, const auto& arguments) { ISOBAR_RUN(device, name, arguments); })

namespace isobar::bench {
namespace {

constexpr std::int64_t kTokens = 4050, kEmbed = 384, kHidden = 1536, kHeads = 8, kHeadSize = 48;
constexpr std::int64_t kFields = 20, kHeight = 360, kWidth = 720, kPatch = 8;
constexpr std::int64_t kParameters = 23'832'960;

template <class Arguments, class Run>
Call call_of(const Arguments& arguments, Cost (*cost)(const Arguments&), Device device, Run run) {
  return {cost(arguments), [=] { run(device, arguments); }};
}

// ---- the base ViT's shapes ------------------------------------------------------------------------------------------

Shape activations(std::int64_t batch) {
  return {batch * kTokens * kEmbed};
}
Shape hidden(std::int64_t batch) {
  return {batch * kTokens * kHidden};
}
Shape samples(std::int64_t batch) {
  return {batch, kTokens * kEmbed};
}
Shape rows(std::int64_t batch) {
  return {batch * kTokens, kEmbed};
}
Shape heads(std::int64_t batch) {
  return {batch, kHeads, kTokens, kTokens, kHeadSize};
}
Shape outputs(std::int64_t batch) {
  return {batch, kHeads, kTokens, kHeadSize};
}
Shape caches(std::int64_t batch) {
  return {batch, 12, 64, 1024};
}
Shape fields(std::int64_t batch) {
  return {batch, kFields, kHeight, kWidth};
}
Shape patches(std::int64_t batch) {
  return {batch, kFields, kHeight, kWidth, kPatch};
}
Shape parameters(std::int64_t) {
  return {kParameters};
}

Shape hidden_rows(std::int64_t batch) {
  return {batch * kTokens, kHidden};
}
Shape linear_shape(std::int64_t batch) {
  return {batch * kTokens, kHidden, kEmbed};
}
// The last layer of GPT-2: 1024 tokens a sample, its vocabulary of 50257 rounded up to a multiple of 64.
Shape vocabulary(std::int64_t batch) {
  return {batch * 1024, 50304};
}
// The same rows, whose classes eight ranks share.
Shape parts_of_rows(std::int64_t batch) {
  return {batch * 1024, 8};
}
Shape token_table(std::int64_t batch) {
  return {batch * 1024, 50304, 768};
}
Shape samples_only(std::int64_t batch) {
  return {batch};
}
// A middle layer of the U-Net of volumes: B samples of 16^3 points, kernel 4, stride 2, 128 channels to 256.
Shape unet_layer(std::int64_t batch) {
  return {batch, 128, 256, 16, 16, 16, 4, 2, 1};
}
// What the U-Net of volumes computes, 5 channels of B samples of 64^3 points.
Shape volumes(std::int64_t batch) {
  return {batch, 5, 64, 64, 64};
}
Shape volume_points(std::int64_t batch) {
  return {batch * 64 * 64 * 64, 5};
}
Shape volume_channels(std::int64_t) {
  return {5};
}
// The queries of the fused product: columns [0, C) of its rows [B·T, 3·C].
Shape queries(std::int64_t batch) {
  return {batch * kTokens, kEmbed, 3 * kEmbed};
}
// Inputs and targets.
Shape batch_of_fields(std::int64_t batch) {
  return {2 * batch * kFields * kHeight * kWidth};
}
Shape thousand(std::int64_t) {
  return {1000};
}
Shape scalar(std::int64_t) {
  return {1};
}

// ---- elementwise ----------------------------------------------------------------------------------------------------

ISOBAR_BENCH(cast, .dims = "n", .base_shape = activations, .small_shape = {1001}) {
  return ISOBAR_BENCH_CALL(cast, p.operands(), {.n = p.shape[0], .x_dtype = DType::fp32, .y_dtype = p.dtype});
}

ISOBAR_BENCH(fill, .dims = "n", .base_shape = activations, .small_shape = {1001}) {
  return ISOBAR_BENCH_CALL(fill, p.operands(), {.n = p.shape[0], .dtype = p.dtype, .value = 1});
}

ISOBAR_BENCH(add, .dims = "n", .base_shape = activations, .small_shape = {1001}) {
  return ISOBAR_BENCH_CALL(add, p.operands(),
                           {.n = p.shape[0], .a_dtype = p.dtype, .b_dtype = p.dtype, .y_dtype = p.dtype});
}

ISOBAR_BENCH(copy_strided, .dims = "blocks length stride", .base_shape = queries, .small_shape = {3, 77, 80}) {
  const Shape& d = p.shape;
  return ISOBAR_BENCH_CALL(
      copy_strided, p.operands(),
      {.blocks = d[0], .length = d[1], .source_stride = d[2], .destination_stride = d[1], .dtype = p.dtype});
}

ISOBAR_BENCH(add_row, .dims = "groups n", .base_shape = samples, .small_shape = {3, 77}) {
  return ISOBAR_BENCH_CALL(add_row, p.operands(),
                           {.groups = p.shape[0], .n = p.shape[1], .x_dtype = p.dtype, .y_dtype = p.dtype});
}

ISOBAR_BENCH(replace, .dims = "groups n", .base_shape = samples, .small_shape = {3, 77}) {
  return ISOBAR_BENCH_CALL(replace, p.operands({"with"}), {.groups = p.shape[0], .n = p.shape[1], .dtype = p.dtype});
}

ISOBAR_BENCH(gelu_fwd, .dims = "n", .base_shape = hidden, .small_shape = {1001},
             .baselines = {memcpy_baseline(), {"onednn", onednn_gelu_fwd}}) {
  return ISOBAR_BENCH_CALL(gelu_fwd, p.operands(), {.n = p.shape[0], .dtype = p.dtype});
}

ISOBAR_BENCH(gelu_bwd, .dims = "n", .base_shape = hidden, .small_shape = {1001},
             .baselines = {memcpy_baseline(), {"onednn", onednn_gelu_bwd}}) {
  return ISOBAR_BENCH_CALL(gelu_bwd, p.operands(), {.n = p.shape[0], .dtype = p.dtype});
}

ISOBAR_BENCH(pointwise_fwd, .dims = "n", .base_shape = hidden, .small_shape = {1001}) {
  return ISOBAR_BENCH_CALL(pointwise_fwd, p.operands(), {.n = p.shape[0], .dtype = p.dtype, .kind = Pointwise::tanh});
}

ISOBAR_BENCH(pointwise_bwd, .dims = "n", .base_shape = hidden, .small_shape = {1001}) {
  return ISOBAR_BENCH_CALL(pointwise_bwd, p.operands(), {.n = p.shape[0], .dtype = p.dtype, .kind = Pointwise::tanh});
}

ISOBAR_BENCH(dropout, .dims = "n", .base_shape = activations, .small_shape = {1001}) {
  return ISOBAR_BENCH_CALL(dropout, p.operands(), {.n = p.shape[0], .dtype = p.dtype, .p = 0.1f, .seed = 1});
}

ISOBAR_BENCH(drop_path, .dims = "batch n", .base_shape = samples, .small_shape = {3, 77}) {
  return ISOBAR_BENCH_CALL(drop_path, p.operands(),
                           {.rows = p.shape[0], .cols = p.shape[1], .dtype = p.dtype, .p = 0.1f, .seed = 1});
}

// ---- rows -----------------------------------------------------------------------------------------------------------

ISOBAR_BENCH(column_sum, .dims = "rows cols", .base_shape = hidden_rows, .small_shape = {7, 33}) {
  return ISOBAR_BENCH_CALL(column_sum, p.operands(), {.rows = p.shape[0], .cols = p.shape[1], .dtype = p.dtype});
}

// With the residual add: the stream is fp32, the branch and the output have the op's dtype.
ISOBAR_BENCH(layernorm_fwd, .dims = "rows cols", .base_shape = rows, .small_shape = {7, 33},
             .baselines = {memcpy_baseline(), {"onednn", onednn_layernorm_fwd}}) {
  return ISOBAR_BENCH_CALL(layernorm_fwd, p.operands({"branch", "sum"}),
                           {.rows = p.shape[0], .cols = p.shape[1], .dtype = p.dtype});
}

ISOBAR_BENCH(layernorm_bwd, .dims = "rows cols", .base_shape = rows, .small_shape = {7, 33},
             .baselines = {memcpy_baseline(), {"onednn", onednn_layernorm_bwd}}) {
  return ISOBAR_BENCH_CALL(layernorm_bwd, p.operands({"dsum", "dbranch"}),
                           {.rows = p.shape[0], .cols = p.shape[1], .dtype = p.dtype});
}

// ---- GEMM and attention ---------------------------------------------------------------------------------------------

// The sizes of y [m, n] = x [m, k] · w [n, k]ᵀ.
GemmArgs linear(Arithmetic dtype, std::int64_t m, std::int64_t n, std::int64_t k) {
  return {.m = m, .n = n, .k = k, .transpose_b = true, .in_dtype = dtype, .out_dtype = dtype, .tf32 = dtype.tf32};
}
GemmArgs linear(const Problem& p) {
  return linear(p.dtype, p.shape[0], p.shape[1], p.shape[2]);
}

// The same product by oneDNN's own entry point.
std::function<void()> dnnl_gemm(const Problem& p, const Cost&) {
  ISOBAR_CHECK(p.memory.device().kind == DeviceKind::cpu && p.dtype == DType::fp32,
               "the baseline dnnl runs on the CPU in fp32 only");
  return [g = cases::gemm(linear(p), p.operands())] {
    const auto status = dnnl_sgemm('N', 'T', g.m, g.n, g.k, 1.0f, static_cast<const float*>(g.a), g.k,
                                   static_cast<const float*>(g.b), g.k, 0.0f, static_cast<float*>(g.c), g.n);
    ISOBAR_CHECK(status == dnnl_success, "dnnl_sgemm failed with status ", static_cast<int>(status));
  };
}

// By oneDNN in fp32 and in bf16, which it computes with AVX512_BF16 or AMX where the CPU has them.
std::function<void()> onednn_gemm(const Problem& p, const Cost& cost) {
  if (p.dtype != DType::bf16) return dnnl_gemm(p, cost);
  ISOBAR_CHECK(p.memory.device().kind == DeviceKind::cpu && cpu::best_isa() == cpu::Isa::avx512,
               "the baseline onednn multiplies bf16 on CPUs with AVX-512 only");
  return [g = cases::gemm(linear(p), p.operands())] { cpu::gemm_onednn(g); };
}

ISOBAR_BENCH(gemm, .dims = "m n k", .base_shape = linear_shape, .small_shape = {5, 7, 9}, .has_tf32 = true,
             .baselines = {memcpy_baseline(), {"dnnl", dnnl_gemm}, {"onednn", onednn_gemm}}) {
  return ISOBAR_BENCH_CALL(gemm, p.operands(), linear(p));
}

// The three products of a linear layer in a training step, y [rows, out] = x [rows, in] · w [out, in]^T + bias.
ISOBAR_BENCH(linear_fwd, .dims = "rows out in", .base_shape = linear_shape, .small_shape = {5, 7, 9},
             .has_tf32 = true) {
  return ISOBAR_BENCH_CALL(gemm, p.operands({"bias"}), linear(p));
}

// dx [rows, in] = dy · w
ISOBAR_BENCH(linear_dx, .dims = "rows out in", .base_shape = linear_shape, .small_shape = {5, 7, 9}, .has_tf32 = true) {
  const Shape& d = p.shape;
  return ISOBAR_BENCH_CALL(
      gemm, p.operands(),
      {.m = d[0], .n = d[2], .k = d[1], .in_dtype = p.dtype, .out_dtype = p.dtype, .tf32 = p.dtype.tf32});
}

// dw [out, in] = dy^T · x, in fp32
ISOBAR_BENCH(linear_dw, .dims = "rows out in", .base_shape = linear_shape, .small_shape = {5, 7, 9}, .has_tf32 = true) {
  const Shape& d = p.shape;
  return ISOBAR_BENCH_CALL(
      gemm, p.operands(),
      {.m = d[1], .n = d[2], .k = d[0], .transpose_a = true, .in_dtype = p.dtype, .tf32 = p.dtype.tf32});
}

AttentionShape attention_shape(const Shape& d) {
  ISOBAR_CHECK(d[4] % 8 == 0 && d[4] <= 128, "attention needs a head_size that is a multiple of 8 up to 128, not ",
               d[4]);
  return {.batch = d[0], .heads = d[1], .q_tokens = d[2], .kv_tokens = d[3], .head_size = d[4]};
}

// q, k and v lie in buffers of their own.
AttentionFwdArgs attention(const Problem& p) {
  const AttentionShape s = attention_shape(p.shape);
  return {.shape = s, .dtype = p.dtype, .scale = cases::attention_scale(s), .tf32 = p.dtype.tf32, .dropout = {}};
}

// What attention costs at least where the scores are stored: its products as plain GEMMs, head by head.
template <int kProducts>
std::function<void()> gemms(const Problem& p, const Cost&) {
  const AttentionShape s = attention_shape(p.shape);
  const GemmArgs scores = cases::gemm(linear(p.dtype, s.q_tokens, s.kv_tokens, s.head_size), p.operands());
  const GemmArgs values =
      cases::gemm(linear(p.dtype, s.q_tokens, s.head_size, s.kv_tokens), p.operands({{"a", scores.c}}));
  return [=, device = p.memory.device()] {
    for (std::int64_t head = 0; head < s.batch * s.heads; ++head) {
      for (int i = 0; i < kProducts; ++i) ISOBAR_RUN(device, gemm, i % 2 == 0 ? scores : values);
    }
  };
}

ISOBAR_BENCH(attention_fwd, .dims = "batch heads q_tokens kv_tokens head_size", .base_shape = heads,
             .small_shape = {1, 2, 17, 17, 8}, .has_tf32 = true, .baselines = {memcpy_baseline(), {"gemm", gemms<2>}}) {
  return ISOBAR_BENCH_CALL(attention_fwd, p.operands(), attention(p));
}

ISOBAR_BENCH(attention_bwd, .dims = "batch heads q_tokens kv_tokens head_size", .base_shape = heads,
             .small_shape = {1, 2, 17, 17, 8}, .has_tf32 = true, .baselines = {memcpy_baseline(), {"gemm", gemms<5>}}) {
  const AttentionFwdArgs fwd = cases::attention_fwd(attention(p), p.operands());
  ISOBAR_RUN(p.memory.device(), attention_fwd, fwd);
  return ISOBAR_BENCH_CALL(
      attention_bwd, p.operands({{"q", fwd.q}, {"k", fwd.k}, {"v", fwd.v}, {"o", fwd.o}, {"lse", fwd.lse}}),
      {.shape = fwd.shape, .dtype = fwd.dtype, .scale = fwd.scale, .tf32 = fwd.tf32, .dropout = {}});
}

// Outputs in the accumulator's type, whatever the operands of the attentions were.
ISOBAR_BENCH(attention_merge, .dims = "batch heads tokens head_size", .base_shape = outputs,
             .small_shape = {1, 2, 17, 8}, .fp32_only = true) {
  const Shape& d = p.shape;
  ISOBAR_CHECK(d[3] % 4 == 0, "attention_merge needs a head_size that is a multiple of 4, not ", d[3]);
  return ISOBAR_BENCH_CALL(attention_merge, p.operands(),
                           {.batch = d[0], .heads = d[1], .tokens = d[2], .head_size = d[3]});
}

// GPT-2's heads, one new token of each sample.
ISOBAR_BENCH(attention_cached, .dims = "batch heads head_size capacity", .base_shape = caches,
             .small_shape = {2, 3, 8, 17}) {
  const Shape& d = p.shape;
  return ISOBAR_BENCH_CALL(
      attention_cached, p.operands(),
      {.batch = d[0], .heads = d[1], .head_size = d[2], .capacity = d[3], .dtype = p.dtype, .scale = 0.125});
}

// ---- convolution ----------------------------------------------------------------------------------------------------

constexpr const char* kConvDims = "batch in_channels out_channels depth height width kernel stride pad";

ConvShape conv_shape(const Shape& d) {
  ConvShape shape{d[0], d[1], d[2], {}};
  for (int a = 0; a < 3; ++a) {
    const std::int64_t in = d[static_cast<std::size_t>(3 + a)], kernel = d[6], stride = d[7], pad = d[8];
    shape.axes[a] = {in, (in + 2 * pad - kernel) / stride + 1, kernel, stride, pad, Edge::zeros};
  }
  return shape;
}

ISOBAR_BENCH(conv_fwd, .dims = kConvDims, .base_shape = unet_layer, .small_shape = {1, 3, 5, 4, 5, 6, 3, 1, 1},
             .has_tf32 = true) {
  return ISOBAR_BENCH_CALL(conv_fwd, p.operands({"bias"}),
                           {.shape = conv_shape(p.shape),
                            .dtype = p.dtype,
                            .out_dtype = p.dtype,
                            .activation = Pointwise::leaky_relu,
                            .tf32 = p.dtype.tf32});
}

ISOBAR_BENCH(conv_bwd_data, .dims = kConvDims, .base_shape = unet_layer, .small_shape = {1, 3, 5, 4, 5, 6, 3, 1, 1},
             .has_tf32 = true) {
  return ISOBAR_BENCH_CALL(
      conv_bwd_data, p.operands(),
      {.shape = conv_shape(p.shape), .dtype = p.dtype, .out_dtype = p.dtype, .tf32 = p.dtype.tf32});
}

ISOBAR_BENCH(conv_bwd_weight, .dims = kConvDims, .base_shape = unet_layer, .small_shape = {1, 3, 5, 4, 5, 6, 3, 1, 1},
             .has_tf32 = true) {
  return ISOBAR_BENCH_CALL(conv_bwd_weight, p.operands(),
                           {.shape = conv_shape(p.shape), .dtype = p.dtype, .tf32 = p.dtype.tf32});
}

// ---- volumes --------------------------------------------------------------------------------------------------------

// The cases have one turn for all samples: the first one, which leaves them as they are.
ISOBAR_BENCH(turn, .dims = "batch channels depth height width", .base_shape = volumes, .small_shape = {2, 4, 5, 6, 7}) {
  const Shape& d = p.shape;
  return ISOBAR_BENCH_CALL(
      turn, p.operands(),
      {.batch = d[0], .channels = d[1], .extent = {d[2], d[3], d[4]}, .vector = d[1] >= 4 ? 1 : -1, .dtype = p.dtype});
}

ISOBAR_BENCH(mean_loss_sums, .dims = "points channels", .base_shape = volume_points, .small_shape = {1001, 5}) {
  const Shape& d = p.shape;
  return ISOBAR_BENCH_CALL(mean_loss_sums, p.operands(),
                           {.kind = ErrorKind::absolute,
                            .with_density = true,
                            .points = d[0],
                            .channels = d[1],
                            .pred_stride = d[1],
                            .target_stride = d[1],
                            .dtype = p.dtype});
}

ISOBAR_BENCH(mean_loss_finish, .dims = "channels", .base_shape = volume_channels, .small_shape = {3}) {
  return ISOBAR_BENCH_CALL(mean_loss_finish, p.operands(),
                           {.points = 64 * 64 * 64, .channels = p.shape[0], .density_weight = 1, .dtype = p.dtype});
}

// The prediction is fp32, and its gradient of the dtype.
ISOBAR_BENCH(mean_loss_bwd, .dims = "points channels", .base_shape = volume_points, .small_shape = {1001, 5}) {
  return ISOBAR_BENCH_CALL(mean_loss_bwd, p.operands(),
                           {.kind = ErrorKind::absolute,
                            .points = p.shape[0],
                            .channels = p.shape[1],
                            .density_weight = 1,
                            .dpred_dtype = p.dtype});
}

// ---- patches, normalisation, losses ---------------------------------------------------------------------------------

// Images of the shape {batch, channels, height, width, patch}.
template <class Arguments>
Arguments images(const Shape& d) {
  Arguments a;
  a.batch = d[0], a.channels = d[1], a.height = d[2], a.width = d[3];
  if constexpr (requires { a.patch; }) {
    ISOBAR_CHECK(d[2] % d[4] == 0 && d[3] % d[4] == 0, "an image of ", d[2], " x ", d[3],
                 " cannot be cut into patches of ", d[4], " x ", d[4]);
    a.patch = d[4];
  }
  return a;
}

ISOBAR_BENCH(patchify, .dims = "batch channels height width patch", .base_shape = patches,
             .small_shape = {1, 3, 4, 6, 2}) {
  auto a = images<PatchifyArgs>(p.shape);
  a.token_dtype = p.dtype;
  return ISOBAR_BENCH_CALL(patchify, p.operands(), a);
}

ISOBAR_BENCH(unpatchify, .dims = "batch channels height width patch", .base_shape = patches,
             .small_shape = {1, 3, 4, 6, 2}) {
  auto a = images<UnpatchifyArgs>(p.shape);
  a.image_dtype = a.token_dtype = p.dtype;
  return ISOBAR_BENCH_CALL(unpatchify, p.operands(), a);
}

// ---- the same with missing points, beside the kernels without a mask ------------------------------------------------

// Numbers for fields [batch, channels, height, width]: a third of every row is missing, as land is in fields of a sea.
cases::Given with_missing_points(const char* operand, const Problem& p) {
  const std::int64_t width = p.shape[3];
  std::vector<float> values(static_cast<std::size_t>(p.shape[0] * p.shape[1] * p.shape[2] * width));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool is_missing = static_cast<std::int64_t>(i) % width < width / 3;
    values[i] = is_missing ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(i % 61) / 16 - 2;
  }
  return {operand, p.memory.copy_of(values.data(), values.size() * sizeof(float))};
}

using MaskedCall = Call (*)(const Problem&, bool masked);

Baseline unmasked(MaskedCall call) {
  return {"unmasked", [call](const Problem& p, const Cost&) { return call(p, false).run; }};
}

Call normalize_call(const Problem& p, bool masked) {
  auto a = images<NormalizeArgs>(p.shape);
  if (!masked) return ISOBAR_BENCH_CALL(normalize, p.operands(), a);
  return ISOBAR_BENCH_CALL(normalize, p.operands({"fill", with_missing_points("x", p)}), a);
}

Call loss_sums_call(const Problem& p, bool masked) {
  auto a = images<ForecastLossSumsArgs>(p.shape);
  a.dtype = p.dtype;
  a.masked = masked;
  if (!masked) return ISOBAR_BENCH_CALL(forecast_loss_sums, p.operands(), a);
  return ISOBAR_BENCH_CALL(forecast_loss_sums, p.operands({with_missing_points("target", p)}), a);
}

Call loss_finish_call(const Problem& p, bool masked) {
  return ISOBAR_BENCH_CALL(
      forecast_loss_finish, p.operands(),
      {.masked = masked, .batch = p.shape[0], .sample_size = kFields * kHeight * kWidth, .dtype = p.dtype});
}

Call loss_bwd_call(const Problem& p, bool masked) {
  auto a = images<ForecastLossBwdArgs>(p.shape);
  a.sample_size = a.channels * a.height * a.width;
  a.dpred_dtype = p.dtype;
  a.masked = masked;
  if (!masked) return ISOBAR_BENCH_CALL(forecast_loss_bwd, p.operands(), a);
  return ISOBAR_BENCH_CALL(forecast_loss_bwd, p.operands({with_missing_points("target", p)}), a);
}

Call scores_call(const Problem& p, bool masked) {
  auto a = images<ForecastScoresArgs>(p.shape);
  a.dtype = p.dtype;
  a.masked = masked;
  if (!masked) return ISOBAR_BENCH_CALL(forecast_scores, p.operands(), a);
  return ISOBAR_BENCH_CALL(forecast_scores, p.operands({with_missing_points("target", p)}), a);
}

ISOBAR_BENCH(normalize, .dims = "batch channels height width", .base_shape = fields, .small_shape = {1, 3, 4, 6},
             .fp32_only = true) {
  return normalize_call(p, false);
}

ISOBAR_BENCH(normalize_filled, .dims = "batch channels height width", .base_shape = fields, .small_shape = {1, 3, 4, 6},
             .fp32_only = true, .baselines = {memcpy_baseline(), unmasked(normalize_call)}) {
  return normalize_call(p, true);
}

ISOBAR_BENCH(denormalize, .dims = "batch channels height width", .base_shape = fields, .small_shape = {1, 3, 4, 6},
             .fp32_only = true) {
  return ISOBAR_BENCH_CALL(denormalize, p.operands(), images<DenormalizeArgs>(p.shape));
}

// Of a forecast in rows of patches, as steps of training read it.
ISOBAR_BENCH(forecast_loss_sums, .dims = "batch channels height width patch", .base_shape = patches,
             .small_shape = {2, 3, 4, 6, 2}) {
  return loss_sums_call(p, false);
}

ISOBAR_BENCH(forecast_loss_sums_masked, .dims = "batch channels height width patch", .base_shape = patches,
             .small_shape = {2, 3, 4, 6, 2}, .baselines = {memcpy_baseline(), unmasked(loss_sums_call)}) {
  return loss_sums_call(p, true);
}

ISOBAR_BENCH(forecast_loss_finish, .dims = "batch", .base_shape = samples_only, .small_shape = {3}) {
  return loss_finish_call(p, false);
}

ISOBAR_BENCH(forecast_loss_finish_masked, .dims = "batch", .base_shape = samples_only, .small_shape = {3},
             .baselines = {memcpy_baseline(), unmasked(loss_finish_call)}) {
  return loss_finish_call(p, true);
}

// The same; the forecast is fp32, and its gradient of the dtype.
ISOBAR_BENCH(forecast_loss_bwd, .dims = "batch channels height width patch", .base_shape = patches,
             .small_shape = {2, 3, 4, 6, 2}) {
  return loss_bwd_call(p, false);
}

ISOBAR_BENCH(forecast_loss_bwd_masked, .dims = "batch channels height width patch", .base_shape = patches,
             .small_shape = {2, 3, 4, 6, 2}, .baselines = {memcpy_baseline(), unmasked(loss_bwd_call)}) {
  return loss_bwd_call(p, true);
}

ISOBAR_BENCH(forecast_scores, .dims = "batch channels height width", .base_shape = fields,
             .small_shape = {2, 3, 4, 6}) {
  return scores_call(p, false);
}

ISOBAR_BENCH(forecast_scores_masked, .dims = "batch channels height width", .base_shape = fields,
             .small_shape = {2, 3, 4, 6}, .baselines = {memcpy_baseline(), unmasked(scores_call)}) {
  return scores_call(p, true);
}

ISOBAR_BENCH(cross_entropy_fwd, .dims = "rows classes", .base_shape = vocabulary, .small_shape = {7, 33}) {
  return ISOBAR_BENCH_CALL(cross_entropy_fwd, p.operands(),
                           {.rows = p.shape[0], .classes = p.shape[1], .dtype = p.dtype});
}

// The columns of one of two ranks.
ISOBAR_BENCH(cross_entropy_partial, .dims = "rows classes", .base_shape = vocabulary, .small_shape = {7, 33}) {
  return ISOBAR_BENCH_CALL(cross_entropy_partial, p.operands(),
                           {.rows = p.shape[0],
                            .classes = p.shape[1],
                            .columns = {.first = p.shape[1], .total = 2 * p.shape[1]},
                            .dtype = p.dtype});
}

ISOBAR_BENCH(cross_entropy_join, .dims = "rows ranks", .base_shape = parts_of_rows, .small_shape = {7, 3}) {
  return ISOBAR_BENCH_CALL(cross_entropy_join, p.operands(),
                           {.rows = p.shape[0], .ranks = p.shape[1], .dtype = p.dtype});
}

// Two numbers, whatever the batch is.
ISOBAR_BENCH(cross_entropy_finish, .dims = "batch", .base_shape = samples_only, .small_shape = {3}) {
  return ISOBAR_BENCH_CALL(cross_entropy_finish, p.operands(), {.dtype = p.dtype});
}

ISOBAR_BENCH(cross_entropy_bwd, .dims = "rows classes", .base_shape = vocabulary, .small_shape = {7, 33}) {
  return ISOBAR_BENCH_CALL(cross_entropy_bwd, p.operands(),
                           {.rows = p.shape[0], .classes = p.shape[1], .dtype = p.dtype});
}

ISOBAR_BENCH(embedding_fwd, .dims = "ids rows cols", .base_shape = token_table, .small_shape = {7, 33, 20}) {
  return ISOBAR_BENCH_CALL(embedding_fwd, p.operands(),
                           {.ids_count = p.shape[0],
                            .rows = p.shape[1],
                            .cols = p.shape[2],
                            .dtype = p.dtype,
                            .y_dtype = accumulator_of(p.dtype)});
}

ISOBAR_BENCH(embedding_bwd, .dims = "ids rows cols", .base_shape = token_table, .small_shape = {7, 33, 20}) {
  return ISOBAR_BENCH_CALL(
      embedding_bwd, p.operands(),
      {.ids_count = p.shape[0], .rows = p.shape[1], .cols = p.shape[2], .y_dtype = accumulator_of(p.dtype)});
}

// ---- optimizer ------------------------------------------------------------------------------------------------------

// fp32 master weights; a 16-bit dtype adds the copy that the model computes with.
ISOBAR_BENCH(adam, .dims = "n", .base_shape = parameters, .small_shape = {1001}) {
  return ISOBAR_BENCH_CALL(adam, p.operands({{"compute", is_16_bit(p.dtype)}}),
                           {.n = p.shape[0],
                            .decay_end = p.shape[0],
                            .compute_dtype = p.dtype,
                            .lr = 1e-3,
                            .bias1 = 0.1,
                            .bias2 = 0.05,
                            .weight_decay = 0.05,
                            .decoupled = true});
}

ISOBAR_BENCH(sum_of_squares, .dims = "n", .base_shape = parameters, .small_shape = {1001}, .fp32_only = true) {
  return ISOBAR_BENCH_CALL(sum_of_squares, p.operands(), {.n = p.shape[0]});
}

ISOBAR_BENCH(clip_coefficient, .dims = "n", .base_shape = scalar, .small_shape = {1}, .fp32_only = true) {
  return ISOBAR_BENCH_CALL(clip_coefficient, p.operands(), {.count = p.shape[0], .max_norm = 1});
}

// ---- what a step costs beside its kernels --------------------------------------------------------------------------

// A batch's way to the device: from pinned memory, where there is a GPU. Its floor is that of a copy within the device.
ISOBAR_BENCH(upload, .dims = "n", .base_shape = batch_of_fields, .small_shape = {1001}, .fp32_only = true) {
  const std::size_t bytes = static_cast<std::size_t>(p.shape[0]) * size_of(p.dtype);
  const void* const from = p.memory.pinned(bytes);
  return {{.bytes = 2.0 * static_cast<double>(bytes)},
          [=, to = p.memory.allocate(bytes), device = p.memory.device()] { copy_on_device(device, to, from, bytes); }};
}

FillArgs one_number(const Problem& p) {
  return cases::fill({.n = 1, .value = 1}, p.operands());
}

Cost cost_of_fills(std::int64_t count) {
  return {.bytes = static_cast<double>(count) * sizeof(float)};
}

// Kernels that do next to nothing, one after the other: what a launch costs.
ISOBAR_BENCH(launches, .dims = "count", .base_shape = thousand, .small_shape = {3}, .fp32_only = true) {
  return {cost_of_fills(p.shape[0]), [arguments = one_number(p), device = p.memory.device(), count = p.shape[0]] {
            for (std::int64_t i = 0; i < count; ++i) ISOBAR_RUN(device, fill, arguments);
          }};
}

// The same, and the host waits for each before it launches the next one.
ISOBAR_BENCH(waits, .dims = "count", .base_shape = thousand, .small_shape = {3}, .fp32_only = true) {
  return {cost_of_fills(p.shape[0]), [arguments = one_number(p), device = p.memory.device(), count = p.shape[0]] {
            for (std::int64_t i = 0; i < count; ++i) {
              ISOBAR_RUN(device, fill, arguments);
              wait_for(device);
            }
          }};
}

std::vector<Op>& list() {
  static std::vector<Op> all;
  return all;
}

}  // namespace

void* BenchOperands::allocate(const cases::Operand& operand) {
  if (!operand.is_read()) return memory_.allocate(operand.bytes());
  const auto [low, high] = operand.range;
  if (operand.dtype != DType::i32) return memory_.uniform(operand.n, operand.dtype, low, high);
  std::vector<std::int32_t> integers;
  const auto first = static_cast<std::int64_t>(low),
             count = std::max<std::int64_t>(static_cast<std::int64_t>(high - low), 1);
  for (std::int64_t i = 0; i < operand.n; ++i) integers.push_back(static_cast<std::int32_t>(first + i * 7919 % count));
  return memory_.copy_of(integers.data(), operand.bytes());
}

bool add_op(Op op) {
  list().push_back(std::move(op));
  return true;
}

const std::vector<Op>& ops() {
  return list();
}

Baseline memcpy_baseline() {
  return {"memcpy", [](const Problem& problem, const Cost& cost) {
            Memory& memory = problem.memory;
            const auto bytes = static_cast<std::size_t>(std::max(1.0, cost.bytes / 2));
            void* const from = memory.uniform(static_cast<std::int64_t>(bytes / 4 + 1), DType::fp32);
            void* const to = memory.uniform(static_cast<std::int64_t>(bytes / 4 + 1), DType::fp32);
            return [=, device = memory.device()] { copy_on_device(device, to, from, bytes); };
          }};
}

}  // namespace isobar::bench
