// How a kernel writes a gradient.
#pragma once

#include <cstdint>

namespace isobar {

// Whether an output is written or added to. Gradients accumulate when a tensor has several consumers or a batch is
// split into micro-batches.
enum class Grad : std::uint8_t { overwrite, accumulate };

}  // namespace isobar
