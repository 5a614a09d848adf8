// What a forecast's recipe leaves to the data: sizes that are null, names of channels, and the split of one folder.
#include "models/forecast/recipe.h"

#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/batch.h"
#include "data/fields/pairs.h"
#include "data/files/hdf5.h"
#include "data/maps/png.h"
#include "models/forecast/forecaster.h"
#include "models/forecast/maps.h"
#include "models/vit/options.h"
#include "tests/harness/data_files.h"
#include "tests/harness/error_of.h"
#include "tests/harness/forecast_config.h"
#include "tests/harness/key_facts.h"
#include "tests/harness/testing.h"
#include "tests/harness/variable_file.h"

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
                       std::optional<std::size_t> missing_point = {}, const std::vector<double>& latitudes = {}) {
    std::vector<float> values = field_values(shape);
    const auto pixels = static_cast<std::size_t>(shape[2] * shape[3]);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = i % pixels == missing_point ? NAN : std::sin(0.37F * static_cast<float>(i));
    for (const char* part : {"train", "valid"}) {
      std::filesystem::create_directories(folder_.path() / part);
      Labels labels{.names = {"t"}, .hours = hours, .latitudes = latitudes};
      if (!latitudes.empty())
        for (std::int64_t i = 0; i < shape[3]; ++i)
          labels.longitudes.push_back(360 * static_cast<double>(i) / static_cast<double>(shape[3]));
      write_labelled_fields(file(part), shape, labels, values);
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
  RunConfig run = folder.config();
  CHECK(run.recipe->open(run.origins, {.kept = folder.path() + "/run/../own"})->sentences().at(1) ==
        "no statistics in " + folder.path() + ": they are made from the training steps and kept in " + folder.path() +
            "/own");

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
  const FieldFolder hourly({6, 1, 4, 8}, {0, 1, 2, 3, 4, 5}), half_hourly({6, 1, 4, 8}, {0, 0.5, 1, 1.5, 2, 2.5});
  CHECK(refusal(hourly, {"dt=2", R"(valid_leads=["4h"])"}).empty());
  CHECK(refusal(half_hourly, {"dt=2", R"(valid_leads=["90min"])"}) ==
        "config key valid_leads has 90min, which is 3 steps of " + half_hourly.file("valid") +
            ", but a step of the model is dt = 2 of them");
}

std::vector<double> six_hourly(std::int64_t steps) {
  std::vector<double> hours;
  for (std::int64_t step = 0; step < steps; ++step) hours.push_back(6 * static_cast<double>(step));
  return hours;
}

TEST_CASE("scores of lead times begin at up to 64 starts, whatever else a validation reads") {
  const FieldFolder folder({100, 1, 4, 8}, six_hourly(100)), few({10, 1, 4, 8}, six_hourly(10));
  const auto starts = [](const FieldFolder& data, std::vector<std::string> keys) {
    RunConfig config = data.config(std::move(keys));
    const auto opened = config.recipe->open(config.origins, {});
    return opened->also_valid() == nullptr ? -1 : opened->also_valid()->samples();
  };
  CHECK(starts(folder, {}) == -1);
  CHECK(starts(folder, {R"(valid_leads=["6h"])"}) == 64);
  CHECK(starts(folder, {R"(valid_leads=["6h","216h"])"}) == 64);  // of 100 - 36
  CHECK(starts(folder, {R"(valid_leads=["6h","222h"])"}) == 63);
  CHECK(starts(few, {R"(valid_leads=["12h","24h"])"}) == 6);
  CHECK(starts(few, {"sampler=tutorial", R"(valid_leads=["12h","24h"])"}) == 6);  // each once, by any sampler
  CHECK(starts(few, {"dt=2", R"(valid_leads=["24h"])"}) == 6);                    // of four steps too
  RunConfig config = few.config({R"(valid_leads=["12h","24h"])"});
  const auto opened = config.recipe->open(config.origins, {});
  CHECK(opened->valid().samples() == 9);
  const Batch batch = read_batch(*opened->also_valid(), std::vector<std::int64_t>{5});
  const Batch target = read_batch(opened->valid(), std::vector<std::int64_t>{8});  // of steps 8 and 9
  CHECK(tensor_of(batch, at_step("target", 3)).to_vector() == tensor_of(target, "target").to_vector());
  CHECK_FALSE(batch.contains(at_step("target", 4)));
}

TEST_CASE("rows are weighed as config key latitude_weights says, in a run and in its weights") {
  const std::vector<double> latitudes{67.5, 22.5, -22.5, -67.5};
  const FieldFolder folder({6, 1, 4, 8}, {}, {}, latitudes);
  const auto weights = [&](const std::string& rule) {
    RunConfig config = folder.config({"latitude_weights=" + rule});
    const Settings settings = config.recipe->open(config.origins, {})->make_task(config.compute, Device{})->settings();
    return nlohmann::json::parse(settings.at("isobar.grid")).at("row_weights").get<std::vector<double>>();
  };
  constexpr double kDegree = 3.14159265358979323846 / 180;
  // Of cells of 45 degrees: sin 90 - sin 45, and sin 45 - sin 0.
  const double of_pole = std::cos(67.5 * kDegree), of_tropics = std::cos(22.5 * kDegree), half = std::sqrt(0.5);
  const auto ratio = [&](const std::string& rule) { return weights(rule)[0] / weights(rule)[1]; };
  CHECK(ratio("cos") == Approx(of_pole / of_tropics).epsilon(1e-9));
  CHECK(ratio("cells") == Approx((1 - half) / half).epsilon(1e-9));
  CHECK(weights("tutorial") != weights("cos"));
  CHECK(weights("tutorial") != weights("cells"));
}

TEST_CASE("a run goes on with the statistics of its weights, not with those of the data at hand") {
  const FieldFolder folder({6, 1, 4, 8}, six_hourly(6), {}, {67.5, 22.5, -22.5, -67.5});
  RunConfig config = folder.config({R"(computed_channels=["cos_latitude"])", "channel_weights=change"});
  const auto opened = config.recipe->open(config.origins, {});
  Settings settings = opened->make_task(config.compute, Device{})->settings();
  auto grid = nlohmann::json::parse(settings.at("isobar.grid"));
  for (const char* key : {"means", "stds", "extra_means", "extra_stds", "change_stds"}) {
    REQUIRE(grid.at(key).size() == 1);
    grid[key] = nlohmann::json::array({grid.at(key)[0].get<double>() + 0.5});
  }
  settings["isobar.grid"] = grid.dump();
  const GivenWeights weights{"w.safetensors", settings};
  const auto task = opened->make_trained_task(weights, config.compute, Device{}, Parallel::alone());
  CHECK(nlohmann::json::parse(task->settings().at("isobar.grid")) == grid);
}

TEST_CASE("the maps of a validation say how far ahead they are, and of when") {
  const auto is_drawn = [](const FieldFolder& data, const std::vector<std::string>& keys, const std::string& ahead,
                           const std::string& when) {
    RunConfig config = data.config(keys);
    const auto opened = config.recipe->open(config.origins, {});
    const std::unique_ptr<Task> task = opened->make_task(config.compute, Device{});
    const auto& forecaster = dynamic_cast<const Forecaster&>(*task);
    const Batch batch = read_batch(opened->valid(), std::vector<std::int64_t>{0});
    const std::vector<Picture> drawn = task->pictures(batch, 7);
    REQUIRE(drawn.size() == 1);
    const Tensor read = tensor_of(batch, "target");
    std::vector<float> target(read.data_as<float>(), read.data_as<float>() + read.numel());
    forecaster.input().undo_transforms(target, 1);
    const std::vector<float> forecast =
        forecaster.input().to_physical(forecaster.forecast(forecaster.input().input_of(batch)));
    FieldsInfo shown = forecaster.info();
    shown.units.clear();  // of t, which has none, not of its logarithm
    const Picture expected = draw_forecast(target, forecast, shown, 0, 4, 8, {ahead, when, 7});
    CHECK(drawn[0].file == "map_t");
    INFO(ahead << ", " << when << ", " << keys.size());
    CHECK((encode_png(drawn[0].image) == encode_png(expected.image)));
  };
  const FieldFolder six({6, 1, 4, 8}, six_hourly(6)), timeless;
  is_drawn(six, {}, "+6 h", "2001-01-01 06:00");
  is_drawn(six, {"dt=3"}, "+18 h", "2001-01-01 18:00");
  is_drawn(timeless, {}, "+1 step", "");
  is_drawn(timeless, {"dt=2"}, "+2 steps", "");
  const FieldFolder year({365, 1, 4, 8});  // of days, by the name and the number of steps
  is_drawn(year, {}, "+24 h", "");
  is_drawn(year, {"dt=2"}, "+48 h", "");
  const FieldFolder minutes({6, 1, 4, 8}, {0, 1.0 / 3, 2.0 / 3, 1, 4.0 / 3, 5.0 / 3});
  is_drawn(minutes, {}, "+0.3 h", "2001-01-01 00:20");
  is_drawn(six, {R"(transforms={"t":2})"}, "+6 h", "2001-01-01 06:00");  // of t itself, not of its logarithm
}

TEST_CASE("channels by role: the sizes that follow are told, and what is kept is in the order of the roles") {
  const TemporaryFolder folder;
  const FieldsShape shape{6, 2, 4, 8};
  std::vector<float> values = field_values(shape);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = (i / 32 % 2 == 0 ? 1.0F : 3.0F) * std::sin(0.37F * static_cast<float>(i));
  for (const char* part : {"train", "valid"}) {
    std::filesystem::create_directories(folder / part);
    write_labelled_fields((folder / (std::string(part) + "/2001.h5")).string(), shape,
                          {.names = {"f", "t"}, .hours = six_hourly(6)}, values);
  }
  const auto opened = [&](const std::string& role) {
    std::vector<std::string> keys{"img_size=null", "patch_size=4",      "embed_dim=16", "num_heads=2",
                                  "depth=1",       R"(channels=["t"])", role,           "channel_weights=change"};
    for (const auto& [key, at] : ForecastRecipe().paths_in(folder.path())) keys.push_back(key + "=" + at.string());
    RunConfig config = read_config(entries_of(keys));
    const auto data = config.recipe->open(config.origins, {});
    const std::string grid = data->make_task(config.compute, Device{})->settings().at("isobar.grid");
    return std::pair(data->sentences().at(0), nlohmann::json::parse(grid));
  };
  const auto [forced, of_forced] = opened(R"(forcing_channels=["f"])");
  CHECK(forced == "from the roles of the channels: n_in_channels 2, n_out_channels 1");
  CHECK(of_forced.at("channels") == nlohmann::json{"t", "f"});
  CHECK(of_forced.at("stds")[0].get<double>() > 2.5 * of_forced.at("stds")[1].get<double>());
  CHECK(of_forced.at("change_stds").size() == 1);
  const auto [diagnosed, of_diagnosed] = opened(R"(diagnostic_channels=["f"])");
  CHECK(diagnosed == "from the roles of the channels: n_in_channels 1, n_out_channels 2");
  CHECK(of_diagnosed.at("channels") == nlohmann::json{"t", "f"});
  CHECK(of_diagnosed.at("change_stds").size() == 2);
}

TEST_CASE("channels by role: what contradicts itself is refused, by the key that does") {
  const auto refusal = [](std::vector<std::string> keys) {
    keys.insert(keys.begin(), {"img_size=[4,8]", "patch_size=4", "n_in_channels=2", "n_out_channels=2"});
    return error_of([&] { checked_config(entries_of(keys)); });
  };
  const auto check = [&](const std::vector<std::string>& keys, const std::string& sentence) {
    CHECK(refusal(keys) == "config key " + sentence);
  };
  const std::string one = R"(channels=["t2m"])";
  check({one, R"(forcing_channels=["t2m"])"}, "forcing_channels in --set holds t2m, which channels holds too");
  check({one, R"(diagnostic_channels=["2m_temperature"])"},
        "diagnostic_channels in --set holds 2m_temperature, which channels holds too as t2m");
  check({R"(channels=["t2m","u10","t2m"])"}, "channels in --set holds t2m, which channels holds too");
  check({R"(channels=["cos_zenith"])", R"(computed_channels=["cos_zenith"])"},
        "computed_channels in --set holds cos_zenith, which channels holds too");
  check({R"(channels=["lsm"])", R"(constant_channels={"lsm":"f.nc:lsm"})"},
        "constant_channels in --set holds lsm, which channels holds too");
  check({"channels=[]"}, "channels in --set is empty");
  check({R"(channels=["t2m",""])"}, "channels in --set holds an empty name");
  for (const std::string key : {"forcing_channels", "diagnostic_channels"})
    check({key + R"(=["a"])"}, key + " in --set needs config key channels");
  check({one, R"(constant_channels={"z":"f.nc"})"},
        "constant_channels in --set gives z as 'f.nc'; expected FILE:VARIABLE");
  check({R"(missing={"t2m":"men"})"}, "missing in --set gives t2m as men; expected a number, mean, fill or refuse");
  CHECK_THAT(refusal({one, R"(computed_channels=["cos_zenit"])"}),
             ContainsSubstring("computed_channels in --set holds cos_zenit, which cannot be computed; the nearest is "
                               "cos_zenith, of cos_zenith, "));
  const auto named = [&](const std::string& names) {
    RunConfig config = read_config(
        entries_of({one, R"(forcing_channels=["a"])", R"(diagnostic_channels=["b"])", "channel_names=" + names}));
    forecast_of(config).forecast.fill_from_roles(config.origins);
    return forecast_of(config).forecast.channel_names;
  };
  CHECK(named(R"(["b","a","t2m"])") == std::vector<std::string>{"t2m", "b", "a"});
  for (const char* others : {R"(["t2m","b"])", R"(["t2m","b","c"])", R"(["t2m","b","a","c"])"})
    CHECK_THROWS_WITH(named(others),
                      "config key channel_names in --set names other variables than channels, diagnostic_channels and "
                      "forcing_channels");
}

TEST_CASE("each set of a run has the rows, the units and the values of the training steps, and no steps of another") {
  const std::vector<double> rows{67.5, 22.5, -22.5, -67.5}, others{60, 20, -20, -60};
  const FieldsShape shape{6, 1, 4, 8};
  const FieldFolder folder(shape, six_hourly(6), {}, rows);
  std::filesystem::create_directories(folder.path() + "/test");
  const auto write = [&](const std::string& part, const Labels& labels, float offset = 0) {
    std::vector<float> values = field_values(shape);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = offset + std::sin(0.37F * static_cast<float>(i));
    std::filesystem::remove(folder.file(part));
    write_labelled_fields(folder.file(part), shape, labels, values);
  };
  const auto refusal = [&](const std::vector<std::string>& more) {
    std::vector<std::string> keys{"test_data_path=" + folder.path() + "/test"};
    keys.insert(keys.end(), more.begin(), more.end());
    RunConfig config = folder.config(keys);
    return error_of([&] { config.recipe->open(config.origins, {}); });
  };
  const Labels plain{.names = {"t"}, .units = {"K"}, .hours = six_hourly(6), .latitudes = rows};
  Labels north = plain, celsius = plain;
  north.latitudes = others;
  celsius.units = {"degC"};
  for (const char* part : {"train", "valid", "test"}) write(part, plain);
  CHECK(refusal({}).empty());
  for (const std::string part : {"valid", "test"}) {
    INFO(part);
    write(part, north);
    CHECK(refusal({}) == folder.file(part) + ": its latitudes are not those of " + folder.file("train"));
    write(part, celsius);
    CHECK_THAT(refusal({}), ContainsSubstring(folder.file(part)) && ContainsSubstring("degC"));
    write(part, plain, 100);
    CHECK_THAT(refusal({}), ContainsSubstring(folder.file(part) + ": step 0, channel t lies "));
    write(part, plain);
  }

  const auto shared = [&](const std::string& set) { return set + "_data_path=" + folder.path() + "/train"; };
  CHECK_THAT(refusal({shared("test"), "train_range=[0,4]", "test_range=[2,6]"}),
             ContainsSubstring("train_range and test_range share steps 2 to 3 of ") &&
                 ContainsSubstring(": the test would look at what was trained on"));
  write("train", plain);
  CHECK_THAT(refusal({"test_data_path=" + folder.path() + "/valid", "valid_range=[0,3]", "test_range=[2,6]"}),
             ContainsSubstring("valid_range and test_range share steps 2 to 2 of ") &&
                 ContainsSubstring(": the test would look at what was validated on"));
  CHECK(refusal({shared("test"), "allow_overlap=true"}).empty());
}

TEST_CASE("a set of a run that is opened alone is told by the key of its range, and judged by its weights") {
  const std::vector<double> rows{67.5, 22.5, -22.5, -67.5};
  const FieldFolder folder({6, 1, 4, 8}, six_hourly(6), {}, rows);
  RunConfig run = folder.config();
  const auto data = run.recipe->open(run.origins, {});
  data->keep(folder.path());
  const GivenWeights weights{"w.safetensors", data->make_task(run.compute, Device{})->settings()};
  const auto refusal = [&](DataSplit split, std::vector<std::string> keys, const GivenWeights& by) {
    keys.insert(keys.end(), {"img_size=[4,8]", "n_out_channels=1", "time_features=true", "pad_grid=false"});
    RunConfig config = folder.config(keys);
    return error_of([&] { config.recipe->open_split(split, by); });
  };
  const std::string test = "test_data_path=" + folder.path() + "/valid";
  for (const GivenWeights& by : {weights, GivenWeights{"other", {}}}) {
    INFO(by.file);
    CHECK(refusal(DataSplit::train, {}, by).empty());
    CHECK(refusal(DataSplit::train, {"train_range=[2,7]"}, by) ==
          "train_range [2, 7) goes beyond the 6 steps of " + folder.path() + "/train");
    CHECK(refusal(DataSplit::valid, {"valid_range=[0,8]"}, by) ==
          "valid_range [0, 8) goes beyond the 6 steps of " + folder.path() + "/valid");
    CHECK(refusal(DataSplit::test, {test, R"(test_range=["2001-01-01","2001-02-01"])"}, by) ==
          "test_range [2001-01-01, 2001-02-01] goes beyond the data of " + folder.path() +
              "/valid, which are from 2001-01-01T00:00 to 2001-01-02T06:00");
    CHECK(refusal(DataSplit::test, {}, by) == "there is no test set: name one by the config key test_data_path");
  }
  CHECK(refusal(DataSplit::valid, {"dt=2"}, weights) ==
        folder.file("valid") +
            ": its steps are 6 hours apart, so that dt = 2 is 12 hours, but w.safetensors forecasts "
            "6 hours ahead");
}

TEST_CASE(
    "a set that is opened alone has the rows of its own latitudes by the run's rule, and changes where weights say "
    "none") {
  const std::vector<double> rows{67.5, 22.5, -22.5, -67.5};
  const FieldFolder folder({6, 1, 4, 8}, six_hourly(6), {}, rows),
      tropics({6, 1, 4, 8}, six_hourly(6), {}, {15, 5, -5, -15});
  const std::vector<std::string> keys{"latitude_weights=cells", "channel_weights=change", "loss=weighted_mse"};
  RunConfig run = folder.config(keys);
  const auto data = run.recipe->open(run.origins, {});
  data->keep(folder.path());
  const GivenWeights weights{"w.safetensors", data->make_task(run.compute, Device{})->settings()};
  const auto grid_of = [&](const std::vector<std::string>& more, const GivenWeights& by) {
    std::vector<std::string> all = keys;
    all.insert(all.end(), {"img_size=[4,8]", "n_out_channels=1"});
    all.insert(all.end(), more.begin(), more.end());
    RunConfig config = folder.config(all);
    const auto split = config.recipe->open_split(DataSplit::valid, by);
    return nlohmann::json::parse(split->make_task(config.compute, Device{})->settings().at("isobar.grid"));
  };
  const nlohmann::json trained = nlohmann::json::parse(weights.settings.at("isobar.grid")), same = grid_of({}, weights);
  CHECK(same == trained);
  const nlohmann::json there = grid_of({"valid_data_path=" + tropics.path() + "/valid"}, weights);
  CHECK(there.at("latitudes") == nlohmann::json{15, 5, -5, -15});
  CHECK(there.at("means") == trained.at("means"));
  constexpr double kDegree = 3.14159265358979323846 / 180;
  // Borders at 20, 10 and 0 degrees.
  const double outer = std::sin(20 * kDegree) - std::sin(10 * kDegree), inner = std::sin(10 * kDegree);
  CHECK(there.at("row_weights")[0].get<double>() / there.at("row_weights")[1].get<double>() ==
        Approx(outer / inner).epsilon(1e-9));
  // Weights that say nothing of their data have the statistics beside it, those of changes too.
  CHECK(grid_of({}, {"other", {}}).at("change_stds") == trained.at("change_stds"));
}

TEST_CASE("of files without times a run is told, the training files first, and what time features do then") {
  const auto sentence = [](const FieldFolder& data, const std::string& keys) {
    RunConfig config = data.config({keys});
    return config.recipe->open(config.origins, {})->sentences().back();
  };
  const FieldFolder none, half({6, 1, 4, 8}, six_hourly(6));
  std::filesystem::remove(half.file("valid"));
  std::filesystem::copy(none.file("valid"), half.file("valid"));
  const std::string why = " has no 'time', and its name and its 6 steps are not those of a year: ";
  CHECK(sentence(none, "time_features=false") == none.file("train") + why + "no hours are known");
  CHECK(sentence(half, "time_features=false") == half.file("valid") + why + "no hours are known");
  CHECK(sentence(none, "time_features=true") ==
        none.file("train") + why + "for time_features the steps are spread evenly over the year in the name");
}

TEST_CASE("of each set a run is told what is preliminary in it") {
  const TemporaryFolder folder;
  for (const std::string part : {"train", "valid", "test"}) {
    std::filesystem::create_directories(folder / part);
    VariableFile out((folder / (part + "/a.nc")).string());
    out.axis("time", six_hourly(6), "hours since 2001-01-01");
    out.axis("expver", {1, 5}, "");
    out.axis("latitude", {67.5, 22.5, -22.5, -67.5}, "degrees_north");
    out.axis("longitude", {0, 45, 90, 135, 180, 225, 270, 315}, "degrees_east");
    const int final = part == "train" ? 4 : part == "valid" ? 5 : 3;  // so many steps
    out.variable("sp", {"time", "expver", "latitude", "longitude"}, [&](std::map<std::string, int>& at) {
      const bool is_there = (at["time"] < final) == (at["expver"] == 0);
      return is_there ? 1e5 + 100 * std::sin(at["time"] + at["latitude"] * at["longitude"]) : std::nan("");
    });
    out.file.close();
  }
  std::vector<std::string> keys{
      "img_size=null", "patch_size=4", "n_in_channels=1", "n_out_channels=1",
      "embed_dim=16",  "num_heads=2",  "depth=1",         "test_data_path=" + (folder / "test").string()};
  for (const auto& [key, at] : ForecastRecipe().paths_in(folder.path())) keys.push_back(key + "=" + at.string());
  RunConfig config = read_config(entries_of(keys));
  const auto opened = config.recipe->open(config.origins, {});
  CHECK(opened->notes() ==
        std::vector<std::string>{"training: 2 of 6 steps are preliminary (expver 5), the first of 2001-01-02T00:00",
                                 "validation: 1 of 6 steps are preliminary (expver 5), the first of 2001-01-02T06:00",
                                 "test: 3 of 6 steps are preliminary (expver 5), the first of 2001-01-01T18:00"});
  // A process that goes by another's findings leaves the telling to it.
  RunConfig other = read_config(entries_of(keys));
  CHECK(other.recipe->open(other.origins, {.findings = opened->findings()})->notes().empty());
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

TEST_CASE("forecast options: each key's bounds and names, and which may change when a run goes on") {
  ForecastOptions options;
  const std::string extent = "at most " + std::to_string(kLargestExtent);
  CHECK(key_facts(options.keys()) ==
        std::vector<std::string>{"img_size; at least 0, " + extent + "; also: imagesize, grid",
                                 "pad_grid",
                                 "n_in_channels; at least 1, " + extent + "; also: inchannels, inchans",
                                 "n_out_channels; at least 1; also: outchannels, outchans",
                                 "predict_change",
                                 "time_features",
                                 "channel_names; also: variables",
                                 "channels",
                                 "forcing_channels",
                                 "diagnostic_channels",
                                 "computed_channels",
                                 "constant_channels; path",
                                 "history; at least 0, at most 64",
                                 "missing",
                                 "missing_masks",
                                 "accumulate",
                                 "transforms",
                                 "loss; also: criterion, lossfn",
                                 "latitude_weights",
                                 "channel_weights; at least 0; also: variableweights, lossweights",
                                 "picture_channels; free on resume; also: images, plots, visualize"});
  CHECK(options.img_size == std::array<std::int64_t, 2>{360, 720});
  CHECK(options.n_in_channels == 20);
  CHECK(options.n_out_channels == 20);
  CHECK(options.pad_grid == false);
  CHECK(options.time_features == false);
  CHECK_FALSE(options.predict_change);
  CHECK(options.history == 0);
  CHECK(options.loss == LossKind::relative_l2);
  CHECK(options.latitude_weights == LatitudeWeights::cos);
}

TEST_CASE("forecast options: what names no channel, or no number, is refused by the key that does") {
  const auto refusal = [](std::vector<std::string> keys) {
    keys.insert(keys.begin(), {"img_size=[4,8]", "patch_size=4", "n_in_channels=2", "n_out_channels=2",
                               R"(channel_names=["sst","tp"])"});
    return error_of([&] { checked_config(entries_of(keys)); });
  };
  const auto check = [&](const std::vector<std::string>& keys, const std::string& sentence) {
    CHECK(refusal(keys) == (sentence.empty() ? "" : "config key " + sentence));
  };
  check({}, "");
  check({R"(missing={"sst":"mean"})", R"(missing_masks=["sst"])"}, "");
  for (const char* word : {"mean", "fill", "refuse"}) check({std::string(R"(missing={"sst":")") + word + R"("})"}, "");
  check({R"(missing={"sst":271.5})"}, "");
  check({R"(missing={"ice":0})"}, "missing in --set names ice, which is no channel of the data");
  check({R"(accumulate=["sst","ice"])"}, "accumulate in --set names ice, which is no channel of the data");
  check({R"(transforms={"ice":1})"}, "transforms in --set names ice, which is no channel of the data");
  check({R"(transforms={"tp":0})"}, "transforms in --set gives tp no scale above 0: the s of ln(1 + x / s)");
  check({R"(transforms={"tp":-1})"}, "transforms in --set gives tp no scale above 0: the s of ln(1 + x / s)");
  check({R"(transforms={"tp":"mean"})"}, "transforms in --set gives tp no scale above 0: the s of ln(1 + x / s)");
  check({R"(transforms={"tp":0.001})"}, "");
  check({R"(missing={"sst":"mean"})", R"(missing_masks=["ice"])"},
        "missing_masks in --set names ice, which is no channel of the data");
  for (const char* word : {"fill", "refuse"})
    check({std::string(R"(missing={"sst":")") + word + R"("})", R"(missing_masks=["sst"])"},
          "missing_masks in --set names sst, whose missing points config key missing refuses");
  check({R"(missing_masks=["tp"])"},
        "missing_masks in --set names tp, whose missing points config key missing refuses");
  check({R"(channel_names=["sst"])"}, "channel_names in --set must name 2 channels (n_in_channels), not 1");
  check({R"(channel_names=["sst","sst"])"}, "channel_names in --set holds sst twice");
  check({R"(channel_names=["sst",""])"}, "channel_names in --set holds an empty name");
  check({"n_out_channels=3"}, "n_out_channels in --set must be at most n_in_channels (2), not 3");
  check({"history=65"}, "history in --set must be at most 64, not 65");
  check({"channel_weights=[1,2,3]"}, "channel_weights in --set must hold 2 weights (n_out_channels), not 3");
  check({R"(channel_weights={"ice":1})"},
        "channel_weights in --set names ice, which is not forecast; the nearest is sst");
  for (const char* key : {"img_size", "n_in_channels", "n_out_channels", "time_features", "pad_grid"})
    check({std::string(key) + "=null"}, std::string(key) + " in --set is null where no data can fill it");
}

}  // namespace
}  // namespace isobar::testing
