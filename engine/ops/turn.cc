// turn.
#include "kernels/turn.h"

#include "engine/conv_ops.h"
#include "engine/ops/common.h"

namespace isobar {

Tensor turn(const Tensor& x, const Tensor& turns, std::int64_t vector, DType out_dtype) {
  check_operands("turn", {{"the batch of volumes", x, 5},
                          {.name = "the list of turns", .tensor = turns, .rank = 1, .is_optional = true}});
  ISOBAR_CHECK(x.dtype() == DType::fp32, "turn: the volumes are ", name_of(x.dtype()), ", not fp32");
  ISOBAR_CHECK(!turns.defined() || (turns.size(0) == x.size(0) && turns.dtype() == DType::i32),
               "turn: ", turns.defined() ? turns.numel() : 0, " turns for ", x.size(0), " volumes");
  const std::int64_t depth = x.size(2), height = x.size(3), width = x.size(4);
  const Tensor y = Tensor::empty({x.size(0), depth, height, width, x.size(1)}, out_dtype, x.device());
  ISOBAR_RUN(x.device(), turn,
             {.batch = x.size(0),
              .channels = x.size(1),
              .extent = {depth, height, width},
              .vector = vector,
              .dtype = out_dtype,
              .x = x.data_as<float>(),
              .turns = turns.defined() ? turns.data_as<std::int32_t>() : nullptr,
              .y = y.data()},
             current_stream());
  return y;
}

}  // namespace isobar
