// Random orders and numbers, identical to PyTorch's and NumPy's.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace isobar {

// torch.randperm(n, generator=torch.Generator().manual_seed(seed)) on the CPU. PyTorch uses this algorithm for
// n < 2³²/20; Error for larger n.
std::vector<std::int64_t> torch_randperm(std::int64_t n, std::uint64_t seed);

// numpy.random.RandomState(seed): MT19937. One call after another draws from one stream, as in NumPy.
class NumpyRandomState {
 public:
  explicit NumpyRandomState(std::uint32_t seed) : engine_(seed) {}

  // RandomState.shuffle of an array with one axis, of fewer than 2^32 elements.
  void shuffle(std::span<std::int32_t> values);
  void shuffle(std::span<std::uint32_t> values);

 private:
  template <class T>
  void shuffle_any(std::span<T> values);
  std::mt19937 engine_;
};

// numpy.random.default_rng(seed): PCG64 (O'Neill 2014, XSL-RR 128/64), seeded as NumPy's SeedSequence does.
class NumpyGenerator {
 public:
  explicit NumpyGenerator(std::uint32_t seed);

  // Generator.integers(first, end) with dtype int32, one number: first <= number < end; end - first < 2^32.
  std::int32_t integer(std::int32_t first, std::int32_t end);

 private:
  std::uint64_t next64();
  std::uint32_t next32();  // the lower half of a draw, then the upper half

  __extension__ typedef unsigned __int128 Wide;
  static constexpr Wide wide(std::uint64_t upper, std::uint64_t lower) { return Wide{upper} << 64 | lower; }
  static constexpr Wide kMultiplier = Wide{2549297995355413924u} << 64 | 4865540595714422341u;

  Wide state_ = 0, increment_ = 0;
  std::uint32_t upper_half_ = 0;
  bool has_upper_half_ = false;
};

}  // namespace isobar
