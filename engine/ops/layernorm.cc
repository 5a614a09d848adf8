// layernorm, alone and fused with the residual addition before it.
#include "kernels/layernorm.h"

#include "engine/ops/common.h"

namespace isobar {
namespace {

struct Normalized {
  Tensor sum, y, mean, rstd;
};

// The bias of a norm without one; a gradient that is not kept.
Tensor no_bias(const Tensor& weight) {
  return Tensor::zeros(weight.shape(), weight.dtype(), weight.device());
}

Normalized layernorm_forward(const Tensor& x, const Tensor& branch, const Tensor& weight, const Tensor& bias,
                             double eps, DType out_dtype) {
  check_operands("layernorm", {{"the input", x},
                               {.name = "the branch", .tensor = branch, .is_optional = true},
                               {"the weight", weight},
                               {.name = "the bias", .tensor = bias, .is_optional = true}});
  const std::int64_t cols = x.size(-1);
  ISOBAR_CHECK(cols >= 1, "layernorm: the rows of ", to_string(x.shape()), " are empty");
  const std::int64_t rows = x.numel() / cols;
  const DType statistics = accumulator_of(x.dtype());
  const Tensor& shift = bias.defined() ? bias : no_bias(weight);
  ISOBAR_CHECK(weight.dtype() == statistics && shift.dtype() == statistics, "layernorm: weight and bias are ",
               name_of(weight.dtype()), " and ", name_of(shift.dtype()), ", not ", name_of(statistics));
  ISOBAR_CHECK(weight.numel() == cols && shift.numel() == cols, "layernorm: input ", to_string(x.shape()),
               " does not fit weight ", to_string(weight.shape()), " and bias ", to_string(shift.shape()));
  Normalized n;
  n.sum = x;
  if (branch.defined()) {
    ISOBAR_CHECK(branch.numel() == x.numel() && branch.dtype() == out_dtype, "layernorm: branch ",
                 to_string(branch.shape()), " does not fit the stream ", to_string(x.shape()));
    n.sum = Tensor::empty(x.shape(), x.dtype(), x.device());
  }
  n.y = Tensor::empty(x.shape(), out_dtype, x.device());
  n.mean = Tensor::empty({rows}, statistics, x.device());
  n.rstd = Tensor::empty({rows}, statistics, x.device());
  ISOBAR_RUN(x.device(), layernorm_fwd,
             {.rows = rows,
              .cols = cols,
              .stream_dtype = x.dtype(),
              .dtype = out_dtype,
              .eps = eps,
              .x = x.data(),
              .branch = branch.defined() ? branch.data() : nullptr,
              .weight = weight.data(),
              .bias = shift.data(),
              .sum = branch.defined() ? n.sum.data() : nullptr,
              .y = n.y.data(),
              .mean = n.mean.data(),
              .rstd = n.rstd.data()},
             current_stream());
  return n;
}

struct LayernormSaved {
  Tensor sum, weight, bias, mean, rstd;
  DType dtype;  // of y and branch
};

// dsum is the gradient of the sum from the residual path (or undefined); its buffer becomes that of x's gradient.
void layernorm_backward(Gradients& gradients, const LayernormSaved& s, const Target& x, const Target* branch,
                        const Tensor& dsum, const Tensor& dy) {
  const std::int64_t cols = s.sum.size(-1), rows = s.sum.numel() / cols;
  if (!dy.defined()) {  // only the residual path is used
    if (branch != nullptr && branch->tracked()) gradients.give(*branch, copy_of(dsum, branch->dtype));
    gradients.give(x, dsum);
    return;
  }
  Gradients::Slot dweight = gradients.slot(s.weight);
  Gradients::Slot dbias = s.bias.defined() ? gradients.slot(s.bias) : Gradients::Slot{};
  ISOBAR_CHECK(!dweight || !dbias || dweight.mode == dbias.mode,
               "layernorm: weight and bias must be parameters together");
  // Of a bias that is not there, and of frozen ones, the kernel writes what nobody reads.
  const Grad mode = dweight ? dweight.mode : dbias ? dbias.mode : Grad::overwrite;
  for (Gradients::Slot* slot : {&dweight, &dbias})
    if (!*slot) *slot = {no_bias(s.weight), mode};
  const Tensor dx = dsum.defined() ? dsum : gradient_like(s.sum);
  Tensor dbranch;
  if (branch != nullptr && branch->tracked()) {
    const MemoryScope scope("gradients");
    dbranch = Tensor::empty(branch->shape, branch->dtype, branch->device);
  }
  const Tensor scratch = workspace(layernorm_bwd_workspace(cols, s.sum.dtype()), s.sum.device());
  ISOBAR_RUN(s.sum.device(), layernorm_bwd,
             {.rows = rows,
              .cols = cols,
              .stream_dtype = s.sum.dtype(),
              .dtype = s.dtype,
              .dy = dy.data(),
              .x = s.sum.data(),
              .weight = s.weight.data(),
              .mean = s.mean.data(),
              .rstd = s.rstd.data(),
              .dsum = dsum.defined() ? dsum.data() : nullptr,
              .dx = dx.data(),
              .dbranch = dbranch.defined() ? dbranch.data() : nullptr,
              .dweight = dweight.tensor.data(),
              .dbias = dbias.tensor.data(),
              .mode = mode,
              .workspace = scratch.data()},
             current_stream());
  gradients.give(x, dx);
  if (dbranch.defined()) gradients.give(*branch, dbranch);
}

}  // namespace

Tensor layernorm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, DType out_dtype) {
  Normalized n = layernorm_forward(x, {}, weight, bias, eps, out_dtype);
  Tape::record("layernorm", {&x, &weight, &bias}, {x, n.mean, n.rstd}, {&n.y},
               [x = Target(x), saved = LayernormSaved{n.sum, weight, bias, n.mean, n.rstd, out_dtype}](
                   Gradients& gradients, const std::vector<Tensor>& dy) {
                 layernorm_backward(gradients, saved, x, nullptr, {}, dy[0]);
               });
  return n.y;
}

LayernormResult layernorm_residual(const Tensor& x, const Tensor& branch, const Tensor& weight, const Tensor& bias,
                                   double eps) {
  Normalized n = layernorm_forward(x, branch, weight, bias, eps, branch.dtype());
  Tape::record("layernorm_residual", {&x, &branch, &weight, &bias}, {n.sum, n.mean, n.rstd}, {&n.sum, &n.y},
               [x = Target(x), branch = Target(branch),
                saved = LayernormSaved{n.sum.detach(), weight, bias, n.mean, n.rstd, branch.dtype()}](
                   Gradients& gradients, const std::vector<Tensor>& dy) {
                 layernorm_backward(gradients, saved, x, &branch, dy[0], dy[1]);
               });
  return {n.sum, n.y};
}

LayernormResult layernorm_stream(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                                 DType out_dtype) {
  Normalized n = layernorm_forward(x, {}, weight, bias, eps, out_dtype);
  Tape::record("layernorm_stream", {&x, &weight, &bias}, {n.sum, n.mean, n.rstd}, {&n.sum, &n.y},
               [x = Target(x), saved = LayernormSaved{x.detach(), weight, bias, n.mean, n.rstd, out_dtype}](
                   Gradients& gradients, const std::vector<Tensor>& dy) {
                 layernorm_backward(gradients, saved, x, nullptr, dy[0], dy[1]);
               });
  return {n.sum, n.y};
}

}  // namespace isobar
