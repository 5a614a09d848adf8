// linear and mlp: matrix products with a bias, and the two-layer perceptron of a transformer block.
#include "engine/ops/common.h"
#include "kernels/gelu.h"
#include "kernels/gemm/gemm.h"

namespace isobar {
namespace {

struct Product {
  Tensor y, pre;  // pre: the value before the activation, if it is kept
};

void check_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_operands(
      "linear",
      {{"the input", x, 2}, {"the weight", weight, 2}, {.name = "the bias", .tensor = bias, .is_optional = true}});
  ISOBAR_CHECK(x.size(1) == weight.size(1), "linear: input ", to_string(x.shape()), " does not fit weight ",
               to_string(weight.shape()));
  ISOBAR_CHECK(!bias.defined() || bias.numel() == weight.size(0), "linear: bias ", to_string(bias.shape()),
               " does not fit weight ", to_string(weight.shape()));
  ISOBAR_CHECK(x.dtype() == weight.dtype(), "linear: input is ", name_of(x.dtype()), ", weight is ",
               name_of(weight.dtype()));
}

// The bias as the product adds it: a GPU's library takes only `out_dtype`, and would round the bias for each product.
const Tensor& bias_for(DType out_dtype, const Tensor& bias) {
  if (!bias.leaf() || behaviour_of(bias.device()) != DeviceKind::cuda) return bias;
  const Tensor& rounded = bias.leaf()->rounded;
  return rounded.defined() && rounded.dtype() == out_dtype ? rounded : bias;
}

// y = act(x·wᵀ + b)
Product linear_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearOptions& options,
                       bool keep_pre) {
  check_linear(x, weight, bias);
  Product p;
  p.y = Tensor::empty({x.size(0), weight.size(0)}, options.out_dtype, x.device());
  if (keep_pre) p.pre = Tensor::empty(p.y.shape(), options.out_dtype, x.device());
  const Tensor addend = bias.defined() ? bias_for(options.out_dtype, bias) : Tensor();
  ISOBAR_RUN(x.device(), gemm,
             {.m = x.size(0),
              .n = weight.size(0),
              .k = x.size(1),
              .transpose_b = true,
              .in_dtype = x.dtype(),
              .out_dtype = options.out_dtype,
              .bias_dtype = addend.defined() ? addend.dtype() : accumulator_of(x.dtype()),
              .a = x.data(),
              .b = weight.data(),
              .bias = addend.defined() ? addend.data() : nullptr,
              .c = p.y.data(),
              .pre = keep_pre ? p.pre.data() : nullptr,
              .activation = options.activation,
              .tf32 = options.tf32},
             current_stream());
  return p;
}

// The dtype to which the backward pass rounds dy first. The sums of a bias come before the rounding.
std::optional<DType> reads_gradient_in(const Tensor& x, const Tensor& bias, const LinearOptions& options) {
  const bool rounds = options.out_dtype == DType::fp32 && is_16_bit(x.dtype());
  if (!rounds || bias.defined() || options.activation != Activation::none) return {};
  return x.dtype();
}

// dx (+)= dy·w;  dw (+)= dyᵀ·x;  db (+)= column sums of dy. A dy wider than x is rounded to x's dtype before the
// products, since tensor cores need it. On a GPU the product dw also gives the sums, if nothing is added to them: one
// pass over dy less.
void linear_backward(Gradients& gradients, Tensor dy, const Target& x_target, const Tensor& x, const Tensor& weight,
                     const Tensor& bias, bool tf32) {
  const auto db = bias.defined() ? gradients.slot(bias) : Gradients::Slot{};
  const auto dw = gradients.slot(weight);
  const bool sums_on_the_way = db && dw && behaviour_of(x.device()) == DeviceKind::cuda && db.mode == Grad::overwrite &&
                               dy.dtype() == x.dtype() && dw.tensor.dtype() == DType::fp32;
  if (db && !sums_on_the_way) add_column_sum(dy, bias.numel(), db);
  dy = dy.to(x.dtype());
  const std::int64_t m = x.size(0), n = weight.size(0), k = x.size(1);
  if (dw)
    ISOBAR_RUN(x.device(), gemm,
               {.m = n,
                .n = k,
                .k = m,
                .transpose_a = true,
                .in_dtype = x.dtype(),
                .out_dtype = dw.tensor.dtype(),
                .a = dy.data(),
                .b = x.data(),
                .c = dw.tensor.data(),
                .a_sums = sums_on_the_way ? db.tensor.data() : nullptr,
                .mode = dw.mode,
                .tf32 = tf32},
               current_stream());
  if (const auto dx = gradients.slot(x_target))
    ISOBAR_RUN(x.device(), gemm,
               {.m = m,
                .n = k,
                .k = n,
                .in_dtype = x.dtype(),
                .out_dtype = dx.tensor.dtype(),
                .a = dy.data(),
                .b = weight.data(),
                .c = dx.tensor.data(),
                .mode = dx.mode,
                .tf32 = tf32},
               current_stream());
}

Tensor gelu_forward(const Tensor& x, Activation kind) {
  check_operands("gelu", {{"the input", x}});
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  ISOBAR_RUN(x.device(), gelu_fwd, {.n = x.numel(), .dtype = x.dtype(), .kind = kind, .x = x.data(), .y = y.data()},
             current_stream());
  return y;
}

// dx = dy·gelu'(x), into dy's buffer.
void gelu_backward_in_place(const Tensor& dy, const Tensor& x, Activation kind) {
  ISOBAR_RUN(x.device(), gelu_bwd,
             {.n = x.numel(), .dtype = x.dtype(), .kind = kind, .dy = dy.data(), .x = x.data(), .dx = dy.data()},
             current_stream());
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, LinearOptions options) {
  const bool activated = options.activation != Activation::none;
  Product p = linear_forward(x, weight, bias, options, activated && recording({&x, &weight, &bias}));
  Tape::record(
      "linear", {&x, &weight, &bias}, {x, p.pre}, {&p.y},
      [x, weight, bias, pre = p.pre, options](Gradients& gradients, const std::vector<Tensor>& dy) {
        if (pre.defined()) gelu_backward_in_place(dy[0], pre, options.activation);
        linear_backward(gradients, dy[0], x, x, weight, bias, options.tf32);
      },
      reads_gradient_in(x, bias, options));
  return p.y;
}

Tensor mlp(const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2, const Tensor& b2,
           LinearOptions options) {
  const LinearOptions hidden{.activation = options.activation, .out_dtype = x.dtype(), .tf32 = options.tf32};
  const Product h = linear_forward(x, w1, b1, hidden, recording({&x, &w1, &b1, &w2, &b2}));
  Tensor y = linear_forward(h.y, w2, b2, {.out_dtype = options.out_dtype, .tf32 = options.tf32}, false).y;
  // A GPU keeps the hidden layer: computing it again from `pre` needs a pass that reads and writes it. (In 16 bits on a
  // CPU, the second result may differ in the last bit.)
  const Tensor kept = behaviour_of(x.device()) == DeviceKind::cuda ? h.y : Tensor();
  Tape::record("mlp", {&x, &w1, &b1, &w2, &b2}, {x, h.pre, kept}, {&y},
               [x, w1, b1, w2, b2, kept, pre = h.pre, options](Gradients& gradients, const std::vector<Tensor>& dy) {
                 const Tensor dhidden = gradient_like(pre);
                 {
                   const Tensor hidden_value =
                       make_leaf(kept.defined() ? kept : gelu_forward(pre, options.activation), dhidden);
                   linear_backward(gradients, dy[0], hidden_value, hidden_value, w2, b2, options.tf32);
                 }
                 gelu_backward_in_place(dhidden, pre, options.activation);
                 linear_backward(gradients, dhidden, x, x, w1, b1, options.tf32);
               });
  return y;
}

Tensor gelu(const Tensor& x, Activation kind) {
  Tensor y = gelu_forward(x, kind);
  Tape::record("gelu", {&x}, {x}, {&y}, [x, kind](Gradients& gradients, const std::vector<Tensor>& dy) {
    gelu_backward_in_place(dy[0], x, kind);
    gradients.give(x, dy[0]);
  });
  return y;
}

}  // namespace isobar
