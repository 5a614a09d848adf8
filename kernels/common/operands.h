// Which tensors a kernel's call has: while somebody asks, a tensor whose memory is asked for is on a list. So a trace
// knows the operands of every kernel, and no op has to name them (kernels/common/run.h).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/common/dtype.h"

namespace isobar {

struct CallOperand {
  std::vector<std::int64_t> shape;
  DType dtype = DType::fp32;

  bool operator==(const CallOperand&) const = default;
};
using CallOperands = std::vector<CallOperand>;

// The list of this thread; null: nobody asks, which is all that a tensor has to look at.
extern constinit thread_local CallOperands* operands_asked_for;

// As long as it lives, it is the list of this thread; an inner one takes all for itself.
class OperandScope {
 public:
  OperandScope() : previous_(std::exchange(operands_asked_for, &operands_)) {}
  ~OperandScope() { operands_asked_for = previous_; }
  OperandScope(const OperandScope&) = delete;
  OperandScope& operator=(const OperandScope&) = delete;

  const CallOperands& operands() const { return operands_; }

 private:
  CallOperands operands_;
  CallOperands* const previous_;
};

}  // namespace isobar
