#include "data/text/text_data.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "data/text/blend.h"
#include "data/text/mock_documents.h"
#include "data/text/token_facts.h"
#include "data/text/token_file.h"
#include "engine/files/checksum.h"
#include "kernels/common/check.h"
#include "kernels/common/comma_list.h"

namespace isobar {
namespace {

constexpr std::array<const char*, 3> kSetNames{"train", "valid", "test"};
constexpr std::size_t kTestSet = 2;

// The documents of one set: all of a file, or its share.
struct DocumentRange {
  std::shared_ptr<const TokenDocuments> documents;
  std::int64_t first = 0, last = 0;
};

std::string name_of_order(const SampleIndex& index) {
  const std::int64_t whole = index.epochs() - (index.is_last_epoch_apart() ? 1 : 0);
  return concat(whole, whole == 1 ? " epoch" : " epochs", index.is_last_epoch_apart() ? " and one apart" : "");
}

class Opener {
 public:
  explicit Opener(const TextDataOptions& options) : options_(options) {}

  TextData open() {
    check_options();
    for (std::size_t set = 0; set < kSetNames.size(); ++set)
      if (options_.samples[set] != 0) data_.sets[set] = open_set(set);
    data_.trained_on = described_.value();
    data_.trained_on_counted = counted_.value();
    if (data_.most_samples == 0 && !most_.empty()) data_.most_samples = most_.front();  // no blend
    return std::move(data_);
  }

 private:
  void check_options() const {
    const bool has_sets = std::ranges::any_of(options_.paths, [](const auto& paths) { return !paths.empty(); });
    const int ways = (options_.data_path.empty() ? 0 : 1) + (has_sets ? 1 : 0) + (options_.is_mock ? 1 : 0);
    ISOBAR_CHECK(ways == 1, "text needs one of: data_path, paths of each set, mock data; ", ways, " are given");
    for (const std::int64_t samples : options_.samples)
      ISOBAR_CHECK(samples >= kAllSamples, samples, " samples are asked for");
  }

  void describe(std::span<const std::byte> bytes) {
    described_.update(bytes);
    counted_.update(bytes);
  }
  void describe(std::string_view text) { describe(std::as_bytes(std::span(text))); }

  // What decides the training samples, of a file: its documents, and its first and last tokens.
  void describe(const DocumentRange& range) {
    constexpr std::int64_t kTokensAtEnds = 4096;
    const std::span<const std::int32_t> lengths = range.documents->lengths();
    const auto used =
        lengths.subspan(static_cast<std::size_t>(range.first), static_cast<std::size_t>(range.last - range.first));
    describe(concat("documents ", range.first, ' ', range.last, ';'));
    describe(std::as_bytes(used));
    std::vector<std::int32_t> tokens(kTokensAtEnds);
    for (const bool forward : {true, false}) {
      std::int64_t left = kTokensAtEnds;
      for (std::int64_t i = 0; i < range.last - range.first && left > 0; ++i) {
        const std::int64_t document = forward ? range.first + i : range.last - 1 - i;
        const std::int64_t count = std::min<std::int64_t>(left, lengths[static_cast<std::size_t>(document)]);
        const std::span some = std::span(tokens).first(static_cast<std::size_t>(count));
        if (count > 0) range.documents->read(document, 0, some);
        describe(std::as_bytes(some));
        left -= count;
      }
    }
  }

  void describe_options() {
    const auto add = [this](Xxh64& to, const std::string& samples) {
      const std::string text =
          concat("T ", options_.seq_length, samples, " seed ", options_.seed, " rule ", static_cast<int>(options_.rule),
                 " flags ", options_.reset_position_ids, options_.reset_attention_mask, options_.eod_mask_loss, ';');
      to.update(std::as_bytes(std::span(text)));
    };
    add(described_, "");
    add(counted_, concat(" samples ", options_.samples[0]));
  }

  std::shared_ptr<const TokenDocuments> open_file(const std::string& path) {
    for (const auto& [prefix, file] : files_)
      if (prefix == token_prefix(path)) return file;
    auto file = std::make_shared<TokenFile>(path, options_.vocabulary);
    check_tokenizer(*file);
    files_.emplace_back(file->name(), file);
    return file;
  }

  void check_tokenizer(const TokenFile& file) {
    if (options_.fingerprint.empty()) return;
    const TokenFacts facts = read_token_facts(file.name()).value_or(TokenFacts{});
    if (facts.fingerprint.empty()) {
      data_.notes.push_back(file.name() + " does not tell its tokenizer: it is taken for the run's");
      return;
    }
    ISOBAR_CHECK(facts.fingerprint == options_.fingerprint, file.name(), " was made by another tokenizer: its ",
                 facts.tokenizer, ' ', facts.fingerprint, ", the run's ", options_.fingerprint,
                 "; config key tokenizer and the files that it needs select the run's");
  }

  // What a set has of a file, which may be nothing.
  DocumentRange range_of(std::shared_ptr<const TokenDocuments> documents, const std::string& split,
                         std::size_t set) const {
    const auto total = std::ssize(documents->lengths());
    const std::vector<std::int64_t> bounds = split_documents(split, total, options_.rule);
    return {.documents = std::move(documents), .first = bounds[set], .last = bounds[set + 1]};
  }

  // "all samples are", "8 samples are".
  std::string taken(std::size_t set) const {
    return options_.samples[set] == kAllSamples ? "all samples are" : concat(options_.samples[set], " samples are");
  }

  void check_documents(const DocumentRange& range, const std::string& split, std::size_t set) const {
    if (range.first < range.last) return;
    const auto total = std::ssize(range.documents->lengths());
    const std::vector<std::int64_t> bounds = split_documents(split, total, options_.rule);
    throw_error(range.documents->name(), ": ", kSetNames[set], " has no documents, but ", taken(set),
                " taken of it: of ", total, total == 1 ? " document" : " documents", ", split ", split, " gives ",
                bounds[1], " to train, ", bounds[2] - bounds[1], " to valid and ", bounds[3] - bounds[2], " to test",
                total == 1 ? "; --separator of isobar data preprocess makes several documents of a text" : "");
  }

  // Whether a share holds a whole sample.
  bool has_sample(const DocumentRange& range) const {
    const auto used = range.documents->lengths().subspan(static_cast<std::size_t>(range.first),
                                                         static_cast<std::size_t>(range.last - range.first));
    return std::accumulate(used.begin(), used.end(), std::int64_t{0}) > options_.seq_length;
  }

  // samples: a number, or kAllSamples. of_train: its order is noted.
  std::unique_ptr<Dataset> samples_of(const DocumentRange& range, std::int64_t samples, bool of_train) {
    auto made = std::make_unique<TokenSamples>(
        range.documents, TokenSamplesOptions{.first = range.first,
                                             .last = range.last,
                                             .seq_length = options_.seq_length,
                                             .samples = std::max<std::int64_t>(samples, 0),
                                             .seed = options_.seed,
                                             .reset_position_ids = options_.reset_position_ids,
                                             .reset_attention_mask = options_.reset_attention_mask,
                                             .eod_mask_loss = options_.eod_mask_loss,
                                             .eod = options_.eod});
    if (of_train) {
      const SampleIndex& index = made->index();
      data_.order += (data_.order.empty() ? "" : ", ") + name_of_order(index);
      most_.push_back(index.most_samples());
    }
    return made;
  }

  std::unique_ptr<Dataset> open_set(std::size_t set) {
    const std::int64_t samples = options_.samples[set];
    if (options_.is_mock) {
      if (!mock_) mock_ = std::make_shared<MockDocuments>(static_cast<std::int32_t>(options_.eod), options_.vocabulary);
      if (set == 0) {
        describe("mock data");
        describe_options();
      }
      return samples_of(range_of(mock_, "1,1,1", set), samples, set == 0);
    }
    const bool is_split = !options_.data_path.empty();
    const std::vector<std::string>& words = is_split ? options_.data_path : options_.paths[set];
    ISOBAR_CHECK(!words.empty(), kSetNames[set], " has no data, but ", taken(set), " taken of it");
    // The whole of a file is a split with one share.
    static constexpr std::array<const char*, 3> kWhole{"1,0,0", "0,1,0", "0,0,1"};
    const std::string split = is_split ? options_.split : kWhole[set];
    const Blend blend = parse_blend(words);
    std::vector<DocumentRange> ranges;
    for (const std::string& path : blend.paths) ranges.push_back(range_of(open_file(path), split, set));
    if (is_split && set == kTestSet && options_.may_lack_test &&
        !std::ranges::all_of(ranges, [this](const DocumentRange& range) { return has_sample(range); })) {
      data_.notes.push_back("there is no test set: split " + split + " gives it no whole sample");
      return nullptr;
    }
    for (const DocumentRange& range : ranges) check_documents(range, split, set);
    if (set == 0) {
      describe_options();
      for (const DocumentRange& range : ranges) describe(range);
      for (const double weight : blend.weights) describe(concat("weight ", weight, ';'));
    }
    // Megatron blends a single path with a weight too, which only changes its number of samples.
    if (ranges.size() == 1 && blend.weights.empty()) return samples_of(ranges[0], samples, set == 0);
    const bool is_by_size = blend.weights.empty() || samples == kAllSamples;
    return is_by_size ? blended_by_size(ranges, samples, set) : blended(ranges, blend.weights, samples, set);
  }

  std::unique_ptr<Dataset> blended(const std::vector<DocumentRange>& ranges, const std::vector<double>& weights,
                                   std::int64_t samples, std::size_t set) {
    std::vector<std::unique_ptr<Dataset>> parts;
    for (std::size_t i = 0; i < ranges.size(); ++i)
      parts.push_back(samples_of(ranges[i], of_part(samples, weights[i]), set == 0));
    if (set == 0) data_.most_samples = most_of_blend(samples, weights);
    return std::make_unique<BlendedSamples>(std::move(parts), weights, samples);
  }

  std::int64_t of_part(std::int64_t samples, double weight) const {
    return samples_of_part(samples, weight, options_.rule == SplitRule::core);
  }

  // The largest number of samples of a blend of which no part has more than it may.
  std::int64_t most_of_blend(std::int64_t samples, const std::vector<double>& weights) const {
    const auto fits = [&](std::int64_t number) {
      for (std::size_t i = 0; i < weights.size(); ++i)
        if (of_part(number, weights[i]) > most_[i]) return false;
      return true;
    };
    std::int64_t least = samples, beyond = std::accumulate(most_.begin(), most_.end(), std::int64_t{1});
    while (beyond - least > 1) {
      const std::int64_t middle = least + (beyond - least) / 2;
      (fits(middle) ? least : beyond) = middle;
    }
    return least;
  }

  // Without weights, or all samples: an epoch of each, in proportion to their samples.
  std::unique_ptr<Dataset> blended_by_size(const std::vector<DocumentRange>& ranges, std::int64_t samples,
                                           std::size_t set) {
    std::vector<std::unique_ptr<Dataset>> parts;
    std::vector<double> weights;
    std::int64_t total = 0;
    for (const DocumentRange& range : ranges) {
      parts.push_back(samples_of(range, kAllSamples, set == 0));
      weights.push_back(static_cast<double>(parts.back()->samples()));
      total += parts.back()->samples();
    }
    ISOBAR_CHECK(samples <= total, kSetNames[set], ": ", samples, " samples are taken of a blend without weights of ",
                 comma_list(parts, [](const auto& part) { return part->name(); }), ", which has only ", total,
                 " in one epoch; give weights");
    if (set == 0) data_.most_samples = total;
    for (double& weight : weights) weight /= static_cast<double>(total);
    return std::make_unique<BlendedSamples>(std::move(parts), weights, samples == kAllSamples ? total : samples);
  }

  const TextDataOptions& options_;
  TextData data_;
  Xxh64 described_, counted_;
  std::shared_ptr<const MockDocuments> mock_;
  std::vector<std::int64_t> most_;  // of each file that is trained on: SampleIndex::most_samples()
  std::vector<std::pair<std::string, std::shared_ptr<const TokenDocuments>>> files_;
};

}  // namespace

TextData open_text_data(const TextDataOptions& options) {
  return Opener(options).open();
}

}  // namespace isobar
