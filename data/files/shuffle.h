// Byte shuffle, the filter of HDF5 and of Zarr: all first bytes of the elements, then all second bytes, ...
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace isobar {

// Puts the bytes of every element of `element` bytes, at least 1, back beside each other. Bytes behind the last whole
// element stay where they are. `to` gets as many bytes as `from` has.
void unshuffle(std::span<const std::byte> from, std::size_t element, std::vector<std::byte>& to);
// The inverse.
void shuffle(std::span<const std::byte> from, std::size_t element, std::vector<std::byte>& to);

}  // namespace isobar
