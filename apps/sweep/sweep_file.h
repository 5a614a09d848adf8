// A sweep's file: which runs there are.
//
//   {
//     "config": "tiny",                                a named config, or FILE.json[:NAME] beside the sweep's file
//     "set": {"num_iters": 200},                       keys that all runs have, as by --set; may be left out
//     "parameters": {
//       "depth": {"values": [2, 4]},                   a grid: every value with every value of the others
//       "lr": {"log_uniform": [1e-4, 1e-2]},           drawn: uniform, log_uniform, ints [first, last], choice [...]
//     },
//     "count": 8, "seed": 0                            draws, and their seed (0); only where a parameter is drawn
//   }
//
// There are (points of the grid) x count runs: draw i has the same numbers at every point. The last parameter varies
// fastest, and the draws within it. Comments are allowed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace isobar {

struct SweepFile {
  std::string origin;          // the file's path, for messages
  std::string config;          // a reference for load_config; a FILE has the folder of the sweep's file before it
  nlohmann::ordered_json set;  // key -> value
  nlohmann::ordered_json parameters;  // key -> {"values": [...]} or {DISTRIBUTION: [...]}
  std::int64_t count = 1;             // draws; 1 if nothing is drawn
  std::uint64_t seed = 0;
  nlohmann::ordered_json content;  // the file as it is written
};

// Throws Error that names file and key for a file that cannot be read, unknown keys, and values of a wrong kind. Config
// keys are checked later, with a run's config (sweep_plan.h).
SweepFile read_sweep_file(const std::filesystem::path& file);

inline constexpr std::int64_t kMaxRuns = 9999;

// One combination. values: of each parameter, in the file's order.
struct Combination {
  std::string name;  // "0003_depth=2_lr=0.00238837": its number, from 1 on, and its values, shortened
  nlohmann::ordered_json values;
};

// All of them. Error if there are more than kMaxRuns.
std::vector<Combination> combinations_of(const SweepFile& sweep);

}  // namespace isobar
