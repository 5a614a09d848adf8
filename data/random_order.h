// Permutations of 0 .. n-1, equal to those of PyTorch and NumPy number by number.
#pragma once

#include <cstdint>
#include <vector>

namespace isobar {

// torch.randperm(n, generator=torch.Generator().manual_seed(seed)) on the CPU. The reference takes this way of drawing
// for n < 2³²/20; larger n is an error.
std::vector<std::int64_t> torch_randperm(std::int64_t n, std::uint64_t seed);

// numpy.random.default_rng(seed).permutation(n), the `draw`-th of successive calls on one generator (0: the first).
std::vector<std::int64_t> numpy_permutation(std::int64_t n, std::uint64_t seed, std::int64_t draw = 0);

}  // namespace isobar
