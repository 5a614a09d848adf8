// How code that knows no ranks adds up over them.
#pragma once

#include <functional>

#include "engine/tensor.h"

namespace isobar {

// Adds up sums over all processes that hold a part of them, in place and in the order of the current stream. Empty:
// this process holds everything.
using AddUp = std::function<void(const Tensor& sums)>;

}  // namespace isobar
