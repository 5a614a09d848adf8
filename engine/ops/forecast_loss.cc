// The forecast losses.
#include "kernels/forecast_loss.h"

#include "engine/field_ops.h"
#include "engine/ops/common.h"

namespace isobar {
namespace {

bool are_patches(const Shape& rows, const Shape& image, std::int64_t p) {
  return image.size() == 4 && p >= 1 && image[2] % p == 0 && image[3] % p == 0 &&
         rows == Shape{image[0] * (image[2] / p) * (image[3] / p), p * p * image[1]};
}

void check_loss(const Tensor& pred, const Tensor& target, const LossInputs& inputs) {
  check_operands("forecast_loss",
                 {{"the forecast", pred, inputs.patch == 0 ? 4 : 2},
                  {"the target", target, 4},
                  {.name = "the list of row weights", .tensor = inputs.row_weights, .is_optional = true},
                  {.name = "the list of channel weights", .tensor = inputs.channel_weights, .is_optional = true}});
  if (inputs.patch == 0)
    ISOBAR_CHECK(pred.shape() == target.shape(), "forecast_loss: forecast ", to_string(pred.shape()), " and target ",
                 to_string(target.shape()), " differ");
  else
    ISOBAR_CHECK(are_patches(pred.shape(), target.shape(), inputs.patch), "forecast_loss: forecast ",
                 to_string(pred.shape()), " are not the patches of ", inputs.patch, " x ", inputs.patch, " of target ",
                 to_string(target.shape()));
  const DType accumulator = accumulator_of(pred.dtype());
  ISOBAR_CHECK(target.dtype() == accumulator, "forecast_loss: the target is ", name_of(target.dtype()), ", not ",
               name_of(accumulator));
  const auto check_weights = [&](const char* of, const Tensor& weights, std::int64_t count) {
    ISOBAR_CHECK(!weights.defined() || weights.shape() == Shape{count}, "forecast_loss: ", of, " weights ",
                 to_string(weights.shape()), " do not fit the fields ", to_string(target.shape()));
    ISOBAR_CHECK(!weights.defined() || weights.dtype() == accumulator, "forecast_loss: the ", of, " weights are ",
                 name_of(weights.dtype()), ", not ", name_of(accumulator));
  };
  check_weights("row", inputs.row_weights, target.size(2));
  check_weights("channel", inputs.channel_weights, target.size(1));
  ISOBAR_CHECK(inputs.whole_height == 0 || inputs.whole_height == target.size(2) ||
                   (inputs.whole_height > target.size(2) && inputs.add_up),
               "forecast_loss: ", target.size(2), " rows are no picture of ", inputs.whole_height, " rows",
               inputs.whole_height > target.size(2) ? ", and nothing adds up the sums of its bands" : "");
}

}  // namespace

Tensor forecast_loss(const Tensor& pred, const Tensor& target, const LossInputs& inputs) {
  check_loss(pred, target, inputs);
  const auto pointer = [](const Tensor& t) { return t.defined() ? t.data() : nullptr; };
  const std::int64_t whole_height = inputs.whole_height > 0 ? inputs.whole_height : target.size(2);
  const std::int64_t sample_size = target.size(1) * whole_height * target.size(3);

  const Tensor sums = Tensor::empty({target.size(0), forecast_loss_sums_of(inputs.masked)}, DType::fp64, pred.device());
  const Tensor scratch = workspace(forecast_loss_workspace(target.size(0), inputs.masked), pred.device());
  ISOBAR_RUN(pred.device(), forecast_loss_sums,
             {.kind = inputs.kind,
              .masked = inputs.masked,
              .batch = target.size(0),
              .channels = target.size(1),
              .height = target.size(2),
              .width = target.size(3),
              .patch = inputs.patch,
              .dtype = pred.dtype(),
              .pred = pred.data(),
              .target = target.data(),
              .row_weights = pointer(inputs.row_weights),
              .channel_weights = pointer(inputs.channel_weights),
              .sums = sums.data_as<double>(),
              .workspace = scratch.data()},
             current_stream());
  if (inputs.add_up) inputs.add_up(sums);
  Tensor loss = Tensor::empty({1}, accumulator_of(pred.dtype()), pred.device());
  ISOBAR_RUN(pred.device(), forecast_loss_finish,
             {.kind = inputs.kind,
              .masked = inputs.masked,
              .batch = target.size(0),
              .sample_size = sample_size,
              .dtype = pred.dtype(),
              .sums = sums.data_as<double>(),
              .loss = loss.data()},
             current_stream());
  Tape::record("forecast_loss", {&pred}, {pred, target, sums}, {&loss},
               [=, kind = inputs.kind, masked = inputs.masked, patch = inputs.patch, rows = inputs.row_weights,
                channels = inputs.channel_weights](Gradients& gradients, const std::vector<Tensor>& dy) {
                 const Tensor dpred = gradient_like(pred, gradients.dtype_wanted_for(pred));
                 ISOBAR_RUN(pred.device(), forecast_loss_bwd,
                            {.kind = kind,
                             .masked = masked,
                             .batch = target.size(0),
                             .channels = target.size(1),
                             .height = target.size(2),
                             .width = target.size(3),
                             .sample_size = sample_size,
                             .patch = patch,
                             .dtype = pred.dtype(),
                             .dpred_dtype = dpred.dtype(),
                             .pred = pred.data(),
                             .target = target.data(),
                             .row_weights = pointer(rows),
                             .channel_weights = pointer(channels),
                             .sums = sums.data_as<double>(),
                             .upstream = dy[0].data(),
                             .dpred = dpred.data()},
                            current_stream());
                 gradients.give(pred, dpred);
               });
  return loss;
}

}  // namespace isobar
