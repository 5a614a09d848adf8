// The texts under some keys of a line of JSON. Nothing else of the line is kept.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace isobar {

// The texts in the order of the keys. Error: what is wrong with the line, at which column; the keys that exist if one
// is missing. The line must be UTF-8.
std::vector<std::string> json_texts(std::string_view line, std::span<const std::string> keys);

}  // namespace isobar
