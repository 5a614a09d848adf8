#include "data/text/pieces.h"

#include <algorithm>

namespace isobar {

// Where the characters of one class end that begin at `at`.
std::size_t Pieces::end_of_run(std::size_t at, UnicodeClass kind) const {
  while (at < text_.size()) {
    const Character next = character_at(at);
    if (next.kind != kind) break;
    at += next.bytes;
  }
  return at;
}

// The end of 's, 't, 're, 've, 'm, 'll or 'd; `at` itself if there is none.
std::size_t Pieces::end_of_contraction(std::size_t at) const {
  const auto is = [&](std::size_t i, char c) { return at + i < text_.size() && text_[at + i] == c; };
  if (is(1, 's') || is(1, 't') || is(1, 'm') || is(1, 'd')) return at + 2;
  const bool has_two = (is(1, 'r') && is(2, 'e')) || (is(1, 'v') && is(2, 'e')) || (is(1, 'l') && is(2, 'l'));
  return has_two ? at + 3 : at;
}

// The end of the piece that white space at `at` begins: all of it at the end of the text, else all but its last
// character, but at least one.
std::size_t Pieces::end_of_white_space(std::size_t at) const {
  std::size_t end = at, last = at;
  while (end < text_.size()) {
    const Character next = character_at(end);
    if (next.kind != UnicodeClass::space) break;
    last = end;
    end += next.bytes;
  }
  return end == text_.size() || last == at ? end : last;
}

std::string_view Pieces::next() {
  const std::size_t begin = at_;
  at_ = text_[begin] == '\'' ? end_of_contraction(begin) : begin;
  if (at_ == begin) {
    const bool has_space = text_[begin] == ' ' && begin + 1 < text_.size();
    const std::size_t after = begin + (has_space ? 1 : 0);
    const UnicodeClass kind = character_at(after).kind;
    at_ = kind == UnicodeClass::space ? end_of_white_space(begin) : end_of_run(after, kind);
  }
  return text_.substr(begin, at_ - begin);
}

}  // namespace isobar
