// Fine-tuning by the command: runs that begin with what fits of other weights, frozen parts, weights of channels.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "data/files/hdf5.h"
#include "engine/files/reader.h"
#include "engine/files/safetensors.h"
#include "tests/harness/isobar_command.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

namespace fs = std::filesystem;

void check_done(const Outcome& outcome) {
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
}

// A planet of 8 x 16 points and six channels, and one of 16 x 32 points.
struct Planet {
  Planet() {
    for (const char* grid : {"8x16", "16x32"})
      check_done(command(concat("data synth --out ", (here / grid).string(), " --grid ", grid,
                                " --channels 6 --train-years 1 --valid-years 1 --steps-per-year 24 --seed 1")));
  }
  Outcome command(const std::string& arguments) const { return isobar_command(here.path(), arguments); }
  std::string train(const std::string& run, const std::string& more, const std::string& grid = "8x16") const {
    return concat("train --config tiny --threads 1 --device cpu --set embed_dim=16 --set depth=1 --set num_heads=2 ",
                  "--set patch_size=4 --set global_batch_size=4 --num_iters 4 --set checkpoint_every=2 --data ",
                  (here / grid).string(), " --run-dir ", (here / run).string(), " ", more);
  }
  std::string log_of(const std::string& run) const { return read_file(here / run / "out.log"); }

  TemporaryFolder here;
};

const std::string kFour = R"(--set 'channels=["u10","v10","t2m","sp"]' )",
                  kSix = R"(--set 'channels=["msl","sp","u10","t850","v10","t2m"]' )";

// fields[K, C, H, W] of a forecast; `names` of its channels.
struct Forecast {
  explicit Forecast(const fs::path& file) {
    const hdf5::File h5 = hdf5::File::open(file.string());
    shape = h5.info("fields").shape;
    values = h5.numbers("fields");
    names = h5.strings("channel");
  }
  std::vector<double> of(const std::string& name) const {
    const auto at = std::ranges::find(names, name) - names.begin();
    const std::int64_t points = shape[2] * shape[3];
    std::vector<double> found;
    for (std::int64_t k = 0; k < shape[0]; ++k) {
      const auto first = values.begin() + (k * shape[1] + at) * points;
      found.insert(found.end(), first, first + points);
    }
    return found;
  }
  std::vector<std::int64_t> shape;
  std::vector<double> values;
  std::vector<std::string> names;
};

}  // namespace

TEST_CASE("fine-tuning: with two channels more, weights forecast the others as before") {
  const Planet planet;
  check_done(planet.command(planet.train("four", kFour)));
  check_done(planet.command(planet.train(
      "six", kSix + "--init " + (planet.here / "four").string() + " --init-partial --set lr=0 --set weight_decay=0")));
  const std::string log = planet.log_of("six");
  CHECK_THAT(log, ContainsSubstring("patch_embed.proj.weight: 8 of 10 channels by name, 0 for new ones: msl, t850"));
  CHECK_THAT(log, ContainsSubstring("head.weight: 4 of 6 channels by name, initial values for new ones: msl, t850"));
  CHECK_THAT(log, ContainsSubstring("blocks.0.attn.q.weight: taken"));
  for (const char* run : {"four", "six"})
    check_done(planet.command(concat("forecast --weights ", (planet.here / run).string(), " --data ",
                                     (planet.here / "8x16").string(), " --start 2 --steps 1 --threads 1 --out ",
                                     (planet.here / run).string(), ".h5")));
  const Forecast four(planet.here / "four.h5"), six(planet.here / "six.h5");
  for (const std::string& name : four.names) {
    const std::vector<double> before = four.of(name), after = six.of(name);
    REQUIRE(before.size() == after.size());
    double worst = 0, largest = 0;
    for (std::size_t i = 0; i < before.size(); ++i) {
      worst = std::max(worst, std::abs(before[i] - after[i]));
      largest = std::max(largest, std::abs(before[i]));
    }
    INFO(name);
    CHECK(worst <= 1e-6 * largest);
  }
}

TEST_CASE("fine-tuning: on a finer grid with larger patches, on ranks, and gone on with") {
  const Planet planet;
  check_done(planet.command(planet.train("coarse", "")));
  const std::string init = "--init " + (planet.here / "coarse").string() + " --init-partial ";
  check_done(planet.command(planet.train("same", init + "--set patch_size=8", "16x32")));
  CHECK_THAT(planet.log_of("same"), ContainsSubstring("patches of 4 x 4 points become 8 x 8"));
  check_done(planet.command(planet.train("finer", init, "16x32")));
  CHECK_THAT(planet.log_of("finer"),
             ContainsSubstring("pos_embed: interpolated from 2 x 4 to 4 x 8 patches, by latitude and longitude"));
  const auto validated = [&](const std::string& run) {
    return metrics_of(planet.here / run).front().at("loss").get<double>();
  };
  check_done(planet.command(planet.train("ranks", init + "--ranks 2 --tensor-parallel 2", "16x32")));
  CHECK(validated("ranks") == Approx(validated("finer")).epsilon(1e-5));
  // Gone on with, it needs the weights no more.
  fs::remove_all(planet.here / "coarse");
  check_done(planet.command("train --resume --num_iters 6 --run-dir " + (planet.here / "finer").string()));
  CHECK(metrics_of(planet.here / "finer").back().at("iteration") == 6);
}

TEST_CASE("fine-tuning: frozen parameters keep their bits over a whole run, and the log and the map tell of them") {
  const Planet planet;
  check_done(planet.command(planet.train("first", "")));
  const std::string init = "--init " + (planet.here / "first").string();
  check_done(planet.command(
      planet.train("second", init + R"( --ranks 2 --shard-optimizer --set ema=0.9 --set 'rollout=[[0,1],[2,2]]')"
                                    R"( --set 'freeze=["blocks.*","pos_embed"]')")));
  CHECK_THAT(planet.log_of("second"), ContainsSubstring(" of them frozen, on cpu"));
  CHECK_THAT(planet.log_of("second"), ContainsSubstring(" frozen): "));
  const SafetensorsFile before(planet.here / "first/best/model.safetensors"),
      after(planet.here / "second/checkpoints/step_00000004/model.safetensors");
  for (const TensorBytes& tensor : before.tensors()) {
    const std::string& name = tensor.info.name;
    INFO(name);
    CHECK(std::ranges::equal(tensor.bytes, after.at(name).bytes) ==
          (name.starts_with("blocks.") || name == "pos_embed"));
  }
  const SafetensorsFile optimizer(planet.here / "second/checkpoints/step_00000004/optimizer.safetensors");
  CHECK(optimizer.find("m.head.weight") != nullptr);
  CHECK(optimizer.find("w.head.weight") != nullptr);
  for (const char* prefix : {"m.", "v.", "w."}) CHECK(optimizer.find(concat(prefix, "pos_embed")) == nullptr);
}

TEST_CASE("fine-tuning: what is wrong is told in one line, and leaves nothing") {
  const Planet planet;
  check_done(planet.command(planet.train("first", "")));
  const std::string init = "--init " + (planet.here / "first").string();
  const auto refused = [&](const std::string& more, const std::string& words, const std::string& grid = "8x16") {
    check_error(planet.command(planet.train("bad", more, grid)), words);
    CHECK_FALSE(fs::exists(planet.here / "bad"));
  };
  refused(R"(--set 'freeze=["bloks.*"]')",
          "config key freeze: no parameter of this network is called bloks.*; the nearest are blocks.*");
  refused(R"(--set 'freeze=["*"]')", "nothing is left to train");
  refused(R"(--set 'freeze=["*.attn.q.*"]')", "which are computed as one");
  refused("--set freeze=blocks", "config key freeze in --set must be a list, each a string in UTF-8, or null");
  refused("--set ema=1", "config key ema in --set must be at least 0 and below 1, not 1");
  refused("--set ema=-0.1", "config key ema in --set");
  refused("--init-partial", "--init");
  refused(init + " --init-partial --set embed_dim=32", "none of its tensors fits this network");
  refused(init + " --set patch_size=8", "row_weights are 8 and not 16", "16x32");
  refused("--set channel_weights=grafcast", "there are graphcast, makani_auto, change");
  refused(R"(--set 'channel_weights={"t2":1}')", "the nearest is t2m");
  fs::remove(planet.here / "8x16/stats/time_diff_stds.npy");
  refused("--set channel_weights=change", "isobar data stats writes it");
}

TEST_CASE("fine-tuning: weights by change are those of the statistics, kept with the weights") {
  const Planet planet;
  const std::string data = (planet.here / "8x16").string();
  check_done(planet.command("data stats " + data + "/train --out " + data + "/stats"));
  check_done(planet.command(planet.train("stats", "--set channel_weights=change")));
  // Without statistics the run makes them, of the same steps.
  fs::rename(planet.here / "8x16/stats", planet.here / "stats_elsewhere");
  check_done(planet.command(planet.train("own", "--set channel_weights=change")));
  CHECK(fs::exists(planet.here / "own/stats/time_diff_stds.npy"));
  const auto loss = [&](const std::string& run) {
    return metrics_of(planet.here / run).back().at("loss").get<double>();
  };
  CHECK(loss("own") == Approx(loss("stats")).epsilon(1e-5));
  check_done(planet.command(planet.train("plain", "")));
  CHECK(loss("own") > 2 * loss("plain"));
  // A judge of the weights needs no statistics.
  fs::remove_all(planet.here / "own/stats");
  const Outcome judged = planet.command("evaluate --weights " + (planet.here / "own").string() + " --threads 1");
  check_done(judged);
}

}  // namespace isobar::testing
