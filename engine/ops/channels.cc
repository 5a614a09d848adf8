// concat_channels, to_channels_last, to_channels_first.
#include <cstddef>
#include <span>

#include "engine/conv_ops.h"
#include "engine/field_ops.h"
#include "engine/ops/common.h"

namespace isobar {
namespace {

// The rank is 3 to 5.
void check_rank(const char* op, const Tensor& x) {
  check_operands(op, {{"the input", x}});
  const std::size_t rank = x.shape().size();
  ISOBAR_CHECK(rank >= 3 && rank <= 5, op, ": the input ", to_string(x.shape()), " has ", rank,
               " dimensions, not 3 to 5");
  ISOBAR_CHECK(x.size(1) >= 1 && x.size(-1) >= 1, op, ": the input ", to_string(x.shape()), " is empty");
}

Shape without_channels(const Tensor& x) {
  return {x.shape().begin(), x.shape().end() - 1};
}

}  // namespace

Tensor concat_channels(const std::vector<Tensor>& parts) {
  ISOBAR_CHECK(!parts.empty(), "concat_channels: there are no tensors");
  const Tensor& first = parts[0];
  std::int64_t channels = 0;
  for (const Tensor& part : parts) {
    check_operands("concat_channels", {{"the first tensor", first}, {"the next one", part}});
    check_rank("concat_channels", part);
    ISOBAR_CHECK(without_channels(part) == without_channels(first) && part.dtype() == first.dtype(),
                 "concat_channels: ", to_string(first.shape()), " of ", name_of(first.dtype()), " and ",
                 to_string(part.shape()), " of ", name_of(part.dtype()), " differ in more than their channels");
    channels += part.size(-1);
  }
  Shape shape = first.shape();
  shape.back() = channels;
  Tensor y = Tensor::empty(shape, first.dtype(), first.device());
  const std::int64_t rows = numel_of(without_channels(first));
  std::int64_t begin = 0;
  std::vector<const Tensor*> inputs;
  std::vector<Target> targets;
  for (const Tensor& part : parts) {
    copy_strided(y, {begin, channels}, part, {0, part.size(-1)}, rows, part.size(-1));
    begin += part.size(-1);
    inputs.push_back(&part);
    targets.emplace_back(part);
  }
  Tensor* const output = &y;
  Tape::record("concat_channels", inputs, {}, std::span(&output, 1),
               [targets, rows, channels](Gradients& gradients, const std::vector<Tensor>& dy) {
                 std::int64_t begin = 0;
                 for (const Target& part : targets) {
                   const std::int64_t count = part.shape.back();
                   if (part.tracked()) {
                     const MemoryScope scope("gradients");
                     const Tensor dpart = Tensor::empty(part.shape, part.dtype, part.device);
                     copy_strided(dpart, {0, count}, dy[0], {begin, channels}, rows, count);
                     gradients.give(part, dpart);
                   }
                   begin += count;
                 }
               });
  return y;
}

// A patch of one element is the channels of one point, side by side.
Tensor to_channels_last(const Tensor& x, DType out_dtype) {
  check_rank("to_channels_last", x);
  const Shape& shape = x.shape();
  const std::int64_t width = x.size(-1), height = numel_of({shape.begin() + 2, shape.end() - 1});
  Shape result{shape[0]};
  result.insert(result.end(), shape.begin() + 2, shape.end());
  result.push_back(shape[1]);
  return patchify(x.view({shape[0], shape[1], height, width}), 1, PatchOrder::channels_last, out_dtype).view(result);
}

Tensor to_channels_first(const Tensor& x) {
  check_rank("to_channels_first", x);
  const Shape& shape = x.shape();
  const std::int64_t channels = x.size(-1), width = x.size(-2), height = numel_of({shape.begin() + 1, shape.end() - 2});
  Shape result{shape[0], channels};
  result.insert(result.end(), shape.begin() + 1, shape.end() - 1);
  const Tensor rows = x.view({x.numel() / channels, channels});
  return unpatchify(rows, {shape[0], channels, height, width}, 1, PatchOrder::channels_last).view(result);
}

}  // namespace isobar
