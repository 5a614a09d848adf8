// The files of a training run, beside its checkpoints (engine/files/checkpoint.h):
//
//   RUN/config.json    every key, resolved        RUN/metrics.jsonl  one JSON object a line
//   RUN/out.log        the tutorial's log lines   RUN/summary.json   the result
//   RUN/logs/          TensorBoard events         RUN/images/        maps as PNG
//   RUN/stats/         statistics, where the config named none that exist
//   RUN/run_id         a random number, drawn when the run starts; every state.json of its checkpoints has it too
//   RUN/layout.json    {"dp", "tp", "cp", "pp"}, of the ranks that trained last
//   RUN/iter_0000100/, RUN/latest_checkpointed_iteration.txt  where checkpoints have Megatron-LM's names
//   RUN/stopped        from a stop by a signal, its checkpoint written, until the run goes on: a job script asks for it
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/files/file_lock.h"
#include "engine/keys.h"

namespace isobar {

// Sizes of groups of ranks: data, tensor, context and pipeline parallel.
struct RankLayout {
  std::int64_t dp = 1, tp = 1, cp = 1, pp = 1;
};

// What to do where the folder holds a run already.
enum class ExistingRun { refuse, resume, overwrite };

// A key of state.json: true where the run has no validation set, and so will never have best weights.
inline constexpr const char* kUnvalidated = "is_unvalidated";

// Where a run keeps the statistics of its own making.
inline std::filesystem::path statistics_of(const std::filesystem::path& run_folder) {
  return run_folder / "stats";
}

// What a command calls its flags that decide about a run's folder, for the sentences of refusals.
struct RunFolderFlags {
  std::string go_on = "--resume", folder = "--run-dir", choices = "--run-num or --run-dir",
              place = "--run-dir DIR or --set expdir=DIR";
};

// A key that two configs have with different values, both as JSON.
struct ConfigDifference {
  std::string key, one, other;
};

// The first one, in the order of `one`. free: keys that may differ. A key that only one of them has is no difference.
std::optional<ConfigDifference> first_difference(const nlohmann::ordered_json& one, const nlohmann::ordered_json& other,
                                                 const std::vector<std::string>& free);

class RunFolder {
 public:
  // Keeps other processes out of the folder, where there is one, until this object ends: what is found in it stays
  // true. Makes nothing. Error if another process trains into the folder, if it holds a run that ExistingRun refuses,
  // or if it holds files with a run's names that are not a run's.
  RunFolder(std::filesystem::path path, ExistingRun existing, RunFolderFlags flags = {});
  RunFolder(RunFolder&&) noexcept = default;
  RunFolder& operator=(RunFolder&&) noexcept = default;

  // Makes the folder, keeps other processes out of it, and writes run_id, where a run that is resumed has none, and
  // config.json.
  //   - A run that is to be overwritten is removed: the files that a run makes, by their names, and nothing else. A
  //     folder of them that is a link or a mount point is emptied, and stays.
  //   - A run that is resumed refuses a config that would make another run of it, naming the key. free_on_resume: the
  //     keys that may differ. origins: where keys were set, for its message.
  void prepare(const nlohmann::ordered_json& config, const std::vector<std::string>& free_on_resume = {},
               const KeyOrigins& origins = {});

  // Error where a checkpoint of this folder (or best/) is another run's: its state.json has another run_id or, where
  // one of them has none (a run of an older isobar), the config in its weights is not config.json's, but for
  // free_on_resume.
  void check_own(const std::filesystem::path& checkpoint, const std::vector<std::string>& free_on_resume) const;
  // The same of best/, where there is one that can be read.
  void check_best(const std::vector<std::string>& free_on_resume) const;

  // Removes what this run has made, and the folder if prepare() made it and nothing else is in it.
  void discard() const;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path logs() const { return path_ / "logs"; }
  std::filesystem::path images() const { return path_ / "images"; }
  std::filesystem::path statistics() const { return statistics_of(path_); }
  const std::string& run_id() const { return run_id_; }  // 32 hexadecimal digits; from prepare() on
  bool is_resumed() const { return run_there_ && existing_ == ExistingRun::resume; }

  // Removes what metrics.jsonl holds beyond this iteration, and a line that was not written whole; the iteration's own
  // validation too where that is to be made again.
  void cut_metrics(std::int64_t last_iteration, bool is_validated = true) const;
  void append_metrics(const nlohmann::ordered_json& line) const;
  // Says in one line why the run must go on; prepare() takes that back.
  void mark_stopped(std::string_view why) const;

  // A line of the log from before there is a folder: shown at once, and written by prepare().
  void announce(std::string_view message);
  // A line as it is, without a time before it, for programs that look for it: on stdout and in out.log, from before
  // there is a folder on.
  void say(const std::string& line);
  // A line of out.log, "2023-11-01 10:15:30,123 - root - INFO - message"; show: on stdout (or `console`) too.
  void log(std::string_view message, bool show = true) const;
  std::function<void(std::string_view line)> console;

  // Says over how many ranks it is that the run is split.
  void keep_layout(const RankLayout& layout) const;

  // What summary.json holds; null where there is none or it cannot be read.
  nlohmann::ordered_json read_summary() const;
  void write_summary(const nlohmann::ordered_json& summary) const;

 private:
  bool is_run() const;
  void refuse_foreign_files() const;
  void lock();
  void check_same_run(const nlohmann::ordered_json& config, const std::vector<std::string>& free_on_resume,
                      const KeyOrigins& origins) const;
  enum class Links { emptied, kept };
  void remove_run(Links links) const;
  std::string sign_of_another_run(const std::filesystem::path& checkpoint,
                                  const std::vector<std::string>& free_on_resume) const;
  void print(const std::string& line) const;

  std::filesystem::path path_;
  ExistingRun existing_;
  RunFolderFlags flags_;
  bool run_there_ = false;
  bool folder_is_new_ = false;
  std::string run_id_;
  FileLock lock_;
  std::vector<std::string> announced_;  // and not yet written
  bool is_prepared_ = false;
};

// Whether a folder is that of a run.
bool holds_run(const std::filesystem::path& folder);

// The file that --weights and --init name: itself, or the best weights in a run's folder; of a run without a
// validation set, which has none, those of its newest whole checkpoint. Error where these say that they are another
// run's.
std::filesystem::path weights_at(const std::filesystem::path& path);

// The ranks that a run was trained by, as far as its folder says. Runs of before there was a layout.json have them in
// summary.json.
RankLayout layout_of_run(const std::filesystem::path& run_folder);

// The run that weights at RUN/best/FILE or RUN/checkpoints/step_N/FILE are of; empty for weights from elsewhere.
std::filesystem::path run_of(const std::filesystem::path& weights);

// Whether a file is one that a run in `run` keeps beside its folders (config.json, summary.json, ...). false if `run`
// is empty.
bool is_file_of_run(const std::filesystem::path& file, const std::filesystem::path& run);

}  // namespace isobar
