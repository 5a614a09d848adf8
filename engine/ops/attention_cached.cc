// Attention of one new token over keys and values that are kept.
#include "kernels/attention/cached.h"

#include "engine/ops/common.h"

namespace isobar {

Tensor attention_cached(const Tensor& qkv, const Tensor& keys, const Tensor& values, const Tensor& positions,
                        const AttentionOptions& options) {
  check_operands("attention_cached", {{"the tensor of queries, keys and values", qkv, 2},
                                      {"the kept keys", keys, 3},
                                      {"the kept values", values, 3},
                                      {"the tensor of positions", positions, 1}});
  const std::int64_t batch = qkv.size(0), width = qkv.size(1) / 3;
  ISOBAR_CHECK(qkv.size(1) == 3 * width && options.heads >= 1 && width % options.heads == 0 &&
                   keys.shape() == values.shape() && keys.size(0) == batch && keys.size(2) == width &&
                   keys.dtype() == qkv.dtype() && values.dtype() == qkv.dtype() && positions.numel() == batch &&
                   positions.dtype() == DType::i32,
               "attention_cached: ", to_string(qkv.shape()), " of ", options.heads, " heads do not fit a cache ",
               to_string(keys.shape()));
  Tensor o = Tensor::empty({batch, width}, qkv.dtype(), qkv.device());
  const auto columns = [&](std::int64_t part) {
    return static_cast<const std::byte*>(qkv.data()) + static_cast<std::size_t>(part * width) * size_of(qkv.dtype());
  };
  ISOBAR_RUN(qkv.device(), attention_cached,
             {.batch = batch,
              .heads = options.heads,
              .head_size = width / options.heads,
              .capacity = keys.size(1),
              .dtype = qkv.dtype(),
              .scale = options.scale,
              .position = positions.data_as<std::int32_t>(),
              .q = columns(0),
              .k = columns(1),
              .v = columns(2),
              .keys = keys.data(),
              .values = values.data(),
              .o = o.data(),
              .q_stride = 3 * width,
              .k_stride = 3 * width,
              .v_stride = 3 * width,
              .o_stride = width},
             current_stream());
  return o;
}

}  // namespace isobar
