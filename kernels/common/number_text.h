// A text that is a number.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace isobar {

// The number that the whole text is, as std::from_chars reads it: no blanks, no '+', no decimal comma of a locale.
// Nothing for another text, or for a number that does not fit.
template <class Number>
std::optional<Number> number_from(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && rest == end ? std::optional(number) : std::nullopt;
}

}  // namespace isobar
