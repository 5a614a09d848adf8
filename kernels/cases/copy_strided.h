// The case of copy_strided. See kernels/cases/operands.h.
#pragma once

#include "kernels/cases/operands.h"
#include "kernels/copy_strided.h"

namespace isobar::cases {

inline CopyStridedArgs copy_strided(CopyStridedArgs a, Operands&& operands) {
  // From the first element of the first block to the last one of the last block.
  const auto extent = [&](std::int64_t stride) { return a.blocks == 0 ? 0 : (a.blocks - 1) * stride + a.length; };
  a.source = operands.input("source", extent(a.source_stride), a.dtype);
  a.destination = operands.output("destination", extent(a.destination_stride), a.dtype);
  return operands.complete(a);
}

}  // namespace isobar::cases
