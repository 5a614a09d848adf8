// What is renamed into place was flushed to the disk before, and its folder after.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/files/atomic_file.h"
#include "engine/files/checkpoint.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"
#include "tests/harness/watched_disk.h"

namespace isobar {
namespace {

namespace fs = std::filesystem;
using testing::DiskCall;
using testing::TemporaryFolder;
using testing::WatchedDisk;

ino_t inode_of(const fs::path& path) {
  struct stat status {};
  REQUIRE(::lstat(path.c_str(), &status) == 0);
  return status.st_ino;
}

template <class Work>
std::vector<DiskCall> calls_of(const Work& work, bool can_exchange = true) {
  std::vector<DiskCall> calls;
  WatchedDisk disk;
  disk.can_exchange = can_exchange;
  disk.after = [&](const DiskCall& call) {
    if (call.has_changed) calls.push_back(call);
  };
  work();
  return calls;
}

// Whether the file was flushed between the calls [first, last).
bool flushed(const std::vector<DiskCall>& all, std::size_t first, std::size_t last, ino_t file) {
  return std::any_of(all.begin() + static_cast<std::ptrdiff_t>(first), all.begin() + static_cast<std::ptrdiff_t>(last),
                     [&](const DiskCall& call) { return call.name == "fsync" && call.file == file; });
}

// The one call that moves something to this path.
std::size_t move_to(const std::vector<DiskCall>& all, const fs::path& path) {
  const auto is_move = [&](const DiskCall& call) { return call.to == path.string(); };
  REQUIRE(std::count_if(all.begin(), all.end(), is_move) == 1);
  return static_cast<std::size_t>(std::find_if(all.begin(), all.end(), is_move) - all.begin());
}

TEST_CASE("an atomic file is flushed before it is renamed, its folder after", "[atomic_file]") {
  const TemporaryFolder folder;
  const fs::path path = folder / "result";
  const std::vector<DiskCall> all = calls_of([&] { write_file_atomically(path, "contents"); });
  const std::size_t move = move_to(all, path);
  CHECK(flushed(all, 0, move, inode_of(path)));
  CHECK(flushed(all, move, all.size(), inode_of(folder.path())));
}

TEST_CASE("a checkpoint's files and folder are flushed before it is put in place", "[checkpoint]") {
  const TemporaryFolder run;
  CheckpointStore store(run.path(), 1);
  const bool can_exchange = GENERATE(true, false);
  const fs::path place = checkpoint_folder(run.path(), 1);
  for (int save = 0; save < 2; ++save) {  // new, then replaced
    const auto write_files = [](const fs::path& folder) {
      std::ofstream(folder / "model.safetensors") << "x";
      std::ofstream(folder / "state.json") << "y";
    };
    const std::vector<DiskCall> all = calls_of([&] { store.save(1, write_files); }, can_exchange);
    const std::size_t move = move_to(all, place);
    CHECK(all[move].held.size() == 3);
    for (const ino_t file : all[move].held) CHECK(flushed(all, 0, move, file));
    CHECK(flushed(all, 0, move, all[move].file));
    CHECK(flushed(all, move, all.size(), inode_of(place.parent_path())));
  }
}

}  // namespace
}  // namespace isobar
