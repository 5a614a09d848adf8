// Runs a sweep: each run that is not finished is a process of `isobar train --resume`, several at once.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/sweep/sweep_folder.h"
#include "apps/sweep/sweep_plan.h"
#include "apps/sweep/sweep_results.h"

namespace isobar {

struct SweepJobs {
  std::string program;  // the file of isobar
  int at_once = 1;      // 1 or more
  int threads = 1;      // of each run
  std::string device = "auto";
  std::vector<std::string> gpus;  // of CUDA_VISIBLE_DEVICES; job j gets number j mod their count. Empty: not set
};

// Returns when all runs have ended. A run that fails does not stop the others. After stopping() is true no run is
// started, and those that run are stopped: each writes its checkpoint first. results.csv and results.json are written
// whenever a run ends. say: gets a line for each start and end. If it throws, no process is left.
std::vector<RunResult> run_sweep(const SweepPlan& plan, const SweepFolder& folder, const SweepJobs& jobs,
                                 const std::function<bool()>& stopping,
                                 const std::function<void(const std::string& line)>& say);

// The sentence that the last "isobar: " line of a log says, which is not a warning; empty if there is none. Only what
// follows the first `offset` bytes is read.
std::string error_in_log(const std::filesystem::path& log, std::uintmax_t offset);

// The entries of CUDA_VISIBLE_DEVICES for `count` devices: of its value where it is set (null: it is not), else their
// numbers.
std::vector<std::string> gpu_names(int count, const char* visible);

}  // namespace isobar
