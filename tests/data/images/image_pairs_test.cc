// Pairs of pictures: what is random in them is a function of set, sample, epoch and seed; files are read whole and
// checked.
#include "data/images/image_pairs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "data/files/hdf5.h"
#include "data/moments.h"
#include "tests/data/files/idx_files.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;

namespace {

struct Pair {
  std::vector<float> input, target;
  friend bool operator==(const Pair&, const Pair&) = default;
};

Pair read(const ImagePairs& set, const SampleKey& key) {
  Pair pair{std::vector<float>(static_cast<std::size_t>(numel_of(set.sizes().input()))),
            std::vector<float>(static_cast<std::size_t>(numel_of(set.sizes().target())))};
  const std::array<void*, 2> to{pair.input.data(), pair.target.data()};
  set.read(key, to);
  return pair;
}

// A file of pairs whose values tell file, sample and place.
void write_pairs(const std::string& path, std::int64_t samples, std::int64_t in, std::int64_t out, float first,
                 std::int64_t width = 3) {
  hdf5::File file = hdf5::File::create(path);
  for (const auto& [name, channels] : {std::pair("input", in), std::pair("target", out)}) {
    const std::vector<std::int64_t> shape{samples, channels, 2, width};
    std::vector<float> values(static_cast<std::size_t>(numel_of(shape)));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = first + static_cast<float>(i) + (std::string(name) == "target" ? 0.5f : 0.f);
    file.write(name, shape, values);
  }
  file.close();
}

}  // namespace

TEST_CASE("random pairs: uniform, independent, new in every epoch, and other ones in every set") {
  const PairSizes sizes{.in_channels = 2, .out_channels = 3, .height = 40, .width = 50};
  const RandomPairs train(sizes, 4, DataSplit::train), valid(sizes, 4, DataSplit::valid);
  CHECK(train.layout()[0].shape == Shape{2, 40, 50});
  CHECK(train.layout()[1].shape == Shape{3, 40, 50});
  const SampleKey key{.sample = 1, .epoch = 2, .seed = 3};
  const Pair pair = read(train, key);
  CHECK(pair == read(train, key));
  for (const SampleKey& other :
       {SampleKey{.sample = 2, .epoch = 2, .seed = 3}, SampleKey{.sample = 1, .epoch = 3, .seed = 3},
        SampleKey{.sample = 1, .epoch = 2, .seed = 4}}) {
    CHECK(read(train, other).input != pair.input);
    CHECK(read(train, other).target != pair.target);
  }
  CHECK(read(valid, {.sample = 1, .epoch = 0, .seed = 3}).input !=
        read(train, {.sample = 1, .epoch = 0, .seed = 3}).input);

  double covariance = 0;
  for (std::size_t i = 0; i < pair.input.size(); ++i) covariance += (pair.input[i] - 0.5) * (pair.target[i] - 0.5);
  CHECK(std::abs(covariance / static_cast<double>(pair.input.size())) < 4 / (12 * std::sqrt(4000.0)));
  for (const std::vector<float>& values : {pair.input, pair.target}) {
    const Moments moments = Moments::of(values);
    CHECK(std::abs(moments.mean - 0.5) < 4 / std::sqrt(12.0 * 4000));
    CHECK(std::abs(moments.deviation() - std::sqrt(1 / 12.0)) < 0.01);
    CHECK(*std::ranges::min_element(values) >= 0);
    CHECK(*std::ranges::max_element(values) < 1);
  }
  CHECK_THROWS_WITH(read(train, {.sample = 4}), "the random images: sample 4 of 4 is asked for");
}

TEST_CASE("noisy pairs: the target is the image, and the noise is normal, fresh and not stored") {
  const testing::TemporaryFolder folder;
  std::string pixels;
  for (int i = 0; i < 3 * 40 * 50; ++i) pixels += static_cast<char>(i % 256);
  testing::write_images(folder.path(), "train", {40, 50, pixels, std::string(3, '\0')});
  const std::string path = folder / "train-images-idx3-ubyte";
  constexpr double kSigma = 0.5;
  const NoisyPairs set(path, kSigma, DataSplit::train, 2);
  CHECK(set.samples() == 2);
  CHECK(set.name() == path);
  const Pair pair = read(set, {.sample = 1, .epoch = 5, .seed = 7}),
             later = read(set, {.sample = 1, .epoch = 6, .seed = 7});
  CHECK(pair.target == later.target);
  CHECK(pair.input != later.input);
  std::vector<float> noise;
  for (std::size_t i = 0; i < pair.target.size(); ++i) {
    CHECK(pair.target[i] == static_cast<float>((2000 + i) % 256) / 255.f);
    noise.push_back(pair.input[i] - pair.target[i]);
  }
  const Moments moments = Moments::of(noise);
  CHECK(std::abs(moments.mean) < 4 * kSigma / std::sqrt(2000.0));
  CHECK(std::abs(moments.deviation() - kSigma) < 4 * kSigma / std::sqrt(2 * 2000.0));
  CHECK(read(NoisyPairs(path, 0, DataSplit::train), {.sample = 1}).input == pair.target);
  // Other noise for another set, sample and seed.
  const auto first_noise = [&](DataSplit split, const SampleKey& key) {
    const Pair other = read(NoisyPairs(path, kSigma, split), key);
    return other.input[0] - other.target[0];
  };
  const SampleKey key{.sample = 1, .epoch = 5, .seed = 7};
  CHECK(first_noise(DataSplit::train, key) == noise[0]);
  CHECK(first_noise(DataSplit::valid, key) != noise[0]);
  CHECK(first_noise(DataSplit::test, key) != first_noise(DataSplit::valid, key));
  CHECK(first_noise(DataSplit::train, {.sample = 2, .epoch = 5, .seed = 7}) != noise[0]);
  CHECK(first_noise(DataSplit::train, {.sample = 1, .epoch = 5, .seed = 8}) != noise[0]);
  const std::array<void*, 1> one{};
  CHECK_THROWS_WITH(set.read(key, one), path + ": a sample has 2 tensors, but 1 buffers are given");
  CHECK_THROWS_WITH(NoisyPairs(path, kSigma, DataSplit::train, 4), path + " has 3 samples, but 4 are asked for");
}

TEST_CASE("stored pairs: files of a folder follow each other by name, whatever their number type") {
  const testing::TemporaryFolder folder;
  write_pairs(folder / "b.h5", 2, 2, 1, 100);
  write_pairs(folder / "a.h5", 3, 2, 1, 0);
  const StoredPairs set(folder.path());
  CHECK(set.samples() == 5);
  CHECK(set.sizes().input() == Shape{2, 2, 3});
  CHECK(set.sizes().target() == Shape{1, 2, 3});
  CHECK(read(set, {.sample = 2}).input == std::vector<float>{24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35});
  CHECK(read(set, {.sample = 2}).target == std::vector<float>{12.5, 13.5, 14.5, 15.5, 16.5, 17.5});
  CHECK(read(set, {.sample = 3}).input[0] == 100);
  CHECK(read(set, {.sample = 4}).target[0] == 106.5);
  CHECK(StoredPairs(folder.path(), 4).samples() == 4);
  CHECK(StoredPairs(folder / "b.h5").samples() == 2);
  std::ofstream(folder / "._b.h5") << "what another system writes beside a file";
  CHECK(StoredPairs(folder.path(), 4).samples() == 4);

  write_pairs(folder / "c.hdf5", 2, 2, 1, 200);
  CHECK(StoredPairs(folder.path()).samples() == 7);
  CHECK(read(StoredPairs(folder.path()), {.sample = 5}).input[0] == 200);

  hdf5::File whole = hdf5::File::create(folder / "whole.hdf5");
  const std::vector<std::int64_t> shape{1, 1, 1, 2}, values{3, 4};
  for (const char* name : {"input", "target"}) whole.write(name, shape, values);
  whole.close();
  CHECK(read(StoredPairs(folder / "whole.hdf5"), {}).target == std::vector<float>{3, 4});
}

TEST_CASE("stored pairs: what does not fit is refused with file and dataset") {
  const testing::TemporaryFolder folder;
  CHECK_THROWS_WITH(StoredPairs(folder.path()), ContainsSubstring(" holds no .h5 file"));
  write_pairs(folder / "a.h5", 2, 2, 1, 0);
  write_pairs(folder / "b.h5", 2, 1, 1, 0);
  CHECK_THROWS_WITH(StoredPairs(folder.path()),
                    ContainsSubstring("b.h5: its pairs are [1, 2, 3] to [1, 2, 3], but those of ") &&
                        ContainsSubstring("a.h5 are [2, 2, 3] to [1, 2, 3]"));
  CHECK_THROWS_WITH(StoredPairs(folder / "a.h5", 3), ContainsSubstring("has 2 samples, but 3 are asked for"));

  const auto written = [&](const std::vector<std::int64_t>& input, const std::vector<std::int64_t>& target,
                           float last = 0) {
    const std::string path = folder / "c.h5";
    hdf5::File file = hdf5::File::create(path);
    std::vector<float> values(static_cast<std::size_t>(numel_of(input)));
    values.back() = last;
    file.write("input", input, values);
    if (!target.empty()) file.write("target", target, std::vector<float>(static_cast<std::size_t>(numel_of(target))));
    file.close();
    return path;
  };
  CHECK_THROWS_WITH(StoredPairs(written({1, 1, 2, 2}, {})), ContainsSubstring("c.h5 has no dataset 'target'"));
  CHECK_THROWS_WITH(StoredPairs(written({1, 2, 2}, {1, 1, 2, 2})),
                    ContainsSubstring("dataset 'input' has the shape [1, 2, 2]"));
  CHECK_THROWS_WITH(StoredPairs(written({1, 1, 2, 2}, {1, 1, 2, 3})),
                    (folder / "c.h5").string() +
                        ": 'input' [1, 1, 2, 2] and 'target' [1, 1, 2, 3] are not pairs of "
                        "pictures of one size");
  CHECK_THROWS_WITH(StoredPairs(written({1, 2, 2, 2}, {2, 1, 2, 2})), ContainsSubstring("are not pairs"));
  CHECK_THROWS_WITH(StoredPairs(written({1, 2, 2, 2}, {1, 1, 3, 2})), ContainsSubstring("are not pairs"));
  // Inputs alone are enough where nothing is learnt from targets; those that are there must fit all the same.
  const StoredPairs inputs(written({2, 1, 2, 3}, {}), std::nullopt, StoredTargets::optional);
  CHECK(inputs.layout().size() == 1);
  CHECK(inputs.layout()[0].shape == Shape{1, 2, 3});
  CHECK(inputs.samples() == 2);
  CHECK(inputs.target_units().empty());
  const std::string pairs = written({2, 1, 2, 3}, {2, 4, 2, 3});
  CHECK(StoredPairs(pairs, std::nullopt, StoredTargets::optional).layout().size() == 2);
  CHECK_THROWS_WITH(StoredPairs(written({2, 1, 2, 3}, {1, 4, 2, 3}), std::nullopt, StoredTargets::optional),
                    ContainsSubstring("are not pairs"));
  const StoredPairs holed(written({2, 2, 2, 2}, {2, 1, 2, 2}, std::numeric_limits<float>::quiet_NaN()));
  read(holed, {.sample = 0});
  CHECK_THROWS_WITH(read(holed, {.sample = 1}),
                    ContainsSubstring("c.h5: dataset 'input', sample 1, channel 1: a value is nan"));
  // Samples are counted within their file, and a bad target is told as one.
  write_pairs(folder / "b.h5", 2, 2, 1, 0);
  {
    hdf5::File file = hdf5::File::create(folder / "c.h5");
    file.write("input", Shape{2, 2, 2, 3}, std::vector<float>(24));
    std::vector<float> target(12);
    target[7] = std::numeric_limits<float>::infinity();
    file.write("target", Shape{2, 1, 2, 3}, target);
    file.close();
  }
  CHECK_THROWS_WITH(read(StoredPairs(folder.path()), {.sample = 5}),
                    (folder / "c.h5").string() + ": dataset 'target', sample 1, channel 0: a value is inf");
  for (const std::int64_t sample : {-1, 6})
    CHECK_THROWS_WITH(read(StoredPairs(folder.path()), {.sample = sample}),
                      folder.path().string() + ": sample " + std::to_string(sample) + " of 6 is asked for");
}

TEST_CASE("stored pairs: no samples and no numbers are refused, units are those of the target") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  {
    hdf5::File file = hdf5::File::create(path);
    file.write("input", Shape{0, 1, 2, 2}, std::vector<float>());
    file.write("target", Shape{0, 1, 2, 2}, std::vector<float>());
    file.close();
  }
  CHECK_THROWS_WITH(StoredPairs(path), path + " holds no samples");
  {
    hdf5::File file = hdf5::File::create(path);
    file.write("input", std::vector<std::string>{"a", "b"});
    file.close();
  }
  CHECK_THROWS_WITH(StoredPairs(path), path +
                                           ": dataset 'input' has the shape [2]; pictures have four dimensions: "
                                           "number, channels, height, width");
  {
    hdf5::File file = hdf5::File::create(path);
    file.write("input", Shape{1, 1, 2, 2}, std::vector<float>(4));
    file.write("target", Shape{1, 2, 2, 2}, std::vector<float>(8));
    file.write_attribute("input", "units", std::vector<std::string>{"m"});
    file.write_attribute("target", "units", std::vector<std::string>{"K", "Pa"});
    file.close();
  }
  CHECK(StoredPairs(path).target_units() == std::vector<std::string>{"K", "Pa"});
  CHECK(StoredPairs(path, 0).samples() == 0);
}

TEST_CASE("random pairs: without a target a sample is one picture") {
  const RandomPairs set({.in_channels = 2, .out_channels = 0, .height = 3, .width = 4}, 5, DataSplit::train);
  REQUIRE(set.layout().size() == 1);
  CHECK(set.layout()[0].shape == Shape{2, 3, 4});
  CHECK(set.target_units().empty());
  std::vector<float> input(24, -1);
  const std::array<void*, 1> to{input.data()};
  set.read({.sample = 4}, to);
  CHECK(std::ranges::all_of(input, [](float value) { return value >= 0; }));
  const std::array<void*, 2> both{input.data(), input.data()};
  CHECK_THROWS_WITH(set.read({.sample = 4}, both),
                    "the random images: a sample has 1 tensors, but 2 buffers are given");
}
