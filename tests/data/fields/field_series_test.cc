// Yearly files are read right however they are stored, and bad ones are refused in one clear sentence.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/fields/catalog.h"
#include "data/fields/field_file.h"
#include "data/fields/field_series.h"
#include "data/fields/pairs.h"
#include "data/files/hdf5.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "tests/harness/bytes_read.h"
#include "tests/harness/data_files.h"
#include "tests/harness/kept.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;
using testing::FieldsShape;
using testing::write_fields;

namespace {

// Bands of rows of a file, cropped as well, hold the rows of the whole.
void check_bands(const FieldSeries& dataset) {
  const std::int64_t height = dataset.height(), width = dataset.width(), step = dataset.steps() - 1;
  std::vector<float> whole(static_cast<std::size_t>(dataset.values()));
  dataset.read_step(step, whole.data());
  for (std::int64_t first = 0; first < height; ++first)
    for (std::int64_t count = 1; count <= height - first; ++count) {
      std::vector<float> got(static_cast<std::size_t>(dataset.channels() * count * width + 1), -1.0f);
      dataset.read_step(step, {first, count}, got.data());
      CHECK(got.back() == -1.0f);  // nothing behind the band
      std::int64_t wrong = 0, i = 0;
      for (std::int64_t c = 0; c < dataset.channels(); ++c)
        for (std::int64_t h = first; h < first + count; ++h)
          for (std::int64_t w = 0; w < width; ++w)
            wrong +=
                got[static_cast<std::size_t>(i++)] != whole[static_cast<std::size_t>((c * height + h) * width + w)];
      INFO("rows " << first << " to " << first + count - 1);
      CHECK(wrong == 0);
    }
}

// Reads every step of a file with a crop and compares each value.
void check_all_steps(const std::string& path, const FieldsShape& shape, std::int64_t height, std::int64_t width,
                     std::int64_t cache_bytes = -1) {
  INFO(path << " cropped to " << height << " x " << width);
  const FieldSeries dataset({.paths = {path}, .height = height, .width = width, .cache_bytes = cache_bytes});
  REQUIRE(dataset.steps() == shape[0]);
  std::vector<float> got(static_cast<std::size_t>(dataset.values()));
  for (std::int64_t t : {shape[0] - 1, std::int64_t{0}, shape[0] / 2, std::int64_t{0}}) {  // one of them twice: cached
    std::ranges::fill(got, -1.0f);
    dataset.read_step(t, got.data());
    std::int64_t wrong = 0, i = 0;
    for (std::int64_t c = 0; c < shape[1]; ++c)
      for (std::int64_t h = 0; h < height; ++h)
        for (std::int64_t w = 0; w < width; ++w)
          wrong += got[static_cast<std::size_t>(i++)] != testing::field_value(0, t, c, h, w);
    CHECK(wrong == 0);
  }
  check_bands(dataset);
}

// The error of opening a dataset.
std::string series_refusal(const FieldSeriesOptions& options) {
  try {
    const FieldSeries dataset(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

std::string how(const std::string& path) {
  return FieldSeries({.paths = {path}}).file(0).how_it_is_read();
}

}  // namespace

TEST_CASE("dataset: every layout gives the same values, cropped or not") {
  const testing::TemporaryFolder folder;
  const FieldsShape shape = {7, 3, 6, 10};
  const auto stored = [&](const char* name, const hdf5::Storage& storage) {
    const std::string path = folder / name;
    write_fields(path, shape, 0, storage);
    return path;
  };
  const std::string contiguous = stored("contiguous.h5", {}), plain = stored("plain.h5", {.chunk = {2, 2, 4, 3}}),
                    deflate = stored("deflate.h5", {.chunk = {3, 3, 6, 10}, .deflate = 1}),
                    shuffled = stored("shuffled.h5", {.chunk = {1, 2, 5, 4}, .shuffle = true}),
                    both = stored("both.h5", {.chunk = {4, 1, 6, 7}, .shuffle = true, .deflate = 4});
  CHECK(how(contiguous) == "contiguous, pread");
  CHECK(how(plain) == "chunks, pread");
  CHECK(how(both) == "compressed chunks, inflated in parallel");
  for (const std::string& path : {contiguous, plain, deflate, shuffled, both}) {
    check_all_steps(path, shape, 6, 10);
    check_all_steps(path, shape, 5, 10);
    check_all_steps(path, shape, 4, 7);
    check_all_steps(path, shape, 6, 1, 0);
  }
}

TEST_CASE("dataset: what the fast ways do not know is read through the library") {
  const testing::TemporaryFolder folder;
  auto file = hdf5::File::create(folder / "2001.h5");
  const FieldsShape shape = {2, 1, 2, 2};
  file.write("fields", shape, std::span<const float>(testing::field_values(shape)),
             {.chunk = {1, 1, 2, 2}, .checksum = true});
  file.close();
  CHECK(how(folder / "2001.h5") == "through the HDF5 library");
  check_all_steps(folder / "2001.h5", shape, 2, 1);
}

TEST_CASE("dataset: a user block before the HDF5 file shifts all that is stored") {
  const testing::TemporaryFolder folder;
  const FieldsShape shape = {3, 2, 4, 5};
  for (const hdf5::Storage& storage :
       {hdf5::Storage{}, hdf5::Storage{.chunk = {1, 2, 4, 5}}, hdf5::Storage{.chunk = {2, 2, 4, 5}, .deflate = 1}}) {
    write_fields(folder / "plain.h5", shape, 0, storage);
    testing::write_text(folder / "a.h5", std::string(512, ' ') + read_file(folder / "plain.h5"));
    check_all_steps(folder / "a.h5", shape, 3, 5);
  }
}

TEST_CASE("dataset: chunks of one value each") {
  const testing::TemporaryFolder folder;
  const FieldsShape shape = {60, 2, 6, 6};
  write_fields(folder / "a.h5", shape, 0, {.chunk = {1, 1, 1, 1}});
  write_fields(folder / "b.h5", shape, 0, {.chunk = {1, 1, 1, 1}, .shuffle = true, .deflate = 1});
  check_all_steps(folder / "a.h5", shape, 5, 4);
  check_all_steps(folder / "b.h5", shape, 5, 4);
}

namespace {

// Of reading a band of a step, twice, so that addresses of chunks are known.
std::int64_t bytes_of_band(const std::string& path, RowBand rows) {
  const FieldSeries dataset({.paths = {path}, .cache_bytes = 0});
  std::vector<float> step(static_cast<std::size_t>(dataset.values()));
  dataset.read_step(1, rows, step.data());
  return testing::bytes_read_by([&] { dataset.read_step(1, rows, step.data()); });
}

}  // namespace

TEST_CASE("dataset: of a band no more is read than its rows, or the compressed chunks that hold them") {
  if (!testing::bytes_read()) ISOBAR_SKIP("this system does not count what a process reads");
  const testing::TemporaryFolder folder;
  const FieldsShape shape = {3, 2, 64, 32};
  constexpr std::int64_t kRow = 2 * 32 * sizeof(float);  // of all channels
  const auto stored = [&](const char* name, const hdf5::Storage& storage) {
    write_fields(folder / name, shape, 0, storage);
    return (folder / name).string();
  };
  const FieldsShape many = {5000, 1, 4, 8};  // 10,000 chunks
  write_fields(folder / "many.h5", many, 0, {.chunk = {1, 1, 2, 8}});
  CHECK(bytes_of_band((folder / "many.h5").string(), {1, 2}) == 2 * 8 * sizeof(float));

  const std::string contiguous = stored("a.h5", {}), one_chunk = stored("b.h5", {.chunk = {1, 2, 64, 32}}),
                    chunks = stored("c.h5", {.chunk = {1, 1, 16, 32}}),
                    deflate = stored("d.h5", {.chunk = {1, 2, 16, 32}, .deflate = 1});
  for (const std::string& path : {contiguous, one_chunk, chunks}) {
    INFO(path);
    CHECK(bytes_of_band(path, {0, 64}) == 64 * kRow);
    CHECK(bytes_of_band(path, {20, 9}) == 9 * kRow);
    CHECK(bytes_of_band(path, {63, 1}) == kRow);
  }
  const std::int64_t whole = bytes_of_band(deflate, {0, 64}), quarter = bytes_of_band(deflate, {16, 16});
  CHECK(bytes_of_band(deflate, {20, 9}) == quarter);
  CHECK(quarter < whole / 2);
}

TEST_CASE("dataset: what is wrong outside a band is not seen, what is wrong within it is") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "2001.h5";
  std::vector<float> values = testing::field_values({2, 1, 4, 3});
  values[1 * 12 + 2 * 3 + 1] = std::numeric_limits<float>::quiet_NaN();  // step 1, row 2
  for (const hdf5::Storage& storage : {hdf5::Storage{}, hdf5::Storage{.chunk = {1, 1, 2, 3}, .deflate = 1}}) {
    write_fields(path, {2, 1, 4, 3}, values, storage);
    const FieldSeries dataset({.paths = {path}});
    std::vector<float> out(12);
    CHECK_NOTHROW(dataset.read_step(1, {0, 2}, out.data()));
    CHECK_NOTHROW(dataset.read_step(1, {3, 1}, out.data()));
    CHECK_THROWS_WITH(dataset.read_step(1, {1, 2}, out.data()), path + ": step 1, channel 0 holds NaN");
  }
}

TEST_CASE("dataset: a band that the cropped grid has not is refused") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "2001.h5";
  write_fields(path, {3, 1, 6, 2});
  const FieldSeries dataset({.paths = {path}, .height = 4});
  std::vector<float> out(12);
  for (const RowBand& rows : {RowBand{-1, 2}, RowBand{0, 0}, RowBand{2, -1}, RowBand{3, 2}, RowBand{4, 1}})
    CHECK_THROWS_WITH(dataset.read_step(0, rows, out.data()), path + ": rows [" + std::to_string(rows.first) + ", " +
                                                                  std::to_string(rows.first + rows.count) +
                                                                  ") are no band of the 4 rows of the grid");
  std::vector<float> input(4), target(4);
  dataset.read_step(1, {2, 2}, input.data());
  dataset.read_step(2, {2, 2}, target.data());
  CHECK(input[3] == testing::field_value(0, 1, 0, 3, 1));
  CHECK(target[0] == testing::field_value(0, 2, 0, 2, 0));
}

TEST_CASE("dataset: years stand in the order of their names, each with its own length") {
  const testing::TemporaryFolder folder;
  write_fields(folder / "2002.h5", {3, 2, 2, 4}, 2000);
  write_fields(folder / "2001.h5", {5, 2, 2, 4}, 1000);
  testing::write_text(folder / "notes.txt", "not data");
  testing::write_text(folder / ".2003.h5", "being written");
  const FieldSeries dataset({.paths = {folder.path()}});
  CHECK(dataset.steps() == 8);
  CHECK(dataset.file_count() == 2);
  CHECK(dataset.segments().front().count == 5);
  CHECK(dataset.place(4).file == 0);
  CHECK(dataset.place(5).file == 1);
  CHECK(dataset.place(5).step == 0);
  CHECK_THROWS_AS(dataset.place(8), Error);
  std::vector<float> input(16), target(16);
  dataset.read_step(6, input.data());
  dataset.read_step(7, target.data());
  CHECK(input[13] == testing::field_value(2000, 1, 1, 1, 1));
  CHECK(target[13] == testing::field_value(2000, 2, 1, 1, 1));
  CHECK(dataset.has_pair(3));
  CHECK_FALSE(dataset.has_pair(4));  // in two files
}

TEST_CASE("dataset: lat, lon, channel and time beside the fields are believed") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "data.h5";
  const FieldsShape shape = {2, 2, 3, 2};
  auto file = hdf5::File::create(path);
  const std::array<std::int64_t, 1> two = {2}, three = {3};
  file.write("fields", shape, std::span<const float>(testing::field_values(shape)));
  file.write("lat", three, std::span<const float>(std::vector<float>{60, 0, -60}));
  file.write("longitude", two, std::span<const double>(std::vector<double>{0, 180}));
  file.write("channel", std::vector<std::string>{"t2m", "u10"});
  file.write("time", two, std::span<const std::int64_t>(std::vector<std::int64_t>{990558, 990564}));
  file.write_attribute("time", "units", "hours since 1900-01-01 00:00:00");
  file.close();

  const FieldSeries dataset({.paths = {path}, .channels = {"t2m", "u10"}, .height = 2, .width = 2});
  CHECK(dataset.latitudes() == std::vector<double>{60, 0});
  CHECK(dataset.longitudes() == std::vector<double>{0, 180});
  CHECK(dataset.channel_names() == std::vector<std::string>{"t2m", "u10"});
  CHECK(dataset.time_of(1).iso() == "2013-01-01T12:00");
  CHECK(series_refusal({.paths = {path}, .channels = {"u10", "t2m"}}) ==
        path + ": channel 0 is 't2m', the config has 'u10' there");
  CHECK(FieldSeries({.paths = {path}}).channel_names() == std::vector<std::string>{"t2m", "u10"});
}

TEST_CASE("dataset: a pair is dt steps apart") {
  const testing::TemporaryFolder folder;
  write_fields(folder / "2001.h5", {9, 1, 2, 2});
  const FieldSeries dataset({.paths = {folder / "2001.h5"}, .dt = 4});
  const PairDataset pairs(dataset);
  std::vector<float> input(4), target(4);
  const std::array<void*, 2> to{input.data(), target.data()};
  pairs.read({.sample = 3}, to);
  CHECK(input[3] == testing::field_value(0, 3, 0, 1, 1));
  CHECK(target[3] == testing::field_value(0, 7, 0, 1, 1));
  CHECK(pairs.samples() == 5);
  CHECK_FALSE(dataset.has_pair(5));
}

TEST_CASE("dataset: the calendar beside the time is obeyed") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "data.h5";
  const auto with = [&](const std::string& calendar) {
    auto file = hdf5::File::create(path);
    const FieldsShape shape = {1, 1, 2, 2};
    file.write("fields", shape, std::span<const float>(testing::field_values(shape)));
    file.write("time", std::array<std::int64_t, 1>{1}, std::span<const double>(std::vector<double>{17628096}));
    file.write_attribute("time", "units", "hours since 1-1-1 00:00:0.0");
    file.write_attribute("time", "calendar", calendar);
    file.close();
  };
  with("standard");
  CHECK(FieldSeries({.paths = {path}}).time_of(0).iso() == "2012-01-01T00:00");
  with("proleptic_gregorian");
  CHECK(FieldSeries({.paths = {path}}).time_of(0).iso() == "2012-01-03T00:00");
  with("noleap");
  CHECK(series_refusal({.paths = {path}}) ==
        path + ": 'time': calendar \"noleap\" is not one of standard, gregorian, proleptic_gregorian");
}

TEST_CASE("dataset: files whose latitudes or longitudes differ are refused") {
  const testing::TemporaryFolder folder;
  const auto write = [&](const std::string& name, std::vector<double> latitudes, std::vector<double> longitudes) {
    auto file = hdf5::File::create(folder / name);
    const FieldsShape shape = {2, 1, 2, 2};
    const std::array<std::int64_t, 1> two = {2};
    file.write("fields", shape, std::span<const float>(testing::field_values(shape)));
    file.write("lat", two, std::span<const double>(latitudes));
    file.write("lon", two, std::span<const double>(longitudes));
    file.close();
  };
  write("2001.h5", {30, -30}, {0, 180});
  write("2002.h5", {30, -30}, {0, 180});
  CHECK(series_refusal({.paths = {folder.path()}}) == "accepted");
  const std::string sentence = std::string(folder / "2002.h5") + ": its latitudes or longitudes differ from those of " +
                               std::string(folder / "2001.h5");
  write("2002.h5", {45, -45}, {0, 180});
  CHECK(series_refusal({.paths = {folder.path()}}) == sentence);
  write("2002.h5", {30, -30}, {90, 270});
  CHECK(series_refusal({.paths = {folder.path()}}) == sentence);
}

TEST_CASE("dataset: names and times where the file has none") {
  const testing::TemporaryFolder folder;
  write_fields(folder / "2012.h5", {4, 2, 2, 2});
  write_fields(folder / "storm.h5", {4, 20, 2, 2});
  const FieldSeries year({.paths = {folder / "2012.h5"}});
  CHECK(year.channel_names() == std::vector<std::string>{"c0", "c1"});
  CHECK(year.latitudes().empty());
  CHECK(year.time_of(2).iso() == "2012-07-02T00:00");
  const FieldSeries storm({.paths = {folder / "storm.h5"}});
  CHECK(storm.channel_names()[19] == "tcwv");
  CHECK_THROWS_WITH(storm.time_of(0), ContainsSubstring("storm.h5: no 'time' with units"));
}

TEST_CASE("dataset: a year is a name of four digits, and as many steps as a year has") {
  const testing::TemporaryFolder folder;
  const auto tells = [&](const std::string& name, std::int64_t steps) {
    write_fields(folder / name, {steps, 1, 1, 1});
    const FieldSeries dataset({.paths = {folder / name}});
    return dataset.file_without_times() == nullptr;
  };
  for (const std::int64_t steps : {365, 366, 4 * 365, 4 * 366, 8 * 366, 24 * 365}) CHECK(tells("2012.h5", steps));
  CHECK(tells("era_2011.h5", 365));
  for (const char* name : {"1850.h5", "2100.h5"}) CHECK(tells(name, 365));
  CHECK_FALSE(tells("1849.h5", 365));
  CHECK_FALSE(tells("2100.h5", 366));  // no leap year
  CHECK_FALSE(tells("2011.h5", 366));  // no leap year
  for (const std::int64_t steps : {1, 364, 701, 744}) CHECK_FALSE(tells("2012.h5", steps));
  for (const char* name : {"201810.h5", "1810.h5", "2101.h5", "storm.h5", "365.h5"}) CHECK_FALSE(tells(name, 365));
  CHECK_THROWS_WITH(FieldSeries({.paths = {folder / "201810.h5"}}).time_of(0), ContainsSubstring("no year at the end"));
}

TEST_CASE("dataset: fill values are holes, as NaN is") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "2001.h5";
  const FieldsShape shape = {3, 2, 5, 7};
  const auto written = [&](float hole, const char* attribute, double fill) {
    std::vector<float> values = testing::field_values(shape);
    values[70 + 35 + 3] = hole;
    auto file = hdf5::File::create(path);
    file.write("fields", shape, std::span<const float>(values));
    if (attribute != nullptr) file.write_attribute("fields", attribute, fill);
    file.close();
    const FieldSeries dataset({.paths = {path}});
    std::vector<float> out(70);
    CHECK_NOTHROW(dataset.read_step(0, out.data()));
    try {
      dataset.read_step(1, out.data());
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("read");
  };
  const std::string where = path + ": step 1, channel 1 holds ";
  for (const char* attribute : {"_FillValue", "missing_value"}) {
    CHECK(written(-9999, attribute, -9999) == where + "-9999, which 'fields' calls its fill value: a hole");
    CHECK(written(1e20F, attribute, 1e20) == where + "1e+20, which is beyond 1e+15: a fill value, and no field's");
    CHECK(written(-9998, attribute, -9999) == "read");
    CHECK(written(5, attribute, std::numeric_limits<double>::quiet_NaN()) == "read");
  }
  CHECK(written(9.96921e36F, nullptr, 0) == where + "9.96921e+36, which is beyond 1e+15: a fill value, and no field's");
  CHECK(written(-9999, nullptr, 0) == "read");
  CHECK(written(9e14F, nullptr, 0) == "read");
  CHECK(written(-1e15F, nullptr, 0) == "read");
  CHECK(written(-1.0001e15F, nullptr, 0) == where + "-1.0001e+15, which is beyond 1e+15: a fill value, and no field's");
}

TEST_CASE("dataset: where points may be missing fill values are NaN, and infinities are refused all the same") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "2001.h5";
  auto file = hdf5::File::create(path);
  const float infinite = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  file.write(
      "fields", FieldsShape{3, 2, 1, 3},
      std::span<const float>(std::vector<float>{1, -9, nan, 4, 5, 6, 1e20F, 2, 3, 4, 5, -9, 1, infinite, 3, 4, 5, 6}));
  file.write("channel", std::vector<std::string>{"sst", "t2m"});
  file.write_attribute("fields", "_FillValue", -9.0);
  file.close();
  const FieldSeries series({.paths = {path}, .missing = {"sst"}});
  std::vector<float> out(6);
  series.read_step(0, out.data());
  CHECK(out[0] == 1);
  CHECK(std::isnan(out[1]));
  CHECK(std::isnan(out[2]));
  CHECK(out[5] == 6);
  CHECK_THROWS_WITH(series.read_step(1, out.data()),
                    path + ": step 1, channel t2m holds -9, which 'fields' calls its fill value: a hole");
  CHECK(std::isnan(out[0]));
  CHECK_THROWS_WITH(series.read_step(2, out.data()), path + ": step 2, channel sst holds an infinity");
}

TEST_CASE("dataset: fields without a value, and larger ones than any file has, are refused by their shape") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "2001.h5";
  const auto refusal = [&](const FieldsShape& shape) {
    auto file = hdf5::File::create(path);
    file.reserve("fields", shape, hdf5::Room::when_written);
    file.close();
    return series_refusal({.paths = {path}});
  };
  CHECK(refusal({3, 0, 2, 2}) == path + ": 'fields' is empty, its shape is (3, 0, 2, 2)");
  const std::string most = "; at most (16777216, 65536, 1048576, 1048576) is read";
  CHECK(refusal({1, 65537, 1, 1}) == path + ": 'fields' has shape (1, 65537, 1, 1)" + most);
  CHECK(refusal({1, 1, 1048577, 1}) == path + ": 'fields' has shape (1, 1, 1048577, 1)" + most);
  CHECK(refusal({16777217, 1, 1, 1}) == path + ": 'fields' has shape (16777217, 1, 1, 1)" + most);
  CHECK(refusal({1, 65536, 1, 1}) == "accepted");
  CHECK_THAT(refusal({1, 65536, 1 << 20, 1 << 16}),
             ContainsSubstring(path + ": a step of 65536 x 1048576 x 65536 values is larger than the memory of this "
                                      "machine"));
}

TEST_CASE("dataset: fields in fp64 are read as fp32") {
  const testing::TemporaryFolder folder;
  const FieldsShape shape = {3, 2, 4, 6};
  const std::vector<float> values = testing::field_values(shape);
  std::vector<double> doubles(values.begin(), values.end());
  doubles[100] = 1e300;
  for (const hdf5::Storage& storage : {hdf5::Storage{}, hdf5::Storage{.chunk = {1, 2, 4, 6}, .deflate = 1}}) {
    auto file = hdf5::File::create(folder / "2001.h5");
    file.write("fields", shape, std::span<const double>(doubles), storage);
    file.close();
    const FieldSeries dataset({.paths = {folder / "2001.h5"}});
    std::vector<float> out(48);
    dataset.read_step(1, out.data());
    CHECK(std::ranges::equal(out, std::span(values).subspan(48, 48)));
    CHECK_THROWS_WITH(dataset.read_step(2, out.data()), ContainsSubstring("step 2, channel 0 holds "));
  }
}

TEST_CASE("dataset: every kind of bad input is one sentence with the file's name") {
  const testing::TemporaryFolder folder;
  const std::string good = folder / "good.h5", path = folder / "bad.h5";
  write_fields(good, {3, 2, 4, 6});
  const auto write_bad = [&](const auto& make) {
    auto file = hdf5::File::create(path);
    make(file);
    file.close();
  };
  const std::array<std::int64_t, 3> cube = {3, 4, 6};
  const std::array<std::int64_t, 1> two = {2};
  const FieldsShape shape = {3, 2, 4, 6};
  const std::vector<float> numbers = testing::field_values(shape);

  CHECK(series_refusal({.paths = {folder / "nowhere"}}) == std::string(folder / "nowhere") + " does not exist");
  std::filesystem::create_directory(folder / "empty");
  CHECK(series_refusal({.paths = {folder / "empty"}}) ==
        std::string(folder / "empty") + " holds no .h5 files, no NetCDF files and no Zarr stores");

  testing::write_text(path, "this is not HDF5");
  CHECK(series_refusal({.paths = {path}}) == path + " is not an HDF5 file");
  testing::write_text(path, "");
  CHECK(series_refusal({.paths = {path}}) == path + " is not an HDF5 file");
  const std::string whole = read_file(good);
  for (std::size_t keep : {whole.size() - 1, whole.size() / 2, std::size_t{100}}) {
    testing::write_text(path, whole.substr(0, keep));
    CHECK(series_refusal({.paths = {path}}) == path + " is a truncated or damaged HDF5 file");
  }

  write_bad([&](hdf5::File& file) {
    file.write("tas", two, std::span<const float>(numbers.data(), 2));
    file.write("pr", two, std::span<const float>(numbers.data(), 2));
  });
  CHECK(series_refusal({.paths = {path}}) == path + " has no dataset 'fields'; it holds pr, tas");
  write_bad([&](hdf5::File& file) { file.write("fields", cube, std::span<const float>(numbers.data(), 72)); });
  CHECK(series_refusal({.paths = {path}}) ==
        path + ": 'fields' has shape (3, 4, 6); expected four dimensions (time, channel, latitude, longitude)");
  const std::vector<std::int64_t> integers(numbers.begin(), numbers.end());
  write_bad([&](hdf5::File& file) { file.write("fields", shape, std::span<const std::int64_t>(integers)); });
  CHECK(series_refusal({.paths = {path}}) ==
        path + ": 'fields' holds 64-bit integer; expected 32-bit, 64-bit or 16-bit float");

  CHECK(series_refusal({.paths = {good}, .channels = {"a", "b", "c"}}) == good + " has 2 channels; expected 3");
  CHECK(series_refusal({.paths = {good}, .height = 5, .width = 6}) ==
        good + ": its grid of 4 x 6 is smaller than the 5 x 6 asked for");
  CHECK(series_refusal({.paths = {good}, .height = 4, .width = 7}) ==
        good + ": its grid of 4 x 6 is smaller than the 4 x 7 asked for");
  CHECK(series_refusal({.paths = {good}, .dt = 0}) == "dt must be at least one step, not 0");

  write_fields(path, {3, 2, 4, 5});
  CHECK(series_refusal({.paths = {good, path}, .width = 5}) ==
        path + ": its grid of 4 x 5 differs from the 4 x 6 of " + good);
  write_fields(path, {3, 1, 4, 6});
  CHECK(series_refusal({.paths = {good, path}}) == path + " has 1 channels, " + good + " has 2");
  write_bad([&](hdf5::File& file) {
    file.write("fields", shape, std::span<const float>(numbers));
    file.write("lat", two, std::span<const float>(numbers.data(), 2));
  });
  CHECK(series_refusal({.paths = {path}}) == path + ": 'lat' has 2 values, 'fields' has shape (3, 2, 4, 6)");
  for (const double beyond : {90.01, -90.01}) {
    write_bad([&](hdf5::File& file) {
      file.write("fields", shape, std::span<const float>(numbers));
      file.write("lat", std::array<std::int64_t, 1>{4}, std::span<const double>(std::array{60.0, beyond, 1.0, 0.0}));
    });
    CHECK(series_refusal({.paths = {path}}) ==
          concat(path, ": a latitude of ", beyond, " degrees is not on the globe"));
  }
  write_bad([&](hdf5::File& file) {  // what rounding leaves is on the globe
    file.write("fields", shape, std::span<const float>(numbers));
    file.write("lat", std::array<std::int64_t, 1>{4},
               std::span<const double>(std::array{90.0005, 30.0, -30.0, -90.0005}));
  });
  CHECK(series_refusal({.paths = {path}}) == "accepted");
}

TEST_CASE("dataset: ranges are checked against the data") {
  const testing::TemporaryFolder folder;
  write_fields(folder / "2001.h5", {5, 1, 2, 2});
  const auto with = [&](std::int64_t begin, std::int64_t end) {
    return series_refusal({.paths = {folder / "2001.h5"}, .range = StepRange{begin, end}, .range_key = "train_range"});
  };
  CHECK(with(0, 5) == "accepted");
  CHECK(with(3, 3) == "train_range [3, 3) is empty or reversed");
  CHECK(with(4, 2) == "train_range [4, 2) is empty or reversed");
  CHECK(with(-1, 2) == "train_range [-1, 2) begins before the first step");
  CHECK(with(0, 6) == "train_range [0, 6) goes beyond the 5 steps of " + std::string(folder / "2001.h5"));
}

TEST_CASE("dataset: NaN and infinities in the fields are named, wherever they are") {
  const testing::TemporaryFolder folder;
  const FieldsShape shape = {3, 2, 5, 7};
  for (const hdf5::Storage& storage : {hdf5::Storage{}, hdf5::Storage{.chunk = {2, 2, 5, 7}, .deflate = 1}})
    for (std::size_t at : {std::size_t{0}, std::size_t{34}, std::size_t{69}}) {
      std::vector<float> values = testing::field_values(shape);
      values[70 + at] = std::numeric_limits<float>::quiet_NaN();
      values[140 + at] = -std::numeric_limits<float>::infinity();
      write_fields(folder / "2001.h5", shape, values, storage);
      const FieldSeries dataset({.paths = {folder / "2001.h5"}});
      std::vector<float> out(70);
      CHECK_NOTHROW(dataset.read_step(0, out.data()));
      const std::string channel = at < 35 ? "0" : "1", path = folder / "2001.h5";
      CHECK_THROWS_WITH(dataset.read_step(1, out.data()), path + ": step 1, channel " + channel + " holds NaN");
      CHECK_THROWS_WITH(dataset.read_step(2, out.data()), path + ": step 2, channel " + channel + " holds an infinity");
    }
}

TEST_CASE("dataset: damage within the fields is found when they are read") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "2001.h5";
  const FieldsShape shape = {8, 1, 16, 16};
  write_fields(path, shape, 0, {.chunk = {4, 1, 16, 16}, .shuffle = true, .deflate = 1});
  const auto address = hdf5::File::open(path).chunk_addresses("fields").at(1);
  std::string bytes = read_file(path);
  for (std::size_t i = 0; i < address.bytes; ++i) bytes[address.offset + i] = static_cast<char>(i * 37);
  testing::write_text(path, bytes);
  const FieldSeries dataset({.paths = {path}});
  std::vector<float> out(256);
  CHECK_NOTHROW(dataset.read_step(3, out.data()));
  CHECK_THROWS_WITH(dataset.read_step(4, out.data()),
                    path + " is damaged: steps 4 to 7 of 'fields' cannot be decompressed");

  // A file cut short while it is open: what the library could not know when it opened it.
  write_fields(path, shape);
  const FieldSeries open({.paths = {path}});
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 100);
  CHECK_THROWS_WITH(open.read_step(7, out.data()), path + " is truncated: it ends before its fields do");
}

TEST_CASE("dataset: the processes of a host share the memory for decoded chunks") {
  const std::int64_t alone = default_cache_bytes();
  CHECK(alone > 4);
  CHECK(default_cache_bytes(1) == alone);
  CHECK(default_cache_bytes(4) == alone / 4);
  CHECK_THROWS_WITH(default_cache_bytes(0), "0 processes on a host");
}

TEST_CASE("hdf5: a file appears whole or not at all, and the same values make the same bytes") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  const FieldsShape shape = {2, 1, 2, 2};
  {
    auto file = hdf5::File::create(path);
    file.write("fields", shape, std::span<const float>(testing::field_values(shape)));
    CHECK(!std::filesystem::exists(path));
    // The library locks nothing: its locks would meet the one that says that the writer lives.
    const int written = ::open(std::filesystem::directory_iterator(folder.path())->path().c_str(), O_RDWR);
    REQUIRE(written >= 0);
    CHECK(::flock(written, LOCK_EX | LOCK_NB) == 0);
    ::close(written);
  }
  CHECK(std::filesystem::is_empty(folder.path()));
  write_fields(path, shape);
  const std::string first = read_file(path);
  write_fields(path, shape);
  CHECK(read_file(path) == first);
  std::filesystem::permissions(path, static_cast<std::filesystem::perms>(0600));
  auto one = hdf5::File::create(path), two = hdf5::File::create(path);  // two processes would be the same
  one.write("fields", shape, std::span<const float>(testing::field_values(shape)));
  two.write("other", shape, std::span<const float>(testing::field_values(shape)));
  one.close();
  CHECK(hdf5::File::open(path).has("fields"));
  two.close();
  CHECK(hdf5::File::open(path).has("other"));
  CHECK(std::filesystem::status(path).permissions() == static_cast<std::filesystem::perms>(0600));
  CHECK_THROWS_WITH(hdf5::File::create(folder / "no/such/a.h5"), ContainsSubstring("a.h5: there is no folder"));
}

// A process that goes by another one's findings asks nothing of the file system until it reads.
TEST_CASE("dataset: what another process found is taken without a look at the files") {
  const testing::TemporaryFolder folder;
  const FieldsShape shape = {4, 2, 3, 5};
  const testing::Labels labels{
      .names = {"t2m", "sp"}, .units = {"K", "Pa"}, .hours = {0, 6, 12, 24}, .latitudes = {90, 0.1, -90}};
  const std::string data = folder / "data", first = data + "/a.h5", second = data + "/b.h5";
  std::filesystem::create_directory(data);
  testing::write_labelled_fields(first, shape, labels, testing::field_values(shape));
  write_fields(second, {3, 2, 3, 5}, 7);
  const auto opened_with = [&](const std::shared_ptr<FieldCatalog>& catalog) {
    return FieldSeries({.paths = {data}, .catalog = catalog});
  };
  const auto made = std::make_shared<FieldCatalog>();
  CHECK_THROWS_WITH(opened_with(made), ContainsSubstring("latitudes"));  // they differ: b.h5 has none
  testing::write_labelled_fields(second, shape, {labels.names, labels.units, {48, 54, 60, 66}, labels.latitudes},
                                 testing::field_values(shape, 7));
  const auto own = std::make_shared<FieldCatalog>();
  const FieldSeries seen = opened_with(own);
  const auto packed = std::make_shared<FieldCatalog>(FieldCatalog::unpack(own->pack()));
  CHECK(packed->pack() == own->pack());

  std::filesystem::rename(data, folder / "away");
  const FieldSeries told = opened_with(packed);
  CHECK(told.steps() == 8);
  CHECK(told.file_name(1) == second);
  CHECK(told.channel_names() == labels.names);
  CHECK(told.labels().units == labels.units);
  CHECK(told.labels().step_hours == 6);
  CHECK(told.latitudes() == labels.latitudes);
  CHECK(told.holes({0, 4}) == seen.holes({0, 4}));
  CHECK(told.holes({0, 4}) == std::vector<std::int64_t>{2});
  CHECK(told.hours_since_1970(4) == seen.hours_since_1970(4));
  std::vector<float> values(static_cast<std::size_t>(told.values()));
  CHECK_THROWS_WITH(told.read_step(0, values.data()), ContainsSubstring(first));

  // Once they are there: the first step that is read opens its file. Other contents than those found are refused.
  std::filesystem::rename(folder / "away", data);
  told.read_step(1, values.data());
  CHECK(values[0] == testing::field_value(0, 1, 0, 0, 0));
  CHECK(told.file(0).how_it_is_read() == std::string("contiguous, pread"));
  std::filesystem::remove(second);
  testing::write_labelled_fields(second, shape, {labels.names, labels.units, {48, 54, 60, 67}, labels.latitudes},
                                 testing::field_values(shape, 7));
  for (int time = 0; time < 2; ++time)  // it does not become the right one by being asked for again
    CHECK_THROWS_WITH(told.read_step(5, values.data()),
                      ContainsSubstring("b.h5 is not what it was when the data were looked at"));
  CHECK_THROWS_WITH(FieldCatalog::unpack("no catalog"), ContainsSubstring("another process"));
}

TEST_CASE("dataset: every fact of a file is told to other processes") {
  const FieldFacts facts{.shape = {2, 1, 2, 3},
                         .channel_names = {"t2m"},
                         .units = {"K"},
                         .latitudes = {60, 0.1},
                         .longitudes = {0, 1.5, 3},
                         .time = TimeFacts{{0, 6.25}, "hours since 1900-01-01", "standard", true},
                         .fill_values = {-999, 1e20F},
                         .left_out = {"soil has 4 entries on its axis 'depth'"},
                         .has_expver = true};
  CHECK(facts_from_json(to_json(facts)) == facts);
  FieldFacts timeless = facts;
  timeless.time.reset();
  timeless.has_expver = false;
  CHECK(facts_from_json(to_json(timeless)) == timeless);
  FieldFacts other = facts;
  other.time->single_precision = false;
  other.time->calendar = "gregorian";
  CHECK(facts_from_json(to_json(other)) == other);
  CHECK_FALSE(other == facts);
}

TEST_CASE("dataset: what is asked for in vain is named, with the key that asks") {
  const testing::TemporaryFolder folder;
  const std::string named = folder / "named.h5", other = folder / "other.h5", plain = folder / "plain.h5";
  testing::write_labelled_fields(named, {2, 2, 4, 6}, {.names = {"t2m", "msl"}});
  testing::write_labelled_fields(other, {2, 1, 4, 6}, {.names = {"t2m"}});
  write_fields(plain, {2, 2, 4, 6});
  CHECK(series_refusal({}) == "no data path is given");
  CHECK(series_refusal({.paths = {named, other}}) ==
        other + " has 1 channels, " + named + " has 2; msl is in one of them only");
  CHECK(series_refusal({.paths = {other, named}}) ==
        named + " has 2 channels, " + other + " has 1; msl is in one of them only");
  CHECK(series_refusal({.paths = {plain}, .channels = {"t2m"}, .choose = true}) ==
        plain + " does not name its channels, so that none can be chosen by name");
  CHECK(series_refusal({.paths = {named}, .channels = {"ms"}, .choose = true}) ==
        named + " has no channel ms; did you mean msl?; it has msl, t2m");
  CHECK(series_refusal({.paths = {plain}, .height = 5, .width = 6, .grid_key = "img_size"}) ==
        plain + ": its grid of 4 x 6 is smaller than the 5 x 6 asked for by config key img_size");
  CHECK(series_refusal({.paths = {plain}, .channels = {"a", "b"}}) == "accepted");
  CHECK(FieldSeries({.paths = {plain}, .channels = {"a", "b"}}).channel_names() == std::vector<std::string>{"a", "b"});
  const FieldSeries series({.paths = {named}});
  for (const std::int64_t step : {-1, 2})
    CHECK_THROWS_WITH(series.place(step), "step " + std::to_string(step) +
                                              " is beyond the 2 steps of the data, whose first file is " + named);
  CHECK(series_refusal({.paths = {folder / "no*.h5"}}) == std::string(folder / "no*.h5") + " matches no file");
  CHECK(FieldSeries({.paths = {folder / "[no]*e[dr].h5"}, .channels = {"t2m"}, .choose = true}).file_count() == 2);
}

TEST_CASE("dataset: dates need files whose names are in the order of their years") {
  const testing::TemporaryFolder folder;
  write_fields(folder / "a1980.h5", {366, 1, 1, 1});
  write_fields(folder / "b1979.h5", {365, 1, 1, 1});
  write_fields(folder / "c1981.h5", {365, 1, 1, 1});
  using Dates = std::array<std::string, 2>;
  const std::string first = folder / "a1980.h5", second = folder / "b1979.h5", third = folder / "c1981.h5";
  CHECK(series_refusal({.paths = {folder.path()}, .range = Dates{"1979-03-01", "1979-04-01"}, .range_key = "r"}) ==
        "r [1979-03-01, 1979-04-01] are dates, but " + first + " comes before " + second +
            " by name, and not by the years in their names");
  const FieldSeries ordered({.paths = {second, first, third}, .range = Dates{"1980-12-31", "1981-01-01"}});
  CHECK(ordered.range() == StepRange{365 + 365, 365 + 366 + 1});
}

TEST_CASE("dataset: what the shell's pattern needs is given back, whether it names files or none") {
  const testing::TemporaryFolder folder;
  for (const char* name : {"2001.h5", "2002.h5", "2003.h5"}) testing::write_text(folder / name, "no HDF5 file");
  const testing::Kept kept = testing::kept_by(100, [&] {
    CHECK(find_field_files(folder / "200[12].h5") ==
          std::vector<std::string>{(folder / "2001.h5").string(), (folder / "2002.h5").string()});
    CHECK(find_field_files(folder.path()).size() == 3);
    CHECK_THROWS_AS(find_field_files(folder / "19*.h5"), Error);
  });
  CHECK(kept.bytes < 100 * 16);
  CHECK(kept.files == 0);
}
