// What the recipe of volume regression leaves to the data, how samples are turned on their way to the network, and what
// it refuses.
#include "models/volume_regression/recipe.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/batch.h"
#include "data/files/hdf5.h"
#include "engine/conv_ops.h"
#include "models/regression/volume_metrics.h"
#include "models/regression/volume_regressor.h"
#include "tests/harness/forecast_config.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

std::unique_ptr<OpenedRecipe> open(RunConfig& config, std::int64_t batch = 1) {
  return config.recipe->open(config.origins, {.global_batch_size = batch});
}

RunConfig config_of(std::vector<std::string> assignments) {
  assignments.insert(assignments.begin(), {"task=volume_regression", "data_size=4", "levels=2", "width=2", "nsamples=8",
                                           "nsamples_val=3", "global_batch_size=2"});
  return read_config(entries_of(assignments));
}

std::unique_ptr<OpenedRecipe> opened(const std::vector<std::string>& assignments) {
  RunConfig config = config_of(assignments);
  return open(config);
}

void write_volumes(const TemporaryFolder& folder, std::int64_t in = 4, std::int64_t out = 5,
                   std::int64_t valid_in = -1) {
  for (const char* name : {"train", "valid"}) {
    std::filesystem::create_directories(folder / name);
    hdf5::File file = hdf5::File::create((folder / name / "box.h5").string());
    const std::int64_t own = std::string(name) == "valid" && valid_in > 0 ? valid_in : in;
    for (const auto& [dataset, channels] : {std::pair("Nbody", own), std::pair("Hydro", out)})
      file.write(dataset, std::vector<std::int64_t>{channels, 6, 6, 6},
                 std::vector<float>(static_cast<std::size_t>(channels * 216), 0.25f));
    file.close();
  }
}

std::vector<std::string> paths_of(const TemporaryFolder& folder) {
  std::vector<std::string> assignments;
  for (const auto& [key, path] : VolumeRegressionRecipe().paths_in(folder.path()))
    assignments.push_back(key + "=" + path.string());
  return assignments;
}

std::vector<std::string> with(std::vector<std::string> assignments, const std::string& more) {
  assignments.push_back(more);
  return assignments;
}

}  // namespace

TEST_CASE("volume regression: channels are the data's, or those of synthetic volumes") {
  const TemporaryFolder folder;
  write_volumes(folder, 3, 2);
  RunConfig config = config_of(paths_of(folder));
  CHECK(config.model == "unet");
  const auto data = open(config);
  CHECK(data->train().samples() == 8);
  CHECK(data->valid().samples() == 3);
  CHECK(data->train().layout()[0].shape == Shape{3, 4, 4, 4});
  CHECK(data->sentences() == std::vector<std::string>{"from the data: n_in_channels 3, n_out_channels 2"});
  CHECK(opened(with(paths_of(folder), "volumes=memory"))->train().layout()[1].shape == Shape{2, 4, 4, 4});
  CHECK(opened({"volumes=synthetic"})->train().layout()[1].shape == Shape{5, 4, 4, 4});
  CHECK(opened({"volumes=synthetic", "n_in_channels=2"})->sentences() ==
        std::vector<std::string>{"of synthetic volumes: n_out_channels 5"});
}

TEST_CASE("volume regression: what does not fit is refused with file, dataset and numbers") {
  const TemporaryFolder folder;
  write_volumes(folder);
  const auto paths = paths_of(folder);
  const std::string train = (folder / "train/box.h5").string(), valid = (folder / "valid/box.h5").string();
  CHECK_THROWS_WITH(opened(with(paths, "data_size=8")), ContainsSubstring(train + ": 'Nbody' [4, 6, 6, 6] has no box "
                                                                                  "of 8 points along each axis"));
  CHECK_THROWS_WITH(opened(with(paths, "n_in_channels=3")),
                    train + ": 'Nbody' [4, 6, 6, 6] has 4 channels, but n_in_channels is 3");
  CHECK_THROWS_WITH(opened(with(paths, "n_out_channels=4")),
                    train + ": 'Hydro' [5, 6, 6, 6] has 5 channels, but n_out_channels is 4");
  write_volumes(folder, 4, 5, 2);
  CHECK_THROWS_WITH(opened(paths), valid + ": 'Nbody' [2, 6, 6, 6] has 2 channels, but n_in_channels is 4");
  CHECK_THROWS_WITH(opened({}),
                    ContainsSubstring("train_path is empty, but volumes are file: name the data by --data"));
  CHECK_THROWS_WITH(opened(with(paths, "volumes=synthetic")), ContainsSubstring("but volumes are synthetic"));
  CHECK_THROWS_WITH(VolumeRegressionRecipe().paths_in(std::filesystem::path(folder / "train")),
                    ContainsSubstring("has no folders train and valid"));
  CHECK_THROWS_WITH(config_of({}).recipe->on_shapes(), ContainsSubstring("set n_in_channels and n_out_channels"));
  const auto read_vit = [] {
    RunConfig config = read_config(
        entries_of({"task=volume_regression", "model=vit", "volumes=synthetic", "data_size=4", "patch_size=2"}));
    return open(config);
  };
  CHECK_THROWS_WITH(read_vit(), ContainsSubstring("a ViT has two axes, and the samples [4, 4, 4, 4] have 3"));
}

TEST_CASE("volume regression: input and target are turned alike, vectors only where that is wanted") {
  for (const bool vectors_turn : {false, true}) {
    RunConfig config = config_of({"volumes=synthetic", "n_in_channels=4", "n_out_channels=4",
                                  vectors_turn ? "augment=physical" : "augment=tutorial"});
    const auto data = open(config);
    const auto task = data->make_task(config.compute, Device{});
    // The target is half of the input: then so it is of what the network and the loss see.
    const std::vector<std::int64_t> samples{0, 1, 2, 3, 4, 5, 6, 7};
    const Batch batch = read_batch(data->train(), samples, 1);
    const auto metrics = task->metrics();
    metrics->begin();
    task->score(batch, *metrics);
    metrics->end();
    const Tensor turned = turn(tensor_of(batch, "input"), tensor_of(batch, "turn"), vectors_turn ? 1 : -1, DType::fp32);
    double sum = 0;
    std::size_t i = 0;
    for (const double value : turned.to_vector())
      if (i++ % 4 == 1) sum += std::abs(value);
    const auto& own = dynamic_cast<VolumeMetrics&>(*metrics);
    CHECK(std::abs(own.input_l1(1) - sum / (8 * 64) / 2) < 1e-7);
  }
}

TEST_CASE("volume regression: metrics by hand, the input is scored once") {
  VolumeMetrics metrics(2, 3, 0.5);
  metrics.begin();
  CHECK(metrics.wants_input());
  const std::vector<double> first{2, 4, 6, 8}, second{1, 1, 1, 1}, input{3, 5, 0};
  metrics.add(first, input, 4);
  metrics.add(second, input, 1);
  metrics.end();
  CHECK(metrics.l1(0) == 3.0 / 5);
  CHECK(metrics.l1(2) == 7.0 / 5);
  CHECK(metrics.input_l1(1) == 10.0 / 5);
  CHECK(std::abs(metrics.loss() - ((3 + 5 + 7) / 5.0 / 3 + 0.5 * 9 / 5)) < 1e-15);
  metrics.begin();
  CHECK_FALSE(metrics.wants_input());
  metrics.add(second, {}, 1);
  CHECK(metrics.l1(0) == 1);
  CHECK(metrics.input_l1(1) == 2);
  CHECK_THROWS_AS(metrics.add(input, {}, 1), Error);
}

TEST_CASE("volume regression: the tutorial's crops are drawn by whole batches, those of a validation one by one") {
  const auto crops_of = [](std::int64_t batch, bool train) {
    RunConfig config = config_of({"volumes=synthetic", "crops=tutorial"});
    const auto data = open(config, batch);
    const auto& set = dynamic_cast<const CropDataset&>(train ? data->train() : data->valid());
    std::vector<Crop> crops;
    for (std::int64_t i = 0; i < 3; ++i) crops.push_back(set.crop({.sample = i}));
    return crops;
  };
  CHECK(crops_of(2, true) != crops_of(4, true));
  CHECK(crops_of(2, false) == crops_of(4, false));
  CHECK(crops_of(4, true)[2] == TutorialCrops(8, 4, 4, 8).crop(0, 2));
}

}  // namespace isobar::testing
