// Permutations of 0 .. n-1, equal to those of PyTorch number by number.
#pragma once

#include <cstdint>
#include <vector>

namespace isobar {

// torch.randperm(n, generator=torch.Generator().manual_seed(seed)) on the CPU. The reference takes this way of drawing
// for n < 2³²/20; larger n is an error.
std::vector<std::int64_t> torch_randperm(std::int64_t n, std::uint64_t seed);

}  // namespace isobar
