// Checkpoints on disk: folders in a run's folder that are either whole or do not exist.
//
//   RUN/checkpoints/step_00000120/
//     model.safetensors, optimizer.safetensors, state.json  the writer's files
//     checksums.xxh64                                       a line "<xxh64>  <name>" a file; the last is of these
//   RUN/best/                                               the same files
//
// A run may name its checkpoints as Megatron-LM does: RUN/iter_0000120, with the newest iteration in
// RUN/latest_checkpointed_iteration.txt, which is written last. Such folders beyond that iteration are not looked at,
// as there: who writes an earlier one into the file goes back to it. Readers find checkpoints under both names.
//
// What is true at every moment, also after kill -9 and power cuts:
// - A folder under its final name is whole. It is written under a hidden name; every file and then the folder are
//   flushed to the disk; only then it is renamed. A folder that is replaced is exchanged with the new one in one step
//   (renameat2). If the file system cannot do that, the old one is first moved aside, and readers look for it there.
// - A folder that is deleted is renamed to a hidden name first.
// - When the store is next opened for writing, it removes the hidden remains of a killed writer: those of
//   checkpoints/step_N and of best, by their exact names. Other files in a run's folder are not touched.
// Checksums find later damage to whole folders (by disks or people): find_newest_whole() skips a damaged checkpoint and
// says why. One process at a time writes to a run folder; any number may read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace isobar {

inline constexpr const char* kModelFile = "model.safetensors";  // the weights, in best/ and in every checkpoint

// The damage of a checkpoint folder, with the name of the damaged file; nothing if it is whole. Reads every file in
// full.
std::optional<std::string> damage_of(const std::filesystem::path& folder);

enum class CheckpointNames : std::uint8_t { isobar, megatron };
inline constexpr const char* kTrackerFile = "latest_checkpointed_iteration.txt";

struct Checkpoint {
  std::int64_t step = 0;
  std::filesystem::path folder;
};

struct FoundCheckpoint {
  std::optional<Checkpoint> checkpoint;  // the newest whole one, if one exists
  std::vector<std::string> skipped;      // for each damaged one that is newer: "FOLDER: is damaged (...), skipped"
};

// The folder of a step's checkpoint with these names, whether it exists or not.
std::filesystem::path checkpoint_folder(const std::filesystem::path& run_folder, std::int64_t step,
                                        CheckpointNames names);
// The same with the names under which there is one; if there is none, isobar's.
std::filesystem::path checkpoint_folder(const std::filesystem::path& run_folder, std::int64_t step);

// The newest whole checkpoint of a run. Only reads.
FoundCheckpoint find_newest_whole(const std::filesystem::path& run_folder);

// The folder of a run's best weights, or the folder itself if it is a checkpoint. Its checksums are compared. Error if
// it does not exist or is damaged. Only reads.
std::filesystem::path find_best(const std::filesystem::path& run_folder);

// Error if RUN/best is a mount point: such a folder cannot be renamed, and the store would find that out only when it
// writes weights there.
void check_best_can_be_replaced(const std::filesystem::path& run_folder);

class CheckpointStore {
 public:
  using WriteFiles = std::function<void(const std::filesystem::path& folder)>;

  // Opens a run's store for writing: makes RUN/checkpoints and removes the remains of a killed writer. A folder that
  // was moved aside gets its name back. keep: max number of checkpoints; 0: no limit. names: of new checkpoints.
  CheckpointStore(std::filesystem::path run_folder, std::int64_t keep, CheckpointNames names = CheckpointNames::isobar);

  // Writes the checkpoint of a step: `write_files` writes the files into the empty folder that it gets. Replaces a
  // checkpoint of the same step, then removes old ones. If anything throws, nothing new stays.
  void save(std::int64_t step, const WriteFiles& write_files);

  // Removes all but the `keep` newest checkpoints up to this step: a writer that was killed before may have left one
  // more. Later checkpoints are not counted: a resumed run writes them again.
  void remove_old(std::int64_t newest_step);

  // Replaces RUN/best.
  void save_best(const WriteFiles& write_files);

 private:
  void write_whole(const std::filesystem::path& folder, const WriteFiles& write_files);
  void put_in_place(const std::filesystem::path& written, const std::filesystem::path& folder);

  std::filesystem::path run_;
  std::int64_t keep_;
  CheckpointNames names_;
};

}  // namespace isobar
