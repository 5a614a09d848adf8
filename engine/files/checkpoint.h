// Checkpoints on disk: folders, in a run's folder, that are whole or do not exist.
//
//   RUN/checkpoints/step_00000120/
//     model.safetensors, optimizer.safetensors, state.json  whatever the writer puts there
//     checksums.xxh64                                       a line "<xxh64>  <name>" a file; the last checks these
//   RUN/best/                                               the same files
//
// What holds at every moment, kill -9 and power cuts included:
// - A folder under its final name is whole. It is written under a hidden name; every file and then the folder are
//   flushed to the disk; only then is it renamed. A folder that is replaced is exchanged with the new one in one step
//   (renameat2). On a file system that cannot, the old one is moved aside first, and readers look for it there.
// - A folder that is deleted is renamed to a hidden name first.
// - Hidden leftovers of a writer that was killed are removed when the store is next opened for writing: those of
//   checkpoints/step_N and of best, by their exact names. Other files in a run's folder are not touched.
// The checksums find damage that disks and people do to whole folders later: find_newest_whole() skips a damaged
// checkpoint and says why. One process writes to a run folder at a time; any number may read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace isobar {

inline constexpr const char* kModelFile = "model.safetensors";  // the weights, in best/ and in every checkpoint

// What is wrong with a checkpoint folder, naming the file at fault; nothing if it is whole. Reads every file in full.
std::optional<std::string> damage_of(const std::filesystem::path& folder);

struct Checkpoint {
  std::int64_t step = 0;
  std::filesystem::path folder;
};

struct FoundCheckpoint {
  std::optional<Checkpoint> checkpoint;  // the newest whole one, if any is whole
  std::vector<std::string> skipped;      // for each damaged one that is newer: "FOLDER: is damaged (...), skipped"
};

// Where the checkpoint of a step lies, or would.
std::filesystem::path checkpoint_folder(const std::filesystem::path& run_folder, std::int64_t step);

// The newest whole checkpoint of a run; only reads.
FoundCheckpoint find_newest_whole(const std::filesystem::path& run_folder);

// The folder of a run's best weights, or the folder itself if it is a checkpoint. Its checksums are compared. Error if
// it does not exist or is damaged. Only reads.
std::filesystem::path find_best(const std::filesystem::path& run_folder);

// Error where RUN/best is a mount point: such a folder cannot give its name to another one, and a store would find that
// out only when there are weights to put there.
void check_best_can_be_replaced(const std::filesystem::path& run_folder);

class CheckpointStore {
 public:
  using WriteFiles = std::function<void(const std::filesystem::path& folder)>;

  // Opens a run's store for writing: makes RUN/checkpoints and removes what a killed writer left; a folder that was
  // moved aside is back under its name then. keep: how many checkpoints stay; 0: all.
  CheckpointStore(std::filesystem::path run_folder, std::int64_t keep);

  // Writes the checkpoint of a step: `write_files` puts the files into the empty folder it is given. Replaces one of
  // the same step, then removes old ones. Where anything throws, nothing new is left behind.
  void save(std::int64_t step, const WriteFiles& write_files);

  // Removes all but the `keep` newest checkpoints of those up to this step (those beyond it belong to a future that a
  // resumed run will write again): a writer that was killed before may have left one more.
  void remove_old(std::int64_t newest_step);

  // Replaces RUN/best.
  void save_best(const WriteFiles& write_files);

 private:
  void write_whole(const std::filesystem::path& folder, const WriteFiles& write_files);
  void put_in_place(const std::filesystem::path& written, const std::filesystem::path& folder);

  std::filesystem::path run_;
  std::int64_t keep_;
};

}  // namespace isobar
