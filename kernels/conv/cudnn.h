// cuDNN's engines for a convolution: described through the library's graph interface, filtered by what they do to
// numbers, written down as text and asked for again.
//
// An engine is used only if it gives the same bits every time, sums in fp32, and is no FFT. In 16 bits it is no
// Winograd algorithm either. Of fp32 it rounds no operand; with tf32 tensor cores may, to 10 mantissa bits. It wants at
// most 1 GiB of workspace.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kernels/common/dtype.h"
#include "kernels/common/stream.h"
#include "kernels/conv/conv.h"

namespace isobar::cuda {

enum class ConvKind : std::uint8_t { fwd, bwd_data, bwd_weight };
const char* name_of(ConvKind kind);

// Everything that the choice of an engine may depend on.
struct ConvProblem {
  int device = 0;
  ConvKind kind = ConvKind::fwd;
  ConvShape shape;
  DType dtype = DType::fp32, out_dtype = DType::fp32;
  bool tf32 = false;
  std::uint32_t x_alignment = 0, weight_alignment = 0, y_alignment = 0;  // bytes, at most kConvAlignment
  auto operator<=>(const ConvProblem&) const = default;
};
inline constexpr std::uint32_t kConvAlignment = 16;  // more is of no use to an engine

// The kind says which one is written: y, x or weight.
struct ConvOperands {
  void *x = nullptr, *weight = nullptr, *y = nullptr;
};

// The library in words, "cuDNN 91900". Empty if convolutions do without it: ISOBAR_CONV=own says so, or it is missing,
// another version than 9, or cannot start on the device; then there is a notice. Error for another ISOBAR_CONV.
std::string cudnn_name(int device);

// Whether cuDNN may have engines for it: edges of zeros, no padding that it cannot express, tensors of less than 2^31
// elements, and samples.
bool cudnn_knows(const ConvProblem& problem);

// An engine that is ready to run.
class CudnnPlan {
 public:
  CudnnPlan() = default;
  virtual ~CudnnPlan() = default;
  CudnnPlan(const CudnnPlan&) = delete;
  CudnnPlan& operator=(const CudnnPlan&) = delete;

  virtual const std::string& text() const = 0;  // "engine 38: 2=1 12=0": its number in cuDNN, and its knobs
  virtual std::size_t workspace_bytes() const = 0;
  // Empty, or what cuDNN says if it cannot. Operands are aligned as the problem says.
  virtual std::string start(const ConvOperands& operands, void* workspace, Stream stream) const = 0;
};
using SharedCudnnPlan = std::shared_ptr<const CudnnPlan>;

// Calls use(plan) for the engines that may be used, in the order in which cuDNN prefers them, until it returns false.
// may_compile: also for engines that are compiled at run time, which takes seconds. An engine that cannot be planned is
// passed over. What the library refuses has no engines; for another error there is a notice. The device is the current
// one, and cudnn_name is not empty.
void for_each_cudnn_plan(const ConvProblem& problem, bool may_compile,
                         const std::function<bool(const SharedCudnnPlan&)>& use);

// The engine of a text; null if the library has none like it, or it may not be used.
SharedCudnnPlan cudnn_plan_of(const ConvProblem& problem, const std::string& text);

}  // namespace isobar::cuda
