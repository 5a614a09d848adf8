// Volumes and their crops: every source gives the same numbers, places and turns are functions of the key, the
// tutorial's draws are NumPy's, and what is refused.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "data/files/hdf5.h"
#include "data/files/npy.h"
#include "data/volumes/crops.h"
#include "kernels/turn.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;

namespace {

// A value that tells channel and point.
float label(std::int64_t channel, std::int64_t i, std::int64_t j, std::int64_t k) {
  return static_cast<float>(1000000 * channel + 10000 * i + 100 * j + k);
}

std::vector<float> labels(std::int64_t channels, const Point& extent, bool channels_last = false) {
  std::vector<float> values(static_cast<std::size_t>(channels * extent[0] * extent[1] * extent[2]));
  for (std::int64_t c = 0; c < channels; ++c)
    for (std::int64_t i = 0; i < extent[0]; ++i)
      for (std::int64_t j = 0; j < extent[1]; ++j)
        for (std::int64_t k = 0; k < extent[2]; ++k) {
          const std::int64_t point = (i * extent[1] + j) * extent[2] + k, points = extent[0] * extent[1] * extent[2];
          values[static_cast<std::size_t>(channels_last ? point * channels + c : c * points + point)] =
              label(c, i, j, k);
        }
  return values;
}

struct Datasets {
  std::int64_t input = 4, target = 5;
  Point extent{6, 7, 8}, target_extent = extent;
};

void write_hdf5(const std::string& path, const Datasets& d = {}, const hdf5::Storage& storage = {}) {
  hdf5::File file = hdf5::File::create(path);
  const auto write = [&](const char* name, std::int64_t channels, const Point& e) {
    file.write(name, std::vector<std::int64_t>{channels, e[0], e[1], e[2]}, labels(channels, e), storage);
  };
  write("Nbody", d.input, d.extent);
  write("Hydro", d.target, d.target_extent);
  file.close();
}

void write_npy_pair(const std::string& stem, const Datasets& d = {}) {
  for (const auto& [ending, channels] : {std::pair("_data.npy", d.input), std::pair("_label.npy", d.target)})
    write_npy(stem + ending, std::vector<std::int64_t>{d.extent[0], d.extent[1], d.extent[2], channels},
              labels(channels, d.extent, true));
}

std::vector<float> box_of(const Volume& volume, const Point& start, const Point& size) {
  std::vector<float> values(static_cast<std::size_t>(volume.channels() * size[0] * size[1] * size[2]));
  volume.read(start, size, values.data());
  return values;
}

void check_box(const Volume& volume, const Point& start, const Point& size) {
  const std::vector<float> values = box_of(volume, start, size);
  std::size_t at = 0;
  bool is_right = true;
  for (std::int64_t c = 0; c < volume.channels(); ++c)
    for (std::int64_t i = 0; i < size[0]; ++i)
      for (std::int64_t j = 0; j < size[1]; ++j)
        for (std::int64_t k = 0; k < size[2]; ++k)
          is_right = is_right && values[at++] == label(c, start[0] + i, start[1] + j, start[2] + k);
  CHECK(is_right);
}

VolumePair synthetic(std::int64_t length) {
  return synthetic_volumes({length, length, length}, 4, 5, 1);
}

struct Sample {
  std::vector<float> input, target;
  std::int32_t turn = -1;
  friend bool operator==(const Sample&, const Sample&) = default;
};

Sample read(const CropDataset& set, const SampleKey& key) {
  const auto layout = set.layout();
  Sample sample{std::vector<float>(static_cast<std::size_t>(numel_of(layout[0].shape))),
                std::vector<float>(static_cast<std::size_t>(numel_of(layout[1].shape)))};
  const std::array<void*, 3> to{sample.input.data(), sample.target.data(), &sample.turn};
  set.read(key, to);
  return sample;
}

}  // namespace

TEST_CASE("volumes: HDF5, compressed or not, .npy and memory give the same boxes") {
  const testing::TemporaryFolder folder;
  const std::string plain = (folder / "a.h5").string(), packed = (folder / "b.h5").string();
  write_hdf5(plain);
  write_hdf5(packed, {}, {.chunk = {1, 3, 3, 3}, .shuffle = true, .deflate = 2});
  write_npy_pair((folder / "c").string());
  for (const std::string& path : {plain, packed, (folder / "c_data.npy").string()}) {
    INFO(path);
    const VolumePair stored = open_volumes(path), copied = in_memory(stored);
    CHECK(stored.input->shape() == Shape{4, 6, 7, 8});
    CHECK(stored.target->shape() == Shape{5, 6, 7, 8});
    for (const Volume* volume : {stored.input.get(), stored.target.get(), copied.input.get(), copied.target.get()}) {
      check_box(*volume, {0, 0, 0}, {6, 7, 8});
      check_box(*volume, {1, 2, 3}, {4, 1, 5});
      check_box(*volume, {5, 6, 7}, {1, 1, 1});
      CHECK_THROWS_WITH(box_of(*volume, {0, 5, 0}, {1, 3, 1}),
                        ContainsSubstring(": points 5 to 7 of axis 1 are asked for, which has 7"));
    }
  }
}

TEST_CASE("volumes: fp64 in a .npy file is read as fp32") {
  const testing::TemporaryFolder folder;
  const std::vector<std::int64_t> shape{2, 2, 2, 1};
  const std::vector<double> values{0, 1, 2, 3, 4, 5, 6, 7.1};
  for (const char* name : {"x_data.npy", "x_label.npy"}) write_npy((folder / name).string(), shape, values);
  CHECK(box_of(*open_volumes(folder.path().string()).input, {1, 1, 0}, {1, 1, 2}) == std::vector<float>{6, 7.1f});
}

TEST_CASE("volumes: a folder has one file of them, what is no pair is refused by name") {
  const testing::TemporaryFolder folder;
  CHECK_THROWS_WITH(open_volumes(folder.path().string()), ContainsSubstring("holds 0 files of volumes"));
  const std::string path = (folder / "v.h5").string();
  write_hdf5(path);
  CHECK(open_volumes(folder.path().string()).input->name() == path + ": 'Nbody'");
  std::ofstream(folder / "._v.h5") << "what another system writes beside a file";
  CHECK(open_volumes(folder.path().string()).input->name() == path + ": 'Nbody'");
  write_npy_pair((folder / "w").string());
  CHECK_THROWS_WITH(open_volumes(folder.path().string()), ContainsSubstring("holds 2 files of volumes"));
  write_hdf5(path, {.target_extent = {6, 7, 9}});
  CHECK_THROWS_WITH(open_volumes(path),
                    path + ": 'Nbody' [4, 6, 7, 8] and " + path + ": 'Hydro' [5, 6, 7, 9] are not of one box");
  {
    hdf5::File file = hdf5::File::create(path);
    file.write("Nbody", std::vector<std::int64_t>{4, 6}, std::vector<float>(24));
    file.close();
  }
  CHECK_THROWS_WITH(open_volumes(path), ContainsSubstring("v.h5: dataset 'Nbody' has the shape [4, 6]; volumes have"));
}

TEST_CASE("volumes: a value that is not finite is told with its channel and point") {
  const testing::TemporaryFolder folder;
  const std::string path = (folder / "v.h5").string();
  std::vector<float> values = labels(4, {6, 7, 8});
  values[static_cast<std::size_t>(((2 * 6 + 3) * 7 + 4) * 8 + 5)] = std::numeric_limits<float>::quiet_NaN();
  {
    hdf5::File file = hdf5::File::create(path);
    for (const char* name : {"Nbody", "Hydro"}) file.write(name, std::vector<std::int64_t>{4, 6, 7, 8}, values);
    file.close();
  }
  const VolumePair pair = open_volumes(path);
  CHECK_THROWS_WITH(box_of(*pair.input, {2, 3, 4}, {2, 3, 3}),
                    path + ": 'Nbody': the value of channel 2 at point (3, 4, 5) is nan");
  CHECK_NOTHROW(box_of(*pair.input, {4, 0, 0}, {2, 7, 8}));
}

TEST_CASE("crops: a function of set, sample, epoch and seed, every place, the last one too, and every turn") {
  const CropOptions options{.size = 4, .samples = 2000};
  CropOptions of_valid = options;
  of_valid.split = DataSplit::valid;
  const CropDataset train(synthetic(6), options), valid(synthetic(6), of_valid);
  const SampleKey key{.sample = 7, .epoch = 2, .seed = 3};
  const Sample sample = read(train, key);
  CHECK(sample == read(train, key));
  for (const SampleKey& other :
       {SampleKey{.sample = 8, .epoch = 2, .seed = 3}, SampleKey{.sample = 7, .epoch = 3, .seed = 3},
        SampleKey{.sample = 7, .epoch = 2, .seed = 4}})
    CHECK(!(train.crop(other) == train.crop(key)));
  CHECK(!(valid.crop(key) == train.crop(key)));
  // The same box of both: the target is half of the input.
  for (std::size_t i = 0; i < 64; ++i) CHECK(sample.target[i] == sample.input[i] / 2);

  std::array<std::array<int, 3>, 3> starts{};
  std::set<std::int32_t> turns;
  for (std::int64_t i = 0; i < options.samples; ++i) {
    const Crop crop = train.crop({.sample = i, .epoch = 0, .seed = 1});
    for (std::size_t axis = 0; axis < 3; ++axis) ++starts.at(axis).at(static_cast<std::size_t>(crop.start[axis]));
    turns.insert(crop.turn);
  }
  for (const auto& axis : starts)
    for (const int count : axis) CHECK(std::abs(count - 2000 / 3.0) < 5 * std::sqrt(2000 * 2 / 9.0));
  CHECK(turns.size() == kTurns);
}

TEST_CASE("crops: the tutorial's 24 turns are those of its table, and its 24 rotations are all there are") {
  std::set<int> turns, rotations;
  for (int i = 0; i < 24; ++i) {
    turns.insert(tutorial_turn(i));
    rotations.insert(tutorial_rotation(i));
  }
  CHECK(turns.size() == 24);
  CHECK(rotations.size() == 24);
  CHECK(tutorial_turn(23) == 0);
  CHECK(tutorial_rotation(0) == 0);
  const auto is_proper = [](int number) {
    const Turn turn = turn_of(number);
    int inversions = 0;
    for (int a = 0; a < 3; ++a)
      for (int b = a + 1; b < 3; ++b) inversions += turn.order[a] > turn.order[b] ? 1 : 0;
    return (inversions + turn.flip[0] + turn.flip[1] + turn.flip[2]) % 2 == 0;
  };
  CHECK(std::ranges::count_if(turns, is_proper) == 16);
  CHECK(std::ranges::count_if(rotations, is_proper) == 24);
  // By 90 degrees about x, which is along W: y goes to z. Axis D of the result is axis H, axis H is axis D backwards.
  CHECK(tutorial_rotation(1) == number_of({{1, 0, 2}, {false, true, false}}));
  // By 120 degrees about (1, 1, 1): x to y to z to x.
  CHECK(tutorial_rotation(16) == number_of({{1, 2, 0}, {false, false, false}}));

  CropOptions options{.size = 4, .samples = 500, .augmentation = Augmentation::tutorial};
  const CropDataset tutorial(synthetic(6), options);
  std::set<int> seen;
  for (std::int64_t i = 0; i < options.samples; ++i) seen.insert(tutorial.crop({.sample = i}).turn);
  CHECK(seen == turns);
  options.augmentation = Augmentation::none;
  const CropDataset none(synthetic(6), options);
  for (std::int64_t i = 0; i < 20; ++i) CHECK(none.crop({.sample = i}).turn == 0);
}

// numpy: r = RandomState(12345); for each batch of 8: r.randint(0, 960, (8, 3)), r.randint(0, 24, 8)
TEST_CASE("crops: the tutorial's are the numbers of NumPy's RandomState(12345)") {
  const TutorialCrops crops(1024, 64, 8, 16);
  const std::vector<std::pair<std::int64_t, Crop>> few{{0, {{482, 485, 285}, tutorial_rotation(10)}},
                                                       {1, {{129, 420, 425}, tutorial_rotation(17)}},
                                                       {8, {{29, 952, 439}, tutorial_rotation(19)}},
                                                       {15, {{389, 34, 309}, tutorial_rotation(12)}}};
  for (const auto& [sample, crop] : few) CHECK(crops.crop(0, sample) == crop);
  // The first 1000, folded into one number (FNV-1a of the starts and the turn's place in the table).
  const TutorialCrops many(1024, 64, 8, 1000);
  std::uint64_t folded = 1469598103934665603u;
  const auto fold = [&](std::int64_t value) { folded = (folded ^ static_cast<std::uint64_t>(value)) * 1099511628211u; };
  for (std::int64_t i = 0; i < 1000; ++i) {
    const Crop crop = many.crop(0, i);
    for (const std::int64_t start : crop.start) fold(start);
    for (int place = 0; place < 24; ++place)
      if (tutorial_rotation(place) == crop.turn) fold(place);
  }
  CHECK(folded == 2980466711847900240u);

  // Epochs follow each other, in any order of asking; a batch of one, and ranks that share a batch.
  const Crop first = crops.crop(0, 0), second = crops.crop(1, 0);
  CHECK(!(first == second));
  CHECK(crops.crop(5, 3) == TutorialCrops(1024, 64, 8, 16 * 6).crop(0, 5 * 16 + 3));
  CHECK(crops.crop(0, 0) == first);
  CHECK(TutorialCrops(64, 64, 2, 4).crop(0, 3).start == Point{0, 0, 0});
}

TEST_CASE("crops: a box that is larger than the volumes, and the tutorial's of no cube, are refused") {
  const testing::TemporaryFolder folder;
  const std::string path = (folder / "v.h5").string();
  write_hdf5(path);
  CHECK_THROWS_WITH(CropDataset(open_volumes(path), {.size = 7, .samples = 1}),
                    path + ": 'Nbody' [4, 6, 7, 8] has no box of 7 points along each axis (config key data_size)");
  CHECK_THROWS_WITH(CropDataset(open_volumes(path), {.size = 4, .samples = 1, .rule = CropRule::tutorial}),
                    ContainsSubstring("is no cube, and crops are tutorial"));
  const CropDataset set(open_volumes(path), {.size = 6, .samples = 3, .augmentation = Augmentation::none});
  const Sample whole = read(set, {.sample = 2});
  CHECK(whole.input.size() == 4 * 216);
  CHECK_THROWS_WITH(read(set, {.sample = 3}), ContainsSubstring("sample 3 of 3 is asked for"));
}
