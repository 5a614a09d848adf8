// mean_loss and error_sums.
#include "kernels/mean_loss.h"

#include <algorithm>

#include "engine/conv_ops.h"
#include "engine/ops/common.h"

namespace isobar {
namespace {

Shape points_of(const Tensor& x) {
  return {x.shape().begin(), x.shape().end() - 1};
}

void check_pair(const char* op, const Tensor& pred, const Tensor& target) {
  check_operands(op, {{"the prediction", pred}, {"the target", target}});
  ISOBAR_CHECK(pred.shape().size() >= 2 && target.shape().size() >= 2 && points_of(pred) == points_of(target), op,
               ": prediction ", to_string(pred.shape()), " and target ", to_string(target.shape()),
               " have other points");
  ISOBAR_CHECK(target.dtype() == accumulator_of(pred.dtype()), op, ": the target is ", name_of(target.dtype()),
               ", not ", name_of(accumulator_of(pred.dtype())));
}

Tensor sums_of(const Tensor& pred, const Tensor& target, ErrorKind kind, bool with_density) {
  const std::int64_t channels = std::min(pred.size(-1), target.size(-1));
  const Tensor sums = Tensor::empty({channels + 1}, DType::fp64, pred.device());
  const Tensor scratch = workspace(mean_loss_workspace(channels), pred.device());
  ISOBAR_RUN(pred.device(), mean_loss_sums,
             {.kind = kind,
              .with_density = with_density,
              .points = pred.numel() / pred.size(-1),
              .channels = channels,
              .pred_stride = pred.size(-1),
              .target_stride = target.size(-1),
              .dtype = pred.dtype(),
              .pred = pred.data(),
              .target = target.data(),
              .sums = sums.data_as<double>(),
              .workspace = scratch.data()},
             current_stream());
  return sums;
}

}  // namespace

Tensor error_sums(const Tensor& pred, const Tensor& target, ErrorKind kind, bool with_density) {
  check_pair("error_sums", pred, target);
  return sums_of(pred, target, kind, with_density);
}

Tensor mean_loss(const Tensor& pred, const Tensor& target, const MeanLossOptions& options) {
  check_pair("mean_loss", pred, target);
  ISOBAR_CHECK(pred.shape() == target.shape(), "mean_loss: prediction ", to_string(pred.shape()), " and target ",
               to_string(target.shape()), " differ");
  const std::int64_t channels = pred.size(-1), points = pred.numel() / channels;
  const Tensor sums = sums_of(pred, target, options.kind, options.density_weight != 0);
  Tensor loss = Tensor::empty({1}, accumulator_of(pred.dtype()), pred.device());
  ISOBAR_RUN(pred.device(), mean_loss_finish,
             {.points = points,
              .channels = channels,
              .density_weight = options.density_weight,
              .dtype = pred.dtype(),
              .sums = sums.data_as<double>(),
              .loss = loss.data()},
             current_stream());
  Tape::record("mean_loss", {&pred}, {pred, target}, {&loss}, [=](Gradients& gradients, const std::vector<Tensor>& dy) {
    const Tensor dpred = gradient_like(pred, gradients.dtype_wanted_for(pred));
    ISOBAR_RUN(pred.device(), mean_loss_bwd,
               {.kind = options.kind,
                .points = points,
                .channels = channels,
                .density_weight = options.density_weight,
                .dtype = pred.dtype(),
                .dpred_dtype = dpred.dtype(),
                .pred = pred.data(),
                .target = target.data(),
                .upstream = dy[0].data(),
                .dpred = dpred.data()},
               current_stream());
    gradients.give(pred, dpred);
  });
  return loss;
}

}  // namespace isobar
