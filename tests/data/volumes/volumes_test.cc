// Volumes and their crops: every source gives the same numbers, places and turns are functions of the key, the
// tutorial's draws are NumPy's, and what is refused.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
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

constexpr float kNextBox = 0.5f;  // is added to every label of the next box

std::vector<float> labels(std::int64_t channels, const Point& extent, bool channels_last = false, float offset = 0) {
  std::vector<float> values(static_cast<std::size_t>(channels * extent[0] * extent[1] * extent[2]));
  for (std::int64_t c = 0; c < channels; ++c)
    for (std::int64_t i = 0; i < extent[0]; ++i)
      for (std::int64_t j = 0; j < extent[1]; ++j)
        for (std::int64_t k = 0; k < extent[2]; ++k) {
          const std::int64_t point = (i * extent[1] + j) * extent[2] + k, points = extent[0] * extent[1] * extent[2];
          values[static_cast<std::size_t>(channels_last ? point * channels + c : c * points + point)] =
              label(c, i, j, k) + offset;
        }
  return values;
}

std::vector<float> labels_of_boxes(std::int64_t boxes, std::int64_t channels, const Point& extent,
                                   bool channels_last = false) {
  std::vector<float> all;
  for (std::int64_t box = 0; box < boxes; ++box) {
    const std::vector<float> own = labels(channels, extent, channels_last, static_cast<float>(box) * kNextBox);
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

struct Datasets {
  std::int64_t input = 4, target = 5;
  Point extent{6, 7, 8}, target_extent = extent;
  std::int64_t boxes = 0, target_boxes = boxes;  // 0: there is no such axis

  Shape shape(std::int64_t channels, const Point& e, std::int64_t n) const {
    Shape shape{channels, e[0], e[1], e[2]};
    if (n > 0) shape.insert(shape.begin(), n);
    return shape;
  }
};

void write_hdf5(const std::string& path, const Datasets& d = {}, const hdf5::Storage& storage = {}) {
  hdf5::File file = hdf5::File::create(path);
  const auto write = [&](const char* name, std::int64_t channels, const Point& e, std::int64_t boxes) {
    file.write(name, d.shape(channels, e, boxes), labels_of_boxes(std::max<std::int64_t>(boxes, 1), channels, e),
               storage);
  };
  write("Nbody", d.input, d.extent, d.boxes);
  write("Hydro", d.target, d.target_extent, d.target_boxes);
  file.close();
}

void write_npy_pair(const std::string& stem, const Datasets& d = {}) {
  for (const auto& [ending, channels] : {std::pair("_data.npy", d.input), std::pair("_label.npy", d.target)}) {
    Shape shape{d.extent[0], d.extent[1], d.extent[2], channels};
    if (d.boxes > 0) shape.insert(shape.begin(), d.boxes);
    write_npy(stem + ending, shape,
              labels_of_boxes(std::max<std::int64_t>(d.boxes, 1), channels, d.extent, /*channels_last=*/true));
  }
}

std::vector<float> box_of(const Volume& volume, const Point& start, const Point& size, std::int64_t box = 0) {
  std::vector<float> values(static_cast<std::size_t>(volume.channels() * size[0] * size[1] * size[2]));
  volume.read(box, start, size, values.data());
  return values;
}

std::vector<float> wrapped_box_of(const Volume& volume, const Point& start, const Point& size, std::int64_t box = 0) {
  std::vector<float> values(static_cast<std::size_t>(volume.channels() * size[0] * size[1] * size[2]));
  volume.read_wrapped(box, start, size, values.data());
  return values;
}

// The labels of points [start, start + size), one by one; after the last point of an axis comes the first one.
void check_labels(const Volume& volume, const std::vector<float>& values, const Point& start, const Point& size,
                  std::int64_t box) {
  INFO(start[0] << " " << start[1] << " " << start[2] << ", " << size[0] << " " << size[1] << " " << size[2]);
  const auto around = [&](std::int64_t from, std::int64_t steps, std::size_t axis) {
    return (from + steps) % volume.extent().at(axis);
  };
  std::size_t at = 0;
  bool is_right = true;
  for (std::int64_t c = 0; c < volume.channels(); ++c)
    for (std::int64_t i = 0; i < size[0]; ++i)
      for (std::int64_t j = 0; j < size[1]; ++j)
        for (std::int64_t k = 0; k < size[2]; ++k)
          is_right = is_right &&
                     values[at++] == label(c, around(start[0], i, 0), around(start[1], j, 1), around(start[2], k, 2)) +
                                         static_cast<float>(box) * kNextBox;
  CHECK(is_right);
}

void check_box(const Volume& volume, const Point& start, const Point& size, std::int64_t box = 0) {
  check_labels(volume, box_of(volume, start, size, box), start, size, box);
}

void check_wrapped_box(const Volume& volume, const Point& start, const Point& size, std::int64_t box = 0) {
  check_labels(volume, wrapped_box_of(volume, start, size, box), start, size, box);
}

Point cube(std::int64_t length) {
  return {length, length, length};
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

TEST_CASE("volumes: several boxes of one size, of HDF5, compressed or not, .npy and memory") {
  const testing::TemporaryFolder folder;
  const std::string plain = (folder / "a.h5").string(), packed = (folder / "b.h5").string();
  const Datasets three{.extent = {3, 4, 5}, .boxes = 3};
  write_hdf5(plain, three);
  write_hdf5(packed, three, {.chunk = {2, 1, 2, 3, 3}, .shuffle = true, .deflate = 2});
  write_npy_pair((folder / "c").string(), three);
  for (const std::string& path : {plain, packed, (folder / "c_data.npy").string()}) {
    INFO(path);
    const VolumePair stored = open_volumes(path), copied = in_memory(stored);
    for (const VolumePair* pair : {&stored, &copied}) {
      CHECK(pair->boxes() == 3);
      CHECK(pair->input->shape() == Shape{4, 3, 4, 5});
      for (const std::int64_t box : {0, 1, 2}) {
        check_box(*pair->input, {0, 0, 0}, {3, 4, 5}, box);
        check_box(*pair->target, {1, 2, 1}, {2, 1, 4}, box);
        check_wrapped_box(*pair->target, {2, 3, 4}, {2, 3, 4}, box);
      }
      CHECK_THROWS_WITH(box_of(*pair->input, {0, 0, 0}, {1, 1, 1}, 3), ContainsSubstring(": box 3 of 3 is asked for"));
    }
  }
  write_hdf5(plain, {.boxes = 2, .target_boxes = 3});
  CHECK_THROWS_WITH(open_volumes(plain), plain + ": 'Nbody' has 2 boxes and " + plain + ": 'Hydro' has 3");
}

// numpy: x = labels; x.take([5, 6], 1, mode='wrap').take([4, 5, 6, 7], 2, mode='wrap').take([7, 8, 9], 3, mode='wrap')
TEST_CASE("volumes: a periodic box goes on at its other end, along each axis") {
  const testing::TemporaryFolder folder;
  const std::string plain = (folder / "a.h5").string();
  write_hdf5(plain, {.input = 2});
  write_npy_pair((folder / "c").string(), {.input = 2});
  for (const std::string& path : {plain, (folder / "c_data.npy").string()}) {
    const VolumePair stored = open_volumes(path), copied = in_memory(stored);
    for (const Volume* volume : {stored.input.get(), copied.input.get()}) {
      CHECK(wrapped_box_of(*volume, {5, 4, 7}, {2, 4, 3}) ==
            std::vector<float>{50407,   50400,   50401,   50507,   50500,   50501,   50607,   50600,   50601,   50007,
                               50000,   50001,   407,     400,     401,     507,     500,     501,     607,     600,
                               601,     7,       0,       1,       1050407, 1050400, 1050401, 1050507, 1050500, 1050501,
                               1050607, 1050600, 1050601, 1050007, 1050000, 1050001, 1000407, 1000400, 1000401, 1000507,
                               1000500, 1000501, 1000607, 1000600, 1000601, 1000007, 1000000, 1000001});
      for (const std::int64_t d : {0, 3, 5})
        for (const std::int64_t h : {0, 4, 6})
          for (const std::int64_t w : {0, 4, 7}) check_wrapped_box(*volume, {d, h, w}, {3, 3, 4});
      check_wrapped_box(*volume, {5, 6, 7}, {6, 7, 8});
      check_wrapped_box(*volume, {0, 6, 0}, {6, 7, 8});
      CHECK_THROWS_WITH(wrapped_box_of(*volume, {0, 0, 8}, {1, 1, 1}),
                        ContainsSubstring(": 1 points from point 8 of axis 2 are asked for, which has 8"));
      CHECK_THROWS_WITH(wrapped_box_of(*volume, {2, 0, 0}, {7, 1, 1}),
                        ContainsSubstring(": 7 points from point 2 of axis 0 are asked for, which has 6"));
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
  CHECK_THROWS_WITH(
      open_volumes(folder.path().string()),
      folder.path().string() + " holds 0 files of volumes (.h5, or _data.npy beside _label.npy); a set is one of them");
  const std::string path = (folder / "v.h5").string();
  write_hdf5(path);
  CHECK(open_volumes(folder.path().string()).input->name() == path + ": 'Nbody'");
  std::ofstream(folder / "._v.h5") << "what another system writes beside a file";
  CHECK(open_volumes(folder.path().string()).input->name() == path + ": 'Nbody'");
  std::filesystem::create_directory(folder / "other");
  write_hdf5((folder / "other/v.hdf5").string());
  CHECK(open_volumes((folder / "other").string()).input->shape() == Shape{4, 6, 7, 8});
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
  CHECK_THROWS_WITH(open_volumes(path), path +
                                            ": dataset 'Nbody' has the shape [4, 6]; volumes have four dimensions: "
                                            "channels, depth, height, width; or one before these: boxes");
  const std::string line = (folder / "line_data.npy").string();
  write_npy(line, std::array<std::int64_t, 2>{2, 3}, std::span<const float>(std::vector<float>(6)));
  CHECK_THROWS_WITH(open_volumes(line), line +
                                            " has the shape [2, 3]; volumes have four dimensions: depth, height, "
                                            "width, channels; or one before these: boxes");
  write_npy(line, std::array<std::int64_t, 4>{2, 0, 3, 4}, std::span<const float>());
  CHECK_THROWS_WITH(open_volumes(line), line + " is empty: [4, 2, 0, 3]");
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
  CHECK_THROWS_WITH(box_of(*pair.input, {3, 2, 1}, {1, 3, 7}),
                    path + ": 'Nbody': the value of channel 2 at point (3, 4, 5) is nan");
  CHECK_THROWS_WITH(box_of(*pair.input, {0, 0, 5}, {5, 6, 2}),
                    path + ": 'Nbody': the value of channel 2 at point (3, 4, 5) is nan");
  CHECK_NOTHROW(box_of(*pair.input, {4, 0, 0}, {2, 7, 8}));
}

TEST_CASE("volumes: of several boxes the bad value's box is told, and an infinity by its sign") {
  const testing::TemporaryFolder folder;
  const std::string path = (folder / "v.h5").string();
  std::vector<float> values(3 * 2 * 2 * 3 * 4, 1.0f);  // boxes, channels, depth, height, width
  values[static_cast<std::size_t>((((1 * 2 + 1) * 2 + 0) * 3 + 2) * 4 + 3)] = -std::numeric_limits<float>::infinity();
  {
    hdf5::File file = hdf5::File::create(path);
    for (const char* name : {"Nbody", "Hydro"}) file.write(name, std::vector<std::int64_t>{3, 2, 2, 3, 4}, values);
    file.close();
  }
  const VolumePair pair = open_volumes(path);
  CHECK(pair.boxes() == 3);
  CHECK_NOTHROW(box_of(*pair.target, {0, 0, 0}, {2, 3, 4}, 0));
  CHECK_NOTHROW(box_of(*pair.target, {0, 0, 0}, {2, 3, 4}, 2));
  CHECK_NOTHROW(box_of(*pair.target, {1, 0, 0}, {1, 3, 4}, 1));
  CHECK_THROWS_WITH(box_of(*pair.target, {0, 1, 2}, {2, 2, 2}, 1),
                    path + ": 'Hydro': the value of channel 1 at point (0, 2, 3) of box 1 is -inf");
  CHECK_THROWS_WITH(box_of(*pair.input, {0, 0, 0}, {1, 1, 1}, -1), path + ": 'Nbody': box -1 of 3 is asked for");
  CHECK_THROWS_WITH(box_of(*pair.input, {0, -1, 0}, {1, 2, 1}),
                    path + ": 'Nbody': points -1 to 0 of axis 1 are asked for, which has 3");
  CHECK_THROWS_WITH(box_of(*pair.input, {0, 0, 4}, {1, 1, 1}),
                    path + ": 'Nbody': points 4 to 4 of axis 2 are asked for, which has 4");
  CHECK_THROWS_WITH(box_of(*pair.input, {1, 0, 0}, {2, 1, 1}),
                    path + ": 'Nbody': points 1 to 2 of axis 0 are asked for, which has 2");
}

TEST_CASE("volumes: to predict from, a target is needed by nobody, and taken where it lies beside the input") {
  const testing::TemporaryFolder folder;
  const std::string path = (folder / "v.h5").string(), stem = (folder / "w").string();
  write_hdf5(path);
  CHECK(open_volumes_to_predict(path).target->shape() == Shape{5, 6, 7, 8});
  write_hdf5(path, {.target_extent = {6, 7, 9}});
  CHECK_THROWS_WITH(open_volumes_to_predict(path), ContainsSubstring(" are not of one box"));
  {
    hdf5::File file = hdf5::File::create(path);
    file.write("Nbody", std::vector<std::int64_t>{4, 6, 7, 8}, labels(4, {6, 7, 8}));
    file.close();
  }
  const VolumePair alone = open_volumes_to_predict(path);
  CHECK(alone.target == nullptr);
  check_box(*alone.input, {0, 0, 0}, {6, 7, 8});
  CHECK_THROWS_WITH(open_volumes(path), ContainsSubstring("Hydro"));
  write_npy_pair(stem);
  CHECK(open_volumes_to_predict(stem + "_data.npy").target->shape() == Shape{5, 6, 7, 8});
  std::filesystem::remove(stem + "_label.npy");
  CHECK(open_volumes_to_predict(stem + "_data.npy").target == nullptr);
  CHECK_THROWS_WITH(open_volumes(stem + "_data.npy"), ContainsSubstring("w_label.npy"));
}

TEST_CASE("volumes: synthetic ones are of their seed, and each channel of the target is half of the input's") {
  const VolumePair one = synthetic_volumes({2, 3, 4}, 2, 5, 1), other = synthetic_volumes({2, 3, 4}, 2, 5, 2);
  const std::vector<float> input = box_of(*one.input, {}, {2, 3, 4}), target = box_of(*one.target, {}, {2, 3, 4});
  CHECK(input != box_of(*other.input, {}, {2, 3, 4}));
  for (std::size_t i = 0; i < target.size(); ++i) CHECK(target[i] == input[i / 24 % 2 * 24 + i % 24] / 2);
  CHECK(std::ranges::all_of(input, [](float x) { return x >= -1 && x < 1; }));
}

TEST_CASE("crops: a function of set, sample, epoch and seed, every place, the last one too, and every turn") {
  const CropOptions options{.size = cube(4), .samples = 2000};
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

  CropOptions options{.size = cube(4), .samples = 500, .augmentation = Augmentation::tutorial};
  const CropDataset tutorial(synthetic(6), options);
  std::set<int> seen;
  for (std::int64_t i = 0; i < options.samples; ++i) seen.insert(tutorial.crop({.sample = i}).turn);
  CHECK(seen == turns);
  options.augmentation = Augmentation::none;
  const CropDataset none(synthetic(6), options);
  for (std::int64_t i = 0; i < 20; ++i) CHECK(none.crop({.sample = i}).turn == 0);
}

// numpy: each row of the reference's tables, tried on a cube of 3^3 different numbers. The rotation moves the point p
// to R p (R by Rodrigues' formula; x along W); the turn is transpose(order), then flips.
TEST_CASE("crops: the rows of the tutorial's tables, one by one") {
  constexpr std::array kTurnsOfTable{6,  5, 3,  20, 21, 18, 19, 44, 46, 41, 43, 10,
                                     14, 9, 13, 30, 27, 29, 31, 38, 37, 35, 39, 0};
  constexpr std::array kRotations{0,  18, 6,  20, 44, 5,  41, 9,  3,  10, 17, 42,
                                  12, 23, 47, 15, 24, 32, 38, 29, 35, 30, 37, 27};
  for (int i = 0; i < 24; ++i) {
    INFO("row " << i);
    CHECK(tutorial_turn(i) == kTurnsOfTable.at(static_cast<std::size_t>(i)));
    CHECK(tutorial_rotation(i) == kRotations.at(static_cast<std::size_t>(i)));
  }
  std::set<std::int32_t> seen;
  const CropDataset set(synthetic(6), {.size = cube(4), .samples = 500, .augmentation = Augmentation::tutorial});
  for (std::int64_t i = 0; i < set.samples(); ++i) seen.insert(set.crop({.sample = i}).turn);
  CHECK(seen == std::set<std::int32_t>(kTurnsOfTable.begin(), kTurnsOfTable.end()));
}

TEST_CASE("crops: start, turn and box are drawn independently of each other") {
  const testing::TemporaryFolder folder;
  const std::string path = (folder / "v.h5").string();
  write_hdf5(path, {.extent = {3, 3, 3}, .boxes = 2});
  const CropDataset set(open_volumes(path), {.size = cube(2), .samples = 4000});
  std::map<std::array<std::int64_t, 5>, int> places;  // of the turns, two halves
  for (std::int64_t i = 0; i < set.samples(); ++i) {
    const Crop crop = set.crop({.sample = i});
    ++places[{crop.start[0], crop.start[1], crop.start[2], crop.turn / (kTurns / 2), crop.box}];
  }
  CHECK(places.size() == 32);
  for (const auto& [place, count] : places) CHECK(std::abs(count - 4000 / 32.0) < 5 * std::sqrt(4000 / 32.0));
}

// numpy: r = RandomState(12345); r.randint(0, 65, (8, 3)), r.randint(0, 24, 8). The last number is a power of two.
TEST_CASE("crops: the tutorial's draws reach a last place that is a power of two") {
  const TutorialCrops crops(97, 32, 8, 8);
  CHECK(crops.crop(0, 0) == Crop{{29, 1, 36}, tutorial_rotation(15)});
  CHECK(crops.crop(0, 3) == Crop{{11, 10, 38}, tutorial_rotation(14)});
  CHECK(crops.crop(0, 7) == Crop{{64, 3, 5}, tutorial_rotation(5)});
  CHECK(crops.crop(1, 1) == Crop{{5, 59, 12}, tutorial_rotation(14)});
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

  // Places are the same where nothing is turned.
  CropOptions options{.size = cube(4), .samples = 8, .rule = CropRule::tutorial, .batch = 4};
  const CropDataset turning(synthetic(6), options);
  options.augmentation = Augmentation::none;
  const CropDataset still(synthetic(6), options);
  for (std::int64_t i = 0; i < 8; ++i) {
    CHECK(still.crop({.sample = i}) == Crop{turning.crop({.sample = i}).start, 0});
    CHECK(turning.crop({.sample = i}) == TutorialCrops(6, 4, 4, 8).crop(0, i));
  }

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
  CHECK_THROWS_WITH(CropDataset(open_volumes(path), {.size = cube(7), .samples = 1}),
                    path + ": 'Nbody' [4, 6, 7, 8] has no box of 7 points along each axis (config key data_size)");
  CHECK_THROWS_WITH(CropDataset(open_volumes(path), {.size = cube(4), .samples = 1, .rule = CropRule::tutorial}),
                    path + ": 'Nbody' [4, 6, 7, 8] is no cube, and crops are tutorial: set crops=random");
  CHECK_THROWS_WITH(CropDataset(open_volumes(path), {.size = {6, 7, 9}, .samples = 1}),
                    path + ": 'Nbody' [4, 6, 7, 8] has no box of 6 x 7 x 9 points (config key data_size)");
  const auto tutorial = [](const Point& size, bool wrap) {
    return CropDataset(synthetic(6), {.size = size, .samples = 1, .wrap = wrap, .rule = CropRule::tutorial});
  };
  CHECK_NOTHROW(tutorial({4, 4, 4}, false));
  CHECK_THROWS_WITH(tutorial({4, 4, 2}, false),
                    "crops of 4 x 4 x 2 points (config key data_size) are no cubes, and "
                    "crops are tutorial: set crops=random");
  CHECK_THROWS_WITH(tutorial({4, 4, 4}, true), "crops are tutorial, which do not wrap: set crops=random or wrap=false");
  write_hdf5(path, {.extent = {6, 6, 6}, .boxes = 2});
  CHECK_THROWS_WITH(CropDataset(open_volumes(path), {.size = cube(4), .samples = 1, .rule = CropRule::tutorial}),
                    path + ": 'Nbody' has 2 boxes, and crops are tutorial: set crops=random");
  write_hdf5(path);
  const CropDataset set(open_volumes(path), {.size = cube(6), .samples = 3, .augmentation = Augmentation::none});
  const Sample whole = read(set, {.sample = 2});
  CHECK(whole.input.size() == 4 * 216);
  CHECK_THROWS_WITH(read(set, {.sample = 3}), set.name() + ": sample 3 of 3 is asked for");
  CHECK_THROWS_WITH(set.read({.sample = 0}, std::array<void*, 2>{}),
                    set.name() + ": a sample has 3 tensors, but 2 buffers are given");
}

TEST_CASE("crops: one that is no cube has every place, the last one too, and every turn that keeps its extents") {
  struct Case {
    Point size;
    Augmentation augmentation;
    std::size_t turns;
  };
  for (const auto& [size, augmentation, turns] :
       {Case{{2, 4, 4}, Augmentation::physical, 16}, Case{{2, 3, 4}, Augmentation::physical, 8},
        Case{{4, 2, 4}, Augmentation::physical, 16}, Case{{2, 4, 4}, Augmentation::tutorial, 8},
        Case{{4, 4, 2}, Augmentation::tutorial, 8}, Case{{2, 4, 4}, Augmentation::none, 1},
        Case{{4, 4, 4}, Augmentation::tutorial, 24}}) {
    INFO(size[0] << " " << size[1] << " " << size[2]);
    const CropDataset set(synthetic_volumes({5, 6, 7}, 4, 5, 1),
                          {.size = size, .samples = 1500, .augmentation = augmentation});
    std::set<std::int32_t> seen;
    Point last{};
    for (std::int64_t i = 0; i < set.samples(); ++i) {
      const Crop crop = set.crop({.sample = i});
      seen.insert(crop.turn);
      for (std::size_t axis = 0; axis < 3; ++axis) last.at(axis) = std::max(last.at(axis), crop.start.at(axis));
      const Turn turn = turn_of(crop.turn);
      for (std::size_t axis = 0; axis < 3; ++axis)
        CHECK(size.at(static_cast<std::size_t>(turn.order[axis])) == size.at(axis));
    }
    CHECK(seen.size() == turns);
    CHECK(last == Point{5 - size[0], 6 - size[1], 7 - size[2]});
    const Sample sample = read(set, {.sample = 3});
    const Point start = set.crop({.sample = 3}).start;
    CHECK(sample.input == box_of(*set.volumes().input, start, size));
    CHECK(sample.target == box_of(*set.volumes().target, start, size));
    CHECK(set.layout()[1].shape == Shape{5, size[0], size[1], size[2]});
  }
}

TEST_CASE("crops: of periodic volumes they begin at every point, of several boxes they are of each") {
  const testing::TemporaryFolder folder;
  const std::string path = (folder / "v.h5").string();
  write_hdf5(path, {.extent = {3, 4, 5}, .boxes = 2});
  const CropDataset set(open_volumes(path), {.size = {2, 3, 5}, .samples = 900, .wrap = true});
  std::array<std::set<std::int64_t>, 3> starts;
  std::set<std::int64_t> boxes;
  for (std::int64_t i = 0; i < set.samples(); ++i) {
    const Crop crop = set.crop({.sample = i, .epoch = 1, .seed = 5});
    for (std::size_t axis = 0; axis < 3; ++axis) starts.at(axis).insert(crop.start.at(axis));
    boxes.insert(crop.box);
  }
  CHECK(starts == std::array<std::set<std::int64_t>, 3>{{{0, 1, 2}, {0, 1, 2, 3}, {0, 1, 2, 3, 4}}});
  CHECK(boxes == std::set<std::int64_t>{0, 1});
  for (const std::int64_t i : {0, 1, 2, 3, 4, 5}) {
    const SampleKey key{.sample = i};
    const Crop crop = set.crop(key);
    const Sample sample = read(set, key);
    CHECK(sample.input == wrapped_box_of(*set.volumes().input, crop.start, {2, 3, 5}, crop.box));
    CHECK(sample.target == wrapped_box_of(*set.volumes().target, crop.start, {2, 3, 5}, crop.box));
  }
}
