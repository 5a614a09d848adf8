// What the recipe of classification leaves to the data, and which data and weights it refuses.
#include "models/classification/recipe.h"

#include <cmath>
#include <memory>
#include <string>

#include "tests/data/files/idx_files.h"
#include "tests/harness/error_of.h"
#include "tests/harness/forecast_config.h"
#include "tests/harness/key_facts.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

// `count` images of one value, 0 first, with labels 0, 1, ..., most - 1, 0, 1, ...
ImageSet plain_images(std::uint32_t height, std::uint32_t width, std::size_t count, int most) {
  ImageSet set{height, width, "", ""};
  for (std::size_t i = 0; i < count; ++i) {
    set.pixels += std::string(std::size_t{height} * width, static_cast<char>(10 * i));
    set.labels += static_cast<char>(static_cast<int>(i) % most);
  }
  return set;
}

std::unique_ptr<OpenedRecipe> open(RunConfig& config) {
  return config.recipe->open(config.origins, {});
}

// A folder of both sets, and a config that reads it.
class Folder {
 public:
  Folder(const ImageSet& train, const ImageSet& valid) {
    write_images(folder_.path(), "train", train);
    write_images(folder_.path(), "t10k", valid);
  }

  std::string path() const { return folder_.path().string(); }
  std::string file(const char* name) const { return (folder_ / name).string(); }
  RunConfig config(std::vector<std::string> assignments = {}) const {
    assignments.insert(assignments.begin(), {"task=classification", "images_path=" + path(), "embed_dim=16",
                                             "num_heads=2", "depth=1", "global_batch_size=2"});
    return read_config(entries_of(assignments));
  }
  std::unique_ptr<OpenedRecipe> opened(const std::vector<std::string>& assignments = {"patch_size=4"}) const {
    RunConfig config = this->config(assignments);
    return open(config);
  }

 private:
  TemporaryFolder folder_;
};

ClassificationRecipe& recipe_of(RunConfig& config) {
  return dynamic_cast<ClassificationRecipe&>(*config.recipe);
}

GivenWeights weights_of(const OpenedRecipe& data) {
  return {"weights.safetensors", data.make_task({}, Device{})->settings()};
}

TEST_CASE("classification: patch and classes that are null come from the data, others stay") {
  const Folder folder(plain_images(28, 28, 6, 3), plain_images(28, 28, 4, 2));
  RunConfig config = folder.config({"patch_size=null", "classes=null"});
  CHECK(open(config)->sentences() == std::vector<std::string>{"from the data: classes 3, patch_size 2"});
  CHECK(testing::vit_of(config).patch_size == 2);
  CHECK(recipe_of(config).images.classes == 3);
  CHECK(config.origins.where("classes") == "config key classes in the data");
  CHECK(open(config)->sentences().empty());  // nothing is left
  CHECK(open(config)->found().empty());

  RunConfig some = folder.config({"patch_size=7"});
  CHECK(open(some)->sentences() == std::vector<std::string>{"from the data: classes 3"});
  CHECK(testing::vit_of(some).patch_size == 7);
  RunConfig none = folder.config({"patch_size=14", "classes=10"});
  CHECK(open(none)->sentences().empty());
  CHECK(recipe_of(none).images.classes == 10);
}

TEST_CASE("classification: a patch size that does not divide the images is refused") {
  const Folder folder(plain_images(8, 12, 4, 2), plain_images(8, 12, 4, 2));
  for (const int patch : {3, 8, 24}) {
    RunConfig config = folder.config({"patch_size=" + std::to_string(patch)});
    CHECK_THROWS_WITH(open(config), folder.file("train-images-idx3-ubyte") +
                                        ": the sides of its images must be a multiple of patch_size (" +
                                        std::to_string(patch) + "), not " + (patch == 8 ? "12" : "8"));
  }
}

TEST_CASE("classification: statistics are those of all training pixels") {
  const Folder folder(plain_images(4, 8, 3, 2), plain_images(4, 8, 2, 2));  // values 0, 10, 20
  const auto data = folder.opened();
  const ImagesInfo info = images_info_from(weights_of(*data).settings);
  CHECK(info.height == 4);
  CHECK(info.width == 8);
  CHECK(info.classes == 2);
  CHECK(info.mean == 10);
  CHECK(info.std == Approx(std::sqrt(200.0 / 3)).epsilon(1e-14));
  CHECK(data->train().samples() == 3);
  CHECK(data->valid().samples() == 2);
}

TEST_CASE("classification: statistics are NumPy's, and keep a contrast of one grey level in a million pixels") {
  ImageSet set{6, 7, "", std::string("\0\1\0\1\0", 5)};
  for (int i = 0; i < 5 * 6 * 7; ++i) set.pixels += static_cast<char>((7 * i * i + 3 * i) % 251);
  ImagesInfo info = images_info_from(weights_of(*Folder(set, set).opened({"patch_size=1"})).settings);
  CHECK(info.mean == Approx(123.06190476190476).epsilon(1e-15));
  CHECK(info.std == Approx(74.81514346447501).epsilon(1e-14));

  ImageSet plain{100, 100, std::string(1'000'000, static_cast<char>(254)), ""};
  plain.pixels[123'456] = static_cast<char>(255);
  for (int i = 0; i < 100; ++i) plain.labels += static_cast<char>(i % 2);
  info = images_info_from(weights_of(*Folder(plain, plain).opened()).settings);
  CHECK(info.mean == Approx(254.000001).epsilon(1e-15));
  CHECK(info.std == Approx(std::sqrt(1e-6 * (1 - 1e-6))).epsilon(1e-11));
}

TEST_CASE("classification: a run goes on with its own statistics, whose last digits may be others") {
  const Folder folder(plain_images(8, 8, 6, 3), plain_images(8, 8, 4, 2));
  RunConfig config = folder.config({"patch_size=4"});
  const auto data = open(config);
  const ImagesInfo now = images_info_from(weights_of(*data).settings);
  const auto trained = [&](double mean, double std) {
    ImagesInfo info = now;
    info.mean = mean;
    info.std = std;
    return GivenWeights{"weights.safetensors", Classifier(config.network, config.compute, info, Device{}).settings()};
  };
  const GivenWeights earlier = trained(now.mean * (1 - 1e-12), now.std * (1 + 1e-11));
  REQUIRE(earlier.settings != weights_of(*data).settings);
  CHECK_NOTHROW(data->check_resume(earlier));
  CHECK(data->make_trained_task(earlier, config.compute, Device{})->settings() == earlier.settings);

  for (const GivenWeights& other : {trained(now.mean * (1 + 1e-8), now.std), trained(now.mean, now.std * (1 - 1e-8))})
    CHECK_THROWS_WITH(data->check_resume(other), ContainsSubstring("these are not the images that"));
}

TEST_CASE("classification: validation images of another size are refused") {
  const Folder folder(plain_images(8, 12, 4, 2), plain_images(12, 8, 4, 2));
  CHECK_THROWS_WITH(folder.opened(), folder.file("t10k-images-idx3-ubyte") + ": its images are 12 x 8, but those of " +
                                         folder.file("train-images-idx3-ubyte") + " are 8 x 12");
}

TEST_CASE("classification: labels beyond the classes are refused in both sets") {
  const Folder train(plain_images(8, 8, 6, 4), plain_images(8, 8, 4, 2));
  CHECK_THROWS_WITH(train.opened({"patch_size=4", "classes=3"}),
                    train.file("train-images-idx3-ubyte") + ": its labels go up to 3, but classes is 3");
  const Folder valid(plain_images(8, 8, 6, 3), plain_images(8, 8, 6, 5));
  CHECK_THROWS_WITH(valid.opened(), valid.file("t10k-images-idx3-ubyte") + ": its labels go up to 4, but classes is 3");
  CHECK_NOTHROW(valid.opened({"patch_size=4", "classes=5"}));
}

TEST_CASE("classification: a set of which no label counts is refused, whichever it is") {
  const Folder valid(plain_images(8, 8, 6, 3), plain_images(8, 8, 2, 1)),
      train(plain_images(8, 8, 6, 1), plain_images(8, 8, 6, 3));
  const std::vector<std::string> keys{"patch_size=4", "classes=3", "ignored_label=0"};
  CHECK_THROWS_WITH(valid.opened(keys), valid.file("t10k-images-idx3-ubyte") + ": all its labels are ignored_label, 0");
  CHECK_THROWS_WITH(train.opened(keys),
                    train.file("train-images-idx3-ubyte") + ": all its labels are ignored_label, 0");
  CHECK_NOTHROW(valid.opened({"patch_size=4", "classes=3", "ignored_label=1"}));
}

TEST_CASE("classification: images without contrast, or with one class, are refused") {
  const Folder grey(plain_images(8, 8, 1, 1), plain_images(8, 8, 2, 2));  // one image, all 0
  CHECK_THROWS_WITH(grey.opened({"patch_size=4", "classes=2"}),
                    grey.file("train-images-idx3-ubyte") + ": all its pixels have the value 0");
  const Folder one(plain_images(8, 8, 3, 1), plain_images(8, 8, 2, 1));
  CHECK_THROWS_WITH(one.opened(), ContainsSubstring("config key classes in the data"));
}

TEST_CASE("classification: a run starts from weights for images of the same kind only") {
  const Folder here(plain_images(8, 8, 6, 3), plain_images(8, 8, 4, 2));
  const Folder wide(plain_images(8, 12, 6, 3), plain_images(8, 12, 4, 2));
  const Folder brighter(plain_images(8, 8, 9, 3), plain_images(8, 8, 4, 2));
  const auto data = here.opened(), of_wide = wide.opened();
  const std::string other = "weights.safetensors classifies images of 8 x 12 into 3 classes, but " +
                            here.file("train-images-idx3-ubyte") + " has images of 8 x 8 of 3 classes";
  CHECK_THROWS_WITH(data->check_start(weights_of(*of_wide)), other);
  CHECK_THROWS_WITH(data->check_resume(weights_of(*of_wide)), other);
  const auto of_more = here.opened({"patch_size=4", "classes=4"});
  CHECK_THROWS_WITH(data->check_start(weights_of(*of_more)), ContainsSubstring("into 4 classes, but"));

  // Images of the same kind with other statistics: to start from, not to go on with.
  const auto of_brighter = brighter.opened();
  CHECK_NOTHROW(data->check_start(weights_of(*of_brighter)));
  CHECK_THROWS_WITH(data->check_resume(weights_of(*of_brighter)),
                    ContainsSubstring(here.file("train-images-idx3-ubyte") +
                                      ": these are not the images that weights.safetensors was trained on: mean and "
                                      "deviation are 25 and ") &&
                        ContainsSubstring(", not 40 and "));

  CHECK_NOTHROW(data->check_start(weights_of(*data)));
  CHECK_NOTHROW(data->check_resume(weights_of(*data)));
  CHECK_NOTHROW(data->check_start({"elsewhere.safetensors", {}}));
  CHECK_NOTHROW(data->check_resume({"elsewhere.safetensors", {}}));
}

TEST_CASE(
    "classification: a set of its own is judged by the weights' classes and images, and a third one may be named") {
  const Folder here(plain_images(8, 8, 6, 3), plain_images(8, 8, 4, 2));
  RunConfig config = here.config({"patch_size=4"});
  const auto data = open(config);
  const GivenWeights weights = weights_of(*data);
  const std::string file = here.file("t10k-images-idx3-ubyte");
  CHECK(config.recipe->open_split(DataSplit::train, weights)->samples().samples() == 6);
  CHECK(config.recipe->open_split(DataSplit::valid, weights)->samples().samples() == 4);
  const auto refusal = [&](const RunConfig& of, DataSplit split, const GivenWeights& by) {
    return error_of([&] { of.recipe->open_split(split, by); });
  };
  CHECK(refusal(config, DataSplit::test, weights) ==
        "there is no test set: name one by the config key test_images_path");
  CHECK(refusal(config, DataSplit::valid, {"other.safetensors", {}}) ==
        "other.safetensors does not say what images it was trained on");
  CHECK(refusal(config, DataSplit::valid, {"w", {{"isobar.images", "{}"}}}) ==
        "the description of the images in the metadata is damaged");

  // A third set: two images of four classes, of which the weights know three; then of another size.
  const Folder more(plain_images(8, 8, 6, 3), plain_images(8, 8, 4, 4));
  const auto with_test = [&](const Folder& test) {
    RunConfig third = here.config({"patch_size=4", "classes=3", "test_images_path=" + test.path()});
    return error_of([&] { open(third); });
  };
  CHECK(with_test(here).empty());
  CHECK(with_test(more) == more.file("t10k-images-idx3-ubyte") + ": its labels go up to 3, but classes is 3");
  const Folder wide(plain_images(8, 12, 6, 3), plain_images(8, 12, 4, 2));
  CHECK(with_test(wide) == wide.file("t10k-images-idx3-ubyte") + ": its images are 8 x 12, but those of " +
                               here.file("train-images-idx3-ubyte") + " are 8 x 8");
  RunConfig third = here.config({"patch_size=4", "classes=3", "test_images_path=" + more.path()});
  CHECK(refusal(third, DataSplit::test, weights) ==
        more.file("t10k-images-idx3-ubyte") + ": its labels go up to 3, but classes is 3");
  RunConfig four = here.config({"patch_size=4", "classes=4"});
  CHECK(refusal(four, DataSplit::valid, weights) ==
        "weights.safetensors classifies images of 8 x 8 into 3 classes, but " + file +
            " has images of 8 x 8 of 4 classes");
}

TEST_CASE("classification: classes and the label that does not count are within what a byte tells") {
  const auto refusal = [](const std::string& assignment) {
    return error_of([&] {
      checked_config(entries_of({"task=classification", "images_path=a", "embed_dim=16", "num_heads=2", "depth=1",
                                 "patch_size=4", "global_batch_size=2", assignment}));
    });
  };
  const std::string key = "config key classes in --set must be at ";
  CHECK(refusal("classes=2").empty());
  CHECK(refusal("classes=256").empty());
  CHECK(refusal("classes=1") == key + "least 2, not 1");
  CHECK(refusal("classes=257") == key + "most 256, not 257");
  CHECK(refusal("depth=1") == "config key classes is null where no data can fill it");
  CHECK(refusal("ignored_label=256") == "config key ignored_label in --set must be at most 255, not 256");
  CHECK(refusal("ignored_label=-1") == "config key ignored_label in --set must be at least 0, not -1");
}

TEST_CASE("classification: what is opened needs neither the config nor its recipe any more") {
  const Folder folder(plain_images(8, 8, 6, 3), plain_images(8, 8, 4, 2));
  RunConfig config = folder.config({"patch_size=4"});
  const auto data = open(config);
  CHECK_THROWS_WITH(config.recipe->on_shapes(), ContainsSubstring("are left to the data"));
  CHECK(data->make_task({}, meta_like(DeviceKind::cpu))->parameters().held() > 0);
  config = RunConfig();
  CHECK(weights_of(*data).settings.size() > 0);
}

TEST_CASE("classification: a folder stands for its images, where it has them all") {
  const Folder folder(plain_images(8, 8, 2, 2), plain_images(8, 8, 2, 2));
  const auto paths = ClassificationRecipe().paths_in(folder.path());
  REQUIRE(paths.size() == 1);
  CHECK(paths[0].first == "images_path");
  CHECK(paths[0].second == folder.path());

  const auto refused = [](const std::filesystem::path& path, const std::string& why) {
    CHECK_THROWS_WITH(ClassificationRecipe().paths_in(path), ContainsSubstring(why));
  };
  refused(folder.file("train-labels-idx1-ubyte"), " is not a folder");
  refused(folder.path() + "/nowhere", " is not a folder");
  const TemporaryFolder empty;
  refused(empty.path(), " lacks train-images-idx3-ubyte and train-labels-idx1-ubyte");
  write_images(empty.path(), "train", plain_images(8, 8, 2, 2));
  refused(empty.path(), " lacks t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte");
}

TEST_CASE("classification: each key's bounds and names, and which may change when a run goes on") {
  ClassificationOptions options;
  CHECK(key_facts(options.keys()) ==
        std::vector<std::string>{"images_path; path; free on resume", "test_images_path; path; free on resume",
                                 "classes; at least 2, at most 256; also: numclasses, nclasses",
                                 "ignored_label; at least 0, at most 255; also: ignoreindex, ignorelabel"});
  CHECK_FALSE(options.has_test());
  options.test_images_path = "a";
  CHECK(options.has_test());
}

}  // namespace
}  // namespace isobar::testing
