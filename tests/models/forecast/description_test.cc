// The description of fields beside weights: settings_of writes what fields_info_of reads; constants are carried.
#include "models/forecast/description.h"

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "engine/files/base64.h"
#include "models/forecast/fit.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

constexpr const char* kConstants = "isobar.constants";

ForecastOptions options_of_two() {
  ForecastOptions options;
  options.img_size = {2, 3};
  options.n_in_channels = options.n_out_channels = 2;
  options.channels = {{"a", "b"}};
  options.channel_names = {{"a", "b"}};
  options.computed_channels = {{"cos_zenith"}};
  options.constant_channels = TextMap{{"lsm", "f.nc:lsm"}, {"z", "f.nc:z"}};
  return options;
}

FieldsInfo info_of_two() {
  FieldsInfo info;
  info.channel_names = {"a", "b"};
  info.statistics = {.means = {1, 2}, .stds = {3, 4}};
  info.row_weights = {1, 1};
  info.extra_means = {0.25, 0.5, 60};
  info.extra_stds = {0.1, 0.2, 30};
  info.extra_names = {"cos_zenith", "lsm", "z"};
  info.constants = {{.name = "lsm", .values = {0, 1, 0.5F, 1, -0.0F, 1}, .units = "1"},
                    {.name = "z", .values = {1e-42F, 3e38F, 2, 3, 4, 5}}};
  return info;
}

FieldsInfo read_back(const Settings& settings) {
  return *fields_info_of({"w.safetensors", settings}, options_of_two(), 1);
}

// The settings with another text for the values of z.
Settings with_values(const std::string& text) {
  Settings settings = settings_of(info_of_two(), 1);
  auto json = nlohmann::json::parse(settings.at(kConstants));
  json["z"]["values"] = text;
  settings[kConstants] = json.dump();
  return settings;
}

}  // namespace

TEST_CASE("description: constants lie beside the weights, bit for bit, with their units and moments") {
  const FieldsInfo wanted = info_of_two(), found = read_back(settings_of(wanted, 1));
  CHECK(found.extra_names == wanted.extra_names);
  REQUIRE(found.constants.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    const ConstantField &read = found.constants[i], &written = wanted.constants[i];
    CHECK(read.name == written.name);
    CHECK(read.units == written.units);
    CHECK(to_base64(std::as_bytes(std::span(read.values))) == to_base64(std::as_bytes(std::span(written.values))));
    CHECK(read.mean == wanted.extra_means[1 + i]);
    CHECK(read.deviation == wanted.extra_stds[1 + i]);
  }
}

TEST_CASE("description: all that the data determine is read back, and the lead time is divided by dt") {
  FieldsInfo wanted = info_of_two();
  wanted.row_weights = {0.75, 1.25};
  wanted.latitudes = {50, 49.5};
  wanted.longitudes = {-1, 0, 1};
  wanted.units = {"K", ""};
  wanted.step_hours = 6;
  wanted.never_there = {1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1};
  wanted.change_stds = {0.5, 0.25};
  const Settings settings = settings_of(wanted, 3);
  CHECK(settings.at("isobar.lead_hours") == "18.0");
  CHECK(settings.at("isobar.never_there") == "[0,1,2,3,4,2]");
  const FieldsInfo found = *fields_info_of({"w.safetensors", settings}, options_of_two(), 3);
  CHECK(found.channel_names == wanted.channel_names);
  CHECK(found.statistics.means == wanted.statistics.means);
  CHECK(found.statistics.stds == wanted.statistics.stds);
  CHECK(found.row_weights == wanted.row_weights);
  CHECK(found.latitudes == wanted.latitudes);
  CHECK(found.longitudes == wanted.longitudes);
  CHECK(found.units == wanted.units);
  CHECK(found.step_hours == 6);
  CHECK(found.extra_means == wanted.extra_means);
  CHECK(found.extra_stds == wanted.extra_stds);
  CHECK(found.never_there == wanted.never_there);
  CHECK(found.change_stds == wanted.change_stds);
  wanted.never_there.front() = 0;
  CHECK(settings_of(wanted, 3).at("isobar.never_there") == "[3,3,4,2]");
  CHECK_FALSE(fields_info_of({"w.safetensors", {}}, options_of_two(), 1));
  const Settings bare = settings_of(info_of_two(), 3);  // neither units, nor a time step, nor missing points
  for (const char* key : {"isobar.units", "isobar.lead_hours", "isobar.never_there"}) CHECK_FALSE(bare.contains(key));
}

TEST_CASE("description: what does not fit the config, or is no description, is refused by file and part") {
  const auto refused = [](const char* part, const char* entry, const nlohmann::json& value, const char* why) {
    Settings settings = settings_of(info_of_two(), 1);
    if (entry == nullptr) {
      settings[part] = value.dump();
    } else {
      auto json = nlohmann::json::parse(settings.at(part));
      json[entry] = value;
      settings[part] = json.dump();
    }
    CHECK_THROWS_WITH(read_back(settings), std::string("w.safetensors: ") + why);
  };
  const auto of_grid = [&](const char* entry, const nlohmann::json& value, const char* why) {
    refused("isobar.grid", entry, value, why);
  };
  of_grid("channels", {"a"}, "channels are 1 and not 2, as n_in_channels");
  of_grid("channels", {"a", "a"}, "channels holds a name twice");
  of_grid("channels", {"a", ""}, "channels holds an empty name");
  of_grid("means", {1, 2, 3}, "means are 3 and not 2, as n_in_channels");
  of_grid("stds", {3}, "stds are 1 and not 2, as n_in_channels");
  of_grid("stds", {3, 0}, "stds are not all above 0");
  for (const char* entry : {"means", "stds", "row_weights", "latitudes", "extra_means", "extra_stds", "change_stds"})
    of_grid(entry, {1, nullptr, 1}, "the description of the model in its metadata is damaged");
  of_grid("extra_stds", {1, -1, 1}, "stds are not all above 0");
  of_grid("extra_means", {1, 2}, "extra_means are 2 and not 3, as computed_channels and constant_channels");
  of_grid("extra_stds", {1, 2, 3, 4}, "extra_stds are 4 and not 3, as computed_channels and constant_channels");
  of_grid("extra_names", {"z"}, "extra_names are 1 and not 3, as computed_channels and constant_channels");
  of_grid("change_stds", {1}, "change_stds are 1 and not 2, as n_out_channels");
  of_grid("change_stds", {1, 0}, "stds are not all above 0");
  of_grid("row_weights", {1, 1, 1}, "row_weights are 3 and not 2, as the rows of img_size");
  of_grid("latitudes", {1}, "latitudes are 1 and not 2, as the rows of img_size");
  of_grid("longitudes", {1, 2}, "longitudes are 2 and not 3, as the columns of img_size");
  refused("isobar.units", nullptr, {"K"}, "isobar.units has 1 entries for 2 channels");
  refused("isobar.never_there", nullptr, {5, 3}, "isobar.never_there has 8 points for 12");
  refused("isobar.never_there", nullptr, {5, 8}, "isobar.never_there has more than 12 points");
  refused("isobar.never_there", nullptr, {5, -1, 8}, "isobar.never_there has more than 12 points");
  refused("isobar.lead_hours", nullptr, 0, "isobar.lead_hours is 0");
  refused("isobar.lead_hours", nullptr, "x", "the description of the model in its metadata is damaged");
}

TEST_CASE("description: weights without constants are those of older versions, and damaged ones are refused by name") {
  Settings older = settings_of(info_of_two(), 1);
  older.erase(kConstants);
  auto grid = nlohmann::json::parse(older.at("isobar.grid"));
  grid.erase("extra_names");
  older["isobar.grid"] = grid.dump();
  CHECK(read_back(older).constants.empty());
  CHECK(read_back(older).extra_names.empty());
  check_planes(options_of_two(), read_back(older), "w");

  CHECK_THROWS_WITH(read_back(with_values("AAAA")), "w.safetensors: isobar.constants: z has 3 bytes for 6 points");
  CHECK_THROWS_WITH(read_back(with_values("AAA")), "w.safetensors: isobar.constants: the values of z are damaged");
  CHECK_THROWS_WITH(read_back(with_values("AADAfwAAwH8AAMB/AADAfwAAwH8AAMB/")),
                    "w.safetensors: isobar.constants: the values of z are not all finite");
  Settings settings = settings_of(info_of_two(), 1);
  settings[kConstants] = "[1]";
  CHECK_THROWS_WITH(read_back(settings), ContainsSubstring("the description of the model in its metadata is damaged"));
}

TEST_CASE("description: constants that are too large for the header of a file are not carried") {
  FieldsInfo info = info_of_two();
  CHECK(are_carried(info.constants));
  info.constants[0].values.assign(static_cast<std::size_t>(kMostCarried - 5), 1.0F);
  CHECK_FALSE(are_carried(info.constants));
  CHECK_FALSE(settings_of(info, 1).contains(kConstants));
  info.constants[0].values.pop_back();
  CHECK(are_carried(info.constants));
}

TEST_CASE("description: roles and planes of a config must be those of the weights, in any order within a role") {
  const FieldsInfo trained = info_of_two();
  ForecastOptions options = options_of_two();
  options.channels = {{"b", "a"}};
  check_planes(options, trained, "w");
  options.channels = {{"a", "c"}};
  CHECK_THROWS_WITH(check_planes(options, trained, "w"),
                    "config key channels names a, c, but w was trained with a, b in this role");
  options.channels = {{"a"}};
  options.diagnostic_channels = {{"b"}};
  options.n_in_channels = 1;
  check_planes(options, trained, "w");
  options.diagnostic_channels = {{"c"}};
  CHECK_THROWS_WITH(check_planes(options, trained, "w"),
                    "config key diagnostic_channels names c, but w was trained with b in this role");
  options.diagnostic_channels.reset();
  options.channels = {{"a"}};
  options.forcing_channels = {{"b"}};
  options.n_in_channels = 2;
  options.n_out_channels = 1;
  CHECK(trained.channel_names.size() == 2);
  check_planes(options, trained, "w");  // the network's shape differs, which reading the weights refuses
  options.forcing_channels = {{"c"}};
  CHECK_THROWS_WITH(check_planes(options, trained, "w"),
                    "config key forcing_channels names c, but w was trained with b in this role");
  options.n_in_channels = 3;
  CHECK_THROWS_WITH(check_planes(options, trained, "w"), "w was trained with 2 channels, but the config has 3");
  options = options_of_two();
  options.constant_channels = TextMap{{"z", "f.nc:z"}};
  CHECK_THROWS_WITH(check_planes(options, trained, "w"),
                    "w was trained with the planes cos_zenith, lsm, z, but config keys computed_channels and "
                    "constant_channels name cos_zenith, z");
}

}  // namespace isobar::testing
