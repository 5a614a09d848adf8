// relu, leaky_relu, tanh. The backward pass needs the output alone.
#include "kernels/pointwise.h"

#include "engine/ops/common.h"

namespace isobar {
namespace {

Tensor apply(const char* op, Pointwise kind, const Tensor& x) {
  check_operands(op, {{"the input", x}});
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  ISOBAR_RUN(x.device(), pointwise_fwd,
             {.n = x.numel(), .dtype = x.dtype(), .kind = kind, .x = x.data(), .y = y.data()}, current_stream());
  Tape::record(op, {&x}, {y}, {&y}, [x = Target(x), y, kind](Gradients& gradients, const std::vector<Tensor>& dy) {
    backward_in_place(kind, dy[0], y);
    gradients.give(x, dy[0]);
  });
  return y;
}

}  // namespace

Tensor relu(const Tensor& x) {
  return apply("relu", Pointwise::relu, x);
}
Tensor leaky_relu(const Tensor& x) {
  return apply("leaky_relu", Pointwise::leaky_relu, x);
}
Tensor tanh(const Tensor& x) {
  return apply("tanh", Pointwise::tanh, x);
}

}  // namespace isobar
