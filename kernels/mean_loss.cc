#include "kernels/mean_loss.h"

#include "kernels/common/check.h"

namespace isobar {
namespace {

void check_channels(const char* kernel, std::int64_t channels) {
  ISOBAR_CHECK(channels >= 1 && channels <= kMeanLossChannels, kernel, ": ", channels, " channels are not 1 to ",
               kMeanLossChannels);
}

}  // namespace

void check_mean_loss(const MeanLossSumsArgs& a) {
  check_channels("mean_loss_sums", a.channels);
  ISOBAR_CHECK(a.pred_stride >= a.channels && a.target_stride >= a.channels, "mean_loss_sums: rows of ", a.pred_stride,
               " and ", a.target_stride, " elements have less than ", a.channels, " channels");
}

void check_mean_loss(const MeanLossBwdArgs& a) {
  check_channels("mean_loss_bwd", a.channels);
  ISOBAR_CHECK(a.dpred_dtype == a.dtype || (a.dtype == DType::fp32 && is_16_bit(a.dpred_dtype)),
               "mean_loss_bwd: a gradient in ", name_of(a.dpred_dtype), " of a prediction in ", name_of(a.dtype),
               " is not supported");
}

}  // namespace isobar
