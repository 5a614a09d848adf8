// Copies a box of a row-major array to a box of another one: as few runs of consecutive elements as there are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace isobar {

// One axis of such a copy: `count` positions, which lie `from` elements apart in one array and `to` in the other.
struct CopyAxis {
  std::int64_t count = 1, from = 1, to = 1;
};

// The position of an element in a row-major array.
inline std::int64_t position_in(std::span<const std::int64_t> shape, std::span<const std::int64_t> at) {
  std::int64_t position = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) position = position * shape[d] + at[d];
  return position;
}

// The axes of a copy of `count` elements an axis, slowest first. The last one is a run of consecutive elements. Axes
// that are consecutive in both arrays are one: the copy of a whole array has a single axis.
inline std::vector<CopyAxis> copy_axes(std::span<const std::int64_t> from_shape, std::span<const std::int64_t> to_shape,
                                       std::span<const std::int64_t> count) {
  std::vector<CopyAxis> fastest_first(1);
  std::int64_t from = 1, to = 1;
  for (std::size_t d = count.size(); d-- > 0; from *= from_shape[d], to *= to_shape[d]) {
    if (count[d] == 1) continue;
    CopyAxis& last = fastest_first.back();
    if (from == last.count * last.from && to == last.count * last.to)
      last.count *= count[d];
    else
      fastest_first.push_back({count[d], from, to});
  }
  return {fastest_first.rbegin(), fastest_first.rend()};
}

// Calls visit(from, to) at every position of the axes, the last one fastest.
template <class Visit>
void for_each_position(std::span<const CopyAxis> axes, std::int64_t from, std::int64_t to, const Visit& visit) {
  if (axes.empty()) return visit(from, to);
  for (std::int64_t i = 0; i < axes[0].count; ++i, from += axes[0].from, to += axes[0].to)
    for_each_position(axes.subspan(1), from, to, visit);
}

}  // namespace isobar
