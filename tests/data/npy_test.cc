// .npy files: what is written is read back, NumPy's own bytes are understood, and bad files are named.
#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "data/npy.h"
#include "engine/files/atomic_file.h"
#include "kernels/common/check.h"
#include "tests/harness/data_files.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;

TEST_CASE("npy: fp32 and fp64 arrays come back as they were written") {
  const testing::TemporaryFolder folder;
  const std::array<std::int64_t, 4> shape = {1, 3, 1, 2};
  const std::vector<double> values = {1.5, -2, 1e300, 0.1, std::numeric_limits<double>::denorm_min(), 6};
  write_npy(folder / "a.npy", shape, std::span<const double>(values));
  CHECK(read_npy(folder / "a.npy").values == values);
  CHECK(std::ranges::equal(read_npy(folder / "a.npy").shape, shape));

  const std::vector<float> floats = {1.5f, -2, 3e38f, 0.1f, 5, 6};
  write_npy(folder / "b.npy", shape, std::span<const float>(floats));
  CHECK(read_npy(folder / "b.npy").values == std::vector<double>(floats.begin(), floats.end()));
  CHECK(std::filesystem::file_size(folder / "b.npy") == 128 + 24);
}

TEST_CASE("npy: the header is NumPy's, byte for byte") {
  const testing::TemporaryFolder folder;
  const std::array<std::int64_t, 1> shape = {2};
  const std::vector<float> values = {1, 2};
  write_npy(folder / "a.npy", shape, std::span<const float>(values));
  std::string expected("\x93NUMPY\x01\x00\x76\x00", 10);
  expected += "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
  expected += std::string(127 - expected.size(), ' ') + "\n" + std::string("\0\0\x80?\0\0\0@", 8);
  CHECK(read_file(folder / "a.npy") == expected);
}

TEST_CASE("npy: a scalar and version 2 headers are read") {
  const testing::TemporaryFolder folder;
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (), }\n";
  std::string bytes("\x93NUMPY\x02\x00", 8);
  bytes += std::string({static_cast<char>(header.size()), '\0', '\0', '\0'}) + header + std::string("\0\0\x80?", 4);
  testing::write_text(folder / "s.npy", bytes);
  CHECK(read_npy(folder / "s.npy").shape.empty());
  CHECK(read_npy(folder / "s.npy").values == std::vector<double>{1});
}

TEST_CASE("npy: bad files are refused by name") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a.npy";
  CHECK_THROWS_WITH(read_npy(path), ContainsSubstring(path));
  testing::write_text(path, "not numbers at all");
  CHECK_THROWS_WITH(read_npy(path), ContainsSubstring(path + " is not a .npy file"));

  const std::array<std::int64_t, 1> shape = {5};
  write_npy(path, shape, std::span<const double>(std::vector<double>(5)));
  const std::string whole = read_file(path);
  testing::write_text(path, whole.substr(0, whole.size() - 3));
  CHECK_THROWS_WITH(read_npy(path), ContainsSubstring(path + " is truncated or damaged"));
  testing::write_text(path, whole.substr(0, 40));
  CHECK_THROWS_WITH(read_npy(path), ContainsSubstring("damaged .npy header"));

  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = whole;
    changed.replace(changed.find(from), from.size(), to);
    testing::write_text(path, changed);
  };
  with("<f8", "<i8");
  CHECK_THROWS_WITH(read_npy(path), ContainsSubstring("'<i8'"));
  with("False", "True ");
  CHECK_THROWS_WITH(read_npy(path), ContainsSubstring("Fortran order"));
  with("(5,)", "(5, 281474976710656, 65536,)");
  CHECK_THROWS_WITH(read_npy(path), ContainsSubstring(path + " has an impossible size: 5 x 281474976710656 x 65536"));
  with("(5,)", "(2305843009213,)");
  CHECK_THROWS_WITH(read_npy(path), ContainsSubstring(path + " is truncated or damaged"));
  const std::string dictionary = "{'fortran_order': False, 'shape': (5,), 'descr':";  // ends at the colon
  testing::write_text(path, std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(dictionary.size()) + '\0' +
                                dictionary + std::string(40, '\0'));
  CHECK_THROWS_WITH(read_npy(path), ContainsSubstring(path + " has a damaged .npy header"));
  with("(5,)", "(x,)");
  CHECK_THROWS_WITH(read_npy(path), ContainsSubstring("damaged .npy header"));
}
