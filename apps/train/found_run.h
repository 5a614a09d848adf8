// What the run's folder holds when the run starts. Only the first process looks there; it sends the others the result.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apps/train/run_folder.h"
#include "comm/communicator.h"
#include "engine/files/checkpoint.h"

namespace isobar {

struct FoundRun {
  bool is_resumed = false;               // the folder holds a run that is to continue
  std::optional<Checkpoint> checkpoint;  // to continue from; none: the run starts
  std::int64_t summed_up = 0;            // iterations of its summary, if that is of this checkpoint; else 0
};

// Every process calls it. folder: null in all but the first, which prints what it does not find and what it skips.
// resumes: looks for the newest whole checkpoint; Error on the first process if that, or best/, is of another run.
// free_on_resume: config keys that may differ.
FoundRun find_run(const RunFolder* folder, const std::filesystem::path& path, bool resumes,
                  const std::vector<std::string>& free_on_resume, const Communicator& processes);

}  // namespace isobar
