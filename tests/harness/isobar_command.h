// Runs the command as a user does, and keeps its output.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "engine/files/reader.h"
#include "tests/harness/places.h"
#include "tests/harness/testing.h"

namespace isobar::testing {

struct Outcome {
  int status = 0;  // negative: the signal that ended it
  std::string out, err;
};

// A refusal: status 1 and one line on stderr, which holds these words.
inline void check_error(const Outcome& outcome, const std::string& words) {
  CHECK(outcome.status == 1);
  CHECK(outcome.err.starts_with("isobar: "));
  CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
  CHECK_THAT(outcome.err, ContainsSubstring(words));
}

// Starts `isobar ARGUMENTS` and waits for it; `meanwhile` runs concurrently and gets its process id. The output is in
// the files out and err of `folder`. No GPU is visible: the tests expect a CPU's results.
inline Outcome isobar_command(const std::filesystem::path& folder, const std::string& arguments,
                              const std::function<void(pid_t)>& meanwhile = {}) {
  const std::string out = folder / "out", err = folder / "err";
  const pid_t child = fork();
  if (child == 0) {
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    const std::string command = std::string("exec ") + kIsobar + " " + arguments + " >" + out + " 2>" + err;
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  if (meanwhile) meanwhile(child);
  int status = 0;
  waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read_file(out), read_file(err)};
}

// The lines of a run's metrics.jsonl, without measured times.
inline std::vector<nlohmann::json> metrics_of(const std::filesystem::path& run) {
  std::istringstream lines(read_file(run / "metrics.jsonl"));
  std::vector<nlohmann::json> metrics;
  for (std::string line; std::getline(lines, line);) {
    metrics.push_back(nlohmann::json::parse(line));
    for (const char* timed : {"samples_per_second", "data_seconds"}) metrics.back().erase(timed);
  }
  return metrics;
}

}  // namespace isobar::testing
