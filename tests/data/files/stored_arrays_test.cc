// Files and stores that other programs wrote (tests/golden/stores.tar.gz, made by tools/make_stores.py), whole and in
// boxes, and what isobar says of files that it does not read.
#include "data/files/stored_arrays.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "data/files/codecs.h"
#include "data/files/gzip.h"
#include "data/files/hdf5.h"
#include "data/files/npy.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "tests/harness/error_of.h"
#include "tests/harness/places.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;
using zarr::MissingChunk;

namespace fs = std::filesystem;

namespace {

using Extents = std::vector<std::int64_t>;

// The archive, unpacked: entries of 512 bytes with a name and a length in octal digits, each before its contents.
class Stores {
 public:
  Stores() {
    const std::string path = testing::source_path("tests/golden/stores.tar.gz");
    const std::vector<std::uint8_t> tar = gunzip(read_file(path), std::size_t{1} << 26, path);
    const std::string all(tar.begin(), tar.end());
    for (std::size_t at = 0; at + 512 <= all.size() && all[at] != '\0';) {
      const std::string prefix = all.substr(at + 345, 155).c_str(), name = all.substr(at, 100).c_str();
      const std::size_t bytes = std::stoul(all.substr(at + 124, 11), nullptr, 8);
      const fs::path to = folder_ / (prefix.empty() ? name : prefix + "/" + name);
      fs::create_directories(to.parent_path());
      std::ofstream(to, std::ios::binary) << all.substr(at + 512, bytes);
      at += 512 + (bytes + 511) / 512 * 512;
    }
  }
  std::string operator/(const std::string& name) const { return (folder_ / name).string(); }

 private:
  testing::TemporaryFolder folder_;
};

struct Expected {
  std::string name;
  NpyArray array;
};

// What an archive's file or store should hold.
std::vector<Expected> expected_of(const Stores& stores, const std::string& file) {
  std::vector<Expected> found;
  const fs::path folder = stores / ("expected/" + file);
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    fs::path name = fs::relative(entry.path(), folder);
    found.push_back({name.replace_extension().string(), read_npy(entry.path().string())});
  }
  REQUIRE(!found.empty());
  return found;
}

// The values of a box of a row-major array.
std::vector<double> box_of(const NpyArray& array, const Extents& start, const Extents& count) {
  std::vector<double> values;
  std::int64_t boxed = 1;
  for (const std::int64_t extent : count) boxed *= extent;
  for (std::int64_t i = 0; i < boxed; ++i) {
    std::int64_t rest = i, position = 0, stride = 1;
    for (std::size_t d = count.size(); d-- > 0; stride *= array.shape[d], rest /= count[d])
      position += (start[d] + rest % count[d]) * stride;
    values.push_back(array.values[static_cast<std::size_t>(position)]);
  }
  return values;
}

template <class T>
bool equal(const std::vector<T>& found, const std::vector<double>& expected) {
  return std::ranges::equal(found, expected,
                            [](T a, double b) { return (std::isnan(a) && std::isnan(b)) || a == static_cast<T>(b); });
}

template <class T>
std::vector<T> read(BoxReader& reader, const Extents& start, const Extents& count) {
  std::size_t values = 1;
  for (const std::int64_t extent : count) values *= static_cast<std::size_t>(extent);
  std::vector<T> out(values + 1, T{-77});
  reader.read(start, count, out.data());
  CHECK(out.back() == T{-77});  // nothing is written behind the box
  out.pop_back();
  return out;
}

// All of it, and boxes that begin and end within chunks.
void check_boxes(BoxReader& reader, const NpyArray& expected) {
  REQUIRE(reader.shape() == expected.shape);
  const Extents zeros(expected.shape.size(), 0);
  CHECK(equal(read<double>(reader, zeros, expected.shape), expected.values));
  for (const std::int64_t inset : {1, 2}) {
    Extents start, count;
    for (const std::int64_t extent : expected.shape) {
      start.push_back(std::min(inset, extent - 1));
      count.push_back(std::max<std::int64_t>(extent - 2 * inset, 1));
    }
    CHECK(equal(read<float>(reader, start, count), box_of(expected, start, count)));
    for (std::size_t d = 0; d < count.size(); ++d) {  // a slab that is thin on one axis, and the last of it
      Extents thin = expected.shape, last = zeros;
      thin[d] = 1;
      last[d] = expected.shape[d] - 1;
      CHECK(equal(read<double>(reader, last, thin), box_of(expected, last, thin)));
    }
  }
}

bool build_has_codecs() {
  return build_undoes(Codec::Kind::zstd) && build_undoes(Codec::Kind::lz4) && build_undoes(Codec::Kind::blosc);
}

std::string arrays_refusal(const std::string& path) {
  return testing::error_of([&] { open_stored_arrays(path); }, "accepted");
}

std::string text_of(const Attributes& attributes, const std::string& name) {
  const auto found = attributes.find(name);
  return found != attributes.end() && found->second.texts.size() == 1 ? found->second.texts[0] : "";
}

}  // namespace

TEST_CASE("stored arrays: what other programs wrote is read, whole and in boxes") {
  const Stores stores;
  const std::vector<std::pair<std::string, std::string>> files = {
      {"2.zarr", "Zarr"},           {"3.zarr", "Zarr"},           {"xarray_2.zarr", "Zarr"},
      {"xarray_3.zarr", "Zarr"},    {"scipy_1.nc", "NetCDF-3"},   {"scipy_2.nc", "NetCDF-3"},
      {"netcdf4_1.nc", "NetCDF-3"}, {"netcdf4_2.nc", "NetCDF-3"}, {"netcdf4_5.nc", "NetCDF-3"},
      {"netcdf4_4.nc", "HDF5"}};
  int compared = 0;
  for (const auto& [file, format] : files) {
    if (format == "Zarr" && !build_has_codecs()) continue;
    const auto arrays = open_stored_arrays(stores / file);
    CHECK(arrays->format() == format);
    CHECK(arrays->path() == stores / file);
    for (const auto& [name, expected] : expected_of(stores, file)) {
      INFO(file << ": " << name);
      REQUIRE(arrays->find(name) != nullptr);
      CHECK(arrays->find(name)->shape == expected.shape);
      CHECK(arrays->find(name)->has_numbers);
      for (const bool cached : {false, true}) {
        const CacheBudget budget = cached ? std::make_shared<std::atomic<std::int64_t>>(1 << 20) : nullptr;
        const auto reader = arrays->open(name, {.budget = budget}, MissingChunk::fill_value);
        check_boxes(*reader, expected);
        if (cached) check_boxes(*reader, expected);  // from memory
      }
      ++compared;
    }
  }
  CHECK(compared == (build_has_codecs() ? 99 : 52));
}

TEST_CASE("stored arrays: names of axes, attributes and types are those that were written") {
  const Stores stores;
  for (const std::string file : {"xarray_2.zarr", "xarray_3.zarr"}) {
    INFO(file);
    const auto arrays = open_stored_arrays(stores / file);
    std::vector<std::string> names;
    for (const ArrayInfo& info : arrays->arrays()) names.push_back(info.name);
    CHECK(names == std::vector<std::string>{"expver", "latitude", "longitude", "lsm", "t2m", "time", "u10"});
    CHECK(text_of(arrays->attributes(), "Conventions") == "CF-1.8");
    CHECK(arrays->attributes().at("levels").numbers == std::vector<double>{1, 2});
    const ArrayInfo& t2m = *arrays->find("t2m");
    CHECK(t2m.dimensions == std::vector<std::string>{"time", "latitude", "longitude"});
    CHECK(text_of(t2m.attributes, "units") == "K");
    CHECK(t2m.attributes.at("scale_factor").numbers == std::vector<double>{0.25});
    CHECK(t2m.type_name == "16-bit integer");
    CHECK(t2m.attributes.count("_ARRAY_DIMENSIONS") == 0);
    const Attributes& lsm = arrays->find("lsm")->attributes;
    CHECK(lsm.at("flags").numbers == std::vector<double>{1, 2, 3});
    CHECK(std::isnan(lsm.at("missing").numbers.at(0)));
    CHECK(text_of(arrays->find("time")->attributes, "units") == "hours since 1996-01-01");
    const ArrayInfo& expver = *arrays->find("expver");
    CHECK(!expver.has_numbers);
    CHECK_THROWS_WITH(arrays->open("expver"),
                      arrays->path() + ": 'expver' holds " + expver.type_name + "; expected numbers");
  }
  const auto netcdf_3 = open_stored_arrays(stores / "scipy_2.nc"),
             netcdf_4 = open_stored_arrays(stores / "netcdf4_4.nc");
  CHECK(netcdf_3->find("v")->dimensions == std::vector<std::string>{"time", "y", "x"});
  CHECK(netcdf_3->find("v")->attributes.at("scale").numbers == std::vector<double>{0.5});
  CHECK(text_of(netcdf_3->attributes(), "title") == "version 2");
  CHECK(netcdf_4->find("f4")->dimensions == std::vector<std::string>{"y", "x"});
  CHECK(netcdf_4->find("f4_records")->dimensions == std::vector<std::string>{"time", "x"});
  CHECK(netcdf_4->find("x")->dimensions == std::vector<std::string>{"x"});
  CHECK(netcdf_4->find("below/f8")->dimensions == std::vector<std::string>{"y"});
  CHECK(text_of(netcdf_4->find("i2_records")->attributes, "units") == "K");
  CHECK(netcdf_4->find("x")->attributes.empty());  // without what HDF5's library notes there
  CHECK(netcdf_4->find("time") == nullptr);        // a dimension without values
  CHECK(text_of(netcdf_4->attributes(), "title") == "types");
  CHECK(netcdf_4->attributes().size() == 1);
  CHECK_THROWS_WITH(netcdf_4->open("q"), netcdf_4->path() + " has no array 'q'");
}

TEST_CASE(
    "stored arrays: a chunk that does not exist is an error that names it, unless the caller says what it means") {
  const Stores stores;
  if (!build_has_codecs()) ISOBAR_SKIP("this build has no zstd");
  const struct {
    std::string store, array, chunk, value;
    bool is_nan, in_shard;
  } cases[] = {{"2.zarr", "holes", "holes/1.1.0", "nan", true, false},
               {"2.zarr", "zeros", "zeros/1.1.0", "0", false, false},
               {"2.zarr", "eights", "eights/1.1.0", "8.5", false, false},
               {"3.zarr", "shards_start", "shards_start/c/0/0/0", "nan", true, true},
               {"3.zarr", "shards_end", "shards_end/c/0/0/0", "nan", true, true}};
  const Extents start{2, 3, 0}, count{2, 3, 2};
  for (const auto& [store, array, chunk, value, is_nan, in_shard] : cases) {
    INFO(array);
    const auto arrays = open_stored_arrays(stores / store);
    const std::string message = arrays->path() + ": '" + array + "': its chunk (1, 1, 0) does not exist: " +
                                (in_shard ? "it should be in " : "there is no file ") + stores / (store + "/" + chunk) +
                                ". It means the fill value, " + value + ", or that the store is not complete";
    std::vector<double> out(12);
    const auto reader = arrays->open(array), patient = arrays->open(array, {}, MissingChunk::nan_or_error);
    CHECK_THROWS_WITH(reader->read(start, count, out.data()), message);
    if (is_nan)
      CHECK(std::ranges::all_of(read<double>(*patient, start, count), [](double v) { return std::isnan(v); }));
    else
      CHECK_THROWS_WITH(patient->read(start, count, out.data()), message);
    reader->read(Extents{0, 0, 0}, count, out.data());  // the others are read
  }
  const auto whole_shard = open_stored_arrays(stores / "3.zarr")->open("shards_end");
  std::vector<double> out(1);
  CHECK_THROWS_WITH(whole_shard->read(Extents{4, 6, 8}, Extents{1, 1, 1}, out.data()),
                    ContainsSubstring("it should be in " + stores / "3.zarr/shards_end/c/1/1/1"));
}

TEST_CASE("stored arrays: threads that read one array at the same time read the same values") {
  if (!build_has_codecs()) ISOBAR_SKIP("this build has no zstd");
  const Stores stores;
  const auto arrays = open_stored_arrays(stores / "3.zarr");
  const NpyArray expected = read_npy(stores / "expected/3.zarr/shards.npy");
  const auto reader = arrays->open("shards", {.budget = std::make_shared<std::atomic<std::int64_t>>(500)});
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      std::vector<double> out(expected.values.size());
      for (int i = 0; i < 20; ++i) {
        reader->read(Extents{0, 0, 0}, expected.shape, out.data());
        wrong += out != expected.values;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("stored arrays: files that isobar does not read are told what to do with") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a";
  const auto of_bytes = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    return arrays_refusal(path);
  };
  CHECK(of_bytes("GRIB\1\2\3\2") ==
        path + " is a GRIB file, which isobar does not read; write it as NetCDF-4 with cdo -f nc4 copy");
  CHECK(of_bytes("PK\3\4....") == path + " is a zip file; unzip it, and name what it holds");
  CHECK(of_bytes("\x1f\x8b\x08") == path + " is compressed by gzip; decompress it with gunzip");
  for (const std::string bytes : {"", "C", "CDF\3....", "\x89HDF....", "no data"})
    CHECK(of_bytes(bytes) == path + " is no file that isobar reads: HDF5, NetCDF, or a Zarr store");
  CHECK(of_bytes("CDF\1") == path +
                                 " is damaged: at byte 4 of its NetCDF header it needs 4 bytes more, and the file "
                                 "ends at 4");
  CHECK_THAT(of_bytes("\x89HDF\r\n\x1a\n"), ContainsSubstring(path + " is a"));
  CHECK(arrays_refusal("s3://bucket/a.zarr") ==
        "s3://bucket/a.zarr is an address, and isobar reads files; download what it names first");
  CHECK(arrays_refusal(folder / "b") == (folder / "b").string() + " does not exist");
  CHECK(arrays_refusal(folder.path().string()) ==
        folder.path().string() +
            " is a folder, and no Zarr store: it has no zarr.json, .zmetadata, "
            ".zgroup or .zarray");
  for (const auto& [name, text] : {std::pair{".nczgroup", "{}"},
                                   {".nczattrs", "{}"},
                                   {".zattrs", R"({"_nczarr_attr": {}})"},
                                   {".zgroup", R"({"zarr_format": 2, "_nczarr_group": {}})"},
                                   {"zarr.json", R"({"zarr_format": 3, "node_type": "group", "_nczarr_group": {}})"}}) {
    const testing::TemporaryFolder store;
    std::ofstream(store / ".zgroup") << R"({"zarr_format": 2})";
    CHECK(arrays_refusal(store.path().string()) == "accepted");
    std::ofstream(store / name) << text;
    CHECK(arrays_refusal(store.path().string()) == store.path().string() +
                                                       " is a store of NCZarr, which isobar does not "
                                                       "read; write it as NetCDF-4 with nccopy");
  }
}
