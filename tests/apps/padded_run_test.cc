// Whole runs on a grid with an odd side, which no patch divides: with pad_grid everything outside the network has the
// data's grid.
#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "data/files/hdf5.h"
#include "engine/files/reader.h"
#include "tests/harness/isobar_command.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPaddedSteps = 12, kPaddedVariables = 2, kPaddedRows = 21, kPaddedColumns = 20;

// Waves that travel east round a globe.
void write_globe(const fs::path& file) {
  std::vector<float> values;
  std::vector<double> latitudes, longitudes;
  for (std::int64_t y = 0; y < kPaddedRows; ++y) latitudes.push_back(90 - 9 * static_cast<double>(y));
  for (std::int64_t x = 0; x < kPaddedColumns; ++x) longitudes.push_back(18 * static_cast<double>(x));
  for (std::int64_t t = 0; t < kPaddedSteps; ++t)
    for (std::int64_t c = 0; c < kPaddedVariables; ++c)
      for (const double latitude : latitudes)
        for (const double longitude : longitudes)
          values.push_back(static_cast<float>(std::sin((longitude - 18.0 * static_cast<double>(t)) * M_PI / 180) *
                                                  std::cos(latitude * M_PI / 180) +
                                              static_cast<double>(c)));
  fs::create_directories(file.parent_path());
  hdf5::File h5 = hdf5::File::create(file.string());
  h5.write("fields", std::array{kPaddedSteps, kPaddedVariables, kPaddedRows, kPaddedColumns},
           std::span<const float>(values));
  h5.write("channel", std::vector<std::string>{"a", "b"});
  h5.write("lat", std::array{kPaddedRows}, std::span<const double>(latitudes));
  h5.write("lon", std::array{kPaddedColumns}, std::span<const double>(longitudes));
  h5.close();
}

class Globe {
 public:
  Globe() { write_globe(folder_ / "data/2001.h5"); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  Outcome run(const std::string& arguments) const {
    const Outcome outcome = isobar_command(folder_.path(), arguments + " --device cpu --threads 1");
    CHECK(outcome.err == "");
    REQUIRE(outcome.status == 0);
    return outcome;
  }
  Outcome train(const std::string& name, const std::string& more) const {
    return run("train --config tiny --data " + path("data") + " --run-dir " + path(name) +
               " --set embed_dim=16 --set depth=1 --set num_heads=2 --set num_iters=6 --set global_batch_size=2"
               " --set validate_every=3 --set checkpoint_every=3 " +
               more);
  }

 private:
  TemporaryFolder folder_;
};

nlohmann::json config_of(const Globe& globe, const std::string& run) {
  return nlohmann::json::parse(read_file(globe.path(run + "/config.json")));
}

}  // namespace

TEST_CASE("a run pads a grid of its data by itself, and its forecast has the data's grid") {
  const Globe globe;
  const Outcome trained = globe.train("run", "");
  CHECK_THAT(trained.out, ContainsSubstring("patch_size 2, pad_grid true"));
  CHECK_THAT(trained.out, ContainsSubstring("pad_grid: the network sees 22 x 20 points instead of 21 x 20; added rows "
                                            "repeat the last one\n"));
  const nlohmann::json config = config_of(globe, "run");
  CHECK(config.at("img_size") == nlohmann::json{kPaddedRows, kPaddedColumns});
  CHECK(config.at("patch_size") == 2);
  CHECK(config.at("pad_grid") == true);

  globe.run("forecast --weights " + globe.path("run") + " --data " + globe.path("data") +
            " --start 0 --steps 3 --out " + globe.path("forecast.h5") + " --scores " + globe.path("scores.json"));
  const hdf5::File forecast = hdf5::File::open(globe.path("forecast.h5"));
  CHECK(forecast.info("fields").shape == std::vector<std::int64_t>{3, kPaddedVariables, kPaddedRows, kPaddedColumns});
  CHECK(nlohmann::json::parse(read_file(globe.path("scores.json"))).at("rmse").at("a").size() == 3);
}

TEST_CASE("a run that pads both sides comes out the same in bands") {
  const Globe globe;
  const std::string pads = "--set patch_size=8 --set pad_grid=true ";
  globe.train("whole", pads);
  globe.train("bands", pads + "--ranks 2 --context-parallel 2");
  const auto loss = [&](const std::string& run) {
    return nlohmann::json::parse(read_file(globe.path(run + "/summary.json"))).at("val_loss").get<double>();
  };
  CHECK(std::abs(loss("bands") / loss("whole") - 1) <= 1e-4);
}

}  // namespace isobar::testing
