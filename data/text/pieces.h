// How GPT-2 cuts text into pieces before it looks for tokens: a token never spans two of them.
//
//   's|'t|'re|'ve|'m|'ll|'d | ?\p{L}+ | ?\p{N}+ | ?[^\s\p{L}\p{N}]+ | \s+(?!\S) | \s+
//
// The alternatives are tried in this order. So contractions are in lower case and have the ASCII apostrophe; a space
// belongs to what follows it; of white space before something else the last character is left, which joins what follows
// if it is U+0020 and is a piece by itself if it is not; white space at the end of the text is one piece.
//
//   source  Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2, and its encoder
#pragma once

#include <cstddef>
#include <string_view>

#include "data/text/unicode_classes.h"
#include "data/text/utf8.h"

namespace isobar {

// Walks over the pieces of a text, which must be UTF-8 (first_invalid_byte).
class Pieces {
 public:
  explicit Pieces(std::string_view text) : text_(text) {}

  bool at_end() const { return at_ == text_.size(); }
  std::string_view next();  // not empty; call it unless at_end()

 private:
  struct Character {
    std::size_t bytes;
    UnicodeClass kind;
  };
  Character character_at(std::size_t at) const {
    const auto first = static_cast<unsigned char>(text_[at]);
    if (first < 0x80) return {1, classes_[first]};
    const CodePoint point = code_point_at(text_, at);
    return {point.bytes, classes_[point.value]};
  }
  std::size_t end_of_run(std::size_t at, UnicodeClass kind) const;
  std::size_t end_of_contraction(std::size_t at) const;
  std::size_t end_of_white_space(std::size_t at) const;

  std::string_view text_;
  std::size_t at_ = 0;
  const UnicodeClass* classes_ = unicode_classes();
};

}  // namespace isobar
