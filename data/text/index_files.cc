#include "data/text/index_files.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "data/files/npy.h"
#include "data/text/token_file.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

// As Megatron decides it: by the number of entries and by the longest document.
bool needs_wide_places(const SampleIndex& index, std::span<const std::int32_t> lengths) {
  const std::int64_t longest = *std::ranges::max_element(lengths);
  return std::max(std::ssize(index.documents()), longest) > std::numeric_limits<std::int32_t>::max();
}

template <class T>
void write_places(const std::string& path, const SampleIndex& index) {
  std::vector<T> numbers;
  numbers.reserve(2 * static_cast<std::size_t>(index.samples() + 1));
  for (std::int64_t i = 0; i <= index.samples(); ++i) {
    const SamplePlace place = index.place(i);
    numbers.push_back(static_cast<T>(place.position));
    numbers.push_back(static_cast<T>(place.offset));
  }
  write_npy(path, std::array<std::int64_t, 2>{index.samples() + 1, 2}, std::span<const T>(numbers));
}

std::string set_line(const std::string& set, const SampleIndex& index, std::int64_t documents) {
  return concat(set, ": ", documents, " documents, ", index.tokens_per_epoch(), " tokens, ", index.epochs(),
                index.epochs() == 1 ? " epoch" : " epochs", index.is_last_epoch_apart() ? " (the last one apart)" : "",
                ", ", index.samples(), " samples");
}

}  // namespace

std::vector<std::string> write_index_files(const IndexFilesOptions& options) {
  const TokenFile file(options.path);
  const std::vector<std::int64_t> bounds = split_documents(options.split, file.sequences(), options.rule);
  std::filesystem::create_directories(options.out);
  std::vector<std::string> lines;
  constexpr std::array<const char*, 3> kSets{"train", "valid", "test"};
  for (std::size_t set = 0; set < kSets.size(); ++set) {
    if (options.samples[set] == 0) continue;
    const SampleIndex index({.name = file.name() + ", " + kSets[set],
                             .lengths = file.lengths(),
                             .first = bounds[set],
                             .last = bounds[set + 1],
                             .seq_length = options.seq_length,
                             .samples = options.samples[set],
                             .seed = options.seed});
    const std::string name =
        concat(std::filesystem::path(file.name()).filename().string(), '_', kSets[set], "_indexmap_",
               options.samples[set], "ns_", options.seq_length, "sl_", options.seed, "s_");
    const std::string prefix = (std::filesystem::path(options.out) / name).string();
    write_npy(prefix + "doc_idx.npy", std::array{std::ssize(index.documents())}, index.documents());
    write_npy(prefix + "shuffle_idx.npy", std::array{std::ssize(index.shuffle())}, index.shuffle());
    if (needs_wide_places(index, file.lengths()))
      write_places<std::int64_t>(prefix + "sample_idx.npy", index);
    else
      write_places<std::int32_t>(prefix + "sample_idx.npy", index);
    lines.push_back(set_line(kSets[set], index, bounds[set + 1] - bounds[set]));
  }
  return lines;
}

}  // namespace isobar
