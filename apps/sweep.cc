// isobar sweep: many runs of one config with different values of its keys, each a process of `isobar train`
// (apps/sweep/): file -> plan, with every run's config checked -> folder -> processes -> table.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "apps/commands.h"
#include "apps/config_options.h"
#include "apps/sweep/run_sweep.h"
#include "apps/sweep/sweep_file.h"
#include "apps/sweep/sweep_folder.h"
#include "apps/sweep/sweep_plan.h"
#include "apps/sweep/sweep_results.h"
#include "apps/train/signals.h"
#include "comm/launch.h"
#include "kernels/common/check.h"
#include "kernels/cuda/runtime.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

struct SweepFlags {
  std::string file, data, run_dir;
  int jobs = 1;
  ConfigOptions config;  // of it, device and threads
};

std::string absolute(const std::string& path) {
  return path.empty() ? path : fs::absolute(path).lexically_normal().string();
}

// The sweep's file, read with the data that were given, or that the sweep in the folder began with. The folder's place
// may depend on the config (expdir).
struct FoundSweep {
  SweepPlan plan;
  SweepFolder folder;
  std::string data;
};

SweepFolder folder_of(const SweepFlags& o, const std::string& expdir) {
  return SweepFolder(o.run_dir.empty() ? fs::path(expdir) / fs::path(o.file).stem() : fs::path(o.run_dir));
}

FoundSweep find_sweep(const SweepFlags& o) {
  SweepPlan plan = plan_sweep(read_sweep_file(o.file), absolute(o.data));
  SweepFolder folder = folder_of(o, plan.expdir);
  std::string data = absolute(o.data);
  if (folder.holds_sweep() && data.empty() && !folder.kept_data().empty()) {
    data = folder.kept_data();
    plan = plan_sweep(std::move(plan.file), data);
  }
  if (folder.holds_sweep()) folder.check_same(plan);
  return {std::move(plan), std::move(folder), std::move(data)};
}

SweepJobs jobs_of(const SweepFlags& o, const FoundSweep& found) {
  const int at_once = std::min(o.jobs, static_cast<int>(found.plan.runs.size()));
  // A run that goes on has to keep its number of threads: they decide the order of some sums
  const bool keeps = o.config.threads == 0 && found.folder.holds_sweep();
  SweepJobs jobs{.program = "/proc/self/exe",
                 .at_once = at_once,
                 .threads = keeps ? found.folder.kept_threads() : o.config.threads_of(at_once),
                 .device = o.config.device,
                 .gpus = {}};
  if (const int gpus = o.config.uses_cuda() ? gpu::device_count() : 0; gpus > 1)
    jobs.gpus = gpu_names(gpus, std::getenv("CUDA_VISIBLE_DEVICES"));
  return jobs;
}

std::size_t count(const std::vector<RunResult>& results, RunState state) {
  return static_cast<std::size_t>(std::ranges::count(results, state, &RunResult::state));
}

void say(const std::string& line) {
  std::cout << line << std::endl;
}

void sweep(const SweepFlags& o) {
  install_stop_handlers();
  ISOBAR_CHECK(find_launch().ranks == 1, "isobar sweep is one process, which starts others: start it without ",
               name_of(find_launch().launcher));
  FoundSweep found = find_sweep(o);
  const SweepJobs jobs = jobs_of(o, found);
  found.folder.prepare(found.plan, found.data, jobs.threads);
  for (const std::string& note : found.plan.notes) say(note);
  say(concat("sweep folder ", absolute(found.folder.path().string()), ": ", found.plan.runs.size(), " runs, ",
             jobs.at_once, " at once, with ", jobs.threads, jobs.threads == 1 ? " thread" : " threads", " each"));
  const std::vector<RunResult> results = run_sweep(found.plan, found.folder, jobs, stop_requested, say);
  std::cout << to_table(results) << std::flush;
  const std::size_t failed = count(results, RunState::failed);
  const std::size_t left = count(results, RunState::stopped) + count(results, RunState::pending);
  if (left > 0 && (stop_requested() || failed == 0)) throw CLI::RuntimeError(kStoppedStatus);
  ISOBAR_CHECK(failed == 0, failed, " of ", results.size(), " runs failed: see ",
               (found.folder.path() / "results.csv").string());
}

}  // namespace

void register_sweep(CLI::App& app) {
  auto options = std::make_shared<SweepFlags>();
  CLI::App* command = app.add_subcommand("sweep", "Train many times, with different values of config keys");
  command->add_option("FILE", options->file, "a JSON file: config, set, parameters, count, seed (docs/sweep.md)")
      ->required();
  command->add_option("--run-dir", options->run_dir,
                      "where the sweep goes, and goes on; default expdir/NAME for a file NAME.json");
  command->add_option("--data", options->data, "a folder as for train");
  command->add_option("--jobs", options->jobs, "runs at once; each job has one of several GPUs, or all share one")
      ->check(whole_number_from(1))
      ->capture_default_str();
  add_device_options(*command, options->config);
  command->get_option("--threads")->description("threads of each run on the CPU (0: all cores, over the jobs)");
  command->callback([options] { sweep(*options); });
}

}  // namespace isobar
