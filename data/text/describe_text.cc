#include "data/text/describe_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "data/files/gzip.h"
#include "data/text/utf8.h"
#include "engine/files/json.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr std::size_t kLookedAt = std::size_t{1} << 16;  // bytes
constexpr std::size_t kMaxCodePoint = 4;                 // bytes

// The beginning of what is in the file, decompressed.
std::string beginning_of(const std::string& path) {
  std::string text(kLookedAt, '\0');
  text.resize(GunzippingReader(path).read(text));
  return text;
}

bool is_compressed(const FileReader& file) {
  std::string begin(2, '\0');
  file.read_up_to_end(0, std::as_writable_bytes(std::span(begin)));
  return is_gzip(begin);
}

bool is_of_text(char c) {
  constexpr std::string_view kControls = "\t\n\f\r";
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 ? byte != 0x7f : kControls.find(c) != std::string_view::npos;
}

// Without control characters. Error for one that is not UTF-8.
bool begins_as_text(const std::string& path, std::string_view text) {
  constexpr std::string_view kHdf5 = "\x89HDF";  // of which a piece may hold no control character
  if (text.starts_with(kHdf5) || !std::ranges::all_of(text, is_of_text)) return false;
  const std::optional<std::size_t> invalid = first_invalid_byte(text);
  const bool is_cut = text.size() == kLookedAt && invalid && *invalid + kMaxCodePoint > text.size();
  if (!invalid || is_cut) return true;
  throw_error(path, ", ", place_by_line(text, *invalid),
              " is not UTF-8: a text must be; isobar data preprocess --invalid replace takes such a text");
}

}  // namespace

bool begins_as_json_lines(std::string_view text) {
  text = text.substr(0, kLookedAt);
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos || text[begin] != '{') return false;
  const std::size_t end = text.find('\n', begin);
  if (end == std::string_view::npos && text.size() == kLookedAt) return true;
  const auto line = parse_json_if_valid<nlohmann::json>(text.substr(begin, end - begin), "the first line");
  return line && line->is_object();
}

std::optional<std::string> describe_text(const std::string& path) {
  const std::string begin = beginning_of(path);
  if (begin.empty()) return path + ": the file is empty\n";
  if (!begins_as_text(path, begin)) return std::nullopt;
  const FileReader file(path);
  const bool is_json = begins_as_json_lines(begin), is_packed = is_compressed(file);
  std::string text = concat(path, ": ", is_json ? "JSON lines" : "text in UTF-8", is_packed ? ", compressed" : "", ", ",
                            file.size(), " bytes\n");
  if (!is_json && !is_packed)
    text += concat("a language model is trained on it by: isobar train --config shakespeare --data ", path, '\n');
  return text + concat("token files are made of ", is_json ? "its texts" : "it", " by: isobar data preprocess --input ",
                       path, is_json ? "" : " --text --separator \"\"", " --tokenizer-type bytes --append-eod",
                       " --output-prefix P\n");
}

bool holds_json_lines(const std::string& path) {
  return begins_as_json_lines(beginning_of(path));
}

}  // namespace isobar
