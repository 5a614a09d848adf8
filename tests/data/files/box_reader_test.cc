// Boxes of datasets of every rank, number and layout, against the closed form that filled them and the HDF5 library's
// own reading; the library wrote the files.
#include "data/files/hdf5_box_reader.h"

#include <hdf5.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "data/files/hdf5.h"
#include "data/files/npy.h"
#include "data/files/strided_copy.h"
#include "kernels/common/check.h"
#include "tests/harness/bytes_read.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;

namespace {

using Extents = std::vector<std::int64_t>;

struct Box {
  Extents start, count;
};

// How the library writes the dataset `x`; type is that in the file.
struct Stored {
  hid_t type = H5T_IEEE_F32LE;
  Extents chunk = {};
  bool shuffle = false, checksum = false;
  unsigned deflate = 0;
  double fill = 0;
  bool compact = false;
  std::vector<Box> parts = {};  // of the dataset that are written; none: all of it
};

std::int64_t product(const Extents& extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies());
}

std::vector<hsize_t> sizes(const Extents& extents) {
  return {extents.begin(), extents.end()};
}

// Writes values of a memory type; `count` of them cover the dataset, or each of its parts.
void write_values(const std::string& path, const Extents& shape, const Stored& stored, hid_t memory_type,
                  const std::function<const void*(const Box& part)>& values) {
  const int rank = static_cast<int>(shape.size());
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(rank, sizes(shape).data(), nullptr), list = H5Pcreate(H5P_DATASET_CREATE);
  if (!stored.chunk.empty()) H5Pset_chunk(list, rank, sizes(stored.chunk).data());
  if (stored.shuffle) H5Pset_shuffle(list);
  if (stored.deflate > 0) H5Pset_deflate(list, stored.deflate);
  if (stored.checksum) H5Pset_fletcher32(list);
  if (stored.compact) H5Pset_layout(list, H5D_COMPACT);
  if (stored.fill != 0) H5Pset_fill_value(list, H5T_NATIVE_DOUBLE, &stored.fill);
  const hid_t dataset = H5Dcreate2(file, "x", stored.type, space, H5P_DEFAULT, list, H5P_DEFAULT);
  REQUIRE(dataset >= 0);
  const std::vector<Box> parts =
      stored.parts.empty() ? std::vector<Box>{{Extents(shape.size(), 0), shape}} : stored.parts;
  for (const Box& part : parts) {
    if (product(part.count) == 0) continue;
    if (rank > 0)
      H5Sselect_hyperslab(space, H5S_SELECT_SET, sizes(part.start).data(), nullptr, sizes(part.count).data(), nullptr);
    const hid_t memory = H5Screate_simple(rank, sizes(part.count).data(), nullptr);
    REQUIRE(H5Dwrite(dataset, memory_type, memory, space, H5P_DEFAULT, values(part)) >= 0);
    H5Sclose(memory);
  }
  H5Dclose(dataset);
  H5Pclose(list);
  H5Sclose(space);
  H5Fclose(file);
}

// Calls visit(at) for every position of a box, row-major; positions are of the dataset.
void for_each_in(const Box& box, const std::function<void(const Extents& at)>& visit) {
  if (product(box.count) == 0) return;
  Extents at = box.start;
  for (std::int64_t i = 0; i < product(box.count); ++i) {
    visit(at);
    for (std::size_t d = at.size(); d-- > 0;) {
      if (++at[d] < box.start[d] + box.count[d]) break;
      at[d] = box.start[d];
    }
  }
}

// Neighbours on any axis differ; all fit in 8 bits.
double value_at(const Extents& at) {
  std::int64_t sum = 0, factor = 1;
  for (std::size_t d = at.size(); d-- > 0; factor *= 7) sum += factor * at[d];
  return static_cast<double>(sum % 101);
}

void write_form(const std::string& path, const Extents& shape, const Stored& stored) {
  std::vector<double> values;
  write_values(path, shape, stored, H5T_NATIVE_DOUBLE, [&](const Box& part) {
    values.clear();
    for_each_in(part, [&](const Extents& at) { values.push_back(value_at(at)); });
    return values.data();
  });
}

std::vector<double> form_of(const Box& box) {
  std::vector<double> values;
  for_each_in(box, [&](const Extents& at) { values.push_back(value_at(at)); });
  return values;
}

// A dataset open for reading.
struct Open {
  hdf5::File file;
  std::unique_ptr<BoxReader> reader;

  explicit Open(const std::string& path, const BoxReaderOptions& options = {})
      : file(hdf5::File::open(path)), reader(make_box_reader(file, "x", file.info("x"), options)) {}

  template <class T>
  std::vector<T> read(const Box& box) const {
    std::vector<T> values(static_cast<std::size_t>(product(box.count)) + 1, T{-77});
    reader->read(box.start, box.count, values.data());
    CHECK(values.back() == T{-77});  // nothing is written behind the box
    values.pop_back();
    return values;
  }
};

// The error of reading a box.
std::string box_refusal(const Open& open, const Box& box) {
  try {
    std::vector<float> values(1 << 16);
    open.reader->read(box.start, box.count, values.data());
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

void check_box(const Open& open, const Box& box) {
  INFO(shape_text(box.start) << " + " << shape_text(box.count));
  const std::vector<double> expected = form_of(box);
  CHECK((open.read<double>(box) == expected));  // in brackets: a failure does not print millions of values
  const std::vector<float> narrow = open.read<float>(box);
  CHECK(std::ranges::equal(narrow, expected));
  if (product(box.count) == 0) return;
  std::vector<float> by_library(narrow.size());
  open.file.read("x", box.start, box.count, by_library.data());
  CHECK((narrow == by_library));
}

// NumPy's float16.
hid_t half_type(bool big) {
  const hid_t type = H5Tcopy(big ? H5T_IEEE_F32BE : H5T_IEEE_F32LE);
  H5Tset_fields(type, 15, 10, 5, 0, 10);
  H5Tset_size(type, 2);
  H5Tset_ebias(type, 15);
  return type;
}

const std::string kContiguous = "contiguous, pread", kChunks = "chunks, pread",
                  kCompressed = "compressed chunks, inflated in parallel", kLibrary = "through the HDF5 library";

}  // namespace

TEST_CASE("box reader: boxes of every rank and layout are the values that were written") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  const Extents shape = {7, 6, 11};
  const std::vector<Box> boxes = {
      {{0, 0, 0}, {7, 6, 11}},                          // all of it
      {{2, 3, 4}, {3, 2, 4}},                           // across an edge of a chunk on every side
      {{1, 1, 1}, {5, 4, 9}},  {{3, 4, 5}, {3, 2, 5}},  // beyond a chunk; a chunk
      {{6, 5, 10}, {1, 1, 1}}, {{0, 0, 0}, {1, 1, 1}},  {{3, 2, 5}, {1, 1, 1}},   // single values
      {{6, 0, 0}, {1, 6, 11}}, {{0, 5, 0}, {7, 1, 11}}, {{0, 0, 10}, {7, 6, 1}},  // the last of each axis
      {{0, 2, 0}, {7, 2, 11}}, {{4, 0, 3}, {2, 6, 5}},                            // whole axes
      {{0, 0, 0}, {0, 6, 11}}, {{7, 6, 11}, {0, 0, 0}}, {{3, 3, 3}, {2, 0, 2}}};  // nothing
  const struct {
    Stored stored;
    std::string name;
  } cases[] = {{{}, kContiguous},
               {{.type = H5T_STD_I16BE}, kContiguous},
               {{.chunk = {3, 4, 5}}, kChunks},
               {{.type = H5T_STD_U8LE, .chunk = {3, 4, 5}}, kChunks},
               {{.chunk = {1, 1, 1}}, kChunks},
               {{.chunk = {7, 6, 11}}, kChunks},
               {{.chunk = {3, 4, 5}, .shuffle = true, .deflate = 6}, kCompressed},
               {{.type = H5T_STD_I16BE, .chunk = {2, 6, 4}, .shuffle = true, .deflate = 1}, kCompressed},
               {{.type = H5T_IEEE_F64BE, .chunk = {7, 1, 3}, .shuffle = true, .deflate = 1}, kCompressed},
               {{.type = H5T_STD_I8LE, .chunk = {4, 4, 4}, .shuffle = true, .deflate = 9}, kCompressed},
               {{.chunk = {3, 4, 5}, .deflate = 1}, kCompressed},
               {{.chunk = {3, 4, 5}, .shuffle = true}, kCompressed},
               {{.chunk = {3, 4, 5}, .shuffle = true, .checksum = true, .deflate = 1}, kLibrary},
               {{.compact = true}, kLibrary}};
  for (const auto& [stored, name] : cases) {
    write_form(path, shape, stored);
    for (const bool cached : {false, true}) {
      const auto budget = cached ? std::make_shared<std::atomic<std::int64_t>>(1 << 20) : nullptr;
      const Open open(path, {.budget = budget});
      CHECK(open.reader->name() == name);
      CHECK(open.reader->shape() == shape);
      for (const Box& box : boxes) check_box(open, box);
    }
  }
}

TEST_CASE("box reader: any number of axes, none included") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  write_form(path, {}, {.type = H5T_STD_I32LE});
  check_box(Open(path), {{}, {}});
  for (const bool chunked : {false, true}) {
    write_form(path, {23}, {.chunk = chunked ? Extents{5} : Extents{}});
    for (const Box& box : {Box{{0}, {23}}, Box{{4}, {7}}, Box{{22}, {1}}}) check_box(Open(path), box);
    write_form(path, {3, 2, 4, 3, 5, 2}, {.chunk = chunked ? Extents{2, 2, 3, 1, 4, 2} : Extents{}});
    for (const Box& box : {Box{{0, 0, 0, 0, 0, 0}, {3, 2, 4, 3, 5, 2}}, Box{{1, 0, 2, 1, 3, 0}, {2, 2, 2, 1, 2, 2}},
                           Box{{1, 1, 1, 1, 1, 1}, {1, 1, 3, 2, 4, 1}}})
      check_box(Open(path), box);
    write_form(path, {0, 4}, {.chunk = chunked ? Extents{2, 2} : Extents{}});
    check_box(Open(path), {{0, 1}, {0, 2}});
  }
}

TEST_CASE("box reader: rows that are too long to be read together, or at once, are read in parts") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  const Extents shape = {5, 40, 9001};
  for (const hid_t type : {H5T_IEEE_F32LE, H5T_STD_I16LE, H5T_IEEE_F64BE})
    for (const Extents& chunk : {Extents{}, Extents{2, 40, 9001}, Extents{1, 40, 5000}}) {
      write_form(path, shape, {.type = type, .chunk = chunk});
      const Open open(path);
      for (const Box& box : {Box{{0, 0, 0}, {5, 40, 9001}}, Box{{1, 3, 40}, {2, 33, 8900}},
                             Box{{0, 7, 100}, {5, 32, 16}}, Box{{4, 39, 9000}, {1, 1, 1}}})
        check_box(open, box);
    }
}

namespace {

// Writes 8 numbers in the file's type, reads them back as fp32 and fp64, and compares with C++'s own conversion.
template <class T>
void check_numbers(hid_t type, hid_t memory_type, const std::vector<T>& numbers) {
  const testing::TemporaryFolder folder;
  const Extents shape = {std::ssize(numbers)};
  const std::vector<Stored> ways = {
      {.type = type}, {.type = type, .chunk = {3}}, {.type = type, .chunk = {3}, .shuffle = true, .deflate = 1}};
  for (const Stored& stored : ways) {
    write_values(folder / "a.h5", shape, stored, memory_type, [&](const Box&) { return numbers.data(); });
    const Open open(folder / "a.h5");
    CHECK(open.reader->name() != kLibrary);
    const std::vector<float> narrow = open.read<float>({{0}, shape});
    const std::vector<double> wide = open.read<double>({{0}, shape});
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      INFO(numbers[i]);
      const auto as_float = static_cast<float>(numbers[i]);
      const auto as_double = static_cast<double>(numbers[i]);
      CHECK(std::bit_cast<std::uint32_t>(narrow[i]) == std::bit_cast<std::uint32_t>(as_float));
      CHECK(std::bit_cast<std::uint64_t>(wide[i]) == std::bit_cast<std::uint64_t>(as_double));
    }
  }
}

template <class T>
void check_integers(hid_t little, hid_t big, hid_t memory_type) {
  using Limits = std::numeric_limits<T>;
  const T middle = static_cast<T>(Limits::max() / 3);
  for (const hid_t type : {little, big})
    check_numbers<T>(type, memory_type,
                     {Limits::min(), Limits::max(), 0, 1, static_cast<T>(Limits::max() - 1), middle,
                      static_cast<T>(Limits::min() + 1), static_cast<T>(0x12)});
}

}  // namespace

TEST_CASE("box reader: every width, sign and byte order is converted to the nearest number") {
  check_integers<std::int8_t>(H5T_STD_I8LE, H5T_STD_I8BE, H5T_NATIVE_INT8);
  check_integers<std::int16_t>(H5T_STD_I16LE, H5T_STD_I16BE, H5T_NATIVE_INT16);
  check_integers<std::int32_t>(H5T_STD_I32LE, H5T_STD_I32BE, H5T_NATIVE_INT32);
  check_integers<std::int64_t>(H5T_STD_I64LE, H5T_STD_I64BE, H5T_NATIVE_INT64);
  check_integers<std::uint8_t>(H5T_STD_U8LE, H5T_STD_U8BE, H5T_NATIVE_UINT8);
  check_integers<std::uint16_t>(H5T_STD_U16LE, H5T_STD_U16BE, H5T_NATIVE_UINT16);
  check_integers<std::uint32_t>(H5T_STD_U32LE, H5T_STD_U32BE, H5T_NATIVE_UINT32);
  check_integers<std::uint64_t>(H5T_STD_U64LE, H5T_STD_U64BE, H5T_NATIVE_UINT64);
  // Between two fp32 numbers, and between two fp64 numbers: to the nearest, ties to even.
  check_numbers<std::int64_t>(H5T_STD_I64LE, H5T_NATIVE_INT64,
                              {(1 << 24) + 1, (1 << 24) + 3, (std::int64_t{1} << 53) + 1, (std::int64_t{1} << 53) + 3,
                               -((std::int64_t{1} << 53) + 1), 1});

  const double infinity = std::numeric_limits<double>::infinity();
  for (const hid_t type : {H5T_IEEE_F64LE, H5T_IEEE_F64BE})
    check_numbers<double>(type, H5T_NATIVE_DOUBLE, {0.1, -0.0, 1e300, -infinity, 1e-320, 1 + 0x1p-24, 3, -2.5});
  for (const hid_t type : {H5T_IEEE_F32LE, H5T_IEEE_F32BE})
    check_numbers<float>(type, H5T_NATIVE_FLOAT,
                         {0.1F, -0.0F, 1e-42F, static_cast<float>(infinity), 3.4e38F, 7, -2.5F});
  for (const bool big : {false, true}) {
    const hid_t type = half_type(big);
    // All of them exact in fp16: the largest, the smallest normal, and subnormal ones.
    check_numbers<float>(type, H5T_NATIVE_FLOAT, {65504, -0.0F, 0x1p-14F, 0x1p-24F, -0x3p-24F, 0.25F, -7, 2048});
    H5Tclose(type);
  }
}

TEST_CASE("box reader: numbers that only the library converts are read through it") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  const hid_t three_bytes = H5Tcopy(H5T_STD_I32LE), bf16 = H5Tcopy(H5T_IEEE_F32LE), padded = H5Tcopy(H5T_STD_I32LE);
  H5Tset_precision(three_bytes, 24);
  H5Tset_size(three_bytes, 3);
  H5Tset_fields(bf16, 15, 7, 8, 0, 7);
  H5Tset_size(bf16, 2);
  H5Tset_precision(padded, 12);
  for (const hid_t type : {three_bytes, bf16, padded}) {
    write_form(path, {5, 6}, {.type = type, .chunk = {2, 6}});
    const Open open(path);
    CHECK(open.reader->name() == kLibrary);
    check_box(open, {{1, 2}, {3, 4}});
    H5Tclose(type);
  }
}

TEST_CASE("box reader: a chunk that was never written holds the fill value") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  for (const unsigned deflate : {0U, 1U}) {
    write_form(path, {4, 6},
               {.type = H5T_STD_I16LE, .chunk = {2, 3}, .deflate = deflate, .fill = -9, .parts = {{{0, 0}, {2, 6}}}});
    const Open open(path);
    CHECK(open.reader->name() == kLibrary);
    check_box(open, {{0, 1}, {2, 4}});
    CHECK(open.read<float>({{1, 4}, {3, 2}}) == std::vector<float>{static_cast<float>(value_at({1, 4})),
                                                                   static_cast<float>(value_at({1, 5})), -9, -9, -9,
                                                                   -9});
  }
  // A contiguous dataset of which nothing was written has no place in the file.
  write_form(path, {3}, {.fill = 4, .parts = {{{0}, {0}}}});
  CHECK(Open(path).read<double>({{0}, {3}}) == std::vector<double>{4, 4, 4});
}

TEST_CASE("box reader: what does not fit is one sentence with file, dataset and numbers") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  for (const Stored& stored : {Stored{}, Stored{.chunk = {2, 3}}, Stored{.chunk = {2, 3}, .checksum = true}}) {
    write_form(path, {4, 6}, stored);
    const Open open(path);
    const auto outside = [&](const std::string& box) {
      return path + ": 'x' has shape (4, 6); the box " + box + " is not within it";
    };
    CHECK(box_refusal(open, {{0, 0}, {5, 6}}) == outside("[0, 5) x [0, 6)"));
    CHECK(box_refusal(open, {{1, 3}, {3, 4}}) == outside("[1, 4) x [3, 7)"));
    CHECK(box_refusal(open, {{-1, 3}, {3, 3}}) == outside("[-1, 2) x [3, 6)"));
    CHECK(box_refusal(open, {{1, 3}, {-1, 3}}) == outside("[1, 0) x [3, 6)"));
    CHECK(box_refusal(open, {{5, 0}, {0, 0}}) == outside("[5, 5) x [0, 0)"));
    CHECK(box_refusal(open, {{4, 6}, {0, 0}}) == "accepted");
    CHECK(box_refusal(open, {{0}, {4}}) == path + ": 'x' has shape (4, 6); a box of 1 axes cannot be read from it");
    CHECK(box_refusal(open, {{0, 0, 0}, {1, 1, 1}}) ==
          path + ": 'x' has shape (4, 6); a box of 3 axes cannot be read from it");
  }
  auto file = hdf5::File::create(path);
  file.write("x", std::vector<std::string>{"u10", "t2m"});
  file.close();
  CHECK_THROWS_WITH(Open(path), path + ": 'x' holds text; expected numbers");
}

namespace {

void overwrite(const std::string& path, std::uint64_t offset, std::uint64_t bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(offset));
  for (std::uint64_t i = 0; i < bytes; ++i) file.put(static_cast<char>(37 * i));
}

}  // namespace

TEST_CASE("box reader: a damaged chunk is named by its rows, and the others are read") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  write_form(path, {7, 6}, {.chunk = {3, 4}, .shuffle = true, .deflate = 1});
  const auto address = hdf5::File::open(path).chunk_addresses("x").at(5);  // rows 6, columns 4 and 5
  overwrite(path, address.offset, address.bytes);
  const Open rows(path), steps(path, {.rows = "steps"});
  check_box(rows, {{0, 0}, {6, 6}});
  check_box(rows, {{6, 0}, {1, 4}});
  CHECK(box_refusal(rows, {{0, 0}, {7, 6}}) == path + " is damaged: rows 6 to 6 of 'x' cannot be decompressed");
  CHECK(box_refusal(steps, {{6, 5}, {1, 1}}) == path + " is damaged: steps 6 to 6 of 'x' cannot be decompressed");
}

TEST_CASE("box reader: a file that is cut while it is in use is an error") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  for (const Stored& stored : {Stored{.type = H5T_IEEE_F64LE}, Stored{.type = H5T_STD_I32BE, .chunk = {1, 600}}}) {
    write_form(path, {6, 600}, stored);
    const Open open(path, {.values = "volumes"});
    REQUIRE(box_refusal(open, {{0, 0}, {6, 600}}) == "accepted");
    std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
    CHECK(box_refusal(open, {{5, 0}, {1, 600}}) == path + " is truncated: it ends before its volumes do");
    CHECK(box_refusal(open, {{5, 8}, {1, 16}}) == path + " is truncated: it ends before its volumes do");
  }
}

TEST_CASE("box reader: of a box no more is read than its rows and the small gaps between them") {
  if (!testing::bytes_read()) ISOBAR_SKIP("this system does not count what a process reads");
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  const auto read_by = [&](const Box& box) {
    const Open open(path);
    std::vector<float> values(static_cast<std::size_t>(product(box.count)));
    open.reader->read(box.start, box.count, values.data());  // addresses of chunks are known from now on
    return testing::bytes_read_by([&] { open.reader->read(box.start, box.count, values.data()); });
  };
  // Rows of 8 values, 64 apart, lie within 7 * 64 + 8 values; from plane to plane are more than a page.
  write_form(path, {2, 40, 64, 64}, {});
  CHECK(read_by({{1, 10, 20, 30}, {1, 8, 8, 8}}) == 8 * (7 * 64 + 8) * 4);
  CHECK(read_by({{0, 0, 0, 0}, {2, 40, 64, 64}}) == 2 * 40 * 64 * 64 * 4);
  write_form(path, {2, 40, 64, 64}, {.type = H5T_STD_I16LE, .chunk = {1, 8, 64, 64}});
  CHECK(read_by({{1, 10, 0, 0}, {1, 8, 20, 64}}) == 8 * 20 * 64 * 2);
}

TEST_CASE("strided copy: axes that are consecutive in both arrays are one") {
  const auto lengths = [](const Extents& from, const Extents& to, const Extents& count) {
    Extents found;
    for (const CopyAxis& axis : copy_axes(from, to, count)) found.push_back(axis.count);
    return found;
  };
  CHECK(lengths({4, 5, 6}, {4, 5, 6}, {4, 5, 6}) == Extents{120});
  CHECK(lengths({4, 5, 6}, {2, 5, 6}, {2, 5, 6}) == Extents{60});
  CHECK(lengths({4, 5, 6}, {4, 3, 6}, {4, 3, 6}) == Extents{4, 18});
  CHECK(lengths({4, 5, 6}, {4, 5, 2}, {4, 5, 2}) == Extents{20, 2});
  CHECK(lengths({4, 5, 6}, {1, 1, 1}, {1, 1, 1}) == Extents{1});
  CHECK(lengths({4, 5, 6}, {4, 1, 1}, {4, 1, 1}) == Extents{4, 1});
  CHECK(lengths({}, {}, {}) == Extents{1});
}
