// Numbers that wait in a file without a name.
#include "data/text/scratch_numbers.h"

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "tests/harness/file_size_limit.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;

TEST_CASE("scratch numbers: as many as were appended come back in their order, and again after more") {
  const testing::TemporaryFolder folder;
  ScratchNumbers numbers(folder.path());
  const auto all = [&] {
    std::vector<std::int64_t> read;
    numbers.for_each_piece(
        [&](std::span<const std::int64_t> piece) { read.insert(read.end(), piece.begin(), piece.end()); });
    return read;
  };
  CHECK(all().empty());
  std::vector<std::int64_t> expected;
  const auto append_until = [&](std::int64_t count) {
    while (std::ssize(expected) < count) {
      expected.push_back(std::ssize(expected) * 3 - (std::int64_t{1} << 40));
      numbers.append(expected.back());
    }
  };
  for (const std::int64_t count : {1, 5, 32767, 32768, 32769, 65536, 70000}) {
    append_until(count);
    CHECK(numbers.count() == count);
    CHECK((all() == expected));
  }
  CHECK(std::filesystem::is_empty(folder.path()));
  CHECK_THROWS_WITH(ScratchNumbers(folder / "none"),
                    (folder / "none").string() + ": no file can be made there: No such file or directory");
}

TEST_CASE("scratch numbers: a full disk is one sentence that names the folder") {
  const testing::TemporaryFolder folder;
  ScratchNumbers numbers(folder.path());
  const testing::FileSizeLimit limit(1 << 16);
  const auto append = [&] {
    for (std::int64_t number = 0; number < 1 << 15; ++number) numbers.append(number);
  };
  CHECK_THROWS_WITH(append(), folder.path().string() + ": a temporary file cannot be written: File too large");
}
