// Whether a function that isobar declares is that of a library's header.
#pragma once

#include <type_traits>

namespace isobar::testing {

// The same parameters and result, but for the names of the types: same sizes, and pointers for pointers.
template <class Ours, class Theirs>
constexpr bool is_alike() {
  if constexpr (std::is_void_v<Ours> || std::is_void_v<Theirs>)
    return std::is_void_v<Ours> && std::is_void_v<Theirs>;
  else
    return sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> &&
           std::is_class_v<Ours> == std::is_class_v<Theirs>;
}

template <class Ours, class Theirs>
constexpr bool are_alike(Ours, Theirs) {
  return false;
}
template <class R, class... P, class S, class... Q>
constexpr bool are_alike(R (*)(P...), S (*)(Q...)) {
  if constexpr (sizeof...(P) == sizeof...(Q)) return is_alike<R, S>() && (is_alike<P, Q>() && ...);
  return false;
}

}  // namespace isobar::testing
