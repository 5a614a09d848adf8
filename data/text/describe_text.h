// What `isobar data info` says of a file of text, from which token files are made.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace isobar {

// A few lines: what kind of text the file holds, and the commands that take it. None for a file that does not begin as
// text does: in UTF-8, without control characters. Only the beginning is read; of a file compressed with gzip, that of
// what is in it. Error for a file that cannot be read, and for a text that is not UTF-8.
std::optional<std::string> describe_text(const std::string& path);

// Whether the first line that is not empty is a JSON object, or begins as one that goes on behind the first 64 KiB: no
// more is looked at.
bool begins_as_json_lines(std::string_view text);
// Of what is in the file, decompressed.
bool holds_json_lines(const std::string& path);

}  // namespace isobar
