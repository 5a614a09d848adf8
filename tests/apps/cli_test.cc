// The command itself, run as a process: exit statuses, one line on stderr, flags and what a run leaves behind.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "data/files/hdf5.h"
#include "engine/files/reader.h"
#include "engine/files/safetensors.h"
#include "kernels/cpu/isa.h"
#include "tests/data/files/idx_files.h"
#include "tests/harness/data_files.h"
#include "tests/harness/isobar_command.h"
#include "tests/harness/places.h"
#include "tests/harness/testing.h"

using isobar::read_file;
using isobar::testing::check_error;
using isobar::testing::ContainsSubstring;
using isobar::testing::Outcome;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

// A folder of its own, removed in the end.
class Scratch {
 public:
  Scratch() {
    static int count = 0;
    path_ = fs::temp_directory_path() / ("isobar_cli_test_" + std::to_string(getpid()) + "_" + std::to_string(count++));
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Scratch() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

// Runs `isobar ARGUMENTS` in the shell, with `environment` before it. It sees no GPU.
Outcome in_shell(const std::string& arguments, const std::string& environment = "") {
  const Scratch scratch;
  const std::string command = "export CUDA_VISIBLE_DEVICES=; " + environment + " " + isobar::testing::kIsobar + " " +
                              arguments + " >" + scratch / "out" + " 2>" + scratch / "err";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(scratch / "out"), read_file(scratch / "err")};
}

}  // namespace

TEST_CASE("a wrong command line is one line on stderr and status 1") {
  const auto [arguments, words] = GENERATE(table<std::string, std::string>({
      {"data", "subcommand"},
      {"trian --data d", "no subcommand trian; did you mean train?"},
      {"train --colour blue", "--colour (see isobar train --help)"},
      {"train --confg tiny", "no flag --confg; did you mean --config?"},
      {"train --run_dri=x --config tiny", "no flag --run-dri; did you mean --run-dir?"},
      {"train --config tiny more", "no use for the argument more"},
      {"train --config tiny --set num_iters=1 lr=2", "no use for the argument lr=2"},
      {"train --lr 1e-3", "no flag --lr; did you mean --set lr=VALUE?"},
      {"train --epochs 3", "no flag --epochs; did you mean --num-epochs?"},
      {"forecast --wieghts w --data d", "no flag --wieghts; did you mean --weights?"},
      {"mesh --lr 3", "no flag --lr; did you mean --set lr=VALUE?"},
      {"info --lr 3", "no flag --lr (see isobar info --help)"},
      {"train --threads many", "--threads"},
      {"train --threads -1", "--threads"},
      {"train --device tpu", "tpu"},
      {"train --resume --overwrite", "--resume"},
      {"train --tensor_parallel 2", "--tensor-parallel 2"},
      {"train --config tyny", "did you mean tiny?"},
      {"train --config none.json", "none.json"},
      {"train --set embed_dmi=8", "did you mean embed_dim?"},
      {"train --set depth", "KEY=VALUE"},
      {"train --set depth=two", "config key depth in --set must be an integer"},
      {"train --set=dtype=fp64 --amp_mode bf16", "config key amp_mode in --amp-mode"},
      {"train --num_iters 0", "config key num_iters in --num-iters"},
      {"train --set=num_iters=0", "config key num_iters in --set must be at least 1, not 0"},
      {"data synth --gird 3x4 --out o", "no flag --gird; did you mean --grid? (see isobar data synth --help)"},
      {"train --data /nowhere", "--data /nowhere"},
      {"train --data /dev", "--data /dev holds neither train/ and valid/, as the tutorial's data, nor .h5 files"},
      {"train --yaml_config /none.yaml", "/none.yaml"},
      {"train --run-dir /dev/null --config tiny", "/dev/null"},
      {"forecast", "--weights"},
      {"forecast --weights w --data d --steps 0", "--steps"},
      {"forecast --weights w --data d", "--start"},
      {"forecast --weights w --data d --start 1", "--out"},
      {"forecast --weights w --data d --starts 3:1:1", "empty"},
      {"forecast --weights w --data d --starts 1:x", "A:B:S"},
      {"forecast --weights /none.safetensors --data d --start 0 --out o.h5", "/none.safetensors"},
      {"mesh --dp 0", "dp"},
      {"mesh --tp 2 --order cp-dp", "leaves out tp"},
  }));
  CAPTURE(arguments);
  check_error(in_shell(arguments), words);
}

TEST_CASE("data synth: a grid is two numbers that fit, and data stats takes one file as one file") {
  const Scratch scratch;
  const std::string synth = "data synth --train-years 1 --steps-per-year 2 --out " + scratch / "d" + " --grid ";
  for (const char* grid : {"99999999999999999999x2", "2x99999999999999999999", "9x", "x9", "9x9x9", "9y9", "9", "nine"})
    check_error(in_shell(synth + grid), "is not HEIGHTxWIDTH");
  CHECK(in_shell(synth + "3x4").status == 0);
  check_error(in_shell(synth + "3x4 --kind nbody"), " is no option of --kind nbody");
  check_error(in_shell("data synth --kind nbody --grid 3x4 --out " + scratch / "n"),
              "--grid is no option of --kind nbody");
  check_error(in_shell("data synth --box 8 --out " + scratch / "n"), "--box is no option of --kind planet");
  CHECK_FALSE(fs::exists(scratch / "n"));
  CHECK(in_shell("data stats " + scratch / "d/train" + " --out " + scratch / "s")
            .out.ends_with("2 steps of 1 file, 1 pair of them 6 hours apart; written to " + scratch / "s" + "\n"));
}

TEST_CASE("data synth, info and stats say what they made and found, line by line") {
  const Scratch scratch;
  const std::string folder = scratch / "d";
  const Outcome made = in_shell("data synth --steps-per-year 3 --channels 2 --grid 5x6 --out " + folder);
  CHECK(made.status == 0);
  const auto part = [](const std::string& name, int first, int years) {
    std::string text = name + ":\n  " + std::to_string(years) + (years == 1 ? " file, " : " files, ") +
                       std::to_string(3 * years) + " steps of 2 channels on 5 x 6\n";
    for (int year = first; year < first + years; ++year) {
      const std::string day = std::to_string(year) + "-01-01T";
      text += "    " + std::to_string(year) + ".h5  3 steps  " + day + "00:00 to " + day + "12:00  contiguous, pread\n";
    }
    text +=
        "  channels: u10 v10\n  latitudes: 90 to -90, longitudes: 0 to 300\n"
        "  units: m/s, m/s\n  time step: 6 hours\n";
    for (int year = first; year + 1 < first + years; ++year)  // three steps of a year leave a hole behind them
      text += (year == first ? "  holes in time: " : "; ") + std::to_string(year) + ".h5 ends at " +
              std::to_string(year) + "-01-01T12:00, " + std::to_string(year + 1) + ".h5 begins at " +
              std::to_string(year + 1) + "-01-01T00:00" + (year + 2 == first + years ? "\n" : "");
    return text;
  };
  const std::string rows =
      "  u10      mean 1.18876      standard deviation 3.60216\n"
      "  v10      mean 0.321144     standard deviation 5.33938\n";
  CHECK(made.out == part("train", 1979, 4) + part("valid", 1983, 1) + part("test", 1984, 1) + "statistics: " + folder +
                        "/stats\n" + rows + "  time means: 2 x 5 x 6 or larger\n");
  const std::string not_read = "not read: the values of the fields; --check reads them all, and finds holes\n";
  CHECK(in_shell("data info " + folder).out == made.out + not_read);
  CHECK_THAT(in_shell("data info --check " + folder).out,
             ContainsSubstring("  all steps are read: no holes in the fields\n") && !ContainsSubstring("not read"));
  CHECK(in_shell("data info " + folder + "/train").out ==
        part(folder + "/train", 1979, 4) + "statistics: none; isobar data stats PATH --out DIR makes them\n" +
            not_read);
  const Outcome stats = in_shell("data stats " + folder + "/train --out " + scratch / "s");
  CHECK(stats.out == rows + "12 steps of 4 files, 8 pairs of them 6 hours apart; written to " + scratch / "s" + "\n");
  for (const char* file : {"global_means.npy", "global_stds.npy", "time_means.npy", "stats.json"})
    CHECK(read_file(scratch / "s/" + file) == read_file(folder + "/stats/" + file));
  check_error(in_shell("data stats " + folder + "/train --out " + scratch / "s --threads x"), "--threads");
  // The files of a range are those that have steps of it.
  const std::string of_range = "data stats " + folder + "/train --out " + scratch / "r --range ";
  CHECK_THAT(in_shell(of_range + "0 3").out,
             ContainsSubstring("\n3 steps of 1 file, 2 pairs of them 6 hours apart; written to "));
  CHECK_THAT(in_shell(of_range + "1 6").out, ContainsSubstring("\n5 steps of 2 files, 3 pairs of them 6 hours"));
}

TEST_CASE("data stats: a range in steps or dates, some channels, and the distance of differences") {
  const Scratch scratch;
  const std::string synth = "data synth --train-years 1 --steps-per-year 12 --channels 3 --grid 3x4 --out ";
  REQUIRE(in_shell(synth + scratch / "d").status == 0);
  const std::string stats = "data stats " + scratch / "d/train --out " + scratch / "s ";
  CHECK(in_shell(stats + "--range 2 9 --dt 3 --channels t2m")
            .out.ends_with("\n7 steps of 1 file, 4 pairs of them 18 hours apart; written to " + scratch / "s" + "\n"));
  const std::string steps = read_file(scratch / "s/global_means.npy");
  CHECK(in_shell(stats + "--channels t2m --range 1979-01-01T12 1979-01-03T00").status == 0);
  CHECK(read_file(scratch / "s/global_means.npy") == steps);
  CHECK(json::parse(read_file(scratch / "s/stats.json"))["channels"] == json::array({"t2m"}));
  check_error(in_shell(stats + "--range 2 1979-01-02"), "--range 2 1979-01-02 is a step and a date");
  check_error(in_shell(stats + "--range 2 13"), "--range [2, 13) goes beyond the 12 steps of ");
  check_error(in_shell(stats + "--dt 0"), "--dt 0 is not at least one step");
  check_error(in_shell(stats + "--channels t2n"), "has no channel t2n; did you mean t2m?");
  // Of files without times steps are counted.
  isobar::testing::write_fields(scratch / "none.h5", {5, 1, 2, 3});
  const std::string none = "data stats " + scratch / "none.h5" + " --out " + scratch / "n", end = scratch / "n" + "\n";
  CHECK(in_shell(none).out.ends_with("\n5 steps of 1 file, 4 pairs of them 1 step apart; written to " + end));
  CHECK(in_shell(none + " --dt 2")
            .out.ends_with("\n5 steps of 1 file, 3 pairs of them 2 steps apart; written to " + end));
  CHECK(in_shell(none + " --range 4 5")
            .out.ends_with("\n1 step of 1 file, 0 pairs of them 1 step apart; written to " + end));
}

TEST_CASE("a list behind a flag is one word: what follows is another argument") {
  const Scratch folder;
  const std::string out = " --out " + folder / "out.nc" + " ";
  for (const std::string& command : std::vector<std::string>{
           "data stats" + out + "--channels t2m,u10", "data climatology" + out + "--channels t2m,u10",
           "data convert" + out + "--channels t2m,u10", "data index" + out + "--seq-length 4 --samples 1,0,0",
           "score --truth nothing --channels t2m,u10", "score --truth nothing --truth-channels t2m,u10"}) {
    const Outcome outcome = in_shell(command + " no_such_file");
    INFO(outcome.err);
    CHECK(outcome.status == 1);
    CHECK_THAT(outcome.err, !ContainsSubstring("required") && ContainsSubstring(" no"));
  }
}

TEST_CASE("data convert says what it writes, and goes on only with what was begun") {
  const Scratch scratch;
  const std::string synth = "data synth --train-years 2 --steps-per-year 6 --grid 3x4 --out ";
  REQUIRE(in_shell(synth + scratch / "d").status == 0);
  const std::string convert = "data convert " + scratch / "d/train --threads 1 --out ", out = scratch / "o";
  const Outcome made = in_shell(convert + out + " --channels v10,cos_zenith --split 1980-01-01T12");
  CHECK(made.err.empty());
  CHECK(made.out.starts_with("to write: 1.15 kB, 12 steps of 2 channels on 3 x 4 in 3 files\n" + out +
                             "/train/1979.h5: 6 steps, in "));
  CHECK_THAT(made.out, ContainsSubstring(out + "/train/1980.h5: 2 steps, in "));
  CHECK_THAT(made.out, ContainsSubstring(out + "/valid/1980.h5: 4 steps, in "));
  CHECK(in_shell(convert + out + " --channels v10,cos_zenith --split 1980-01-01T12").out ==
        "nothing to write; kept: 3 files that are there already\n");
  check_error(in_shell(convert + out), "--channels");
  check_error(in_shell(convert + out + " --channels v10 --split 1980-01-01T12"),
              out + "/train/1979.h5 is there already, and its steps, channels or points are not those that would be");
  check_error(in_shell(convert + scratch / "d/train --channels v10"), "1979.h5 is a source, and would be written");
  // Two dates: where the validation begins, and where the test does.
  const Outcome three = in_shell(convert + scratch / "t --channels v10 --split 1979-01-02 1980-01-01T12");
  CHECK_THAT(three.out, ContainsSubstring("/t/train/1979.h5: 4 steps, in ") &&
                            ContainsSubstring("/t/valid/1979.h5: 2 steps, in ") &&
                            ContainsSubstring("/t/valid/1980.h5: 2 steps, in ") &&
                            ContainsSubstring("/t/test/1980.h5: 4 steps, in "));
}

TEST_CASE("data synth: a seed is another weather, or another universe, whatever the threads") {
  const Scratch scratch;
  for (const auto& [kind, file] : {std::pair("planet --train-years 1 --steps-per-year 2 --grid 3x4", "train/1979.h5"),
                                   std::pair("nbody --box 8", "train/box.h5")}) {
    const auto made = [&](const std::string& flags) {
      fs::remove_all(scratch / "d");
      REQUIRE(in_shell(std::string("data synth --kind ") + kind + " --out " + scratch / "d " + flags).status == 0);
      return read_file(scratch / "d/" + file);
    };
    const std::string usual = made("");
    CHECK((made("--seed 0 --threads 2") == usual));
    CHECK((made("--seed 1") != usual));
  }
}

TEST_CASE("data info of labelled images: the sets that are there") {
  const Scratch scratch;
  const std::string folder = scratch / "digits";
  fs::create_directory(folder);
  isobar::testing::write_images(folder, "t10k", {2, 3, std::string(12, 'x'), {1, 4}});
  const std::string begin = folder + ": labelled images in IDX files\n",
                    test = "t10k: 2 images of 2 x 3 pixels, labels 0 to 4\n",
                    end = "they are classified by: isobar train --config mnist --data " + folder + "\n";
  CHECK(in_shell("data info " + folder).out == begin + test + end);
  isobar::testing::write_images(folder, "train", {4, 2, std::string(24, 'x'), {0, 9, 2}});
  CHECK(in_shell("data info " + folder).out == begin + "train: 3 images of 4 x 2 pixels, labels 0 to 9\n" + test + end);
  check_error(in_shell("data info --check " + folder), "--check is for fields, and " + folder + " holds images");
  fs::remove(folder + "/train-labels-idx1-ubyte");
  check_error(in_shell("data info " + folder), "digits lacks train-labels-idx1-ubyte");
}

#ifndef ISOBAR_SANITIZED
TEST_CASE("values that memory is lacking for are met in a child process, before they are read") {
  const Scratch scratch;
  const isobar::testing::FieldsShape shape{2, 1, 2, 2};
  isobar::testing::write_fields(scratch / "good.h5", shape);
  auto file = isobar::hdf5::File::create(scratch / "large.h5");
  file.write("fields", shape, std::span<const float>(isobar::testing::field_values(shape)));
  file.reserve("lat", std::array<std::int64_t, 1>{1 << 21});  // as fp64 the 16 MiB that are still looked at
  file.close();
  const auto with_memory = [&](int kib, const std::string& name) {
    return in_shell("data info " + scratch / name, "ulimit -v " + std::to_string(kib) + ";");
  };
  int too_little = 1 << 10, enough = 1 << 23;
  while (enough - too_little > 1 << 10) {
    const int middle = (too_little + enough) / 2;
    (with_memory(middle, "good.h5").status == 0 ? enough : too_little) = middle;
  }
  check_error(with_memory(enough + (8 << 10), "large.h5"),
              "large.h5 is damaged: the HDF5 library asks for too much memory");
  check_error(in_shell("data info " + scratch / "large.h5"), "large.h5: 'lat' has 2097152 values");
}
#endif

TEST_CASE("what is not asked for is what the help says") {
  // A default is shown as "--dp INT=1 " by CLI11 2.3 (Debian 12), as "--dp INT [1] " by later ones.
  const auto has = [](const std::string& command, const std::vector<std::string>& flags,
                      const std::vector<std::string>& defaults) {
    const std::string help = in_shell(command + " --help").out;
    for (const std::string& flag : flags) CHECK_THAT(help, ContainsSubstring(flag));
    for (const std::string& value : defaults)
      CHECK_THAT(help, ContainsSubstring("=" + value + " ") || ContainsSubstring("=" + value + "\n") ||
                           ContainsSubstring(" [" + value + "]"));
  };
  has("data synth", {"--train-years"}, {"4", "1", "292", "32x64", "0"});
  has("mesh", {"--dp", "--tp", "--cp"}, {"1", "tp-cp-dp"});
  has("train", {"--run-num", "--ranks", "--list-configs", "--init", "The tutorial's flags"}, {"00", "1", "auto"});
  has("forecast", {"--steps", "--starts", "--scores", "--stats"}, {"1"});
  const json info = json::parse(in_shell("info --json").out);
  CHECK(info.at("cuda_driver").is_string());
  CHECK(info.at("build").at("compiler").is_string());
  CHECK(info.at("build").at("emulator").is_boolean());
  CHECK(info.at("devices").at(0).at("threads").get<int>() >= 1);
  const Outcome one = in_shell("mesh");
  CHECK(one.out ==
        "  rank    tp    cp    dp\n     0     0     0     0\ntp groups: {0}\ncp groups: {0}\ndp groups: {0}\n");
  CHECK_THAT(in_shell("info", "OMP_NUM_THREADS=3").out, ContainsSubstring("  threads: 3\n"));
  CHECK_THAT(in_shell("info").out,
             ContainsSubstring(info.at("build").at("emulator").get<bool>() ? "  emulator: yes\n" : "  emulator: no\n"));
}

TEST_CASE("the range of starts is Python's, and an output is asked for") {
  const auto refused = [](const std::string& arguments, const std::string& words) {
    check_error(in_shell("forecast --weights /none.safetensors --data d " + arguments), words);
  };
  const std::string accepted = "/none.safetensors";
  refused("--starts 0:1", accepted);
  refused("--starts 5:5", "is empty");
  refused("--starts 5:4:-1", accepted);
  refused("--starts 5:5:-1", "is empty");
  refused("--starts 4:5:-1", "is empty");
  refused("--starts 1:5:0", "the step must not be 0");
  refused("--starts 2:-3:-2", "goes below step 0");
  refused("--starts 2:-1:-2", accepted);
  refused("--starts 2:-2:-2", accepted);
  refused("--starts 1:2:3:4", "A:B:S");
  refused("--starts -1:2", "A:B:S");
  refused("--starts 1234567890123456:2", "A:B:S");
  refused("--start 1 --starts 0:2", "give either --start or --starts");
  refused("--start 1 --scores /nowhere/s.json", "/nowhere/s.json");
  refused("--starts 0:2 --threads -1", "-1 is not a whole number from 0 on");
  refused("--start 0 --steps 0", "0 is not a whole number from 1 on");
  refused("--start 0 --steps 1 --out /nowhere/f.h5", "/nowhere/f.h5");
  refused("--start 0 --out f.grib", "--out f.grib: isobar writes no grib yet: name it .h5");
  refused("--start 0 --out d/f.zarr", "d/f.zarr: there is no folder d");
  refused("--start 0 --scores s.nc", "--scores s.nc: isobar writes no nc yet");
  for (const std::string format : {"nc4", "cdf", "grib2", "grb"}) {
    refused("--start 0 --out f." + format, "--out f." + format + ": isobar writes no " + format + " yet: name it .h5");
    refused("--start 0 --scores s." + format, "--scores s." + format + ": isobar writes no " + format + " yet");
  }
  refused("--start 0 --scores s.zarr", "--scores s.zarr: isobar writes no zarr yet");
  refused("--start today --out f.nc", "--start today is neither a step nor a date like 2018-12-20 or 2018-12-20T06");
  refused("--start 2018-02-29 --out f.nc", "--start: '2018-02-29' is no date");
  refused("--starts 2018-12-20:2018-12-01:12h", "--starts 2018-12-20:2018-12-01:12h is reversed");
  refused("--starts 2018-12-01T00:2018-12-20T00:12h", accepted);
  refused("--start 0 --batch 0 --out f.nc", "0 is not a whole number from 1 on");
  refused("--start 0", "--out is missing: where the forecast goes");
  const std::string weights = isobar::testing::source_path("tests/golden/vit_weights.safetensors");
  check_error(in_shell("forecast --weights " + weights + " --data d --start 0 --out f.h5"),
              weights + " does not say what model it is of: give --config or --set");
}

TEST_CASE("of a flag that is given several times the last one counts, and every --set") {
  CHECK(in_shell("mesh --dp 4 --tp 3 --dp 2 --tp 1").out == in_shell("mesh --dp 2").out);
  check_error(in_shell("train --num_iters 6 --num-iters 0"), "config key num_iters in --num-iters");
  check_error(in_shell("train --set num_iters=6 --set depht=1"), "did you mean depth?");
  check_error(in_shell("train --set depht=1 --set num_iters=6"), "did you mean depth?");
  CHECK_THAT(in_shell("train --help").out, ContainsSubstring("--set KEY=VALUE  "));
}

TEST_CASE("no control character of a name reaches the terminal") {
  const Outcome outcome = in_shell("train --set \"$(printf 'embed\\033[31m_dim=3')\"");
  check_error(outcome, "embed\\x1b[31m_dim");
}

TEST_CASE("output that cannot be written is an error, a reader who leaves is none") {
  check_error(in_shell("info", "into_full() { \"$@\" >/dev/full; }; into_full"), "stdout");
  CHECK(in_shell("info", "without_streams() { \"$@\" >&- 2>&-; }; without_streams").status == 0);
  const Scratch scratch;
  const std::string synth = "data synth --train-years 1 --valid-years 1 --steps-per-year 40 --out " + scratch / "d";
  check_error(in_shell(synth, "ulimit -f 100;"), "1979.h5");
  check_error(in_shell(synth, "ulimit -f 100;"), "File too large");  // why, not only what
  const std::string first_line =
      "first_line() { { \"$@\"; echo $? >" + scratch / "status" + "; } | head -1; }; first_line";
  CHECK(in_shell("mesh --dp 4096", first_line).err == "");
  CHECK(read_file(scratch / "status") == "0\n");
}

TEST_CASE("help and version go to stdout") {
  for (const std::string command : {"", "train", "forecast", "info", "mesh"}) {
    const Outcome help = in_shell(command + " --help");
    CHECK(help.status == 0);
    CHECK(help.err.empty());
    CHECK_THAT(help.out, ContainsSubstring("--help"));
  }
  CHECK_THAT(in_shell("train --help").out, ContainsSubstring("--local-batch-size"));
  const Outcome version = in_shell("--version");
  CHECK(version.status == 0);
  CHECK_THAT(version.out, ContainsSubstring("isobar 0."));
}

TEST_CASE("isobar alone prints its help") {
  const Outcome alone = in_shell("");
  CHECK(alone.status == 0);
  CHECK(alone.err == "");
  CHECK(alone.out == in_shell("--help").out);
}

TEST_CASE("the config keys and the named configs can be listed") {
  const Scratch folder;
  std::ofstream(folder / "mine.json") << R"({"extends": "base"})";
  std::ofstream(folder / "tiny.json") << R"({"extends": "base"})";
  const std::string configs = in_shell("train --list-configs", "ISOBAR_CONFIG_PATH=" + folder / "").out;
  CHECK_THAT(configs, ContainsSubstring(folder / "mine.json") && ContainsSubstring("bs16_opt ") &&
                          ContainsSubstring(folder / "tiny.json"));
  CHECK_THAT(configs, !ContainsSubstring("configs/tiny.json"));  // hidden by the one found first
  CHECK_THAT(in_shell("train --list-keys").out, ContainsSubstring("- `num_iters`: `30000` (an integer; at least 1): "));
}

TEST_CASE("processes that cannot be ranks are refused, once") {
  const auto [environment, sentence] = GENERATE(table<std::string, std::string>({
      {"WORLD_SIZE=2 RANK=0", "WORLD_SIZE is 2: the backend mpi needs mpirun or srun --mpi=pmix"},
      {"WORLD_SIZE=2", "WORLD_SIZE is 2, but RANK says no rank"},
      {"SLURM_STEP_NUM_TASKS=8 SLURM_PROCID=0 SLURM_STEP_ID=0 ISOBAR_MPI_PLUGIN=/nowhere.so", "/nowhere.so"},
  }));
  check_error(in_shell("train --config tiny --data /nowhere", environment), sentence);
}

TEST_CASE("of processes that cannot be ranks the others wait to be ended by the first, and are silent") {
  const Outcome other = in_shell("train --config tiny --data /nowhere", "WORLD_SIZE=2 RANK=1");
  CHECK(other.status == 1);
  CHECK(other.err == "");
}

TEST_CASE("ranks are threads or processes, and the backend is one that fits") {
  const auto refused = [](const std::string& flags, const std::string& environment = "") {
    return in_shell("train --config tiny --data /nowhere " + flags, environment);
  };
  const std::string mpirun = "OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0";
  check_error(refused("--ranks 2", mpirun),
              "--ranks 2: OMPI_COMM_WORLD_SIZE is 4: ranks are threads of one process, or");
  check_error(refused("--backend thread", mpirun), "--backend thread: OMPI_COMM_WORLD_SIZE is 4");
  check_error(refused("--backend mpi"), "--backend mpi: no launcher has started this process");
  check_error(refused("--backend nccl"), "--backend nccl: ");
  check_error(refused("--backend mpi", "OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0"), "/nowhere");  // one rank
}

TEST_CASE("one task, and the shell of a batch script with several to come, may train") {
  const std::string environment =
      GENERATE("WORLD_SIZE=1", "SLURM_STEP_NUM_TASKS=1 SLURM_NTASKS=1 SLURM_PROCID=0 SLURM_STEP_ID=0", "SLURM_NTASKS=4",
               "SLURM_NTASKS=4 SLURM_PROCID=0", "SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_STEP_ID=4294967291",
               "SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_STEP_ID=4294967280", "SLURM_NTASKS=4 SLURM_STEP_ID=0",
               "WORLD_SIZE=many", "WORLD_SIZE=2x", "SLURM_STEP_NUM_TASKS=8 SLURM_PROCID=0 SLURM_STEP_ID=4294967291");
  check_error(in_shell("train --config tiny --data /nowhere", environment), "/nowhere");
}

TEST_CASE("info tells version, build and devices") {
  const json info = json::parse(in_shell("info --json").out);
  CHECK(info.at("version").is_string());
  CHECK(info.at("build").at("cuda").is_boolean());
  CHECK(info.at("devices").at(0).at("kind") == "cpu");
  CHECK(info.at("devices").at(0).at("instruction_set") == isobar::cpu::name_of(isobar::cpu::best_isa()));
  CHECK(info.at("devices").at(0).at("bf16_products") == isobar::cpu::name_of(isobar::cpu::bf16_products()));
  CHECK(nlohmann::ordered_json::parse(in_shell("info --json").out).dump(2) + "\n" == in_shell("info --json").out);
  CHECK_THAT(in_shell("info").out, ContainsSubstring("isobar ") && ContainsSubstring("threads"));
}

TEST_CASE("info tells what weights say, and how long texts are that nobody reads") {
  const Scratch scratch;
  const nlohmann::ordered_json told{
      {"long", std::string(1001, 'x')}, {"short", std::string(1000, 'x')}, {"list", {1, true, std::string(1002, 'y')}}};
  isobar::write_safetensors(scratch / "w.safetensors", {},
                            {{"a.object", told.dump()}, {"b.flag", "true"}, {"c.text", "no JSON"}});
  const Outcome text = in_shell("info " + scratch / "w.safetensors");
  CHECK(text.status == 0);
  CHECK(text.out ==
        scratch / "w.safetensors" + ": 0 parameters in 0 tensors\na.object\n  long: 1001 characters\n  short: " +
            std::string(1000, 'x') + "\n  list: [1,true,\"1002 characters\"]\nb.flag: yes\nc.text: no JSON\ntensors\n");
  const json as_json = json::parse(in_shell("info --json " + scratch / "w.safetensors").out);
  CHECK(as_json.at("metadata").at("a.object").at("long") == "1001 characters");
  CHECK(as_json.at("metadata").at("b.flag") == true);
  CHECK(as_json.at("tensors").empty());
}

TEST_CASE("pretrain-gpt without flags, and where it is asked for help, prints its page") {
  const std::string page = read_file(isobar::testing::source_path("docs/megatron.md"));
  for (const std::string asked : {"", " --list-flags", " --num-layers 2 --list-flags", " --num-layers 2 --help"}) {
    const Outcome outcome = in_shell("pretrain-gpt" + asked);
    CHECK(outcome.status == 0);
    CHECK(outcome.out == page);
  }
  check_error(in_shell("pretrain-gpt --num-layers 2"), "--hidden-size is missing");
}

TEST_CASE("mesh prints ranks and groups") {
  const Outcome mesh = in_shell("mesh --dp 2 --tp 2 --order tp-dp");
  CHECK(mesh.status == 0);
  CHECK_THAT(mesh.out, ContainsSubstring("tp groups: {0,1} {2,3}") && ContainsSubstring("dp groups: {0,2} {1,3}"));
}

TEST_CASE("mesh refuses flags that mean nothing alone") {
  check_error(in_shell("mesh --pp 2 --parts 4"), "--parts: goes with --pipeline");
  check_error(in_shell("mesh --pipeline --pipeline-chunks 2"), "--pipeline-chunks: goes with --pp of 2 ranks at least");
  check_error(in_shell("mesh --pp 0"), "--pp 0 and --pipeline-chunks 1: at least one of each is needed");
  check_error(in_shell("mesh --pp 2 --pipeline-chunks 0"), "--pp 2 and --pipeline-chunks 0: at least one of each");
  // Two rounds of parts are drawn where nothing says how many.
  CHECK_THAT(in_shell("mesh --pp 3 --pipeline").out,
             ContainsSubstring("A pipeline of 3 places, 1 chunk, split balanced, 6 parts; "));
  CHECK_THAT(in_shell("mesh --pp 2 --pipeline --parts 1").out, ContainsSubstring(", 1 part; "));
  check_error(in_shell("mesh --device gpu"), "--device");
}

// Predicted from shapes: blocks of 12·768² multiplications a token beside a head of 50,304 columns.
TEST_CASE("the table of docs/learn/10_a_pipeline.md: where GPT-2 is cut, and who waits then") {
  const std::string gpt2 = "mesh --pp 4 --pipeline --config gpt2 --parts 8";
  const std::string even = in_shell(gpt2 + " --pipeline-split even").out, balanced = in_shell(gpt2).out;
  for (const char* line :
       {"place 0: stages 0-3, 3 blocks, 48.362 Gflop a sample, 17.7 % of", "place 1: stages 4-6, 3 blocks, ",
        "place 2: stages 7-9, 3 blocks, 48.361 Gflop a sample, 17.7 % of",
        "place 3: stages 10-14, 3 blocks, 127.488 Gflop a sample, 46.8 % of", "place 0: idle for 66.8 % of",
        "place 2: idle for 66.8 % of", "place 3: idle for 12.5 % of"})
    CHECK_THAT(even, ContainsSubstring(line));
  for (const char* line : {"place 0: stages 0-4, 4 blocks, 64.482 Gflop a sample, 23.7 % of",
                           "place 3: stages 13-14, 0 blocks, 79.128 Gflop a sample, 29.0 % of",
                           "place 0: idle for 37.6 % of", "place 3: idle for 23.4 % of"})
    CHECK_THAT(balanced, ContainsSubstring(line));
}

TEST_CASE("mesh --pipeline says what its letters are, and draws chunks with letters of their own") {
  CHECK(in_shell("mesh --pp 2 --pipeline --parts 3").out ==
        "A pipeline of 2 places, 1 chunk, split balanced, 3 parts; F: forward, B: backward, of a part\n"
        "rank 0   F0 F1       B0    F2 B1       B2\n"
        "rank 1      F0 B0    F1 B1    F2 B2\n"
        "idle: 25.0 % of the time if all pieces take the same\n");
  CHECK_THAT(in_shell("mesh --pp 2 --pipeline --pipeline-chunks 2 --pipeline-split even --parts 2").out,
             ContainsSubstring("A pipeline of 2 places, 2 chunks, split even, 2 parts; ") &&
                 ContainsSubstring("\nrank 1       F0a F1a F0b B0b     F1b B1b     B0a     B1a\n"));
}

TEST_CASE("mesh --config tells what each rank holds") {
  const Outcome mesh = in_shell("mesh --tp 3 --cp 4 --config mp");
  CHECK(mesh.status == 0);
  const auto line = [&](int rank) {
    const std::string start = "\nrank " + std::to_string(rank) + ": ";
    const std::size_t begin = mesh.out.find(start);
    REQUIRE(begin != std::string::npos);
    return mesh.out.substr(begin + start.size(), mesh.out.find('\n', begin + 1) - begin - start.size());
  };
  // By hand: 8 heads over 3, 512 eights of hidden units over 3, 45 rows of patches over 4.
  CHECK_THAT(line(0), ContainsSubstring("heads 0-2 of 8, hidden units 0-1367 of 4096, rows of patches 0-11 of 45"));
  CHECK_THAT(line(2), ContainsSubstring("heads 6-7 of 8, hidden units 2736-4095 of 4096, rows of patches 0-11 of 45"));
  CHECK_THAT(line(11),
             ContainsSubstring("heads 6-7 of 8, hidden units 2736-4095 of 4096, rows of patches 34-44 of 45"));
  CHECK_THAT(in_shell("mesh --tp 8 --config mp").out, ContainsSubstring("rank 3: heads 3 of 8, "));
  CHECK_THAT(line(0), ContainsSubstring("rounded"));  // mp trains in fp16
  CHECK(in_shell("mesh --tp 3 --config mp --set amp_mode=none").out.find("rounded") == std::string::npos);
  check_error(in_shell("mesh --config tiny"), "is null where no data can fill it");
  check_error(in_shell("mesh --set depth=3"), "--set: goes with --config");
  CHECK(in_shell("mesh --dp 2 --cp 2 --shard-optimizer 4").status == 0);  // both share the optimizer
  check_error(in_shell("mesh --dp 2 --tp 2 --shard-optimizer 4"),
              "--shard-optimizer 4: the 2 ranks that share the optimizer are no groups of 4");
  // With dp first ranks 0 and 1 hold the same, and 2 and 3 the other half.
  const std::string dp_first = in_shell("mesh --dp 2 --tp 2 --order dp-tp --config mp").out;
  CHECK_THAT(dp_first, ContainsSubstring("\nranks 0, 1: heads 0-3 of 8, ") &&
                           ContainsSubstring("\nranks 2, 3: heads 4-7 of 8, "));
  // By hand: the two moments of 157926400 parameters, between the ranks that share the optimizer.
  const auto held = [](const std::string& flags) {
    return in_shell("mesh --dp 4 --config mp --device cpu " + flags).out;
  };
  CHECK_THAT(held(""), ContainsSubstring(", 1.2 GiB of moments\n"));
  CHECK_THAT(held("--shard-optimizer"), ContainsSubstring(", 301.2 MiB of moments\n"));
  CHECK_THAT(held("--shard-optimizer 2"), ContainsSubstring(", 602.4 MiB of moments\n"));
  CHECK_THAT(held("--shard-optimizer 1"), ContainsSubstring(", 1.2 GiB of moments\n"));
  // The list of ranks says so too, and not only the step.
  for (const auto& [flags, moments] : {std::pair("", "1.2 GiB"), std::pair("--shard-optimizer", "301.2 MiB"),
                                       std::pair("--shard-optimizer 2", "602.4 MiB")}) {
    const std::string text = held(flags);
    const std::size_t begin = text.find("\nranks 0-3: ");
    REQUIRE(begin != std::string::npos);
    CHECK(text.substr(begin + 1, text.find('\n', begin + 1) - begin - 1)
              .ends_with(std::string(" of gradients, ") + moments + " of moments"));
  }
}

TEST_CASE("mesh --config fills what the data of a language model would not be asked for") {
  const auto held = [](const std::string& more) {
    return in_shell("mesh --tp 2 --config gpt2 --device cpu --set depth=1 --set embed_dim=32 --set num_heads=4 " +
                    more);
  };
  const std::string given = held("--set seq_length=48 --set positions=48").out;
  CHECK_THAT(given, ContainsSubstring("parameters"));
  CHECK(held("--set seq_length=48 --set positions=null").out == given);
  CHECK(held("--set seq_length=48 --set positions=64").out != given);
  const std::string bytes =
      "--set tokenizer=bytes --set vocab_file= --set merge_file= --set positions=null --set vocab_size=";
  CHECK(held(bytes + "null").out == held(bytes + "258").out);
  // 258 rows are lengthened to three times 128, six groups of 64, of which each rank has three.
  CHECK_THAT(held(bytes + "258").out,
             ContainsSubstring("\nrank 0: rows of the table of tokens 0-191 of 384, heads 0-1 of 4, hidden units 0-63 "
                               "of 128, ") &&
                 ContainsSubstring("\nrank 1: rows of the table of tokens 192-383 of 384, heads 2-3 of 4, hidden units "
                                   "64-127 of 128, "));
  check_error(held("--set vocab_size=null"), "vocab_size in --set is null where no data can fill it");
}

TEST_CASE("mesh --config tells what a step needs") {
  const std::string step = in_shell("mesh --dp 2 --tp 2 --config mp").out;
  CHECK_THAT(step, ContainsSubstring("A step of rank 0 on cuda, predicted:\n") && ContainsSubstring(" at the peak") &&
                       ContainsSubstring("  stages 2-12: ") && ContainsSubstring(" Tflop, ") &&
                       ContainsSubstring("\ntp        all_reduce "));
  const std::string alone = in_shell("mesh --config mp --device cpu").out;
  CHECK_THAT(alone, ContainsSubstring("on cpu, predicted:") && ContainsSubstring("nothing is exchanged\n"));
  CHECK_THAT(in_shell("mesh --dp 128 --config mp").out,
             ContainsSubstring("No step on cuda: global_batch_size (64) must be at least"));
  const std::string rows = in_shell("mesh --tp 2 --config mp --sequence-parallel").out;
  CHECK_THAT(rows, ContainsSubstring("\ntp        reduce_scatter "));
}

// Input and target of a batch of 16 are 16 x 40 fields of 360 x 720 numbers: 632.8 MiB.
TEST_CASE("mesh --config --device: a GPU holds the next batch beside its own, a CPU does not") {
  const std::string mp = "mesh --config mp --set global_batch_size=16 ";
  const std::string tiny = mp + "--set embed_dim=16 --set depth=1 --set num_heads=1 --set patch_size=40 ";
  // In MiB, what stands before these words.
  const auto size_before = [](const std::string& text, const std::string& words) {
    const std::size_t end = text.find(words);
    REQUIRE(end != std::string::npos);
    const bool in_gib = text.substr(end - 3, 3) == "GiB";
    return std::stod(text.substr(text.rfind(' ', end - 5) + 1)) * (in_gib ? 1024 : 1);
  };
  const std::string on_gpu = in_shell(tiny + "--device cuda").out;
  CHECK(in_shell(tiny).out == on_gpu);
  CHECK(size_before(on_gpu, " of other") > 1200);
  const double of_other = size_before(in_shell(tiny + "--device cpu").out, " of other");
  CHECK(of_other > 632);
  CHECK(of_other < 700);
  const double of_cpu = size_before(in_shell(mp + "--device cpu").out, " at the peak"),
               of_gpu = size_before(in_shell(mp + "--device cuda").out, " at the peak");
  CHECK(of_gpu > of_cpu + 600);
  const std::string fit =
      mp + "--ranks 1 --fit " + std::to_string(std::lround((of_cpu + of_gpu) / 2)) + "MiB --device ";
  CHECK_THAT(in_shell(fit + "cpu").out, ContainsSubstring("dp 1    tp 1    cp 1  "));
  check_error(in_shell(fit + "cuda"), "--fit: no layout of 1 rank fits ");
}

TEST_CASE("mesh --pipeline takes the parts of the config, and says what each place holds") {
  const std::string gpt2 =
      "mesh --config gpt2 --set vocab_size=50257 --set seq_length=1024 --set positions=1024 --device cpu --pp 2 "
      "--pipeline --set grad_accumulation=6 --set global_batch_size=6 ";
  const std::string drawn = in_shell(gpt2).out;
  CHECK_THAT(drawn, ContainsSubstring("A pipeline of 2 places, 1 chunk, split balanced, 6 parts; "));
  CHECK_THAT(drawn, ContainsSubstring("  place 0: idle for ") &&
                        ContainsSubstring(" by this work, holds 2 parts at most\n") &&
                        ContainsSubstring(" by this work, holds 1 part at most\n"));
  CHECK_THAT(in_shell(gpt2 + "--parts 4").out, ContainsSubstring(", 4 parts; "));
  // With half the blocks each the second place has the head too, and sets the pace: of m parts it computes m W, and
  // waits for the first forward pass of the first place and for its last backward pass.
  for (const int parts : {6, 3}) {
    const std::string even = in_shell(gpt2 + "--pipeline-split even " + (parts == 6 ? "" : "--parts 3")).out;
    const auto number_behind = [&](const std::string& line, const std::string& words) {
      const std::size_t begin = even.find(line);
      REQUIRE(begin != std::string::npos);
      return std::stod(even.substr(even.find(words, begin) + words.size()));
    };
    const double less = number_behind("  place 0: stages", " blocks, "),
                 more = number_behind("  place 1: stages", " blocks, "), all = parts * more + less;
    CHECK(more > less);
    CHECK(std::abs(number_behind("  place 0: idle", " for ") - 100 * (1 - parts * less / all)) < 0.06);
    CHECK(std::abs(number_behind("  place 1: idle", " for ") - 100 * less / all) < 0.06);
  }
  // Twelve blocks of one cost in four chunks; what comes before them and behind is the first one's and the last one's.
  const std::string chunks = in_shell(gpt2 + "--pipeline-chunks 2 --pipeline-split 3,3,3,3").out;
  CHECK_THAT(chunks, ContainsSubstring("A pipeline of 2 places, 2 chunks, split 3,3,3,3, 6 parts; "));
  const std::size_t begin = chunks.find("  place 0, chunk 0: ");
  REQUIRE(begin != std::string::npos);
  std::istringstream lines(chunks.substr(begin));
  std::vector<double> work, share;
  for (const std::string start :
       {"  place 0, chunk 0: stages 0-3, 3 blocks, ", "  place 1, chunk 0: stages 4-6, 3 blocks, ",
        "  place 0, chunk 1: stages 7-9, 3 blocks, ", "  place 1, chunk 1: stages 10-14, 3 blocks, "}) {
    std::string line;
    std::getline(lines, line);
    INFO(line);
    REQUIRE(line.starts_with(start));
    double gflop = 0, percent = 0;
    CHECK(std::sscanf(line.c_str() + start.size(), "%lf Gflop a sample, %lf %% of the network", &gflop, &percent) == 2);
    work.push_back(gflop), share.push_back(percent);
  }
  CHECK(work[1] == work[2]);
  CHECK(work[3] > 1.5 * work[1]);  // the head
  CHECK(std::abs(share[0] + share[1] + share[2] + share[3] - 100) < 0.3);
  // By hand: a block multiplies a token by 12 C^2 numbers, and by 2 T C of attention, of which it needs half.
  constexpr double kWidth = 768, kTokens = 1024;
  const double of_block = kTokens * (24 * kWidth * kWidth + 2 * kTokens * kWidth);
  CHECK(std::abs(work[1] / (3 * of_block / 1e9) - 1) < 0.05);
  const std::string held = in_shell(
                               "mesh --pp 2 --pipeline-chunks 2 --config gpt2 --set vocab_size=50257 --set "
                               "seq_length=1024 --set positions=1024 --device cpu --set grad_accumulation=2 --set "
                               "global_batch_size=2 --pipeline-split 3,3,3,3")
                               .out;
  CHECK_THAT(held, ContainsSubstring("\nrank 0: blocks of chunk 0 0-2 of 12, blocks of chunk 1 6-8 of 12, "));
  CHECK_THAT(held, ContainsSubstring("\nrank 1: blocks of chunk 0 3-5 of 12, blocks of chunk 1 9-11 of 12, "));
}

TEST_CASE("mesh --fit lists the layouts that fit, by what they exchange") {
  const auto start = std::chrono::steady_clock::now();
  const Outcome fit = in_shell("mesh --config mp --fit 40GiB --ranks 8");
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  CHECK(fit.status == 0);
  std::printf("mesh --config mp --fit 40GiB --ranks 8: %.2f s\n", seconds.count());
#ifndef ISOBAR_SANITIZED
  CHECK(seconds.count() <= 2);
#endif
  CHECK_THAT(fit.out, ContainsSubstring("Layouts of 8 ranks that fit 40.0 GiB on cuda, by the bytes") &&
                          ContainsSubstring("dp 2    tp 2    cp 2 "));
  CHECK_THAT(fit.out, ContainsSubstring("--tensor-parallel 4") && ContainsSubstring("--shard-optimizer"));
  check_error(in_shell("mesh --config mp --fit 1MiB --ranks 8"), "no layout of 8 ranks fits 1.0 MiB on cuda");
  check_error(in_shell("mesh --config mp --fit 1MiB --ranks 1"), "no layout of 1 rank fits 1.0 MiB on cuda");
  CHECK_THAT(in_shell("mesh --config mp --fit 400GiB --ranks 1 --device cpu").out,
             ContainsSubstring("Layouts of 1 rank that fit 400.0 GiB on cpu, by the bytes that rank 0 exchanges in a "
                               "step:\ndp 1    tp 1    cp 1  "));
  check_error(in_shell("mesh --fit 1MiB --ranks 8"), "--fit: goes with --config");
  check_error(in_shell("mesh --config mp --fit 1MiB"), "--fit: goes with --ranks");
  check_error(in_shell("mesh --config mp --ranks 8"), "--ranks: goes with --fit");
  check_error(in_shell("mesh --config mp --fit much --ranks 8"), "--fit");
}

#ifndef ISOBAR_SANITIZED
TEST_CASE("a run that cannot fit is refused before its first step, with the largest batch that fits") {
  const Scratch scratch;
  std::filesystem::create_directories(scratch / "data");
  for (const char* prefix : {"train", "t10k"}) {
    isobar::testing::ImageSet set{8, 12, "", ""};
    for (int pixel = 0; pixel < 64 * 8 * 12; ++pixel) set.pixels += static_cast<char>(pixel % 251);
    for (int image = 0; image < 64; ++image) set.labels += static_cast<char>(image % 2);
    isobar::testing::write_images(scratch / "data", prefix, set);
  }
  const auto train = [&](std::int64_t batch, const std::string& more = "") {
    return in_shell("train --device cpu --threads 1 --config mnist --data " + scratch / "data" + " --run-dir " +
                        scratch / "run" +
                        " --set embed_dim=768 --set depth=12 --set patch_size=1 --set num_heads=8 --set "
                        "num_iters=1 --set global_batch_size=" +
                        std::to_string(batch) + " " + more,
                    "ulimit -v 3000000;");
  };
  const Outcome refused = train(64);
  check_error(refused, "global_batch_size 64: a step needs ");
  CHECK_THAT(refused.err,
             ContainsSubstring(" of memory, and this process has 2.9 GiB; the largest batch that fits is "));
  CHECK_FALSE(std::filesystem::exists(scratch / "run/config.json"));
  const std::string before = "that fits is ";
  const std::int64_t largest = std::stoll(refused.err.substr(refused.err.find(before) + before.size()));
  CHECK((largest > 0 && largest < 64));
  check_error(train(largest + 1), "the largest batch that fits is " + std::to_string(largest));
  check_error(train(64, "--set embed_dim=2048 --set num_heads=16"), "; no batch fits");
  check_error(train(64, "--ranks 2"), " of memory on each of 2 ranks, and this process has 2.9 GiB; ");
}
#endif

TEST_CASE("one rank holds the whole model") {
  // The base ViT by hand: embedding 1280·384 + 384, positions 4050·384... on 45 x 90 patches; twelve blocks of
  // 12·384² weights and 13·384 biases and norms; the last norm; the head.
  const std::int64_t c = 384, in = 20 * 64;
  const std::int64_t count = in * c + c + 45 * 90 * c + 12 * (12 * c * c + 13 * c) + 2 * c + in * c;
  CHECK_THAT(in_shell("mesh --config base").out, ContainsSubstring(" " + std::to_string(count) + " parameters"));
}

TEST_CASE("configs are found through ISOBAR_CONFIG_PATH") {
  const Scratch folder;
  std::ofstream(folder / "mine.json") << R"({"extends": "base", "embed_dim": 7})";
  check_error(in_shell("train --config mine", "ISOBAR_CONFIG_PATH=" + folder / ""),
              "config key embed_dim in " + folder / "mine.json");
  check_error(in_shell("train --config mine"), "no config 'mine'");
  check_error(in_shell("train", "ISOBAR_CONFIG_PATH=/nowhere"), "ISOBAR_CONFIG_PATH names /nowhere");
}
