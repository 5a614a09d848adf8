#include "apps/step_range.h"

#include <array>
#include <cstdint>

#include "kernels/common/check.h"
#include "kernels/common/number_text.h"

namespace isobar {

RangeValue range_of(const std::string& flag, const std::vector<std::string>& ends) {
  const std::string &first = ends.at(0), &last = ends.at(1);
  const auto begin = number_from<std::int64_t>(first), end = number_from<std::int64_t>(last);
  if (begin && end) return std::array{*begin, *end};
  ISOBAR_CHECK(!begin && !end, flag, ' ', first, ' ', last, " is a step and a date; expected two steps or two dates");
  return std::array{first, last};
}

}  // namespace isobar
