// Named configs: inheritance, the errors a user can run into, and that config.json repeats a run.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "apps/train/config.h"
#include "engine/files/atomic_file.h"
#include "engine/files/reader.h"
#include "kernels/common/suggestions.h"
#include "models/vit/options.h"
#include "tests/harness/environment_variable.h"
#include "tests/harness/forecast_config.h"
#include "tests/harness/places.h"
#include "tests/harness/testing.h"

using namespace isobar;
using isobar::testing::Approx;
using isobar::testing::checked_config;
using isobar::testing::ContainsSubstring;
using isobar::testing::forecast_of;
namespace fs = std::filesystem;

namespace {

class ConfigFolder {
 public:
  ConfigFolder() : path_(fs::temp_directory_path() / ("isobar_config_test_" + std::to_string(getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~ConfigFolder() { fs::remove_all(path_); }
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name) << content;
    return (path_ / name).string();
  }
  ConfigEntries load(const std::string& reference) const { return load_config(reference, {path_}).entries; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

const std::vector<fs::path> kShipped{testing::source_path("configs")};

// What a config leaves to the data is filled in as for the built-in data set.
RunConfig shipped(const std::string& name) {
  RunConfig config = read_config(load_config(name, kShipped).entries);
  forecast_of(config).fill_sizes({.channels = 4, .height = 32, .width = 64, .has_times = true}, config.origins);
  config.check();
  return config;
}

RunConfig with(const std::vector<std::string>& assignments) {
  return checked_config(isobar::testing::entries_of(assignments));
}

nlohmann::ordered_json defaults() {
  RunConfig config;
  return to_json(config);
}

std::vector<std::string> config_keys() {
  std::vector<std::string> keys;
  const nlohmann::ordered_json all = defaults();
  for (const auto& [key, value] : all.items()) keys.push_back(key);
  return keys;
}

}  // namespace

TEST_CASE("NVIDIA_TF32_OVERRIDE=0 keeps isobar's own kernels from TF32 too") {
  const auto uses_tf32 = [](const char* variable, bool key) {
    const isobar::testing::EnvironmentVariable forbidden("NVIDIA_TF32_OVERRIDE", variable);
    return ComputeOptions{.tf32 = key}.may_use_tf32();
  };
  CHECK(uses_tf32(nullptr, true));
  CHECK(uses_tf32("1", true));
  CHECK_FALSE(uses_tf32("0", true));
  CHECK_FALSE(uses_tf32("1", false));  // what the config forbids stays so
}

TEST_CASE("a config inherits what it does not set, over files") {
  const ConfigFolder folder;
  folder.write("many.json", R"({"grand": {"depth": 1, "dt": 1, "warmup": 1},
                                "parent": {"extends": "grand", "dt": 2, "warmup": 2}})");
  folder.write("child.json", R"({"extends": "parent", "warmup": 3}  // a comment)");
  const ConfigEntries entries = folder.load("child");
  CHECK(entries.at("depth").value == 1);
  CHECK(entries.at("dt").value == 2);
  CHECK(entries.at("warmup").value == 3);
  CHECK(entries.count("extends") == 0);
  CHECK(entries.at("depth").origin == (folder.path() / "many.json").string() + " (grand)");
  CHECK(entries.at("warmup").origin == (folder.path() / "child.json").string());
}

TEST_CASE("a config is found by name, by file, and by file and name") {
  const ConfigFolder folder;
  const std::string flat = folder.write("flat.json", R"({"depth": 5})");
  const std::string many = folder.write("many.json", R"({"a": {"depth": 6}, "b": {"extends": "a"}})");
  folder.write("by_file.json", R"({"extends": "many.json:b"})");
  CHECK(load_config("a", {folder.path()}).entries.at("depth").value == 6);
  CHECK(load_config(flat, {}).entries.at("depth").value == 5);
  CHECK(load_config(flat, {}).name == "flat");
  CHECK(load_config(many + ":b", {}).entries.at("depth").value == 6);
  CHECK(load_config(many + ":b", {}).name == "b");
  CHECK(load_config((folder.path() / "by_file.json").string(), {}).entries.at("depth").value == 6);
  CHECK_THROWS_WITH(load_config(many, {}), ContainsSubstring("several") && ContainsSubstring("a, b"));
  // What a config extends is looked for beside it first.
  fs::create_directories(folder.path() / "other");
  std::ofstream(folder.path() / "other/more.json") << R"({"a": {"depth": 7}, "c": {"extends": "a"}})";
  CHECK(load_config((folder.path() / "other/more.json:c").string(), {folder.path()}).entries.at("depth").value == 7);
  CHECK_THROWS_WITH(load_config(many + ":c", {}), ContainsSubstring(many) && ContainsSubstring("'c'"));
}

TEST_CASE("a folder earlier in the search path wins") {
  const ConfigFolder first;
  fs::create_directories(first.path() / "second");
  std::ofstream(first.path() / "second" / "a.json") << R"({"depth": 2})";
  first.write("a.json", R"({"depth": 1})");
  const fs::path second = first.path() / "second";
  CHECK(load_config("a", {first.path(), second}).entries.at("depth").value == 1);
  CHECK(load_config("a", {second, first.path()}).entries.at("depth").value == 2);
}

TEST_CASE("of two keys that set one length in iterations and in epochs the one that is set last counts") {
  const auto [name, read] = GENERATE(table<std::string, std::function<std::int64_t(const ScheduleOptions&)>>({
      {"num", [](const ScheduleOptions& schedule) { return schedule.num_iters; }},
      {"decay", [](const ScheduleOptions& schedule) { return *schedule.decay_iters; }},
  }));
  INFO(name);
  const std::string in_epochs = name + "_epochs", in_iterations = name + "_iters";
  const ConfigFolder folder;
  folder.write("lengths.json", concat(R"({"epochs": {")", in_epochs, R"(": 3}, "iterations": {"extends": "epochs", ")",
                                      in_iterations, R"(": 7}, "again": {"extends": "iterations", ")", in_epochs,
                                      R"(": 4}, "both": {")", in_iterations, R"(": 9, ")", in_epochs, R"(": 5}})"));
  const auto length = [&, &value_of = read](const std::string& config, const std::vector<std::string>& values = {}) {
    ConfigEntries entries = folder.load(config);
    for (const std::string& assignment : values) set_from_assignment(entries, assignment);
    return value_of(read_config(entries).schedule.of_run(10));
  };
  CHECK(length("epochs") == 30);
  CHECK(length("iterations") == 7);  // extends it
  CHECK(length("again") == 40);      // extends that
  CHECK(length("both") == 50);       // in one config
  CHECK(length("epochs", {in_iterations + "=8"}) == 8);
  CHECK(length("iterations", {in_epochs + "=2"}) == 20);
  CHECK(length("epochs", {in_epochs + "=2", in_iterations + "=8"}) == 8);
  CHECK(length("epochs", {in_iterations + "=8", in_epochs + "=2"}) == 20);
  if (name == "num") CHECK(length("epochs", {"num_epochs=null"}) == 30000);
  if (name == "decay") CHECK(length("epochs", {"num_iters=8"}) == 30);  // another length
}

TEST_CASE("a cycle of extends is an error that shows it") {
  const ConfigFolder folder;
  folder.write("loop.json", R"({"a": {"extends": "b"}, "b": {"extends": "c"}, "c": {"extends": "b"}})");
  folder.write("self.json", R"({"extends": "self", "depth": 1})");
  CHECK_THROWS_WITH(folder.load("a"), ContainsSubstring("a -> b -> c -> b"));
  CHECK_THROWS_WITH(folder.load("self"), ContainsSubstring("self -> self"));
  const std::string spelled = folder.write("spelled.json", R"({"extends": "./spelled.json"})");
  CHECK_THROWS_WITH(load_config(spelled, {}), ContainsSubstring("spelled -> spelled") && !ContainsSubstring("././"));
}

TEST_CASE("a folder that cannot be read does not hide the others") {
  const ConfigFolder folder;
  folder.write("tiny.json", R"({"depth": 1})");
  const fs::path loop = folder.path() / "loop";
  fs::create_symlink(loop, loop);
  CHECK(load_config("tiny", {loop, folder.path()}).entries.at("depth").value == 1);
  CHECK_THROWS_WITH(load_config("tini", {loop, folder.path()}),
                    ContainsSubstring("tiny?") && ContainsSubstring(loop.string() + " (cannot be read"));
  setenv("ISOBAR_CONFIG_PATH", loop.c_str(), 1);
  CHECK_THROWS_WITH(config_search_path(), ContainsSubstring(loop.string() + ", which is not a folder"));
  unsetenv("ISOBAR_CONFIG_PATH");
}

TEST_CASE("the search path is the variable's folders in their order, then the shipped ones") {
  const ConfigFolder folder;
  const fs::path a = folder.path() / "a", b = folder.path() / "b";
  fs::create_directories(a);
  fs::create_directories(b);
  unsetenv("ISOBAR_CONFIG_PATH");
  const std::vector<fs::path> shipped_only = config_search_path();
  REQUIRE(!shipped_only.empty());
  CHECK(fs::equivalent(shipped_only.back(), kShipped.front()));
  setenv("ISOBAR_CONFIG_PATH", (":" + b.string() + "::" + a.string() + ":").c_str(), 1);
  std::vector<fs::path> expected{b, a};
  expected.insert(expected.end(), shipped_only.begin(), shipped_only.end());
  CHECK(config_search_path() == expected);
  unsetenv("ISOBAR_CONFIG_PATH");

  std::ofstream(a / "x.json") << R"({"one": {"depth": 1}, "two": {"depth": 2}})";
  std::ofstream(b / "y.json") << R"({"depth": 3})";
  std::ofstream(b / "one.json") << R"({"depth": 4})";
  std::ofstream(b / "notes.txt") << "no JSON";
  const std::vector<ListedConfig> listed = list_configs({a, b, folder.path() / "none"});
  REQUIRE(listed.size() == 3);
  CHECK(listed[0].name == "one");
  CHECK(listed[0].file == a / "x.json");
  CHECK(listed[1].name == "two");
  CHECK(listed[2].name == "y");
  CHECK(listed[2].file == b / "y.json");
  CHECK_THROWS_WITH(load_config("three", {a, b}),
                    "there is no config 'three' (looked in " + a.string() + ", " + b.string() + ")");
  CHECK_THROWS_WITH(load_config("one", {}),
                    "there is no config 'one': no configs in any folder (set ISOBAR_CONFIG_PATH)");
  CHECK_THROWS_WITH(load_config("one", {folder.path()}),
                    "there is no config 'one': no configs in " + folder.path().string());
  std::ofstream(b / "empty.json") << "{}";  // one config without keys
  CHECK(load_config("empty", {b}).entries.empty());
  std::ofstream(b / "child.json") << R"({"extends": 3})";
  CHECK_THROWS_WITH(load_config("child", {b}),
                    "config key extends in " + (b / "child.json").string() + " must be a config's name, not 3");
}

TEST_CASE("unknown names are told with the nearest one") {
  const ConfigFolder folder;
  folder.write("tiny.json", R"({"depth": 1})");
  folder.write("wide.json", R"({"extends": "tini", "embed_dmi": 8})");
  CHECK_THROWS_WITH(folder.load("tyny"), ContainsSubstring("'tyny'") && ContainsSubstring("tiny?"));
  CHECK_THROWS_WITH(folder.load("wide"), ContainsSubstring("'tini'") && ContainsSubstring("tiny?"));
  CHECK_THROWS_WITH(with({"embed_dmi=8"}), ContainsSubstring("embed_dmi in --set") && ContainsSubstring("embed_dim?"));
  CHECK(nearest_name("lr_shedule", config_keys()) == "lr_schedule");
  CHECK(nearest_name("batchsize", {"lr", "global_batch_size"}) == "global_batch_size");
  CHECK(nearest_name("", {"abc", "a", "ab"}) == "a");
}

TEST_CASE("a suggestion is near, or what others call it, or none") {
  const auto [name, key] = GENERATE(table<std::string, std::string>({
      {"learning_rate", "lr"},
      {"epochs", "num_epochs"},
      {"iterations", "num_iters"},
      {"heads", "num_heads"},
      {"mixed_precision", "amp_mode"},
      {"batch_size", "global_batch_size"},
      {"batch-size", "global_batch_size"},
      {"n_layers", "depth"},
      {"lr_shedule", "lr_schedule"},
      {"embed_dmi", "embed_dim"},
      {"data_workers", "num_data_workers"},
      {"colour", ""},
      {"momentum", ""},
      {"x", ""},
      {"", ""},
  }));
  CHECK(suggested_key(name) == key);
  CHECK(suggestion("trian", {"train", "data"}) == "train");  // two letters swapped
  CHECK(suggestion("a", {}) == "");
  CHECK(did_you_mean("") == "");
  CHECK(did_you_mean("lr") == "; did you mean lr?");
  CHECK_THROWS_WITH(with({"colour=1"}), "unknown config key colour in --set (isobar train --list-keys names all)");
}

TEST_CASE("a name is near that differs by at most a third of its letters") {
  using Names = std::vector<std::string>;
  CHECK(suggestion("depht", Names{"depth"}) == "depth");  // a swap is one difference
  CHECK(suggestion("hdept", Names{"depth"}) == "");       // two of five
  CHECK(suggestion("abd", Names{"abc"}) == "abc");
  CHECK(suggestion("ad", Names{"ac"}) == "");
  CHECK(suggestion("abcdxx", Names{"abcdef"}) == "abcdef");
  CHECK(suggestion("abcxxx", Names{"abcdef"}) == "");
  CHECK(suggestion("size", Names{"depth", "patch_size"}) == "patch_size");  // a part of four letters
  CHECK(suggestion("siz", Names{"depth", "patch_size"}) == "");
  CHECK(suggestion("hsize", Names{"patch_size"}) == "patch_size");  // without the underscore
  CHECK(suggestion("anything", Names{}) == "");
  CHECK(nearest_name("ba", Names{"abc", "ab"}) == "ab");
  CHECK(nearest_name("bac", Names{"xac", "abc", "bxx"}) == "xac");  // the first of equals
  CHECK(did_you_mean("") == "");
  CHECK(did_you_mean("depth") == "; did you mean depth?");
}

TEST_CASE("numbers beyond what a type holds are refused, the last that fit are not") {
  CHECK(with({"num_iters=9223372036854775807"}).schedule.num_iters == INT64_MAX);
  CHECK(with({"num_iters=9007199254740991.0"}).schedule.num_iters == 9007199254740991);
  for (const char* far : {"num_iters=9223372036854775808", "num_iters=9007199254740992.0", "num_iters=1e30",
                          "num_iters=0.5", "num_iters=\"3\"", "num_iters=[3]"})
    CHECK_THROWS_WITH(with({far}), ContainsSubstring("config key num_iters in --set must be an integer, not "));
  CHECK_THROWS_WITH(with({"lr=true"}), ContainsSubstring("config key lr in --set must be a number, not true"));
  CHECK_THROWS_WITH(with({"shuffle=0"}), ContainsSubstring("config key shuffle in --set must be true or false, not 0"));
  CHECK_THROWS_WITH(with({"amp_mode=3"}),
                    ContainsSubstring("config key amp_mode in --set must be one of none, bf16, fp16, not 3"));
  CHECK(with({"amp_mode=BF16"}).compute.amp_mode == AmpMode::bf16);
  RunConfig sizes = with({"img_size=[8.0,16]"});
  CHECK(forecast_of(sizes).forecast.img_size == std::array<std::int64_t, 2>{8, 16});
}

TEST_CASE("paths are a text, or a list in which numbers are weights, and nothing else") {
  const auto data_path = [](const std::string& value) {
    RunConfig config = read_config(isobar::testing::entries_of({"task=language_model", "data_path=" + value}));
    return to_json(config).at("data_path");
  };
  using Words = std::vector<std::string>;
  CHECK(data_path("a") == "a");
  CHECK(data_path(R"(["a"])") == "a");
  CHECK(data_path(R"([0.5,"a",1,"b"])") == Words{"0.5", "a", "1", "b"});
  for (const char* none : {"null", "\"\"", "", "[]"}) CHECK(data_path(none) == "");
  for (const char* wrong : {"3", "true", R"(["a",""])", R"([["a"]])", R"(["a",null])", R"({"a":1})"})
    CHECK_THROWS_WITH(data_path(wrong), ContainsSubstring("config key data_path in --set must be a path, or a list of "
                                                          "paths, each with or without a number before it, not "));
}

TEST_CASE("true and false may be names of a choice, and null is a value where a key may have none") {
  CHECK(with({"resume=false"}).run.resume != Resuming::automatic);
  CHECK(with({"resume=auto"}).run.resume == Resuming::automatic);
  CHECK_THROWS_WITH(with({"resume=true"}), ContainsSubstring("config key resume in --set must be one of "));
  CHECK_FALSE(with({"exit_interval=null"}).run.exit_interval);
  CHECK_FALSE(with({"exit_interval=None"}).run.exit_interval);
  CHECK(with({"exit_interval=1"}).run.exit_interval == 1);
  CHECK_THROWS_WITH(with({"num_iters=null"}), ContainsSubstring("num_iters in --set must be an integer, not null"));
  CHECK_THROWS_WITH(with({"num_iters=None"}), ContainsSubstring("must be an integer, not \"None\""));
  CHECK_THROWS_WITH(with({"exit_interval=none"}), ContainsSubstring("must be an integer, or null"));
}

TEST_CASE("paths of a config become absolute, addresses and empty ones stay") {
  RunConfig config = with(
      {"train_data_path=a/../b", "valid_data_path=s3://bucket/x", "test_data_path=", "global_means_path=/c/./d.npy"});
  config.make_paths_absolute();
  const nlohmann::ordered_json json = to_json(config);
  CHECK(json.at("train_data_path") == (fs::current_path() / "b").string());
  CHECK(json.at("valid_data_path") == "s3://bucket/x");
  CHECK(json.at("test_data_path") == "");
  CHECK(json.at("global_means_path") == "/c/d.npy");
}

TEST_CASE("what others call a key leads to a key") {
  const std::vector<std::string> keys = config_keys();
  for (const std::string name : {"wd", "opt", "bf16", "width", "timestep", "val_data", "log_interval", "out_chans"})
    CHECK(std::find(keys.begin(), keys.end(), suggested_key(name)) != keys.end());
}

TEST_CASE("docs/config.md is what isobar train --list-keys prints") {
  CHECK(read_file(testing::source_path("docs/config.md")) == describe_keys());
  for (const std::string& key : config_keys()) CHECK_THAT(describe_keys(), ContainsSubstring("- `" + key + "`: `"));
}

TEST_CASE("a broken config file is told by its name") {
  const ConfigFolder folder;
  const std::string broken = folder.write("broken.json", R"({"depth": )");
  const std::string list = folder.write("list.json", "[1]");
  const std::string huge = folder.write("huge.json", R"({"lr": 1e999})");
  CHECK_THROWS_WITH(load_config(broken, {}), ContainsSubstring(broken) && ContainsSubstring("not valid JSON"));
  CHECK_THROWS_WITH(load_config(list, {}), ContainsSubstring(list) && ContainsSubstring("JSON object"));
  CHECK_THROWS_WITH(load_config(huge, {}), ContainsSubstring(huge));
  const std::string twice = folder.write("twice.json", R"({"lr": 1, "lr": 2})");
  CHECK_THROWS_WITH(load_config(twice, {}), twice + ": key \"lr\" is there twice");
  const std::string deep = folder.write("deep.json", "{\"lr\": " + std::string(400000, '['));
  CHECK_THROWS_WITH(load_config(deep, {}), ContainsSubstring(deep) && ContainsSubstring("nested deeper than 64"));
  CHECK_THROWS_WITH(load_config((folder.path() / "none.json").string(), {}), ContainsSubstring("none.json"));
}

TEST_CASE("a value of the wrong type is told with key and file") {
  const ConfigFolder folder;
  const std::string file = folder.write("bad.json", R"({"depth": "three"})");
  CHECK_THROWS_WITH(checked_config(folder.load("bad")),
                    ContainsSubstring("depth in " + file) && ContainsSubstring("an integer, not \"three\""));
  const auto [assignment, expected] = GENERATE(table<std::string, std::string>({
      {"depth=1.5", "an integer"},
      {"depth=true", "an integer"},
      {"depth=99999999999999999999", "an integer"},
      {"lr=fast", "a number"},
      {"lr=\"1e-3\"", "a number"},
      {"shuffle=1", "true or false"},
      {"expdir=3", "a string"},
      {"amp_mode=fp8", "one of none, bf16, fp16"},
      {"img_size=[360]", "a list of 2, each an integer"},
      {"img_size=360", "a list of 2"},
      {"train_range=[1,2,3]", "a list of 2, each an integer, or a list of 2, each a string in UTF-8, or null"},
      {"channel_weights=[1,\"a\"]",
       "a list, each a number, or an object, each of whose values is a number, or a string"},
      {"limit_nsamples=many", "an integer, or null"},
  }));
  CHECK_THROWS_WITH(with({assignment}), ContainsSubstring("config key ") && ContainsSubstring("in --set must be") &&
                                            ContainsSubstring(expected));
}

TEST_CASE("a value given by --set is JSON where it parses and a string elsewhere") {
  RunConfig config = with({"img_size=[36,64]", "patch_size=4", "lr=5E-4", "num_iters=3e4", "expdir=a=b",
                           "limit_nsamples=None", "limit_nsamples_val=null", "optimizer=Adam"});
  const ForecastRecipe& recipe = forecast_of(config);
  CHECK(recipe.forecast.img_size == std::array<std::int64_t, 2>{36, 64});
  CHECK(config.schedule.lr == 5e-4);
  CHECK(config.schedule.num_iters == 30000);
  CHECK(config.run.expdir == "a=b");
  CHECK_FALSE(recipe.split.limit_nsamples);
  CHECK_FALSE(recipe.split.limit_nsamples_val);
  CHECK(config.optimizer.kind == OptimizerKind::adam);
  RunConfig twice = with({"depth=1", "depth=2"});
  CHECK(testing::vit_of(twice).depth == 2);
  CHECK_THROWS_WITH(with({"lr=1e999"}), "--set lr: number 1e999 is too large");
  CHECK_THROWS_WITH(with({"lr=" + std::string(60000, '[')}), ContainsSubstring("--set lr: is not valid JSON"));
  CHECK_THROWS_WITH(with({"expdir=\xff"}), ContainsSubstring("config key expdir in --set must be a string in UTF-8"));
  CHECK_THROWS_WITH(with({"lr=\xff"}), ContainsSubstring("config key lr in --set must be a number"));
  CHECK_THROWS_WITH(with({"depth"}), ContainsSubstring("KEY=VALUE"));
  CHECK_THROWS_WITH(with({"=3"}), ContainsSubstring("KEY=VALUE"));
}

TEST_CASE("values that cannot be are refused with their key") {
  const auto [assignment, key] = GENERATE(table<std::string, std::string>({
      {"embed_dim=390", "embed_dim"},
      {"embed_dim=32", "embed_dim"},  // head_dim 4
      {"embed_dim=1280", "embed_dim"},
      {"embed_dim=2305843009213693952", "embed_dim"},
      {"num_heads=18014398509481984", "num_heads"},
      {"depth=1000000000", "depth"},
      {"num_data_workers=1000000", "num_data_workers"},
      {"eps=1e-50", "eps"},
      {"lr=1e308", "lr"},
      {"patch_size=2000000", "patch_size"},
      {"img_size=[360,8000000]", "img_size"},
      {"n_in_channels=1000000000", "n_in_channels"},
      {"num_heads=0", "num_heads"},
      {"patch_size=7", "img_size"},
      {"img_size=[4,8]", "img_size"},
      {"n_out_channels=21", "n_out_channels"},
      {"dropout=1", "dropout"},
      {"dt=0", "dt"},
      {"train_range=[5,5]", "train_range"},
      {"valid_range=[9,5]", "valid_range"},
      {"valid_range=[-1,5]", "valid_range"},
      {"limit_nsamples=0", "limit_nsamples"},
      {"channel_names=[\"a\"]", "channel_names"},
      {"channel_weights=[1]", "channel_weights"},
      {"betas=[0.9,1]", "betas"},
      {"eps=0", "eps"},
      {"lr=-1", "lr"},
      {"num_iters=0", "num_iters"},
      {"global_batch_size=0", "global_batch_size"},
      {"grad_accumulation=17", "global_batch_size"},
      {"log_every=0", "log_every"},
      {"seed=-1", "seed"},
  }));
  CHECK_THROWS_WITH(with({assignment}), ContainsSubstring("config key " + key));
  CHECK_THROWS_WITH(with({"dtype=fp64", "amp_mode=bf16"}),
                    "config key amp_mode in --set must be none when dtype is fp64, not bf16");
  CHECK_THROWS_WITH(with({"n_in_channels=2", "n_out_channels=2", "channel_weights=[0,0]"}),
                    ContainsSubstring("channel_weights"));
  CHECK_NOTHROW(with({"n_in_channels=2", "n_out_channels=2", "channel_weights=[0,1]"}));
}

TEST_CASE("the largest and the smallest values that can be are taken") {
  const std::string assignment =
      GENERATE("embed_dim=1024", "embed_dim=64", "num_heads=48", "depth=1", "depth=8000", "num_data_workers=0",
               "num_data_workers=256", "n_out_channels=1", "n_out_channels=20", "dropout=0", "dropout=0.999", "dt=1",
               "train_range=[0,1]", "valid_range=[0,1]", "limit_nsamples=1", "limit_nsamples_val=1", "betas=[0,0.9999]",
               "weight_decay=0", "grad_clip=0", "lr=0", "lr=3.4e38", "eps=1e-45", "global_batch_size=1",
               "reference_batch_size=1", "num_iters=1", "warmup=0", "log_every=1", "validate_every=0",
               "checkpoint_every=0", "keep_checkpoints=0", "seed=0", "img_size=[1048576,8]", "img_size=[8,8]");
  const std::string of_images = GENERATE("ignored_label=0", "classes=2");
  INFO(assignment);
  CHECK_NOTHROW(with({assignment}));
  CHECK_NOTHROW(with({"task=classification", "classes=4", of_images}));
}

TEST_CASE("what is just beyond what can be is refused with its key and what it must be") {
  const auto [assignment, sentence] = GENERATE(table<std::string, std::string>({
      {"depth=0", "depth in --set must be at least 1, not 0"},
      {"depth=8001", "depth in --set must be at most 8000, not 8001"},
      {"embed_dim=0", "embed_dim in --set must be at least 1, not 0"},
      {"embed_dim=1088", "embed_dim in --set divided by num_heads must be a multiple of 8 up to 128, not 136"},
      {"embed_dim=96", "embed_dim in --set divided by num_heads must be a multiple of 8 up to 128, not 12"},
      {"embed_dim=388", "embed_dim in --set must be a multiple of num_heads (8), not 388"},
      {"num_data_workers=-1", "num_data_workers in --set must be at least 0, not -1"},
      {"num_data_workers=257", "num_data_workers in --set must be at most 256, not 257"},
      {"n_in_channels=0", "n_in_channels in --set must be at least 1, not 0"},
      {"n_out_channels=0", "n_out_channels in --set must be at least 1, not 0"},
      {"n_out_channels=21", "n_out_channels in --set must be at most n_in_channels (20), not 21"},
      {"patch_size=0", "patch_size in --set must be at least 1, not 0"},
      {"img_size=[1048584,8]", "img_size in --set must be at most 1048576, not 1048584"},
      {"img_size=[12,8]", "img_size in --set must be a multiple of patch_size (8), not 12"},
      {"img_size=[0,8]", "img_size in --set must be a multiple of patch_size (8), not 0"},
      {"img_size=[8,12]", "img_size in --set must be a multiple of patch_size (8), not 12"},
      {"img_size=[8,4]", "img_size in --set must be a multiple of patch_size (8), not 4"},
      {"img_size=[8,0]", "img_size in --set must be a multiple of patch_size (8), not 0"},
      {"dropout=-0.1", "dropout in --set must be at least 0 and below 1, not -0.1"},
      {"betas=[-0.1,0.9]", "betas in --set must be at least 0 and below 1, not -0.1"},
      {"limit_nsamples_val=0", "limit_nsamples_val in --set must be at least 1, not 0"},
      {"weight_decay=-1", "weight_decay in --set must be at least 0, not -1"},
      {"grad_clip=-1", "grad_clip in --set must be at least 0, not -1"},
      {"weight_decay=1e39", "weight_decay in --set must be a number of fp32"},
      {"grad_clip=1e39", "grad_clip in --set must be a number of fp32"},
      {"eps=1e-50", "eps in --set must be a number of fp32"},
      {"eps=1e39", "eps in --set must be a number of fp32"},
      {"lr=1e-50", "lr in --set must be a number of fp32"},
      {"end_lr=1e-50", "end_lr in --set must be a number of fp32"},
      {"warmup_lr=1e39", "warmup_lr in --set must be a number of fp32"},
      {"reference_batch_size=0", "reference_batch_size in --set must be at least 1, not 0"},
      {"grad_accumulation=0", "grad_accumulation in --set must be at least 1, not 0"},
      {"warmup=-1", "warmup in --set must be at least 0, not -1"},
      {"validate_every=-1", "validate_every in --set must be at least 0, not -1"},
      {"checkpoint_every=-1", "checkpoint_every in --set must be at least 0, not -1"},
      {"keep_checkpoints=-1", "keep_checkpoints in --set must be at least 0, not -1"},
      {"train_range=[-1,5]", "train_range in --set must be [first, end) with 0 <= first < end"},
  }));
  CHECK_THROWS_WITH(with({assignment}), ContainsSubstring("config key " + sentence));
  CHECK_THROWS_WITH(with({"n_in_channels=2", "n_out_channels=2", "channel_names=[\"a\",\"a\"]"}),
                    ContainsSubstring("channel_names in --set holds a twice"));
  CHECK_THROWS_WITH(with({"n_in_channels=2", "n_out_channels=2", "channel_names=[\"a\"]"}),
                    "config key channel_names in --set must name 2 channels (n_in_channels), not 1");
  const std::string two = "channel_names=[\"a\",\"b\"]";
  CHECK_THROWS_WITH(with({"n_in_channels=2", "n_out_channels=2", two, R"(transforms={"b":0})"}),
                    "config key transforms in --set gives b no scale above 0: the s of ln(1 + x / s)");
  CHECK_THROWS_WITH(
      with({"n_in_channels=2", "n_out_channels=2", two, R"(missing={"a":"mean"})", R"(missing_masks=["b"])"}),
      "config key missing_masks in --set names b, whose missing points config key missing refuses");
  for (const char* key :
       {"missing_masks=[\"c\"]", "accumulate=[\"c\"]", R"(transforms={"c":1})", R"(missing={"c":"mean"})"})
    CHECK_THROWS_WITH(with({"n_in_channels=2", "n_out_channels=2", two, key}),
                      ContainsSubstring("in --set names c, which is no channel of the data"));
  CHECK_THROWS_WITH(with({"n_in_channels=2", "n_out_channels=2", "channel_names=[\"a\",\"\"]"}),
                    ContainsSubstring("channel_names in --set holds an empty name"));
  CHECK_THROWS_WITH(with({"n_in_channels=2", "n_out_channels=2", "channel_weights=[2,-1]"}),
                    ContainsSubstring("channel_weights in --set must be at least 0, not -1"));
  CHECK_NOTHROW(with({"dtype=fp64", "lr=1e39"}));
  CHECK_NOTHROW(with({"n_in_channels=2", "n_out_channels=1", "channel_names=[\"a\",\"b\"]", "channel_weights=[1]"}));
}

TEST_CASE("every key survives config.json") {
  const std::vector<std::string> assignments{"embed_dim=96",
                                             "depth=3",
                                             "num_heads=4",
                                             "patch_size=4",
                                             "img_size=[24,52]",
                                             "n_in_channels=2",
                                             "n_out_channels=2",
                                             "channels=[\"a\"]",
                                             "diagnostic_channels=[\"e\"]",
                                             "forcing_channels=[\"b\"]",
                                             "computed_channels=[\"cos_latitude\"]",
                                             R"(constant_channels={"z":"k:z"})",
                                             "history=1",
                                             R"(missing={"a":1.5,"b":"mean"})",
                                             "missing_masks=[\"b\"]",
                                             "accumulate=[\"a\"]",
                                             R"(transforms={"a":0.5})",
                                             "rollout=[[0,1],[5,2]]",
                                             "rollout_weights=last",
                                             "rollout_gradient=last",
                                             "recompute_steps=true",
                                             "boundary_width=1",
                                             "valid_rollout=3",
                                             R"(valid_leads=["6h"])",
                                             "pad_grid=true",
                                             "lead_time=6h",
                                             "span_files=false",
                                             "dropout=0.1",
                                             "predict_change=true",
                                             "time_features=true",
                                             "channel_names=[\"a\",\"e\",\"b\"]",
                                             "train_data_path=a",
                                             "valid_data_path=b",
                                             "test_data_path=j",
                                             "inf_data_path=c",
                                             "global_means_path=d",
                                             "global_stds_path=e",
                                             "time_means_path=f",
                                             "dt=2",
                                             "train_range=[0,7]",
                                             "valid_range=[7,9]",
                                             "test_range=[1,4]",
                                             "allow_overlap=true",
                                             "limit_nsamples=5",
                                             "limit_nsamples_val=6",
                                             "sampler=tutorial",
                                             "shuffle=false",
                                             "num_data_workers=3",
                                             "amp_mode=fp16",
                                             "tf32=false",
                                             "recompute=true",
                                             "cuda_graph=true",
                                             "autotune=false",
                                             "seed=7",
                                             "freeze=[\"pos_embed\"]",
                                             "loss=relative_l2_weighted",
                                             "channel_weights=[0.1,2]",
                                             "latitude_weights=cells",
                                             "picture_channels=[\"a\"]",
                                             "optimizer=adamw",
                                             "betas=[0.8,0.999]",
                                             "eps=1e-7",
                                             "weight_decay=0.3",
                                             "weight_decay_on=all",
                                             "weight_decay_schedule=cosine",
                                             "end_weight_decay=0.4",
                                             "grad_clip=1.5",
                                             "ema=0.999",
                                             "initial_loss_scale=4294967296",
                                             "min_loss_scale=1",
                                             "loss_scale_window=1000",
                                             "loss_scale_growth=4",
                                             "loss_scale_backoff=0.25",
                                             "hysteresis=2",
                                             "global_batch_size=12",
                                             "grad_accumulation=3",
                                             "incomplete_batch=keep",
                                             "loss_mean=micro_batches",
                                             "batch_rampup=[12,4,100]",
                                             "num_iters=11",
                                             "num_epochs=3",
                                             "lr=0.123456789012345678",
                                             "lr_schedule=constant",
                                             "end_lr=0.001",
                                             "lr_step=epoch",
                                             "decay_iters=9",
                                             "decay_epochs=2",
                                             "warmup_lr=0.002",
                                             "warmup_rule=megatron",
                                             "lr_gamma=0.3",
                                             "lr_decay_every=2",
                                             "wsd_iters=2",
                                             "wsd_decay=cosine",
                                             "warmup=4",
                                             "decay_samples=9",
                                             "warmup_samples=1.5",
                                             "wsd_samples=2",
                                             "batch_lr_scaling=linear",
                                             "reference_batch_size=8",
                                             "expdir=g",
                                             "log_every=1",
                                             "validate_every=2",
                                             "checkpoint_every=3",
                                             "keep_checkpoints=4",
                                             "resume=auto",
                                             "validate_at_start=false",
                                             "test_weights=last",
                                             "exit_interval=5",
                                             "exit_duration_mins=6.5",
                                             "enable_fused=true",
                                             "enable_jit=true",
                                             "data_loader_config=dali",
                                             "wireup_info=h",
                                             "wireup_store=i"};
  RunConfig config = with(assignments);
  if (GENERATE(false, true)) {  // dtype fp64 excludes amp_mode
    config.compute.amp_mode = AmpMode::none;
    config.compute.dtype = ArithmeticType::fp64;
  }
  const nlohmann::ordered_json written = to_json(config), defaults = ::defaults();
  std::set<std::string> unchanged;
  for (const auto& [key, value] : written.items()) {
    if (value == defaults[key]) unchanged.insert(key);
  }
  CHECK(unchanged ==
        std::set<std::string>{"task", "model", config.compute.dtype == ArithmeticType::fp64 ? "amp_mode" : "dtype"});

  const ConfigFolder folder;
  const std::string file = folder.write("config.json", written.dump(2));
  RunConfig from_file = checked_config(load_config(file, {}).entries);
  CHECK(to_json(from_file) == written);
  RunConfig from_memory = checked_config(entries_from(written, "memory"));
  CHECK(to_json(from_memory) == written);
}

TEST_CASE("the shipped configs are the tutorial's") {
  const auto value = [](const std::string& name, const char* key) {
    RunConfig config = shipped(name);
    return to_json(config)[key];
  };
  RunConfig base = shipped("base");
  CHECK(to_json(base) == defaults());
  CHECK(value("short", "limit_nsamples") == 512);
  CHECK(value("short", "limit_nsamples_val") == 128);
  CHECK(value("short", "num_iters") == 128);
  CHECK(value("short_opt", "amp_mode") == "fp16");
  CHECK(value("short_opt", "num_iters") == 128);
  CHECK(value("opt", "num_data_workers") == 8);
  for (const std::int64_t batch : {16, 32, 64, 128, 256, 512, 1024, 2048}) {
    const RunConfig config = shipped("bs" + std::to_string(batch) + "_opt");
    CHECK(config.batch.global_batch_size == batch);
    CHECK(config.schedule.lr == Approx(5e-4 * std::sqrt(static_cast<double>(batch) / 16)).epsilon(3e-3));
    CHECK(config.tutorial.enable_fused);
  }
  CHECK(value("mp", "embed_dim") == 1024);
  CHECK(value("mp", "enable_fused") == true);
  CHECK(value("mp", "enable_jit") == false);
  CHECK(value("mp_bs32", "lr") == 7.07e-4);
  CHECK(value("mp_bs16", "global_batch_size") == 16);
  CHECK(value("mp_patch4", "patch_size") == 4);
  CHECK(value("mp_patch4", "global_batch_size") == 64);
  CHECK(value("ncep_air", "valid_range") == StepRange{2336, 2920});
  CHECK(value("tiny", "predict_change") == true);
}

TEST_CASE("no two components claim one key, in any task") {
  for (const RecipeEntry& entry : recipe_list()) {
    RunConfig config(entry.name);
    CHECK_NOTHROW(all_keys(config.tables()));
  }
  double a = 0, b = 0;
  const std::vector<KeyTable> tables{{"One", {key("lr", a, "")}}, {"Other", {key("rate", b, ""), key("lr", b, "")}}};
  CHECK_THROWS_WITH(all_keys(tables), "the config key lr is claimed by \"One\" and by \"Other\"");
}

TEST_CASE("a task that nobody knows is refused with those that exist") {
  CHECK_THROWS_WITH(with({"task=weather"}),
                    ContainsSubstring("config key task must be one of forecast") && ContainsSubstring("not weather"));
  CHECK_THROWS_WITH(with({"task=3"}), ContainsSubstring("config key task in --set must be a string, not 3"));
}

TEST_CASE(
    "the options of a trainer are those of the config, and its data set gives the iterations of a run of epochs") {
  const RunConfig config = with({"global_batch_size=6", "optimizer=adamw", "lr=0.25", "dtype=fp64",
                                 "loss_scale_window=8", "num_epochs=3", "warmup=4", "warmup_rule=nanogpt"});
  const TrainerOptions shapes = config.trainer_options(), run = config.trainer_options(5);
  for (const TrainerOptions& options : {shapes, run}) {
    CHECK(options.batch.global_batch_size == 6);
    CHECK(options.optimizer.kind == OptimizerKind::adamw);
    CHECK(options.schedule.lr == 0.25);
    CHECK(options.compute.dtype == ArithmeticType::fp64);
    CHECK(options.loss_scale.loss_scale_window == 8);
  }
  CHECK(shapes.schedule.num_epochs == 3);
  CHECK(shapes.iterations_per_epoch == 1);
  CHECK_FALSE(run.schedule.num_epochs);
  CHECK(run.schedule.num_iters == 15);
  CHECK(run.iterations_per_epoch == 5);
  CHECK_THROWS_WITH(config.trainer_options(1), ContainsSubstring("warmup"));
}

TEST_CASE("a later choice of task or network leaves out the keys that only the earlier one has") {
  const ConfigFolder folder;
  folder.write("base.json", R"({"img_size": [8, 16], "n_in_channels": 4, "batch_size": 3})");
  folder.write("child.json", R"({"extends": "base", "task": "classification"})");
  folder.write("same.json", R"({"task": "classification", "img_size": [8, 16]})");
  folder.write("own.json", R"({"task": "classification"})");
  const std::vector<std::string> keys{"img_size", "n_in_channels"};

  ConfigEntries entries = folder.load("base");
  entries.erase("batch_size");
  CHECK(read_config(entries).left_out.empty());
  set_from_assignment(entries, "task=classification");
  CHECK(read_config(entries).left_out == keys);
  RunConfig config = read_config(entries);
  CHECK_FALSE(to_json(config).contains("img_size"));

  entries = folder.load("child");
  CHECK_THROWS_WITH(read_config(entries), ContainsSubstring("unknown config key batch_size in "));  // of no task
  entries.erase("batch_size");
  CHECK(read_config(entries).left_out == keys);

  // Set by the source that chose the task, or by a later one: a mistake.
  CHECK_THROWS_WITH(read_config(folder.load("same")), ContainsSubstring("unknown config key img_size in "));
  entries = folder.load("own");
  set_from_assignment(entries, "img_size=[8,16]");
  CHECK_THROWS_WITH(read_config(entries), ContainsSubstring("unknown config key img_size in --set"));
}

TEST_CASE("a number may lie on its bounds and not beyond them, whatever its type") {
  const auto accepts = [](auto&& set_bounds, auto value) {
    Key bounded = key("k", value, "");
    set_bounds(bounded);
    try {
      check_bounds(bounded, {});
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  const auto within = [](Key& k) { k.within(2, 5); };
  CHECK((accepts(within, std::int64_t{2}) && accepts(within, std::int64_t{5})));
  CHECK_FALSE((accepts(within, std::int64_t{1}) || accepts(within, std::int64_t{6})));
  const auto fraction = [](Key& k) { k.fraction(); };
  CHECK((accepts(fraction, 0.0) && accepts(fraction, 0.999)));
  CHECK_FALSE((accepts(fraction, 1.0) || accepts(fraction, -1e-9)));
  const auto above = [](Key& k) { k.greater_than(0); };
  CHECK((accepts(above, 1e-300) && !accepts(above, 0.0)));
  const auto at_least = [](Key& k) { k.at_least(1); };
  CHECK(accepts(at_least, std::optional<std::int64_t>()));  // null has no number
  CHECK_FALSE(accepts(at_least, std::optional<std::int64_t>(0)));
  CHECK_FALSE(accepts(at_least, std::array<std::int64_t, 2>{1, 0}));
  CHECK_FALSE(accepts(at_least, std::optional(std::vector<double>{1, 2, 0.5})));
}

TEST_CASE("a resumed run may change where files lie and how often, and nothing that it computes") {
  const std::vector<std::string> free = RunConfig().keys_free_on_resume();
  CHECK(std::set<std::string>(free.begin(), free.end()) == std::set<std::string>{"expdir",
                                                                                 "train_data_path",
                                                                                 "valid_data_path",
                                                                                 "test_data_path",
                                                                                 "test_range",
                                                                                 "inf_data_path",
                                                                                 "global_means_path",
                                                                                 "global_stds_path",
                                                                                 "time_means_path",
                                                                                 "num_data_workers",
                                                                                 "num_iters",
                                                                                 "num_epochs",
                                                                                 "log_every",
                                                                                 "validate_every",
                                                                                 "checkpoint_every",
                                                                                 "keep_checkpoints",
                                                                                 "resume",
                                                                                 "enable_fused",
                                                                                 "enable_jit",
                                                                                 "data_loader_config",
                                                                                 "wireup_info",
                                                                                 "wireup_store",
                                                                                 "recompute",
                                                                                 "picture_channels",
                                                                                 "valid_leads",
                                                                                 "cuda_graph",
                                                                                 "autotune",
                                                                                 "tf32",
                                                                                 "validate_at_start",
                                                                                 "test_weights",
                                                                                 "exit_interval",
                                                                                 "exit_duration_mins"});
}

TEST_CASE("a run of before there was a key goes on as it began") {
  ConfigEntries entries;
  add_older_values(entries, "config.json");
  CHECK(entries.at("allow_overlap").value == true);
  CHECK(entries.at("allow_overlap").origin == "config.json");
  ConfigEntries newer{{"allow_overlap", {false, "file"}}};
  add_older_values(newer, "config.json");
  CHECK(newer.at("allow_overlap").value == false);
  CHECK(entries.at("autotune").value == false);  // its products took the library's first guess
}
