// A sum over ranks, as a function: the caller knows the ranks, the code that adds does not.
#pragma once

#include <functional>

#include "engine/tensor.h"

namespace isobar {

// Replaces `sums` by its sum over all processes that hold a part of the data: in place, in the order of the current
// stream. Empty: this process holds all of it.
using SumOverRanks = std::function<void(const Tensor& sums)>;

}  // namespace isobar
