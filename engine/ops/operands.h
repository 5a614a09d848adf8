// What every op asks of its operands before it computes anything from them: that they are there, have the dimensions
// that the op counts in, and lie on one device. A tensor of the host in a kernel of a GPU would be a wild pointer.
#pragma once

#include <initializer_list>

#include "engine/tensor.h"

namespace isobar {

struct Operand {
  static constexpr int kAnyRank = -1;

  const char* name;  // for messages: "the weight"
  const Tensor& tensor;
  int rank = kAnyRank;       // dimensions that it must have
  bool is_optional = false;  // it may be undefined
};

// Throws Error, "OP: the weight [3] has 1 dimension, not 2", for the first operand that is not as it must be.
void check_operands(const char* op, std::initializer_list<Operand> operands);

}  // namespace isobar
