// What the recipe of image regression leaves to the data, which networks it takes, and what it refuses.
#include "models/image_regression/recipe.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/files/hdf5.h"
#include "tests/data/files/idx_files.h"
#include "tests/harness/forecast_config.h"
#include "tests/harness/key_facts.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

std::unique_ptr<OpenedRecipe> open(RunConfig& config) {
  return config.recipe->open(config.origins, {});
}

RunConfig config_of(std::vector<std::string> assignments) {
  assignments.insert(assignments.begin(), {"task=image_regression", "global_batch_size=2"});
  return read_config(entries_of(assignments));
}

std::unique_ptr<OpenedRecipe> opened(const std::vector<std::string>& assignments) {
  RunConfig config = config_of(assignments);
  return open(config);
}

const ImageRegressionOptions& options_of(RunConfig& config) {
  return dynamic_cast<ImageRegressionRecipe&>(*config.recipe).pairs;
}

// train/pairs.h5 and valid/pairs.h5 of 2 channels to 1 on 4 x 6.
void write_sets(const TemporaryFolder& folder, std::int64_t valid_channels = 2) {
  for (const char* name : {"train", "valid"}) {
    std::filesystem::create_directories(folder / name);
    hdf5::File file = hdf5::File::create((folder / name / "pairs.h5").string());
    const std::int64_t channels = std::string(name) == "train" ? 2 : valid_channels;
    for (const auto& [dataset, count] : {std::pair("input", channels), std::pair("target", std::int64_t{1})}) {
      const std::vector<std::int64_t> shape{3, count, 4, 6};
      file.write(dataset, shape, std::vector<float>(static_cast<std::size_t>(numel_of(shape)), 0.5f));
    }
    file.close();
  }
}

std::vector<std::string> paths_of(const TemporaryFolder& folder, const char* images) {
  std::vector<std::string> assignments{std::string("images=") + images};
  for (const auto& [key, path] : ImageRegressionRecipe().paths_in(folder.path()))
    assignments.push_back(key + "=" + path.string());
  return assignments;
}

}  // namespace

TEST_CASE("image regression: random images have the course's sizes, or those of the config") {
  RunConfig config = config_of({});
  CHECK(config.model == "cnn");
  const auto data = open(config);
  CHECK(data->train().samples() == 128);
  CHECK(data->valid().samples() == 128);
  CHECK(data->train().layout()[0].shape == Shape{1, 128, 128});
  CHECK(options_of(config).nsamples == 128);
  CHECK(data->sentences() ==
        std::vector<std::string>{"of random images: img_size [128,128], n_in_channels 1, n_out_channels 1, "
                                 "nsamples 128, nsamples_val 128"});
  const auto other = opened({"img_size=[4,6]", "n_out_channels=3", "nsamples=5", "nsamples_val=7"});
  CHECK(other->train().samples() == 5);
  CHECK(other->valid().samples() == 7);
  CHECK(other->train().layout()[1].shape == Shape{3, 4, 6});
}

TEST_CASE("image regression: any network whose ports fit takes the images") {
  const auto name_of = [](const std::vector<std::string>& assignments) {
    RunConfig config = config_of(assignments);
    return open(config)->make_task(config.compute, Device{})->network();
  };
  CHECK(name_of({"img_size=[4,6]", "width=4"}) == "CNN");
  const std::vector<std::string> vit{"model=vit", "img_size=[4,6]", "embed_dim=16", "num_heads=2", "depth=1"};
  const auto with = [&](const std::string& more) {
    std::vector<std::string> all = vit;
    all.push_back(more);
    return all;
  };
  CHECK(name_of(with("patch_size=2")) == "ViT");
  CHECK_THROWS_WITH(name_of(with("patch_size=4")),
                    ContainsSubstring("img_size in --set must be a multiple of patch_size (4), not 6"));
}

TEST_CASE("image regression: the data say sizes and numbers, and contradictions are refused") {
  const TemporaryFolder folder;
  write_sets(folder);
  const std::vector<std::string> paths = paths_of(folder, "pairs");
  RunConfig config = config_of(paths);
  const auto data = open(config);
  CHECK(options_of(config).n_in_channels == 2);
  CHECK(options_of(config).n_out_channels == 1);
  CHECK(options_of(config).img_size == std::array<std::int64_t, 2>{4, 6});
  CHECK(options_of(config).nsamples_val == 3);
  const auto refused = [&](const std::string& assignment) {
    std::vector<std::string> all = paths;
    all.push_back(assignment);
    return opened(all);
  };
  CHECK_THROWS_WITH(refused("n_in_channels=3"),
                    ContainsSubstring("its pairs are [2, 4, 6] to [1, 4, 6], but img_size, n_in_channels and "
                                      "n_out_channels are those of [3, 4, 6] to [1, 4, 6]"));
  CHECK_THROWS_WITH(refused("nsamples=4"), ContainsSubstring("has 3 samples, but 4 are asked for"));

  const TemporaryFolder uneven;
  write_sets(uneven, 1);
  CHECK_THROWS_WITH(opened(paths_of(uneven, "pairs")), ContainsSubstring("valid: its pairs are [1, 4, 6]"));
}

TEST_CASE("image regression: noisy images are those of IDX files, without labels") {
  const TemporaryFolder folder;
  for (const char* prefix : {"train", "t10k"}) {
    write_images(folder.path(), prefix, {4, 6, std::string(3 * 24, 'x'), std::string(3, '\0')});
    std::filesystem::remove(folder / (std::string(prefix) + "-labels-idx1-ubyte"));
  }
  const auto data = opened(paths_of(folder, "noisy"));
  CHECK(data->train().samples() == 3);
  CHECK(data->train().layout()[0].shape == Shape{1, 4, 6});
  std::filesystem::remove(folder / "t10k-images-idx3-ubyte");
  CHECK_THROWS_WITH(paths_of(folder, "noisy"), ContainsSubstring(" lacks t10k-images-idx3-ubyte"));
}

TEST_CASE("image regression: paths and the source of the images must fit each other") {
  CHECK_THROWS_WITH(opened({"train_path=somewhere"}),
                    "config key train_path in --set is somewhere, but images are random: set images=pairs or "
                    "images=noisy to read files");
  CHECK_THROWS_WITH(opened({"images=pairs"}),
                    "config key train_path is empty, but images are pairs: name the data by --data DIR");
  CHECK_THROWS_WITH(opened({"val_path=somewhere"}),
                    "config key val_path in --set is somewhere, but images are random: set images=pairs or "
                    "images=noisy to read files");
  CHECK_THROWS_WITH(opened({"images=noisy", "train_path=somewhere"}),
                    "config key val_path is empty, but images are noisy: name the data by --data DIR");
}

TEST_CASE("image regression: a config alone, without its data, says each size that they would fill in") {
  const auto checked = [](const std::vector<std::string>& assignments) {
    std::vector<std::string> all{"task=image_regression", "global_batch_size=2", "width=4"};
    all.insert(all.end(), assignments.begin(), assignments.end());
    checked_config(entries_of(all));
  };
  CHECK_NOTHROW(checked({}));  // random images have every size
  const std::vector<std::string> sizes{"img_size=[4,6]", "n_in_channels=2", "n_out_channels=3", "nsamples=5",
                                       "nsamples_val=6"};
  const char* const keys[] = {"img_size", "n_in_channels", "n_out_channels", "nsamples", "nsamples_val"};
  for (const char* images : {"images=pairs", "images=noisy"}) {
    std::vector<std::string> all{images, "train_path=a", "val_path=b"};
    all.insert(all.end(), sizes.begin(), sizes.end());
    CHECK_NOTHROW(checked(all));
    for (std::size_t left_out = 0; left_out < sizes.size(); ++left_out) {
      std::vector<std::string> some = all;
      some.erase(some.begin() + 3 + static_cast<std::ptrdiff_t>(left_out));
      CHECK_THROWS_WITH(checked(some),
                        std::string("config key ") + keys[left_out] + " is null where no data can fill it");
    }
  }
  for (const char* key : {"img_size=[0,6]", "n_in_channels=0", "n_out_channels=0", "nsamples=0", "nsamples_val=0"}) {
    const std::string text = key;
    CHECK_THROWS_WITH(checked({text}),
                      "config key " + text.substr(0, text.find('=')) + " in --set must be at least 1, not 0");
  }
  CHECK_THROWS_WITH(checked({"img_size=[4,1048577]"}),
                    "config key img_size in --set must be at most 1048576, not 1048577");
  CHECK_THROWS_WITH(checked({"nsamples=1073741825"}),
                    "config key nsamples in --set must be at most 1073741824, not 1073741825");
  CHECK_THROWS_WITH(checked({"sigma=-0.5"}), "config key sigma in --set must be at least 0, not -0.5");
  CHECK_NOTHROW(checked({"sigma=0"}));
  RunConfig usual = config_of({});
  CHECK(options_of(usual).sigma == 0.5);
  CHECK(options_of(usual).images == ImageSource::random);
  CHECK_THROWS_WITH(config_of({}).recipe->open_split(DataSplit::test, {"w", {}}),
                    "there is no test set of pairs of images");
}

TEST_CASE("image regression: a prediction without data needs the sizes that data would tell") {
  const auto shapes = [](std::vector<std::string> keys) {
    keys.insert(keys.begin(), {"task=image_regression", "train_path=a", "val_path=b", "images=pairs"});
    const RunConfig config = read_config(entries_of(keys));
    return config.recipe->on_shapes()->sample_layout(std::nullopt).at(1).shape;
  };
  const std::string size = "img_size=[4,6]", in = "n_in_channels=2", out = "n_out_channels=3";
  CHECK(shapes({size, in, out}) == Shape{3, 4, 6});
  for (const std::vector<std::string>& keys : {std::vector{size, in}, {size, out}, {in, out}})
    CHECK_THROWS_WITH(shapes(keys),
                      "the size or the channels of the images are left to the data: set img_size, n_in_channels and "
                      "n_out_channels");
}

TEST_CASE("image regression: weights of another task's sizes are refused") {
  const auto data = opened({"img_size=[4,6]", "width=4"});
  const GivenWeights own{"weights.safetensors", data->make_task({}, Device{})->settings()};
  data->check_resume(own);
  data->check_start({"elsewhere.safetensors", {}});
  CHECK_THROWS_WITH(opened({"img_size=[4,8]", "width=4"})->check_resume(own),
                    "weights.safetensors computes [1, 4, 6] from [1, 4, 6], but the pairs of the random images are "
                    "[1, 4, 8] to [1, 4, 8]");
  CHECK_THROWS_WITH(data->check_start({"w", {{"isobar.regression", "{}"}}}), ContainsSubstring("is damaged"));
}

TEST_CASE("image regression: each key's bounds and names, and which may change when a run goes on") {
  ImageRegressionOptions options;
  const std::string extent = "at least 1, at most 1048576", samples = "at least 1, at most 1073741824";
  CHECK(key_facts(options.keys()) ==
        std::vector<std::string>{"images", "train_path; path; free on resume", "val_path; path; free on resume",
                                 "img_size; " + extent + "; also: imagesize",
                                 "n_in_channels; " + extent + "; also: inchannels, inchans; yaml: in_chan",
                                 "n_out_channels; " + extent + "; also: outchannels, outchans; yaml: out_chan",
                                 "nsamples; " + samples + "; yaml: Nsamples", "nsamples_val; " + samples,
                                 "sigma; at least 0"});
}

}  // namespace isobar::testing
