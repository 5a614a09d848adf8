// The outputs of a run: its folder, checkpoints, journal and progress. Only the first rank has one: there is one run,
// not one per rank.
#pragma once

#include <cstdint>
#include <optional>

#include "apps/train/journal.h"
#include "apps/train/megatron_journal.h"
#include "apps/train/progress.h"
#include "apps/train/run_folder.h"
#include "engine/files/checkpoint.h"

namespace isobar {

struct RunRecord {
  // While this object lives, lines of the log are printed above the progress bar. purge_step: see Journal.
  RunRecord(RunFolder& run_folder, std::int64_t keep_checkpoints, RunFacts facts,
            std::optional<std::int64_t> purge_step, Progress::Options progress_options,
            CheckpointNames names = CheckpointNames::isobar);
  ~RunRecord();
  RunRecord(const RunRecord&) = delete;
  RunRecord& operator=(const RunRecord&) = delete;

  RunFolder& folder;
  CheckpointStore store;
  Journal journal;
  Progress progress;
  std::optional<MegatronJournal> megatron;  // where its voice is asked for
};

}  // namespace isobar
