// The batch that grows: sizes that Megatron-LM's rule gives, step by step.
#include "apps/train/batch_ramp.h"

#include <vector>

#include "apps/train/loaders.h"
#include "tests/harness/testing.h"

using namespace isobar;

namespace {

std::vector<std::int64_t> first_batches(const BatchRamp& ramp, std::int64_t count) {
  std::vector<std::int64_t> batches;
  for (std::int64_t i = 0; i < count; ++i) batches.push_back(ramp.batch_after(i));
  return batches;
}

}  // namespace

TEST_CASE("batch ramp: a constant batch") {
  const BatchRamp ramp(7);
  CHECK(first_batches(ramp, 3) == std::vector<std::int64_t>{7, 7, 7});
  CHECK(ramp.samples_of(5) == 35);
  CHECK(ramp.iterations_for(36) == 5);
}

TEST_CASE("batch ramp: grows by samples, not by iterations") {
  const BatchRamp ramp(16, 4, 4, 40);
  CHECK(first_batches(ramp, 9) == std::vector<std::int64_t>{4, 4, 4, 4, 8, 8, 12, 16, 16});
  CHECK(ramp.samples_of(7) == 44);
  CHECK(ramp.samples_of(9) == 76);
  CHECK(ramp.iterations_for(200) == 16);  // 156 samples behind the ramp are 9 batches, and a part that is left out
  CHECK(first_batches(BatchRamp(4, 2, 1, 7), 5) == std::vector<std::int64_t>{2, 2, 3, 4, 4});
  const BatchRamp large(1024, 16, 8, 300000);  // the example of Megatron-LM's help
  CHECK(large.samples_of(1319) == 300096);
  CHECK(large.batch_after(1319) == 1024);
  CHECK(large.iterations_for(1000000) == 1319 + 683);
  CHECK(first_batches(BatchRamp(8, 8, 4, 100), 2) == std::vector<std::int64_t>{8, 8});
}

TEST_CASE("batch ramp: as a config key, which must fit the batch and its parts") {
  BatchOptions batch{.global_batch_size = 16, .grad_accumulation = 4};
  const auto refusal = [&](std::vector<double> ramp) {
    batch.batch_rampup = std::move(ramp);
    try {
      batch.keys().check({});
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refusal({4, 4, 40}).empty());
  CHECK(batch.after(0).global_batch_size == 4);
  CHECK(batch.after(0).grad_accumulation == 1);
  CHECK(batch.after(6).grad_accumulation == 3);
  CHECK(batch.after(7).grad_accumulation == 4);
  CHECK_THAT(refusal({4, 5, 40}), testing::ContainsSubstring("from 4 by 5 the batch does not reach 16"));
  CHECK_THAT(refusal({6, 2, 40}), testing::ContainsSubstring("must be multiples of a part, of 4 samples"));
  CHECK_THAT(refusal({4, 6, 40}), testing::ContainsSubstring("4 and 6 must be multiples of a part, of 4 samples"));
  CHECK_THAT(refusal({4, 4}), testing::ContainsSubstring("must be three whole numbers"));
  CHECK_THAT(refusal({4, 4.5, 40}), testing::ContainsSubstring("must be three whole numbers"));
  CHECK(refusal({8, 8, (1 << 24) - 1}).empty());
  CHECK_THAT(refusal({8, 8, 1 << 24}), testing::ContainsSubstring("must be three whole numbers"));
  CHECK_THAT(refusal({4, 4, 40.5}), testing::ContainsSubstring("must be three whole numbers"));
  batch.incomplete_batch = IncompleteBatch::keep;
  CHECK_THAT(refusal({4, 4, 40}), testing::ContainsSubstring("batch_rampup does not fit incomplete_batch keep"));
  CHECK(refusal({16, 4, 40}).empty());  // it does not grow
  batch = {.global_batch_size = 16, .grad_accumulation = 3};
  CHECK_THAT(refusal({6, 5, 40}), testing::ContainsSubstring("must be multiples of a part, of 5 samples"));
  batch = {.global_batch_size = 16, .grad_accumulation = 4};
  CHECK_THAT(refusal({32, 4, 40}), testing::ContainsSubstring("the batch does not reach 16"));
}
