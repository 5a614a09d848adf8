// Text for the user that is safe to print on a terminal.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>
#include <string_view>

namespace isobar {

// The text with control characters written as \xNN, so that a name from a file cannot move the cursor, change colours
// or begin a line. Bytes of UTF-8 stay, except for the control characters U+0080 to U+009F.
inline std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : '\0');
    const bool two_bytes = byte == 0xc2 && next >= 0x80 && next < 0xa0;
    if (byte >= 0x20 && byte != 0x7f && !two_bytes) {
      out += text[i];
      continue;
    }
    char escaped[5];
    std::snprintf(escaped, sizeof escaped, "\\x%02x", two_bytes ? next : byte);
    out += escaped;
    i += two_bytes ? 1 : 0;
  }
  return out;
}

// Writes "isobar: SENTENCE" as one line to standard error, in one call, so that output of other processes (such as
// mpirun's at the end of a run) cannot come in between.
inline void print_line(std::string_view sentence) {
  const std::string line = "isobar: " + printable(sentence) + "\n";
  static_cast<void>(!::write(STDERR_FILENO, line.data(), line.size()));
}

}  // namespace isobar
