// The order in which a GPU works: what is queued on one stream runs one after the other.
#pragma once

namespace isobar {

// A cudaStream_t without its header; null is the default stream. The CPU ignores it.
using Stream = void*;

}  // namespace isobar
