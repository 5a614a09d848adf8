#include "data/text/text_files.h"

#include <utility>

#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxDocumentBytes = std::size_t{1} << 30;
constexpr std::size_t kReadBytes = std::size_t{1} << 18;

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

// Takes the end of the last line of the document at `begin` away: LF, or CR LF.
void drop_line_end(std::string& text, std::size_t begin, bool has_return) {
  text.pop_back();
  if (has_return && text.size() > begin && text.back() == '\r') text.pop_back();
}

}  // namespace

TextFiles::TextFiles(TextFilesOptions options) : options_(std::move(options)) {
  for (const std::string& path : options_.paths) const FileReader opened(path);
}

bool TextFiles::open_next() {
  if (path_ == options_.paths.size()) return false;
  file_.emplace(options_.paths[path_++]);
  buffer_.clear();
  taken_ = 0;
  line_ = 0;
  is_at_end_ = false;
  return true;
}

// The next line without its newline; false at the end of the file. It is valid until the next call.
bool TextFiles::next_line(std::string_view& line) {
  std::size_t searched = taken_;
  while (true) {
    const std::size_t end = buffer_.find('\n', searched);
    if (end != std::string::npos || (is_at_end_ && taken_ < buffer_.size())) {
      had_newline_ = end != std::string::npos;
      const std::size_t stop = had_newline_ ? end : buffer_.size();
      line = std::string_view(buffer_).substr(taken_, stop - taken_);
      taken_ = stop + (had_newline_ ? 1 : 0);
      ++line_;
      return true;
    }
    if (is_at_end_) return false;
    buffer_.erase(0, std::exchange(taken_, 0));
    searched = buffer_.size();
    ISOBAR_CHECK(searched < kMaxDocumentBytes, options_.paths[path_ - 1], ", line ", line_ + 1, " is longer than ",
                 kMaxDocumentBytes, " bytes");
    buffer_.resize(searched + kReadBytes);
    buffer_.resize(searched + file_->read(std::span(buffer_).subspan(searched)));
    is_at_end_ = buffer_.size() < searched + kReadBytes;
  }
}

void TextFiles::add_json_line(RawBlock& block, std::string_view line) const {
  if (is_blank(line)) return;
  block.documents.push_back({.begin = block.text.size(), .bytes = line.size(), .line = line_});
  block.text += line;
}

// Adds the text up to a separator or the end of the file; false if nothing was left.
bool TextFiles::add_plain_document(RawBlock& block) {
  RawDocument document{.begin = block.text.size(), .bytes = 0, .line = line_ + 1};
  bool has_lines = false, is_separated = false;
  for (std::string_view line; !is_separated && next_line(line);) {
    const bool has_return = line.ends_with('\r') && line != options_.separator;
    const std::string_view shown = line.substr(0, line.size() - (has_return ? 1 : 0));
    is_separated = options_.separator && shown == *options_.separator && (has_lines || !shown.empty());
    if (!is_separated) {
      block.text += line;
      if (had_newline_) block.text += '\n';
      has_lines = true;
    } else if (has_lines) {
      drop_line_end(block.text, document.begin, has_return);
    }
    ISOBAR_CHECK(block.text.size() - document.begin <= kMaxDocumentBytes, block.path, ": the document of line ",
                 document.line, " is longer than ", kMaxDocumentBytes, " bytes");
  }
  if (!has_lines && !is_separated) return false;
  const bool may_be_blank = options_.separator && options_.separator->empty();
  if (may_be_blank && block.text.find_first_not_of("\r\n", document.begin) == std::string::npos)
    block.text.resize(document.begin);
  document.bytes = block.text.size() - document.begin;
  block.documents.push_back(document);
  return true;
}

std::optional<RawBlock> TextFiles::next() {
  while (file_ || open_next()) {
    RawBlock block{.path = options_.paths[path_ - 1]};
    bool is_over = false;
    while (!is_over && block.text.size() + block.documents.size() < kBlockBytes) {  // documents may be empty
      std::string_view line;
      if (options_.format == TextFormat::plain) {
        is_over = !add_plain_document(block);
      } else if (next_line(line)) {
        add_json_line(block, line);
      } else {
        is_over = true;
      }
    }
    if (is_over) file_.reset();
    if (!block.documents.empty()) return block;
  }
  return std::nullopt;
}

}  // namespace isobar
