// Images and their labels from IDX files: found in a folder, read as samples, refused where they do not belong
// together.
#include "data/images/labelled_images.h"

#include <array>
#include <filesystem>

#include "tests/data/files/idx_files.h"
#include "tests/harness/data_files.h"
#include "tests/harness/places.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring, testing::gzipped, testing::idx_header, testing::write_text;

namespace {

struct Sample {
  std::vector<float> image;
  std::int32_t label = -1;
};

Sample read(const LabelledImages& data, std::int64_t sample) {
  Sample s{.image = std::vector<float>(static_cast<std::size_t>(data.height() * data.width()), -1)};
  data.read({.sample = sample}, std::array<void*, 2>{s.image.data(), &s.label});
  return s;
}

}  // namespace

TEST_CASE("labelled images: samples hold the files' bytes") {
  const testing::TemporaryFolder folder;
  const IdxFiles files{folder / "images", folder / "labels.gz"};
  write_text(files.images,
             idx_header({3, 2, 4}) + std::string("\0\1\2\3\4\5\6\7abcdefgh\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8", 24));
  write_text(files.labels, gzipped(idx_header({3}) + std::string("\7\0\2", 3)));
  const LabelledImages data(files);
  CHECK(data.name() == files.images);
  CHECK(data.samples() == 3);
  CHECK(data.height() == 2);
  CHECK(data.width() == 4);
  CHECK(data.classes() == 8);

  const std::vector<TensorSpec> layout = data.layout();
  REQUIRE(layout.size() == 2);
  CHECK(layout[0].name == "image");
  CHECK(layout[0].shape == Shape{1, 2, 4});
  CHECK(layout[0].dtype == DType::fp32);
  CHECK(layout[1].name == "label");
  CHECK(layout[1].shape.empty());
  CHECK(layout[1].dtype == DType::i32);

  CHECK(read(data, 0).image == std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(read(data, 2).image == std::vector<float>{255, 254, 253, 252, 251, 250, 249, 248});
  CHECK(read(data, 0).label == 7);
  CHECK(read(data, 1).label == 0);
  CHECK(read(data, 2).label == 2);
  CHECK_THROWS_WITH(read(data, 3), files.images + ": image 3 of 3 is asked for");
  CHECK_THROWS_WITH(read(data, -1), files.images + ": image -1 of 3 is asked for");
  CHECK_THROWS_WITH(data.band({0, 1}), files.images + ": samples are read whole, and not rows [0, 1) of them");
}

TEST_CASE("labelled images: files that do not belong together are refused by name") {
  const testing::TemporaryFolder folder;
  const IdxFiles files{folder / "images", folder / "labels"};
  write_text(files.images, idx_header({2, 1, 2}) + "abcd");
  write_text(files.labels, idx_header({3}) + "abc");
  CHECK_THROWS_WITH(LabelledImages(files), files.images + " has 2 images, but " + files.labels + " has 3 labels");
  CHECK_THROWS_WITH(LabelledImages({files.labels, files.labels}),
                    files.labels + " has the shape [3]; images have three dimensions: number, height, width");
  CHECK_THROWS_WITH(LabelledImages({files.images, files.images}),
                    files.images + " has the shape [2, 1, 2]; labels have one dimension");
}

TEST_CASE("labelled images: the files of a folder are found, and what is missing is named") {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path();
  const std::string lacks = path + " lacks ", both = " (looked for with and without .gz)";
  CHECK_THROWS_WITH(find_idx_files(path, true), lacks + "train-images-idx3-ubyte and train-labels-idx1-ubyte" + both);
  write_text(folder / "t10k-images-idx3-ubyte.gz", "");
  CHECK_THROWS_WITH(find_idx_files(path, false), lacks + "t10k-labels-idx1-ubyte" + both);
  CHECK_THROWS_WITH(find_idx_files(path, true), ContainsSubstring("train-images-idx3-ubyte and"));
  write_text(folder / "t10k-labels-idx1-ubyte", "");
  write_text(folder / "t10k-labels-idx1-ubyte.gz", "");
  const IdxFiles files = find_idx_files(path, false);
  CHECK(files.images == path + "/t10k-images-idx3-ubyte.gz");
  CHECK(files.labels == path + "/t10k-labels-idx1-ubyte");
  CHECK_THROWS_WITH(find_idx_files(path + "/nowhere", true), ContainsSubstring(path + "/nowhere lacks"));
}

TEST_CASE("labelled images: MNIST as it is published") {
  const std::string folder = testing::source_path("../shared/data/mnist");
  if (!std::filesystem::exists(folder)) ISOBAR_SKIP(folder + " does not exist");
  for (const bool train : {true, false}) {
    const LabelledImages data(find_idx_files(folder, train));
    CHECK(data.samples() == (train ? 60000 : 10000));
    CHECK(data.height() == 28);
    CHECK(data.width() == 28);
    CHECK(data.classes() == 10);
    CHECK(read(data, 0).label == (train ? 5 : 7));
    double sum = 0;
    for (std::int64_t i = 0; i < data.samples(); ++i)
      for (const float pixel : read(data, i).image) sum += pixel;
    // The mean that everyone who trains on MNIST subtracts: 0.1307 of 255.
    if (train) CHECK(sum / (60000.0 * 28 * 28) / 255 == testing::Approx(0.1307).margin(0.0001));
  }
}
