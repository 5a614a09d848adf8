// Zarr stores that are written here file by file: what is damaged, cut, missing or unknown is one sentence with the
// file.
// stored_arrays_test.cc reads stores that other programs wrote.
#include "data/files/zarr.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/files/checksum.h"
#include "kernels/common/check.h"
#include "tests/harness/error_of.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;
using zarr::MissingChunk;

namespace fs = std::filesystem;

namespace {

using Extents = std::vector<std::int64_t>;

// A folder, and files in it.
class Folder {
 public:
  std::string operator/(const std::string& name) const { return (folder_ / name).string(); }
  std::string path() const { return folder_.path().string(); }
  void write(const std::string& name, const std::string& bytes) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  zarr::Store open() const { return zarr::Store::open(folder_.path()); }
  std::string refusal() const {
    return testing::error_of([&] { open(); }, "accepted");
  }

 private:
  testing::TemporaryFolder folder_;
};

std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

std::string checksum_of(const std::string& bytes) {
  return little_endian(crc32c(std::as_bytes(std::span(bytes))), 4);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != text.npos);
  return text.replace(at, from.size(), to);
}

std::unique_ptr<BoxReader> reader_of(const Folder& folder, MissingChunk missing = MissingChunk::error) {
  const zarr::Store store = folder.open();
  return zarr::make_box_reader(store, store.arrays().at(0), {}, missing);
}

// All of an array.
std::vector<double> read(const Folder& folder, MissingChunk missing = MissingChunk::error) {
  const auto reader = reader_of(folder, missing);
  std::size_t values = 1;
  for (const std::int64_t extent : reader->shape()) values *= static_cast<std::size_t>(extent);
  std::vector<double> out(values);
  reader->read(Extents(reader->shape().size(), 0), reader->shape(), out.data());
  return out;
}

std::string refusal_of_reading(const Folder& folder, MissingChunk missing = MissingChunk::error) {
  return testing::error_of([&] { read(folder, missing); }, "accepted");
}

const std::string kVersion2 = R"({"zarr_format": 2, "shape": [3, 4], "chunks": [2, 3], "dtype": "|u1", "order": "C",
  "compressor": null, "filters": null, "fill_value": 9})";

// 3 x 4 values 10 y + x in chunks of 2 x 3; what chunks hold beyond the array is 255.
void write_version_2(const Folder& folder, const std::string& zarray = kVersion2) {
  folder.write("a/.zarray", zarray);
  folder.write(".zgroup", R"({"zarr_format": 2})");
  folder.write("a/0.0", std::string("\x00\x01\x02\x0a\x0b\x0c", 6));
  folder.write("a/0.1", "\x03\xff\xff\x0d\xff\xff");
  folder.write("a/1.0", "\x14\x15\x16\xff\xff\xff");
  folder.write("a/1.1", "\x17\xff\xff\xff\xff\xff");
}

const std::vector<double> kValues = {0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23};

std::string version_3(const std::string& codecs, const std::string& more = "") {
  return R"({"zarr_format": 3, "node_type": "array", "shape": [3, 4], "data_type": "uint8", "fill_value": 9,
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 6]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}, "codecs": [)" +
         codecs + "]" + more + "}";
}

std::string sharded(const std::string& index_codecs, const std::string& codecs = R"({"name": "bytes"})",
                    const std::string& more = "") {
  return version_3(R"({"name": "sharding_indexed", "configuration": {"chunk_shape": [2, 3], "codecs": [)" + codecs +
                   R"(], "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}})" + index_codecs +
                   "]" + more + "}}");
}

const std::string kChecked = R"(, {"name": "crc32c"})";

// The same four chunks in one shard, in another order than that of their index.
struct Shard {
  std::string chunks, index;
};
Shard shard() {
  const std::string chunks = std::string("\x17\xff\xff\xff\xff\xff\x03\xff\xff\x0d\xff\xff", 12) +
                             std::string("\x00\x01\x02\x0a\x0b\x0c", 6) + "\x14\x15\x16\xff\xff\xff";
  std::string index;
  for (const std::uint64_t offset : {12, 6, 18, 0}) index += little_endian(offset, 8) + little_endian(6, 8);
  return {chunks, index};
}

}  // namespace

TEST_CASE("zarr: chunks that reach beyond the array are cut, in every order of groups and names") {
  const Folder folder;
  write_version_2(folder);
  CHECK(read(folder) == kValues);
  CHECK(folder.open().arrays()[0].info.name == "a");
  const Folder single;  // an array alone is a store of one
  for (const std::string name : {".zarray", "0.0", "0.1", "1.0", "1.1"}) {
    std::ifstream from(folder / ("a/" + name), std::ios::binary);
    single.write(name, {std::istreambuf_iterator<char>(from), {}});
  }
  CHECK(read(single) == kValues);
  CHECK(single.open().arrays()[0].info.name == fs::path(single.path()).filename());
  CHECK(zarr::Store::open(single.path() + "/").arrays()[0].info.name == fs::path(single.path()).filename());
}

TEST_CASE("zarr: consolidated metadata are taken where they exist") {
  const Folder folder;
  write_version_2(folder);
  folder.write(".zattrs", R"({"title": "of the folder", "low": -Infinity, "a \"NaN\"": NaN})");
  CHECK(folder.open().attributes().at("title").texts[0] == "of the folder");
  CHECK(folder.open().attributes().at("low").numbers[0] == -std::numeric_limits<double>::infinity());
  CHECK(std::isnan(folder.open().attributes().at("a \"NaN\"").numbers.at(0)));
  fs::remove(folder / "a/.zarray");
  CHECK(folder.open().arrays().empty());
  folder.write(".zmetadata", R"({"zarr_consolidated_format": 1, "metadata": {".zgroup": {}, ".zattrs": {"t": "c"},
    "a/.zattrs": {"units": "K", "_ARRAY_DIMENSIONS": ["y", "x"], "more": {"x": 1}}, "a/.zarray": )" +
                                 kVersion2 + "}}");
  CHECK(read(folder) == kValues);
  const zarr::Store store = folder.open();
  CHECK(store.attributes().at("t").texts[0] == "c");
  CHECK(store.arrays()[0].info.dimensions == std::vector<std::string>{"y", "x"});
  CHECK(store.arrays()[0].info.attributes.size() == 1);
  folder.write(".zmetadata", R"({"metadata": [1]})");
  CHECK(folder.refusal() == folder / ".zmetadata" + " is damaged: its 'metadata' are [1]");
  folder.write(".zmetadata", R"({"metadata": {"../a/.zarray": )" + kVersion2 + "}}");
  CHECK(folder.refusal() ==
        folder / ".zmetadata" + R"( is damaged: it names "../a", which is no place within the store)");

  const Folder of_3;
  const std::string array = version_3(R"({"name": "bytes"})");
  of_3.write("zarr.json", R"({"zarr_format": 3, "node_type": "group", "attributes": {"t": "c"},
    "consolidated_metadata": {"kind": "inline", "must_understand": false, "metadata": {"g": {"zarr_format": 3,
    "node_type": "group"}, "g/a": )" +
                              array + "}}}");
  REQUIRE(of_3.open().arrays().size() == 1);
  CHECK(of_3.open().arrays()[0].info.name == "g/a");
  CHECK(of_3.open().attributes().at("t").texts[0] == "c");

  // Metadata that lie elsewhere are not taken, and only the root's attributes are the store's.
  of_3.write("zarr.json", R"({"zarr_format": 3, "node_type": "group", "attributes": {"t": "c"},
    "consolidated_metadata": {"kind": "elsewhere", "metadata": {"h": )" +
                              array + "}}}");
  of_3.write("g/zarr.json", R"({"zarr_format": 3, "node_type": "group", "attributes": {"t": "of g"}})");
  of_3.write("g/b/zarr.json", array);
  REQUIRE(of_3.open().arrays().size() == 1);
  CHECK(of_3.open().arrays()[0].info.name == "g/b");
  CHECK(of_3.open().attributes().at("t").texts[0] == "c");
}

TEST_CASE("zarr: a shuffle that does not say so is of four bytes") {
  const Folder folder;
  folder.write(".zgroup", R"({"zarr_format": 2})");
  folder.write("a/.zarray", R"({"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "<f4", "order": "C",
    "compressor": null, "filters": [{"id": "shuffle"}], "fill_value": 0})");
  folder.write("a/0", std::string("\x00\x00\x00\x00\x80\x00\x3f\x40", 8));
  CHECK(read(folder) == std::vector<double>{1, 2});
}

TEST_CASE("zarr: metadata of version 2 that are damaged, or that isobar does not know, are named") {
  const Folder folder;
  const auto refusal_with = [&](const std::string& from, const std::string& to) {
    write_version_2(folder, replaced(kVersion2, from, to));
    return refusal_of_reading(folder);
  };
  const std::string where = folder / "a/.zarray", array = folder.path() + ": 'a' ";
  CHECK(refusal_with("\"shape\": [3, 4], ", "") == where + " is damaged: it has no 'shape'");
  for (const std::string shape : {"[3, -4]", "[3, 4.5]", "[3, 9223372036854775808]", "3", "\"3\"", "null"})
    CHECK_THAT(refusal_with("[3, 4]", shape), ContainsSubstring(where + " is damaged: it"));
  for (const std::string chunks : {"[2]", "[2, 3, 1]", "[0, 3]", "[2, -1]"})
    CHECK_THAT(refusal_with("[2, 3]", chunks), ContainsSubstring(where + " is damaged: its 'chunks' is "));
  CHECK(refusal_with("[2, 3]", "[4611686018427387904, 4]") ==
        array.substr(0, array.size() - 1) + ", a chunk, has an impossible size: 4611686018427387904 x 4 x 1");
  CHECK_THAT(refusal_with("[3, 4]", "[4611686018427387904, 4]"), ContainsSubstring("has an impossible size"));
  CHECK(refusal_with("[3, 4]", "[3, -4]") ==
        where + " is damaged: its 'shape' is [3,-4], and should be at most 64 whole numbers from 0 on");
  std::string axes = "[1";
  for (int d = 1; d < 65; ++d) axes += ",1";
  CHECK_THAT(refusal_with("[3, 4]", axes + "]"), ContainsSubstring("should be at most 64 whole numbers from 0 on"));
  CHECK(refusal_with("[2, 3]", "[2, 0]") ==
        where + " is damaged: its 'chunks' is [2,0], and should be 2 whole numbers from 1 on");
  CHECK(refusal_with("\"C\"", "7") == where + " is damaged: its 'order' is 7, and should be a text");
  CHECK(refusal_with("\"filters\": null", "\"filters\": 7") == where + " is damaged: its 'filters' are 7");
  CHECK(refusal_with("\"C\"", "\"A\"") == where + " is damaged: its 'order' is 'A', not C or F");
  CHECK(refusal_with(": 2,", ": 1,") == where + " has 'zarr_format' 1; expected 2");
  CHECK(refusal_with(": 9}", ": \"nine\"}") == where + " is damaged: its 'fill_value' is \"nine\", which is no number");
  CHECK(refusal_with(": 9}", ": 9, \"dimension_separator\": \"-\"}") ==
        where + " is damaged: its 'dimension_separator' is \"-\"");
  for (const std::string type : {"<U4", "|S1", "|b1", "<M8[ns]", "<c8", "<f16", "<i3", "|O", "|i2", "=i2", "<f1"})
    CHECK(refusal_with("|u1", type) == array + "holds values of type " + type + "; expected numbers");
  CHECK(refusal_with("\"|u1\"", "[[\"x\", \"<f4\"]]") ==
        array + "holds values of type [[\"x\",\"<f4\"]]; expected numbers");
  const std::string undone =
      "isobar does not undo; it undoes zlib, gzip, zstd, lz4, blosc, crc32c, shuffle, and shards";
  CHECK(refusal_with("\"compressor\": null", R"("compressor": {"id": "bz2", "level": 1})") ==
        array + "has the codec 'bz2', which " + undone);
  CHECK(refusal_with("\"filters\": null", R"("filters": [{"id": "fixedscaleoffset"}])") ==
        array + "has the codec 'fixedscaleoffset', which " + undone);
  CHECK(refusal_with("\"filters\": null", R"("filters": [{"id": "shuffle", "elementsize": 0}])") ==
        where + " is damaged: the 'elementsize' of its shuffle is 0");
  CHECK(refusal_with("\"compressor\": null", R"("compressor": "zlib")") == where + " is damaged: it has no 'id'");
  CHECK_THAT(refusal_with("}", ""), ContainsSubstring(where));
  folder.write("a/.zarray", "[]");
  CHECK(folder.refusal() == where + " is no JSON object, as Zarr's metadata are");
  const Folder empty;
  CHECK(empty.refusal() == empty.path() + " is no Zarr store: it has no zarr.json, .zmetadata, .zgroup or .zarray");
}

TEST_CASE("zarr: metadata of version 3 that are damaged, or that isobar does not know, are named") {
  const Folder folder;
  const std::string good = version_3(R"({"name": "bytes"})");
  const std::string where = folder / "zarr.json",
                    array = folder.path() + ": '" + fs::path(folder.path()).filename().string() + "' ";
  const auto refusal_with = [&](const std::string& metadata) {
    folder.write("zarr.json", metadata);
    folder.write("c/0/0", std::string(24, '\1'));
    return refusal_of_reading(folder);
  };
  CHECK(refusal_with(good) == "accepted");
  CHECK(refusal_with(version_3("\"bytes\"")) == "accepted");  // a name without options
  CHECK(refusal_with(replaced(good, ": 3,", ": 4,")) == where + " has 'zarr_format' 4; expected 3");
  CHECK(refusal_with(replaced(good, "\"array\"", "\"tree\"")) == where + " is damaged: its 'node_type' is \"tree\"");
  CHECK(refusal_with(replaced(good, "\"regular\"", "\"rectilinear\"")) ==
        array + "has chunks in a grid of the kind 'rectilinear'; isobar reads regular ones");
  CHECK(refusal_with(replaced(good, "\"default\"", "\"hashed\"")) ==
        array + "names its chunks by 'hashed', which isobar does not know");
  CHECK(refusal_with(replaced(good, "\"/\"", "\"+\"")) == where + " is damaged: its 'separator' is \"+\"");
  for (const std::string type : {"\"bool\"", "\"complex64\"", "\"string\"", R"({"name": "numpy.datetime64"})"})
    CHECK_THAT(refusal_with(replaced(good, "\"uint8\"", type)), ContainsSubstring("; expected numbers"));
  for (const std::string fill : {"null", "\"0x00\"", "\"x\"", "[1]"})
    CHECK_THAT(refusal_with(replaced(good, "\"fill_value\": 9", "\"fill_value\": " + fill)),
               ContainsSubstring(where + " is damaged: it"));
  CHECK_THAT(refusal_with(version_3(R"({"name": "bytes"}, {"name": "pcodec"})")),
             ContainsSubstring(array + "has the codec 'pcodec', which isobar does not undo"));
  CHECK_THAT(refusal_with(version_3(R"({"name": "zfp"})")), ContainsSubstring("has the codec 'zfp'"));
  CHECK_THAT(refusal_with(version_3(R"({"name": "gzip"}, {"name": "bytes"})")),
             ContainsSubstring("has the codec 'gzip'"));  // before there are bytes
  CHECK(refusal_with(version_3("")) ==
        where + " is damaged: none of its codecs turns numbers into bytes (bytes, sharding_indexed)");
  CHECK(refusal_with(version_3(R"({"name": "bytes", "configuration": {"endian": "middle"}})")) ==
        where + " is damaged: its bytes have the 'endian' \"middle\"");
  CHECK(refusal_with(version_3("7")) == where + " is damaged: 7 is neither a name nor an object with one");
  CHECK(refusal_with(replaced(good, R"([{"name": "bytes"}])", "7")) ==
        where + " is damaged: its codecs are 7, and should be a list");
  CHECK(refusal_with(version_3("\"sharding_indexed\"")) == where + " is damaged: its shards have no 'configuration'");
  CHECK(refusal_with(version_3(R"({"name": "transpose", "configuration": {"order": [0, 0]}}, "bytes")")) ==
        where + " is damaged: the 'order' of its transpose is [0,0], and should name 2 axes once each");
  for (const std::string order : {"[0]", "[0, 0]", "[1, 2]", "\"C\""})
    CHECK_THAT(
        refusal_with(version_3(R"({"name": "transpose", "configuration": {"order": )" + order + R"(}}, "bytes")")),
        ContainsSubstring(where + " is damaged: "));
  CHECK(refusal_with(version_3("\"bytes\"", R"(, "new": {"must_understand": false})")) == "accepted");
  CHECK(refusal_with(version_3("\"bytes\"", R"(, "new": {"must_understand": true})")) ==
        array + "has the extension 'new', which isobar does not know");
  CHECK(refusal_with(version_3("\"bytes\"", R"(, "new": {"a": 1})")) ==
        array + "has the extension 'new', which isobar does not know");
  CHECK_THAT(refusal_with(version_3("\"bytes\"", R"(, "storage_transformers": [{"name": "x"}])")),
             ContainsSubstring(array + "has storage transformers"));
  CHECK(refusal_with(version_3("\"bytes\"", R"(, "storage_transformers": [], "dimension_names": ["y", null])")) ==
        "accepted");
  CHECK(folder.open().arrays()[0].info.dimensions == std::vector<std::string>{"y", ""});
}

TEST_CASE("zarr: chunks that are missing, short, long or damaged are named by their file") {
  const Folder folder;
  write_version_2(folder);
  folder.write("a/1.0", "\x14\x15\x16\xff\xff");
  CHECK(refusal_of_reading(folder) == folder / "a/1.0" + " is truncated or damaged: a chunk of it has 5 bytes, not 6");
  folder.write("a/1.0", "\x14\x15\x16\xff\xff\xff\xff");
  CHECK(refusal_of_reading(folder) == folder / "a/1.0" + " is truncated or damaged: a chunk of it has 7 bytes, not 6");
  fs::remove(folder / "a/1.0");
  const std::string missing = folder.path() + ": 'a': its chunk (1, 0) does not exist: there is no file " +
                              (folder / "a/1.0") + ". It means the fill value, 9, or that the store is not complete";
  CHECK(refusal_of_reading(folder) == missing);
  CHECK(refusal_of_reading(folder, MissingChunk::nan_or_error) == missing);
  CHECK(read(folder, MissingChunk::fill_value) == std::vector<double>{0, 1, 2, 3, 10, 11, 12, 13, 9, 9, 9, 23});
  fs::create_directory(folder / "a/1.0");
  CHECK_THAT(refusal_of_reading(folder, MissingChunk::fill_value), ContainsSubstring(folder / "a/1.0"));  // no file
  fs::remove(folder / "a/1.0");
  write_version_2(folder, replaced(kVersion2, "\"fill_value\": 9", "\"fill_value\": null"));
  fs::remove(folder / "a/1.0");
  CHECK_THAT(refusal_of_reading(folder, MissingChunk::fill_value), ContainsSubstring("which is not told, or that"));

  write_version_2(folder, replaced(kVersion2, "\"filters\": null", R"("filters": [{"id": "crc32c"}])"));
  const std::string good = std::string("\x00\x01\x02\x0a\x0b\x0c", 6);
  folder.write("a/0.0", good + checksum_of(good + "x"));
  CHECK(refusal_of_reading(folder) ==
        folder / "a/0.0" + " is damaged: its CRC-32C is not the one that is stored with it");
  write_version_2(folder, replaced(kVersion2, "\"compressor\": null", R"("compressor": {"id": "zlib"})"));
  CHECK(refusal_of_reading(folder) ==
        folder / "a/0.0" + " is damaged: its 6 bytes are no 6 bytes that zlib has compressed");
}

TEST_CASE("zarr: a fill value is a number, a word or the bits of a float") {
  const Folder folder;
  const std::string good = replaced(version_3("\"bytes\""), "\"uint8\"", "\"float32\"");
  const auto filled_with = [&](const std::string& value) {
    folder.write("zarr.json", replaced(good, "\"fill_value\": 9", "\"fill_value\": " + value));
    return read(folder, MissingChunk::fill_value).at(11);
  };
  CHECK(filled_with("-2.5") == -2.5);
  CHECK(filled_with("0.1") == static_cast<double>(0.1F));  // as a chunk of fp32 would hold it
  CHECK(std::isnan(filled_with("\"NaN\"")));
  CHECK(std::isnan(filled_with("NaN")));
  CHECK(filled_with("\"-Infinity\"") == -std::numeric_limits<double>::infinity());
  CHECK(filled_with("\"0x3fc00000\"") == 1.5);
  CHECK(std::isnan(filled_with("\"0x7fc00000\"")));
}

TEST_CASE("zarr: a fill value has the digits of the numbers that it stands for, and of those that are asked for") {
  const Folder folder;
  const auto filled = [&](const std::string& type, const std::string& value) {
    folder.write("zarr.json", replaced(replaced(version_3("\"bytes\""), "\"uint8\"", '"' + type + '"'),
                                       "\"fill_value\": 9", "\"fill_value\": " + value));
    return read(folder, MissingChunk::fill_value);
  };
  CHECK(filled("float64", "0.1") == std::vector<double>(12, 0.1));
  CHECK(filled("float32", "0.1") == std::vector<double>(12, static_cast<double>(0.1F)));
  CHECK(filled("int32", "16777217") == std::vector<double>(12, 16777217));
  CHECK(filled("uint32", "4294967295") == std::vector<double>(12, 4294967295.0));
  CHECK(filled("int64", "-9007199254740991") == std::vector<double>(12, -9007199254740991.0));
  CHECK(filled("float16", "\"0x3e00\"") == std::vector<double>(12, 1.5));
  CHECK(filled("float64", "\"0xbff8000000000000\"") == std::vector<double>(12, -1.5));
  filled("float64", "0.1");
  std::vector<float> single(12);
  reader_of(folder, MissingChunk::fill_value)->read(Extents{0, 0}, Extents{3, 4}, single.data());
  CHECK(single == std::vector<float>(12, 0.1F));
}

TEST_CASE("zarr: chunks of version 3 are named as their encoding says, with its own separator if none is given") {
  // 4 x 6 values in one chunk, of which the array has 3 x 4.
  const std::string chunk("\x00\x01\x02\x03\xff\xff\x0a\x0b\x0c\x0d\xff\xff\x14\x15\x16\x17", 16);
  for (const auto& [encoding, name] :
       {std::pair(R"("default", "configuration": {"separator": "/"})", "c/0/0"), std::pair(R"("default")", "c/0/0"),
        std::pair(R"("default", "configuration": {"separator": "."})", "c.0.0"), std::pair(R"("v2")", "0.0"),
        std::pair(R"("v2", "configuration": {"separator": "/"})", "0/0")}) {
    INFO(encoding);
    const Folder folder;
    folder.write("zarr.json", replaced(version_3(R"({"name": "bytes"})"),
                                       R"("default", "configuration": {"separator": "/"})", encoding));
    folder.write(name, chunk + std::string(8, '\xff'));
    CHECK(read(folder) == kValues);
  }
}

TEST_CASE("zarr: the chunks of a shard are found by its index, at its end or its start") {
  const Folder folder;
  const auto [chunks, index] = shard();
  folder.write("zarr.json", sharded(kChecked));
  folder.write("c/0/0", chunks + index + checksum_of(index));
  CHECK(read(folder) == kValues);
  folder.write("zarr.json", sharded("", R"({"name": "bytes"})", R"(, "index_location": "end")"));
  folder.write("c/0/0", chunks + index);
  CHECK(read(folder) == kValues);
  std::string later;
  for (const std::uint64_t offset : {12, 6, 18, 0}) later += little_endian(offset + 68, 8) + little_endian(6, 8);
  folder.write("zarr.json", sharded(kChecked, R"({"name": "bytes"})", R"(, "index_location": "start")"));
  folder.write("c/0/0", later + checksum_of(later) + chunks);
  CHECK(read(folder) == kValues);
}

TEST_CASE("zarr: shards that are damaged are named, and what they do not hold is missing") {
  const Folder folder;
  const auto [chunks, index] = shard();
  const std::string path = folder / "c/0/0";
  folder.write("zarr.json", sharded(kChecked));
  const auto refusal_with = [&](const std::string& bytes) {
    folder.write("c/0/0", bytes);
    return refusal_of_reading(folder);
  };
  std::string bad = index;
  bad[3] ^= 1;
  CHECK(refusal_with(chunks + bad + checksum_of(index)) ==
        path + ", the index of its chunks, is damaged: its CRC-32C is not the one that is stored with it");
  CHECK(refusal_with(index) ==
        path + " is truncated or damaged: it has 64 bytes, and the index of its chunks alone 68");
  const auto with_entry = [&](std::uint64_t offset, std::uint64_t bytes) {
    std::string changed = index;
    changed.replace(16, 16, little_endian(offset, 8) + little_endian(bytes, 8));
    return chunks + changed + checksum_of(changed);
  };
  CHECK(refusal_with(with_entry(6, 5)) == path + " is truncated or damaged: a chunk of it has 5 bytes, not 6");
  CHECK(refusal_with(with_entry(88, 6)) == path +
                                               " is truncated or damaged: chunk (0, 1) in it would have 6 bytes from "
                                               "byte 88 on, and it has 92");
  for (const std::uint64_t offset : {~std::uint64_t{0}, std::uint64_t{1} << 63, ~std::uint64_t{0} - 5})
    CHECK_THAT(refusal_with(with_entry(offset, 6)), ContainsSubstring(path + " is truncated or damaged: chunk (0, 1)"));
  for (const std::uint64_t bytes : {~std::uint64_t{0}, std::uint64_t{1} << 63})
    CHECK_THAT(refusal_with(with_entry(6, bytes)), ContainsSubstring(path + " is truncated or damaged: chunk (0, 1)"));
  const std::uint64_t absent = ~std::uint64_t{0};
  CHECK_THAT(refusal_with(with_entry(absent, absent)),
             ContainsSubstring(": its chunk (0, 1) does not exist: it should be in " + path));
  CHECK(read(folder, MissingChunk::fill_value) == std::vector<double>{0, 1, 2, 9, 10, 11, 12, 9, 20, 21, 22, 23});
  fs::remove(path);
  CHECK_THAT(refusal_of_reading(folder),
             ContainsSubstring(": its chunk (0, 0) does not exist: it should be in " + path));
  CHECK(read(folder, MissingChunk::fill_value) == std::vector<double>(12, 9));
}

TEST_CASE("zarr: shards that isobar does not read are named") {
  const Folder folder;
  const auto refusal_with = [&](const std::string& metadata) {
    folder.write("zarr.json", metadata);
    return testing::error_of([&] { reader_of(folder); }, "accepted");
  };
  const std::string good = sharded(kChecked), where = folder / "zarr.json";
  CHECK(refusal_with(good) == "accepted");
  CHECK(refusal_with(replaced(good, "[2, 3]", "[3, 3]")) ==
        where + " is damaged: the 'chunk_shape' [3,3] does not divide its shards");
  CHECK_THAT(refusal_with(replaced(good, "[2, 3]", "[2, 0]")), ContainsSubstring("is damaged: its 'chunk_shape'"));
  CHECK_THAT(refusal_with(sharded(kChecked, "\"bytes\"", R"(, "index_location": "middle")")),
             ContainsSubstring("its 'index_location' is \"middle\""));
  const std::string other = "has shards within other codecs, or with an index that is compressed";
  CHECK_THAT(refusal_with(sharded(R"(, {"name": "gzip"})")), ContainsSubstring(other));
  CHECK_THAT(refusal_with(replaced(good, "\"little\"", "\"big\"")), ContainsSubstring(other));
  CHECK_THAT(refusal_with(sharded(kChecked, R"({"name": "sharding_indexed", "configuration": {"chunk_shape": [1, 1],
                                               "codecs": ["bytes"], "index_codecs": ["bytes"]}})")),
             ContainsSubstring(other));
  CHECK_THAT(refusal_with(sharded(kChecked, R"("bytes", "pcodec")")), ContainsSubstring("has the codec 'pcodec'"));
  // As many chunks in a shard as no file has room to index.
  std::string large = replaced(good, "[4, 6]", "[2147483648, 2147483648]");
  large = replaced(large, "[2, 3]", "[1, 1]");
  CHECK_THAT(refusal_with(large), ContainsSubstring("the index of a shard, has an impossible size"));
}

TEST_CASE("zarr: two transposes are one order, and the reader tells whether there is something to decode") {
  const Folder folder;
  const auto transposed = [](const std::string& order) {
    return R"({"name": "transpose", "configuration": {"order": )" + order + "}}, ";
  };
  // Chunks of 2 x 3 x 1 values 0 to 5, whose axes are stored in the order x, y, then as they are.
  const std::string good = replaced(version_3("CODECS\"bytes\""), "[3, 4]", "[2, 3, 1]");
  const auto values_with = [&](const std::string& codecs, const std::string& stored) {
    folder.write("zarr.json", replaced(replaced(good, "[4, 6]", "[2, 3, 1]"), "CODECS", codecs));
    folder.write("c/0/0/0", stored);
    return read(folder);
  };
  const std::string plain = std::string("\x00\x01\x02\x03\x04\x05", 6);
  const std::string turned = std::string("\x00\x03\x01\x04\x02\x05", 6);
  const std::vector<double> values = {0, 1, 2, 3, 4, 5};
  CHECK(values_with("", plain) == values);
  CHECK(std::string(reader_of(folder)->name()) == "Zarr chunks, pread");
  CHECK(values_with(transposed("[1, 0, 2]"), turned) == values);
  CHECK(std::string(reader_of(folder)->name()) == "Zarr chunks, decoded in parallel");
  CHECK(values_with(transposed("[1, 0, 2]") + transposed("[1, 0, 2]"), plain) == values);  // there and back
  CHECK(values_with(transposed("[1, 2, 0]"), turned) == values);
  // First y to the end, then x behind it: y before x again.
  CHECK(values_with(transposed("[1, 2, 0]") + transposed("[1, 2, 0]"), plain) == values);
  CHECK(values_with(transposed("[2, 1, 0]") + transposed("[1, 0, 2]"), turned) == values);
}

TEST_CASE("zarr: groups may lie in one another up to a depth") {
  const Folder folder;
  std::string place;
  for (int depth = 0; depth < 33; ++depth) {
    folder.write(place + ".zgroup", R"({"zarr_format": 2})");
    if (depth == 31) CHECK(folder.refusal() == "accepted");
    place += "g/";
  }
  CHECK(folder.refusal() ==
        (fs::path(folder.path()) / place).parent_path().parent_path().string() + " lies deeper than 32 groups");
}

TEST_CASE("zarr: numbers of every type are read, in both orders of their bytes, by the names of both versions") {
  struct Type {
    std::string name, code;  // of version 3 and of version 2
    int bytes;
    std::uint64_t bits;  // of the first number; the second one is 3
    double value;
    std::uint64_t bits_of_three = 3;
  };
  const std::vector<Type> types{{"int8", "i1", 1, 0xfe, -2},
                                {"uint8", "u1", 1, 0xfe, 254},
                                {"int16", "i2", 2, 0xfffd, -3},
                                {"uint16", "u2", 2, 0xfffd, 65533},
                                {"int32", "i4", 4, 0xfffffffc, -4},
                                {"uint32", "u4", 4, 0xfffffffc, 4294967292.0},
                                {"int64", "i8", 8, 0xfffffffffffffffb, -5},
                                {"uint64", "u8", 8, 0xf000000000000000, 0xf000000000000000},
                                {"float16", "f2", 2, 0xc100, -2.5, 0x4200},
                                {"float32", "f4", 4, 0xc0200000, -2.5, 0x40400000},
                                {"float64", "f8", 8, 0xc004000000000000, -2.5, 0x4008000000000000}};
  for (const Type& type : types)
    for (const bool is_big : {false, true}) {
      CAPTURE(type.name, is_big);
      std::string first = little_endian(type.bits, type.bytes), second = little_endian(type.bits_of_three, type.bytes);
      if (is_big) {
        std::ranges::reverse(first);
        std::ranges::reverse(second);
      }
      const Folder third, other;
      third.write("c/0", first + second);
      third.write("zarr.json", R"({"zarr_format": 3, "node_type": "array", "shape": [2], "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}}, "chunk_key_encoding": "default",
        "data_type": ")" + type.name +
                                   R"(", "codecs": [{"name": "bytes", "configuration": {"endian": ")" +
                                   (is_big ? "big" : "little") + R"("}}]})");
      CHECK(read(third) == std::vector<double>{type.value, 3});
      other.write(".zgroup", R"({"zarr_format": 2})");
      other.write("a/0", first + second);
      other.write("a/.zarray", R"({"zarr_format": 2, "shape": [2], "chunks": [2], "order": "C", "compressor": null,
        "filters": null, "fill_value": 0, "dtype": ")" +
                                   std::string(is_big ? ">" : "<") + type.code + "\"}");
      CHECK(read(other) == std::vector<double>{type.value, 3});
    }
}
