// Letters, numbers and white space among Unicode's code points: what the rule of data/text/pieces.h asks for. The table
// (data/text/unicode_ranges.cc) is part of the program, so that the same text gives the same tokens on every machine,
// whatever version of Unicode its libraries know.
#pragma once

#include <cstdint>
#include <span>

namespace isobar {

enum class UnicodeClass : std::uint8_t { other, letter, number, space };

// Code points first to last, both included.
struct UnicodeRange {
  char32_t first, last;
  UnicodeClass kind;
};

// In ascending order; what no range has is `other`.
std::span<const UnicodeRange> unicode_ranges();

// The class of each code point, U+0000 to U+10FFFF.
const UnicodeClass* unicode_classes();

}  // namespace isobar
