// Files are read at any place and whole, and only regular ones; errors name them.
#include "engine/files/reader.h"

#include <sys/stat.h>

#include <array>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "engine/files/atomic_file.h"
#include "engine/files/checksum.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;
using testing::TemporaryFolder;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST_CASE("only regular files are read, and no more of them than asked for", "[reader]") {
  const TemporaryFolder folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  for (const std::filesystem::path& path : {folder / "pipe", std::filesystem::path("/dev/zero"), folder.path()}) {
    CHECK_THROWS_WITH(read_file(path), path.string() + ": is not a file but a folder, a pipe or a device");
    CHECK_THROWS_WITH(xxh64_of_file(path), path.string() + ": is not a file but a folder, a pipe or a device");
  }
  write_file_atomically(folder / "result", "12345");
  CHECK(read_file(folder / "result", 5) == "12345");
  CHECK_THROWS_WITH(read_file(folder / "result", 4), ContainsSubstring("more than 4 bytes"));
}

TEST_CASE("a file is read whole", "[reader]") {
  const TemporaryFolder folder;
  for (const std::size_t length : {0u, 1u, 16383u, 16384u, 16385u, 40000u}) {
    std::string contents(length, 'x');
    for (std::size_t i = 0; i < length; ++i) contents[i] = static_cast<char>(i % 251);
    write_file_atomically(folder / "result", contents);
    CHECK(read_file(folder / "result") == contents);
  }
}

TEST_CASE("a file is read in pieces, each byte once", "[reader]") {
  const TemporaryFolder folder;
  constexpr std::size_t kPiece = std::size_t{1} << 18;
  for (const std::size_t length : {std::size_t{0}, kPiece - 1, kPiece, kPiece + 1, 2 * kPiece}) {
    std::string contents(length, 'x'), read;
    for (std::size_t i = 0; i < length; ++i) contents[i] = static_cast<char>(i % 251);
    write_file_atomically(folder / "result", contents);
    read_file_in_pieces(folder / "result", [&](std::span<const std::byte> piece) {
      CHECK_FALSE(piece.empty());
      read += text_of(piece);
    });
    CHECK(read == contents);
  }
}

TEST_CASE("a file is read at any place, up to its end", "[reader]") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "digits";
  write_file_atomically(path, "0123456789");
  const FileReader file(path), named(path, "the digits");
  CHECK(file.size() == 10);
  std::array<std::byte, 4> four{};
  file.read(3, four);
  CHECK(text_of(four) == "3456");
  file.read(6, four);
  CHECK(text_of(four) == "6789");
  CHECK(file.read_up_to_end(8, four) == 2);
  CHECK(text_of(std::span(four).first(2)) == "89");
  CHECK(file.read_up_to_end(10, four) == 0);
  CHECK_NOTHROW(file.read(10, {}));

  CHECK_THROWS_WITH(file.read(7, four), path.string() + ": is being cut off while it is read");
  CHECK_THROWS_WITH(named.read(7, four, "has ten"), "the digits has ten");
  std::filesystem::resize_file(path, 5);
  CHECK(file.size() == 10);
  CHECK_THROWS_WITH(file.read(3, four), path.string() + ": is being cut off while it is read");
}

TEST_CASE("a file that cannot be opened is named as the reader was told", "[reader]") {
  const TemporaryFolder folder;
  const std::filesystem::path none = folder / "none";
  CHECK_THROWS_WITH(FileReader(none), none.string() + ": cannot be opened: No such file or directory");
  CHECK_THROWS_WITH(FileReader(none, "X.h5"), "X.h5 cannot be opened: No such file or directory");
  CHECK_THROWS_WITH(FileReader(folder.path(), "X.h5"), "X.h5 is not a file but a folder, a pipe or a device");
}

}  // namespace
}  // namespace isobar
