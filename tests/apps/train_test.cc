// Whole runs of the command on small data: what a run leaves behind, resuming bit for bit, forecasts.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iomanip>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "data/fields/field_series.h"
#include "data/fields/statistics.h"
#include "data/files/hdf5.h"
#include "data/files/npy.h"
#include "engine/files/checksum.h"
#include "engine/files/reader.h"
#include "engine/files/safetensors.h"
#include "kernels/cuda/runtime.h"
#include "tests/harness/isobar_command.h"
#include "tests/harness/resource_limit.h"
#include "tests/harness/tensorboard_events.h"
#include "tests/harness/testing.h"

using isobar::read_file;
using isobar::testing::Approx;
using isobar::testing::ContainsSubstring;
using isobar::testing::isobar_command;
using isobar::testing::metrics_of;
using isobar::testing::Outcome;
using isobar::testing::TensorBoardEvents;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr std::int64_t kChannels = 3, kHeight = 8, kWidth = 16;
const std::vector<std::string> kNames{"u10", "v10", "t2m"};

// Waves that travel east: a model can learn them, persistence cannot.
void write_year(const fs::path& file, std::int64_t steps, const std::vector<std::string>& names,
                const std::vector<double>& latitudes = {}) {
  std::vector<float> fields;
  for (std::int64_t t = 0; t < steps; ++t) {
    for (std::int64_t i = 0; i < kChannels * kHeight * kWidth; ++i) {
      const std::int64_t c = i / (kHeight * kWidth), h = i / kWidth % kHeight, w = i % kWidth;
      const double wave = std::sin(2 * M_PI * (w - t * (1 + c)) / kWidth + static_cast<double>(h));
      fields.push_back(static_cast<float>(100 * c + (1 + c) * wave));
    }
  }
  fs::create_directories(file.parent_path());
  isobar::hdf5::File h5 = isobar::hdf5::File::create(file.string());
  h5.write("fields", std::array{steps, kChannels, kHeight, kWidth}, std::span<const float>(fields));
  h5.write("channel", names);
  if (!latitudes.empty()) h5.write("lat", std::array{kHeight}, std::span<const double>(latitudes));
  h5.close();
}

// Data in the tutorial's layout, and a config for it; all removed in the end.
class Playground {
 public:
  Playground() {
    static int count = 0;
    path_ =
        fs::temp_directory_path() / ("isobar_train_test_" + std::to_string(getpid()) + "_" + std::to_string(count++));
    fs::remove_all(path_);
    write_year(path_ / "data/train/2001.h5", 27, kNames);  // 26 samples
    write_year(path_ / "data/valid/2002.h5", 6, kNames);
    write_year(path_ / "data/test/2003.h5", 9, kNames);
    fs::create_directories(path_ / "data/stats");
    const std::array<std::int64_t, 4> shape{1, kChannels, 1, 1};
    isobar::write_npy(*this / "data/stats/global_means.npy", shape,
                      std::span<const double>(std::array{0., 100., 200.}));
    isobar::write_npy(*this / "data/stats/global_stds.npy", shape, std::span<const double>(std::array{0.7, 1.4, 2.1}));
    std::vector<float> means;
    for (std::int64_t i = 0; i < kChannels * kHeight * kWidth; ++i) means.push_back(100.F * (i / (kHeight * kWidth)));
    isobar::write_npy(*this / "data/stats/time_means.npy", std::array{std::int64_t{1}, kChannels, kHeight, kWidth},
                      std::span<const float>(means));
    std::ofstream(path_ / "small.json") << R"({
      "embed_dim": 16, "depth": 1, "num_heads": 2, "patch_size": 4, "img_size": [8, 16],
      "n_in_channels": 3, "n_out_channels": 3, "predict_change": true, "time_features": true, "dropout": 0.1,
      "global_batch_size": 4, "grad_accumulation": 2, "num_iters": 14, "lr": 2e-3, "log_every": 2,
      "checkpoint_every": 2, "validate_every": 4, "keep_checkpoints": 0})";
  }
  ~Playground() { fs::remove_all(path_); }
  Playground(const Playground&) = delete;
  Playground& operator=(const Playground&) = delete;

  operator const fs::path&() const { return path_; }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string train(const std::string& run, const std::string& more = "") const {
    return "train --config " + *this / "small.json" + " --data " + *this / "data" + " --run-dir " + *this / run +
           " --threads 1 --device cpu " + more;
  }

 private:
  fs::path path_;
};

void check_done(const Outcome& outcome) {
  CHECK(outcome.status == 0);
  CHECK(outcome.err == "");
}

// Sends a signal as soon as a file is there.
std::function<void(pid_t)> signal_when(const std::string& file, int signal) {
  return [=](pid_t child) {
    for (int i = 0; i < 3000 && !fs::exists(file); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    kill(child, signal);
  };
}

void check_same_end(const std::string& run, const std::string& other) {
  const auto same = [&](const std::string& file) { return read_file(run + file) == read_file(other + file); };
  for (const std::string folder : {"/checkpoints/step_00000014", "/best"}) {
    CHECK(same(folder + "/model.safetensors"));
    CHECK(same(folder + "/optimizer.safetensors"));
  }
  CHECK(metrics_of(run) == metrics_of(other));
  const json summary = json::parse(read_file(run + "/summary.json"));
  CHECK(summary.at("train_loss") == json::parse(read_file(other + "/summary.json")).at("train_loss"));
}

#ifdef ISOBAR_FAILING_CALLS
// What commands meet while this lives: a plan of lab/faults/failing_calls.cc.
class Fault {
 public:
  explicit Fault(std::map<std::string, std::string> plan) : plan_(std::move(plan)) {
    plan_["LD_PRELOAD"] = ISOBAR_FAILING_CALLS;
    for (const auto& [variable, value] : plan_) setenv(variable.c_str(), value.c_str(), 1);
  }
  ~Fault() {
    for (const auto& [variable, value] : plan_) unsetenv(variable.c_str());
  }
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;

 private:
  std::map<std::string, std::string> plan_;
};
#endif

// Makes the checksums of a checkpoint anew, as somebody would who edits its files with care.
void write_checksums(const fs::path& folder) {
  const auto digits = [](std::uint64_t checksum) {
    std::ostringstream out;
    out << std::hex << std::setw(16) << std::setfill('0') << checksum;
    return out.str();
  };
  std::string lines;
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"})
    lines += digits(isobar::xxh64_of_file(folder / name)) + "  " + name + "\n";
  std::ofstream(folder / "checksums.xxh64")
      << lines << "# " << digits(isobar::xxh64(std::as_bytes(std::span(lines)))) << "\n";
}

}  // namespace

TEST_CASE("a run leaves its files, and they say what they should") {
  const Playground here;
  check_done(isobar_command(here, here.train("run")));
  const std::string run = here / "run";

  std::vector<std::int64_t> trained, validated;
  for (const json& line : metrics_of(run)) {
    (line.at("event") == "train" ? trained : validated).push_back(line.at("iteration"));
    CHECK(line.at("epoch") == (line.at("iteration").get<int>() + 5) / 6);  // 26 samples: 6 batches of 4
    CHECK(std::isfinite(line.at("loss").get<double>()));
    if (line.at("event") == "train") CHECK(line.at("lr").get<double>() > 0);
    if (line.at("event") == "valid") CHECK(line.at("rmse").size() == 3);
  }
  CHECK(trained == std::vector<std::int64_t>{2, 4, 6, 8, 10, 12, 14});
  CHECK(validated == std::vector<std::int64_t>{0, 4, 8, 12, 14});

  const json summary = json::parse(read_file(run + "/summary.json"));
  for (const char* key :
       {"device", "precision", "parameters", "iterations", "train_loss", "val_loss", "val_rmse", "persistence_rmse",
        "val_rmse_physical", "persistence_rmse_physical", "samples_per_second", "peak_memory_bytes", "wall_seconds"}) {
    CHECK(summary.contains(key));
  }
  CHECK(summary.at("iterations") == 14);
  CHECK(summary.at("val_rmse_physical").at("t2m").get<double>() ==
        Approx(2.1 * summary.at("val_rmse").at("t2m").get<double>()));
  // The wave of channel c moves c + 1 columns a step: its change has amplitude 2 sin(π (c + 1) / 16) times its own.
  CHECK(summary.at("persistence_rmse_physical").at("v10").get<double>() ==
        Approx(2 * std::sqrt(2.0) * std::sin(M_PI * 2 / 16)).epsilon(1e-4));
  CHECK(metrics_of(run).back().at("rmse") == summary.at("val_rmse"));

  for (const char* file : {"config.json", "out.log", "best/model.safetensors", "images/map_t2m_00000014.png",
                           "checkpoints/step_00000014/state.json"}) {
    CHECK(fs::exists(run + "/" + file));
  }
  CHECK(std::distance(fs::directory_iterator(run + "/logs"), fs::directory_iterator()) == 1);
  const std::string events = read_file(*fs::directory_iterator(run + "/logs"));
  for (const char* tag : {"Loss/train", "Loss/valid", "RMSE(u10m)/valid", "Learning Rate", "Avg iters per sec",
                          "Avg samples per sec", "Visualization, t2m"}) {
    CHECK_THAT(events, ContainsSubstring(tag));
  }
  const std::string log = read_file(run + "/out.log");
  for (const char* line : {" - rank 0, begin data loader init\n", "rank 0, data loader initialized",
                           "Starting Training Loop...", "Time taken for epoch 1 is ",
                           "  Avg train loss=", "  Avg val loss=", "  Total validation time: ", "DONE ---- rank 0"}) {
    CHECK_THAT(log, ContainsSubstring(line));
  }
  CHECK(log.find("begin data loader init") < log.find("data loader initialized"));
  CHECK(log.find("run folder " + run + ": device cpu, precision fp32, 1 rank with 1 thread\n") < log.find("rank 0, "));
  double best = INFINITY;
  std::int64_t best_iteration = -1;
  for (const json& line : metrics_of(run)) {
    if (line.at("event") != "valid" || line.at("loss").get<double>() >= best) continue;
    best = line.at("loss");
    best_iteration = line.at("iteration");
  }
  CHECK_THAT(log, ContainsSubstring(", of iteration " + std::to_string(best_iteration) + ": " + run + "/best\n"));
}

TEST_CASE("the tutorial's command line works as it is") {
  const Playground here;
  const Outcome outcome = isobar_command(
      here, "train --config=" + here / "small.json" + " --data " + here / "data" + " --threads 1 --device cpu" +
                " --set expdir=" + here / "logs" +
                " --run_num=01 --amp_mode none --enable_fused --enable_jit --local_batch_size=2 --num_iters 2"
                " --num_data_workers 2 --data_loader_config dali --bucket_cap_mb 10 --noddp --tensor_parallel 1"
                " --context_parallel 1 --parallel_order tp-cp-dp --disable_broadcast_buffers");
  check_done(outcome);
  for (const char* line : {"enable_fused: ", "enable_jit: ", "data_loader_config dali: ", "--noddp: "}) {
    CHECK_THAT(outcome.out, ContainsSubstring(line));
  }
  const json config = json::parse(read_file(here / "logs/small/CPU/01/config.json"));
  CHECK(config.at("global_batch_size") == 2);
  CHECK(config.at("num_iters") == 2);
  CHECK(config.at("num_data_workers") == 2);
  CHECK(config.at("channel_names") == kNames);
}

TEST_CASE("a config of a YAML file trains as the same one in JSON") {
  const Playground here;
  std::ofstream(here / "ViT.yaml") << R"(
base: &base
  {embed_dim: 16, depth: 1, num_heads: 2, patch_size: 4, img_size: [8, 16], n_in_channels: 3, n_out_channels: 3,
   predict_change: true, time_features: true, dropout: 0.1, log_every: 2, checkpoint_every: 2, validate_every: 4}
small:
  <<: *base
  global_batch_size: 4
  grad_accumulation: 2
  num_iters: 4
  lr: 2E-3
  keep_checkpoints: 0
  limit_nsamples: None
)";
  check_done(isobar_command(here, here.train("json", "--num_iters 4")));
  check_done(isobar_command(here, "train --yaml_config " + here / "ViT.yaml" + " --config small --data " +
                                      here / "data" + " --run-dir " + here / "yaml" + " --threads 1 --device cpu"));
  CHECK(read_file(here / "yaml/config.json") == read_file(here / "json/config.json"));
}

TEST_CASE("a key given by --set wins over its flag, the flag over the config") {
  const Playground here;
  check_done(isobar_command(here, here.train("run", "--num_iters 4 --local_batch_size 2 --set num_iters=3")));
  const json config = json::parse(read_file(here / "run/config.json"));
  CHECK(config.at("num_iters") == 3);
  CHECK(config.at("global_batch_size") == 2);
  CHECK(json::parse(read_file(here / "run/summary.json")).at("iterations") == 3);
}

TEST_CASE("config.json repeats a run") {
  const Playground here;
  check_done(isobar_command(here, here.train("run", "--set seed=3 --num_iters 4")));
  const std::string again = "train --config " + here / "run/config.json" + " --threads 1 --device cpu --run-dir ";
  check_done(isobar_command(here, again + here / "again"));
  const std::string file = "/checkpoints/step_00000004/model.safetensors";
  const auto same = [&](const std::string& other) { return read_file(here / "run" + file) == read_file(other + file); };
  CHECK(same(here / "again"));
  CHECK(read_file(here / "run/config.json") == read_file(here / "again/config.json"));
  check_done(isobar_command(here, again + here / "other" + " --set seed=4"));
  CHECK_FALSE(same(here / "other"));
}

// Parts and ends of epochs that are uneven, an average of the weights, a rate by epochs, a loss scale that moves.
const std::string kUneven =
    "--amp_mode fp16 --set global_batch_size=5 --set incomplete_batch=keep --set ema=0.9 --set lr_step=epoch"
    " --set end_lr=1e-4 --set warmup=3 --set hysteresis=2 --set loss_scale_window=3 --set initial_loss_scale=1e30";

TEST_CASE("a run that was stopped or killed and resumed ends with the same bits") {
  const Playground here;
  const auto [signal, precision] = GENERATE(table<int, std::string>({{SIGTERM, "--amp_mode none"},
                                                                     {SIGINT, "--amp_mode bf16"},
                                                                     {SIGUSR1, "--set dtype=fp64"},
                                                                     {SIGKILL, "--amp_mode fp16"},
                                                                     {SIGTERM, kUneven}}));
  check_done(isobar_command(here, here.train("whole", precision)));
  const Outcome stopped = isobar_command(here, here.train("broken", precision),
                                         signal_when(here / "broken/checkpoints/step_00000004", signal));
  CAPTURE(precision, signal);
  if (signal == SIGKILL) {
    CHECK(stopped.status == -SIGKILL);
  } else {
    CHECK(stopped.status == 75);
    CHECK(stopped.err == "");
    CHECK(stopped.out.ends_with(": run again with --resume\n"));  // below the progress
  }
  CHECK_FALSE(fs::exists(here / "broken/summary.json"));
  check_done(isobar_command(here, here.train("broken", precision + " --resume")));
  check_same_end(here / "whole", here / "broken");

  const Outcome finished = isobar_command(here, here.train("broken", precision + " --resume"));
  check_done(finished);
  CHECK_THAT(finished.out, ContainsSubstring("is finished"));
}

TEST_CASE("a run pauses at every multiple of exit_interval, and goes on as if it had not") {
  const Playground here;
  check_done(isobar_command(here, here.train("whole", "--set exit_interval=100")));
  std::string more;
  for (const int iteration : {5, 10}) {
    const Outcome paused = isobar_command(here, here.train("parts", "--set exit_interval=5" + more));
    check_done(paused);
    const std::string why =
        "paused after iteration " + std::to_string(iteration) + " of 14, at iteration " + std::to_string(iteration);
    CHECK_THAT(paused.out, ContainsSubstring(" - " + why + "; a checkpoint is written to " + here / "parts" +
                                             ": run again with --resume\n"));
    CHECK(read_file(here / "parts/stopped") == why + "\n");
    CHECK_FALSE(fs::exists(here / "parts/summary.json"));
    more = " --resume";
  }
  check_done(isobar_command(here, here.train("parts", "--set exit_interval=5 --resume")));
  CHECK_FALSE(fs::exists(here / "parts/stopped"));
  CHECK(metrics_of(here / "parts") == metrics_of(here / "whole"));
  const std::string last = "/checkpoints/step_00000014/optimizer.safetensors";
  CHECK((read_file(here / "parts" + last) == read_file(here / "whole" + last)));
}

TEST_CASE("a run pauses when its minutes are over, behind an iteration of its own at least") {
  const Playground here;
  const std::string soon = "--set exit_duration_mins=1e-9";
  for (const auto& [iteration, more] : {std::pair("1", ""), std::pair("2", " --resume")}) {
    const Outcome paused = isobar_command(here, here.train("run", soon + more));
    check_done(paused);
    CHECK_THAT(paused.out,
               ContainsSubstring(std::string(" - paused after iteration ") + iteration + " of 14, after ") &&
                   ContainsSubstring(" minutes; a checkpoint is written to "));
  }
  const Outcome whole = isobar_command(here, here.train("run", "--resume --set exit_duration_mins=60"));
  check_done(whole);
  CHECK_THAT(whole.out, !ContainsSubstring("paused"));
}

TEST_CASE("a config may say that a run goes on by itself, and an overwritten run begins again") {
  const Playground here;
  const auto paused_at = [&](const std::string& more) {
    const Outcome outcome = isobar_command(here, here.train("run", "--set exit_interval=5 " + more));
    check_done(outcome);
    const std::size_t begin = outcome.out.find(" - paused after iteration ");
    return begin == std::string::npos ? ""
                                      : outcome.out.substr(begin + 26, outcome.out.find(' ', begin + 26) - begin - 26);
  };
  const std::string automatic = "--set resume=auto";
  CHECK(paused_at(automatic) == "5");
  check_error(isobar_command(here, here.train("run", "--set exit_interval=5")), "holds a run already: give --resume");
  CHECK(paused_at(automatic) == "10");
  CHECK(paused_at(automatic + " --overwrite") == "5");
  CHECK(paused_at(automatic) == "10");
}

TEST_CASE("a run starts from another run's best weights, and info tells what weights say") {
  const Playground here;
  check_done(isobar_command(here, here.train("first", "--num_iters 4")));
  check_done(isobar_command(here, here.train("file", "--num_iters 2 --init " + here / "first/best/model.safetensors")));
  check_done(isobar_command(here, here.train("folder", "--num_iters 2 --init " + here / "first")));
  const std::string model = "/checkpoints/step_00000002/model.safetensors";
  CHECK(read_file(here / ("file" + model)) == read_file(here / ("folder" + model)));

  for (const std::string weights : {"first", "first/best/model.safetensors"}) {
    const Outcome told = isobar_command(here, "info --json " + here / weights);
    check_done(told);
    const json info = json::parse(told.out);
    CHECK(info.at("metadata").at("isobar.config").at("embed_dim") == 16);
    std::int64_t parameters = 0;
    for (const json& tensor : info.at("tensors")) {
      std::int64_t count = 1;
      for (const std::int64_t extent : tensor.at("shape")) count *= extent;
      parameters += count;
    }
    CHECK(info.at("parameters") == parameters);
    CHECK(json::parse(read_file(here / "first/summary.json")).at("parameters") == parameters);
  }
  const Outcome text = isobar_command(here, "info " + here / "first");
  check_done(text);
  CHECK_THAT(text.out,
             ContainsSubstring("/best/model.safetensors: ") &&
                 ContainsSubstring(" parameters in 22 tensors\nformat: pt\nisobar.config\n  task: forecast\n") &&
                 ContainsSubstring("\n  embed_dim: 16\n") && ContainsSubstring("\nisobar.format: 1\n") &&
                 ContainsSubstring("\ntensors\n  pos_embed: fp32 [1,8,16]\n") &&
                 ContainsSubstring("\n  norm.weight: fp32 [16]\n"));
  check_error(isobar_command(here, "info " + here / "small.json"), "small.json");
}

TEST_CASE("a checkpoint of another run is refused where a run is resumed, and a run of an older isobar goes on") {
  const Playground here;
  const auto copy = [&](const std::string& from, const std::string& to) {
    fs::copy(here / from, here / to, fs::copy_options::recursive);
  };
  check_done(isobar_command(here, here.train("run", "--num_iters 4")));
  check_done(isobar_command(here, here.train("other", "--num_iters 8")));  // another number, and the same weights
  copy("other/checkpoints/step_00000008", "run/checkpoints/step_00000008");
  const std::string resume = here.train("run", "--resume --num_iters 6");
  check_error(isobar_command(here, resume), "step_00000008 is of another run");
  fs::remove_all(here / "run/checkpoints/step_00000008");
  fs::remove(here / "run/run_id");
  check_done(isobar_command(here, resume));
  CHECK(metrics_of(here / "run").back().at("iteration") == 6);
  CHECK(json::parse(read_file(here / "run/checkpoints/step_00000006/state.json")).at("run_id").get<std::string>() +
            "\n" ==
        read_file(here / "run/run_id"));

  fs::create_directories(here / "stripped");
  copy("other/checkpoints", "stripped/checkpoints");  // its files were deleted, its checkpoints were not
  for (const char* more : {"", "--resume", "--overwrite"})
    check_error(isobar_command(here, here.train("stripped", more)), "config.json is missing");
}

TEST_CASE("the best weights stay the best when a run that only gets worse is resumed") {
  const Playground here;
  const std::string worse = "--set lr=1 --set lr_schedule=constant";
  check_done(isobar_command(here, here.train("whole", worse)));
  REQUIRE(json::parse(read_file(here / "whole/best/state.json")).at("trainer").at("iteration") == 0);  // persistence
  isobar_command(here, here.train("broken", worse), signal_when(here / "broken/checkpoints/step_00000006", SIGKILL));
  check_done(isobar_command(here, here.train("broken", worse + " --resume")));
  check_same_end(here / "whole", here / "broken");
  const std::string log = read_file(here / "broken/out.log");  // the process that ends it has not seen its iteration
  CHECK_THAT(log.substr(log.rfind("best validation loss ")), ContainsSubstring(", of iteration 0: "));
}

TEST_CASE("of weights with one validation loss the first are the best") {
  const Playground here;
  check_done(isobar_command(here, here.train("run", "--num_iters 4 --set validate_every=2 --set lr=1e-30")));
  CHECK(json::parse(read_file(here / "run/best/state.json")).at("trainer").at("iteration") == 0);
}

TEST_CASE("the last iteration is logged, validated and saved, whatever the intervals") {
  const Playground here;
  const std::string every = " --set log_every=2 --set validate_every=2 --set checkpoint_every=2";
  check_done(isobar_command(here, here.train("run", "--num_iters 3" + every)));
  std::vector<std::int64_t> trained, validated;
  for (const json& line : metrics_of(here / "run"))
    (line.at("event") == "train" ? trained : validated).push_back(line.at("iteration"));
  CHECK(trained == std::vector<std::int64_t>{2, 3});
  CHECK(validated == std::vector<std::int64_t>{0, 2, 3});
  CHECK(fs::exists(here / "run/checkpoints/step_00000003"));

  // A config may leave out the validation at the start. Of the last, unfinished epoch the summary has the mean.
  check_done(isobar_command(here, here.train("late",
                                             "--num_iters 15 --set validate_at_start=false --set log_every=1"
                                             " --set validate_every=0")));
  validated.clear();
  std::vector<double> losses;
  for (const json& line : metrics_of(here / "late")) {
    if (line.at("event") == "valid") validated.push_back(line.at("iteration"));
    if (line.at("event") != "train") continue;
    CHECK(line.at("epoch") == (line.at("iteration").get<std::int64_t>() + 5) / 6);  // of 24 samples in batches of 4
    losses.push_back(line.at("loss"));
  }
  CHECK(validated == std::vector<std::int64_t>{6, 12, 15});
  REQUIRE(losses.size() == 15);
  const json summary = json::parse(read_file(here / "late/summary.json"));
  CHECK(std::abs(summary.at("train_loss").get<double>() - (losses[12] + losses[13] + losses[14]) / 3) < 1e-9);
}

TEST_CASE("TensorBoard has what metrics.jsonl has, and the config") {
  const Playground here;
  check_done(isobar_command(here, here.train("run", "--num_iters 4 --amp_mode fp16 --set seed=7")));
  const fs::path file = *fs::directory_iterator(here / "run/logs");
  const TensorBoardEvents events(file);
  const auto check = [&](const std::string& tag, const json& line, const json& value) {
    INFO(tag);
    CHECK(events.scalars.at({tag, line.at("iteration").get<std::int64_t>()}) == Approx(value.get<double>()));
  };
  for (const json& line : metrics_of(here / "run")) {
    if (line.at("event") == "train") {
      check("Iteration/loss", line, line.at("loss"));
      check("Iteration/learning rate", line, line.at("lr"));
      check("Iteration/loss scale", line, line.at("loss_scale"));
      if (line.contains("grad_norm")) check("Iteration/gradient norm", line, line.at("grad_norm"));
    } else {
      for (const std::string& name : kNames) {
        check("RMSE/" + name, line, line.at("rmse").at(name));
        check("RMSE of persistence/" + name, line, line.at("persistence_rmse").at(name));
      }
    }
  }
  CHECK_THAT(read_file(file), ContainsSubstring("| seed | `7` |") && ContainsSubstring("^RMSE of persistence/t2m$"));
  CHECK_THAT(read_file(here / "run/out.log"),
             ContainsSubstring(": device cpu, precision fp16, 1 rank with 1 thread\n"));
  CHECK(json::parse(read_file(here / "run/summary.json")).at("precision") == "fp16");
}

TEST_CASE("the maps of a validation are of the variables that picture_channels names") {
  const Playground here;
  const auto maps_of = [&](const std::string& run) {
    std::vector<std::string> names;
    for (const fs::directory_entry& file : fs::directory_iterator(here / run + "/images"))
      if (file.path().filename().string().ends_with("_00000001.png")) names.push_back(file.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  };
  check_done(isobar_command(here, here.train("run", "--num_iters 1")));
  CHECK(maps_of("run") == std::vector<std::string>{"map_t2m_00000001.png"});
  check_done(isobar_command(here, here.train("two", "--num_iters 1 --set 'picture_channels=[\"v10\",\"u10\"]'")));
  CHECK(maps_of("two") == std::vector<std::string>{"map_u10_00000001.png", "map_v10_00000001.png"});
  const TensorBoardEvents events(*fs::directory_iterator(here / "two/logs"));
  CHECK(events.images.contains({"Visualization, v10", 1}));
  CHECK_FALSE(events.images.contains({"Visualization, t2m", 1}));
  check_done(isobar_command(here, here.train("none", "--num_iters 1 --set picture_channels=[]")));
  CHECK(maps_of("none").empty());
  check_error(isobar_command(here, here.train("bad", "--set 'picture_channels=[\"z500\"]'")),
              "config key picture_channels names z500, which is not among the 3 variables of the forecast (u10, ...)");
  check_error(isobar_command(here, here.train("bad", "--set 'picture_channels=[\"u10\",\"u10\"]'")), "u10 twice");
  CHECK_FALSE(fs::exists(here / "bad"));
}

TEST_CASE("TensorBoard hides what a resumed run repeats") {
  const Playground here;
  check_done(isobar_command(here, here.train("run", "--num_iters 2")));
  const fs::path first = *fs::directory_iterator(here / "run/logs");
  CHECK(TensorBoardEvents(first).purge_step == -1);
  check_done(isobar_command(here, here.train("run", "--num_iters 4 --resume")));
  for (const fs::directory_entry& file : fs::directory_iterator(here / "run/logs"))
    if (file.path() != first) CHECK(TensorBoardEvents(file.path()).purge_step == 3);
}

TEST_CASE("a run that is resumed without a checkpoint begins again, and hides all of before") {
  const Playground here;
  check_done(isobar_command(here, here.train("whole", "--num_iters 4")));
  check_done(isobar_command(here, here.train("run", "--num_iters 4")));
  const fs::path first = *fs::directory_iterator(here / "run/logs");
  for (const char* weights : {"run/checkpoints", "run/best"}) fs::remove_all(here / weights);
  const Outcome again = isobar_command(here, here.train("run", "--num_iters 4 --resume"));
  check_done(again);
  CHECK_THAT(again.out, ContainsSubstring("no checkpoint in " + here / "run" + ": starting\n"));
  CHECK(metrics_of(here / "run") == metrics_of(here / "whole"));
  for (const fs::directory_entry& file : fs::directory_iterator(here / "run/logs"))
    if (file.path() != first) CHECK(TensorBoardEvents(file.path()).purge_step == 0);
}

TEST_CASE("a damaged checkpoint is passed over, and named") {
  const Playground here;
  check_done(isobar_command(here, here.train("whole", "--set checkpoint_every=1")));
  fs::copy(here / "whole", here / "damaged", fs::copy_options::recursive);
  fs::remove(here / "damaged/summary.json");
  {
    std::fstream file(here / "damaged/checkpoints/step_00000014/optimizer.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-5, std::ios::end);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(-5, std::ios::end);
    file.put(byte);
  }
  const Outcome resumed = isobar_command(here, here.train("damaged", "--set checkpoint_every=1 --resume"));
  CHECK(resumed.status == 0);
  CHECK(std::count(resumed.err.begin(), resumed.err.end(), '\n') == 1);
  CHECK_THAT(resumed.err, ContainsSubstring("step_00000014"));
  CHECK_THAT(resumed.out, ContainsSubstring("step_00000013, after iteration 13"));
  check_same_end(here / "whole", here / "damaged");
}

TEST_CASE("a run in the way, weights that do not fit and bad data are errors that leave nothing behind") {
  const Playground here;
  check_done(isobar_command(here, here.train("run", "--num_iters 2")));
  check_error(isobar_command(here, here.train("run", "--num_iters 2")), "holds a run already");
  const Outcome other = isobar_command(here, here.train("run", "--num_iters 4 --resume --set seed=9"));
  check_error(other, "config key seed in --set is 9, but 0");
  check_done(isobar_command(here, here.train("run", "--num_iters 2 --overwrite")));
  const Outcome fresh = isobar_command(here, here.train("fresh", "--num_iters 2 --resume"));
  check_done(fresh);
  CHECK_THAT(fresh.out, ContainsSubstring("no checkpoint in"));

  const std::string init = "--init " + here / "run/best/model.safetensors";
  check_done(isobar_command(here, here.train("warm", "--num_iters 2 " + init)));
  check_error(isobar_command(here, here.train("cold", "--set embed_dim=32 " + init)), "has shape");
  check_error(isobar_command(here, here.train("cold", "--set depth=2 " + init)), "blocks.1.");
  check_error(isobar_command(here, here.train("cold", "--local_batch_size 28")), "global_batch_size is 28");
  check_error(isobar_command(here, here.train("cold", "--set n_in_channels=4")), "n_in_channels is 4");
  check_error(isobar_command(here, here.train("cold", "--set 'channel_names=[\"u10\",\"t2m\",\"v10\"]'")), "t2m");
  check_error(isobar_command(here, here.train("cold", "--set train_range=[5,900]")), "train_range");
  check_error(isobar_command(here, here.train("cold", "--set global_stds_path=/none.npy")), "/none.npy");
  if (isobar::gpu::device_count() == 0)
    check_error(isobar_command(here, "train --config tiny --data " + here / "data" + " --run-dir " + here / "cold" +
                                         " --device cuda"),
                "--device cuda: ");
  CHECK_FALSE(fs::exists(here / "cold"));
}

TEST_CASE("a flat folder is split by its ranges") {
  const Playground here;
  fs::copy(here / "data/stats", here / "flat");
  fs::copy(here / "data/train/2001.h5", here / "flat/2001.h5");
  const Outcome outcome = isobar_command(
      here, "train --config " + here / "small.json" + " --data " + here / "flat" + " --run-dir " + here / "run" +
                " --threads 1 --num_iters 2 --set train_range=[0,20] --set valid_range=[20,27]");
  check_done(outcome);
  CHECK_THAT(outcome.out, ContainsSubstring("19 training samples") && ContainsSubstring("6 validation samples"));
}

namespace {

// A config that leaves everything to the data.
std::string train_on(const Playground& here, const std::string& data, const std::string& run,
                     const std::string& more = "") {
  std::ofstream(here / "open.json") << R"({
    "extends": "small.json", "patch_size": null, "img_size": null, "n_in_channels": null, "n_out_channels": null,
    "time_features": null, "num_iters": 3})";
  return "train --config " + here / "open.json" + " --data " + here / data + " --run-dir " + here / run +
         " --threads 1 --device cpu " + more;
}

std::vector<std::int64_t> range_of(const std::string& run, const char* key) {
  return json::parse(read_file(run + "/config.json")).at(key);
}

// All values of `fields` in a forecast of two steps.
std::vector<float> fields_in(const std::string& file) {
  std::vector<float> fields(2 * kChannels * kHeight * kWidth);
  isobar::hdf5::File::open(file).read("fields", std::array<std::int64_t, 4>{},
                                      std::array<std::int64_t, 4>{2, kChannels, kHeight, kWidth}, fields.data());
  return fields;
}

}  // namespace

TEST_CASE("a folder with one file trains: sizes, split and statistics are the data's") {
  const Playground here;
  write_year(here / "own/2001.h5", 27, kNames);
  const Outcome outcome = isobar_command(here, train_on(here, "own", "run"));
  check_done(outcome);
  CHECK_THAT(outcome.out, ContainsSubstring("img_size [8,16], n_in_channels 3, n_out_channels 3") &&
                              ContainsSubstring("train_range [0,21], valid_range [21,27]") &&
                              ContainsSubstring("no statistics in " + here / "own") &&
                              ContainsSubstring("20 training samples") && ContainsSubstring("5 validation samples"));
  const json config = json::parse(read_file(here / "run/config.json"));
  CHECK(config.at("img_size") == json::array({8, 16}));
  CHECK(config.at("time_features") == false);  // 27 steps are no year
  CHECK(config.at("channel_names") == kNames);
  CHECK(config.at("global_means_path") == here / "run/stats/global_means.npy");

  // The statistics are those of the training steps alone.
  const isobar::FieldSeries training({.paths = {here / "own"}, .range = isobar::StepRange{0, 21}});
  const isobar::ComputedStatistics expected = isobar::compute_statistics(training);
  const isobar::Statistics made =
      isobar::load_statistics(here / "run/stats/global_means.npy", here / "run/stats/global_stds.npy", kChannels);
  CHECK(made.means == expected.means);
  CHECK(made.stds == expected.stds);

  // A run is repeated from its config, with its statistics, and goes on with them.
  const std::string again = "train --threads 1 --device cpu --config " + here / "run/config.json" + " --run-dir ";
  check_done(isobar_command(here, again + here / "again"));
  CHECK(read_file(here / "run/config.json") == read_file(here / "again/config.json"));
  check_done(isobar_command(here, train_on(here, "own", "run", "--resume --num_iters 5")));
  check_done(isobar_command(here, again + here / "run" + " --overwrite --num_iters 3"));
  const std::string weights = "/checkpoints/step_00000003/model.safetensors";
  const bool same = read_file(here / "run" + weights) == read_file(here / "again" + weights);
  CHECK(same);
  CHECK(fs::exists(here / "run/stats/global_stds.npy"));
  // A forecast takes the climatology from there as well.
  for (const char* weights_of :
       {"run", "run/best/model.safetensors", "run/checkpoints/step_00000003/model.safetensors"}) {
    check_done(isobar_command(here, "forecast --weights " + here / weights_of + " --data " + here / "own" +
                                        " --start 20 --steps 2 --threads 1 --scores " + here / "s.json"));
    CHECK(json::parse(read_file(here / "s.json")).at("acc").at("t2m").size() == 2);
  }
  // Statistics that are given take the place of all of the run's own, the climatology too.
  fs::copy(here / "run/stats", here / "given");
  fs::remove(here / "given/time_means.npy");
  const Outcome without =
      isobar_command(here, "forecast --weights " + here / "run" + " --data " + here / "own" + " --stats " +
                               here / "given" + " --start 20 --steps 2 --threads 1 --scores " + here / "s.json");
  check_done(without);
  CHECK_THAT(without.out, ContainsSubstring("no " + here / "given/time_means.npy" + ": no ACC"));
  CHECK_FALSE(json::parse(read_file(here / "s.json")).contains("acc"));
  // Weights from elsewhere take no statistics that happen to lie near them.
  fs::create_directories(here / "shelf/weights");
  fs::copy(here / "run/stats", here / "shelf/stats");
  const isobar::SafetensorsFile file(here / "run/best/model.safetensors");
  isobar::write_safetensors(here / "shelf/weights/bare.safetensors", file.tensors());
  check_error(isobar_command(here, "forecast --weights " + here / "shelf/weights/bare.safetensors" + " --config " +
                                       here / "run/config.json" + " --data " + here / "own" +
                                       " --start 20 --steps 2 --threads 1 --scores " + here / "s.json"),
              here / "own/global_means.npy");
}

TEST_CASE("a resumed run keeps the statistics that it has made, whatever its data are now") {
  const Playground here;
  write_year(here / "own/2001.h5", 27, kNames);
  check_done(isobar_command(here, train_on(here, "own", "run")));
  const auto statistics = [&] {
    return read_file(here / "run/stats/global_means.npy") + read_file(here / "run/stats/global_stds.npy");
  };
  const std::string before = statistics();
  std::vector<float> other(27 * kChannels * kHeight * kWidth);
  for (std::size_t i = 0; i < other.size(); ++i) {
    const auto c = static_cast<float>(i / (kHeight * kWidth) % kChannels);
    other[i] = 100 * c + 1.2F * (1 + c) * std::cos(0.1F * static_cast<float>(i));
  }
  isobar::hdf5::File file = isobar::hdf5::File::create(here / "own/2001.h5");
  file.write("fields", std::array<std::int64_t, 4>{27, kChannels, kHeight, kWidth}, std::span<const float>(other));
  file.write("channel", kNames);
  file.close();
  const Outcome resumed = isobar_command(here, train_on(here, "own", "run", "--resume --num_iters 5"));
  check_done(resumed);
  CHECK_THAT(resumed.out, ContainsSubstring("the run's own are taken, " + here / "run/stats"));
  CHECK((statistics() == before));
}

TEST_CASE("data that tell no time train without it") {
  const Playground here;
  write_year(here / "own/x.h5", 27, kNames);
  check_done(isobar_command(here, train_on(here, "own", "run")));
  CHECK(json::parse(read_file(here / "run/config.json")).at("time_features") == false);
}

// What stays open after a line, a checkpoint, a validation, a picture or an epoch ends a long run.
TEST_CASE("a run needs no more open files the longer it is") {
  constexpr rlim_t kOpenFiles = 32;  // it needs less than half of them
  const Playground here;
  const isobar::testing::ResourceLimit limit(RLIMIT_NOFILE, kOpenFiles);
  // Every iteration is an epoch with all of these.
  const std::string each = "--set train_range=[0,5] --set log_every=1 --set checkpoint_every=1 --set validate_every=1 ";
  check_done(isobar_command(here, here.train("run", each + "--set keep_checkpoints=2 --num-iters 40")));
  CHECK(std::distance(fs::directory_iterator(here / "run/checkpoints"), fs::directory_iterator()) == 2);
  CHECK(fs::exists(here / "run/images/map_t2m_00000040.png"));
}

TEST_CASE("validation on training steps is refused unless it is asked for") {
  const Playground here;
  write_year(here / "own/2001.h5", 27, kNames);
  check_error(isobar_command(here, train_on(here, "own", "run", "--set train_range=[0,20] --set valid_range=[18,27]")),
              "share steps 18 to 19 of");
  check_error(isobar_command(here, train_on(here, "own", "run", "--set train_range=[0,20] --set valid_range=[19,27]")),
              "share steps 19 to 19 of");
  const std::string other_path = "--set train_data_path=" + here / "own/2001.h5 ";
  check_error(isobar_command(here, train_on(here, "own", "run", other_path)), "allow_overlap");
  CHECK_FALSE(fs::exists(here / "run"));
  check_done(isobar_command(here, train_on(here, "own", "run", other_path + "--set allow_overlap=true")));
  check_done(isobar_command(here, train_on(here, "own", "rest", "--set train_range=[0,20]")));
  CHECK(range_of(here / "rest", "valid_range") == std::vector<std::int64_t>{20, 27});
}

TEST_CASE("a file that is one of several to train on, and the one to validate on, is seen twice") {
  const Playground here;
  write_year(here / "own/1979.h5", 20, kNames);
  write_year(here / "own/1980.h5", 10, kNames);
  const std::string both = "--set train_data_path=" + here / "own" + " --set valid_data_path=" + here / "own/1980.h5";
  check_error(isobar_command(here, train_on(here, "own", "run", both)),
              "share steps 0 to 9 of " + here / "own/1980.h5");
  check_error(isobar_command(here, train_on(here, "own", "run", both + " --set train_range=[0,21]")),
              "share steps 0 to 0 of " + here / "own/1980.h5");
  check_done(isobar_command(here, train_on(here, "own", "run", both + " --set train_range=[0,20]")));
}

TEST_CASE("a run that fails before its first iteration leaves nothing, and takes nothing away") {
  const Playground here;
  const auto spoil = [&](const std::string& file, std::int64_t steps) {
    std::vector<float> fields(static_cast<std::size_t>(steps * kChannels * kHeight * kWidth), NAN);
    isobar::hdf5::File h5 = isobar::hdf5::File::create(here / file);
    h5.write("fields", std::array{steps, kChannels, kHeight, kWidth}, std::span<const float>(fields));
    h5.write("channel", kNames);
    h5.close();
  };
  check_done(isobar_command(here, here.train("old", "--num_iters 2")));
  const std::string before = read_file(here / "old/metrics.jsonl");
  spoil("data/train/2001.h5", 27);
  check_error(isobar_command(here, here.train("run")), "NaN");
  CHECK_FALSE(fs::exists(here / "run"));
  check_error(isobar_command(here, here.train("old", "--overwrite")), "NaN");
  CHECK(read_file(here / "old/metrics.jsonl") == before);
  CHECK(fs::exists(here / "old/summary.json"));

  // The first step of each set is fine, the first batch of the second one is not.
  write_year(here / "data/train/2001.h5", 27, kNames);
  write_year(here / "data/valid/2002.h5", 2, kNames);
  spoil("data/valid/2003.h5", 6);
  check_error(isobar_command(here, here.train("old", "--overwrite")), "NaN");
  CHECK(read_file(here / "old/metrics.jsonl") == before);

  // The first validation fails later than the first batch is read.
  write_year(here / "data/valid/2002.h5", 6, kNames);
  spoil("data/valid/2003.h5", 6);
  fs::create_directories(here / "mine");
  std::ofstream(here / "mine/notes.txt") << "mine";
  for (const std::string run : {"run", "mine"}) {
    check_error(isobar_command(here, here.train(run,
                                                "--set global_means_path=/n --set global_stds_path=/n "
                                                "--set time_means_path=/n")),
                "NaN");
  }
  CHECK_FALSE(fs::exists(here / "run"));
  CHECK(std::distance(fs::directory_iterator(here / "mine"), fs::directory_iterator()) == 1);
}

TEST_CASE("a run is resumed by its folder alone") {
  const Playground here;
  check_done(isobar_command(here, here.train("whole", "--set seed=3")));
  const Outcome stopped = isobar_command(here, here.train("broken", "--set seed=3"),
                                         signal_when(here / "broken/checkpoints/step_00000004", SIGTERM));
  CHECK(stopped.status == 75);
  check_done(isobar_command(here, "train --resume --threads 1 --run-dir " + here / "broken"));
  check_same_end(here / "whole", here / "broken");
  const Outcome finished = isobar_command(here, "train --resume --run-dir " + here / "broken");
  check_done(finished);
  CHECK_THAT(finished.out, ContainsSubstring("is finished"));
  check_error(isobar_command(here, "train --resume --set seed=4 --run-dir " + here / "broken --num_iters 15"), "seed");
  // Of a key that its isobar did not have yet the run has the value that it was computed by.
  json config = json::parse(read_file(here / "broken/config.json"));
  REQUIRE(config.at("allow_overlap") == false);
  config.erase("allow_overlap");
  std::ofstream(here / "broken/config.json") << config.dump(2);
  check_done(isobar_command(here, "train --resume --threads 1 --num_iters 15 --run-dir " + here / "broken"));
  CHECK(json::parse(read_file(here / "broken/config.json")).at("allow_overlap") == true);
}

TEST_CASE("the seconds of a run are those of all its processes") {
  const Playground here;
  check_done(isobar_command(here, here.train("run", "--num_iters 2")));
  const fs::path last = here / "run/checkpoints/step_00000002";
  json state = json::parse(read_file(last / "state.json"));
  const double first = state.at("wall_seconds");
  CHECK(first > 0);
  state["wall_seconds"] = 1000.0;  // as if it had taken that long
  std::ofstream(last / "state.json") << state.dump(2) << "\n";
  write_checksums(last);
  check_done(isobar_command(here, here.train("run", "--resume --num_iters 4")));
  const double all = json::parse(read_file(here / "run/summary.json")).at("wall_seconds");
  CHECK(all > 1000);
  CHECK(all < 1000 + 300);
}

TEST_CASE("a finished run is one whose summary is of its last checkpoint, at or beyond num_iters") {
  const Playground here;
  check_done(isobar_command(here, here.train("run")));
  const Outcome shorter = isobar_command(here, here.train("run", "--resume --num_iters 6"));
  check_done(shorter);
  CHECK_THAT(shorter.out, ContainsSubstring("is finished, after 14 iterations; --set num_iters=N makes it longer\n"));

  const std::string early = read_file(here / "run/summary.json");
  check_done(isobar_command(here, here.train("run", "--resume --num_iters 16")));
  CHECK(json::parse(read_file(here / "run/summary.json")).at("iterations") == 16);
  std::ofstream(here / "run/summary.json") << early;  // as if killed before the new one was written
  check_done(isobar_command(here, here.train("run", "--resume --num_iters 16")));
  CHECK(json::parse(read_file(here / "run/summary.json")).at("iterations") == 16);
}

TEST_CASE("a forecast from a run, from its weights file, and from weights without a description agree") {
  const Playground here;
  check_done(isobar_command(here, here.train("run")));
  const std::string common = " --data " + here / "data" + " --threads 1 --device cpu --start 1 --steps 3";
  const std::string weights = here / "run/best/model.safetensors";
  check_done(isobar_command(here, "forecast --weights " + here / "run" + common + " --out " + here / "a.h5" +
                                      " --scores " + here / "a.json"));

  isobar::SafetensorsFile file(weights);
  isobar::write_safetensors(here / "bare.safetensors", file.tensors());
  const std::string bare = "forecast --weights " + here / "bare.safetensors" + common + " --out " + here / "b.h5";
  check_error(isobar_command(here, bare), "bare.safetensors does not say what model it is of");
  check_done(isobar_command(here, bare + " --config " + here / "small.json"));
  const bool same_forecast = read_file(here / "a.h5") == read_file(here / "b.h5");
  CHECK(same_forecast);
  const Outcome sized =
      isobar_command(here, bare + " --config " + here / "small.json" + " --set img_size=null --set n_in_channels=null");
  check_done(sized);
  CHECK_THAT(sized.out, ContainsSubstring("from the data: img_size [8,16], n_in_channels 3\n"));
  CHECK_THAT(sized.out, ContainsSubstring("written to " + here / "b.h5" +
                                          ": the forecast from step 1, fields [lead 3, channel 3, 8, 16], HDF5 that "
                                          "h5py, netCDF and xarray read\n"));
  CHECK((read_file(here / "a.h5") == read_file(here / "b.h5")));

  const isobar::hdf5::File h5 = isobar::hdf5::File::open(here / "a.h5");
  CHECK(h5.info("fields").shape == std::vector<std::int64_t>{3, kChannels, kHeight, kWidth});
  CHECK(h5.strings("channel") == kNames);
  CHECK(h5.numbers("lead") == std::vector<double>{1, 2, 3});

  // RMSE again from the files; without latitudes rows weigh as in the tutorial.
  std::vector<float> forecast(kHeight * kWidth), target(forecast.size());
  const isobar::hdf5::File data = isobar::hdf5::File::open(here / "data/test/2003.h5");
  const std::array<std::int64_t, 4> count{1, 1, kHeight, kWidth};
  h5.read("fields", std::array<std::int64_t, 4>{2, 1, 0, 0}, count, forecast.data());
  data.read("fields", std::array<std::int64_t, 4>{4, 1, 0, 0}, count, target.data());
  double sum = 0, weights_sum = 0;
  for (std::int64_t h = 0; h < kHeight; ++h) {
    const double weight = std::cos(3.1416 / 180 * (90 - 180.0 * static_cast<double>(h) / (kHeight - 1)));
    weights_sum += weight;
    for (std::int64_t w = 0; w < kWidth; ++w) {
      const auto i = static_cast<std::size_t>(h * kWidth + w);
      sum += weight * std::pow(forecast[i] - target[i], 2) / kWidth;
    }
  }
  const json scores = json::parse(read_file(here / "a.json"));
  CHECK(scores.at("lead_steps") == json::array({1, 2, 3}));
  CHECK(scores.at("rmse").at("v10").at(2).get<double>() == Approx(std::sqrt(sum / weights_sum)).epsilon(1e-4));
  CHECK(scores.at("acc").at("v10").size() == 3);
  CHECK(scores.at("persistence_rmse").at("v10").at(0).get<double>() > 0);
}

TEST_CASE("a forecast finds data and statistics wherever they lie in the layout") {
  const Playground here;
  check_done(isobar_command(here, here.train("run", "--num_iters 2")));
  const isobar::SafetensorsFile file(here / "run/best/model.safetensors");
  isobar::write_safetensors(here / "bare.safetensors", file.tensors());
  const auto forecast = [&](const std::string& data, const std::string& more = "") {
    fs::remove(here / "f.h5");
    const Outcome outcome = isobar_command(here, "forecast --threads 1 --device cpu --start 1 --config " +
                                                     here / "small.json" + " --weights " + here / "bare.safetensors" +
                                                     " --data " + here / data + " --out " + here / "f.h5" + more);
    return outcome.status == 0 ? read_file(here / "f.h5") : outcome.err;
  };
  const std::string expected = forecast("data");
  REQUIRE(expected.starts_with("\x89HDF"));
  const auto same = [&](const std::string& got) { return got == expected; };
  CHECK(same(forecast("data/test")));
  CHECK(same(forecast("data/test/2003.h5")));
  fs::create_directories(here / "flat");
  fs::copy(here / "data/test/2003.h5", here / "flat/2003.h5");
  CHECK_THAT(forecast("flat"), ContainsSubstring(here / "flat/global_means.npy"));
  CHECK_THAT(forecast("flat/2003.h5"), ContainsSubstring(here / "flat/global_means.npy"));
  CHECK(same(forecast("flat", " --stats " + here / "data/stats")));
  CHECK_THAT(forecast("flat", " --stats " + here / "nowhere"), ContainsSubstring(here / "nowhere/global_means.npy"));
  fs::copy(here / "data/stats", here / "flat");
  CHECK(same(forecast("flat")));
  CHECK(same(forecast("flat/2003.h5")));
  fs::create_directories(here / "flat/stats");  // before the folder itself
  fs::copy(here / "data/stats", here / "flat/stats");
  fs::remove(here / "flat/global_means.npy");
  CHECK(same(forecast("flat")));

  // test/ before valid/ before the folder itself, each only where it holds data.
  const std::string valid = forecast("data/valid");
  REQUIRE(valid.starts_with("\x89HDF"));
  CHECK_FALSE(same(valid));
  fs::remove(here / "data/test/2003.h5");
  CHECK(forecast("data") == valid);
  fs::remove_all(here / "data/test");
  CHECK(forecast("data") == valid);
  fs::remove_all(here / "data/valid");
  CHECK_THAT(forecast("data"), ContainsSubstring(here / "data" + " holds no .h5 files"));
}

TEST_CASE("statistics that a forecast is given take the place of the weights' own") {
  const Playground here;
  check_done(isobar_command(here, here.train("run", "--num_iters 2")));
  // The same weather in other numbers, twice as large and 40 more, with statistics to match: errors are twice as large.
  fs::create_directories(here / "other");
  std::vector<float> fields(9 * kChannels * kHeight * kWidth);
  const std::array<std::int64_t, 4> shape{9, kChannels, kHeight, kWidth}, channels{1, kChannels, 1, 1};
  isobar::hdf5::File::open(here / "data/test/2003.h5")
      .read("fields", std::array<std::int64_t, 4>{}, shape, fields.data());
  for (float& value : fields) value = 2 * value + 40;
  isobar::hdf5::File h5 = isobar::hdf5::File::create(here / "other/2003.h5");
  h5.write("fields", shape, std::span<const float>(fields));
  h5.write("channel", kNames);
  h5.close();
  isobar::write_npy(here / "other/global_means.npy", channels, std::span<const double>(std::array{40., 240., 440.}));
  isobar::write_npy(here / "other/global_stds.npy", channels, std::span<const double>(std::array{1.4, 2.8, 4.2}));

  const std::string base = "forecast --weights " + here / "run" + " --threads 1 --device cpu --start 1 --steps 2";
  check_done(isobar_command(here, base + " --data " + here / "data" + " --scores " + here / "a.json"));
  check_done(isobar_command(
      here, base + " --data " + here / "other" + " --stats " + here / "other" + " --scores " + here / "b.json"));
  const json a = json::parse(read_file(here / "a.json")), b = json::parse(read_file(here / "b.json"));
  for (const std::string& name : kNames)
    CHECK(b.at("rmse").at(name).at(1).get<double>() ==
          Approx(2 * a.at("rmse").at(name).at(1).get<double>()).epsilon(1e-4));
}

TEST_CASE("forecasts over many starts, and those that cannot be") {
  const Playground here;
  check_done(isobar_command(here, here.train("run", "--num_iters 2")));
  const std::string base = "forecast --weights " + here / "run" + " --threads 1 --device cpu --data ";
  const Outcome many = isobar_command(here, base + here / "data" + " --starts 0:6:2 --steps 2 --scores " +
                                                here / "s.json" + " --out " + here / "many.h5");
  check_done(many);
  check_done(isobar_command(here, base + here / "data" + " --start 0 --steps 2 --out " + here / "one.h5"));
  CHECK(fields_in(here / "many.h5") == fields_in(here / "one.h5"));  // of the first start
  fs::remove(here / "one.h5");
  CHECK(json::parse(read_file(here / "s.json")).at("starts") == 3);
  CHECK_THAT(many.out, ContainsSubstring("t2m") && ContainsSubstring("persistence"));
  check_done(isobar_command(here, base + here / "data/test/2003.h5" + " --starts 0:2"));

  // A lead beyond the data has no score.
  check_done(isobar_command(here, base + here / "data" + " --start 7 --steps 2 --scores " + here / "s.json"));
  CHECK(json::parse(read_file(here / "s.json")).at("scored_starts") == json::array({1, 0}));
  check_error(isobar_command(here, base + here / "data" + " --start 9 --out " + here / "f.h5"), "start step 9");
  check_error(isobar_command(here, base + here / "data" + " --start 0 --out /nowhere/f.h5"), "/nowhere/f.h5");
  write_year(here / "other/2003.h5", 5, {"u10", "v10", "sp"});
  check_error(isobar_command(here, base + here / "other" + " --start 0 --out " + here / "f.h5"), "sp");
  CHECK_FALSE(fs::exists(here / "f.h5"));

  check_done(isobar_command(here, base + here / "data" + " --starts 4:-1:-2"));  // 4, 2, 0
  check_error(isobar_command(here, base + here / "data" + " --starts 1:-3:-1"), "below step 0");
}

TEST_CASE("a forecast refuses data that lie upside down") {
  const Playground here;
  const std::vector<double> south{70, 50, 30, 10, -10, -30, -50, -70}, north(south.rbegin(), south.rend());
  write_year(here / "data/train/2001.h5", 27, kNames, south);
  write_year(here / "data/valid/2002.h5", 6, kNames, south);
  check_done(isobar_command(here, here.train("run", "--num_iters 2")));
  const std::string base = "forecast --threads 1 --device cpu --start 0 --weights " + here / "run" + " --data ";
  write_year(here / "data/test/2003.h5", 9, kNames, north);
  check_error(isobar_command(here, base + here / "data" + " --out " + here / "f.h5"), "from south to north");
  write_year(here / "data/valid/2002.h5", 6, kNames, north);
  check_error(isobar_command(here, "evaluate --threads 1 --device cpu --weights " + here / "run"),
              "from south to north");
  write_year(here / "data/test/2003.h5", 9, kNames, south);
  check_done(isobar_command(here, base + here / "data" + " --out " + here / "f.h5"));
}

TEST_CASE("a forecast replaces neither what it is made from nor what is no file") {
  const Playground here;
  check_done(isobar_command(here, here.train("run", "--num_iters 2")));
  const std::string weights = here / "run/best/model.safetensors", data = here / "data/test/2003.h5";
  const std::string base = "forecast --threads 1 --device cpu --start 0 --weights " + weights + " --data " + data;
  const std::string before = read_file(weights) + read_file(data);
  fs::create_symlink(data, here / "link.h5");
  check_error(isobar_command(here, base + " --out " + weights), "would replace the weights");
  check_error(isobar_command(here, base + " --out " + here / "link.h5"), "would replace the data");
  const std::string in_folder =
      "forecast --threads 1 --device cpu --start 0 --weights " + weights + " --data " + here / "data";
  check_error(isobar_command(here, in_folder + " --out " + here / "data/train/2001.h5"), "would replace the data");
  check_error(isobar_command(here, base + " --scores " + here / "data/stats/stats.json"),
              "would replace the statistics");
  for (const char* name : {"global_means.npy", "global_stds.npy", "time_means.npy"})
    check_error(isobar_command(here, base + " --scores " + here / "data/stats/" + name),
                std::string(name) + " would replace the statistics");
  check_error(isobar_command(here, base + " --scores " + here / "run/config.json"), "would replace a file of the run");
  check_error(isobar_command(here, base + " --out " + here / "f" + " --scores " + here / "f"), "both");
  check_error(isobar_command(here, base + " --out " + here / "run"), "is a folder");
  check_error(isobar_command(here, base + " --scores /dev/null"), "not a regular file");
  check_error(isobar_command(here, base + " --out " + here / "f.h5" + " --scores /nowhere/s.json"), "/nowhere");
  CHECK_FALSE(fs::exists(here / "f.h5"));
  CHECK(read_file(weights) + read_file(data) == before);

  std::ofstream(here / "old.h5") << "old";
  fs::create_symlink(here / "old.h5", here / "new.h5");
  check_done(isobar_command(here, base + " --out " + here / "new.h5"));
  CHECK(fs::is_symlink(here / "new.h5"));
  CHECK(fs::file_size(here / "old.h5") > 1000);
}

#ifdef ISOBAR_FAILING_CALLS
TEST_CASE("a stop signal ends a validation, which is made up for after resuming") {
  const Playground here;
  {
    const Fault count({{"FAULT_LOG", here / "reads"}, {"FAULT_PATH", "valid/2002.h5"}});
    check_done(isobar_command(here, here.train("whole")));
  }
  std::vector<std::string> reads;  // their numbers among the calls about this file
  std::istringstream lines(read_file(here / "reads"));
  for (std::string number, call, path; lines >> number >> call && std::getline(lines, path);)
    if (call.starts_with("pread")) reads.push_back(number);
  // Each of the 5 validations reads 5 inputs and targets, in batches of two samples, and one of each for a picture.
  REQUIRE(reads.size() >= 60);
  const auto [from_end, stopped_at] = GENERATE(table<std::size_t, int>({{59, 0}, {11, 14}}));
  const std::string checkpoint = "/checkpoints/step_000000" + std::string(stopped_at == 0 ? "00" : "14");
  {
    const Fault signal(
        {{"FAULT_AT", reads.at(reads.size() - from_end)}, {"FAULT_SIGNAL", "15"}, {"FAULT_PATH", "valid/2002.h5"}});
    CHECK(isobar_command(here, here.train("broken")).status == 75);
  }
  const json owed = json::parse(read_file(here / "broken" + checkpoint + "/state.json"));
  CHECK(owed.at("validation_is_owed") == true);
  CHECK(owed.at("trainer").at("iteration") == stopped_at);
  CHECK(fs::exists(here / "broken/metrics.jsonl") == (stopped_at > 0));
  check_done(isobar_command(here, here.train("broken", "--resume")));
  check_same_end(here / "whole", here / "broken");
  json whole = json::parse(read_file(here / "whole/checkpoints/step_00000014/state.json")),
       broken = json::parse(read_file(here / "broken/checkpoints/step_00000014/state.json"));
  for (json* state : {&whole, &broken}) {
    state->erase("wall_seconds");
    state->erase("run_id");
    for (const char* timed : {"seconds", "data_seconds"}) state->at("epoch").erase(timed);
  }
  CHECK(whole == broken);  // the validation is owed no more
}
#endif

TEST_CASE("a state that contradicts itself is refused, by file and key") {
  const Playground here;
  check_done(isobar_command(here, here.train("run", "--num_iters 4")));
  const std::string resume = here.train("run", "--num_iters 6 --resume");
  const fs::path folder = here / "run/checkpoints/step_00000004";
  const json right = json::parse(read_file(folder / "state.json"));
  const auto refused = [&](const std::string& pointer, const json& value, const std::string& words) {
    json wrong = right;
    wrong[json::json_pointer(pointer)] = value;
    std::ofstream(folder / "state.json") << wrong.dump();
    write_checksums(folder);
    const std::string metrics = read_file(here / "run/metrics.jsonl");
    const Outcome outcome = isobar_command(here, resume);
    check_error(outcome, words);
    CHECK_THAT(outcome.err, ContainsSubstring((folder / "state.json").string()));
    CHECK(read_file(here / "run/metrics.jsonl") == metrics);
  };
  refused("/trainer/iteration", 5, "iteration is 5, but the folder's 4");
  refused("/trainer/updates", -1, "updates is -1");
  refused("/trainer/loss_scale", 0, "loss_scale is 0");
  refused("/trainer/clean_updates", 0.5, "clean_updates is 0.5");
  refused("/cursor/batch", 1.7, "batch is 1.7");
  refused("/epoch/iterations", "x", "iterations is \"x\"");
  refused("/samples", 27, "had 27 samples, and now has 26");
  refused("/samples", 0, "samples is 0, which is not from 1 to ");
  refused("/trainer/iteration", -1, "iteration is -1, which is not from 0 to ");
  refused("/trainer/updates", 5, "updates is 5, which is not from 0 to 4");
  refused("/trainer/clean_updates", -1, "clean_updates is -1, which is not from 0 to 1999");
  refused("/trainer/clean_updates", 2000, "clean_updates is 2000, which is not from 0 to 1999");
  refused("/trainer/loss_scale", 0x1p-25, "loss_scale is 2.98");
  refused("/trainer/loss_scale", 1e39, "loss_scale is 1e+39");
  refused("/trainer/loss_scale", "1", "loss_scale is \"1\", which is no number of this kind");
  refused("/cursor/epoch", -1, "epoch is -1");
  refused("/cursor/epoch", std::numeric_limits<std::int64_t>::max(), "epoch is 9223372036854775807, which is not");
  refused("/cursor/batch", 14, "batch is 14, which is not from 0 to 12");
  refused("/epoch/seconds", -0.5, "seconds is -0.5");
  refused("/epoch/data_seconds", -0.5, "data_seconds is -0.5");
  refused("/wall_seconds", -1, "wall_seconds is -1");
  refused("/best_loss", "low", "best_loss is \"low\"");
  refused("/trainer", json::object(), "iteration is missing");
  refused("/epoch", nullptr, "iterations is missing");
  refused("/validation_is_owed", 3, "a key is missing, or of another kind");
  std::ofstream(folder / "state.json") << right.dump();
  write_checksums(folder);
  check_done(isobar_command(here, resume));
}

TEST_CASE("weights and losses that are not finite end a run and are never the best") {
  const Playground here;
  const std::string far = "--num_iters 1 --set warmup=0 --set lr=1e38 ";
  const Outcome outcome = isobar_command(here, here.train("run", far + "--set eps=1e-38 --set weight_decay=1e38"));
  check_error(outcome, "iteration 1: ");
  CHECK_THAT(outcome.err, ContainsSubstring("not finite") || ContainsSubstring("the validation loss is"));
  CHECK(json::parse(read_file(here / "run/best/state.json")).at("trainer").at("iteration") == 0);
  CHECK_FALSE(fs::exists(here / "run/checkpoints/step_00000001"));
  CHECK_FALSE(fs::exists(here / "run/summary.json"));
}

TEST_CASE("moments that are not finite end a run though weights and losses are finite still") {
  const Playground here;
  const Outcome outcome = isobar_command(
      here,
      here.train("run", "--num_iters 1 --set loss=weighted_mse --set 'channel_weights=[1e25,1e25,1e25]' --set lr=0"));
  check_error(outcome, "iteration 1: v.");
  CHECK_THAT(outcome.err,
             ContainsSubstring(" is not finite after the update; a lower lr, warmup or grad_clip may help"));
  CHECK_FALSE(fs::exists(here / "run/checkpoints/step_00000001"));
}

TEST_CASE("a validation loss that is not finite ends a run before it begins") {
  const Playground here;
  std::vector<float> fields;  // the means everywhere: a target without any anomaly to be relative to
  for (std::int64_t i = 0; i < 6 * kChannels * kHeight * kWidth; ++i)
    fields.push_back(static_cast<float>(100 * (i / (kHeight * kWidth) % kChannels)));
  isobar::hdf5::File h5 = isobar::hdf5::File::create(here / "data/valid/2002.h5");
  h5.write("fields", std::array{std::int64_t{6}, kChannels, kHeight, kWidth}, std::span<const float>(fields));
  h5.write("channel", kNames);
  h5.close();
  const Outcome outcome = isobar_command(here, here.train("run", "--num_iters 2 --set predict_change=false"));
  check_error(outcome, "iteration 0: the validation loss is ");
  CHECK_THAT(outcome.err, ContainsSubstring(" before any update\n"));
  CHECK_FALSE(fs::exists(here / "run"));
}

TEST_CASE("weights with numbers that are not finite, or tensors too many, are refused by name") {
  const Playground here;
  check_done(isobar_command(here, here.train("run", "--num_iters 2")));
  const isobar::SafetensorsFile file(here / "run/best/model.safetensors");
  const std::string name = "blocks.0.mlp.fc1.weight";
  std::vector<std::byte> values(file.at(name).bytes.begin(), file.at(name).bytes.end());
  const float nan = std::nanf("");
  std::memcpy(values.data() + 8, &nan, sizeof nan);
  std::vector<isobar::TensorBytes> tensors;
  for (isobar::TensorBytes tensor : file.tensors()) {
    if (tensor.info.name == name) tensor.bytes = values;
    tensors.push_back(tensor);
  }
  isobar::write_safetensors(here / "nan.safetensors", tensors, file.metadata());
  tensors.assign(file.tensors().begin(), file.tensors().end());
  tensors.push_back(file.at(name));
  tensors.back().info.name = "blocks.0.extra";
  isobar::write_safetensors(here / "extra.safetensors", tensors, file.metadata());
  const std::string forecast =
      " --threads 1 --device cpu --start 0 --data " + here / "data" + " --out " + here / "f.h5";
  for (const auto& [weights, words] : {std::pair("nan", name + " holds numbers that are not finite"),
                                       std::pair("extra", std::string("\"blocks.0.extra\" is unknown"))}) {
    const std::string path = here / weights + ".safetensors";
    check_error(isobar_command(here, "forecast --weights " + path + forecast), words);
    check_error(isobar_command(here, here.train("warm", "--init " + path)), words);
  }
  CHECK_FALSE(fs::exists(here / "f.h5"));
}

TEST_CASE("a description of weights that contradicts itself is refused") {
  const Playground here;
  check_done(isobar_command(here, here.train("run", "--num_iters 2")));
  const isobar::SafetensorsFile file(here / "run/best/model.safetensors");
  const json right = json::parse(file.metadata().at("isobar.grid"));
  const auto refused = [&](const char* key, const json& value, const std::string& words) {
    json wrong = right;
    wrong[key] = value;
    isobar::Metadata metadata = file.metadata();
    metadata["isobar.grid"] = wrong.dump();
    isobar::write_safetensors(here / "wrong.safetensors", file.tensors(), metadata);
    const Outcome outcome = isobar_command(here, "forecast --threads 1 --device cpu --start 0 --data " + here / "data" +
                                                     " --out " + here / "f.h5 --weights " + here / "wrong.safetensors");
    check_error(outcome, words);
    CHECK_THAT(outcome.err, ContainsSubstring("wrong.safetensors: "));
  };
  refused("channels", json::array(), "channels are 0 and not 3");
  refused("channels", {"u10", "v10", "u10"}, "channels holds a name twice");
  refused("channels", {"u10", "", "t2m"}, "channels holds an empty name");
  refused("means", json::array(), "means are 0 and not 3");
  refused("means", {1, 2}, "means are 2 and not 3");
  refused("means", {1, 2, nullptr}, "damaged");
  refused("stds", {1, 2, 3, 4}, "stds are 4 and not 3");
  refused("stds", {1, 0, 3}, "stds are not all above 0");
  refused("stds", {1, -2, 3}, "stds are not all above 0");
  refused("row_weights", {1, 2}, "row_weights are 2 and not 8");
  refused("latitudes", {1, 2}, "latitudes are 2 and not 8");
  refused("longitudes", {1, 2}, "longitudes are 2 and not 16");
}

TEST_CASE("a forecast of the first channels alone has their units, and is one step long") {
  const Playground here;
  check_done(isobar_command(here, here.train("run", "--num_iters 2 --set n_out_channels=2")));
  const isobar::SafetensorsFile file(here / "run/best/model.safetensors");
  isobar::Metadata metadata = file.metadata();
  metadata["isobar.units"] = R"(["m/s", "m/s", "K"])";
  isobar::write_safetensors(here / "units.safetensors", file.tensors(), metadata);
  const std::string forecast = "forecast --threads 1 --device cpu --start 0 --data " + here / "data" + " --out " +
                               here / "f.h5 --weights " + here / "units.safetensors";
  check_done(isobar_command(here, forecast));
  const isobar::hdf5::File written = isobar::hdf5::File::open(here / "f.h5");
  CHECK(written.strings("channel") == std::vector<std::string>{"u10", "v10"});
  CHECK(written.strings("units") == std::vector<std::string>{"m/s", "m/s"});
  check_error(isobar_command(here, forecast + " --steps 2"), "n_out_channels");
}

TEST_CASE("units and lead time of weights that contradict themselves are refused") {
  const Playground here;
  check_done(isobar_command(here, here.train("run", "--num_iters 2")));
  const isobar::SafetensorsFile file(here / "run/best/model.safetensors");
  const auto forecast_with = [&](const char* key, const std::string& value) {
    isobar::Metadata metadata = file.metadata();
    metadata[key] = value;
    isobar::write_safetensors(here / "wrong.safetensors", file.tensors(), metadata);
    return isobar_command(here, "forecast --threads 1 --device cpu --start 0 --data " + here / "data" + " --out " +
                                    here / "f.h5 --weights " + here / "wrong.safetensors");
  };
  const std::string name = "wrong.safetensors: ";
  check_error(forecast_with("isobar.units", R"(["m/s"])"), name + "isobar.units has 1 entries for 3 channels");
  check_error(forecast_with("isobar.units", R"(["m/s", "m/s", "K", "K"])"), name + "isobar.units has 4 entries");
  check_error(forecast_with("isobar.units", "[1, 2, 3]"), name + "the description of the model in its metadata is");
  check_error(forecast_with("isobar.units", "["), name + "isobar.units: is not valid JSON");
  check_error(forecast_with("isobar.lead_hours", "0"), name + "isobar.lead_hours is 0");
  check_error(forecast_with("isobar.lead_hours", "-6"), name + "isobar.lead_hours is -6");
  check_error(forecast_with("isobar.lead_hours", "\"6\""), name + "the description of the model in its metadata is");
  check_error(forecast_with("isobar.config", "[]"), name + "the description of the model in its metadata is damaged");
  check_error(forecast_with("isobar.config", "{\"depth\": 0}"), name + "config key depth in its metadata must be");
  for (const char* key : {"img_size", "patch_size", "n_in_channels", "n_out_channels", "time_features"}) {
    json config = json::parse(file.metadata().at("isobar.config"));
    config[key] = nullptr;
    check_error(forecast_with("isobar.config", config.dump()),
                name + "config key " + key + " in its metadata is null where no data can fill it");
  }
  check_error(forecast_with("isobar.grid", "{}"), name + "the description of the model in its metadata is damaged");
  isobar::Metadata half = file.metadata();
  half.erase("isobar.grid");
  isobar::write_safetensors(here / "half.safetensors", file.tensors(), half);
  check_error(isobar_command(here, "forecast --threads 1 --device cpu --start 0 --data " + here / "data" + " --out " +
                                       here / "f.h5 --weights " + here / "half.safetensors"),
              "half.safetensors does not say what model it is of");
  check_done(forecast_with("isobar.units", R"(["m/s", "m/s", "K"])"));
  CHECK(isobar::hdf5::File::open(here / "f.h5").strings("units") == std::vector<std::string>{"m/s", "m/s", "K"});
  CHECK(file.metadata().at("format") == "pt");
  CHECK(file.metadata().at("isobar.format") == "1");
}

TEST_CASE("a forecast with dt 2 goes two steps of the data at a time, and is scored to their end") {
  const Playground here;
  check_done(isobar_command(here, here.train("run", "--num_iters 2 --set dt=2")));
  const std::string base = "forecast --weights " + here / "run" + " --threads 1 --device cpu --data " + here / "data";
  check_done(isobar_command(here, base + " --start 0 --steps 4 --scores " + here / "s.json --out " + here / "f.h5"));
  CHECK(json::parse(read_file(here / "s.json")).at("lead_steps") == json::array({2, 4, 6, 8}));
  CHECK(isobar::hdf5::File::open(here / "f.h5").numbers("lead") == std::vector<double>{2, 4, 6, 8});
  check_done(isobar_command(here, base + " --start 0 --steps 5 --scores " + here / "s.json"));
  CHECK(json::parse(read_file(here / "s.json")).at("scored_starts") == json::array({1, 1, 1, 1, 0}));
  check_error(isobar_command(here, base + " --start 1 --steps 5 --scores " + here / "s.json"),
              "a forecast of 5 steps from step 1: " + here / "data/test/2003.h5" +
                  " does not tell the times after its end, which the model reads");
  check_error(isobar_command(here, base + " --start -1 --scores " + here / "s.json"),
              "start step -1 is not in the data, which has 9 steps");
}

TEST_CASE("starts and steps beyond the data are refused before anything is made of their size") {
  const Playground here;
  check_done(isobar_command(here, here.train("run", "--num_iters 2")));
  const std::string base = "forecast --weights " + here / "run" + " --threads 1 --device cpu --data " + here / "data";
  check_error(isobar_command(here, base + " --starts 0:999999999999999"), "start step 999999999999998 is not in");
  check_error(isobar_command(here, base + " --start 0 --scores " + here / "s.json --steps 10000000"),
              "a forecast of 10000000 steps is longer than the 100000 that isobar makes");
  check_error(isobar_command(here, base + " --start 0 --scores " + here / "s.json --steps 4611686018427387904"),
              "is longer than the 100000 that isobar makes");
  check_error(isobar_command(here, base + " --starts 999999999999999:0:-1"), "start step 999999999999999 is not in");
}

TEST_CASE("a forecast says which weights it is made with, and warns of untrained ones") {
  const Playground here;
  check_done(isobar_command(here, here.train("run")));
  const std::string base = "forecast --threads 1 --device cpu --data " + here / "data" + " --starts 0:2 --weights ";
  const json best = json::parse(read_file(here / "run/best/state.json"));
  const std::string iteration = best.at("trainer").at("iteration").dump();
  const Outcome trained = isobar_command(here, base + here / "run");
  check_done(trained);
  CHECK_THAT(trained.out,
             ContainsSubstring("run/best/model.safetensors, of iteration " + iteration + ", validation loss "));
  check_done(isobar_command(here, here.train("worse", "--set lr=1 --set lr_schedule=constant --num_iters 4")));
  const Outcome untrained = isobar_command(here, base + here / "worse");
  CHECK(untrained.status == 0);
  CHECK_THAT(untrained.err, ContainsSubstring(" is of iteration 0: these are the weights that its run began with\n"));
  // The best loss is that of the best weights, and of no checkpoint.
  const std::string last = here / "run/checkpoints/step_00000014/model.safetensors";
  const Outcome of_last = isobar_command(here, base + last);
  check_done(of_last);
  CHECK_THAT(of_last.out, ContainsSubstring("weights: " + last + ", of iteration 14\n"));
}

TEST_CASE("a map that cannot be written does not end a run") {
  const Playground here;
  fs::create_directories(here / "run/images/map_t2m_00000000.png");  // a folder in its place
  const Outcome outcome = isobar_command(here, here.train("run", "--num_iters 2"));
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.err,
             ContainsSubstring("map_t2m_00000000.png") && ContainsSubstring("goes on without this picture"));
  CHECK(fs::exists(here / "run/images/map_t2m_00000002.png"));
  CHECK(fs::exists(here / "run/summary.json"));
}

TEST_CASE("tables and logs say what the files say, in their columns") {
  const Playground here;
  const Outcome trained = isobar_command(here, here.train("run"));
  check_done(trained);
  const json summary = json::parse(read_file(here / "run/summary.json"));
  const std::string log = read_file(here / "run/out.log");
  const auto value = [](const json& object, const char* kind, const std::string& name) {
    return object.at(kind).at(name).get<double>();
  };
  const auto five_digits = [](double number) {
    return number >= 1000 ? 1 : number >= 100 ? 2 : number >= 10 ? 3 : number >= 1 ? 4 : number >= 0.1 ? 5 : 6;
  };
  std::string table =
      "RMSE of the validation set: normalised, and in the variables' own units\n"
      "variable  forecast  persistence  ratio      forecast  persistence  unit\n";
  double ratios = 0;
  for (const std::string& name : kNames) {
    const double rmse = value(summary, "val_rmse", name), persistence = value(summary, "persistence_rmse", name);
    ratios += rmse / persistence;
    char row[200];
    const double own = value(summary, "val_rmse_physical", name),
                 own_persistence = value(summary, "persistence_rmse_physical", name);
    const int decimals = five_digits(std::max(own, own_persistence));
    std::snprintf(row, sizeof row, "%-8s%10.4f%13.4f%6.0f%%%14.*f%13.*f\n", name.c_str(), rmse, persistence,
                  100 * rmse / persistence, decimals, own, decimals, own_persistence);  // nobody says units
    table += row;
  }
  char average[100];
  std::snprintf(average, sizeof average, "on average %.1f %% of persistence's RMSE\n", 100 * ratios / 3);
  CHECK_THAT(log, ContainsSubstring(" - root - INFO - " + table + average));
  CHECK_THAT(trained.out, ContainsSubstring(table + average));
  CHECK(summary.at("device") == "cpu");
  CHECK(summary.at("precision") == "fp32");
  CHECK(summary.at("peak_memory_bytes").get<double>() > 1e6);
  CHECK(summary.at("samples_per_second").get<double>() > 0);
  CHECK(summary.at("wall_seconds").get<double>() >= summary.at("data_seconds").get<double>());

  // The lines of each epoch and of each validation, and their numbers.
  std::vector<double> losses, rates;
  for (int epoch = 1; epoch <= 3; ++epoch)
    CHECK_THAT(log, ContainsSubstring("Time taken for epoch " + std::to_string(epoch) + " is "));
  CHECK_THAT(log, !ContainsSubstring("Time taken for epoch 4 is "));
  for (const json& line : metrics_of(here / "run")) {
    if (line.at("event") != "valid") continue;
    std::ostringstream words;
    words << "  Avg val loss=" << line.at("loss").get<double>() << "\n";
    CHECK_THAT(log, ContainsSubstring(words.str()));
    double sum = 0;
    std::ostringstream each;
    each << std::setprecision(4);
    for (const std::string& name : kNames) {
      const double rmse = value(line, "rmse", name), persistence = value(line, "persistence_rmse", name);
      sum += rmse / persistence;
      each << ", " << name << ' ' << rmse << " (" << persistence << ')';
    }
    char start[100];
    std::snprintf(start, sizeof start, "  RMSE (persistence): %.1f %% of it on average", 100 * sum / 3);
    CHECK_THAT(log, ContainsSubstring(start + each.str() + "\n"));
  }
  CHECK(std::count(log.begin(), log.end(), '\n') > 20);

  const Outcome forecast =
      isobar_command(here, "forecast --weights " + here / "run" + " --data " + here / "data" +
                               " --threads 1 --starts 0:6:2 --steps 2 --scores " + here / "s.json");
  check_done(forecast);
  const json scores = json::parse(read_file(here / "s.json"));
  std::string rows = "variable  unit       lead        RMSE  persistence       ACC  persistence  starts\n";
  const auto at_most = [&](const std::string& name) {
    double largest = 0;
    for (const char* kind : {"rmse", "persistence_rmse"})
      for (const json& error : scores.at(kind).at(name)) largest = std::max(largest, error.get<double>());
    return largest;
  };
  for (const std::string& name : kNames)
    for (std::size_t k = 0; k < 2; ++k) {
      const auto at = [&](const char* kind) { return scores.at(kind).at(name).at(k).get<double>(); };
      char row[200];
      const int decimals = five_digits(at_most(name));
      std::snprintf(row, sizeof row, "%-8s  %-4s%11s%12.*f%13.*f%10.4f%13.4f%8d\n", name.c_str(), "",
                    k == 0 ? "+1 step" : "+2 steps", decimals, at("rmse"), decimals, at("persistence_rmse"), at("acc"),
                    at("persistence_acc"), 3);
      rows += row;
    }
  CHECK(forecast.out.ends_with("\n" + rows));
  fs::remove(here / "data/stats/time_means.npy");
  const Outcome no_means =
      isobar_command(here, "forecast --weights " + here / "run" + " --data " + here / "data" +
                               " --threads 1 --starts 0:6:2 --steps 2 --scores " + here / "t.json");
  check_done(no_means);
  CHECK_THAT(no_means.out, ContainsSubstring("no " + here / "data/stats/time_means.npy" + ": no ACC\n") &&
                               ContainsSubstring("variable  unit       lead        RMSE  persistence  starts\n"));
  CHECK_FALSE(json::parse(read_file(here / "t.json")).contains("acc"));
}

TEST_CASE("the flags of a run are explained, and refused where they ask for what is not there") {
  const Playground here;
  const std::vector<std::pair<std::string, std::string>> flags{
      {"--enable_fused", "enable_fused: isobar's Adam is one fused kernel always\n"},
      {"--enable_jit", "enable_jit: isobar's kernels are compiled ahead and fused by hand\n"},
      {"--data_loader_config dali", "data_loader_config dali: isobar has one loader, with threads\n"},
      {"--noddp", "--noddp: one rank makes no gradient exchange\n"},
      {"--sequence-parallel",
       "--sequence-parallel: without --tensor-parallel every rank has all rows of its samples\n"},
      {"--enable_apex", "--enable-apex: isobar's Adam is one fused kernel always\n"},
      {"--enable_benchy", "--enable-benchy: isobar-bench times kernels; --set volumes=synthetic reads no data\n"},
      {"--disable_broadcast_buffers", "--disable-broadcast-buffers: the model has no buffers\n"}};
  const Outcome silent = isobar_command(here, here.train("none", "--num_iters 1"));
  check_done(silent);
  for (std::size_t i = 0; i < flags.size(); ++i) {
    CHECK_THAT(silent.out, !ContainsSubstring(flags[i].second));
    const Outcome told = isobar_command(here, here.train("run" + std::to_string(i), "--num_iters 1 " + flags[i].first));
    check_done(told);
    for (std::size_t j = 0; j < flags.size(); ++j) {
      CAPTURE(i, j);
      CHECK((told.out.find(flags[j].second) != std::string::npos) == (i == j));
    }
  }
  check_error(isobar_command(here, here.train("no", "--context_parallel 2 --ranks 3")),
              "--ranks 3 is no multiple of --tensor-parallel 1 x --context-parallel 2");
  check_error(isobar_command(here, here.train("no", "--context_parallel 0")), "--context-parallel 0: ");
  check_error(isobar_command(here, here.train("no", "--ranks 2 --context_parallel 2 --noddp")), "--noddp: ");
  check_error(isobar_command(here, here.train("no", "--ranks 2 --context_parallel 2 --context_form star")),
              "--context-form");
  check_error(isobar_command(here, here.train("no", "--ranks 0")), "--ranks 0: at least one rank is needed");
  check_error(isobar_command(here, here.train("no", "--ranks 2 --pipeline_parallel 2 --set depth=2")),
              " is not trained in stages; a language model is");
  check_error(isobar_command(here, here.train("no", "--tensor_parallel 0")), "--tensor-parallel 0: ");
  check_error(isobar_command(here, here.train("no", "--ranks 2 --shard-optimizer 0")), "--shard-optimizer 0: ");
  check_error(isobar_command(here, here.train("no", "--ranks 2 --comm-timeout 0")), "--comm-timeout");
  CHECK_FALSE(fs::exists(here / "no"));
}

TEST_CASE("a run says how long it waited for data, and how its errors compare with persistence's") {
  const Playground here;
  const Outcome outcome = isobar_command(here, here.train("run"));
  check_done(outcome);
  CHECK_THAT(outcome.out, ContainsSubstring("  RMSE (persistence): ") && ContainsSubstring("u10 0."));
  CHECK_THAT(outcome.out, ContainsSubstring("  Waited for data: ") && !ContainsSubstring("Memory before"));
  const std::string log = read_file(here / "run/out.log");
  for (const char* when : {"Memory before the first iteration:\n", "Memory after the first iteration:\n"}) {
    CHECK_THAT(log, ContainsSubstring(when));
    CHECK(log.find(when) == log.rfind(when));
  }
  CHECK_THAT(log, ContainsSubstring(" parameters on cpu; 26 training samples, 6 iterations an epoch, 5 validation "
                                    "samples\n"));
  double waited = 0;
  std::istringstream lines(read_file(here / "run/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const json metrics = json::parse(line);
    if (metrics.at("event") == "train") waited += metrics.at("data_seconds").get<double>();
  }
  CHECK(waited > 0);
  CHECK(json::parse(read_file(here / "run/summary.json")).at("data_seconds").get<double>() == Approx(waited));
  const std::string events = read_file(*fs::directory_iterator(here / "run/logs"));
  for (const char* tag : {"RMSE(u10m)/valid", "RMSE(v10)/valid", "RMSE(t2m)/valid", "Seconds waited for data"})
    CHECK_THAT(events, ContainsSubstring(tag));
}

TEST_CASE("a test set is scored once, at the end, with the best weights, and changes nothing else") {
  const Playground here;
  const std::string worse = "--set lr=1 --set lr_schedule=constant ",
                    test = "--set test_data_path=" + here / "data/test";
  check_done(isobar_command(here, here.train("without", worse)));
  check_done(isobar_command(here, here.train("run", worse + test)));
  const json summary = json::parse(read_file(here / "run/summary.json"));
  const json without = json::parse(read_file(here / "without/summary.json"));
  CHECK(summary.at("test_iteration") == 0);  // the first weights are the best, and not those of the end
  for (const char* key : {"test_rmse", "test_persistence_rmse", "test_rmse_physical", "test_persistence_rmse_physical"})
    CHECK(summary.at(key).size() == 3);
  for (const auto& [key, value] : without.items()) {
    CHECK(!key.starts_with("test"));
    if (key.starts_with("val_") || key.starts_with("persistence") || key == "train_loss")
      CHECK(summary.at(key) == value);
  }
  CHECK(metrics_of(here / "run") == metrics_of(here / "without"));
  for (const std::string file : {"best/optimizer.safetensors", "checkpoints/step_00000014/optimizer.safetensors"})
    CHECK((read_file(here / ("run/" + file)) == read_file(here / ("without/" + file))));  // not shown

  const auto judged = [&](const std::string& weights) {
    check_done(isobar_command(here, "evaluate --threads 1 --device cpu --split test --scores " + here / "scores.json" +
                                        " --weights " + weights));
    return json::parse(read_file(here / "scores.json"));
  };
  const json best = judged(here / "run"), last = judged(here / "run/checkpoints/step_00000014/model.safetensors");
  CHECK(best.size() == 5);
  for (const auto& [key, value] : best.items()) {
    INFO(key);
    CHECK(summary.at(key) == value);
  }
  CHECK(last.at("test_loss").get<double>() > 2 * best.at("test_loss").get<double>());
  const std::string log = read_file(here / "run/out.log"), table = "RMSE of the test set: normalised";
  CHECK_THAT(log, ContainsSubstring("with the best weights, of iteration 0\n") && ContainsSubstring(table));
  CHECK(log.find(table) == log.rfind(table));

  // Or the last ones, where that is asked for.
  check_done(isobar_command(here, here.train("last", worse + test + " --set test_weights=last")));
  const json of_last = json::parse(read_file(here / "last/summary.json"));
  CHECK(of_last.at("test_iteration") == 14);
  CHECK(of_last.at("test_loss") == last.at("test_loss"));
  CHECK_THAT(read_file(here / "last/out.log"), ContainsSubstring("with the last weights, of iteration 14\n"));

  // On bands of rows, with an average of the weights, and after the run was resumed.
  const std::string more = test + " --set ema=0.5 --ranks 4 --context-parallel 2 ";
  check_done(isobar_command(here, here.train("bands", more + "--num_iters 6")));
  check_done(isobar_command(here, here.train("bands", more + "--resume --num_iters 14")));
  const json on_bands = json::parse(read_file(here / "bands/summary.json"));
  CHECK(on_bands.at("test_iteration") ==
        json::parse(read_file(here / "bands/best/state.json")).at("trainer").at("iteration"));
  CHECK(on_bands.at("test_loss").get<double>() ==
        Approx(judged(here / "bands").at("test_loss").get<double>()).epsilon(1e-5));
}

TEST_CASE("a test set that overlaps, does not fit or cannot be read is refused before training") {
  const Playground here;
  const auto refused = [&](const std::string& more, const std::string& words) {
    INFO(more);
    check_error(isobar_command(here, here.train("run", "--num_iters 2 " + more)), words);
    CHECK_FALSE(fs::exists(here / "run"));
  };
  const std::string test = "--set test_data_path=" + here / "";
  refused(test + "data/train",
          "train_range and test_range share steps 0 to 26 of " + here / "data/train/2001.h5" +
              ": the test would look at what was trained on (config key allow_overlap permits it)");
  refused(test + "data/valid", "valid_range and test_range share steps 0 to 5 of ");
  refused(test + "nowhere", "nowhere does not exist");
  refused("--set test_range=[0,3]", "config key test_range in --set is a part of test_data_path, which is empty");
  refused(test + "data/test --set test_range=[3,99]", "test_range");
  write_year(here / "other/2003.h5", 9, {"u10", "t2m", "v10"});
  refused(test + "other", "other/2003.h5: channel 1 is 't2m'");
  check_done(isobar_command(
      here, here.train("run", "--num_iters 2 --set allow_overlap=true " + test + "data/train --set test_range=[0,5]")));
}

TEST_CASE("a run may be as long as so many epochs") {
  const Playground here;  // 26 samples in batches of 4: 6 iterations an epoch
  const auto config = [&](const std::string& run) { return json::parse(read_file(here / (run + "/config.json"))); };
  const auto iterations = [&](const std::string& run) {
    return json::parse(read_file(here / (run + "/summary.json"))).at("iterations").get<int>();
  };
  check_done(isobar_command(here, here.train("run", "--set num_epochs=2")));
  CHECK(iterations("run") == 12);
  CHECK(config("run").at("num_iters") == 12);
  CHECK(config("run").at("num_epochs") == 2);
  // It is the run of so many iterations: the rate falls over them.
  check_done(isobar_command(here, here.train("counted", "--num_iters 12")));
  CHECK(metrics_of(here / "run") == metrics_of(here / "counted"));

  const std::string again = "train --resume --threads 1 --device cpu --run-dir " + here / "run ";
  const auto resumed = [&](const std::string& more) {
    const Outcome outcome = isobar_command(here, again + more);
    check_done(outcome);
    return outcome.out;
  };
  CHECK_THAT(resumed(""), ContainsSubstring("is finished"));
  CHECK_THAT(resumed("--set num_epochs=2"), ContainsSubstring("is finished"));
  resumed("--set num_epochs=3");
  CHECK(iterations("run") == 18);
  resumed("--num_iters 20");  // the last word counts
  CHECK(iterations("run") == 20);
  CHECK(config("run").at("num_epochs").is_null());

  const auto refused = [&](const std::string& more, const std::string& words) {
    INFO(more);
    check_error(isobar_command(here, here.train("cold", more)), words);
    CHECK_FALSE(fs::exists(here / "cold"));
  };
  refused("--set num_epochs=0", "config key num_epochs in --set must be at least 1");
  refused("--set num_epochs=2 --set warmup_rule=megatron --set warmup=12", "must be below num_iters (12)");
  refused("--set num_epochs=9000000000000000000", "config key num_epochs");
}
