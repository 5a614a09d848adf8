// Loss and predicted class of labelled samples, from a classifier's logits; outside the graph.
#include "kernels/cross_entropy.h"

#include "engine/ops.h"
#include "engine/ops/common.h"

namespace isobar {

ClassPredictions class_predictions(const Tensor& logits, const Tensor& labels, std::int64_t padding) {
  check_operands("class_predictions", {{"the matrix of logits", logits, 2}, {"the tensor of labels", labels}});
  ISOBAR_CHECK(labels.numel() == logits.size(0), "class_predictions: labels ", to_string(labels.shape()),
               " do not fit logits ", to_string(logits.shape()));
  ISOBAR_CHECK(labels.dtype() == DType::i32, "class_predictions: the labels are ", name_of(labels.dtype()),
               ", not i32");
  ISOBAR_CHECK(padding >= 0 && (padding == 0 || padding < logits.size(1)), "class_predictions: ", padding, " of ",
               logits.size(1), " columns cannot be padding");
  const std::int64_t rows = logits.size(0);
  const DType accumulator = accumulator_of(logits.dtype());
  const auto vector = [&](std::int64_t n, DType dtype) { return Tensor::empty({n}, dtype, logits.device()); };
  const Tensor max = vector(rows, accumulator), sum = vector(rows, accumulator), counted = vector(1, DType::i32);
  const ClassPredictions result{
      .loss = vector(1, accumulator), .row_loss = vector(rows, accumulator), .prediction = vector(rows, DType::i32)};
  ISOBAR_RUN(logits.device(), cross_entropy_fwd,
             {.rows = rows,
              .classes = logits.size(1),
              .padding = padding,
              .dtype = logits.dtype(),
              .logits = logits.data(),
              .labels = labels.data_as<std::int32_t>(),
              .max = max.data(),
              .sum = sum.data(),
              .row_loss = result.row_loss.data(),
              .prediction = result.prediction.data_as<std::int32_t>(),
              .loss = result.loss.data(),
              .counted = counted.data_as<std::int32_t>()},
             current_stream());
  return result;
}

}  // namespace isobar
