// What a rank reads: its samples of every batch, and of them its band of rows.
#include "apps/train/loaders.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "comm/mesh.h"
#include "data/era5/pairs.h"
#include "tests/harness/bytes_read.h"
#include "tests/harness/data_files.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

constexpr std::int64_t kSamples = 12, kChannels = 2, kRows = 18, kWidth = 10, kPatch = 2;
constexpr std::int64_t kBatch = 6;  // of all ranks

std::vector<std::int64_t> read_epoch(Loaders& loaders) {
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < kSamples / kBatch; ++i) {
    const std::shared_ptr<const LoadedBatch> batch = loaders.next();
    samples.insert(samples.end(), batch->samples.begin(), batch->samples.end());
  }
  return samples;
}

}  // namespace

TEST_CASE("loaders: a rank reads the bands of its own samples, and nothing else") {
  if (!testing::bytes_read()) ISOBAR_SKIP("this system does not count what a process reads");
  const testing::TemporaryFolder folder;
  testing::write_fields(folder / "2001.h5", {kSamples + 1, kChannels, kRows, kWidth});
  const Era5Dataset steps({.paths = {folder / "2001.h5"}, .cache_bytes = 0});
  const PairDataset pairs(steps);
  std::vector<std::int64_t> all(kSamples);
  std::iota(all.begin(), all.end(), 0);
  for (const std::int64_t dp : {1, 2, 3})
    for (const std::int64_t cp : {1, 2, 4}) {
      std::vector<std::int64_t> seen;
      std::int64_t bytes = 0;
      for (std::int64_t d = 0; d < dp; ++d)
        for (std::int64_t c = 0; c < cp; ++c) {
          INFO("dp " << dp << ", cp " << cp << ", rank " << d << ", " << c);
          const Part patches = part_of(kRows / kPatch, c, cp);
          const RowBand rows{patches.begin * kPatch, patches.size() * kPatch};
          Loaders loaders(pairs, pairs, {}, {.global_batch_size = kBatch}, 3, Device{}, {d, dp, rows});
          read_epoch(loaders);  // finds out where the fields lie in the file
          std::vector<std::int64_t> samples;
          const std::int64_t own = testing::bytes_read_by([&] { samples = read_epoch(loaders); });
          CHECK(own == kSamples / dp * 2 * kChannels * rows.count * kWidth * 4);  // input and target, fp32
          bytes += own;
          if (c == 0) seen.insert(seen.end(), samples.begin(), samples.end());

          const Batch first = loaders.first_valid_samples(1);
          CHECK(first.at("input").shape() == Shape{1, kChannels, rows.count, kWidth});
          CHECK(first.at("input").data_as<float>()[0] == testing::field_value(0, 0, 0, rows.first, 0));
          CHECK(loaders.valid().next()->tensors.at("target").size(2) == rows.count);
        }
      std::ranges::sort(seen);
      CHECK(seen == all);
      CHECK(bytes == kSamples * 2 * kChannels * kRows * kWidth * 4);  // nothing is read twice
    }
}

}  // namespace isobar
