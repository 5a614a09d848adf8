// A list as text for people: "a, b, c".
#pragma once

#include <functional>
#include <string>

#include "kernels/common/check.h"

namespace isobar {

// The items, or what `of` gives of each, as concat() writes them; empty for an empty list.
template <class List, class Of = std::identity>
std::string comma_list(const List& list, const Of& of = {}) {
  std::string text;
  for (const auto& item : list) text += concat(text.empty() ? "" : ", ", std::invoke(of, item));
  return text;
}

}  // namespace isobar
