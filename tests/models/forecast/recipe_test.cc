// What a forecast's recipe leaves to the data: sizes that are null, names of channels, and the split of one folder.
#include "models/forecast/recipe.h"

#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/files/hdf5.h"
#include "models/vit/options.h"
#include "tests/harness/data_files.h"
#include "tests/harness/error_of.h"
#include "tests/harness/forecast_config.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

TEST_CASE("the patch is the largest that divides both sides and leaves a hundred tokens") {
  CHECK(default_patch_size(32, 64) == 4);
  CHECK(default_patch_size(30, 44) == 2);
  CHECK(default_patch_size(7, 10) == 1);
  CHECK(default_patch_size(360, 720) == 8);
  CHECK(default_patch_size(80, 80) == 8);  // a hundred tokens
  CHECK(default_patch_size(72, 88) == 4);  // 99 of 8 x 8
  CHECK(default_patch_size(721, 1440) == 1);
}

TEST_CASE("a patch of sides that may be padded leaves a hundred tokens, and pads only where 2 divides no side") {
  CHECK(default_patch_size_padded(721, 1440) == 8);
  CHECK(default_patch_size_padded(73, 144) == 8);  // 10 x 18
  CHECK(default_patch_size_padded(37, 72) == 4);   // 5 x 9 of 8 x 8 are too few
  CHECK(default_patch_size_padded(21, 20) == 2);
  CHECK(default_patch_size_padded(5, 7) == 1);
  CHECK(default_patch_size_padded(30, 44) == 2);
  CHECK(default_patch_size_padded(72, 88) == 4);
}

// What fill_sizes tells of a grid for a config with these entries beside img_size null.
std::string filled(std::vector<std::string> entries, std::int64_t height, std::int64_t width) {
  entries.insert(entries.begin(), {"img_size=null", "n_in_channels=2"});
  entries.emplace_back("n_out_channels=2");
  RunConfig config = read_config(entries_of(entries));
  const std::string summary =
      forecast_of(config).fill_sizes({.channels = 2, .height = height, .width = width}, config.origins);
  config.check();
  return summary;
}

TEST_CASE("a grid that the data give is padded by itself only where pad_grid is null and no patch divides") {
  CHECK(filled({"patch_size=null", "pad_grid=null"}, 73, 144) == "img_size [73,144], patch_size 8, pad_grid true");
  CHECK(filled({"patch_size=null", "pad_grid=null"}, 72, 144) == "img_size [72,144], patch_size 8, pad_grid false");
  CHECK(filled({"patch_size=null", "pad_grid=null"}, 30, 44) == "img_size [30,44], patch_size 2, pad_grid false");
  CHECK(filled({"patch_size=null", "pad_grid=null"}, 5, 7) == "img_size [5,7], patch_size 1, pad_grid false");
  CHECK(filled({"patch_size=8", "pad_grid=null"}, 30, 44) == "img_size [30,44], pad_grid true");
  CHECK(filled({"patch_size=null", "pad_grid=true"}, 73, 144) == "img_size [73,144], patch_size 8");
  CHECK(filled({"patch_size=null"}, 73, 144) == "img_size [73,144], patch_size 1");
  CHECK_THROWS_WITH(filled({"patch_size=8"}, 73, 144),
                    ContainsSubstring("must be a multiple of patch_size (8), not 73"));
  CHECK(filled({"model=unet", "levels=3", "pad_grid=null"}, 73, 144) == "img_size [73,144], pad_grid true");
  CHECK_THROWS_WITH(filled({"model=unet", "levels=3", "edge=[\"zeros\",\"wrap\"]", "pad_grid=null"}, 73, 145),
                    ContainsSubstring("config key edge wraps them"));

  // A grid of the config stays what it is.
  RunConfig named = read_config(entries_of({"img_size=[12,8]", "pad_grid=null"}));
  CHECK(forecast_of(named).needs_sizes());
  CHECK(forecast_of(named).fill_sizes({.channels = 20, .height = 12, .width = 8}, named.origins) == "pad_grid false");
  CHECK_THROWS_WITH(named.check(), ContainsSubstring("img_size in --set must be a multiple of patch_size (8), not 12"));
  RunConfig padded = read_config(entries_of({"img_size=[12,8]", "pad_grid=true"}));
  CHECK_FALSE(forecast_of(padded).needs_sizes());
  CHECK_NOTHROW(padded.check());
  RunConfig open = read_config(entries_of({"pad_grid=null"}));
  CHECK_THROWS_WITH(open.check(), ContainsSubstring("config key pad_grid in --set is null"));
}

TEST_CASE("sizes that are null come from the data, others stay") {
  RunConfig config = read_config(entries_of({"img_size=null", "patch_size=None", "n_in_channels=null",
                                             "n_out_channels=null", "time_features=null", "depth=2"}));
  ForecastRecipe& all = forecast_of(config);
  CHECK(all.needs_sizes());
  CHECK(all.fill_sizes({.channels = 3, .height = 30, .width = 44, .has_times = true}, config.origins) ==
        "img_size [30,44], n_in_channels 3, n_out_channels 3, time_features true, patch_size 2");
  CHECK_FALSE(all.needs_sizes());
  config.check();
  CHECK(all.forecast.img_size == std::array<std::int64_t, 2>{30, 44});
  CHECK(testing::vit_of(config).patch_size == 2);
  CHECK(all.forecast.n_in_channels == 3);
  CHECK(all.forecast.n_out_channels == 3);
  CHECK(all.forecast.time_features == true);

  RunConfig some =
      read_config(entries_of({"img_size=[24,40]", "patch_size=null", "n_in_channels=2", "n_out_channels=null"}));
  CHECK(forecast_of(some).fill_sizes({.channels = 3, .height = 30, .width = 44}, some.origins) ==
        "n_out_channels 2, patch_size 2");
  RunConfig none = read_config(entries_of({"depth=2"}));
  CHECK_FALSE(forecast_of(none).needs_sizes());
  CHECK(forecast_of(none).fill_sizes({.channels = 3, .height = 30, .width = 44}, none.origins) == "");
  CHECK(forecast_of(none).forecast.img_size == std::array<std::int64_t, 2>{360, 720});

  RunConfig wrong =
      read_config(entries_of({"img_size=null", "patch_size=8", "n_in_channels=null", "n_out_channels=null"}));
  forecast_of(wrong).fill_sizes({.channels = 3, .height = 30, .width = 44}, wrong.origins);
  CHECK_THROWS_WITH(wrong.check(), ContainsSubstring("config key img_size in the data must be a multiple of"));
}

TEST_CASE("one folder is split into what was asked for and the rest, else its last fifth is validation") {
  const auto [assignments, train, valid] = GENERATE(table<std::vector<std::string>, StepRange, StepRange>({
      {{"depth=2"}, {0, 80}, {80, 100}},
      {{"train_range=[0,70]"}, {0, 70}, {70, 100}},
      {{"train_range=[40,100]"}, {40, 100}, {0, 40}},
      {{"train_range=[20,70]"}, {20, 70}, {70, 100}},
      {{"valid_range=[60,90]"}, {0, 60}, {60, 90}},
      {{"valid_range=[0,30]"}, {30, 100}, {0, 30}},
      {{"train_range=[0,10]", "valid_range=[50,60]"}, {0, 10}, {50, 60}},
  }));
  RunConfig config = read_config(entries_of(assignments));
  SplitOptions& split = forecast_of(config).split;
  split.complete_ranges(100);
  CHECK(split.train_range == RangeValue(train));
  CHECK(split.valid_range == RangeValue(valid));
  SplitOptions odd;
  odd.complete_ranges(27);
  CHECK(odd.train_range == RangeValue(StepRange{0, 21}));
  CHECK(odd.valid_range == RangeValue(StepRange{21, 27}));
  SplitOptions all;
  all.train_range = StepRange{0, 100};
  CHECK_THROWS_WITH(all.complete_ranges(100),
                    ContainsSubstring("config key train_range") && ContainsSubstring("none of"));
}

TEST_CASE("pairs and parts of a folder go over the ends of its files, or stay within them, and may be only the first") {
  const TemporaryFolder folder;
  for (const int year : {0, 1}) {
    hdf5::File file = hdf5::File::create((folder / (std::to_string(year) + ".h5")).string());
    const std::vector<float> fields(4 * 2 * 8 * 8, static_cast<float>(year));
    file.write("fields", std::array<std::int64_t, 4>{4, 2, 8, 8}, std::span<const float>(fields));
    std::vector<double> hours;
    for (int step = 0; step < 4; ++step) hours.push_back(6 * (4 * year + step));
    file.write("time", std::array<std::int64_t, 1>{4}, std::span<const double>(hours));
    file.write_attribute("time", "units", "hours since 2001-01-01");
    file.close();
  }
  const std::string path = folder.path().string();
  const auto samples = [&](const std::vector<std::string>& more) {
    std::vector<std::string> keys{"train_data_path=" + path,
                                  "valid_data_path=" + path,
                                  "allow_overlap=true",
                                  "train_range=[0,8]",
                                  "valid_range=[0,8]",
                                  "img_size=[8,8]",
                                  "n_in_channels=2",
                                  "n_out_channels=2",
                                  "global_means_path=" + path + "/means.npy",
                                  "global_stds_path=" + path + "/stds.npy",
                                  "time_means_path=" + path + "/times.npy"};
    keys.insert(keys.end(), more.begin(), more.end());
    RunConfig config = read_config(entries_of(keys));
    const auto opened = config.recipe->open(config.origins, {});
    return std::pair(opened->train().samples(), opened->valid().samples());
  };
  CHECK(samples({"span_files=true"}) == std::pair<std::int64_t, std::int64_t>(7, 7));
  CHECK(samples({"span_files=false"}) == std::pair<std::int64_t, std::int64_t>(6, 6));
  CHECK(samples({"span_files=true", "limit_nsamples=3"}) == std::pair<std::int64_t, std::int64_t>(3, 7));
  CHECK(samples({"span_files=true", "limit_nsamples_val=2"}) == std::pair<std::int64_t, std::int64_t>(7, 2));
}

TEST_CASE("what is left to one folder of files is filled and told") {
  const TemporaryFolder folder;
  write_fields((folder / "2001.h5").string(), {10, 2, 30, 44});
  const std::string path = folder.path().string();
  RunConfig config = read_config(
      entries_of({"train_data_path=" + path, "valid_data_path=" + path, "img_size=null", "patch_size=null",
                  "n_in_channels=null", "n_out_channels=null", "time_features=null", "valid_range=[8,10]"}));
  ForecastRecipe& recipe = forecast_of(config);
  const auto catalog = std::make_shared<FieldCatalog>();
  const std::vector<std::string> told = recipe.fill_from_data(config.origins, catalog);
  REQUIRE(told.size() == 2);
  CHECK(told[0] ==
        "from the data: img_size [30,44], n_in_channels 2, n_out_channels 2, time_features false, patch_size 2");
  CHECK(told[1] == "training and validation are parts of " + path + " (10 steps): train_range [0,8]");
  CHECK(recipe.split.train_range == RangeValue(StepRange{0, 8}));
  CHECK(config.origins.where("train_range") == "config key train_range in the data");
  CHECK(recipe.fill_from_data(config.origins, catalog).empty());  // nothing is left
}

// Files of one variable called t to train and to validate on, and a config for them with the defaults of all paths.
class FieldFolder {
 public:
  explicit FieldFolder(const FieldsShape& shape = {6, 1, 4, 8}, const std::vector<double>& hours = {},
                       std::optional<std::size_t> missing_point = {}) {
    std::vector<float> values = field_values(shape);
    const auto pixels = static_cast<std::size_t>(shape[2] * shape[3]);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = i % pixels == missing_point ? NAN : std::sin(0.37F * static_cast<float>(i));
    for (const char* part : {"train", "valid"}) {
      std::filesystem::create_directories(folder_.path() / part);
      write_labelled_fields(file(part), shape, {.names = {"t"}, .hours = hours}, values);
    }
  }

  std::string path() const { return folder_.path().string(); }
  std::string file(const std::string& part) const { return path() + "/" + part + "/2001.h5"; }
  RunConfig config(std::vector<std::string> assignments = {}) const {
    for (const auto& [key, at] : ForecastRecipe().paths_in(folder_.path()))
      assignments.insert(assignments.begin(), key + "=" + at.string());
    assignments.insert(assignments.begin(), {"img_size=null", "patch_size=4", "n_in_channels=1", "n_out_channels=null",
                                             "embed_dim=16", "num_heads=2", "depth=1"});
    return read_config(entries_of(assignments));
  }

 private:
  TemporaryFolder folder_;
};

TEST_CASE("opening fills what is null, and what it finds besides is its own: no other option changes") {
  const FieldFolder folder;
  RunConfig config = folder.config();
  const nlohmann::ordered_json declared = to_json(config);
  const auto data = config.recipe->open(config.origins, {.kept = "/nowhere/run/stats"});
  CHECK(data->train().samples() == 5);
  CHECK(data->valid().samples() == 5);

  nlohmann::ordered_json filled = to_json(config);
  CHECK(filled.at("img_size") == nlohmann::json{4, 8});
  CHECK(filled.at("n_out_channels") == 1);
  for (const char* key : {"img_size", "n_out_channels"}) filled[key] = declared.at(key);
  CHECK(filled == declared);

  // The config of the run, which config.json has.
  nlohmann::ordered_json of_run = to_json(config, data->found());
  CHECK(of_run.at("channel_names") == nlohmann::json{"t"});
  for (const std::string name : {"global_means", "global_stds", "time_means"})
    CHECK(of_run.at(name + "_path") == "/nowhere/run/stats/" + name + ".npy");
  for (const char* key :
       {"img_size", "n_out_channels", "channel_names", "global_means_path", "global_stds_path", "time_means_path"})
    of_run[key] = declared.at(key);
  CHECK(of_run == declared);
  CHECK_THROWS_WITH(to_json(config, {FoundKey{"chanels", "t"}}), ContainsSubstring("there is no such key"));

  // What was opened needs neither the config nor its recipe any more.
  config = RunConfig();
  CHECK(data->make_task(ComputeOptions{}, Device{})->settings().at("isobar.grid").find("\"t\"") != std::string::npos);
}

TEST_CASE("statistics that files have stay where they are, and those that nobody keeps have no place") {
  const FieldFolder folder;
  RunConfig config = folder.config();
  const auto unkept = config.recipe->open(config.origins, {});
  CHECK(to_json(config, unkept->found()).at("global_means_path") == folder.path() + "/global_means.npy");
  REQUIRE(unkept->sentences().size() >= 2);
  CHECK(unkept->sentences()[1] == "no statistics in " + folder.path() + ": they are made from the training steps");

  unkept->keep(folder.path());
  RunConfig again = folder.config();
  const auto kept = again.recipe->open(again.origins, {.kept = folder.path() + "/run/stats"});
  CHECK(kept->found().size() == 1);  // the names
  CHECK(to_json(again, kept->found()).at("global_means_path") == folder.path() + "/global_means.npy");
}

TEST_CASE("a process that goes by another's findings computes nothing of the data, and has the same") {
  const FieldFolder folder;
  RunConfig config = folder.config(), other = folder.config();
  const auto first = config.recipe->open(config.origins, {.kept = "/nowhere"});
  const auto second = other.recipe->open(other.origins, {.kept = "/nowhere", .findings = first->findings()});
  CHECK(to_json(other, second->found()) == to_json(config, first->found()));
  CHECK(second->make_task(other.compute, Device{})->settings() ==
        first->make_task(config.compute, Device{})->settings());
  // Points that never have a value are found in the data too, and so is the change of channels.
  const FieldFolder holed({6, 1, 4, 8}, {}, 5);
  const std::vector<std::string> keys{R"(missing={"t":"mean"})", "channel_weights=change"};
  RunConfig of_holes = holed.config(keys), of_others = holed.config(keys);
  const auto own = of_holes.recipe->open(of_holes.origins, {.kept = "/nowhere"});
  const auto theirs = of_others.recipe->open(of_others.origins, {.kept = "/nowhere", .findings = own->findings()});
  const Settings found = own->make_task(of_holes.compute, Device{})->settings();
  CHECK(found.at("isobar.never_there") == "[5,1,26]");
  CHECK_THAT(found.at("isobar.grid"), ContainsSubstring("change_stds"));
  CHECK(theirs->make_task(of_others.compute, Device{})->settings() == found);
  RunConfig third = folder.config();
  CHECK_THROWS_WITH(third.recipe->open(third.origins, {.findings = "?"}), ContainsSubstring("cannot be read: "));
}

TEST_CASE("what opened data refuse is the config's, by key, or the files', by name") {
  const FieldFolder folder;
  RunConfig pictures = folder.config({"picture_channels=[\"u\"]"});
  CHECK_THROWS_WITH(pictures.recipe->open(pictures.origins, {}), ContainsSubstring("picture_channels names u"));
  RunConfig patches = folder.config();
  vit_of(patches).patch_size = 3;
  CHECK_THROWS_WITH(patches.recipe->open(patches.origins, {}),
                    ContainsSubstring("config key img_size in the data must be a multiple of patch_size (3)"));
  RunConfig heads = folder.config();
  vit_of(heads).num_heads = 3;
  CHECK_THROWS_WITH(heads.recipe->open(heads.origins, {}), ContainsSubstring("num_heads"));
  RunConfig holes = folder.config();
  CHECK_THROWS_WITH(holes.recipe->on_shapes(), ContainsSubstring("are left to the data: set img_size"));
}

TEST_CASE("lead times of validations are steps of the model, whose time step the data must tell") {
  const FieldFolder folder({6, 1, 4, 8}, {0, 6, 12, 18, 24, 30}), timeless;
  const auto refusal = [](const FieldFolder& data, std::vector<std::string> keys) {
    RunConfig config = data.config(std::move(keys));
    return error_of([&] { config.recipe->open(config.origins, {}); });
  };
  CHECK(refusal(folder, {"dt=2", R"(valid_leads=["12h","24h"])"}).empty());
  CHECK(refusal(folder, {"dt=2", R"(valid_leads=["12h","18h"])"}) ==
        "config key valid_leads has 18h, which is 3 steps of " + folder.file("valid") +
            ", but a step of the model is dt = 2 of them");
  CHECK(refusal(folder, {R"(valid_leads=["9h"])"}) ==
        "config key valid_leads has 9h, which is no multiple of the 6 hours from step to step of " +
            folder.file("valid"));
  CHECK(refusal(timeless, {R"(valid_leads=["6h"])"}) ==
        "config key valid_leads has 6h, but the time from step to step of " + timeless.file("valid") + " is unknown");
  CHECK(refusal(folder, {"lead_time=12h", "dt=3"}) ==
        "config key dt in --set is 3, but config key lead_time in --set is 12h, which is 2 steps of " +
            folder.file("train"));
  CHECK(refusal(timeless, {"lead_time=12h"}) == "config key lead_time is 12h, but the time from step to step of " +
                                                    timeless.file("train") + " is unknown: set dt");
  RunConfig config = folder.config({"lead_time=12h"});
  const auto opened = config.recipe->open(config.origins, {});
  CHECK(forecast_of(config).split.dt == 2);
  CHECK(opened->sentences().at(0) == "lead_time 12h: dt 2");
  CHECK(opened->train().samples() == 4);
}

TEST_CASE("pictures of variables: by name and once each, and without names the third or the last") {
  ForecastOptions options;
  const std::vector<std::string> four{"u10", "v10", "t2m", "sp"};
  CHECK(pictured_channels(options, four) == std::vector<std::size_t>{2});
  CHECK(pictured_channels(options, {"u10", "v10"}) == std::vector<std::size_t>{1});
  options.picture_channels = {{"sp", "u10"}};
  CHECK(pictured_channels(options, four) == std::vector<std::size_t>{3, 0});
  options.picture_channels = {{"sp", "u10", "sp"}};
  CHECK_THROWS_WITH(pictured_channels(options, four), "config key picture_channels holds sp twice");
  options.picture_channels = {{"msl"}};
  CHECK_THROWS_WITH(
      pictured_channels(options, four),
      "config key picture_channels names msl, which is not among the 4 variables of the forecast (u10, ...)");
}

TEST_CASE("names that a file gives its channels are believed, c0 to c19 too") {
  const TemporaryFolder folder;
  std::vector<std::string> names;
  for (int c = 0; c < 20; ++c) names.push_back("c" + std::to_string(c));
  const FieldsShape shape{2, 20, 2, 4};
  write_labelled_fields((folder / "2001.h5").string(), shape, {.names = names}, field_values(shape));
  write_fields((folder / "unnamed.h5").string(), shape);
  ForecastRecipe recipe;
  recipe.forecast.img_size = {2, 4};
  CHECK(recipe.channel_names_of(FieldSeries({.paths = {(folder / "2001.h5").string()}})) == names);
  CHECK(recipe.channel_names_of(FieldSeries({.paths = {(folder / "unnamed.h5").string()}})).front() == "u10");
}

}  // namespace
}  // namespace isobar::testing
