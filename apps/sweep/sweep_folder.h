// The files of a sweep:
//
//   SWEEP/sweep.json          what it is: the file's content, the data, the threads of each run
//   SWEEP/configs/RUN.json    every key of a run
//   SWEEP/runs/RUN/           the run's folder (apps/train/run_folder.h)
//   SWEEP/logs/RUN.log        what the run's process prints, on stdout and on stderr
//   SWEEP/results.csv, .json  the table (sweep_results.h)
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/sweep/sweep_plan.h"
#include "engine/files/file_lock.h"

namespace isobar {

class SweepFolder {
 public:
  // Keeps other sweeps out of the folder, which may not exist yet. Error if another one works in it, if its sweep.json
  // is damaged, or if it holds files and no sweep. Makes nothing.
  explicit SweepFolder(std::filesystem::path path);

  bool holds_sweep() const { return !kept_.is_null(); }
  // What the sweep that it holds began with.
  std::string kept_data() const;
  int kept_threads() const;

  // Error that says what differs if the folder holds another sweep than this.
  void check_same(const SweepPlan& plan) const;
  // Writes sweep.json and the configs, and makes the folders. data: absolute, or empty.
  void prepare(const SweepPlan& plan, const std::string& data, int threads);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path config_of(const std::string& run) const { return path_ / "configs" / (run + ".json"); }
  std::filesystem::path run_folder(const std::string& run) const { return path_ / "runs" / run; }
  std::filesystem::path log_of(const std::string& run) const { return path_ / "logs" / (run + ".log"); }

  // Of the lock: a process that inherits it keeps other sweeps out, too. Negative: there is none.
  int lock_descriptor() const { return lock_.descriptor(); }

 private:
  void lock();

  std::filesystem::path path_;
  FileLock lock_;
  nlohmann::ordered_json kept_;  // sweep.json; null: there is none
};

}  // namespace isobar
