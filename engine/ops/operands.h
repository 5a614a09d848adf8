// The checks of operands that every op makes first: that they are defined, have the number of dimensions that the op
// needs, and lie on one device. In a GPU's kernel the address of a tensor of the host would be invalid.
#pragma once

#include <initializer_list>

#include "engine/tensor.h"

namespace isobar {

struct Operand {
  static constexpr int kAnyRank = -1;

  const char* name;  // for messages: "the weight"
  const Tensor& tensor;
  int rank = kAnyRank;       // required number of dimensions
  bool is_optional = false;  // it may be undefined
};

// Throws Error, "OP: the weight [3] has 1 dimension, not 2", for the first operand that is wrong.
void check_operands(const char* op, std::initializer_list<Operand> operands);

}  // namespace isobar
