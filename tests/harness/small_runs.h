// Whole runs of the command, small ones, in a folder of their own.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "engine/files/reader.h"
#include "tests/harness/isobar_command.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar::testing {

class SmallRuns {
 public:
  // flags: of every `isobar train`.
  explicit SmallRuns(std::string flags) : flags_(std::move(flags)) {}

  Outcome command(const std::string& arguments) const { return isobar_command(folder_.path(), arguments); }
  // Into the run folder `run`.
  Outcome train(const std::string& run, const std::string& more = "") const {
    return command("train" + flags_ + "--run-dir " + (folder_ / run).string() + " " + more);
  }
  void done(const Outcome& outcome) const {
    INFO(outcome.err);
    CHECK(outcome.err == "");
    REQUIRE(outcome.status == 0);
  }
  std::filesystem::path path(const std::string& name = "") const { return folder_ / name; }
  std::string file(const std::string& name) const { return read_file(path(name)); }

 private:
  std::string flags_;
  TemporaryFolder folder_;
};

}  // namespace isobar::testing
