#include "apps/sweep/run_sweep.h"

#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <sstream>
#include <thread>
#include <utility>

#include "apps/sweep/child_process.h"
#include "apps/train/signals.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "kernels/common/sentence.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPause(10);  // between two looks at the processes

struct Job {
  RunResult* result;
  std::uintmax_t log_begin;  // bytes of the log of earlier processes of this run
  Clock::time_point start;
  ChildProcess process;
};

std::string losses_of(const RunResult& result) {
  if (!result.val_loss || !result.best_val_loss) return "no validation loss";
  return concat("validation loss ", *result.val_loss, ", best ", *result.best_val_loss);
}

std::string sentence_of(const RunResult& result) {
  std::string text = concat(result.name, ": ", name_of(result.state));
  if (result.state == RunState::failed) return text + ": " + result.error;
  if (result.seconds) text += concat(" after ", *result.seconds, " s");
  return text + ", " + losses_of(result);
}

// How a process ended whose log has no sentence.
std::string way_of_ending(int status) {
  if (WIFSIGNALED(status)) return concat("ended by the signal ", strsignal(WTERMSIG(status)));
  return concat("ended with status ", WEXITSTATUS(status), ", and its log has no error");
}

bool was_stopped(int status, bool by_sweep) {
  if (WIFEXITED(status)) return WEXITSTATUS(status) == kStoppedStatus;
  return by_sweep && (WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGINT);  // before it could note the signal
}

class SweepRunner {
 public:
  SweepRunner(const SweepPlan& plan, const SweepFolder& folder, const SweepJobs& jobs,
              const std::function<bool()>& stopping, const std::function<void(const std::string&)>& say)
      : folder_(folder), jobs_(jobs), stopping_(stopping), say_(say) {
    for (const PlannedRun& run : plan.runs) {
      results_.push_back({.name = run.name, .values = run.values});
      RunResult& result = results_.back();
      read_figures(folder_.run_folder(run.name), result);
      if (is_finished(folder_.run_folder(run.name))) result.state = RunState::finished;
    }
    slots_.resize(static_cast<std::size_t>(jobs.at_once));
  }

  std::vector<RunResult> run() {
    write_results(folder_.path(), results_);
    bool is_stopped = false;
    for (;;) {
      if (!is_stopped && stopping_()) {
        is_stopped = true;
        stop_all();
      }
      bool is_busy = false;
      for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
        look_at(slot, is_stopped);
        if (!slots_[slot] && !is_stopped) start_next(slot);
        is_busy |= slots_[slot].has_value();
      }
      if (!is_busy) return std::move(results_);
      std::this_thread::sleep_for(kPause);
    }
  }

 private:
  void stop_all() {
    for (std::optional<Job>& job : slots_)
      if (job) job->process.stop();
  }

  // The next pending run; one that cannot be started has failed.
  void start_next(std::size_t slot) {
    while (next_ < results_.size() && !slots_[slot]) {
      RunResult& result = results_[next_++];
      if (result.state != RunState::pending) continue;
      try {
        start(result, slot);
      } catch (...) {
        result.state = RunState::failed;
        result.error = sentence_of_current_exception();
      }
      say_(slots_[slot] ? concat(result.name, ": ", name_of(result.state)) : sentence_of(result));
      write_results(folder_.path(), results_);
    }
  }

  void start(RunResult& result, std::size_t slot) {
    const std::string& name = result.name;
    ChildProcess::Setup setup{
        .command = {jobs_.program, "train", "--config", folder_.config_of(name), "--run-dir", folder_.run_folder(name),
                    "--resume", "--device", jobs_.device, "--threads", std::to_string(jobs_.threads)},
        .log = folder_.log_of(name),
        .environment = {},
        .inherited = folder_.lock_descriptor()};
    if (!jobs_.gpus.empty())
      setup.environment.push_back("CUDA_VISIBLE_DEVICES=" + jobs_.gpus[slot % jobs_.gpus.size()]);
    const std::uintmax_t log_begin = fs::exists(setup.log) ? fs::file_size(setup.log) : 0;
    slots_[slot].emplace(Job{&result, log_begin, Clock::now(), ChildProcess(setup)});
    result.state = RunState::running;
  }

  // Notes the end of the job, if it has ended.
  void look_at(std::size_t slot, bool is_stopped) {
    if (!slots_[slot]) return;
    Job& job = *slots_[slot];
    const std::optional<int> status = job.process.ended();
    if (!status) return;
    RunResult& result = *job.result;
    const fs::path run = folder_.run_folder(result.name);
    result.seconds = std::chrono::duration<double>(Clock::now() - job.start).count();
    read_figures(run, result);
    if (WIFEXITED(*status) && WEXITSTATUS(*status) == 0) {
      result.state = RunState::finished;
    } else if (was_stopped(*status, is_stopped)) {
      result.state = RunState::stopped;
    } else {
      result.state = RunState::failed;
      result.error = error_in_log(folder_.log_of(result.name), job.log_begin);
      if (result.error.empty()) result.error = way_of_ending(*status);
    }
    slots_[slot].reset();
    say_(sentence_of(result));
    write_results(folder_.path(), results_);
  }

  const SweepFolder& folder_;
  const SweepJobs& jobs_;
  const std::function<bool()>& stopping_;
  const std::function<void(const std::string&)>& say_;
  std::vector<RunResult> results_;
  std::vector<std::optional<Job>> slots_;  // jobs.at_once of them
  std::size_t next_ = 0;
};

}  // namespace

std::string error_in_log(const fs::path& log, std::uintmax_t offset) {
  constexpr std::uintmax_t kMaxBytes = 1 << 16;  // an error is the last line of a run
  const FileReader file(log);
  const std::uintmax_t size = file.size();
  const std::uintmax_t begin = std::max(std::min(offset, size), size > kMaxBytes ? size - kMaxBytes : 0);
  std::string text(size - begin, '\0');
  text.resize(file.read_up_to_end(begin, std::as_writable_bytes(std::span(text))));
  std::istringstream lines(text);
  std::string error;
  for (std::string line; std::getline(lines, line);)
    if (constexpr std::string_view kStart = "isobar: "; line.starts_with(kStart))
      if (const std::string sentence = line.substr(kStart.size()); !sentence.starts_with("warning: ")) error = sentence;
  return error;
}

std::vector<std::string> gpu_names(int count, const char* visible) {
  std::vector<std::string> names;
  std::istringstream list(visible == nullptr ? "" : visible);
  for (std::string name; std::getline(list, name, ',') && static_cast<int>(names.size()) < count;)
    names.push_back(name);
  if (static_cast<int>(names.size()) == count) return names;
  names.clear();
  for (int device = 0; device < count; ++device) names.push_back(std::to_string(device));
  return names;
}

std::vector<RunResult> run_sweep(const SweepPlan& plan, const SweepFolder& folder, const SweepJobs& jobs,
                                 const std::function<bool()>& stopping,
                                 const std::function<void(const std::string&)>& say) {
  return SweepRunner(plan, folder, jobs, stopping, say).run();
}

}  // namespace isobar
