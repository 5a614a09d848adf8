// What `isobar data info` says of a file of text, from which token files are made.
#pragma once

#include <optional>
#include <string>

namespace isobar {

// A few lines: what kind of text the file holds, and the commands that take it. None for a file that does not begin as
// text does: in UTF-8, without control characters. Only the beginning is read; of a file compressed with gzip, that of
// what is in it. Error for a file that cannot be read, and
// for a text that is not UTF-8.
std::optional<std::string> describe_text(const std::string& path);

// Whether what begins the file, decompressed, is a line with a JSON object.
bool looks_like_json_lines(const std::string& path);

}  // namespace isobar
