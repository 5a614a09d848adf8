// The runs of a sweep, each with its whole config, which was checked as `isobar train` checks it before it opens data.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "apps/sweep/sweep_file.h"

namespace isobar {

struct PlannedRun {
  std::string name;               // of its folder
  nlohmann::ordered_json values;  // of the parameters
  nlohmann::ordered_json config;  // every key; paths are absolute
};

struct SweepPlan {
  SweepFile file;
  std::vector<PlannedRun> runs;
  std::set<std::string> notes;  // sentences for the user, on what was left out
  // Keys that hold paths: data that were moved are the same data. Of all runs' tasks.
  std::vector<std::string> path_keys;
  std::string expdir;  // of the first run
};

// data: as of `isobar train --data`; empty: the config's. Throws Error that names the key, and the run if its values
// matter, for a config that train would refuse, and for two runs with the same config.
SweepPlan plan_sweep(SweepFile file, const std::string& data);

}  // namespace isobar
