// The loss of a classifier or a language model.
#include "kernels/cross_entropy.h"

#include "engine/ops/common.h"

namespace isobar {

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, std::int32_t ignore, std::int64_t padding) {
  check_operands("cross_entropy", {{"the matrix of logits", logits, 2}, {"the tensor of labels", labels}});
  ISOBAR_CHECK(logits.size(1) >= 1 && labels.numel() == logits.size(0), "cross_entropy: labels ",
               to_string(labels.shape()), " do not fit logits ", to_string(logits.shape()));
  ISOBAR_CHECK(labels.dtype() == DType::i32, "cross_entropy: the labels are ", name_of(labels.dtype()), ", not i32");
  const std::int64_t rows = logits.size(0), classes = logits.size(1);
  ISOBAR_CHECK(padding >= 0 && padding < classes, "cross_entropy: ", padding, " of ", classes,
               " columns cannot be padding");
  const DType accumulator = accumulator_of(logits.dtype());

  Tensor loss = Tensor::empty({1}, accumulator, logits.device());
  const Tensor max = Tensor::empty({rows}, accumulator, logits.device());
  const Tensor sum = Tensor::empty({rows}, accumulator, logits.device());
  const Tensor counted = Tensor::empty({1}, DType::i32, logits.device());
  const Tensor row_loss = Tensor::empty({rows}, accumulator, logits.device());
  ISOBAR_RUN(logits.device(), cross_entropy_fwd,
             {.rows = rows,
              .classes = classes,
              .padding = padding,
              .dtype = logits.dtype(),
              .ignore = ignore,
              .logits = logits.data(),
              .labels = labels.data_as<std::int32_t>(),
              .max = max.data(),
              .sum = sum.data(),
              .row_loss = row_loss.data(),
              .loss = loss.data(),
              .counted = counted.data_as<std::int32_t>()},
             current_stream());
  Tape::record("cross_entropy", {&logits}, {logits, labels, max, sum, counted}, {&loss},
               [=](Gradients& gradients, const std::vector<Tensor>& dy) {
                 const Tensor dlogits = gradient_like(logits);
                 ISOBAR_RUN(logits.device(), cross_entropy_bwd,
                            {.rows = rows,
                             .classes = classes,
                             .padding = padding,
                             .dtype = logits.dtype(),
                             .ignore = ignore,
                             .logits = logits.data(),
                             .labels = labels.data_as<std::int32_t>(),
                             .max = max.data(),
                             .sum = sum.data(),
                             .counted = counted.data_as<std::int32_t>(),
                             .device_upstream = dy[0].data(),
                             .dlogits = dlogits.data()},
                            current_stream());
                 gradients.give(logits, dlogits);
               });
  return loss;
}

}  // namespace isobar
