#include "kernels/common/name_pattern.h"

#include <cstddef>

namespace isobar {

// Where a character does not fit, the last '*' takes one character more. An earlier '*' need not: what lies between the
// two already fits as far left as it can.
bool fits_pattern(std::string_view pattern, std::string_view name) {
  std::size_t at = 0, star = std::string_view::npos, taken = 0;  // taken: the end of what the last '*' stands for
  for (std::size_t i = 0; i < name.size();) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      taken = i;
    } else if (at < pattern.size() && (pattern[at] == '?' || pattern[at] == name[i])) {
      ++at;
      ++i;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      i = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

}  // namespace isobar
