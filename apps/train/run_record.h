// What a run shows and leaves behind: its folder, checkpoints, journal and progress. Among several ranks the first one
// has it, and the others have none: there is one run, not as many as ranks.
#pragma once

#include <cstdint>
#include <optional>

#include "apps/train/journal.h"
#include "apps/train/progress.h"
#include "apps/train/run_folder.h"
#include "engine/files/checkpoint.h"

namespace isobar {

struct RunRecord {
  // Lines of the log go above the progress bar while this lives. purge_step: as Journal has it.
  RunRecord(RunFolder& run_folder, std::int64_t keep_checkpoints, RunFacts facts,
            std::optional<std::int64_t> purge_step, Progress::Options progress_options);
  ~RunRecord();
  RunRecord(const RunRecord&) = delete;
  RunRecord& operator=(const RunRecord&) = delete;

  RunFolder& folder;
  CheckpointStore store;
  Journal journal;
  Progress progress;
};

}  // namespace isobar
