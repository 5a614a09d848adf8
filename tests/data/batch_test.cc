// Batches of named tensors: made from a layout, filled row by row, copied to a device.
#include "data/batch.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/common/check.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

const std::vector<TensorSpec> kLayout{{"x", {2, 3}, DType::fp32}, {"id", {}, DType::i32}};

// x counts up from 100 times the sample; id is the sample.
class Counting : public Dataset {
 public:
  std::string name() const override { return "counting"; }
  std::int64_t samples() const override { return 9; }
  std::vector<TensorSpec> layout() const override { return kLayout; }
  void read(const SampleKey& key, std::span<void* const> to) const override {
    const std::int64_t sample = key.sample;
    for (int i = 0; i < 6; ++i) static_cast<float*>(to[0])[i] = static_cast<float>(100 * sample + i);
    *static_cast<std::int32_t*>(to[1]) = static_cast<std::int32_t>(sample);
  }
};

TEST_CASE("a batch of chosen samples", "[batch]") {
  const Batch batch = read_batch(Counting(), std::array<std::int64_t, 3>{7, 0, 8});
  CHECK(batch_size(batch) == 3);
  CHECK(tensor_of(batch, "x").shape() == Shape{3, 2, 3});
  CHECK(tensor_of(batch, "id").to_vector() == std::vector<double>{7, 0, 8});
  CHECK(tensor_of(batch, "x").to_vector() ==
        std::vector<double>{700, 701, 702, 703, 704, 705, 0, 1, 2, 3, 4, 5, 800, 801, 802, 803, 804, 805});
  CHECK_THROWS_WITH(tensor_of(batch, "y"), "the data set gives no tensor y");
  CHECK_THROWS_WITH(batch_size({}), "a batch without tensors has no size");
  CHECK(samples_of(batch, "x", {2, 3}).data() == tensor_of(batch, "x").data());
  CHECK_THROWS_WITH(samples_of(batch, "x", {3, 2}),
                    "the data set's x has the shape [3, 2, 3], but the model needs [3, 3, 2]");
}

TEST_CASE("a layout without tensors, or with two of one name, makes no batch", "[batch]") {
  CHECK_THROWS_WITH(empty_batch({}, 3), "the samples of the data set have no tensors");
  CHECK_THROWS_WITH(empty_batch({{"x", {2}, DType::fp32}, {"x", {3}, DType::fp32}}, 3),
                    "the samples of the data set have two tensors x");
}

TEST_CASE("a batch takes another's values only if that has the same tensors, and is itself where it already is",
          "[batch]") {
  const Batch two = read_batch(Counting(), std::array<std::int64_t, 2>{1, 2});
  Batch one = read_batch(Counting(), std::array<std::int64_t, 1>{3});
  CHECK_THROWS_WITH(copy_into(one, two), "tensor id [2] does not fit the earlier batch");
  Batch part{{"x", two.at("x")}};
  CHECK_THROWS_WITH(copy_into(part, two), "a batch of 2 tensors does not fit the earlier batch of 1");
  CHECK(on_device(two, Device{}).at("x").data() == two.at("x").data());
}

TEST_CASE("a batch on a device is a copy, and takes the values of the next batch in place", "[batch]") {
  const Batch first = read_batch(Counting(), std::array<std::int64_t, 2>{1, 2});
  const Batch second = read_batch(Counting(), std::array<std::int64_t, 2>{3, 4});
  Batch there = to_device(first, Device{});
  const void* place = there.at("x").data();
  CHECK(place != first.at("x").data());
  CHECK(there.at("x").to_vector() == first.at("x").to_vector());
  CHECK(there.at("id").dtype() == DType::i32);
  copy_into(there, second);
  CHECK(there.at("x").data() == place);
  CHECK(there.at("x").to_vector() == second.at("x").to_vector());
  CHECK(there.at("id").to_vector() == std::vector<double>{3, 4});
  CHECK(first.at("id").to_vector() == std::vector<double>{1, 2});
}

TEST_CASE("a batch of other names or shapes is not copied into an earlier one", "[batch]") {
  Batch earlier = read_batch(Counting(), std::array<std::int64_t, 2>{1, 2});
  CHECK_THROWS_WITH(copy_into(earlier, read_batch(Counting(), std::array<std::int64_t, 1>{1})),
                    ContainsSubstring("does not fit the earlier batch"));
  CHECK_THROWS_WITH(copy_into(earlier, {{"x", earlier.at("x")}}), ContainsSubstring("a batch of 1 tensors"));
  CHECK_THROWS_WITH(copy_into(earlier, {{"x", earlier.at("x")}, {"y", earlier.at("x")}}),
                    ContainsSubstring("tensor y"));
  CHECK(earlier.at("id").to_vector() == std::vector<double>{1, 2});
}

// Philox of Salmon et al. 2011, evaluated in Python: stream 2^63 + epoch, number sample · 2^32 + index.
TEST_CASE("a sample's random numbers follow from its key alone, and each set has its own", "[batch]") {
  const SampleKey key{.sample = 3, .epoch = 2, .seed = 7};
  CHECK(key.random_bits(0) == 3753586778u);
  CHECK(key.random_bits(5) == 1801565900u);
  CHECK(key.random_bits((std::uint64_t{1} << 32) - 1) == 1801283448u);
  CHECK(key.of(DataSplit::train).random_bits(5) == 1801565900u);
  CHECK(key.of(DataSplit::valid).random_bits(5) == 4266199249u);
  CHECK(key.of(DataSplit::test).random_bits(5) == 4051500300u);
  CHECK(key.random_below(10, 5) == 4);
  CHECK(key.random_below(1, 5) == 0);
  CHECK(key.random_below(std::int64_t{1} << 32, 5) == 1801565900);
  CHECK(key.random_uniform(5) == Approx(0.4194597005844116).epsilon(1e-12));
  CHECK(key.random_normal(1) == Approx(0.5913131657585122).epsilon(1e-14));
  for (const std::int64_t none : {std::int64_t{0}, std::int64_t{-1}, (std::int64_t{1} << 32) + 1})
    CHECK_THROWS_WITH(key.random_below(none, 0), "no random number below " + std::to_string(none));
  CHECK_THROWS_WITH(key.random_bits(std::uint64_t{1} << 32),
                    "a sample has 2^32 random numbers; number 4294967296 is asked for");
  const auto of_valid = [](std::int64_t sample) { return SampleKey{.sample = sample}.of(DataSplit::valid); };
  CHECK_NOTHROW(of_valid((1 << 30) - 1));
  CHECK_THROWS_WITH(of_valid(1 << 30), "a set of random samples has at most 2^30 of them");
}

TEST_CASE("a data set that is read whole has no bands, and says so", "[batch]") {
  CHECK_THROWS_WITH(Counting().band({2, 3}), "counting: samples are read whole, and not rows [2, 5) of them");
}

}  // namespace
}  // namespace isobar::testing
