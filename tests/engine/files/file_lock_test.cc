// Who holds a lock keeps others out, and nobody once it is gone.
#include "engine/files/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using State = FileLock::State;
using testing::TemporaryFolder;

Descriptor open_for_writing(const std::filesystem::path& file) {
  return Descriptor(::open(file.c_str(), O_RDWR | O_CLOEXEC));
}

TEST_CASE("the lock of a folder is one object's until that ends", "[file_lock]") {
  const TemporaryFolder folder;
  CHECK(FileLock().state() == State::none);
  CHECK(FileLock::of_folder(folder / "none").state() == State::none);
  {
    FileLock first = FileLock::of_folder(folder.path());
    REQUIRE(first.state() == State::taken);
    const FileLock second = FileLock::of_folder(folder.path());
    CHECK(second.state() == State::elsewhere);
    CHECK(second.descriptor() < 0);
    const FileLock moved = std::move(first);
    CHECK(moved.state() == State::taken);
    CHECK(FileLock::of_folder(folder.path()).state() == State::elsewhere);
  }
  CHECK(FileLock::of_folder(folder.path()).state() == State::taken);
}

TEST_CASE("the lock of a file is one object's until that ends, and is not HDF5's", "[file_lock]") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "file";
  std::ofstream(path) << "x";
  CHECK(FileLock::of_file(Descriptor()).state() == State::none);
  FileLock first = FileLock::of_file(open_for_writing(path));
  REQUIRE(first.state() == State::taken);
  CHECK(FileLock::of_file(open_for_writing(path)).state() == State::elsewhere);
  const Descriptor of_library = open_for_writing(path);
  CHECK(::flock(of_library.get(), LOCK_EX | LOCK_NB) == 0);
  first = FileLock();
  CHECK(FileLock::of_file(open_for_writing(path)).state() == State::taken);
}

TEST_CASE("a lock goes with the process that holds it", "[file_lock]") {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const FileLock held = FileLock::of_folder(folder.path());
    ::_exit(held.state() == State::taken ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(FileLock::of_folder(folder.path()).state() == State::taken);
}

}  // namespace
}  // namespace isobar
