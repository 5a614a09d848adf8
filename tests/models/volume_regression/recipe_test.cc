// What the recipe of volume regression leaves to the data, how samples are turned on their way to the network, and what
// it refuses.
#include "models/volume_regression/recipe.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/batch.h"
#include "data/files/hdf5.h"
#include "engine/conv_ops.h"
#include "kernels/mean_loss.h"
#include "models/regression/regressor.h"
#include "models/regression/volume_metrics.h"
#include "models/regression/volume_regressor.h"
#include "tests/harness/error_of.h"
#include "tests/harness/forecast_config.h"
#include "tests/harness/key_facts.h"
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

std::unique_ptr<OpenedRecipe> opened(std::vector<std::string> assignments, const std::string& more = "") {
  if (!more.empty()) assignments.push_back(more);
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
  CHECK_THROWS_WITH(opened({"train_path=" + train}),
                    "config key val_path is empty, but volumes are file: name the data by --data DIR");
  CHECK_THROWS_WITH(opened({"val_path=" + valid, "volumes=synthetic"}),
                    "config key val_path in --set is " + valid +
                        ", but volumes are synthetic: set volumes=file or volumes=memory to read files");
  for (const std::vector<std::string>& keys : {std::vector<std::string>{}, {"n_in_channels=4"}, {"n_out_channels=5"}})
    CHECK_THROWS_WITH(config_of(keys).recipe->on_shapes(),
                      "the channels of the volumes are left to the data: set n_in_channels and n_out_channels");
  const auto read_vit = [] {
    RunConfig config = read_config(
        entries_of({"task=volume_regression", "model=vit", "volumes=synthetic", "data_size=4", "patch_size=2"}));
    return open(config);
  };
  CHECK_THROWS_WITH(read_vit(), ContainsSubstring("a ViT has two axes, and the samples [4, 4, 4, 4] have 3"));
}

TEST_CASE(
    "volume regression: training and validation have volumes and crops of their own, in memory those of the start") {
  const auto synthetic = opened({"volumes=synthetic"});
  const auto set = [](const Dataset& data) -> const CropDataset& { return dynamic_cast<const CropDataset&>(data); };
  const auto first_values = [](const CropDataset& crops) {
    std::vector<float> values(4 * 8);
    crops.volumes().input->read(0, {0, 0, 0}, {1, 1, 8}, values.data());
    return values;
  };
  CHECK(first_values(set(synthetic->train())) != first_values(set(synthetic->valid())));
  const SampleKey key{.sample = 1, .epoch = 0, .seed = 2};
  CHECK(!(set(synthetic->train()).crop(key) == set(synthetic->valid()).crop(key)));

  const TemporaryFolder folder;
  write_volumes(folder);
  for (const char* name : {"train", "valid"}) {  // other values, and files that are cut off later
    hdf5::File file = hdf5::File::create((folder / name / "box.h5").string());
    const float value = std::string(name) == "train" ? 0.5f : 0.25f;
    for (const auto& [dataset, channels] : {std::pair("Nbody", 4), std::pair("Hydro", 5)})
      file.write(dataset, std::vector<std::int64_t>{channels, 6, 6, 6},
                 std::vector<float>(static_cast<std::size_t>(channels) * 216, value));
    file.close();
  }
  const auto in_memory = opened(with(paths_of(folder), "volumes=memory")), in_file = opened(paths_of(folder));
  for (const char* name : {"train", "valid"}) std::filesystem::resize_file(folder / name / "box.h5", 3000);
  const std::vector<std::int64_t> samples{0};
  for (const double value : tensor_of(read_batch(in_memory->train(), samples), "input").to_vector())
    CHECK(value == 0.5);
  for (const double value : tensor_of(read_batch(in_memory->valid(), samples), "target").to_vector())
    CHECK(value == 0.25);
  CHECK_THROWS_AS(read_batch(in_file->train(), samples), Error);
}

TEST_CASE("volume regression: weights of other channels start no run, and there is no test set") {
  const auto data = opened({"volumes=synthetic"});
  const auto weights = [](std::int64_t in, std::int64_t out) {
    return GivenWeights{.file = "w.safetensors", .settings = regression_settings({{in, 4, 4, 4}, {out, 4, 4, 4}})};
  };
  CHECK_NOTHROW(data->check_start(weights(4, 5)));
  CHECK_NOTHROW(data->check_start({.file = "of another program", .settings = {}}));
  for (const auto& [in, out] : {std::pair(3, 5), std::pair(4, 6)}) {
    CHECK_THROWS_WITH(data->check_start(weights(in, out)),
                      ContainsSubstring("the synthetic input has 4 channels in and 5 out"));
    CHECK_THROWS_WITH(data->check_resume(weights(in, out)), ContainsSubstring("w.safetensors computes ["));
  }
  RunConfig config = config_of({"volumes=synthetic"});
  CHECK_THROWS_WITH(config.recipe->open_split(DataSplit::test, weights(4, 5)), "there is no test set of volumes");
}

TEST_CASE("volume regression: a crop may have three sizes, and periodic volumes are wrapped") {
  const TemporaryFolder folder;
  write_volumes(folder);
  const auto paths = paths_of(folder);
  CHECK(opened(with(paths, "data_size=[4,4,6]"), "levels=1")->train().layout()[1].shape == Shape{5, 4, 4, 6});
  CHECK(opened({"volumes=synthetic", "data_size=[4,8,12]"})->valid().layout()[0].shape == Shape{4, 4, 8, 12});
  for (const bool wrap : {false, true}) {
    const auto data = opened(with(paths, wrap ? "wrap=true" : "wrap=false"));
    for (const Dataset* set : {&data->train(), &data->valid()}) {
      const auto& crops = dynamic_cast<const CropDataset&>(*set);
      std::int64_t last = 0;
      for (std::int64_t i = 0; i < 60; ++i) last = std::max(last, crops.crop({.sample = i}).start[2]);
      CHECK(last == (wrap ? 5 : 2));
    }
  }
  // A crop as wide as the box.
  CHECK_NOTHROW(
      read_batch(opened(with(paths, "data_size=[4,4,6]"), "levels=1")->train(), std::vector<std::int64_t>{0}, 1));
}

TEST_CASE("volume regression: sizes of a crop that cannot be are refused") {
  const auto refused = [](const std::string& assignment, const std::string& sentence) {
    INFO(assignment);
    CHECK_THROWS_WITH(
        checked_config(entries_of({"task=volume_regression", "levels=2", "volumes=synthetic", assignment})),
        ContainsSubstring(sentence));
  };
  const std::string what = "config key data_size in --set must be ";
  refused("data_size=[4,4]", what + "an integer, or a list of 3, each an integer, not [4,4]");
  refused("data_size=[4,4,4,4]", what + "an integer, or a list of 3, each an integer, not [4,4,4,4]");
  refused("data_size=4.5", what + "an integer, or a list of 3, each an integer, not 4.5");
  refused("data_size=0", what + "at least 1, not 0");
  refused("data_size=[4,0,4]", what + "at least 1, not 0");
  refused("data_size=[4,4,16385]", what + "at most 16384, not 16385");
  refused("data_size=[4,8,6]", "config key data_size in --set: a U-Net of 2 levels takes multiples of 4 points, not 6");
  RunConfig tutorial = config_of({"volumes=synthetic", "crops=tutorial", "wrap=true"});
  CHECK_THROWS_WITH(open(tutorial), "crops are tutorial, which do not wrap: set crops=random or wrap=false");
  // One number stays one, three stay three: so does what a run keeps of its config.
  RunConfig one = config_of({"volumes=synthetic", "data_size=8"});
  RunConfig three = config_of({"volumes=synthetic", "data_size=[8,4,4]"});
  CHECK(to_json(one).at("data_size").dump() == "8");
  CHECK(to_json(three).at("data_size").dump() == "[8,4,4]");
}

TEST_CASE("volume regression: a config alone, without its data, says the channels that they would fill in") {
  const auto refusal = [](const std::vector<std::string>& assignments) {
    std::vector<std::string> all{"task=volume_regression", "data_size=4", "levels=2", "width=2"};
    all.insert(all.end(), assignments.begin(), assignments.end());
    return error_of([&] { checked_config(entries_of(all)); });
  };
  const std::vector<std::string> files{"train_path=a", "val_path=b"};
  CHECK(refusal({"volumes=synthetic"}).empty());  // they have every size
  for (const std::string source : {"volumes=file", "volumes=memory"}) {
    CHECK(refusal(with(files, source)) == "config key n_in_channels is null where no data can fill it");
    CHECK(refusal(with(with(files, source), "n_in_channels=4")) ==
          "config key n_out_channels is null where no data can fill it");
    CHECK(refusal(with(with(with(files, source), "n_in_channels=4"), "n_out_channels=5")).empty());
  }
  const std::string synthetic = "volumes=synthetic", key = "config key ";
  CHECK(refusal({synthetic, "nsamples=0"}) == key + "nsamples in --set must be at least 1, not 0");
  CHECK(refusal({synthetic, "nsamples_val=0"}) == key + "nsamples_val in --set must be at least 1, not 0");
  CHECK(refusal({synthetic, "lambda_rho=-1"}) == key + "lambda_rho in --set must be at least 0, not -1");
  CHECK(refusal({synthetic, "n_in_channels=0"}) == key + "n_in_channels in --set must be at least 1, not 0");
  CHECK(refusal({synthetic, "n_out_channels=0"}) == key + "n_out_channels in --set must be at least 1, not 0");
  RunConfig usual = read_config(entries_of({"task=volume_regression"}));
  const auto keys = to_json(usual);
  CHECK(keys.at("volumes") == "file");
  CHECK(keys.at("data_size") == 64);
  CHECK(keys.at("wrap") == false);
  CHECK(keys.at("crops") == "random");
  CHECK(keys.at("augment") == "physical");
  CHECK(keys.at("nsamples") == 65536);
  CHECK(keys.at("nsamples_val") == 8192);
  CHECK(keys.at("lambda_rho") == 0);
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
  CHECK_THROWS_WITH(metrics.add(input, {}, 1), "sums of 2 channels are added to those of 3");
}

TEST_CASE("volume regression: a validation's loss is that of training, with the density's weight") {
  std::vector<double> losses;
  for (const char* weight : {"lambda_rho=0", "lambda_rho=1e-2"}) {
    RunConfig config = config_of({"volumes=synthetic", weight, "dtype=fp64"});
    const auto data = open(config);
    const auto task = data->make_task(config.compute, Device{});
    const Batch batch = read_batch(data->train(), std::vector<std::int64_t>{0, 1, 2}, 1);
    const auto metrics = task->metrics();
    metrics->begin();
    task->score(batch, *metrics);
    metrics->end();
    losses.push_back(metrics->loss());
    CHECK(std::abs(losses.back() - task->loss(batch, {}).to_vector()[0]) < 1e-12 * losses.back());
  }
  CHECK(losses[1] > 2 * losses[0]);
}

TEST_CASE("volume regression: each figure of the report is of its own channel") {
  VolumeMetrics metrics(4, 5, 0);
  for (int pass = 0; pass < 2; ++pass) {  // the input's errors are those of the first
    metrics.begin();
    metrics.add(std::vector<double>{1, 2, 3, 4, 5, 0},
                pass == 0 ? std::vector<double>{6, 7, 8, 9, 0} : std::vector<double>{}, 2);
    metrics.end();
  }
  const Report report = metrics.report(DataSplit::valid);
  const std::vector<std::string> names{"rho", "vx", "vy", "vz", "T"};
  for (const auto* figures : {&report.line, &report.summary}) {
    REQUIRE(figures->size() == 9);
    for (std::size_t c = 0; c < 9; ++c) {
      const Figure& figure = (*figures)[c];
      CHECK(figure.name == std::string(figures == &report.line ? "" : "val_") + (c < 5 ? "l1" : "input_l1"));
      CHECK(figure.part == names[c % 5]);
      CHECK(figure.value == (static_cast<double>(c) + 1) / 2);
    }
  }
  for (std::size_t c = 0; c < 5; ++c)
    CHECK(report.scalars.at(c) == std::pair("L1(" + names[c] + ")/valid", (static_cast<double>(c) + 1) / 2));
  CHECK(report.sentence == "Mean absolute error: rho 0.5 vx 1 vy 1.5 vz 2 T 2.5");
  CHECK(report.table ==
        "Mean absolute errors on the validation set\n"
        " channel prediction      input\n"
        "     rho        0.5          3\n"
        "      vx          1        3.5\n"
        "      vy        1.5          4\n"
        "      vz          2        4.5\n"
        "       T        2.5");
}

TEST_CASE("volume regression: a picture has the middle slices of the first sample, of the first and the last channel") {
  RunConfig config = config_of({"volumes=synthetic", "augment=none"});
  const auto data = open(config);
  const auto task = data->make_task(config.compute, Device{});
  const Batch batch = read_batch(data->train(), std::vector<std::int64_t>{0, 1}, 1);
  const auto picture_with = [&](const char* name,
                                std::array<std::int64_t, 3> at) {  // another value of sample, channel, D
    Batch other = batch;
    if (*name != '\0') {
      const Tensor& old = batch.at(name);
      std::vector<double> values = old.to_vector();
      const std::int64_t plane = (at[0] * old.size(1) + at[1]) * old.size(2) + at[2];
      for (std::int64_t i = 0; i < 16; i += 2) values[static_cast<std::size_t>(plane * 16 + i)] += 0.5;
      other[name] = Tensor::empty(old.shape(), old.dtype(), Device{});
      other[name].set_values(values);
    }
    const std::vector<Picture> pictures = task->pictures(other, 1);
    REQUIRE(pictures.size() == 1);
    return pictures[0].image.pixels;
  };
  const auto plain = picture_with("", {});
  CHECK(plain == picture_with("target", {0, 0, 1}));
  CHECK(plain == picture_with("target", {0, 2, 2}));
  CHECK(plain == picture_with("target", {1, 0, 2}));
  CHECK(plain != picture_with("target", {0, 0, 2}));
  CHECK(plain != picture_with("target", {0, 4, 2}));
  for (const std::size_t channel : {0, 1, 2, 3, 4}) {  // of the prediction
    Parameters& parameters = task->parameters();
    const auto bias = std::ranges::find(parameters.named(), "conv_last.bias", &NamedParameter::name);
    REQUIRE(bias != parameters.named().end());
    std::vector<double> values(5, 0.0);
    values[channel] = 0.4;
    parameters.weight(*bias).set_values(values);
    CHECK((picture_with("", {}) != plain) == (channel == 0 || channel == 4));
    parameters.weight(*bias).set_values(std::vector<double>(5, 0.0));
  }
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
  CHECK(crops_of(4, false)[2] == TutorialCrops(8, 4, 1, 3).crop(0, 2));
}

TEST_CASE("volume regression: each key's bounds and names, and which may change when a run goes on") {
  VolumeRegressionOptions options;
  const std::string channels = "at least 1, at most " + std::to_string(kMeanLossChannels),
                    samples = "at least 1, at most 1073741824";
  CHECK(key_facts(options.keys()) ==
        std::vector<std::string>{"volumes", "train_path; path; free on resume", "val_path; path; free on resume",
                                 "data_size; at least 1, at most 16384; also: cropsize", "crops", "wrap", "augment",
                                 "n_in_channels; " + channels + "; also: inchannels, inchans",
                                 "n_out_channels; " + channels + "; also: outchannels, outchans; yaml: N_out_channels",
                                 "nsamples; " + samples + "; yaml: Nsamples",
                                 "nsamples_val; " + samples + "; yaml: Nsamples_val", "lambda_rho; at least 0"});
}

}  // namespace isobar::testing
