#include "bench/onednn.h"

#include <dnnl.hpp>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/common/check.h"

namespace isobar::bench {
namespace {

using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;
constexpr float kEpsilon = 1e-5f;

dnnl::engine& engine() {
  static dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

// Calls of oneDNN in order, on operands of the problem's memory.
class Sequence {
 public:
  explicit Sequence(const Problem& p) : memory_(p.memory), dtype_(p.dtype) {
    ISOBAR_CHECK(memory_.device().kind == DeviceKind::cpu && dtype_ != DType::fp16,
                 "the baseline onednn runs on the CPU in fp32 and bf16 only");
  }

  Type type() const { return dtype_ == DType::bf16 ? Type::bf16 : Type::f32; }

  dnnl::memory::desc vector(std::int64_t n) const { return {{n}, type(), Tag::a}; }
  dnnl::memory::desc matrix(std::int64_t rows, std::int64_t cols) const { return {{rows, cols}, type(), Tag::ab}; }

  // An operand of the problem's dtype.
  dnnl::memory operand(const dnnl::memory::desc& desc, double low = -1, double high = 1) {
    return {desc, engine(),
            memory_.uniform(static_cast<std::int64_t>(desc.get_size() / size_of(dtype_)), dtype_, low, high)};
  }
  dnnl::memory floats(std::int64_t n, double low = -1, double high = 1) {
    return {{{n}, Type::f32, Tag::a}, engine(), memory_.uniform(n, DType::fp32, low, high)};
  }

  void add(dnnl::primitive primitive, std::unordered_map<int, dnnl::memory> operands) {
    calls_.push_back({std::move(primitive), std::move(operands)});
  }

  std::function<void()> runs() && {
    return [calls = std::move(calls_), stream = dnnl::stream(engine())]() mutable {
      for (auto& [primitive, operands] : calls) primitive.execute(stream, operands);
      stream.wait();
    };
  }

 private:
  struct PrimitiveCall {
    dnnl::primitive primitive;
    std::unordered_map<int, dnnl::memory> operands;
  };

  Memory& memory_;
  DType dtype_;
  std::vector<PrimitiveCall> calls_;
};

// ---- primitives, made as oneDNN 2 and 3 want it ---------------------------------------------------------------------

constexpr auto kForward = dnnl::prop_kind::forward_training;
const auto kScaleAndShift = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;

#if DNNL_VERSION_MAJOR >= 3
dnnl::eltwise_forward::primitive_desc gelu(const dnnl::memory::desc& x) {
  return {engine(), kForward, dnnl::algorithm::eltwise_gelu_erf, x, x};
}
dnnl::eltwise_backward::primitive_desc gelu_backward(const dnnl::memory::desc& x) {
  return {engine(), dnnl::algorithm::eltwise_gelu_erf, x, x, x, gelu(x)};
}
dnnl::binary::primitive_desc sum(const dnnl::memory::desc& x) {
  return {engine(), dnnl::algorithm::binary_add, x, x, x};
}
dnnl::layer_normalization_forward::primitive_desc layernorm(const dnnl::memory::desc& x) {
  return {engine(), kForward, x, x, kEpsilon, kScaleAndShift};
}
dnnl::layer_normalization_backward::primitive_desc layernorm_backward(const dnnl::memory::desc& x) {
  return {engine(), dnnl::prop_kind::backward, x, x, x, kEpsilon, kScaleAndShift, layernorm(x)};
}
#else
dnnl::eltwise_forward::primitive_desc gelu(const dnnl::memory::desc& x) {
  return {{kForward, dnnl::algorithm::eltwise_gelu_erf, x}, engine()};
}
dnnl::eltwise_backward::primitive_desc gelu_backward(const dnnl::memory::desc& x) {
  return {{dnnl::algorithm::eltwise_gelu_erf, x, x}, engine(), gelu(x)};
}
dnnl::binary::primitive_desc sum(const dnnl::memory::desc& x) {
  return {{dnnl::algorithm::binary_add, x, x, x}, engine()};
}
dnnl::layer_normalization_forward::primitive_desc layernorm(const dnnl::memory::desc& x) {
  return {{kForward, x, kEpsilon, kScaleAndShift}, engine()};
}
dnnl::layer_normalization_backward::primitive_desc layernorm_backward(const dnnl::memory::desc& x) {
  return {{dnnl::prop_kind::backward, x, x, kEpsilon, kScaleAndShift}, engine(), layernorm(x)};
}
#endif

}  // namespace

std::function<void()> onednn_gelu_fwd(const Problem& p, const Cost&) {
  Sequence calls(p);
  const auto x = calls.vector(p.shape[0]);
  calls.add(dnnl::eltwise_forward(gelu(x)),
            {{DNNL_ARG_SRC, calls.operand(x, -3, 3)}, {DNNL_ARG_DST, calls.operand(x)}});
  return std::move(calls).runs();
}

std::function<void()> onednn_gelu_bwd(const Problem& p, const Cost&) {
  Sequence calls(p);
  const auto x = calls.vector(p.shape[0]);
  calls.add(dnnl::eltwise_backward(gelu_backward(x)), {{DNNL_ARG_SRC, calls.operand(x, -3, 3)},
                                                       {DNNL_ARG_DIFF_DST, calls.operand(x)},
                                                       {DNNL_ARG_DIFF_SRC, calls.operand(x)}});
  return std::move(calls).runs();
}

std::function<void()> onednn_layernorm_fwd(const Problem& p, const Cost&) {
  Sequence calls(p);
  const auto x = calls.matrix(p.shape[0], p.shape[1]);
  const std::int64_t rows = p.shape[0], cols = p.shape[1];
  const dnnl::memory stream = calls.operand(x);
  calls.add(dnnl::binary(sum(x)),
            {{DNNL_ARG_SRC_0, calls.operand(x)}, {DNNL_ARG_SRC_1, calls.operand(x)}, {DNNL_ARG_DST, stream}});
  calls.add(dnnl::layer_normalization_forward(layernorm(x)), {{DNNL_ARG_SRC, stream},
                                                              {DNNL_ARG_DST, calls.operand(x)},
                                                              {DNNL_ARG_MEAN, calls.floats(rows)},
                                                              {DNNL_ARG_VARIANCE, calls.floats(rows)},
                                                              {DNNL_ARG_SCALE, calls.floats(cols)},
                                                              {DNNL_ARG_SHIFT, calls.floats(cols)}});
  return std::move(calls).runs();
}

std::function<void()> onednn_layernorm_bwd(const Problem& p, const Cost&) {
  Sequence calls(p);
  const auto x = calls.matrix(p.shape[0], p.shape[1]);
  const std::int64_t rows = p.shape[0], cols = p.shape[1];
  const dnnl::memory dx = calls.operand(x);
  calls.add(dnnl::layer_normalization_backward(layernorm_backward(x)), {{DNNL_ARG_SRC, calls.operand(x)},
                                                                        {DNNL_ARG_DIFF_DST, calls.operand(x)},
                                                                        {DNNL_ARG_DIFF_SRC, dx},
                                                                        {DNNL_ARG_MEAN, calls.floats(rows)},
                                                                        {DNNL_ARG_VARIANCE, calls.floats(rows, 1, 2)},
                                                                        {DNNL_ARG_SCALE, calls.floats(cols)},
                                                                        {DNNL_ARG_SHIFT, calls.floats(cols)},
                                                                        {DNNL_ARG_DIFF_SCALE, calls.floats(cols)},
                                                                        {DNNL_ARG_DIFF_SHIFT, calls.floats(cols)}});
  calls.add(dnnl::binary(sum(x)), {{DNNL_ARG_SRC_0, dx}, {DNNL_ARG_SRC_1, calls.operand(x)}, {DNNL_ARG_DST, dx}});
  return std::move(calls).runs();
}

}  // namespace isobar::bench
