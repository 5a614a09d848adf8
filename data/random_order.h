// Permutations of 0 .. n-1, identical to PyTorch's.
#pragma once

#include <cstdint>
#include <vector>

namespace isobar {

// torch.randperm(n, generator=torch.Generator().manual_seed(seed)) on the CPU. PyTorch uses this algorithm for
// n < 2³²/20; Error for larger n.
std::vector<std::int64_t> torch_randperm(std::int64_t n, std::uint64_t seed);

}  // namespace isobar
