#include "data/text/utf8.h"

#include <algorithm>
#include <cstring>

#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr char32_t kReplacement = 0xfffd;

// Where the run of ASCII ends that begins at `at`.
std::size_t end_of_ascii(std::string_view text, std::size_t at) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080u;
  for (; at + 8 <= text.size(); at += 8) {
    std::uint64_t eight;
    std::memcpy(&eight, text.data() + at, 8);
    if ((eight & kHighBits) != 0) break;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

// The bytes at `at` that begin a code point but are not followed by its rest; at least 1.
std::size_t broken_bytes(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0; };
  const auto continues = [&](std::size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const int first = byte(0), second = byte(1);
  if (first < 0xe0 || first > 0xf4 || !continues(1)) return 1;  // of two bytes only the first can be left
  const bool too_long = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool not_assigned = (first == 0xed && second >= 0xa0) || (first == 0xf4 && second >= 0x90);
  if (too_long || not_assigned) return 1;
  return first < 0xf0 || !continues(2) ? 2 : 3;
}

}  // namespace

std::optional<std::size_t> first_invalid_byte(std::string_view text) {
  for (std::size_t at = end_of_ascii(text, 0); at < text.size(); at = end_of_ascii(text, at)) {
    const CodePoint next = code_point_at(text, at);
    if (next.bytes == 0) return at;
    at += next.bytes;
  }
  return std::nullopt;
}

std::string place_by_line(std::string_view text, std::size_t at, std::int64_t first_line) {
  const std::string_view before = text.substr(0, at);
  const std::size_t line_begin = before.rfind('\n') + 1;
  return concat("line ", first_line + std::ranges::count(before, '\n'), ", byte ", at - line_begin + 1);
}

std::string with_invalid_replaced(std::string_view text, std::int64_t& replaced) {
  std::string valid;
  valid.reserve(text.size());
  for (std::optional<std::size_t> bad = first_invalid_byte(text); bad; bad = first_invalid_byte(text)) {
    valid.append(text.substr(0, *bad));
    append_utf8(valid, kReplacement);
    text.remove_prefix(*bad + broken_bytes(text, *bad));
    ++replaced;
  }
  valid.append(text);
  return valid;
}

void append_utf8(std::string& text, char32_t code_point) {
  const auto add = [&](char32_t byte) { text += static_cast<char>(byte); };
  const auto add_rest = [&](int shift) { add(0x80 | (code_point >> shift & 0x3f)); };
  if (code_point < 0x80) return add(code_point);
  if (code_point < 0x800) {
    add(0xc0 | code_point >> 6);
    return add_rest(0);
  }
  if (code_point < 0x10000) {
    add(0xe0 | code_point >> 12);
    add_rest(6);
    return add_rest(0);
  }
  add(0xf0 | code_point >> 18);
  add_rest(12);
  add_rest(6);
  add_rest(0);
}

}  // namespace isobar
