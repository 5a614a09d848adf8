// UTF-8 (RFC 3629): code points of text, and what is wrong with bytes that are none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace isobar {

struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 0;  // 1 to 4; 0: the bytes are not UTF-8
};

// The code point that begins at text[at]. No surrogates, no longer forms than needed, nothing above U+10FFFF.
inline CodePoint code_point_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const auto follows = [&](std::size_t i) { return at + i < text.size() && (byte(i) & 0xc0) == 0x80; };
  const char32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xc2) return {};
  if (first < 0xe0) {
    if (!follows(1)) return {};
    return {(first & 0x1f) << 6 | (byte(1) & 0x3fu), 2};
  }
  if (first < 0xf0) {
    if (!follows(1) || !follows(2)) return {};
    const char32_t value = (first & 0x0f) << 12 | (byte(1) & 0x3fu) << 6 | (byte(2) & 0x3fu);
    if (value < 0x800 || (value >= 0xd800 && value < 0xe000)) return {};
    return {value, 3};
  }
  if (first > 0xf4 || !follows(1) || !follows(2) || !follows(3)) return {};
  const char32_t value = (first & 0x07) << 18 | (byte(1) & 0x3fu) << 12 | (byte(2) & 0x3fu) << 6 | (byte(3) & 0x3fu);
  if (value < 0x10000 || value > 0x10ffff) return {};
  return {value, 4};
}

// The place of the first byte that is not part of UTF-8; none if all is.
std::optional<std::size_t> first_invalid_byte(std::string_view text);

// "line 4, byte 3" of text[at], both from 1; the text begins in line first_line.
std::string place_by_line(std::string_view text, std::size_t at, std::int64_t first_line = 1);

// The text with U+FFFD in place of what is not UTF-8: one for each longest beginning of a code point, as Unicode
// recommends (16.0, section 3.9) and Python does. `replaced` is increased by their number.
std::string with_invalid_replaced(std::string_view text, std::int64_t& replaced);

// Appends the bytes of a code point.
void append_utf8(std::string& text, char32_t code_point);

}  // namespace isobar
