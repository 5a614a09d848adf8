#include "models/tensor_start.h"

#include "kernels/common/check.h"

namespace isobar {

TensorStart start_by_shape(const Shape& ours, const TensorInfo* theirs) {
  if (theirs == nullptr) return {.sentence = "new: the file does not have it"};
  if (theirs->shape == ours) return {TensorStart::How::taken, "taken"};
  return {.sentence = concat("new: ", to_string(theirs->shape), " in the file, ", to_string(ours), " here")};
}

}  // namespace isobar
