// Which tokens a sample has: Megatron's document, sample and shuffle index, bit for bit, without an array of samples.
//
//   documents  first ... last - 1, once an epoch, in random order      T tokens an epoch, E epochs
//   sample i   tokens i·L to i·L + L of these documents, one after another: L inputs and one more, with which the next
//              sample begins; so there are n = (E·T - 1) / L of them
//   entry k    sample shuffle[k]
//
// E is the least that gives the samples that are asked for. The last epoch is apart if it gives less than 80 % of an
// epoch's samples: then its documents are shuffled by themselves, and its samples come last. All shuffles draw from one
// numpy.random.RandomState(seed): documents first (the last epoch's after the others'), then samples in the same way.
//
//   source  NVIDIA/Megatron-LM, its GPT data set. Its sample index is a walk over all documents; here sample i is found
//           by a search for token i·L in the running sum of lengths.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace isobar {

struct SampleIndexOptions {
  std::string name = {};                       // of the documents, for messages
  std::span<const std::int32_t> lengths = {};  // of all documents; must outlive the index
  std::int64_t first = 0, last = 0;            // the documents that are used: first <= d < last
  std::int64_t seq_length = 0;                 // L
  std::int64_t samples = 0;                    // at least so many; 0: those of one epoch
  std::uint32_t seed = 1234;
};

// A place in the documents of all epochs: token `offset` of entry `position` of the document index.
struct SamplePlace {
  std::int64_t position = 0, offset = 0;
  friend bool operator==(const SamplePlace&, const SamplePlace&) = default;
};

class SampleIndex {
 public:
  // Error with the numbers if there are no documents or no tokens, or fewer tokens than a sample in one epoch where
  // `samples` is 0.
  explicit SampleIndex(const SampleIndexOptions& options);

  std::int64_t epochs() const { return epochs_; }
  std::int64_t tokens_per_epoch() const { return tokens_per_epoch_; }
  bool is_last_epoch_apart() const { return is_last_epoch_apart_; }
  std::int64_t samples() const { return static_cast<std::int64_t>(shuffle_.size()); }  // n
  // The largest number of samples that may be asked for with this same order of all of them: as many epochs, and the
  // last one apart or not. The order for any other number of epochs is another one from the first sample on.
  std::int64_t most_samples() const;

  // The document index and the shuffle index.
  std::span<const std::int32_t> documents() const { return documents_; }
  std::span<const std::uint32_t> shuffle() const { return shuffle_; }
  // Entry i of the sample index, 0 <= i <= samples().
  SamplePlace place(std::int64_t i) const;

 private:
  std::int64_t samples_of_epochs(std::int64_t epochs) const { return (epochs * tokens_per_epoch_ - 1) / seq_length_; }
  std::int64_t least_of_whole_epoch() const;
  void count_epochs(const SampleIndexOptions& options);
  void shuffle_all(const SampleIndexOptions& options);
  void sum_lengths();

  std::span<const std::int32_t> lengths_;
  std::int64_t seq_length_ = 0, tokens_per_epoch_ = 0, epochs_ = 1;
  bool is_last_epoch_apart_ = false;
  std::vector<std::int32_t> documents_;
  std::vector<std::uint32_t> shuffle_;
  std::vector<std::int64_t> sums_;  // tokens before position 0, kStride, 2·kStride, ...
};

// How --split rounds: as Megatron of 2022 does, or as its core does since 2023.
enum class SplitRule : std::uint8_t { legacy, core };
SplitRule split_rule(const std::string& name);  // "legacy" or "core"; Error for others

// Where train, valid and test begin and end, of `documents` documents: boundaries b0 ... b3. split: "949,50,1" or
// "949/50/1", shares of any sum; missing ones are 0. Error for what is no such list.
std::vector<std::int64_t> split_documents(const std::string& split, std::int64_t documents, SplitRule rule);

}  // namespace isobar
