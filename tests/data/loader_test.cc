// The loader gives the same batches in the same order whatever its threads do, and ends cleanly when something fails.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "data/batch_cut.h"
#include "data/fields/pairs.h"
#include "data/loader.h"
#include "data/sampler.h"
#include "kernels/common/check.h"
#include "tests/harness/data_files.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;

namespace {

// Two years of 7 and 5 steps: ten pairs.
class TwoYears {
 public:
  TwoYears() {
    testing::write_fields(folder_ / "2001.h5", {7, 2, 3, 4}, 10000);
    testing::write_fields(folder_ / "2002.h5", {5, 2, 3, 4}, 20000, {.chunk = {2, 1, 3, 4}, .deflate = 1});
    steps_.emplace(FieldSeriesOptions{.paths = {folder_.path()}});
  }
  const FieldSeries& steps() const { return *steps_; }

 private:
  testing::TemporaryFolder folder_;
  std::optional<FieldSeries> steps_;
};

Sampler sampler_of(const Dataset& dataset, bool shuffle) {
  return Sampler(dataset.samples(), shuffle, 3);
}

// The first value of a step, which tells which step it is.
float first_value(std::int64_t step) {
  return step < 7 ? testing::field_value(10000, step, 0, 0, 0) : testing::field_value(20000, step - 7, 0, 0, 0);
}

// Checks a batch in full: every sample holds its own step and the next.
void check_batch(const LoadedBatch& batch, const PairDataset& pairs) {
  REQUIRE(batch_size(batch.tensors) == std::ssize(batch.samples));
  const auto values = static_cast<std::size_t>(pairs.steps().values());
  const float* input = tensor_of(batch.tensors, "input").data_as<float>();
  const float* target = tensor_of(batch.tensors, "target").data_as<float>();
  for (std::size_t i = 0; i < batch.samples.size(); ++i) {
    const std::int64_t step = pairs.step_of(batch.samples[i]);
    CHECK(input[i * values] == first_value(step));
    CHECK(target[i * values] == first_value(step + 1));
    std::vector<float> last(values);
    pairs.steps().read_step(step + 1, last.data());
    CHECK(target[(i + 1) * values - 1] == last.back());
  }
}

// Twenty-three samples of three tensors that tell which sample they are. Some samples cannot be read.
class Numbers : public Dataset {
 public:
  explicit Numbers(std::set<std::int64_t> damaged = {}) : damaged_(std::move(damaged)) {}
  std::string name() const override { return "numbers"; }
  std::int64_t samples() const override { return 23; }
  std::vector<TensorSpec> layout() const override {
    return {{"tokens", {5}, DType::i32}, {"a weight", {}, DType::fp64}, {"image", {2, 3}, DType::fp32}};
  }
  void read(const SampleKey& key, std::span<void* const> to) const override {
    const std::int64_t sample = key.sample;
    ISOBAR_CHECK(!damaged_.contains(sample), "sample ", sample, " is damaged");
    for (int i = 0; i < 5; ++i) static_cast<std::int32_t*>(to[0])[i] = static_cast<std::int32_t>(10 * sample + i);
    *static_cast<double*>(to[1]) = static_cast<double>(sample) / 3;
    for (int i = 0; i < 6; ++i) static_cast<float*>(to[2])[i] = static_cast<float>(-10 * sample - i);
  }

 private:
  std::set<std::int64_t> damaged_;
};

void check_numbers(const LoadedBatch& batch) {
  const std::int64_t size = std::ssize(batch.samples);
  const Tensor &tokens = tensor_of(batch.tensors, "tokens"), &weight = tensor_of(batch.tensors, "a weight");
  const Tensor& image = tensor_of(batch.tensors, "image");
  REQUIRE(batch.tensors.size() == 3);
  REQUIRE(tokens.shape() == Shape{size, 5});
  REQUIRE(weight.shape() == Shape{size});
  REQUIRE(image.shape() == Shape{size, 2, 3});
  for (std::int64_t row = 0; row < size; ++row) {
    const std::int64_t sample = batch.samples[static_cast<std::size_t>(row)];
    for (int i = 0; i < 5; ++i) CHECK(tokens.data_as<std::int32_t>()[5 * row + i] == 10 * sample + i);
    CHECK(weight.data_as<double>()[row] == static_cast<double>(sample) / 3);
    for (int i = 0; i < 6; ++i) CHECK(image.data_as<float>()[6 * row + i] == static_cast<float>(-10 * sample - i));
  }
}

std::vector<std::int64_t> next_samples(Loader& loader, int batches) {
  std::vector<std::int64_t> samples;
  for (int i = 0; i < batches; ++i) {
    const auto batch = loader.next();
    samples.insert(samples.end(), batch->samples.begin(), batch->samples.end());
  }
  return samples;
}

}  // namespace

TEST_CASE("loader: any data set's tensors, for any number of workers, in a smaller last batch too") {
  const Numbers numbers;
  const Sampler sampler = sampler_of(numbers, true);
  for (std::int64_t workers : {0, 1, 4}) {
    Loader loader(numbers, sampler, {.cut = {.batch = 6, .keeps_incomplete = true}, .workers = workers});
    REQUIRE(loader.batches_per_epoch() == 4);
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<std::int64_t> samples;
      for (std::size_t size : {6, 6, 6, 5}) {
        const auto batch = loader.next();
        REQUIRE(batch->samples.size() == size);
        check_numbers(*batch);
        samples.insert(samples.end(), batch->samples.begin(), batch->samples.end());
      }
      CHECK(samples == sampler.order(epoch));
    }
  }
}

TEST_CASE("loader: the errors of any data set come with their batch, the first sample's first") {
  const Numbers numbers({8, 10});
  for (std::int64_t workers : {0, 3}) {
    Loader loader(numbers, sampler_of(numbers, false), {.cut = {.batch = 6}, .workers = workers});
    check_numbers(*loader.next());
    CHECK_THROWS_WITH(loader.next(), ContainsSubstring("sample 8 is damaged"));
    const auto third = loader.next();
    CHECK(third->at == Cursor{0, 2});
    check_numbers(*third);
  }
}

TEST_CASE("loader: an error met before the first sample of a batch is read comes with that batch") {
  class TooMany : public Numbers {
    std::int64_t samples() const override { return 300'000'000; }  // whose random order is out of reach
  };
  const TooMany numbers;
  for (const std::int64_t workers : {0, 1, 3}) {
    Loader loader(numbers, Sampler(300'000'000, true), {.cut = {.batch = 6}, .workers = workers});
    for (int i = 0; i < 5; ++i) {
      CHECK(loader.cursor() == Cursor{0, i});
      CHECK_THROWS_WITH(loader.next(), "a random order of 300000000 samples is out of reach");
    }
    loader.seek({1, 7});
    CHECK_THROWS_WITH(loader.next(), ContainsSubstring("is out of reach"));
    CHECK(loader.cursor() == Cursor{1, 8});
  }
}

TEST_CASE("loader: the sampler's order and the right fields, for any number of workers") {
  const TwoYears years;
  const PairDataset dataset(years.steps());
  const Sampler sampler = sampler_of(dataset, true);
  std::vector<std::int64_t> expected;
  for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
    const auto order = sampler.order(epoch);
    expected.insert(expected.end(), order.begin(), order.begin() + 9);  // three batches of three, one sample is dropped
  }
  for (std::int64_t workers : {0, 1, 4}) {
    Loader loader(dataset, sampler, {.cut = {.batch = 3}, .workers = workers, .read_ahead = 2});
    CHECK(loader.batches_per_epoch() == 3);
    std::vector<std::int64_t> samples;
    for (std::int64_t i = 0; i < 15; ++i) {
      CHECK(loader.cursor() == Cursor{i / 3, i % 3});
      const auto batch = loader.next();
      CHECK(batch->at == Cursor{i / 3, i % 3});
      CHECK_FALSE(batch->tensors.contains("time"));
      check_batch(*batch, dataset);
      samples.insert(samples.end(), batch->samples.begin(), batch->samples.end());
    }
    CHECK(samples == expected);
  }
}

TEST_CASE("loader: validation visits every sample, in a smaller last batch") {
  const TwoYears years;
  const PairDataset dataset(years.steps());
  for (std::int64_t workers : {0, 2}) {
    Loader loader(dataset, sampler_of(dataset, false),
                  {.cut = {.batch = 4, .keeps_incomplete = true}, .workers = workers});
    CHECK(loader.batches_per_epoch() == 3);
    CHECK(next_samples(loader, 6) ==
          std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  }
}

TEST_CASE("loader: a cursor set anew gives what an undisturbed loader gives there") {
  const TwoYears years;
  const PairDataset dataset(years.steps());
  for (std::int64_t workers : {0, 3}) {
    const LoaderOptions options{.cut = {.batch = 2}, .workers = workers, .read_ahead = 3};
    Loader whole(dataset, sampler_of(dataset, true), options), resumed(dataset, sampler_of(dataset, true), options);
    next_samples(whole, 8);
    const auto held = resumed.next();
    resumed.seek({1, 3});
    CHECK(next_samples(resumed, 9) == next_samples(whole, 9));
    resumed.seek({0, 5});  // the end of an epoch is the beginning of the next
    CHECK(resumed.cursor() == Cursor{1, 0});
    CHECK_THROWS_AS(resumed.seek({0, 6}), Error);
    check_batch(*held, dataset);
  }
}

TEST_CASE("loader: time features of the input steps") {
  const TwoYears years;
  const PairDataset dataset(years.steps(), {.time_features = true});
  Loader loader(dataset, sampler_of(dataset, true), {.cut = {.batch = 5}, .workers = 2});
  const auto batch = loader.next();
  const Tensor& time = tensor_of(batch->tensors, "time");
  REQUIRE(time.shape() == Shape{5, kTimeFeatures});
  for (std::size_t i = 0; i < 5; ++i) {
    const auto features = years.steps().time_of(dataset.step_of(batch->samples[i])).features();
    for (std::size_t k = 0; k < 4; ++k) CHECK(time.data_as<double>()[4 * i + k] == features[k]);
  }
}

TEST_CASE("loader: an error met by a worker reaches the caller with its batch, and reading goes on") {
  const testing::TemporaryFolder folder;
  std::vector<float> values = testing::field_values({12, 1, 2, 2});
  values[4 * 5] = std::numeric_limits<float>::quiet_NaN();
  testing::write_fields(folder / "2001.h5", {12, 1, 2, 2}, values);
  const FieldSeries steps({.paths = {folder / "2001.h5"}});
  const PairDataset dataset(steps);
  for (std::int64_t workers : {0, 3}) {
    Loader loader(dataset, sampler_of(dataset, false), {.cut = {.batch = 2}, .workers = workers});
    CHECK(next_samples(loader, 2) == std::vector<std::int64_t>{0, 1, 2, 3});
    CHECK_THROWS_WITH(loader.next(), ContainsSubstring("2001.h5: step 5, channel 0 holds NaN"));
    CHECK(next_samples(loader, 2) == std::vector<std::int64_t>{6, 7, 8, 9});
  }
}

TEST_CASE("loader: of several errors in a batch the first sample's is told") {
  const testing::TemporaryFolder folder;
  std::vector<float> values = testing::field_values({12, 1, 2, 2});
  for (std::size_t step : {4, 6, 8}) values[4 * step] = std::numeric_limits<float>::quiet_NaN();
  testing::write_fields(folder / "2001.h5", {12, 1, 2, 2}, values);
  const FieldSeries steps({.paths = {folder / "2001.h5"}});
  const PairDataset dataset(steps);
  for (std::int64_t workers : {0, 3}) {
    Loader loader(dataset, sampler_of(dataset, false), {.cut = {.batch = 8}, .workers = workers});
    CHECK_THROWS_WITH(loader.next(), ContainsSubstring("2001.h5: step 4, channel 0 holds NaN"));
  }
}

TEST_CASE("loader: impossible batches are refused") {
  const TwoYears years;
  const PairDataset dataset(years.steps());
  const std::int64_t samples = dataset.samples();
  CHECK_THROWS_WITH(Loader(dataset, Sampler(samples, true), {.cut = {.batch = 11}}),
                    "a batch of 11 samples is larger than the 10 samples of " + dataset.name());
  CHECK_THROWS_WITH(Loader(dataset, Sampler(samples, true), {.cut = {.batch = 12, .parts = 3, .rank = 1, .ranks = 4}}),
                    ContainsSubstring("a batch of 12 samples is larger than the 10 samples"));
  CHECK_THROWS_WITH(Loader(dataset, Sampler(samples, true), {.cut = {.batch = 2, .rank = 3, .ranks = 3}}),
                    ContainsSubstring("rank 3 is not one of 3"));
  CHECK_THROWS_WITH(Loader(dataset, Sampler(samples, true), {.cut = {.batch = 0}}),
                    "a batch needs at least one sample and one part, not 0 and 1");
  CHECK_THROWS_WITH(Loader(dataset, Sampler(samples, true), {.cut = {.batch = 4, .parts = 0}}),
                    "a batch needs at least one sample and one part, not 4 and 0");
  CHECK_THROWS_WITH(Loader(dataset, Sampler(samples, true), {.cut = {.batch = 2, .rank = -1, .ranks = 3}}),
                    "rank -1 is not one of 3");
  CHECK_THROWS_WITH(Loader(dataset, Sampler(9, true), {}),
                    "a sampler of 9 samples is not for the 10 of " + dataset.name());
  CHECK_THROWS_WITH(Loader(dataset, Sampler(samples, true), {.workers = -1, .read_ahead = 3}),
                    "the loader cannot have -1 workers that read 3 batches ahead");
  CHECK_THROWS_WITH(Loader(dataset, Sampler(samples, true), {.workers = 2, .read_ahead = 0}),
                    "the loader cannot have 2 workers that read 0 batches ahead");
  Loader whole(dataset, Sampler(samples, true), {.cut = {.batch = 10}});
  CHECK(whole.batches_per_epoch() == 1);
  CHECK_THROWS_WITH(whole.seek({3, 2}), "the loader has no batch 2 of epoch 3: an epoch has 1 batches");
  CHECK_THROWS_AS(whole.seek({3, -1}), Error);
  CHECK_THROWS_AS(whole.seek({-1, 0}), Error);
}

TEST_CASE("loader: a set without samples has no batches, and says so when one is asked for") {
  class None : public Numbers {
    std::int64_t samples() const override { return 0; }
    std::string name() const override { return "nothing"; }
  };
  const None none;
  Loader loader(none, Sampler(0, true), {.cut = {.batch = 6, .keeps_incomplete = true}, .workers = 1});
  CHECK(loader.batches_per_epoch() == 0);
  CHECK_THROWS_WITH(loader.next(), "nothing has no samples");
  CHECK_THROWS_WITH(Loader(none, Sampler(0, true), {.cut = {.batch = 6}}),
                    "a batch of 6 samples is larger than the 0 samples of nothing");
}

TEST_CASE("loader: ranks together visit an epoch's whole batches in the common order") {
  const TwoYears years;
  const PairDataset dataset(years.steps());
  const std::int64_t samples = dataset.samples();
  const auto order = Sampler(samples, true, 9).order(0);
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    Loader loader(dataset, Sampler(samples, true, 9), {.cut = {.batch = 9, .rank = rank, .ranks = 3}});
    CHECK(loader.batches_per_epoch() == 1);
    const auto at = static_cast<std::size_t>(rank);
    CHECK(next_samples(loader, 1) == std::vector<std::int64_t>{order[at], order[at + 3], order[at + 6]});
  }
}

TEST_CASE("loader: parts and ranks that do not divide a batch share it as evenly as they go, the last one too") {
  const Numbers numbers;  // 23: three batches of 7 in parts of 3, 2 and 2, and one of 2 in parts of 1, 1 and none
  const auto order = Sampler(23, true, 3).order(1);
  for (const bool keeps_incomplete : {false, true})
    for (const std::int64_t workers : {0, 3}) {
      std::vector<std::int64_t> sizes, missing;
      std::vector<std::vector<std::int64_t>> seen;  // of a part, those of rank 0 and of rank 1
      for (std::int64_t rank = 0; rank < 2; ++rank) {
        Loader loader(numbers, Sampler(23, true, 3),
                      {.cut = {.batch = 7, .parts = 3, .keeps_incomplete = keeps_incomplete, .rank = rank, .ranks = 2},
                       .workers = workers});
        REQUIRE(loader.batches_per_epoch() == (keeps_incomplete ? 12 : 9));
        loader.seek({1, 0});
        for (std::int64_t part = 0; part < loader.batches_per_epoch(); ++part) {
          const auto batch = loader.next();
          CHECK(batch->at == Cursor{1, part});
          CHECK(batch->missing == (part < 9 ? 0 : 5));
          check_numbers(*batch);
          seen.push_back(batch->samples);
        }
      }
      const std::size_t parts = seen.size() / 2;
      std::vector<std::int64_t> together;
      for (std::size_t part = 0; part < parts; ++part) {
        const auto &first = seen[part], &second = seen[parts + part];
        const std::size_t size = first.size() + second.size();
        CHECK(size == (part < 9 ? (part % 3 == 0 ? 3U : 2U) : (part < 11 ? 1U : 0U)));
        for (std::size_t i = 0; i < size; ++i) together.push_back(i % 2 == 0 ? first.at(i / 2) : second.at(i / 2));
      }
      CHECK(together == std::vector<std::int64_t>(order.begin(), order.begin() + (keeps_incomplete ? 23 : 21)));
    }
}

namespace {

// Sample s is `size` numbers in a row of those from 100 s on; where they begin is drawn from its key.
class Crops : public Dataset {
 public:
  explicit Crops(std::int64_t size, std::int64_t samples = 23) : size_(size), samples_(samples) {}
  std::string name() const override { return "crops"; }
  std::int64_t samples() const override { return samples_; }
  std::vector<TensorSpec> layout() const override { return {{"crop", {size_}, DType::i32}}; }
  void read(const SampleKey& key, std::span<void* const> to) const override {
    const std::int64_t first = 100 * key.sample + key.random_below(90, 0);
    for (std::int64_t i = 0; i < size_; ++i)
      static_cast<std::int32_t*>(to[0])[i] = static_cast<std::int32_t>(first + i);
  }

 private:
  std::int64_t size_, samples_;
};

using CropOf = std::map<std::pair<std::int64_t, std::int64_t>, double>;  // (epoch, sample) -> where its crop begins

// What `ranks` ranks read from `from` up to `to`, whose batches are whole ones; by default to the end of epoch 1.
CropOf crops_of(std::int64_t ranks, std::int64_t parts, std::int64_t workers, std::uint64_t seed = 3, Cursor from = {},
                Cursor to = {2, 0}) {
  const Crops crops(4);
  CropOf begin;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    Loader loader(crops, Sampler(23, true, seed),
                  {.cut = {.batch = 6, .parts = parts, .keeps_incomplete = true, .rank = rank, .ranks = ranks},
                   .workers = workers});
    loader.seek({from.epoch, from.batch * parts});
    while (std::pair(loader.cursor().epoch, loader.cursor().batch) < std::pair(to.epoch, to.batch * parts)) {
      const auto batch = loader.next();
      const std::vector<double> values = tensor_of(batch->tensors, "crop").to_vector();
      for (std::size_t i = 0; i < batch->samples.size(); ++i) {
        CHECK(values[4 * i + 3] == values[4 * i] + 3);
        CHECK(begin.emplace(std::pair(batch->at.epoch, batch->samples[i]), values[4 * i]).second);
      }
    }
  }
  return begin;
}

}  // namespace

TEST_CASE("loader: random crops are the same on any ranks, parts and workers, and from wherever a run goes on") {
  const CropOf alone = crops_of(1, 1, 0);
  REQUIRE(alone.size() == 46);
  for (const std::int64_t ranks : {1, 2, 3})
    for (const std::int64_t parts : {1, 2})
      for (const std::int64_t workers : {0, 3}) CHECK(crops_of(ranks, parts, workers) == alone);

  const CropOf rest = crops_of(2, 2, 3, 3, {1, 1});  // the second batch of epoch 1
  CHECK(rest.size() == 23 - 6);
  for (const auto& [key, first] : rest) CHECK(alone.at(key) == first);
  for (const Cursor stop : {Cursor{0, 3}, Cursor{1, 1}})  // a run that goes on with other ranks
    for (const std::int64_t before : {1, 3})
      for (const std::int64_t after : {2, 4}) {
        CropOf both = crops_of(before, 2, 3, 3, {}, stop);
        both.merge(crops_of(after, 1, 0, 3, stop));
        CHECK(both == alone);
      }

  int moved = 0;
  for (std::int64_t sample = 0; sample < 23; ++sample) moved += alone.at({0, sample}) != alone.at({1, sample});
  CHECK(moved > 15);  // another crop in every epoch
  CHECK(crops_of(1, 1, 0, 4) != alone);
  std::set<double> places;
  for (const auto& [key, first] : alone) places.insert(static_cast<double>(static_cast<int>(first) % 100));
  CHECK(places.size() > 20);
  CHECK(*places.rbegin() < 90);
}

TEST_CASE("loader: another view of the same samples goes on where the first one was") {
  const Crops four(4), ten(10), others(4, 22);
  for (const std::int64_t workers : {0, 3}) {
    const LoaderOptions options{.cut = {.batch = 5}, .workers = workers};
    Loader loader(four, Sampler(23, true, 3), options), longer(ten, Sampler(23, true, 3), options);
    longer.seek({0, 2});
    loader.next();
    const auto held = loader.next();
    const std::vector<double> before = tensor_of(held->tensors, "crop").to_vector();
    CHECK_THROWS_WITH(loader.use(others), ContainsSubstring("a sampler of 23 samples is not for the 22 of crops"));
    CHECK(loader.cursor() == Cursor{0, 2});
    loader.use(ten);
    CHECK(loader.cursor() == Cursor{0, 2});
    for (int i = 0; i < 7; ++i) {
      const auto expected = longer.next(), batch = loader.next();
      CHECK(batch->at == expected->at);
      CHECK(batch->samples == expected->samples);
      CHECK(tensor_of(batch->tensors, "crop").shape() == Shape{5, 10});
      CHECK(tensor_of(batch->tensors, "crop").to_vector() == tensor_of(expected->tensors, "crop").to_vector());
    }
    CHECK(tensor_of(held->tensors, "crop").to_vector() == before);
    loader.use(four);
    CHECK(tensor_of(loader.next()->tensors, "crop").shape() == Shape{5, 4});
  }
}

TEST_CASE("loader: buffers come from the caller, bounded in number, and outlive the loader while they are held") {
  const TwoYears years;
  const PairDataset dataset(years.steps());
  std::atomic<int> live{0}, most{0};
  const HostAllocator counting = [&](std::size_t bytes) {
    most = std::max(most.load(), ++live);
    return std::shared_ptr<void>(new char[bytes], [&](void* memory) {
      --live;
      delete[] static_cast<char*>(memory);
    });
  };
  std::shared_ptr<const LoadedBatch> kept;
  {
    Loader loader(dataset, sampler_of(dataset, true),
                  {.cut = {.batch = 2}, .workers = 3, .read_ahead = 2, .allocator = counting});
    next_samples(loader, 7);
    kept = loader.next();
    next_samples(loader, 3);
  }
  CHECK(most == 6);
  check_batch(*kept, dataset);
  CHECK(live == 6);
  kept.reset();
  CHECK(live == 0);

  Loader stingy(dataset, sampler_of(dataset, true), {.cut = {.batch = 2}, .read_ahead = 1});
  const auto one = stingy.next(), two = stingy.next();
  CHECK_THROWS_WITH(stingy.next(), "the loader's 2 buffers are all held by the caller");
}

TEST_CASE("loader: what was allocated is freed where an allocation fails") {
  const Numbers numbers;
  int live = 0;
  const HostAllocator failing = [&](std::size_t bytes) {
    ISOBAR_CHECK(++live < 5, "no more pinned memory");
    return std::shared_ptr<void>(new char[bytes], [&](void* memory) {
      --live;
      delete[] static_cast<char*>(memory);
    });
  };
  CHECK_THROWS_WITH(Loader(numbers, sampler_of(numbers, false), {.workers = 2, .allocator = failing}),
                    ContainsSubstring("no more pinned memory"));
  CHECK(live == 1);  // the one that failed
}

TEST_CASE("loader: batches are not counted as memory of the engine") {
  const Numbers numbers;
  const std::size_t before = memory_bytes();
  Loader loader(numbers, sampler_of(numbers, false), {.cut = {.batch = 4}});
  const auto batch = loader.next();
  CHECK(memory_bytes() == before);
}

TEST_CASE("loader: ends at once while its workers are busy, however often") {
  const TwoYears years;
  const PairDataset dataset(years.steps());
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) {
    Loader loader(dataset, sampler_of(dataset, true), {.cut = {.batch = 2}, .workers = 4, .read_ahead = 3});
    if (i % 3 == 0) loader.next();
    if (i % 5 == 0) loader.seek({i, 1});
  }
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
}

TEST_CASE("loader: parts of a batch one after another, the larger ones first, and those of an incomplete batch") {
  const BatchCut cut{.batch = 7, .parts = 3, .keeps_incomplete = true};
  std::vector<std::pair<std::int64_t, std::int64_t>> parts;
  for (std::int64_t index = 0; index < 12; ++index) {
    const Part part = cut.part(23, index);
    parts.emplace_back(part.begin, part.end);
  }
  CHECK(parts == std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 3},
                                                                    {3, 5},
                                                                    {5, 7},
                                                                    {7, 10},
                                                                    {10, 12},
                                                                    {12, 14},
                                                                    {14, 17},
                                                                    {17, 19},
                                                                    {19, 21},
                                                                    {21, 22},
                                                                    {22, 23},
                                                                    {23, 23}});
  CHECK(cut.batch_size(23, 2) == 7);
  CHECK(cut.batch_size(23, 3) == 2);
}

TEST_CASE("loader: batches of an epoch, with and without what is left over") {
  const BatchCut drops{.batch = 7}, keeps{.batch = 7, .keeps_incomplete = true};
  for (const auto& [samples, whole, all] :
       {std::tuple(0, 0, 0), std::tuple(6, 0, 1), std::tuple(7, 1, 1), std::tuple(8, 1, 2), std::tuple(21, 3, 3)}) {
    CHECK(drops.batches(samples) == whole);
    CHECK(keeps.batches(samples) == all);
  }
}

TEST_CASE("loader: a rank's samples of a part are every so many-th") {
  const auto own = [](std::int64_t total) {
    std::vector<std::int64_t> counts;
    for (std::int64_t rank = 0; rank < 3; ++rank) counts.push_back(BatchCut{.rank = rank, .ranks = 3}.own(total));
    return counts;
  };
  using Counts = std::vector<std::int64_t>;
  CHECK(own(0) == Counts{0, 0, 0});
  CHECK(own(1) == Counts{1, 0, 0});
  CHECK(own(2) == Counts{1, 1, 0});
  CHECK(own(3) == Counts{1, 1, 1});
  CHECK(own(7) == Counts{3, 2, 2});
  const BatchCut cut{.batch = 11, .parts = 2, .rank = 1, .ranks = 4};  // parts of six and of five
  CHECK(cut.largest_part() == 2);
  CHECK(BatchCut{.batch = 11, .parts = 2, .rank = 2, .ranks = 4}.largest_part() == 1);
}
