// Files appear whole or not at all: success, abandonment, exceptions, a full disk, a leftover of a killed writer.
#include "engine/files/atomic_file.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "tests/harness/file_size_limit.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;
using testing::TemporaryFolder;

std::ptrdiff_t files_in(const TemporaryFolder& folder) {
  return std::distance(std::filesystem::directory_iterator(folder.path()), {});
}

TEST_CASE("an atomic file appears at its commit and not before", "[atomic_file]") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "result";
  AtomicFile file(path);
  file.write("one ");
  file.write("two");
  CHECK_FALSE(std::filesystem::exists(path));
  file.commit();
  CHECK(read_file(path) == "one two");
  CHECK(files_in(folder) == 1);
  CHECK_THROWS_AS(file.write("three"), Error);
}

TEST_CASE("an atomic file that is given up leaves the old one as it was", "[atomic_file]") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "result";
  write_file_atomically(path, "old");
  { AtomicFile(path).write("new"); }
  CHECK(read_file(path) == "old");
  CHECK(files_in(folder) == 1);
  write_file_atomically(path, "new");
  CHECK(read_file(path) == "new");
}

TEST_CASE("a full disk gives one error that names the file, and leaves nothing", "[atomic_file]") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "result";
  {
    const testing::FileSizeLimit full(1000);
    CHECK_THROWS_WITH(write_file_atomically(path, std::string(5000, 'x')), ContainsSubstring(path.string()));
  }
  CHECK(files_in(folder) == 0);
}

TEST_CASE("what a killed writer left is overwritten", "[atomic_file]") {
  const TemporaryFolder folder;
  std::ofstream(folder / ".result.writing") << std::string(100, 'x');
  write_file_atomically(folder / "result", "short");
  CHECK(read_file(folder / "result") == "short");
  CHECK(files_in(folder) == 1);
}

// A temporary file as a killed writer leaves it: the system has given its lock back.
std::filesystem::path leave_temporary(const TemporaryFolder& folder) {
  const pid_t child = ::fork();
  if (child == 0) {
    AtomicFile file(folder / "result");
    file.write("half");
    ::_exit(0);
  }
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  REQUIRE(files_in(folder) == 1);
  return std::filesystem::directory_iterator(folder.path())->path();
}

TEST_CASE("the temporary file of a killed writer is removed, that of a living one is not", "[atomic_file]") {
  const TemporaryFolder folder;
  const std::filesystem::path leftover = leave_temporary(folder);
  AtomicFile living(folder / "result");
  CHECK_FALSE(std::filesystem::exists(leftover));
  living.write("one");
  std::ofstream(folder / ".result.writings") << "another name";
  write_file_atomically(folder / "result", "two");
  CHECK(read_file(folder / "result") == "two");
  living.commit();
  CHECK(read_file(folder / "result") == "one");
  CHECK(files_in(folder) == 2);
}

TEST_CASE("each of many writers of one file puts its own whole content in place", "[atomic_file]") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "result";
  std::vector<std::thread> writers;
  std::atomic<int> failed = 0, torn = 0;
  for (int w = 0; w < 8; ++w) {
    writers.emplace_back([&, w] {
      for (int i = 0; i < 20; ++i) {
        try {
          write_file_atomically(path,
                                std::string(static_cast<std::size_t>(10000 * (w + 1)), static_cast<char>('a' + w)));
          const std::string seen = read_file(path);
          const bool whole = seen.find_first_not_of(seen[0]) == seen.npos &&
                             seen.size() == static_cast<std::size_t>(10000 * (seen[0] - 'a' + 1));
          torn += whole ? 0 : 1;
        } catch (const Error&) {
          ++failed;
        }
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  CHECK(failed == 0);
  CHECK(torn == 0);
  CHECK(files_in(folder) == 1);
}

TEST_CASE("a replaced file hands on its permissions, a new one gets the usual ones", "[atomic_file]") {
  const TemporaryFolder folder;
  const auto mode_of = [](const std::filesystem::path& path) {
    return static_cast<int>(std::filesystem::status(path).permissions());
  };
  const mode_t mask = ::umask(022);
  write_file_atomically(folder / "result", "new");
  ::umask(mask);
  CHECK(mode_of(folder / "result") == 0644);
  for (const int mode : {0600, 0640, 0666}) {
    std::filesystem::permissions(folder / "result", static_cast<std::filesystem::perms>(mode));
    write_file_atomically(folder / "result", "replaced");
    CHECK(mode_of(folder / "result") == mode);
  }
}

TEST_CASE("a link in the place of a temporary file is never written through", "[atomic_file]") {
  const TemporaryFolder folder;
  std::ofstream(folder / "victim") << "untouched";
  std::filesystem::create_symlink(folder / "victim", folder / ".result.writing");
  write_file_atomically(folder / "result", "new");
  CHECK(read_file(folder / "victim") == "untouched");
  CHECK_FALSE(std::filesystem::is_symlink(folder / "result"));
}

TEST_CASE("what bears the name of a temporary file and is no file stays", "[atomic_file]") {
  const TemporaryFolder folder;
  REQUIRE(::mkfifo((folder / ".result.writing").c_str(), 0600) == 0);
  std::filesystem::create_directory(folder / ".result.writing.1");
  write_file_atomically(folder / "result", "new");
  CHECK(read_file(folder / "result") == "new");
  CHECK(std::filesystem::is_fifo(folder / ".result.writing"));
  CHECK(std::filesystem::is_directory(folder / ".result.writing.1"));
}

TEST_CASE("names as long as the system takes are written, and through links", "[atomic_file]") {
  const TemporaryFolder folder;
  const std::string longest(255, 'n');
  write_file_atomically(folder / longest, "x");
  CHECK(read_file(folder / longest) == "x");
  CHECK(files_in(folder) == 1);
  std::filesystem::create_directory(folder / "other");
  write_file_atomically(folder / "other/target", "old");
  std::filesystem::create_symlink("other/target", folder / "link");
  write_file_atomically(folder / "link", "new");
  CHECK(std::filesystem::is_symlink(folder / "link"));
  CHECK(read_file(folder / "other/target") == "new");
  CHECK(AtomicFile(folder / "link").path() == std::filesystem::canonical(folder / "other/target"));
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  write_file_atomically("here", "x");
  std::filesystem::current_path(before);
  CHECK(read_file(folder / "here") == "x");
  CHECK_THROWS_WITH(AtomicFile(folder / "other"), (folder / "other").string() + " is a folder");
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THROWS_WITH(AtomicFile(folder / "pipe"), (folder / "pipe").string() + " is not a regular file");
  CHECK_THROWS_WITH(AtomicFile(folder / "none/x"),
                    (folder / "none/x").string() + ": there is no folder " + (folder / "none").string());
  AtomicFile once(folder / "once");
  once.commit();
  CHECK_THROWS_WITH(once.commit(), (folder / "once").string() + ": committed twice");
  CHECK_THROWS_WITH(once.write("more"), (folder / "once").string() + ": written to after its commit");
  Replacement replacement(folder / "once");
  replacement.put_in_place();
  CHECK_THROWS_WITH(replacement.put_in_place(), (folder / "once").string() + ": put in place twice");
  REQUIRE(std::filesystem::exists(folder / "once"));
}

TEST_CASE("what lies in a folder comes in the order of its names", "[atomic_file]") {
  const TemporaryFolder folder;
  std::error_code error = std::make_error_code(std::errc::io_error);
  CHECK(entries_of(folder.path(), error).empty());
  CHECK_FALSE(error);
  for (const char* name : {"b", ".hidden", "a", "c"}) std::ofstream(folder / name) << name;
  CHECK(entries_of(folder.path(), error) ==
        std::vector<std::filesystem::path>{folder / ".hidden", folder / "a", folder / "b", folder / "c"});
  CHECK(entries_of(folder / "none", error).empty());
  CHECK(error == std::errc::no_such_file_or_directory);
}

TEST_CASE("errors of files name them", "[atomic_file]") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "no_folder" / "result";
  CHECK_THROWS_WITH(AtomicFile(path), ContainsSubstring(path.string()));
  CHECK_THROWS_WITH(read_file(path), ContainsSubstring(path.string()));
  CHECK_THROWS_WITH(read_file(folder.path()), ContainsSubstring(folder.path().string()));
  CHECK_THROWS_WITH(flush_to_disk(path), ContainsSubstring(path.string()));
}

}  // namespace
}  // namespace isobar
