// Documents of text from files: JSON lines, or plain text; either may be compressed with gzip.
//
//   JSON lines   an object a line; a document is the text under a key. Empty lines are passed over
//   plain text   a file is a document; or, with a separator, the text between lines that are the separator
//
// A line that is the separator ends the document before it, and the newline before it belongs to the separator: the
// documents are those of text.split("\n" + separator + "\n") in Python. Between two separators, and before one that
// begins a file, lies an empty document. Behind one that ends a file there is none.
// Where the separator is the empty line, an empty line behind it is text of the next document, as it is for split; a
// document that has no other lines is empty. Where lines end in CR LF, a separator does too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/gzip.h"

namespace isobar {

enum class TextFormat : bool { json_lines, plain };

struct TextFilesOptions {
  std::vector<std::string> paths = {};
  TextFormat format = TextFormat::json_lines;
  std::optional<std::string> separator = {};  // of plain text
};

// A JSON line, or the text of a document.
struct RawDocument {
  std::size_t begin = 0, bytes = 0;  // within RawBlock::text
  std::int64_t line = 0;             // of the file, its first is 1
};

// Documents of one file, about a mebibyte of them: what a worker takes at once.
struct RawBlock {
  std::string path = {};
  std::string text = {};
  std::vector<RawDocument> documents = {};

  std::string_view of(const RawDocument& document) const {
    return std::string_view(text).substr(document.begin, document.bytes);
  }
};

// Reads files in their order. Memory is used for a block and the longest line, or the longest document of plain text.
class TextFiles {
 public:
  // Error naming a path that is no file.
  explicit TextFiles(TextFilesOptions options);

  // The next block; none at the end. Error naming file and line for a document longer than a gibibyte.
  std::optional<RawBlock> next();

 private:
  bool next_line(std::string_view& line);
  void add_json_line(RawBlock& block, std::string_view line) const;
  bool add_plain_document(RawBlock& block);
  bool open_next();

  TextFilesOptions options_;
  std::size_t path_ = 0;  // of the file that is opened next
  std::optional<GunzippingReader> file_;
  std::string buffer_;
  std::size_t taken_ = 0;  // of the buffer
  bool is_at_end_ = false;
  bool had_newline_ = false;  // the last line ended with one
  std::int64_t line_ = 0;     // of the last line
};

}  // namespace isobar
