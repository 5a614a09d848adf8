// Files that are damaged, hostile, or change while they are read: each is one sentence, never values that nobody wrote.
// tests/fuzz/corpus/hdf5 has the files, which h5py made and a few bytes changed.
#include <H5public.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "data/era5/era5.h"
#include "data/era5/field_file.h"
#include "data/era5/hdf5.h"
#include "data/era5/trial.h"
#include "engine/files/atomic_file.h"
#include "kernels/common/check.h"
#include "tests/harness/data_files.h"
#include "tests/harness/file_size_limit.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;
using testing::FieldsShape;

namespace {

std::string corpus(const std::string& name) {
  return std::string(ISOBAR_SOURCE_DIR) + "/tests/fuzz/corpus/hdf5/" + name;
}

// The error of opening a file and reading each of its steps; the part after the file's name.
std::string refusal(const std::string& path) {
  try {
    const Era5Dataset dataset({.paths = {path}});
    std::vector<float> step(static_cast<std::size_t>(dataset.values()));
    for (std::int64_t t = 0; t < dataset.steps(); ++t) dataset.read_step(t, step.data());
  } catch (const Error& error) {
    const std::string sentence = error.what();
    return sentence.starts_with(path) ? sentence.substr(path.size()) : "without the file's name: " + sentence;
  }
  return "accepted";
}

// Writes fields that only the library can read: with a checksum.
void write_for_the_library(const std::string& path, const FieldsShape& shape) {
  testing::write_fields(path, shape, 0, {.chunk = {1, shape[1], shape[2], shape[3]}, .checksum = true});
}

}  // namespace

TEST_CASE("hdf5: good files of every kind are accepted") {
  for (const char* name : {"big_endian", "checksum", "chunks", "contiguous", "gzip", "latest_chunks",
                           "latest_contiguous", "soft_link", "variable_length_text", "virtual"})
    CHECK(refusal(corpus(name)) == "accepted");
}

TEST_CASE("hdf5: fields that lie in another file, or of which a part is missing, are refused") {
  CHECK(refusal(corpus("external_link")) ==
        ": 'fields' is a link into another file; isobar reads what lies in the file itself");
  CHECK(refusal(corpus("external_missing")) == ": 'fields' lies in the file /nowhere/raw, which cannot be found");
  CHECK(refusal(corpus("virtual_missing")) == ": 'fields' is virtual, and its source nowhere.h5 cannot be found");
  CHECK(refusal(corpus("virtual_part")) == ": 'fields' is virtual, and its sources give 120 of its 160 values");
}

TEST_CASE("hdf5: the index of the chunks must name each chunk once, whole and within the file") {
  CHECK(refusal(corpus("chunk_outside")) ==
        " is damaged: the index of the chunks of 'fields' names one outside the dataset");
  CHECK(refusal(corpus("chunk_twice")) == " is damaged: the index of the chunks of 'fields' names one of them twice");
  CHECK(refusal(corpus("chunk_short")) == " is damaged: a chunk of 'fields' has 16 bytes, not 160");
  CHECK(refusal(corpus("chunk_beyond_the_end")) ==
        ": cannot find the chunks of 'fields': the file is truncated or damaged");
}

TEST_CASE("hdf5: an attribute that is a list is refused") {
  CHECK(refusal(corpus("units_list")) == ": the attribute 'units' of 'time' holds 2 texts; expected one");
  CHECK(refusal(corpus("calendar_list")) == ": the attribute 'calendar' of 'time' holds 2 texts; expected one");
}

TEST_CASE("hdf5: sizes that no file has are refused before memory is taken") {
  CHECK_THAT(refusal(corpus("grid_wraps")), ContainsSubstring(": 'fields' has an impossible size: 144115188075855872"));
  CHECK_THAT(refusal(corpus("values_overflow")), ContainsSubstring(": 'fields' has an impossible size: 6 x 3 x"));
  CHECK_THAT(refusal(corpus("steps_2e33")), ContainsSubstring(": 'fields' has shape (8589934592,"));
  CHECK_THAT(refusal(corpus("channels_2e40")), ContainsSubstring(": 'fields' has shape"));
  CHECK(refusal(corpus("lat_2e31")) ==
        ": 'lat' has more than 16777216 values, the most that isobar reads of what lies beside the fields");
  CHECK_THAT(refusal(corpus("channel_wraps")), ContainsSubstring(": 'channel' has more than 16777216 values"));
}

TEST_CASE("hdf5: times that are far off are refused") {
  CHECK(refusal(corpus("time_1e300")) == ": 'time': the time 1e+300 is not within the years 0 to 9999");
  CHECK_THAT(refusal(corpus("year_2e63")), ContainsSubstring(": 'time': cannot read the time units"));
}

TEST_CASE("hdf5: a file that crashes the library, or never ends, is a damaged file") {
  int damaged = 0;
  for (const auto& entry : std::filesystem::directory_iterator(corpus(""))) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("crash_") && !name.starts_with("timeout_")) continue;
    INFO(name);
    const std::string sentence = refusal(entry.path().string());
    CHECK_THAT(sentence, !ContainsSubstring("without the file's name"));
    damaged += sentence.starts_with(" is damaged: the HDF5 library") ? 1 : 0;
  }
  // Later versions have an answer to all of these files.
  if constexpr (!H5_VERSION_GE(1, 12, 0)) CHECK(damaged > 0);
}

TEST_CASE("hdf5: a file that is cut while it is in use is an error, never zeros") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "2001.h5";
  const FieldsShape shape = {6, 1, 8, 8};
  std::vector<float> step(64);
  for (const bool by_library : {true, false})
    for (const std::uintmax_t keep : {2000, 0}) {
      if (by_library) write_for_the_library(path, shape);
      if (!by_library) testing::write_fields(path, shape);
      const Era5Dataset dataset({.paths = {path}});
      REQUIRE_NOTHROW(dataset.read_step(0, step.data()));
      std::filesystem::resize_file(path, keep);
      CHECK_THROWS_WITH(dataset.read_step(5, step.data()), ContainsSubstring(path + " is truncated: it "));
    }
}

TEST_CASE("hdf5: what lies beside the fields of a file that is cut is an error too") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "2001.h5";
  const FieldsShape shape = {3, 2, 4, 4};
  const testing::Labels labels{.names = {"t2m", "sp"}, .hours = {0, 6, 12}, .latitudes = {30, 10, -10, -30}};
  testing::write_labelled_fields(path, shape, labels, testing::field_values(shape));
  const auto file = hdf5::File::open(path);
  REQUIRE(file.strings("channel") == labels.names);
  REQUIRE(file.numbers("lat") == labels.latitudes);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  CHECK_THROWS_WITH(file.strings("channel"), ContainsSubstring(path + " is truncated: it "));
  CHECK_THROWS_WITH(file.numbers("lat"), ContainsSubstring(path + " is truncated: it "));
}

TEST_CASE("hdf5: a source of virtual fields that is cut while it is in use is an error") {
  const testing::TemporaryFolder folder;
  std::filesystem::copy_file(corpus("virtual"), folder / "virtual");
  std::filesystem::copy_file(corpus("contiguous"), folder / "contiguous");
  const Era5Dataset dataset({.paths = {folder / "virtual"}});
  std::vector<float> step(static_cast<std::size_t>(dataset.values()));
  REQUIRE_NOTHROW(dataset.read_step(0, step.data()));
  std::filesystem::resize_file(folder / "contiguous", 1000);
  CHECK_THROWS_WITH(dataset.read_step(2, step.data()), ContainsSubstring("contiguous is truncated: it was cut"));
}

TEST_CASE("hdf5: a chunk that was stored without its filter is read as it is") {
  const Era5Dataset dataset({.paths = {corpus("filter_skipped")}});
  std::vector<float> step(16);
  dataset.read_step(0, step.data());
  for (std::size_t i = 0; i < 16; ++i) CHECK(step[i] == static_cast<float>(i));
  dataset.read_step(1, step.data());
  CHECK(step == std::vector<float>(16, 5.0f));
}

TEST_CASE("hdf5: what cannot be written says why") {
  const testing::TemporaryFolder folder;
  const FieldsShape shape = {4, 4, 64, 64};
  const std::vector<float> values = testing::field_values(shape);
  const testing::FileSizeLimit full_disk(1 << 14);
  CHECK_THROWS_WITH(testing::write_fields(folder / "a.h5", shape, values), ContainsSubstring("File too large"));
  auto file = hdf5::File::create(folder / "b.h5");
  CHECK_THROWS_WITH(
      [&] {
        file.write("small", std::array<std::int64_t, 1>{3000}, std::span<const float>(values.data(), 3000),
                   {.chunk = {1000}});
        file.write("more", std::array<std::int64_t, 1>{3000}, std::span<const float>(values.data(), 3000),
                   {.chunk = {1000}});
        file.close();
      }(),
      ContainsSubstring("File too large"));
}

TEST_CASE("hdf5: several threads read one file at once, however it is stored") {
  const testing::TemporaryFolder folder;
  const FieldsShape shape = {12, 3, 6, 10};
  const std::string path = folder / "2001.h5";
  for (const hdf5::Storage& storage : {hdf5::Storage{}, hdf5::Storage{.chunk = {2, 2, 4, 3}},
                                       hdf5::Storage{.chunk = {4, 3, 6, 10}, .shuffle = true, .deflate = 1}}) {
    testing::write_fields(path, shape, 0, storage);
    const Era5Dataset dataset({.paths = {path}, .height = 5, .width = 7});
    std::vector<std::int64_t> wrong(4, 0);
    {
      std::vector<std::jthread> readers;
      for (std::size_t r = 0; r < wrong.size(); ++r)
        readers.emplace_back([&dataset, &shape, &count = wrong[r]] {
          std::vector<float> got(static_cast<std::size_t>(dataset.values()));
          for (std::int64_t i = 0; i < 2 * shape[0]; ++i) {
            const std::int64_t t = i % shape[0];
            dataset.read_step(t, got.data());
            for (std::int64_t c = 0; c < 3; ++c)
              for (std::int64_t h = 0; h < 5; ++h)
                for (std::int64_t w = 0; w < 7; ++w)
                  count += got[static_cast<std::size_t>((c * 5 + h) * 7 + w)] != testing::field_value(0, t, c, h, w);
          }
        });
    }
    CHECK(wrong == std::vector<std::int64_t>(4, 0));
  }
}

TEST_CASE("trial: tells how a task ended that was run in a child process") {
  CHECK_FALSE(trial([] { return true; }));
  CHECK(trial([] { return false; }) == "asks for too much memory");
  CHECK(trial([]() -> bool { return std::raise(SIGSEGV) == 0; }) == "crashes");
  CHECK(trial([]() -> bool { return std::raise(SIGXCPU) == 0; }) == "does not end");
}
