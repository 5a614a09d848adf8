// What the folder of a run holds when the run starts. The first process alone looks there, and tells the others.
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
  bool is_resumed = false;               // it holds a run, which is to go on
  std::optional<Checkpoint> checkpoint;  // to go on from; none: the run begins
  std::int64_t summed_up = 0;            // iterations of its summary, where that is of the checkpoint; 0: not finished
};

// Every process calls it. folder: null in all but the first, which says on stdout and stderr what it does not find and
// what it passes over. resumes: the newest whole checkpoint is looked for. Error on the first process where that, or
// best/, is another run's; free_on_resume: the config keys that may differ.
FoundRun find_run(const RunFolder* folder, const std::filesystem::path& path, bool resumes,
                  const std::vector<std::string>& free_on_resume, const Communicator& processes);

}  // namespace isobar
