// The memory of the host that this process may still take.
#pragma once

#include <cstddef>

namespace isobar {

// Bytes: what the system says is available, at most what the limits of the process and of its control groups leave
// beside what it holds.
std::size_t free_memory_bytes();

}  // namespace isobar
