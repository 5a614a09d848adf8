// Patterns of names: of parameters that are to be frozen.
#pragma once

#include <string_view>

namespace isobar {

// Whether the whole name fits the pattern: '*' stands for any characters, dots too, or none; '?' for one character.
// Every other character stands for itself.
bool fits_pattern(std::string_view pattern, std::string_view name);

}  // namespace isobar
