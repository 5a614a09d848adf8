// What a rank reads: its samples of every batch, and of them its band of rows; and what is read ahead of a step.
#include "apps/train/loaders.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "data/fields/pairs.h"
#include "engine/storage.h"
#include "kernels/common/check.h"
#include "kernels/cuda/runtime.h"
#include "tests/harness/bytes_read.h"
#include "tests/harness/data_files.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

// So wide that the rows between two bands are more bytes than a reader would read with them.
constexpr std::int64_t kSamples = 12, kChannels = 2, kRows = 18, kWidth = 130, kPatch = 2;
constexpr std::int64_t kBatch = 6;  // of all ranks

std::vector<std::int64_t> read_epoch(Loaders& loaders) {
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < kSamples / kBatch; ++i) {
    const std::shared_ptr<const LoadedBatch> batch = loaders.next();
    samples.insert(samples.end(), batch->samples.begin(), batch->samples.end());
  }
  return samples;
}

// Samples of one number each: sample s is 10 + s, and number 3 cannot be read where `is_damaged`.
class Numbers final : public Dataset {
 public:
  explicit Numbers(bool is_damaged = false) : is_damaged_(is_damaged) {}
  std::string name() const override { return "numbers"; }
  std::int64_t samples() const override { return 7; }
  std::vector<TensorSpec> layout() const override { return {{"x", {1}, DType::fp32}}; }
  void read(const SampleKey& key, std::span<void* const> to) const override {
    const std::int64_t sample = key.sample;
    ISOBAR_CHECK(!is_damaged_ || sample != 3, "sample 3 is damaged");
    *static_cast<float*>(to[0]) = static_cast<float>(10 + sample);
  }

 private:
  bool is_damaged_;
};

// Three batches of two an epoch, in their order.
Loaders loaders_of(const Numbers& numbers, Device device, std::int64_t workers = 0) {
  return {numbers, numbers, {.shuffle = false, .num_data_workers = workers}, {.global_batch_size = 2}, 3, device};
}

}  // namespace

TEST_CASE("loaders: a rank reads the bands of its own samples, and nothing else") {
  if (!testing::bytes_read()) ISOBAR_SKIP("this system does not count what a process reads");
  const testing::TemporaryFolder folder;
  testing::write_fields(folder / "2001.h5", {kSamples + 1, kChannels, kRows, kWidth});
  const FieldSeries steps({.paths = {folder / "2001.h5"}, .cache_bytes = 0});
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

          const Batch first = loaders.valid().first_samples(1);
          CHECK(first.at("input").shape() == Shape{1, kChannels, rows.count, kWidth});
          CHECK(first.at("input").data_as<float>()[0] == testing::field_value(0, 0, 0, rows.first, 0));
          CHECK(loaders.valid().loader().next()->tensors.at("target").size(2) == rows.count);
        }
      std::ranges::sort(seen);
      CHECK(seen == all);
      CHECK(bytes == kSamples * 2 * kChannels * kRows * kWidth * 4);  // nothing is read twice
    }
}

TEST_CASE("loaders: a stage reads its own steps of the same samples, from where the last one ended") {
  if (!testing::bytes_read()) ISOBAR_SKIP("this system does not count what a process reads");
  const testing::TemporaryFolder folder;
  testing::write_fields(folder / "2001.h5", {kSamples + 3, kChannels, kRows, kWidth});
  const FieldSeries steps({.paths = {folder / "2001.h5"}, .cache_bytes = 0});
  const PairDataset longest(steps, {.steps = 3}), shortest = longest.shortened(1);
  constexpr std::int64_t kRowsRead = 4;
  const ReadingRank rank{.rank = 1, .ranks = 2, .rows = RowBand{6, kRowsRead}};
  Loaders whole(longest, longest, {}, {.global_batch_size = kBatch}, 3, Device{}, rank);
  Loaders staged(shortest, longest, {}, {.global_batch_size = kBatch}, 3, Device{}, rank);
  read_epoch(staged);  // finds out where the fields lie in the file
  staged.seek({0, 0});
  constexpr std::int64_t kField = kBatch / 2 * kChannels * kRowsRead * kWidth * 4;  // of a batch of this rank
  const auto next = [&](std::int64_t fields) {
    std::vector<std::int64_t> samples;
    CHECK(testing::bytes_read_by([&] { samples = staged.next()->samples; }) == fields * kField);
    CHECK(samples == whole.next()->samples);
    CHECK(staged.cursor() == whole.cursor());
  };
  next(2);
  staged.use(longest);
  CHECK(staged.train_samples() == kSamples);
  next(4);
  const PairDataset two = longest.shortened(2);
  staged.use(two);
  next(3);
  staged.use(shortest);
  next(2);
}

TEST_CASE("loaders: parts that do not make a whole batch at an epoch's end are in no update") {
  const Numbers numbers;  // 7: a batch of 4 in two parts, and three left over, of which two would be a part
  Loaders loaders(numbers, numbers, {.shuffle = false}, {.global_batch_size = 4, .grad_accumulation = 2}, 3, Device{});
  CHECK(loaders.iterations_per_epoch() == 1);
  for (const std::int64_t epoch : {0, 1, 2}) {
    CHECK(loaders.next()->samples == std::vector<std::int64_t>{0, 1});
    CHECK(loaders.next()->samples == std::vector<std::int64_t>{2, 3});
    CHECK(loaders.cursor() == Cursor{epoch + 1, 0});
  }
}

TEST_CASE("loaders: a set that is judged gives every sample once, in order, to all ranks together") {
  const Numbers numbers;  // 7
  for (const std::int64_t ranks : {1, 2, 3}) {
    std::vector<std::vector<std::int64_t>> seen;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      EvaluationSet set(numbers, 3, {}, 5, Device{}, {rank, ranks});
      CHECK(set.samples() == 7);
      CHECK(set.loader().batches_per_epoch() == 3);
      set.try_first_batch();  // goes back
      for (std::size_t batch = 0; batch < 3; ++batch) {
        if (rank == 0) seen.emplace_back();
        const auto samples = set.loader().next()->samples;
        seen[batch].insert(seen[batch].end(), samples.begin(), samples.end());
      }
    }
    for (auto& batch : seen) std::ranges::sort(batch);
    CHECK(seen == std::vector<std::vector<std::int64_t>>{{0, 1, 2}, {3, 4, 5}, {6}});
  }
  // For pictures: from the beginning, as many as there are.
  const EvaluationSet set(numbers, 3, {}, 5, Device{});
  CHECK(tensor_of(set.first_samples(2), "x").to_vector() == std::vector<double>{10, 11});
  CHECK(tensor_of(set.first_samples(100), "x").to_vector() == std::vector<double>{10, 11, 12, 13, 14, 15, 16});
  CHECK(tensor_of(EvaluationSet(numbers, 3, {}, 5, Device{}, {1, 2}).first_samples(2), "x").to_vector() ==
        std::vector<double>{10, 11});  // on every rank
  const Numbers damaged(true);
  EvaluationSet of_damaged(damaged, 4, {}, 5, Device{});
  CHECK_THROWS_WITH(of_damaged.try_first_batch(), "sample 3 is damaged");
}

TEST_CASE("loaders: what is drawn for a set that is judged follows from the seed of the run, for pictures too") {
  class Drawn final : public Dataset {
   public:
    std::string name() const override { return "drawn"; }
    std::int64_t samples() const override { return 7; }
    std::vector<TensorSpec> layout() const override { return {{"x", {1}, DType::i32}}; }
    void read(const SampleKey& key, std::span<void* const> to) const override {
      *static_cast<std::int32_t*>(to[0]) = static_cast<std::int32_t>(key.random_below(1 << 30, 0));
    }
  };
  const Drawn drawn;
  const auto first_of = [](const EvaluationSet& set) { return tensor_of(set.first_samples(3), "x").to_vector(); };
  const auto first = [&](std::int64_t seed) {
    EvaluationSet set(drawn, 3, {}, seed, Device{});
    CHECK(tensor_of(set.loader().next()->tensors, "x").to_vector() == first_of(set));
    return first_of(set);
  };
  CHECK(first(5) == first(5));
  CHECK(first(5) != first(6));
  Loaders loaders(drawn, drawn, {}, {.global_batch_size = 3}, 6, Device{});
  CHECK(first_of(loaders.valid()) == first(6));
  CHECK(first_of(loaders.judged(drawn)) == first(6));
  CHECK_THROWS_WITH(loaders.moved({0, 1}, 13), "the training set had 13 samples, and now has 7");
}

TEST_CASE("loaders: what one rank of a run computes at once") {
  const BatchOptions batch{.global_batch_size = 130, .grad_accumulation = 2};
  CHECK(batch.at_once() == 65);
  CHECK(batch.at_once(64) == 2);
  CHECK(batch.at_once(13) == 5);
  CHECK(batch.at_once(1000) == 1);
  CHECK(BatchOptions{.global_batch_size = 7, .grad_accumulation = 3}.at_once() == 3);  // of parts of 3, 2 and 2
  const Numbers numbers;                                                               // 7
  Loaders loaders(numbers, numbers, {}, {.global_batch_size = 6, .grad_accumulation = 2}, 3, Device{});
  CHECK(loaders.valid().loader().batches_per_epoch() == 3);
  CHECK(loaders.judged(numbers, 5).loader().batches_per_epoch() == 2);
  CHECK(loaders.judged(numbers).loader().batches_per_epoch() == 3);
}

TEST_CASE("loaders: a batch, or a part of it, that ranks or data are too few for is refused with all its numbers") {
  const BatchOptions batch{.global_batch_size = 12, .grad_accumulation = 4};
  CHECK(batch.cut(2, 3).rank == 2);
  CHECK_THROWS_WITH(batch.cut(0, 4),
                    "global_batch_size (12) must be at least the 4 data-parallel ranks times grad_accumulation (4)");
  const Numbers numbers;
  CHECK_NOTHROW(BatchOptions{.global_batch_size = 7}.check_fits(numbers));
  CHECK_THROWS_WITH(BatchOptions{.global_batch_size = 8}.check_fits(numbers),
                    "global_batch_size is 8, but the training set, numbers, has 7 samples only");
}

#if ISOBAR_HAS_EMULATOR

TEST_CASE("loaders: what was read ahead is what would have been read, and counts as not read yet") {
  constexpr Device kEmulator{DeviceKind::emulator};
  const Numbers numbers;
  for (const std::int64_t workers : {0, 2}) {
    Loaders plain = loaders_of(numbers, Device{}), ahead = loaders_of(numbers, kEmulator, workers);
    const StreamScope scope(std::make_shared<gpu::OwnedStream>(kEmulator));
    std::vector<std::vector<double>> seen;
    for (int i = 0; i < 8; ++i) {  // two epochs and two batches
      INFO("batch " << i << ", " << workers << " workers");
      CHECK(ahead.cursor() == plain.cursor());
      const std::shared_ptr<const LoadedBatch> expected = plain.next(), batch = ahead.next();
      const Cursor behind = ahead.cursor();
      ahead.read_ahead();
      ahead.read_ahead();  // once is enough
      CHECK(ahead.cursor() == behind);
      CHECK(batch->at == expected->at);
      CHECK(batch->samples == expected->samples);
      CHECK(batch->tensors.at("x").device() == kEmulator);
      seen.push_back(batch->tensors.at("x").to_vector());
      CHECK(seen.back() == expected->tensors.at("x").to_vector());
    }
    CHECK(seen[7] == std::vector<double>{12, 13});
    ahead.seek({5, 2});  // drops what was read ahead
    CHECK(ahead.next()->tensors.at("x").to_vector() == std::vector<double>{14, 15});
    ahead.read_ahead();
    ahead.use(numbers);  // what was read ahead is read again, as the new view has it
    CHECK(ahead.next()->tensors.at("x").to_vector() == std::vector<double>{10, 11});
  }
}

TEST_CASE("loaders: an error met ahead is thrown where its batch is asked for") {
  constexpr Device kEmulator{DeviceKind::emulator};
  const Numbers damaged(true);
  Loaders loaders = loaders_of(damaged, kEmulator);
  loaders.next();
  loaders.read_ahead();
  CHECK(loaders.cursor() == Cursor{0, 1});
  CHECK_THROWS_WITH(loaders.next(), "sample 3 is damaged");
}

#endif

}  // namespace isobar
