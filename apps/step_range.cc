#include "apps/step_range.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <system_error>

#include "kernels/common/check.h"

namespace isobar {

RangeValue range_of(const std::string& flag, const std::vector<std::string>& ends) {
  const auto step = [](const std::string& text) -> std::optional<std::int64_t> {
    std::int64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, number);
    return error == std::errc() && rest == end ? std::optional(number) : std::nullopt;
  };
  const std::string &first = ends.at(0), &last = ends.at(1);
  const auto begin = step(first), end = step(last);
  if (begin && end) return std::array{*begin, *end};
  ISOBAR_CHECK(!begin && !end, flag, ' ', first, ' ', last, " is a step and a date; expected two steps or two dates");
  return std::array{first, last};
}

}  // namespace isobar
