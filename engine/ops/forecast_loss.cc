// The forecast losses.
#include "kernels/forecast_loss.h"

#include "engine/ops/common.h"

namespace isobar {

Tensor forecast_loss(const Tensor& pred, const Tensor& target, const LossInputs& inputs) {
  ISOBAR_CHECK(pred.shape().size() == 4 && pred.shape() == target.shape(), "forecast_loss: forecast ",
               to_string(pred.shape()), " and target ", to_string(target.shape()), " differ");
  const DType accumulator = accumulator_of(pred.dtype());
  ISOBAR_CHECK(target.dtype() == accumulator, "forecast_loss: the target is ", name_of(target.dtype()), ", not ",
               name_of(accumulator));
  const auto pointer = [](const Tensor& t) { return t.defined() ? t.data() : nullptr; };

  Tensor loss = Tensor::empty({1}, accumulator, pred.device());
  const Tensor sums = Tensor::empty({pred.size(0), 2}, accumulator, pred.device());
  const Tensor scratch = workspace(forecast_loss_workspace(pred.size(0)), pred.device());
  ISOBAR_RUN(pred.device(), forecast_loss_fwd,
             {.kind = inputs.kind,
              .batch = pred.size(0),
              .channels = pred.size(1),
              .height = pred.size(2),
              .width = pred.size(3),
              .dtype = pred.dtype(),
              .pred = pred.data(),
              .target = target.data(),
              .row_weights = pointer(inputs.row_weights),
              .channel_weights = pointer(inputs.channel_weights),
              .sums = sums.data(),
              .loss = loss.data(),
              .workspace = scratch.data()},
             current_stream());
  Tape::record("forecast_loss", {&pred}, {pred, target, sums}, {&loss},
               [=](Gradients& gradients, const std::vector<Tensor>& dy) {
                 const Tensor dpred = gradient_like(pred);
                 ISOBAR_RUN(pred.device(), forecast_loss_bwd,
                            {.kind = inputs.kind,
                             .batch = pred.size(0),
                             .channels = pred.size(1),
                             .height = pred.size(2),
                             .width = pred.size(3),
                             .dtype = pred.dtype(),
                             .pred = pred.data(),
                             .target = target.data(),
                             .row_weights = pointer(inputs.row_weights),
                             .channel_weights = pointer(inputs.channel_weights),
                             .sums = sums.data(),
                             .upstream = dy[0].data(),
                             .dpred = dpred.data()},
                            current_stream());
                 gradients.give(pred, dpred);
               });
  return loss;
}

}  // namespace isobar
