// conv and conv_transpose. The one is the gradient of the other, so that both are made of the same three kernels.
#include "kernels/conv/conv.h"

#include <string>

#include "engine/conv_ops.h"
#include "engine/ops/common.h"

namespace isobar {
namespace {

// ---- checks ---------------------------------------------------------------------------------------------------------

void check_conv_operands(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                         std::int64_t in_channels, std::int64_t out_channels) {
  ISOBAR_CHECK(x.dtype() == weight.dtype(), op, ": input is ", name_of(x.dtype()), ", weight is ",
               name_of(weight.dtype()));
  ISOBAR_CHECK(x.size(-1) == in_channels, op, ": input ", to_string(x.shape()), " does not fit weight ",
               to_string(weight.shape()));
  ISOBAR_CHECK(!bias.defined() || (bias.numel() == out_channels && bias.dtype() == accumulator_of(x.dtype())), op,
               ": bias ", to_string(bias.shape()), " of ", bias.defined() ? name_of(bias.dtype()) : "",
               " does not fit weight ", to_string(weight.shape()));
}

// Before sizes are asked for.
void check_ranks(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_operands(op, {{"the input", x}});
  const auto rank = static_cast<int>(x.shape().size());
  ISOBAR_CHECK(rank >= 3 && rank <= 5, op, ": the input ", to_string(x.shape()), " has ", rank,
               " dimensions, not 3 to 5");
  check_operands(op, {{"the input", x},
                      {"the weight", weight, rank},
                      {.name = "the bias", .tensor = bias, .rank = 1, .is_optional = true}});
}

template <class T>
T entry_of(const char* op, const char* option, const std::vector<T>& list, int axis, int axes) {
  ISOBAR_CHECK(list.size() == 1 || static_cast<int>(list.size()) == axes, op, ": ", option, " has ", list.size(),
               " entries for ", axes, axes == 1 ? " axis" : " axes");
  return list[list.size() == 1 ? 0 : static_cast<std::size_t>(axis)];
}

// ---- shapes ---------------------------------------------------------------------------------------------------------

// The shape of the convolution whose y is [B, S, Co] of x (is_transposed false), or whose dy is x.
ConvShape shape_of(const char* op, const Tensor& x, const Tensor& weight, const ConvOptions& options,
                   bool is_transposed) {
  const int axes = static_cast<int>(x.shape().size()) - 2;
  ConvShape shape{x.size(0), weight.size(-1), weight.size(0), {}};
  for (int a = 0; a < axes; ++a) {
    ConvAxis& axis = shape.axes[3 - axes + a];
    axis.kernel = weight.size(1 + a);
    axis.stride = entry_of(op, "stride", options.stride, a, axes);
    axis.pad = entry_of(op, "pad", options.pad, a, axes);
    axis.edge = entry_of(op, "edge", options.edge, a, axes);
    const std::int64_t behind =
        options.pad_behind.empty() ? axis.pad : entry_of(op, "pad_behind", options.pad_behind, a, axes);
    ISOBAR_CHECK(axis.kernel >= 1 && axis.stride >= 1 && axis.pad >= 0 && behind >= 0, op, ": weight ",
                 to_string(weight.shape()), " on input ", to_string(x.shape()), ", axis ", a, " has a stride of ",
                 axis.stride, " and paddings of ", axis.pad, " and ", behind);
    const std::int64_t padding = axis.pad + behind;
    std::int64_t result = 0;
    if (is_transposed) {
      axis.out = x.size(1 + a);
      result = axis.in = (axis.out - 1) * axis.stride + axis.kernel - padding;
    } else {
      axis.in = x.size(1 + a);
      result = axis.out = axis.in + padding < axis.kernel ? 0 : (axis.in + padding - axis.kernel) / axis.stride + 1;
    }
    ISOBAR_CHECK(x.size(1 + a) >= 1 && result >= 1, op, ": axis ", a, " of input ", to_string(x.shape()),
                 " and weight ", to_string(weight.shape()), ", padded by ", axis.pad, " and ", behind,
                 ", gives no output");
  }
  return shape;
}

// [B, S, channels], with the extents of the axes that x has.
Shape result_shape(const Tensor& x, const ConvShape& shape, std::int64_t ConvAxis::*extent, std::int64_t channels) {
  const std::size_t axes = x.shape().size() - 2;
  Shape result{shape.batch};
  for (std::size_t a = 3 - axes; a < 3; ++a) result.push_back(shape.axes[a].*extent);
  result.push_back(channels);
  return result;
}

// ---- the kernels ----------------------------------------------------------------------------------------------------

// How large a workspace must be follows from the arguments without one.
template <class Arguments>
Arguments with_workspace(Arguments a, const Tensor& scratch) {
  a.workspace = scratch.defined() ? scratch.data() : nullptr;
  return a;
}

void fwd(const ConvShape& shape, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y,
         Pointwise activation, bool tf32) {
  const auto arguments = [&](const Tensor& scratch) {
    ConvFwdArgs a{.shape = shape,
                  .dtype = x.dtype(),
                  .out_dtype = y.dtype(),
                  .x = x.data(),
                  .weight = weight.data(),
                  .bias = bias.defined() ? bias.data() : nullptr,
                  .y = y.data(),
                  .activation = activation,
                  .tf32 = tf32};
    return with_workspace(a, scratch);
  };
  const Tensor scratch = workspace(conv_fwd_workspace(arguments({})), x.device());
  ISOBAR_RUN(x.device(), conv_fwd, arguments(scratch), current_stream());
}

void bwd_data(const ConvShape& shape, const Tensor& dy, const Tensor& weight, const Tensor& bias, const Tensor& dx,
              Grad mode, Pointwise activation, bool tf32) {
  const auto arguments = [&](const Tensor& scratch) {
    ConvBwdDataArgs a{.shape = shape,
                      .dtype = dy.dtype(),
                      .out_dtype = dx.dtype(),
                      .dy = dy.data(),
                      .weight = weight.data(),
                      .bias = bias.defined() ? bias.data() : nullptr,
                      .dx = dx.data(),
                      .activation = activation,
                      .mode = mode,
                      .tf32 = tf32};
    return with_workspace(a, scratch);
  };
  const Tensor scratch = workspace(conv_bwd_data_workspace(arguments({})), dy.device());
  ISOBAR_RUN(dy.device(), conv_bwd_data, arguments(scratch), current_stream());
}

// The kernel writes in the accumulator's type: into the buffer of a parameter where it has that, else into one of its
// own.
void bwd_weight(Gradients& gradients, const Tensor& weight, const ConvShape& shape, const Tensor& x, const Tensor& dy,
                bool tf32) {
  if (!weight.tracked()) return;
  const DType dtype = accumulator_of(x.dtype());
  const bool into_leaf = weight.leaf() && weight.leaf()->grad.dtype() == dtype;
  const Gradients::Slot slot =
      into_leaf ? gradients.slot(weight) : Gradients::Slot{gradient_like(weight, dtype), Grad::overwrite};
  const auto arguments = [&](const Tensor& scratch) {
    ConvBwdWeightArgs a{.shape = shape,
                        .dtype = x.dtype(),
                        .x = x.data(),
                        .dy = dy.data(),
                        .dweight = slot.tensor.data(),
                        .mode = slot.mode,
                        .tf32 = tf32};
    return with_workspace(a, scratch);
  };
  const Tensor scratch = workspace(conv_bwd_weight_workspace(arguments({})), x.device());
  ISOBAR_RUN(x.device(), conv_bwd_weight, arguments(scratch), current_stream());
  if (!into_leaf) gradients.give(weight, slot.tensor);
}

// Through the activation, in dy's place, and what the bias gets of it; then in the dtype that products read.
Tensor through_epilogue(Gradients& gradients, const Tensor& dy, const Tensor& y, const Tensor& bias,
                        Pointwise activation, DType dtype) {
  if (activation != Pointwise::none) backward_in_place(activation, dy, y);
  if (bias.defined())
    if (const auto dbias = gradients.slot(bias)) add_column_sum(dy, bias.numel(), dbias);
  return dy.to(dtype);
}

}  // namespace

Tensor conv(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options) {
  check_ranks("conv", x, weight, bias);
  check_conv_operands("conv", x, weight, bias, weight.size(-1), weight.size(0));
  const ConvShape shape = shape_of("conv", x, weight, options, false);
  Tensor y = Tensor::empty(result_shape(x, shape, &ConvAxis::out, shape.out_channels), options.out_dtype, x.device());
  fwd(shape, x, weight, bias, y, options.activation, options.tf32);
  const Tensor kept = options.activation != Pointwise::none ? y : Tensor();
  Tape::record("conv", {&x, &weight, &bias}, {x, kept}, {&y},
               [x, weight, bias, kept, shape, activation = options.activation, tf32 = options.tf32](
                   Gradients& gradients, const std::vector<Tensor>& upstream) {
                 const Tensor dy = through_epilogue(gradients, upstream[0], kept, bias, activation, x.dtype());
                 bwd_weight(gradients, weight, shape, x, dy, tf32);
                 if (const auto dx = gradients.slot(x))
                   bwd_data(shape, dy, weight, {}, dx.tensor, dx.mode, Pointwise::none, tf32);
               });
  return y;
}

Tensor conv_transpose(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options) {
  check_ranks("conv_transpose", x, weight, bias);
  check_conv_operands("conv_transpose", x, weight, bias, weight.size(0), weight.size(-1));
  const ConvShape shape = shape_of("conv_transpose", x, weight, options, true);
  Tensor y = Tensor::empty(result_shape(x, shape, &ConvAxis::in, shape.in_channels), options.out_dtype, x.device());
  bwd_data(shape, x, weight, bias, y, Grad::overwrite, options.activation, options.tf32);
  const Tensor kept = options.activation != Pointwise::none ? y : Tensor();
  Tape::record("conv_transpose", {&x, &weight, &bias}, {x, kept}, {&y},
               [x, weight, bias, kept, shape, activation = options.activation, tf32 = options.tf32](
                   Gradients& gradients, const std::vector<Tensor>& upstream) {
                 const Tensor dy = through_epilogue(gradients, upstream[0], kept, bias, activation, x.dtype());
                 bwd_weight(gradients, weight, shape, dy, x, tf32);
                 if (!x.tracked()) return;
                 const Tensor dx = gradient_like(x);
                 fwd(shape, dy, weight, {}, dx, Pointwise::none, tf32);
                 gradients.give(x, dx);
               });
  return y;
}

}  // namespace isobar
