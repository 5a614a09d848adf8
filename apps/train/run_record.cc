#include "apps/train/run_record.h"

#include <utility>

namespace isobar {

RunRecord::RunRecord(RunFolder& run_folder, std::int64_t keep_checkpoints, RunFacts facts,
                     std::optional<std::int64_t> purge_step, Progress::Options progress_options, CheckpointNames names)
    : folder(run_folder),
      store(run_folder.path(), keep_checkpoints, names),
      journal(run_folder, std::move(facts), purge_step),
      progress(std::move(progress_options)) {
  folder.console = [this](std::string_view line) { progress.print(line); };
}

RunRecord::~RunRecord() {
  folder.console = nullptr;
}

}  // namespace isobar
