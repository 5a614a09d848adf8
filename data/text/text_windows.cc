#include "data/text/text_windows.h"

#include <algorithm>
#include <cmath>

#include "data/text/utf8.h"
#include "kernels/common/check.h"
#include "kernels/cross_entropy.h"

namespace isobar {
namespace {

void check_window(const Dataset& set, const SampleKey& key, std::span<void* const> to, std::size_t tensors) {
  ISOBAR_CHECK(key.sample >= 0 && key.sample < set.samples(), set.name(), ": window ", key.sample, " of ",
               set.samples(), " is asked for");
  ISOBAR_CHECK(to.size() == tensors, set.name(), ": a sample has ", tensors, " tensors, but ", to.size(),
               " buffers are given");
}

// The same for all windows of an epoch.
std::int64_t offset_of_epoch(const SampleKey& key, std::int64_t length) {
  return SampleKey{.sample = 0, .epoch = key.epoch, .seed = key.seed}.of(DataSplit::train).random_below(length, 0);
}

}  // namespace

TrainingWindows::TrainingWindows(std::shared_ptr<const TokenText> text, std::int64_t length)
    : text_(std::move(text)), length_(length) {
  ISOBAR_CHECK(text_->size() >= 2 * length_, text_->name, ": a text of ", text_->size(),
               " tokens is too short to train on windows of ", length_, "; it needs twice as many");
}

std::vector<TensorSpec> TrainingWindows::layout() const {
  return {{.name = "tokens", .shape = {length_ + 1}, .dtype = DType::i32}};
}

void TrainingWindows::read(const SampleKey& key, std::span<void* const> to) const {
  check_window(*this, key, to, 1);
  const std::int64_t begin = offset_of_epoch(key, length_) + key.sample * length_;
  std::copy_n(text_->ids.begin() + begin, length_ + 1, static_cast<std::int32_t*>(to[0]));
}

WholeTextWindows::WholeTextWindows(std::shared_ptr<const TokenText> text, std::int64_t length, std::int64_t most)
    : text_(std::move(text)), length_(length), most_(most) {
  ISOBAR_CHECK(text_->size() >= 2, text_->name, ": a text of ", text_->size(),
               " tokens is too short: no token follows another");
}

std::vector<TensorSpec> WholeTextWindows::layout() const {
  return {{.name = "tokens", .shape = {length_ + 1}, .dtype = DType::i32},
          {.name = "target", .shape = {length_}, .dtype = DType::i32}};
}

void WholeTextWindows::read(const SampleKey& key, std::span<void* const> to) const {
  check_window(*this, key, to, 2);
  auto* tokens = static_cast<std::int32_t*>(to[0]);
  auto* target = static_cast<std::int32_t*>(to[1]);
  const std::int64_t begin = key.sample * length_, count = std::min(length_ + 1, text_->size() - begin);
  std::copy_n(text_->ids.begin() + begin, count, tokens);
  std::fill(tokens + count, tokens + length_ + 1, 0);
  std::copy(tokens + 1, tokens + count, target);
  std::fill(target + count - 1, target + length_, kIgnoredLabel);
}

std::pair<std::string_view, std::string_view> cut_text(std::string_view utf8, double fraction) {
  constexpr double kRounding = 1e-9;  // 1 - 0.1 is a little more than 0.9
  std::int64_t characters = 0;
  for (std::size_t at = 0; at < utf8.size(); at += std::max<std::size_t>(code_point_at(utf8, at).bytes, 1))
    ++characters;
  auto left = static_cast<std::int64_t>(std::floor((1 - fraction + kRounding) * static_cast<double>(characters)));
  std::size_t end = 0;
  for (; left > 0; --left) end += std::max<std::size_t>(code_point_at(utf8, end).bytes, 1);
  return {utf8.substr(0, end), utf8.substr(end)};
}

}  // namespace isobar
