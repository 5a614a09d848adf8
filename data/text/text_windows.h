// Samples of one text that is in memory as tokens: windows of T + 1 of them, T inputs and the T tokens that follow.
//
//   training     window k begins at token o + k·T, with a new o below T in each epoch: a token is a target about once
//                an epoch, and windows of different epochs begin at different places
//   judging      window k begins at token k·T: every token but the first is a target once. The last window may be
//                shorter than T; the rest of its targets do not count
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/dataset.h"

namespace isobar {

struct TokenText {
  std::string name;  // for messages: the file
  std::vector<std::int32_t> ids = {};

  std::int64_t size() const { return static_cast<std::int64_t>(ids.size()); }
};

// "tokens" [T + 1] i32.
class TrainingWindows : public Dataset {
 public:
  // Error, with the numbers, for a text of fewer than 2·T tokens.
  TrainingWindows(std::shared_ptr<const TokenText> text, std::int64_t length);

  std::string name() const override { return text_->name; }
  std::int64_t samples() const override { return (text_->size() - length_) / length_; }
  std::vector<TensorSpec> layout() const override;
  void read(const SampleKey& key, std::span<void* const> to) const override;

  const TokenText& text() const { return *text_; }

 private:
  std::shared_ptr<const TokenText> text_;
  std::int64_t length_;  // T
};

// "tokens" [T + 1] i32, and "target" [T] i32: the last T of them; behind the end of the text kIgnoredLabel
// (kernels/cross_entropy.h).
class WholeTextWindows : public Dataset {
 public:
  // The first `most` windows, or all. Error for a text of fewer than 2 tokens.
  WholeTextWindows(std::shared_ptr<const TokenText> text, std::int64_t length,
                   std::int64_t most = std::numeric_limits<std::int64_t>::max());

  std::string name() const override { return text_->name; }
  std::int64_t samples() const override { return std::min((text_->size() - 2) / length_ + 1, most_); }
  std::vector<TensorSpec> layout() const override;
  void read(const SampleKey& key, std::span<void* const> to) const override;

 private:
  std::shared_ptr<const TokenText> text_;
  std::int64_t length_, most_;
};

// The first part of a text and the rest, which has `fraction` of the characters (code points) and is rounded up.
std::pair<std::string_view, std::string_view> cut_text(std::string_view utf8, double fraction);

}  // namespace isobar
