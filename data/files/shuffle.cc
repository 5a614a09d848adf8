#include "data/files/shuffle.h"

#include <algorithm>

namespace isobar {
namespace {

template <std::size_t kElement>
void unshuffle_elements(const std::byte* from, std::size_t elements, std::byte* to) {
  for (std::size_t i = 0; i < elements; ++i)
    for (std::size_t k = 0; k < kElement; ++k) to[i * kElement + k] = from[k * elements + i];
}

}  // namespace

void unshuffle(std::span<const std::byte> from, std::size_t element, std::vector<std::byte>& to) {
  to.resize(from.size());
  const std::size_t elements = from.size() / element, shuffled = elements * element;
  if (element == 2)
    unshuffle_elements<2>(from.data(), elements, to.data());
  else if (element == 4)
    unshuffle_elements<4>(from.data(), elements, to.data());
  else if (element == 8)
    unshuffle_elements<8>(from.data(), elements, to.data());
  else
    for (std::size_t i = 0; i < shuffled; ++i) to[i] = from[i % element * elements + i / element];
  std::copy(from.begin() + static_cast<std::ptrdiff_t>(shuffled), from.end(),
            to.begin() + static_cast<std::ptrdiff_t>(shuffled));
}

void shuffle(std::span<const std::byte> from, std::size_t element, std::vector<std::byte>& to) {
  to.resize(from.size());
  const std::size_t elements = from.size() / element, shuffled = elements * element;
  for (std::size_t k = 0; k < element; ++k)
    for (std::size_t i = 0; i < elements; ++i) to[k * elements + i] = from[i * element + k];
  for (std::size_t i = shuffled; i < from.size(); ++i) to[i] = from[i];
}

}  // namespace isobar
