// The loader gives the same batches in the same order whatever its threads do, and ends cleanly when something fails.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "data/era5/era5.h"
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
  }
  Era5Dataset open() const { return Era5Dataset({.paths = {folder_.path()}}); }

 private:
  testing::TemporaryFolder folder_;
};

Sampler sampler_of(const Era5Dataset& dataset, bool shuffle) {
  return Sampler(list_samples(dataset, SamplerKind::all_pairs), shuffle, 3);
}

// The first value of a step, which tells which step it is.
float first_value(std::int64_t step) {
  return step < 7 ? testing::field_value(10000, step, 0, 0, 0) : testing::field_value(20000, step - 7, 0, 0, 0);
}

// Checks a batch in full: every sample holds its own step and the next.
void check_batch(const Batch& batch, const Era5Dataset& dataset) {
  REQUIRE(batch.size == static_cast<std::int64_t>(batch.samples.size()));
  for (std::size_t i = 0; i < batch.samples.size(); ++i) {
    const auto values = static_cast<std::size_t>(dataset.values());
    CHECK(batch.input[i * values] == first_value(batch.samples[i]));
    CHECK(batch.target[i * values] == first_value(batch.samples[i] + 1));
    std::vector<float> last(values);
    dataset.read_step(batch.samples[i] + 1, last.data());
    CHECK(batch.target[(i + 1) * values - 1] == last.back());
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

TEST_CASE("loader: the sampler's order and the right fields, for any number of workers") {
  const TwoYears years;
  const Era5Dataset dataset = years.open();
  const Sampler sampler = sampler_of(dataset, true);
  std::vector<std::int64_t> expected;
  for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
    const auto order = sampler.order(epoch);
    expected.insert(expected.end(), order.begin(), order.begin() + 9);  // three batches of three, one sample is dropped
  }
  for (std::int64_t workers : {0, 1, 4}) {
    Loader loader(dataset, sampler, {.batch_size = 3, .workers = workers, .read_ahead = 2});
    CHECK(loader.batches_per_epoch() == 3);
    CHECK(loader.samples_per_epoch() == 9);
    std::vector<std::int64_t> samples;
    for (std::int64_t i = 0; i < 15; ++i) {
      CHECK(loader.cursor() == Cursor{i / 3, i % 3});
      const auto batch = loader.next();
      CHECK(batch->at == Cursor{i / 3, i % 3});
      CHECK(batch->time_features.empty());
      check_batch(*batch, dataset);
      samples.insert(samples.end(), batch->samples.begin(), batch->samples.end());
    }
    CHECK(samples == expected);
  }
}

TEST_CASE("loader: validation visits every sample, in a smaller last batch") {
  const TwoYears years;
  const Era5Dataset dataset = years.open();
  for (std::int64_t workers : {0, 2}) {
    Loader loader(dataset, sampler_of(dataset, false), {.batch_size = 4, .workers = workers, .drop_last = false});
    CHECK(loader.batches_per_epoch() == 3);
    CHECK(loader.samples_per_epoch() == 10);
    CHECK(next_samples(loader, 6) ==
          std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 0, 1, 2, 3, 4, 5, 7, 8, 9, 10});
  }
}

TEST_CASE("loader: a cursor set anew gives what an undisturbed loader gives there") {
  const TwoYears years;
  const Era5Dataset dataset = years.open();
  for (std::int64_t workers : {0, 3}) {
    const LoaderOptions options{.batch_size = 2, .workers = workers, .read_ahead = 3};
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
  const Era5Dataset dataset = years.open();
  Loader loader(dataset, sampler_of(dataset, true), {.batch_size = 5, .workers = 2, .time_features = true});
  const auto batch = loader.next();
  REQUIRE(batch->time_features.size() == 20);
  for (std::size_t i = 0; i < 5; ++i) {
    const auto features = dataset.time_of(batch->samples[i]).features();
    for (std::size_t k = 0; k < 4; ++k) CHECK(batch->time_features[4 * i + k] == features[k]);
  }
}

TEST_CASE("loader: an error met by a worker reaches the caller with its batch, and reading goes on") {
  const testing::TemporaryFolder folder;
  std::vector<float> values = testing::field_values({12, 1, 2, 2});
  values[4 * 5] = std::numeric_limits<float>::quiet_NaN();
  testing::write_fields(folder / "2001.h5", {12, 1, 2, 2}, values);
  const Era5Dataset dataset({.paths = {folder / "2001.h5"}});
  for (std::int64_t workers : {0, 3}) {
    Loader loader(dataset, sampler_of(dataset, false), {.batch_size = 2, .workers = workers});
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
  const Era5Dataset dataset({.paths = {folder / "2001.h5"}});
  for (std::int64_t workers : {0, 3}) {
    Loader loader(dataset, sampler_of(dataset, false), {.batch_size = 8, .workers = workers});
    CHECK_THROWS_WITH(loader.next(), ContainsSubstring("2001.h5: step 4, channel 0 holds NaN"));
  }
}

TEST_CASE("loader: impossible batches are refused") {
  const TwoYears years;
  const Era5Dataset dataset = years.open();
  const auto samples = list_samples(dataset, SamplerKind::all_pairs);
  CHECK_THROWS_WITH(Loader(dataset, Sampler(samples, true), {.batch_size = 11}),
                    ContainsSubstring("a batch of 11 samples is larger than the 10 samples of"));
  CHECK_THROWS_WITH(Loader(dataset, Sampler(samples, true, 0, 0, 4), {.batch_size = 3}),
                    ContainsSubstring("a batch of 12 samples is larger than the 10 samples"));
  CHECK_THROWS_AS(Loader(dataset, Sampler(samples, true), {.batch_size = 0}), Error);
  Loader whole(dataset, Sampler(samples, true), {.batch_size = 10});
  CHECK(whole.batches_per_epoch() == 1);
}

TEST_CASE("loader: ranks together visit an epoch's whole batches in the common order") {
  const TwoYears years;
  const Era5Dataset dataset = years.open();
  const auto samples = list_samples(dataset, SamplerKind::all_pairs);
  const auto order = Sampler(samples, true, 9).order(0);
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    Loader loader(dataset, Sampler(samples, true, 9, rank, 3), {.batch_size = 3});
    CHECK(loader.batches_per_epoch() == 1);
    const auto at = static_cast<std::size_t>(rank);
    CHECK(next_samples(loader, 1) == std::vector<std::int64_t>{order[at], order[at + 3], order[at + 6]});
  }
}

TEST_CASE("loader: buffers come from the caller, bounded in number, and outlive the loader while they are held") {
  const TwoYears years;
  const Era5Dataset dataset = years.open();
  std::atomic<int> live{0}, most{0};
  const BufferAllocator counting{[&](std::size_t values) {
                                   most = std::max(most.load(), ++live);
                                   return new float[values];
                                 },
                                 [&](float* buffer) {
                                   --live;
                                   delete[] buffer;
                                 }};
  std::shared_ptr<const Batch> kept;
  {
    Loader loader(dataset, sampler_of(dataset, true),
                  {.batch_size = 2, .workers = 3, .read_ahead = 2, .allocator = counting});
    next_samples(loader, 7);
    kept = loader.next();
    next_samples(loader, 3);
  }
  CHECK(most == 6);
  check_batch(*kept, dataset);
  CHECK(live == 6);
  kept.reset();
  CHECK(live == 0);

  Loader stingy(dataset, sampler_of(dataset, true), {.batch_size = 2, .read_ahead = 1});
  const auto one = stingy.next(), two = stingy.next();
  CHECK_THROWS_WITH(stingy.next(), ContainsSubstring("held by the caller"));
}

TEST_CASE("loader: ends at once while its workers are busy, however often") {
  const TwoYears years;
  const Era5Dataset dataset = years.open();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) {
    Loader loader(dataset, sampler_of(dataset, true), {.batch_size = 2, .workers = 4, .read_ahead = 3});
    if (i % 3 == 0) loader.next();
    if (i % 5 == 0) loader.seek({i, 1});
  }
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
}
