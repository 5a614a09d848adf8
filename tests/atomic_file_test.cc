// Files appear whole or not at all: success, abandonment, exceptions, a full disk, a leftover of a killed writer.
#include "engine/atomic_file.h"

#include <fstream>
#include <iterator>
#include <string>

#include "kernels/common/check.h"
#include "tests/file_size_limit.h"
#include "tests/temporary_folder.h"
#include "tests/testing.h"

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

TEST_CASE("a file is read whole", "[atomic_file]") {
  const TemporaryFolder folder;
  for (const std::size_t length : {0u, 1u, 16383u, 16384u, 16385u, 40000u}) {
    std::string contents(length, 'x');
    for (std::size_t i = 0; i < length; ++i) contents[i] = static_cast<char>(i % 251);
    write_file_atomically(folder / "result", contents);
    CHECK(read_file(folder / "result") == contents);
  }
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
