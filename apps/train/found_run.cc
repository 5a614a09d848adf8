#include "apps/train/found_run.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "engine/files/json.h"
#include "kernels/common/printable.h"

namespace isobar {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

std::optional<Checkpoint> checkpoint_to_resume(const RunFolder& folder,
                                               const std::vector<std::string>& free_on_resume) {
  const FoundCheckpoint found = find_newest_whole(folder.path());
  for (const std::string& damaged : found.skipped) print_line("passed over: " + damaged);
  if (found.checkpoint) folder.check_own(found.checkpoint->folder, free_on_resume);
  folder.check_best(free_on_resume);
  if (!found.checkpoint) std::cout << "no checkpoint in " << folder.path().string() << ": starting" << std::endl;
  return found.checkpoint;
}

// The iterations of the run's summary, if it is of this checkpoint; 0: the run has to continue, or to start.
std::int64_t summed_up(const RunFolder& folder, const std::optional<Checkpoint>& checkpoint) {
  const ordered_json summary = folder.read_summary();
  const bool is_last =
      checkpoint && summary.is_object() && summary.value("iterations", ordered_json()) == checkpoint->step;
  return is_last ? checkpoint->step : 0;
}

FoundRun tell_found_run(const FoundRun& found, const fs::path& folder, const Communicator& processes) {
  if (processes.size() == 1) return found;
  const ordered_json mine{{"resumed", found.is_resumed},
                          {"step", found.checkpoint ? found.checkpoint->step : -1},
                          {"summed_up", found.summed_up}};
  const auto told = parse_json<ordered_json>(processes.broadcast_text(mine.dump(), 0), "the first rank");
  FoundRun all{.is_resumed = told.at("resumed"), .checkpoint = {}, .summed_up = told.at("summed_up")};
  const std::int64_t step = told.at("step");
  if (step >= 0) all.checkpoint = Checkpoint{step, checkpoint_folder(folder, step)};
  return all;
}

}  // namespace

FoundRun find_run(const RunFolder* folder, const fs::path& path, bool resumes,
                  const std::vector<std::string>& free_on_resume, const Communicator& processes) {
  FoundRun found;
  if (folder != nullptr) {
    const Working work(processes, "looking for the newest whole checkpoint");
    found.is_resumed = folder->is_resumed();
    if (resumes) found.checkpoint = checkpoint_to_resume(*folder, free_on_resume);
    found.summed_up = summed_up(*folder, found.checkpoint);
  }
  return tell_found_run(found, path, processes);
}

}  // namespace isobar
