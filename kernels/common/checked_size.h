// Products of sizes that come from files or users: a product beyond 63 bits is refused, and never wraps around.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>

#include "kernels/common/check.h"

namespace isobar {

// The product of the extents (1 if there are none); nothing if an extent is negative or the product overflows. An
// overflow counts even if another extent is 0, so that the result does not depend on their order.
inline std::optional<std::int64_t> product_of(std::span<const std::int64_t> extents) {
  std::int64_t product = 1;
  bool empty = false;
  for (const std::int64_t extent : extents) {
    if (extent < 0 || __builtin_mul_overflow(product, std::max<std::int64_t>(extent, 1), &product)) return std::nullopt;
    empty = empty || extent == 0;
  }
  return empty ? 0 : product;
}

// The same, or an Error that begins with `what` ("FILE: dataset fields") and lists the extents. To count bytes, pass
// the size of an element as one more extent.
inline std::int64_t checked_product(std::span<const std::int64_t> extents, std::string_view what) {
  const std::optional<std::int64_t> product = product_of(extents);
  if (product) return *product;
  std::string list;
  for (const std::int64_t extent : extents) list += (list.empty() ? "" : " x ") + std::to_string(extent);
  throw_error(what, " has an impossible size: ", list);
}
inline std::int64_t checked_product(std::initializer_list<std::int64_t> extents, std::string_view what) {
  return checked_product(std::span(extents.begin(), extents.size()), what);
}

}  // namespace isobar
