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
  options.forcing_channels = {{"b"}};
  options.n_out_channels = 1;
  CHECK(trained.channel_names.size() == 2);
  check_planes(options, trained, "w");  // the network's shape differs, which reading the weights refuses
  options.n_in_channels = 3;
  CHECK_THROWS_WITH(check_planes(options, trained, "w"), "w was trained with 2 channels, but the config has 3");
  options = options_of_two();
  options.constant_channels = TextMap{{"z", "f.nc:z"}};
  CHECK_THROWS_WITH(check_planes(options, trained, "w"),
                    "w was trained with the planes cos_zenith, lsm, z, but config keys computed_channels and "
                    "constant_channels name cos_zenith, z");
}

}  // namespace isobar::testing
