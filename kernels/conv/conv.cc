// conv: what every device checks first.
#include "kernels/conv/conv.h"

#include <string>

#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"
#include "kernels/conv/packed.h"

namespace isobar {
namespace {

void check_axis(const char* kernel, const ConvAxis& axis) {
  ISOBAR_CHECK(axis.in >= 1 && axis.out >= 1 && axis.kernel >= 1 && axis.stride >= 1 && axis.pad >= 0, kernel,
               ": no axis has ", axis.in, " elements in, ", axis.out, " out, a kernel of ", axis.kernel,
               ", a stride of ", axis.stride, " and a padding of ", axis.pad);
  ISOBAR_CHECK(axis.edge != Edge::wrap || (axis.pad <= axis.in && axis.reach() <= 2 * axis.in), kernel,
               ": a wrapped axis of ", axis.in, " elements is read from ", -axis.pad, " to ", axis.reach() - 1,
               ", more than its own length beyond an end");
}

// Kernels count the elements of a sample and of a weight in 32 bits.
void check_size(const std::string& what, const ConvAxis (&axes)[3], std::int64_t ConvAxis::*extent,
                std::int64_t channels) {
  const std::int64_t extents[] = {axes[0].*extent, axes[1].*extent, axes[2].*extent, channels};
  ISOBAR_CHECK(checked_product(extents, what) < std::int64_t{1} << 31, what, " of ", extents[0], " x ", extents[1],
               " x ", extents[2], " x ", channels, " elements has 2^31 or more");
}

void check_shape(const char* kernel, const ConvShape& s) {
  ISOBAR_CHECK(s.batch >= 0 && s.in_channels >= 1 && s.out_channels >= 1, kernel, ": bad sizes, ", s.batch,
               " samples of ", s.in_channels, " channels in and ", s.out_channels, " out");
  for (const ConvAxis& axis : s.axes) check_axis(kernel, axis);
  check_size(concat(kernel, ": a sample of x"), s.axes, &ConvAxis::in, s.in_channels);
  check_size(concat(kernel, ": a sample of y"), s.axes, &ConvAxis::out, s.out_channels);
  const std::int64_t channels = checked_product({s.in_channels, s.out_channels}, concat(kernel, ": the weight"));
  check_size(concat(kernel, ": the weight"), s.axes, &ConvAxis::kernel, channels);
}

void check_dtypes(const char* kernel, DType dtype, DType out_dtype) {
  ISOBAR_CHECK(dtype != DType::i32 && (out_dtype == dtype || out_dtype == accumulator_of(dtype)), kernel,
               ": cannot convolve ", name_of(dtype), " into ", name_of(out_dtype));
}

}  // namespace

void check_conv(const ConvFwdArgs& a) {
  check_shape("conv_fwd", a.shape);
  check_dtypes("conv_fwd", a.dtype, a.out_dtype);
}

void check_conv(const ConvBwdDataArgs& a) {
  check_shape("conv_bwd_data", a.shape);
  check_dtypes("conv_bwd_data", a.dtype, a.out_dtype);
  ISOBAR_CHECK(a.mode == Grad::overwrite || (a.bias == nullptr && a.activation == Pointwise::none),
               "conv_bwd_data: bias and activation cannot be combined with accumulation");
}

void check_conv(const ConvBwdWeightArgs& a) {
  check_shape("conv_bwd_weight", a.shape);
  check_dtypes("conv_bwd_weight", a.dtype, accumulator_of(a.dtype));
}

namespace cpu {

void conv_fwd(const ConvFwdArgs& a, Stream) {
  check_conv(a);
  conv_fwd_packed(a);
}

void conv_bwd_data(const ConvBwdDataArgs& a, Stream) {
  check_conv(a);
  conv_bwd_data_packed(a);
}

void conv_bwd_weight(const ConvBwdWeightArgs& a, Stream) {
  check_conv(a);
  conv_bwd_weight_packed(a);
}

}  // namespace cpu
}  // namespace isobar
