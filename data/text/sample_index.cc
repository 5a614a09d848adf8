#include "data/text/sample_index.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "data/random_order.h"
#include "engine/files/json.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr std::size_t kStride = 64;  // documents between two sums that are kept
constexpr std::int64_t kMostSamples = (std::int64_t{1} << 32) - 2, kMostPositions = (std::int64_t{1} << 32) - 1;
constexpr std::int64_t kMostLength = std::int64_t{1} << 30;  // so that products stay within 63 bits

}  // namespace

SampleIndex::SampleIndex(const SampleIndexOptions& options)
    : lengths_(options.lengths), seq_length_(options.seq_length) {
  ISOBAR_CHECK(seq_length_ >= 1 && seq_length_ < kMostLength, options.name, ": a sample of ", seq_length_,
               " tokens is asked for");
  ISOBAR_CHECK(0 <= options.first && options.first < options.last && options.last <= std::ssize(lengths_), options.name,
               ": documents ", options.first, " to ", options.last, " of ", lengths_.size(), " are no documents");
  const auto used =
      lengths_.subspan(static_cast<std::size_t>(options.first), static_cast<std::size_t>(options.last - options.first));
  tokens_per_epoch_ = std::accumulate(used.begin(), used.end(), std::int64_t{0});
  ISOBAR_CHECK(tokens_per_epoch_ > 0, options.name, ": documents ", options.first, " to ", options.last,
               " hold no tokens");
  count_epochs(options);
  shuffle_all(options);
  sum_lengths();
}

// The last epoch is apart if fewer of its samples are asked for.
std::int64_t SampleIndex::least_of_whole_epoch() const {
  return static_cast<std::int64_t>(0.80 * static_cast<double>(samples_of_epochs(1)));
}

std::int64_t SampleIndex::most_samples() const {
  return is_last_epoch_apart_ ? samples_of_epochs(epochs_ - 1) + least_of_whole_epoch() - 1 : samples();
}

void SampleIndex::count_epochs(const SampleIndexOptions& options) {
  const std::int64_t documents = options.last - options.first;
  ISOBAR_CHECK(options.samples >= 0 && options.samples < kMostSamples, options.name, ": ", options.samples,
               " samples are out of reach");
  ISOBAR_CHECK(options.samples > 0 || tokens_per_epoch_ > seq_length_, options.name, ": ", documents,
               " documents hold ", tokens_per_epoch_, " tokens, fewer than a sample of ", seq_length_, " + 1");
  if (options.samples > 0) {
    const std::int64_t wanted = options.samples * seq_length_ + 1;
    epochs_ = (wanted + tokens_per_epoch_ - 1) / tokens_per_epoch_;
  }
  ISOBAR_CHECK(epochs_ <= kMostPositions / documents, options.name, ": ", options.samples, " samples of ", seq_length_,
               " tokens take ", epochs_, " epochs of ", documents, " documents, more than can be shuffled");
  if (epochs_ == 1) return;
  is_last_epoch_apart_ = options.samples - samples_of_epochs(epochs_ - 1) < least_of_whole_epoch();
}

void SampleIndex::shuffle_all(const SampleIndexOptions& options) {
  const std::int64_t samples = samples_of_epochs(epochs_);
  ISOBAR_CHECK(samples < kMostSamples, options.name, ": ", samples, " samples are more than can be shuffled");
  NumpyRandomState random(options.seed);
  const auto per_epoch = static_cast<std::size_t>(options.last - options.first);
  documents_.resize(per_epoch * static_cast<std::size_t>(epochs_));
  for (std::size_t i = 0; i < documents_.size(); ++i)
    documents_[i] = static_cast<std::int32_t>(options.first + static_cast<std::int64_t>(i % per_epoch));
  const std::size_t last_documents = is_last_epoch_apart_ ? per_epoch : 0;
  random.shuffle(std::span(documents_).first(documents_.size() - last_documents));
  random.shuffle(std::span(documents_).last(last_documents));

  shuffle_.resize(static_cast<std::size_t>(samples));
  std::iota(shuffle_.begin(), shuffle_.end(), 0u);
  const std::int64_t first_samples = is_last_epoch_apart_ ? samples_of_epochs(epochs_ - 1) : samples;
  random.shuffle(std::span(shuffle_).first(static_cast<std::size_t>(first_samples)));
  random.shuffle(std::span(shuffle_).subspan(static_cast<std::size_t>(first_samples)));
}

void SampleIndex::sum_lengths() {
  sums_.reserve(documents_.size() / kStride + 1);
  std::int64_t sum = 0;
  for (std::size_t position = 0; position < documents_.size(); ++position) {
    if (position % kStride == 0) sums_.push_back(sum);
    sum += lengths_[static_cast<std::size_t>(documents_[position])];
  }
}

SamplePlace SampleIndex::place(std::int64_t i) const {
  if (i == 0) return {};  // also where the first document is empty
  const std::int64_t token = i * seq_length_;
  const auto after = std::upper_bound(sums_.begin(), sums_.end(), token);
  const std::int64_t block = after - sums_.begin() - 1;
  SamplePlace place{.position = block * static_cast<std::int64_t>(kStride),
                    .offset = token - sums_[static_cast<std::size_t>(block)]};
  while (true) {
    const std::int64_t length =
        lengths_[static_cast<std::size_t>(documents_[static_cast<std::size_t>(place.position)])];
    if (place.offset < length) return place;
    place.offset -= length;
    ++place.position;
  }
}

SplitRule split_rule(const std::string& name) {
  ISOBAR_CHECK(name == "legacy" || name == "core", "rule ", in_quotes(name),
               " does not exist; expected legacy or core");
  return name == "legacy" ? SplitRule::legacy : SplitRule::core;
}

std::vector<std::int64_t> split_documents(const std::string& split, std::int64_t documents, SplitRule rule) {
  std::vector<double> shares;
  const char* at = split.data();
  const char* const end = at + split.size();
  while (true) {
    while (at < end && *at == ' ') ++at;
    double share = 0;
    const auto [rest, error] = std::from_chars(at, end, share);
    const bool is_share = error == std::errc() && share >= 0 && std::isfinite(share) && shares.size() < 3 &&
                          (rest == end || ((*rest == ',' || *rest == '/') && rest + 1 < end));
    ISOBAR_CHECK(is_share, "split ", in_quotes(split), " is not a list of up to three shares, as in 949,50,1");
    shares.push_back(share);
    if (rest == end) break;
    at = rest + 1;
  }
  shares.resize(3);
  const double sum = shares[0] + shares[1] + shares[2];
  ISOBAR_CHECK(sum > 0 && std::isfinite(sum), "split ", in_quotes(split), " gives nothing to any set");

  // std::nearbyint rounds half to even, as Python's round.
  const auto total = static_cast<double>(documents);
  std::vector<std::int64_t> bounds{0};
  double running = 0;
  for (const double share : shares) {
    const double fraction = share / sum;
    running += fraction;
    const std::int64_t bound = rule == SplitRule::legacy
                                   ? bounds.back() + static_cast<std::int64_t>(std::nearbyint(fraction * total))
                                   : static_cast<std::int64_t>(std::nearbyint(running * total));
    bounds.push_back(bound);
  }
  if (rule == SplitRule::legacy) {
    const std::int64_t excess = bounds[3] - documents;
    for (std::size_t i = 1; i < bounds.size(); ++i) bounds[i] -= excess;
  }
  for (std::int64_t& bound : bounds) bound = std::clamp<std::int64_t>(bound, 0, documents);
  for (std::size_t i = 1; i < bounds.size(); ++i) bounds[i] = std::max(bounds[i], bounds[i - 1]);
  return bounds;
}

}  // namespace isobar
