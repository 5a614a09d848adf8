// isobar predict: what PyTorch computes (tests/golden/README.md), the scores of evaluate, whole images of any size, a
// volume whatever its crops are, and what is refused before any work.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/train/model_file.h"
#include "data/files/hdf5.h"
#include "data/files/npy.h"
#include "tests/data/files/idx_files.h"
#include "tests/harness/golden_comparison.h"
#include "tests/harness/hashed_numbers.h"
#include "tests/harness/small_runs.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using nlohmann::json;
using testing::ContainsSubstring, testing::Golden, testing::Outcome, testing::SmallRuns;
namespace fs = std::filesystem;

constexpr const char* kHere = " --threads 1 --device cpu ";
constexpr const char* kImages =
    " --config cnn --set width=4 --set depth=3 --set img_size=[8,9] --set nsamples=24 --set nsamples_val=13"
    " --set global_batch_size=12 --set num_epochs=1 --threads 1 --device cpu ";
constexpr const char* kVolumes =
    " --config unet_cpu --set width=2 --set levels=2 --set data_size=8 --set nsamples=8 --set nsamples_val=4"
    " --set global_batch_size=4 --set num_epochs=1 --threads 1 --device cpu ";

constexpr const char* kLast = "run/checkpoints/step_00000002/model.safetensors";  // of both

using Values = std::vector<float>;

struct Stored {
  Shape shape;
  Values values;
};

Stored stored(const fs::path& file, const std::string& dataset) {
  const hdf5::File opened = hdf5::File::open(file.string());
  Stored stored{opened.info(dataset).shape, {}};
  stored.values.resize(static_cast<std::size_t>(numel_of(stored.shape)));
  opened.read(dataset, Shape(stored.shape.size(), 0), stored.shape, stored.values.data());
  return stored;
}

void store(const fs::path& file, const std::vector<std::pair<std::string, Stored>>& datasets) {
  fs::create_directories(file.parent_path());
  hdf5::File opened = hdf5::File::create(file.string());
  for (const auto& [name, data] : datasets) opened.write(name, data.shape, std::span<const float>(data.values));
  if (opened.has("target")) opened.write_attribute("target", "units", "K");
  opened.close();
}

Stored hashed(const Shape& shape, std::uint64_t seed, double scale = 1, double offset = 0) {
  const std::vector<double> values = testing::hashed_values(numel_of(shape), seed, scale, offset);
  return {shape, {values.begin(), values.end()}};
}

// One of two boxes.
Stored box_of(const Stored& both, std::ptrdiff_t box) {
  const std::ptrdiff_t size = std::ssize(both.values) / 2;
  return {{both.shape.begin() + 1, both.shape.end()},
          {both.values.begin() + box * size, both.values.begin() + (box + 1) * size}};
}

// A command `isobar predict --weights WEIGHTS --out OUT` in the folder of small runs.
class Predictions : public SmallRuns {
 public:
  using SmallRuns::SmallRuns;

  std::string at(const std::string& name) const { return path(name).string(); }
  Outcome predict(const std::string& weights, const std::string& out, const std::string& more = "") const {
    return command("predict --weights " + at(weights) + " --out " + at(out) + kHere + more);
  }
  Stored predicted(const std::string& weights, const std::string& dataset, const std::string& more = "") const {
    done(predict(weights, "predicted.h5", more));
    return stored(path("predicted.h5"), dataset);
  }
  json json_of(const std::string& name) const { return json::parse(file(name)); }
  // One line on stderr that has the words, and nothing is written.
  void refused(const Outcome& outcome, const std::string& words) const {
    INFO(outcome.err);
    CHECK(outcome.status == 1);
    CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
    CHECK_THAT(outcome.err, ContainsSubstring(words));
    for (const auto& entry : fs::recursive_directory_iterator(path()))
      CHECK(entry.path().filename().string().find("refused") == std::string::npos);
  }
};

// The golden network in a file of weights, with its config.
void write_golden(const Golden& golden, const fs::path& file, const std::string& weights = "") {
  RunConfig config = read_config(testing::golden_entries(golden, testing::kFp64));
  const std::unique_ptr<Task> task = config.recipe->on_shapes()->make_task(config.compute, Device{});
  if (!weights.empty()) {
    read_model(testing::kGolden + weights, *task);
  } else {
    const json scales = golden.metadata("scales");
    std::uint64_t seed = 1000;
    for (const std::string& name : golden.parameters()) {
      Parameters& parameters = task->parameters();
      const auto& all = parameters.named();
      const auto p = std::ranges::find(all, name, &NamedParameter::name);
      REQUIRE(p != all.end());
      const Tensor values = testing::hashed_tensor(p->full_shape, Device{}, seed++, scales.at(name).get<double>());
      parameters.weight(*p).set_values(from_file_order(values, p->full_shape, p->order).to_vector());
    }
  }
  write_model(file, *task, to_json(config));
}

// To the rounding of the file's fp32.
void check_near(const std::vector<double>& values, const std::vector<double>& expected) {
  REQUIRE(values.size() == expected.size());
  double largest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) largest = std::max(largest, std::abs(values[i] - expected[i]));
  CHECK(largest < 3e-7);
}

std::vector<double> doubles(const Values& values) {
  return {values.begin(), values.end()};
}

// Nbody and Hydro [., D, H, W], smooth.
void store_volumes(const fs::path& file, const Shape& extent, bool has_target = true) {
  Stored input{{4}, {}}, target{{5}, {}};
  for (Stored* data : {&input, &target}) {
    data->shape.insert(data->shape.end(), extent.begin(), extent.end());
    for (std::int64_t i = 0; i < numel_of(data->shape); ++i)
      data->values.push_back(0.5f * std::sin((data == &input ? 0.13f : 0.07f) * static_cast<float>(i)));
  }
  std::vector<std::pair<std::string, Stored>> datasets{{"Nbody", input}};
  if (has_target) datasets.emplace_back("Hydro", target);
  store(file, datasets);
}

// A run on volumes in data/: run/.
void train_on_volumes(const Predictions& here, const std::string& more = "") {
  store_volumes(here.path("data/train/box.h5"), {12, 12, 12});
  store_volumes(here.path("data/valid/box.h5"), {20, 12, 16});
  here.done(here.train("run", "--data " + here.at("data") + " " + more));
}

}  // namespace

TEST_CASE("predict: images, their scores and units are PyTorch's") {
  const Predictions here("");
  const Golden golden("cnn");
  write_golden(golden, here.path("cnn.safetensors"), "cnn_weights.safetensors");
  store(here.path("images.h5"), {{"input", {golden.shape("input"), golden.floats("input")}},
                                 {"target", {golden.shape("target"), golden.floats("target")}}});
  const Stored output = here.predicted(
      "cnn.safetensors", "target", "--batch-size 2 --input " + here.at("images.h5") + " --scores " + here.at("s.json"));
  CHECK(output.shape == golden.shape("output"));
  check_near(doubles(output.values), golden.values("output"));
  const json scores = here.json_of("s.json");
  CHECK(std::abs(scores.at("test_loss").get<double>() - golden.values("loss")[0]) < 1e-10);
  CHECK(scores.at("test_l1").size() == 3);
  const hdf5::File file = hdf5::File::open(here.at("predicted.h5"));
  CHECK(file.names() == std::vector<std::string>{"target"});
  CHECK(file.attribute("target", "units") == "K");
  CHECK(file.attribute("target", "task") == "image_regression");
  CHECK(file.attribute("target", "model") == "cnn");
  CHECK(file.attribute("target", "weights") == here.at("cnn.safetensors"));
  CHECK_THAT(file.attribute("target", "made_from").value_or(""), ContainsSubstring("images.h5: 3 images [2, 7, 9]"));
}

TEST_CASE("predict: volumes are PyTorch's") {
  const Predictions here("");
  const Golden golden("unet_half");
  write_golden(golden, here.path("unet.safetensors"));
  const Stored input = hashed({2, 4, 32, 32, 32}, 1), target = hashed({2, 5, 32, 32, 32}, 2, 0.5, -0.25);
  std::vector<double> output;
  double loss = 0;
  for (const std::ptrdiff_t box : {0, 1}) {
    store(here.path("box.h5"), {{"Nbody", box_of(input, box)}, {"Hydro", box_of(target, box)}});
    const Stored part =
        here.predicted("unet.safetensors", "Hydro", "--input " + here.at("box.h5") + " --scores " + here.at("s.json"));
    CHECK(part.shape == Shape{5, 32, 32, 32});
    output.insert(output.end(), part.values.begin(), part.values.end());
    loss += here.json_of("s.json").at("test_loss").get<double>() / 2;
  }
  CHECK(std::abs(loss - golden.values("loss")[0]) < 1e-10);
  check_near(testing::summary(output), golden.values("output"));
}

TEST_CASE("predict: without --input it is the validation set, with the scores of evaluate, whatever the batch is") {
  const Predictions here(kImages);
  here.done(here.train("run"));
  here.done(here.command("evaluate --weights " + here.at("run") + " --scores " + here.at("evaluated.json") + kHere));
  const Outcome outcome = here.predict("run", "all.h5", "--scores " + here.at("predicted.json"));
  here.done(outcome);
  for (const char* words : {"weights: ", "of iteration 2, validation loss ",
                            "the random images: 13 images [1, 8, 9] to "
                            "[1, 8, 9]",
                            "written to ", ": target [13, 1, 8, 9], HDF5", "\nvalidation loss "})
    CHECK_THAT(outcome.out, ContainsSubstring(words));
  CHECK(here.json_of("predicted.json") == here.json_of("evaluated.json"));
  const Values all = stored(here.path("all.h5"), "target").values;
  CHECK(std::ranges::any_of(all, [](float value) { return value != 0; }));
  CHECK(here.predicted("run", "target", "--batch-size 1").values == all);
  CHECK(here.predicted("run", "target", "--batch-size 5 --threads 2 --set num_data_workers=2").values == all);
}

TEST_CASE("predict: images of other sizes than in training, where the network takes them") {
  const Predictions here(kImages);
  here.done(here.train("run"));
  // Away from the edges a small image gets what it gets as a part of a larger one: the network looks 3 points far.
  const Stored large = hashed({2, 1, 16, 20}, 3);
  Stored small{{2, 1, 10, 11}, {}};
  for (std::int64_t n = 0; n < 2; ++n)
    for (std::int64_t i = 0; i < 10; ++i)
      for (std::int64_t j = 0; j < 11; ++j)
        small.values.push_back(large.values[static_cast<std::size_t>((n * 16 + 2 + i) * 20 + 4 + j)]);
  store(here.path("large.h5"), {{"input", large}});
  store(here.path("small.h5"), {{"input", small}});
  const Stored of_large = here.predicted("run", "target", "--input " + here.at("large.h5")),
               of_small = here.predicted("run", "target", "--input " + here.at("small.h5"));
  CHECK(of_large.shape == Shape{2, 1, 16, 20});
  REQUIRE(of_small.shape == Shape{2, 1, 10, 11});
  for (std::int64_t n = 0; n < 2; ++n)
    for (std::int64_t i = 3; i < 7; ++i)
      for (std::int64_t j = 3; j < 8; ++j)
        CHECK(of_small.values[static_cast<std::size_t>((n * 10 + i) * 11 + j)] ==
              of_large.values[static_cast<std::size_t>((n * 16 + 2 + i) * 20 + 4 + j)]);
  here.refused(here.predict("run", "refused.h5", "--scores s.json --input " + here.at("large.h5")),
               "large.h5 has no 'target' beside it to score by");
}

TEST_CASE("predict: noisy images are the validation's, or those of a file, with the noise that --set says") {
  const Predictions here(kImages);
  fs::create_directories(here.path("digits"));
  for (const char* prefix : {"train", "t10k"}) {
    testing::ImageSet set{.height = 8, .width = 9, .pixels = "", .labels = std::string(24, '\1')};
    for (int i = 0; i < 24 * 72; ++i) set.pixels += static_cast<char>(i * 37 % 251);
    testing::write_images(here.path("digits"), prefix, set);
  }
  here.done(here.train("run", "--set images=noisy --set img_size=null --data " + here.at("digits")));
  const Stored own = here.predicted("run", "target");
  CHECK(own.shape == Shape{13, 1, 8, 9});  // nsamples_val
  const std::string images = "--input " + here.at("digits/t10k-images-idx3-ubyte");
  const Stored all = here.predicted("run", "target", images);
  CHECK(all.shape == Shape{24, 1, 8, 9});
  CHECK(std::equal(own.values.begin(), own.values.end(), all.values.begin()));
  CHECK(here.predicted("run", "target", "--input " + here.at("digits")).values == all.values);
  CHECK(here.predicted("run", "target", images + " --set sigma=0").values != all.values);
  CHECK_THAT(here.predict("run", "digits/t10k-images-idx3-ubyte").err, ContainsSubstring("would replace the data"));
}

TEST_CASE("predict: a volume is the same for any batch and any threads, and scored as a whole") {
  const Predictions here(kVolumes);
  train_on_volumes(here);
  const std::string scores = " --scores " + here.at("s.json");
  const Stored own = here.predicted(kLast, "Hydro", scores);
  CHECK(own.shape == Shape{5, 20, 12, 16});
  const json figures = here.json_of("s.json");
  const Values target = stored(here.path("data/valid/box.h5"), "Hydro").values;
  double l1 = 0;
  for (std::size_t i = 0; i < target.size(); ++i) l1 += std::abs(static_cast<double>(own.values[i]) - target[i]);
  CHECK(std::abs(figures.at("val_loss").get<double>() - l1 / static_cast<double>(target.size())) < 1e-6);
  const Values input = stored(here.path("data/valid/box.h5"), "Nbody").values;
  double density = 0, velocity = 0;  // of the input as the prediction
  const std::size_t points = target.size() / 5;
  for (std::size_t i = 0; i < points; ++i) {
    density += std::abs(static_cast<double>(input[i]) - target[i]) / static_cast<double>(points);
    velocity += std::abs(static_cast<double>(input[points + i]) - target[points + i]) / static_cast<double>(points);
  }
  CHECK(std::abs(figures.at("val_input_l1").at("rho").get<double>() - density) < 1e-6);
  CHECK(std::abs(figures.at("val_input_l1").at("vx").get<double>() - velocity) < 1e-6);
  CHECK(figures.at("val_l1").size() == 5);

  CHECK(here.predicted(kLast, "Hydro", "--batch-size 7 --threads 2 --set num_data_workers=2" + scores).values ==
        own.values);
  CHECK(here.json_of("s.json") == figures);
  const std::string file = " --input " + here.at("data/valid/box.h5");
  CHECK(here.predicted(kLast, "Hydro", "--batch-size 1 --overlap 4" + file).values == own.values);
  CHECK(here.predicted(kLast, "Hydro", "--overlap 2" + file).values != own.values);
  CHECK(here.predicted(kLast, "Hydro", "--set wrap=true" + file).values != own.values);
  CHECK(here.predicted(kLast, "Hydro", "--set data_size=12" + file).values != own.values);
}

TEST_CASE("predict: a periodic volume that is moved gives the prediction moved, to the bit") {
  const Predictions here(kVolumes);
  train_on_volumes(here, "--set 'edge=[\"wrap\"]'");
  const auto moved = [](const Stored& box, std::int64_t by) {  // along the last axis
    Stored result = box;
    const std::int64_t width = box.shape.back();
    for (std::int64_t i = 0; i < std::ssize(box.values); ++i)
      result.values[static_cast<std::size_t>(i)] =
          box.values[static_cast<std::size_t>(i - i % width + (i % width + by) % width)];
    return result;
  };
  const Stored input = hashed({4, 12, 8, 16}, 9);
  store(here.path("box.h5"), {{"Nbody", input}});
  store(here.path("moved.h5"), {{"Nbody", moved(input, 4)}});  // by the step from crop to crop
  const Outcome outcome = here.predict(kLast, "out.h5", "--input " + here.at("box.h5"));
  here.done(outcome);
  CHECK_THAT(outcome.out, ContainsSubstring("box.h5: 'Nbody' [4, 12, 8, 16], periodic along axis 0, 2: 12 crops"));
  const Stored output = stored(here.path("out.h5"), "Hydro");
  CHECK(here.predicted(kLast, "Hydro", "--input " + here.at("moved.h5")).values == moved(output, 4).values);
  CHECK(output.values != moved(output, 4).values);
}

TEST_CASE("predict: several boxes are computed one by one") {
  const Predictions here(kVolumes);
  here.done(here.train("run", "--set volumes=synthetic --set data_size=[8,4,8]"));
  const Stored boxes = hashed({2, 4, 12, 8, 8}, 4), targets = hashed({2, 5, 12, 8, 8}, 5);
  store(here.path("boxes.h5"), {{"Nbody", boxes}, {"Hydro", targets}});
  const Stored all = here.predicted(kLast, "Hydro",
                                    "--batch-size 5 --input " + here.at("boxes.h5") + " --scores " + here.at("s.json"));
  CHECK(all.shape == Shape{2, 5, 12, 8, 8});
  double loss = 0;
  for (const std::ptrdiff_t box : {0, 1}) {
    store(here.path("box.h5"), {{"Nbody", box_of(boxes, box)}, {"Hydro", box_of(targets, box)}});
    const Stored one =
        here.predicted(kLast, "Hydro", "--input " + here.at("box.h5") + " --scores " + here.at("one.json"));
    CHECK(one.values == box_of(all, box).values);
    loss += here.json_of("one.json").at("test_loss").get<double>() / 2;
  }
  CHECK(std::abs(here.json_of("s.json").at("test_loss").get<double>() - loss) < 1e-6);
}

TEST_CASE("predict: volumes of .npy files and synthetic ones") {
  const Predictions here(kVolumes);
  here.done(here.train("run", "--set volumes=synthetic"));
  CHECK(here.predicted(kLast, "Hydro").shape == Shape{5, 16, 16, 16});
  const Stored box = hashed({4, 8, 8, 12}, 2);
  store(here.path("box.h5"), {{"Nbody", box}});
  Values channels_last;
  for (std::size_t point = 0; point < 768; ++point)
    for (std::size_t c = 0; c < 4; ++c) channels_last.push_back(box.values[c * 768 + point]);
  write_npy(here.at("box_data.npy"), Shape{8, 8, 12, 4}, std::span<const float>(channels_last));
  CHECK(here.predicted(kLast, "Hydro", "--input " + here.at("box_data.npy")).values ==
        here.predicted(kLast, "Hydro", "--input " + here.at("box.h5")).values);
}

TEST_CASE("predict: the probabilities of classes, of images with labels and without") {
  const Predictions here("");
  fs::create_directories(here.path("digits"));
  for (const char* prefix : {"train", "t10k"}) {
    testing::ImageSet set{.height = 8, .width = 8, .pixels = "", .labels = ""};
    for (int i = 0; i < 24; ++i) set.labels += static_cast<char>(i % 3);
    for (int i = 0; i < 24 * 64; ++i) set.pixels += static_cast<char>(i / 64 % 3 * 80 + i * 37 % 41);
    testing::write_images(here.path("digits"), prefix, set);
  }
  here.done(
      here.command("train --config mnist --set embed_dim=16 --set depth=1 --set num_heads=2 --set num_iters=30"
                   " --set lr=1e-2 --set patch_size=4 --set global_batch_size=12" +
                   std::string(kHere) + "--data " + here.at("digits") + " --run-dir " + here.at("run")));
  const Stored own = here.predicted("run", "probabilities", "--scores " + here.at("s.json"));
  REQUIRE(own.shape == Shape{24, 3});
  const json scores = here.json_of("s.json");
  double right = 0, loss = 0;
  for (std::size_t i = 0; i < 24; ++i) {
    const float* row = &own.values[3 * i];
    CHECK(std::abs(row[0] + row[1] + row[2] - 1) < 1e-6);
    right += std::max_element(row, row + 3) - row == static_cast<std::ptrdiff_t>(i % 3) ? 1.0 / 24 : 0;
    loss -= std::log(static_cast<double>(row[i % 3])) / 24;
  }
  CHECK(std::abs(scores.at("val_loss").get<double>() - loss) < 1e-6);
  CHECK(std::abs(scores.at("val_accuracy").get<double>() - right) < 1e-9);
  here.done(here.command("evaluate --weights " + here.at("run") + " --scores " + here.at("e.json") + kHere));
  CHECK(here.json_of("e.json") == scores);
  CHECK(here.predicted("run", "probabilities", "--batch-size 5 --input " + here.at("digits")).values == own.values);
  const std::string alone = "--input " + here.at("digits/t10k-images-idx3-ubyte");
  CHECK(here.predicted("run", "probabilities", alone).values == own.values);
  here.refused(here.predict("run", "refused.h5", alone + " --scores " + here.at("s.json")),
               "t10k-images-idx3-ubyte has no labels beside it to score by");
}

TEST_CASE("predict: what does not fit is refused before any work, with the file and the numbers") {
  const Predictions here(kVolumes);
  train_on_volumes(here);
  const auto refused = [&](const std::string& more, const std::string& words) {
    here.refused(here.predict("run", "refused.h5", more), words);
  };
  const std::string box = here.at("data/valid/box.h5");
  refused("--overlap 8", box + ": 'Nbody': crops of 8 points cannot overlap by 8; the overlap is from 0 to 7");
  refused("--overlap=-1", "cannot overlap by -1");
  refused("--input " + here.at("nowhere.h5"), here.at("nowhere.h5") + " does not exist");
  refused("--set data_size=10",
          "config key data_size in --set: a U-Net of 2 levels takes multiples of 4 points, not 10");
  refused("--set data_size=16", "[4, 20, 12, 16] has 12 points along axis 1, fewer than a crop, which has 16");
  refused("--set lr=-1", "config key lr in --set must be at least 0");
  refused("--batch-size 0", "--batch-size");
  store(here.path("three.h5"), {{"Nbody", hashed({3, 8, 8, 8}, 1)}});
  refused("--input " + here.at("three.h5"), "three.h5: 'Nbody' [3, 8, 8, 8] has 3 channels, but the network takes 4");
  store(here.path("four.h5"), {{"Nbody", hashed({4, 8, 8, 8}, 1)}, {"Hydro", hashed({4, 8, 8, 8}, 1)}});
  refused("--input " + here.at("four.h5"), "four.h5: 'Hydro' [4, 8, 8, 8] has 4 channels, but the network computes 5");
  store(here.path("images.h5"), {{"input", hashed({1, 4, 8, 8}, 1)}});
  refused("--input " + here.at("images.h5"), "images.h5 has no dataset 'Nbody'");
  here.refused(here.predict("nowhere", "refused.h5"), "nowhere");
  here.refused(here.predict("run", "no/refused.h5"), "no");
  here.refused(here.command("predict --weights " + here.at("run")), "--out is required");
  for (const std::string other : {"nc", "nc4", "cdf", "zarr", "grib", "grib2", "grb"}) {
    here.refused(here.predict("run", "refused." + other), "isobar writes no " + other + " yet: name it .h5");
    here.refused(here.predict("run", "refused.h5", "--scores " + here.at("refused." + other)),
                 "--scores " + here.at("refused." + other) + ": isobar writes no " + other + " yet");
  }
}

// The input is a file with holes that takes no room itself.
TEST_CASE("predict: what the disk has no room for is refused before any work") {
  const Predictions here(kVolumes);
  here.done(here.train("run", "--set volumes=synthetic"));
  constexpr std::int64_t kSide = 1024;
  const auto free = static_cast<std::int64_t>(fs::space(here.path()).available);
  const std::int64_t depth = 2 * free / (5 * 4 * kSide * kSide) + 1;  // others may make room meanwhile
  hdf5::File file = hdf5::File::create(here.at("large.h5"));
  try {
    file.reserve("Nbody", Shape{4, depth, kSide, kSide});
    file.close();
  } catch (const Error&) {
    ISOBAR_SKIP("this file system has no file of that size");
  }
  here.refused(here.predict("run", "refused.h5", "--input " + here.at("large.h5")),
               concat(" needs ", 5 * 4 * depth * kSide * kSide, " bytes, and the disk has "));
}

TEST_CASE("predict: a volume with a hole leaves nothing behind, and what was there") {
  const Predictions here(kVolumes);
  train_on_volumes(here);
  Stored box = hashed({4, 8, 8, 16}, 1);
  box.values[static_cast<std::size_t>(((2 * 8 + 7) * 8 + 6) * 16 + 15)] = std::nanf("");
  store(here.path("hole.h5"), {{"Nbody", box}});
  const std::string words = "hole.h5: 'Nbody': the value of channel 2 at point (7, 6, 15) is nan";
  here.refused(here.predict(kLast, "refused.h5", "--input " + here.at("hole.h5")), words);
  here.done(here.predict(kLast, "kept.h5"));
  const Values before = stored(here.path("kept.h5"), "Hydro").values;
  CHECK_THAT(here.predict(kLast, "kept.h5", "--input " + here.at("hole.h5")).err, ContainsSubstring(words));
  CHECK(stored(here.path("kept.h5"), "Hydro").values == before);
  for (const auto& entry : fs::directory_iterator(here.path()))
    CHECK_FALSE(entry.path().filename().string().starts_with("."));
}

TEST_CASE("predict: outputs replace no input, no data and no file of the run") {
  const Predictions here(kVolumes);
  train_on_volumes(here);
  const auto refused = [&](const std::string& out, const std::string& more, const std::string& words) {
    here.refused(here.predict("run", out, more), words);
  };
  const std::string weights = "run/best/model.safetensors", box = here.file("data/valid/box.h5");
  refused(weights, "", "would replace the weights");
  refused("data/valid/box.h5", "", "would replace the data");
  refused("data/train/box.h5", "", "would replace the data");
  store_volumes(here.path("other.h5"), {8, 8, 8});
  refused("other.h5", "--input " + here.at("other.h5"), "would replace the data");
  fs::create_symlink(here.path("other.h5"), here.path("link.h5"));
  refused("link.h5", "--input " + here.at("other.h5"), "would replace the data");
  refused("run/config.json", "", "would replace a file of the run");
  refused("out.h5", "--scores " + here.at("run/summary.json"),
          "--scores " + here.at("run/summary.json") + " would replace a file of the run");
  refused("out.h5", "--scores " + here.at("out.h5"), "--out and --scores are both");
  refused("out.h5", "--scores " + here.at("data/../out.h5"), "--out and --scores are both");  // spelled otherwise
  // Relative ones too, which lead nowhere yet.
  const auto both = [&](const std::string& out, const std::string& scores) {
    return here.command("predict --weights " + here.at("run") + " --out " + out + " --scores " + scores).err;
  };
  CHECK_THAT(both("new.h5", "./new.h5"), ContainsSubstring("--out and --scores are both new.h5"));
  CHECK(here.file("data/valid/box.h5") == box);
}

TEST_CASE("predict: networks of images that take no other extents, and other tasks, are refused by what fits") {
  const Predictions here("");
  const std::string small = " --set nsamples=8 --set nsamples_val=4 --set global_batch_size=4 --set num_epochs=1" +
                            std::string(kHere) + "--run-dir ";
  store(here.path("images.h5"), {{"input", hashed({1, 1, 10, 12}, 1)}});
  store(here.path("two.h5"), {{"input", hashed({1, 2, 8, 8}, 1)}});
  const std::string images = "--input " + here.at("images.h5");
  here.done(
      here.command("train --config cnn --set model=vit --set img_size=[8,8] --set patch_size=4 --set embed_dim=16"
                   " --set depth=1 --set num_heads=2" +
                   small + here.at("vit")));
  here.refused(here.predict("vit", "refused.h5", images),
               "images.h5 has images of 10 x 12, but the network takes those of its training alone, 8 x 8");
  CHECK(here.predicted("vit", "target").shape == Shape{4, 1, 8, 8});
  here.done(here.command("train --config cnn --set model=unet --set levels=2 --set width=2 --set img_size=[8,8]" +
                         small + here.at("unet")));
  here.refused(here.predict("unet", "refused.h5", images),
               "images.h5 has images of 10 x 12, but the network takes multiples of 4 points");
  here.refused(here.predict("unet", "refused.h5", "--input " + here.at("two.h5")),
               "two.h5 has images [2, 8, 8], but the network was trained on [1, 8, 8], of 1 channel");
  here.done(here.command("data synth --out " + here.at("planet") +
                         " --train-years 1 --valid-years 1 --steps-per-year 8 --grid 4x8 --channels 2"));
  here.done(here.command("train --config tiny --set depth=1 --set num_iters=1 --set global_batch_size=2 --data " +
                         here.at("planet") + kHere + "--run-dir " + here.at("forecast")));
  here.refused(here.predict("forecast", "refused.h5"), "is a model of the task forecast: use isobar forecast");
}

}  // namespace isobar
