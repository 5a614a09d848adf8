// What the runs of a sweep came to, as far as their folders and processes show: a table for people, CSV, and JSON.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/sweep/sweep_plan.h"

namespace isobar {

// pending: it has not ended under this sweep yet. stopped: by a signal, its checkpoint written.
enum class RunState : std::uint8_t { pending, running, finished, stopped, failed };

const char* name_of(RunState state);

struct RunResult {
  std::string name;
  nlohmann::ordered_json values;  // of the parameters
  RunState state = RunState::pending;
  std::optional<std::int64_t> iterations = {};  // of the last validation
  std::optional<double> val_loss = {},
                        best_val_loss = {};  // of the last validation; the min over all. None: no finite one
  std::optional<double> seconds = {};        // finished: of all processes that worked on the run; else of the last one
  std::string error = {};                    // failed: its one sentence
};

// Whether the run in this folder has made all of its iterations, and its summary.
bool is_finished(const std::filesystem::path& run_folder);

// Reads what the run's folder says of its iterations and losses, and of a finished run the seconds.
void read_figures(const std::filesystem::path& run_folder, RunResult& result);

// A line for each run, in columns, and the run with the smallest validation loss of all.
std::string to_table(const std::vector<RunResult>& results);
// RFC 4180, with a line of names; numbers with all their digits.
std::string to_csv(const std::vector<RunResult>& results);
nlohmann::ordered_json to_json(const std::vector<RunResult>& results);

// results.csv and results.json.
void write_results(const std::filesystem::path& folder, const std::vector<RunResult>& results);

}  // namespace isobar
