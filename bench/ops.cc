#include "bench/ops.h"

#include <dnnl.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "bench/onednn.h"
#include "kernels/adam.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/merge.h"
#include "kernels/column_sum.h"
#include "kernels/common/check.h"
#include "kernels/copy_strided.h"
#include "kernels/cpu/isa.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/forecast_loss.h"
#include "kernels/forecast_scores.h"
#include "kernels/gelu.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/onednn.h"
#include "kernels/grad_norm.h"
#include "kernels/layernorm.h"
#include "kernels/normalize.h"
#include "kernels/patchify.h"

// The call of a kernel whose arguments are the local variable `arguments`.
#define ISOBAR_BENCH_CALL(name)                                                                            \
  Call {                                                                                                   \
    name##_cost(arguments), [arguments, device = memory.device()] { ISOBAR_RUN(device, name, arguments); } \
  }

namespace isobar::bench {
namespace {

constexpr std::int64_t kTokens = 4050, kEmbed = 384, kHidden = 1536, kHeads = 8, kHeadSize = 48;
constexpr std::int64_t kFields = 20, kHeight = 360, kWidth = 720, kPatch = 8;
constexpr std::int64_t kParameters = 23'832'960;

std::size_t bytes_of(std::int64_t n, DType dtype) {
  return static_cast<std::size_t>(n) * size_of(dtype);
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
Shape samples_only(std::int64_t batch) {
  return {batch};
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
  auto& [memory, dtype, d] = p;
  const CastArgs arguments = {.n = d[0],
                              .x_dtype = DType::fp32,
                              .y_dtype = dtype,
                              .x = memory.uniform(d[0], DType::fp32),
                              .y = memory.allocate(bytes_of(d[0], dtype))};
  return ISOBAR_BENCH_CALL(cast);
}

ISOBAR_BENCH(fill, .dims = "n", .base_shape = activations, .small_shape = {1001}) {
  auto& [memory, dtype, d] = p;
  const FillArgs arguments = {.n = d[0], .dtype = dtype, .value = 1, .y = memory.allocate(bytes_of(d[0], dtype))};
  return ISOBAR_BENCH_CALL(fill);
}

ISOBAR_BENCH(add, .dims = "n", .base_shape = activations, .small_shape = {1001}) {
  auto& [memory, dtype, d] = p;
  const AddArgs arguments = {.n = d[0],
                             .a_dtype = dtype,
                             .b_dtype = dtype,
                             .y_dtype = dtype,
                             .a = memory.uniform(d[0], dtype),
                             .b = memory.uniform(d[0], dtype),
                             .y = memory.allocate(bytes_of(d[0], dtype))};
  return ISOBAR_BENCH_CALL(add);
}

ISOBAR_BENCH(copy_strided, .dims = "blocks length stride", .base_shape = queries, .small_shape = {3, 77, 80}) {
  auto& [memory, dtype, d] = p;
  const CopyStridedArgs arguments = {.blocks = d[0],
                                     .length = d[1],
                                     .source_stride = d[2],
                                     .destination_stride = d[1],
                                     .dtype = dtype,
                                     .source = memory.uniform(d[0] * d[2], dtype),
                                     .destination = memory.allocate(bytes_of(d[0] * d[1], dtype))};
  return ISOBAR_BENCH_CALL(copy_strided);
}

ISOBAR_BENCH(add_row, .dims = "groups n", .base_shape = samples, .small_shape = {3, 77}) {
  auto& [memory, dtype, d] = p;
  const std::int64_t n = d[0] * d[1];
  const AddRowArgs arguments = {.groups = d[0],
                                .n = d[1],
                                .x_dtype = dtype,
                                .row_dtype = DType::fp32,
                                .y_dtype = dtype,
                                .x = memory.uniform(n, dtype),
                                .row = memory.uniform(d[1], DType::fp32),
                                .y = memory.allocate(bytes_of(n, dtype))};
  return ISOBAR_BENCH_CALL(add_row);
}

ISOBAR_BENCH(gelu_fwd, .dims = "n", .base_shape = hidden, .small_shape = {1001},
             .baselines = {memcpy_baseline(), {"onednn", onednn_gelu_fwd}}) {
  auto& [memory, dtype, d] = p;
  const GeluFwdArgs arguments = {
      .n = d[0], .dtype = dtype, .x = memory.uniform(d[0], dtype, -3, 3), .y = memory.allocate(bytes_of(d[0], dtype))};
  return ISOBAR_BENCH_CALL(gelu_fwd);
}

ISOBAR_BENCH(gelu_bwd, .dims = "n", .base_shape = hidden, .small_shape = {1001},
             .baselines = {memcpy_baseline(), {"onednn", onednn_gelu_bwd}}) {
  auto& [memory, dtype, d] = p;
  const GeluBwdArgs arguments = {.n = d[0],
                                 .dtype = dtype,
                                 .dy = memory.uniform(d[0], dtype),
                                 .x = memory.uniform(d[0], dtype, -3, 3),
                                 .dx = memory.allocate(bytes_of(d[0], dtype))};
  return ISOBAR_BENCH_CALL(gelu_bwd);
}

ISOBAR_BENCH(dropout, .dims = "n", .base_shape = activations, .small_shape = {1001}) {
  auto& [memory, dtype, d] = p;
  const DropoutArgs arguments = {.n = d[0],
                                 .dtype = dtype,
                                 .p = 0.1f,
                                 .seed = 1,
                                 .x = memory.uniform(d[0], dtype),
                                 .y = memory.allocate(bytes_of(d[0], dtype))};
  return ISOBAR_BENCH_CALL(dropout);
}

ISOBAR_BENCH(drop_path, .dims = "batch n", .base_shape = samples, .small_shape = {3, 77}) {
  auto& [memory, dtype, d] = p;
  const std::int64_t n = d[0] * d[1];
  const DropPathArgs arguments = {.rows = d[0],
                                  .cols = d[1],
                                  .dtype = dtype,
                                  .p = 0.1f,
                                  .seed = 1,
                                  .x = memory.uniform(n, dtype),
                                  .y = memory.allocate(bytes_of(n, dtype))};
  return ISOBAR_BENCH_CALL(drop_path);
}

// ---- rows -----------------------------------------------------------------------------------------------------------

ISOBAR_BENCH(column_sum, .dims = "rows cols", .base_shape = hidden_rows, .small_shape = {7, 33}) {
  auto& [memory, dtype, d] = p;
  const ColumnSumArgs arguments = {.rows = d[0],
                                   .cols = d[1],
                                   .dtype = dtype,
                                   .x = memory.uniform(d[0] * d[1], dtype),
                                   .out = memory.allocate(bytes_of(d[1], DType::fp32)),
                                   .workspace = memory.allocate(column_sum_workspace(d[0], d[1], dtype))};
  return ISOBAR_BENCH_CALL(column_sum);
}

// With the residual add: the stream is fp32, the branch and the output have the op's dtype.
ISOBAR_BENCH(layernorm_fwd, .dims = "rows cols", .base_shape = rows, .small_shape = {7, 33},
             .baselines = {memcpy_baseline(), {"onednn", onednn_layernorm_fwd}}) {
  auto& [memory, dtype, d] = p;
  const std::int64_t rows = d[0], cols = d[1], n = rows * cols;
  const LayernormFwdArgs arguments = {.rows = rows,
                                      .cols = cols,
                                      .stream_dtype = DType::fp32,
                                      .dtype = dtype,
                                      .x = memory.uniform(n, DType::fp32),
                                      .branch = memory.uniform(n, dtype),
                                      .weight = memory.uniform(cols, DType::fp32),
                                      .bias = memory.uniform(cols, DType::fp32),
                                      .sum = memory.allocate(bytes_of(n, DType::fp32)),
                                      .y = memory.allocate(bytes_of(n, dtype)),
                                      .mean = memory.allocate(bytes_of(rows, DType::fp32)),
                                      .rstd = memory.allocate(bytes_of(rows, DType::fp32))};
  return ISOBAR_BENCH_CALL(layernorm_fwd);
}

ISOBAR_BENCH(layernorm_bwd, .dims = "rows cols", .base_shape = rows, .small_shape = {7, 33},
             .baselines = {memcpy_baseline(), {"onednn", onednn_layernorm_bwd}}) {
  auto& [memory, dtype, d] = p;
  const std::int64_t rows = d[0], cols = d[1], n = rows * cols;
  const LayernormBwdArgs arguments = {.rows = rows,
                                      .cols = cols,
                                      .stream_dtype = DType::fp32,
                                      .dtype = dtype,
                                      .dy = memory.uniform(n, dtype),
                                      .x = memory.uniform(n, DType::fp32),
                                      .weight = memory.uniform(cols, DType::fp32),
                                      .mean = memory.uniform(rows, DType::fp32, -0.1, 0.1),
                                      .rstd = memory.uniform(rows, DType::fp32, 1, 2),
                                      .dsum = memory.uniform(n, DType::fp32),
                                      .dx = memory.allocate(bytes_of(n, DType::fp32)),
                                      .dbranch = memory.allocate(bytes_of(n, dtype)),
                                      .dweight = memory.allocate(bytes_of(cols, DType::fp32)),
                                      .dbias = memory.allocate(bytes_of(cols, DType::fp32)),
                                      .workspace = memory.allocate(layernorm_bwd_workspace(cols, DType::fp32))};
  return ISOBAR_BENCH_CALL(layernorm_bwd);
}

// ---- GEMM and attention ---------------------------------------------------------------------------------------------

GemmArgs linear(const Problem& p, std::int64_t m, std::int64_t n, std::int64_t k) {
  auto& [memory, dtype, d] = p;
  return {.m = m,
          .n = n,
          .k = k,
          .transpose_b = true,
          .in_dtype = dtype,
          .out_dtype = dtype,
          .a = memory.uniform(m * k, dtype),
          .b = memory.uniform(n * k, dtype),
          .c = memory.allocate(bytes_of(m * n, dtype)),
          .tf32 = dtype.tf32};
}

// The same product by oneDNN's own entry point.
std::function<void()> dnnl_gemm(const Problem& p, const Cost&) {
  auto& [memory, dtype, d] = p;
  ISOBAR_CHECK(memory.device().kind == DeviceKind::cpu && dtype == DType::fp32,
               "the baseline dnnl runs on the CPU in fp32 only");
  const GemmArgs g = linear(p, d[0], d[1], d[2]);
  return [g] {
    const auto status = dnnl_sgemm('N', 'T', g.m, g.n, g.k, 1.0f, static_cast<const float*>(g.a), g.k,
                                   static_cast<const float*>(g.b), g.k, 0.0f, static_cast<float*>(g.c), g.n);
    ISOBAR_CHECK(status == dnnl_success, "dnnl_sgemm failed with status ", static_cast<int>(status));
  };
}

// By oneDNN in fp32 and in bf16, which it computes with AVX512_BF16 or AMX where the CPU has them.
std::function<void()> onednn_gemm(const Problem& p, const Cost& cost) {
  auto& [memory, dtype, d] = p;
  if (dtype != DType::bf16) return dnnl_gemm(p, cost);
  ISOBAR_CHECK(memory.device().kind == DeviceKind::cpu && cpu::best_isa() == cpu::Isa::avx512,
               "the baseline onednn multiplies bf16 on CPUs with AVX-512 only");
  return [g = linear(p, d[0], d[1], d[2])] { cpu::gemm_onednn(g); };
}

ISOBAR_BENCH(gemm, .dims = "m n k", .base_shape = linear_shape, .small_shape = {5, 7, 9}, .has_tf32 = true,
             .baselines = {memcpy_baseline(), {"dnnl", dnnl_gemm}, {"onednn", onednn_gemm}}) {
  auto& [memory, dtype, d] = p;
  const GemmArgs arguments = linear(p, d[0], d[1], d[2]);
  return ISOBAR_BENCH_CALL(gemm);
}

// The three products of a linear layer in a training step, y [rows, out] = x [rows, in] · w [out, in]^T + bias.
ISOBAR_BENCH(linear_fwd, .dims = "rows out in", .base_shape = linear_shape, .small_shape = {5, 7, 9},
             .has_tf32 = true) {
  auto& [memory, dtype, d] = p;
  GemmArgs arguments = linear(p, d[0], d[1], d[2]);
  arguments.bias = memory.uniform(d[1], DType::fp32);
  return ISOBAR_BENCH_CALL(gemm);
}

// dx [rows, in] = dy · w
ISOBAR_BENCH(linear_dx, .dims = "rows out in", .base_shape = linear_shape, .small_shape = {5, 7, 9}, .has_tf32 = true) {
  auto& [memory, dtype, d] = p;
  GemmArgs arguments = linear(p, d[0], d[2], d[1]);
  arguments.transpose_b = false;
  return ISOBAR_BENCH_CALL(gemm);
}

// dw [out, in] = dy^T · x, in fp32
ISOBAR_BENCH(linear_dw, .dims = "rows out in", .base_shape = linear_shape, .small_shape = {5, 7, 9}, .has_tf32 = true) {
  auto& [memory, dtype, d] = p;
  const GemmArgs arguments = {.m = d[1],
                              .n = d[2],
                              .k = d[0],
                              .transpose_a = true,
                              .in_dtype = dtype,
                              .out_dtype = DType::fp32,
                              .a = memory.uniform(d[0] * d[1], dtype),
                              .b = memory.uniform(d[0] * d[2], dtype),
                              .c = memory.allocate(bytes_of(d[1] * d[2], DType::fp32)),
                              .tf32 = dtype.tf32};
  return ISOBAR_BENCH_CALL(gemm);
}

AttentionShape attention_shape(const Shape& d) {
  ISOBAR_CHECK(d[4] % 8 == 0 && d[4] <= 128, "attention needs a head_size that is a multiple of 8 up to 128, not ",
               d[4]);
  return {.batch = d[0], .heads = d[1], .q_tokens = d[2], .kv_tokens = d[3], .head_size = d[4]};
}

// Forward operands; q, k and v lie in buffers of their own.
AttentionFwdArgs attention(const Problem& p) {
  auto& [memory, dtype, d] = p;
  const AttentionShape s = attention_shape(d);
  const std::int64_t stride = s.heads * s.head_size;
  const std::int64_t q_size = s.batch * s.q_tokens * stride, kv_size = s.batch * s.kv_tokens * stride;
  return {.shape = s,
          .dtype = dtype,
          .scale = 1 / std::sqrt(static_cast<double>(s.head_size)),
          .tf32 = dtype.tf32,
          .dropout = {},
          .q = memory.uniform(q_size, dtype),
          .k = memory.uniform(kv_size, dtype),
          .v = memory.uniform(kv_size, dtype),
          .o = memory.allocate(bytes_of(q_size, dtype)),
          .lse = memory.allocate(bytes_of(s.batch * s.heads * s.q_tokens, DType::fp32)),
          .q_stride = stride,
          .k_stride = stride,
          .v_stride = stride,
          .o_stride = stride};
}

// What attention costs at least where the scores are stored: its products as plain GEMMs, head by head.
template <int kProducts>
std::function<void()> gemms(const Problem& p, const Cost&) {
  auto& [memory, dtype, d] = p;
  const AttentionShape s = attention_shape(d);
  const GemmArgs scores = linear(p, s.q_tokens, s.kv_tokens, s.head_size);
  GemmArgs values = linear(p, s.q_tokens, s.head_size, s.kv_tokens);
  values.a = scores.c;
  return [=, device = memory.device()] {
    for (std::int64_t head = 0; head < s.batch * s.heads; ++head) {
      for (int i = 0; i < kProducts; ++i) ISOBAR_RUN(device, gemm, i % 2 == 0 ? scores : values);
    }
  };
}

ISOBAR_BENCH(attention_fwd, .dims = "batch heads q_tokens kv_tokens head_size", .base_shape = heads,
             .small_shape = {1, 2, 17, 17, 8}, .has_tf32 = true, .baselines = {memcpy_baseline(), {"gemm", gemms<2>}}) {
  auto& [memory, dtype, d] = p;
  const AttentionFwdArgs arguments = attention(p);
  return ISOBAR_BENCH_CALL(attention_fwd);
}

ISOBAR_BENCH(attention_bwd, .dims = "batch heads q_tokens kv_tokens head_size", .base_shape = heads,
             .small_shape = {1, 2, 17, 17, 8}, .has_tf32 = true, .baselines = {memcpy_baseline(), {"gemm", gemms<5>}}) {
  auto& [memory, dtype, d] = p;
  const AttentionFwdArgs fwd = attention(p);
  ISOBAR_RUN(memory.device(), attention_fwd, fwd);
  const AttentionShape& s = fwd.shape;
  const std::int64_t q_size = s.batch * s.q_tokens * fwd.q_stride, kv_size = s.batch * s.kv_tokens * fwd.k_stride;
  const AttentionBwdArgs arguments = {.shape = s,
                                      .dtype = dtype,
                                      .scale = fwd.scale,
                                      .tf32 = dtype.tf32,
                                      .dropout = {},
                                      .q = fwd.q,
                                      .k = fwd.k,
                                      .v = fwd.v,
                                      .o = fwd.o,
                                      .lse = fwd.lse,
                                      .d_o = memory.uniform(q_size, dtype),
                                      .dq = memory.allocate(bytes_of(q_size, dtype)),
                                      .dk = memory.allocate(bytes_of(kv_size, dtype)),
                                      .dv = memory.allocate(bytes_of(kv_size, dtype)),
                                      .q_stride = fwd.q_stride,
                                      .k_stride = fwd.k_stride,
                                      .v_stride = fwd.v_stride,
                                      .o_stride = fwd.o_stride,
                                      .do_stride = fwd.o_stride,
                                      .dq_stride = fwd.q_stride,
                                      .dk_stride = fwd.k_stride,
                                      .dv_stride = fwd.v_stride,
                                      .workspace = memory.allocate(attention_bwd_workspace(s, dtype))};
  return ISOBAR_BENCH_CALL(attention_bwd);
}

// Outputs in the accumulator's type, whatever the operands of the attentions were.
ISOBAR_BENCH(attention_merge, .dims = "batch heads tokens head_size", .base_shape = outputs,
             .small_shape = {1, 2, 17, 8}, .fp32_only = true) {
  auto& [memory, dtype, d] = p;
  ISOBAR_CHECK(d[3] % 4 == 0, "attention_merge needs a head_size that is a multiple of 4, not ", d[3]);
  const std::int64_t stride = d[1] * d[3], size = d[0] * d[2] * stride, rows = d[0] * d[1] * d[2];
  const AttentionMergeArgs arguments = {.batch = d[0],
                                        .heads = d[1],
                                        .tokens = d[2],
                                        .head_size = d[3],
                                        .o = memory.uniform(size, DType::fp32),
                                        .lse = memory.uniform(rows, DType::fp32),
                                        .other_o = memory.uniform(size, DType::fp32),
                                        .other_lse = memory.uniform(rows, DType::fp32),
                                        .o_stride = stride,
                                        .other_stride = stride};
  return ISOBAR_BENCH_CALL(attention_merge);
}

// ---- patches, normalisation, losses ---------------------------------------------------------------------------------

void check_patches(const Shape& d) {
  ISOBAR_CHECK(d[2] % d[4] == 0 && d[3] % d[4] == 0, "an image of ", d[2], " x ", d[3],
               " cannot be cut into patches of ", d[4], " x ", d[4]);
}

ISOBAR_BENCH(patchify, .dims = "batch channels height width patch", .base_shape = patches,
             .small_shape = {1, 3, 4, 6, 2}) {
  auto& [memory, dtype, d] = p;
  check_patches(d);
  const std::int64_t n = d[0] * d[1] * d[2] * d[3];
  const PatchifyArgs arguments = {.batch = d[0],
                                  .channels = d[1],
                                  .height = d[2],
                                  .width = d[3],
                                  .patch = d[4],
                                  .image_dtype = DType::fp32,
                                  .token_dtype = dtype,
                                  .image = memory.uniform(n, DType::fp32),
                                  .tokens = memory.allocate(bytes_of(n, dtype))};
  return ISOBAR_BENCH_CALL(patchify);
}

ISOBAR_BENCH(unpatchify, .dims = "batch channels height width patch", .base_shape = patches,
             .small_shape = {1, 3, 4, 6, 2}) {
  auto& [memory, dtype, d] = p;
  check_patches(d);
  const std::int64_t n = d[0] * d[1] * d[2] * d[3];
  const UnpatchifyArgs arguments = {.batch = d[0],
                                    .channels = d[1],
                                    .height = d[2],
                                    .width = d[3],
                                    .patch = d[4],
                                    .image_dtype = dtype,
                                    .token_dtype = dtype,
                                    .tokens = memory.uniform(n, dtype),
                                    .image = memory.allocate(bytes_of(n, dtype))};
  return ISOBAR_BENCH_CALL(unpatchify);
}

ISOBAR_BENCH(normalize, .dims = "batch channels height width", .base_shape = fields, .small_shape = {1, 3, 4, 6},
             .fp32_only = true) {
  auto& [memory, dtype, d] = p;
  const std::int64_t n = d[0] * d[1] * d[2] * d[3];
  const NormalizeArgs arguments = {.batch = d[0],
                                   .channels = d[1],
                                   .height = d[2],
                                   .width = d[3],
                                   .dtype = dtype,
                                   .x = static_cast<const float*>(memory.uniform(n, DType::fp32)),
                                   .mean = static_cast<const double*>(memory.uniform(d[1], DType::fp64)),
                                   .std = static_cast<const double*>(memory.uniform(d[1], DType::fp64, 1, 2)),
                                   .y = memory.allocate(bytes_of(n, dtype))};
  return ISOBAR_BENCH_CALL(normalize);
}

ISOBAR_BENCH(denormalize, .dims = "batch channels height width", .base_shape = fields, .small_shape = {1, 3, 4, 6},
             .fp32_only = true) {
  auto& [memory, dtype, d] = p;
  const std::int64_t n = d[0] * d[1] * d[2] * d[3];
  const DenormalizeArgs arguments = {.batch = d[0],
                                     .channels = d[1],
                                     .height = d[2],
                                     .width = d[3],
                                     .dtype = dtype,
                                     .x = memory.uniform(n, dtype),
                                     .mean = static_cast<const double*>(memory.uniform(d[1], DType::fp64)),
                                     .std = static_cast<const double*>(memory.uniform(d[1], DType::fp64, 1, 2)),
                                     .y = static_cast<float*>(memory.allocate(bytes_of(n, DType::fp32)))};
  return ISOBAR_BENCH_CALL(denormalize);
}

// Of a forecast in rows of patches, as steps of training read it.
ISOBAR_BENCH(forecast_loss_sums, .dims = "batch channels height width patch", .base_shape = patches,
             .small_shape = {2, 3, 4, 6, 2}) {
  auto& [memory, dtype, d] = p;
  check_patches(d);
  const std::int64_t n = d[0] * d[1] * d[2] * d[3];
  const ForecastLossSumsArgs arguments = {
      .batch = d[0],
      .channels = d[1],
      .height = d[2],
      .width = d[3],
      .patch = d[4],
      .dtype = dtype,
      .pred = memory.uniform(n, dtype),
      .target = memory.uniform(n, DType::fp32, -2, 2),
      .sums = static_cast<double*>(memory.allocate(bytes_of(2 * d[0], DType::fp64))),
      .workspace = memory.allocate(forecast_loss_workspace(d[0]))};
  return ISOBAR_BENCH_CALL(forecast_loss_sums);
}

ISOBAR_BENCH(forecast_loss_finish, .dims = "batch", .base_shape = samples_only, .small_shape = {3}) {
  auto& [memory, dtype, d] = p;
  const ForecastLossFinishArgs arguments = {
      .batch = d[0],
      .sample_size = kFields * kHeight * kWidth,
      .dtype = dtype,
      .sums = static_cast<const double*>(memory.uniform(2 * d[0], DType::fp64, 1, 2)),
      .loss = memory.allocate(bytes_of(1, DType::fp32))};
  return ISOBAR_BENCH_CALL(forecast_loss_finish);
}

// The same; the forecast is fp32, and its gradient of the dtype.
ISOBAR_BENCH(forecast_loss_bwd, .dims = "batch channels height width patch", .base_shape = patches,
             .small_shape = {2, 3, 4, 6, 2}) {
  auto& [memory, dtype, d] = p;
  check_patches(d);
  const std::int64_t n = d[0] * d[1] * d[2] * d[3];
  const ForecastLossBwdArgs arguments = {
      .batch = d[0],
      .channels = d[1],
      .height = d[2],
      .width = d[3],
      .sample_size = d[1] * d[2] * d[3],
      .patch = d[4],
      .dtype = DType::fp32,
      .dpred_dtype = dtype,
      .pred = memory.uniform(n, DType::fp32),
      .target = memory.uniform(n, DType::fp32, -2, 2),
      .sums = static_cast<const double*>(memory.uniform(2 * d[0], DType::fp64, 1, 2)),
      .dpred = memory.allocate(bytes_of(n, dtype))};
  return ISOBAR_BENCH_CALL(forecast_loss_bwd);
}

ISOBAR_BENCH(forecast_scores, .dims = "batch channels height width", .base_shape = fields,
             .small_shape = {2, 3, 4, 6}) {
  auto& [memory, dtype, d] = p;
  const std::int64_t n = d[0] * d[1] * d[2] * d[3];
  const ForecastScoresArgs arguments = {
      .batch = d[0],
      .channels = d[1],
      .height = d[2],
      .width = d[3],
      .dtype = dtype,
      .pred = memory.uniform(n, dtype),
      .target = memory.uniform(n, DType::fp32, -2, 2),
      .row_weights = memory.uniform(d[2], DType::fp32, 0, 2),
      .out = static_cast<double*>(memory.allocate(bytes_of(4 * d[0] * d[1], DType::fp64)))};
  return ISOBAR_BENCH_CALL(forecast_scores);
}

// A label a row, all of them classes.
std::int32_t* labels(Memory& memory, std::int64_t rows, std::int64_t classes) {
  std::vector<std::int32_t> values;
  for (std::int64_t row = 0; row < rows; ++row) values.push_back(static_cast<std::int32_t>(row * 7919 % classes));
  return static_cast<std::int32_t*>(memory.copy_of(values.data(), values.size() * sizeof values[0]));
}

ISOBAR_BENCH(cross_entropy_fwd, .dims = "rows classes", .base_shape = vocabulary, .small_shape = {7, 33}) {
  auto& [memory, dtype, d] = p;
  const std::int64_t rows = d[0], classes = d[1];
  const CrossEntropyFwdArgs arguments = {
      .rows = rows,
      .classes = classes,
      .dtype = dtype,
      .logits = memory.uniform(rows * classes, dtype),
      .labels = labels(memory, rows, classes),
      .max = memory.allocate(bytes_of(rows, DType::fp32)),
      .sum = memory.allocate(bytes_of(rows, DType::fp32)),
      .row_loss = memory.allocate(bytes_of(rows, DType::fp32)),
      .loss = memory.allocate(bytes_of(1, DType::fp32)),
      .counted = static_cast<std::int32_t*>(memory.allocate(bytes_of(1, DType::i32)))};
  return ISOBAR_BENCH_CALL(cross_entropy_fwd);
}

ISOBAR_BENCH(cross_entropy_bwd, .dims = "rows classes", .base_shape = vocabulary, .small_shape = {7, 33}) {
  auto& [memory, dtype, d] = p;
  const std::int64_t rows = d[0], classes = d[1];
  const auto counted = static_cast<std::int32_t>(rows);
  const CrossEntropyBwdArgs arguments = {
      .rows = rows,
      .classes = classes,
      .dtype = dtype,
      .logits = memory.uniform(rows * classes, dtype),
      .labels = labels(memory, rows, classes),
      .max = memory.uniform(rows, DType::fp32, 1, 2),
      .sum = memory.uniform(rows, DType::fp32, 1, 2),
      .counted = static_cast<const std::int32_t*>(memory.copy_of(&counted, sizeof counted)),
      .dlogits = memory.allocate(bytes_of(rows * classes, dtype))};
  return ISOBAR_BENCH_CALL(cross_entropy_bwd);
}

// ---- optimizer ------------------------------------------------------------------------------------------------------

// fp32 master weights; a 16-bit dtype adds the copy that the model computes with.
ISOBAR_BENCH(adam, .dims = "n", .base_shape = parameters, .small_shape = {1001}) {
  auto& [memory, dtype, d] = p;
  const std::int64_t n = d[0];
  const double grad_scale = 1;
  const AdamArgs arguments = {.n = n,
                              .decay_end = n,
                              .compute_dtype = dtype,
                              .lr = 1e-3,
                              .bias1 = 0.1,
                              .bias2 = 0.05,
                              .weight_decay = 0.05,
                              .decoupled = true,
                              .grad_scale = static_cast<const double*>(memory.copy_of(&grad_scale, sizeof grad_scale)),
                              .grad = memory.uniform(n, DType::fp32),
                              .weight = memory.uniform(n, DType::fp32),
                              .m = memory.uniform(n, DType::fp32),
                              .v = memory.uniform(n, DType::fp32, 0, 1),
                              .compute = is_16_bit(dtype) ? memory.allocate(bytes_of(n, dtype)) : nullptr};
  return ISOBAR_BENCH_CALL(adam);
}

ISOBAR_BENCH(sum_of_squares, .dims = "n", .base_shape = parameters, .small_shape = {1001}, .fp32_only = true) {
  auto& [memory, dtype, d] = p;
  const SumOfSquaresArgs arguments = {
      .n = d[0],
      .dtype = dtype,
      .x = memory.uniform(d[0], dtype),
      .sum = static_cast<double*>(memory.allocate(sizeof(double))),
      .workspace = static_cast<double*>(memory.allocate(bytes_of(kSumOfSquaresBlocks, DType::fp64)))};
  return ISOBAR_BENCH_CALL(sum_of_squares);
}

ISOBAR_BENCH(clip_coefficient, .dims = "n", .base_shape = scalar, .small_shape = {1}, .fp32_only = true) {
  auto& [memory, dtype, d] = p;
  const ClipCoefficientArgs arguments = {.count = d[0],
                                         .sums = static_cast<const double*>(memory.uniform(d[0], DType::fp64, 1, 2)),
                                         .max_norm = 1,
                                         .norm = static_cast<double*>(memory.allocate(sizeof(double))),
                                         .grad_scale = static_cast<double*>(memory.allocate(sizeof(double)))};
  return ISOBAR_BENCH_CALL(clip_coefficient);
}

// ---- what a step costs beside its kernels --------------------------------------------------------------------------

// A batch's way to the device: from pinned memory, where there is a GPU. Its floor is that of a copy within the device.
ISOBAR_BENCH(upload, .dims = "n", .base_shape = batch_of_fields, .small_shape = {1001}, .fp32_only = true) {
  auto& [memory, dtype, d] = p;
  const std::size_t bytes = bytes_of(d[0], dtype);
  const void* const from = memory.pinned(bytes);
  return {{.bytes = 2.0 * static_cast<double>(bytes)},
          [=, to = memory.allocate(bytes), device = memory.device()] { copy_on_device(device, to, from, bytes); }};
}

FillArgs one_number(Memory& memory) {
  return {.n = 1, .dtype = DType::fp32, .value = 1, .y = memory.allocate(sizeof(float))};
}

Cost cost_of_fills(std::int64_t count) {
  return {.bytes = static_cast<double>(count) * sizeof(float)};
}

// Kernels that do next to nothing, one after the other: what a launch costs.
ISOBAR_BENCH(launches, .dims = "count", .base_shape = thousand, .small_shape = {3}, .fp32_only = true) {
  auto& [memory, dtype, d] = p;
  return {cost_of_fills(d[0]), [arguments = one_number(memory), device = memory.device(), count = d[0]] {
            for (std::int64_t i = 0; i < count; ++i) ISOBAR_RUN(device, fill, arguments);
          }};
}

// The same, and the host waits for each before it launches the next one.
ISOBAR_BENCH(waits, .dims = "count", .base_shape = thousand, .small_shape = {3}, .fp32_only = true) {
  auto& [memory, dtype, d] = p;
  return {cost_of_fills(d[0]), [arguments = one_number(memory), device = memory.device(), count = d[0]] {
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
