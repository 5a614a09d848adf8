// The memory limits of control groups, in made-up trees of the system's files.
#include "engine/control_groups.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "engine/storage.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

// The limit that is found in a tree of the system's files: their names and contents.
std::size_t limit_in(const std::map<std::string, std::string>& files) {
  const testing::TemporaryFolder root;
  for (const auto& [name, text] : files) {
    std::filesystem::create_directories((root / name).parent_path());
    std::ofstream(root / name) << text;
  }
  return control_group_limit(root.path().string());
}

constexpr std::size_t kNoLimit = SIZE_MAX;

TEST_CASE("control groups: of some within each other the smallest limit holds, whichever has it") {
  const std::string tree = "sys/fs/cgroup", file = "/memory.max";
  const std::vector<std::string> groups{"", "/slurm", "/slurm/job_7", "/slurm/job_7/step_0"};
  for (const std::string& smallest : groups) {
    std::map<std::string, std::string> files{{"proc/self/cgroup", "0::/slurm/job_7/step_0\n"}};
    for (const std::string& group : groups) files[tree + group + file] = group == smallest ? "1000\n" : "5000\n";
    files[tree + "/slurm/job_8" + file] = "10\n";  // of others
    files[tree + "/slurm/job_7/step_1" + file] = "10\n";
    INFO("smallest: " << tree + smallest);
    CHECK(limit_in(files) == 1000);
    for (const std::string& group : groups)
      if (group != smallest) files[tree + group + file] = "max\n";
    CHECK(limit_in(files) == 1000);
    files[tree + smallest + file] = "max\n";
    CHECK(limit_in(files) == kNoLimit);
  }
}

TEST_CASE("control groups: those of version 1 limit by their memory controller alone") {
  const std::string groups = "11:cpuset:/other\n9:memory:/slurm/job_7\n1:name=systemd:/init\n";
  const std::string tree = "sys/fs/cgroup/memory", file = "/memory.limit_in_bytes";
  const std::string none = "9223372036854771712\n";  // how version 1 writes it
  CHECK(limit_in({{"proc/self/cgroup", groups},
                  {tree + file, none},
                  {tree + "/slurm" + file, "3000\n"},
                  {tree + "/slurm/job_7" + file, none},
                  {tree + "/other" + file, "10\n"},
                  {tree + "/init" + file, "10\n"}}) == 3000);
  // Both versions at once.
  CHECK(limit_in({{"proc/self/cgroup", groups + "0::/slurm\n"},
                  {tree + "/slurm/job_7" + file, "3000\n"},
                  {"sys/fs/cgroup/slurm/memory.max", "2000\n"}}) == 2000);
}

TEST_CASE("control groups: a system without any, or with files that say nothing, has no limit of theirs") {
  CHECK(limit_in({}) == kNoLimit);
  CHECK(limit_in({{"proc/self/cgroup", ""}}) == kNoLimit);
  CHECK(limit_in({{"proc/self/cgroup", "no colon\n"}}) == kNoLimit);
  CHECK(limit_in({{"proc/self/cgroup", "0::/\n"}, {"sys/fs/cgroup/memory.max", "x\n"}}) == kNoLimit);
  CHECK(limit_in({{"proc/self/cgroup", "0::/\n"}, {"sys/fs/cgroup/memory.max", "4096\n"}}) == 4096);
  CHECK(shared_memory_bytes() <= std::min(machine_memory_bytes(), control_group_limit()));
}

}  // namespace
}  // namespace isobar
