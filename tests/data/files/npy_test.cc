// .npy files: what is written is read back, NumPy's own bytes are understood, and bad files are named.
#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/files/npy.h"
#include "engine/files/reader.h"
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
  CHECK_THROWS_WITH(read_npy(path),
                    path + " holds elements of type '<i8'; expected '<f4' or '<f8' (fp32 or fp64), or '|u1'");
  CHECK_THROWS_WITH(NpyFile(path), ContainsSubstring("holds elements of type '<i8'"));
  with("False", "True ");
  CHECK_THROWS_WITH(read_npy(path), path + " is stored in Fortran order; expected C order");
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

TEST_CASE("npy: headers of every version and spelling, and the first that are none") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a.npy";
  const auto file = [&](char version, const std::string& header, const std::string& data) {
    std::string bytes = "\x93NUMPY";
    bytes += {version, '\0', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
    if (version > 1) bytes += std::string(2, '\0');
    testing::write_text(path, bytes + header + data);
  };
  const auto header_of = [](const std::string& shape) {
    return "{'shape':" + shape + ",  'fortran_order':False,'descr':   '<f4' }";
  };
  const std::string one("\0\0\x80?", 4), two("\0\0\0@", 4);
  for (const char version : {1, 2, 3}) {
    file(version, header_of("(2,)"), one + two);
    CHECK(read_npy(path).values == std::vector<double>{1, 2});
  }
  for (const char version : {0, 4}) {
    file(version, header_of("(2,)"), one + two);
    CHECK_THROWS_WITH(read_npy(path), ContainsSubstring("damaged .npy header"));
  }
  using Shape = std::vector<std::int64_t>;
  for (const auto& [text, shape] : {std::pair("(1L, 2L)", Shape{1, 2}), std::pair("(2)", Shape{2}),
                                    std::pair("( 2 ,1 )", Shape{2, 1}), std::pair("(02,)", Shape{2})}) {
    file(1, header_of(text), one + two);
    CHECK(read_npy(path).shape == shape);
  }
  file(1, header_of("(0, 281474976710656)"), "");
  CHECK(read_npy(path).values.empty());
  file(1, header_of("(10, 0)"), "");
  CHECK(read_npy(path).shape == Shape{10, 0});
  for (const char* shape : {"(281474976710657, 0)", "(0, 2", "2,)", "(-2,)", "(2.0,)", ""}) {
    file(1, header_of(shape), one + two);
    CHECK_THROWS_WITH(read_npy(path), ContainsSubstring("damaged .npy header"));
  }
  // A header longer than 255 bytes: both bytes of its length count.
  file(1, header_of("(1,)") + std::string(300, ' '), one);
  CHECK(read_npy(path).values == std::vector<double>{1});
  file(1, header_of("(1,)"), one + "x");
  CHECK_THROWS_WITH(read_npy(path), path +
                                        " is truncated or damaged: (1,) numbers of 4 bytes each, but the file has 5 "
                                        "bytes for them");
  file(1, header_of("(2,)"), one);
  CHECK_THROWS_WITH(read_npy(path), ContainsSubstring("(2,) numbers of 4 bytes each, but the file has 4 bytes"));
  testing::write_text(path, std::string("\x93NUMPY\x01\x00\x01\x00 ", 11));  // shorter than any header
  CHECK_THROWS_WITH(read_npy(path), path + " is not a .npy file");
  testing::write_text(path, std::string("\x93NUMPY\x01\x00\x02\x00{}", 12));
  CHECK_THROWS_WITH(read_npy(path), ContainsSubstring("damaged .npy header"));
  testing::write_text(path, std::string("\x93NUMPY\x01\x00\x03\x00{}", 12));  // ends before its header does
  CHECK_THROWS_WITH(read_npy(path), ContainsSubstring("damaged .npy header"));
  CHECK(shape_text(Shape{}) == "()");
  CHECK(shape_text(Shape{3}) == "(3,)");
  CHECK(shape_text(Shape{3, 4}) == "(3, 4)");
}

TEST_CASE("npy: parts of an open file are read from their first element on, whatever its type") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a.npy";
  const std::array<std::int64_t, 2> shape = {2, 3};
  const auto check_parts = [&](auto first) {
    using Number = decltype(first);
    const std::vector<Number> values{first, 2, 3, 4, 5, 6};
    write_npy(path, shape, std::span<const Number>(values));
    const NpyFile file(path);
    CHECK(std::ranges::equal(file.shape(), shape));
    std::vector<float> part(4, -1);
    file.read(2, 3, part.data());
    CHECK(part == std::vector<float>{3, 4, 5, -1});
    file.read(5, 1, part.data());
    CHECK(part[0] == 6);
    CHECK_THROWS_AS(file.read(4, 3, part.data()), Error);
  };
  check_parts(1.0F);
  check_parts(1.0);
  check_parts(std::uint8_t{1});
}
