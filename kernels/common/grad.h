// How a kernel writes a gradient.
#pragma once

#include <cstdint>

namespace isobar {

// Whether a kernel writes an output or adds to it. Gradients accumulate if a tensor has several consumers, or if a
// batch is split into micro-batches.
enum class Grad : std::uint8_t { overwrite, accumulate };

}  // namespace isobar
