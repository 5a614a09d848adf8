// What is renamed into place was flushed to the disk before, and its folder after.
//
// fsync, rename and renameat2 are defined here and take the place of the C library's in this program: they note their
// calls and hand them on to the system.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "engine/files/atomic_file.h"
#include "engine/files/checkpoint.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace {

struct Call {
  std::string name;
  ino_t file = 0;        // what is flushed or moved
  std::string to;        // where it is moved to
  std::set<ino_t> held;  // of a folder that is moved: its files
};
std::vector<Call>* calls = nullptr;  // not null: they are noted

ino_t inode_of(const char* path) {
  struct stat status {};
  return ::lstat(path, &status) == 0 ? status.st_ino : 0;
}

void note_move(const char* name, const char* from, const char* to) {
  if (calls == nullptr) return;
  Call call{name, inode_of(from), to, {}};
  if (std::filesystem::is_directory(from))
    for (const auto& entry : std::filesystem::directory_iterator(from))
      call.held.insert(inode_of(entry.path().c_str()));
  calls->push_back(call);
}

}  // namespace

extern "C" int fsync(int descriptor) {
  struct stat status {};
  if (calls != nullptr && ::fstat(descriptor, &status) == 0) calls->push_back({"fsync", status.st_ino, {}, {}});
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}
extern "C" int rename(const char* from, const char* to) noexcept {
  note_move("rename", from, to);
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0u));
}
extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  note_move("renameat2", from, to);
  return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

namespace isobar {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

template <class Work>
std::vector<Call> calls_of(const Work& work) {
  std::vector<Call> noted;
  calls = &noted;
  work();
  calls = nullptr;
  return noted;
}

// Whether the file was flushed between the calls [first, last).
bool flushed(const std::vector<Call>& all, std::size_t first, std::size_t last, ino_t file) {
  return std::any_of(all.begin() + static_cast<std::ptrdiff_t>(first), all.begin() + static_cast<std::ptrdiff_t>(last),
                     [&](const Call& call) { return call.name == "fsync" && call.file == file; });
}

// The one call that moves something to this path.
std::size_t move_to(const std::vector<Call>& all, const fs::path& path) {
  const auto is_move = [&](const Call& call) { return call.name != "fsync" && call.to == path.string(); };
  REQUIRE(std::count_if(all.begin(), all.end(), is_move) == 1);
  return static_cast<std::size_t>(std::find_if(all.begin(), all.end(), is_move) - all.begin());
}

TEST_CASE("an atomic file is flushed before it is renamed, its folder after", "[atomic_file]") {
  const TemporaryFolder folder;
  const fs::path path = folder / "result";
  const std::vector<Call> all = calls_of([&] { write_file_atomically(path, "contents"); });
  const std::size_t move = move_to(all, path);
  CHECK(flushed(all, 0, move, inode_of(path.c_str())));
  CHECK(flushed(all, move, all.size(), inode_of(folder.path().c_str())));
}

TEST_CASE("a checkpoint's files and folder are flushed before it is put in place", "[checkpoint]") {
  const TemporaryFolder run;
  CheckpointStore store(run.path(), 1);
  store.can_exchange = GENERATE(true, false);
  const fs::path place = checkpoint_folder(run.path(), 1);
  for (int save = 0; save < 2; ++save) {  // new, then replaced
    const std::vector<Call> all = calls_of([&] {
      store.save(1, [](const fs::path& folder) {
        std::ofstream(folder / "model.safetensors") << "x";
        std::ofstream(folder / "state.json") << "y";
      });
    });
    const std::size_t move = move_to(all, place);
    CHECK(all[move].held.size() == 3);
    for (const ino_t file : all[move].held) CHECK(flushed(all, 0, move, file));
    CHECK(flushed(all, 0, move, all[move].file));
    CHECK(flushed(all, move, all.size(), inode_of(place.parent_path().c_str())));
  }
}

}  // namespace
}  // namespace isobar
