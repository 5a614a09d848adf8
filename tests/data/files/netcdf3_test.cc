// NetCDF-3 files that are written here byte by byte: every version, every kind of number, records and their padding,
// and headers that lie. stored_arrays_test.cc reads files that other programs wrote.
#include "data/files/netcdf3.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "kernels/common/check.h"
#include "tests/harness/error_of.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;

namespace {

// Appends big-endian numbers.
class Bytes {
 public:
  Bytes& put(std::uint64_t value, int bytes) {
    for (int i = bytes - 1; i >= 0; --i) text_ += static_cast<char>(value >> (8 * i));
    return *this;
  }
  Bytes& put(double value) { return put(std::bit_cast<std::uint64_t>(value), 8); }
  Bytes& put(float value) { return put(std::bit_cast<std::uint32_t>(value), 4); }
  Bytes& text(const std::string& value) {
    text_ += value;
    return *this;
  }
  Bytes& pad() { return text(std::string((4 - text_.size() % 4) % 4, '\0')); }
  const std::string& string() const { return text_; }

 private:
  std::string text_;
};

struct Var {
  std::string name;
  std::vector<int> dims;
  int type;
  std::uint64_t begin = 0;
};

// A header; sizes and offsets have the widths of the version.
struct Header {
  int version = 1;
  std::uint64_t records = 0;
  std::vector<std::pair<std::string, std::uint64_t>> dims = {};
  std::vector<Var> vars = {};
  std::string attributes = {};  // of the file, as they lie there; none: an empty list

  int size_bytes() const { return version == 5 ? 8 : 4; }
  int offset_bytes() const { return version == 1 ? 4 : 8; }

  std::string string() const {
    Bytes out;
    out.text("CDF").put(static_cast<std::uint64_t>(version), 1).put(records, size_bytes());
    out.put(dims.empty() ? 0 : 10, 4).put(dims.size(), size_bytes());
    for (const auto& [name, length] : dims) put_name(out, name).put(length, size_bytes());
    attributes.empty() ? out.put(0, 4).put(0, size_bytes()) : out.text(attributes);
    out.put(vars.empty() ? 0 : 11, 4).put(vars.size(), size_bytes());
    for (const Var& var : vars) {
      put_name(out, var.name).put(var.dims.size(), size_bytes());
      for (const int id : var.dims) out.put(static_cast<std::uint64_t>(id), size_bytes());
      out.put(0, 4).put(0, size_bytes());
      out.put(static_cast<std::uint64_t>(var.type), 4).put(0, size_bytes()).put(var.begin, offset_bytes());
    }
    return out.string();
  }
  Bytes& put_name(Bytes& out, const std::string& name) const {
    return out.put(name.size(), size_bytes()).text(name).pad();
  }
};

constexpr int kByte = 1, kChar = 2, kShort = 3, kInt = 4, kFloat = 5, kDouble = 6;

// Places the variables behind the header: those without records first, then the records, as NetCDF's library does.
void place(Header& header, const std::vector<std::uint64_t>& bytes) {
  std::uint64_t at = header.string().size();
  for (const bool records : {false, true})
    for (std::size_t i = 0; i < header.vars.size(); ++i) {
      Var& var = header.vars[i];
      const bool is_record = !var.dims.empty() && header.dims[static_cast<std::size_t>(var.dims[0])].second == 0;
      if (is_record != records) continue;
      var.begin = at;
      at += (bytes[i] + 3) / 4 * 4;
    }
}

class Written {
 public:
  explicit Written(const std::string& bytes) : path_(folder_ / "a.nc") {
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  const std::string& path() const { return path_; }
  netcdf3::File open() const { return netcdf3::File::open(path_); }
  std::string refusal() const {
    return testing::error_of([&] { open(); }, "accepted");
  }

 private:
  testing::TemporaryFolder folder_;
  std::string path_;
};

template <class T = double>
std::vector<T> read(const netcdf3::File& file, std::size_t variable, const std::vector<std::int64_t>& start,
                    const std::vector<std::int64_t>& count) {
  std::size_t values = 1;
  for (const std::int64_t extent : count) values *= static_cast<std::size_t>(extent);
  std::vector<T> out(values + 1, T{-77});
  netcdf3::make_box_reader(file, file.variables().at(variable))->read(start, count, out.data());
  CHECK(out.back() == T{-77});
  out.pop_back();
  return out;
}

}  // namespace

TEST_CASE("netcdf3: variables without records are read in every version, whole and in boxes") {
  for (const int version : {1, 2, 5}) {
    INFO("CDF-" << version);
    Header header{.version = version, .dims = {{"y", 3}, {"x", 5}}};
    header.vars = {{"a", {0, 1}, kShort}, {"b", {1}, kDouble}, {"c", {}, kInt}};
    place(header, {30, 40, 4});
    Bytes out;
    out.text(header.string());
    for (int i = 0; i < 15; ++i) out.put(static_cast<std::uint16_t>(i * 100 - 300), 2);
    out.pad();
    for (int i = 0; i < 5; ++i) out.put(0.5 * i);
    out.put(0xfffffff9u, 4);
    const Written written(out.string());
    const netcdf3::File file = written.open();
    REQUIRE(file.variables().size() == 3);
    const ArrayInfo& a = file.variables()[0].info;
    CHECK(a.name == "a");
    CHECK(a.shape == std::vector<std::int64_t>{3, 5});
    CHECK(a.dimensions == std::vector<std::string>{"y", "x"});
    CHECK(a.type_name == "16-bit integer");
    CHECK(read(file, 0, {1, 2}, {2, 2}) == std::vector<double>{400, 500, 900, 1000});
    CHECK(read<float>(file, 1, {0}, {5}) == std::vector<float>{0, 0.5, 1, 1.5, 2});
    CHECK(read(file, 2, {}, {}) == std::vector<double>{-7});
  }
}

TEST_CASE("netcdf3: records of several variables lie between one another, padded to four bytes") {
  Header header{.version = 2, .records = 3, .dims = {{"time", 0}, {"x", 3}}};
  header.vars = {{"time", {0}, kDouble}, {"s", {0, 1}, kShort}, {"b", {0}, kByte}, {"fixed", {1}, kByte}};
  place(header, {8, 6, 1, 3});
  Bytes out;
  out.text(header.string()).text("\x07\x08\x09").pad();
  for (int r = 0; r < 3; ++r) {
    out.put(100.0 + r);
    for (int x = 0; x < 3; ++x) out.put(static_cast<std::uint64_t>(10 * r + x), 2);
    out.text("??").put(static_cast<std::uint64_t>(200 + r), 1).text("???");
  }
  const Written written(out.string());
  const netcdf3::File file = written.open();
  CHECK(file.records() == 3);
  CHECK(file.record_bytes() == 20);  // no multiple of 8, in which the doubles lie
  CHECK(read(file, 0, {0}, {3}) == std::vector<double>{100, 101, 102});
  CHECK(read(file, 0, {2}, {1}) == std::vector<double>{102});
  CHECK(read(file, 1, {0, 0}, {3, 3}) == std::vector<double>{0, 1, 2, 10, 11, 12, 20, 21, 22});
  CHECK(read(file, 1, {1, 1}, {2, 2}) == std::vector<double>{11, 12, 21, 22});
  CHECK(read(file, 2, {0}, {3}) == std::vector<double>{-56, -55, -54});  // bytes have a sign
  CHECK(read(file, 3, {0}, {3}) == std::vector<double>{7, 8, 9});
  CHECK(read(file, 1, {1, 3}, {2, 0}).empty());
}

TEST_CASE("netcdf3: records of a single variable are not padded") {
  Header header{.records = 4, .dims = {{"time", 0}, {"x", 3}}};
  header.vars = {{"s", {0, 1}, kShort}};
  place(header, {6});
  Bytes out;
  out.text(header.string());
  for (int i = 0; i < 12; ++i) out.put(static_cast<std::uint64_t>(i), 2);
  const Written written(out.string());
  const netcdf3::File file = written.open();
  CHECK(file.record_bytes() == 6);
  CHECK(read(file, 0, {1, 0}, {3, 3}) == std::vector<double>{3, 4, 5, 6, 7, 8, 9, 10, 11});
  CHECK(read(file, 0, {3, 2}, {1, 1}) == std::vector<double>{11});
}

TEST_CASE("netcdf3: where the number of records is not written, the file's length tells it") {
  for (const int version : {1, 5}) {
    Header header{.version = version, .records = version == 5 ? ~std::uint64_t{0} : 0xffffffffu, .dims = {{"t", 0}}};
    header.vars = {{"v", {0}, kFloat}};
    place(header, {4});
    const Written written(Bytes().text(header.string()).put(1.5F).put(2.5F).text("ab").string());
    const netcdf3::File file = written.open();
    CHECK(file.records() == 2);
    CHECK(read(file, 0, {0}, {2}) == std::vector<double>{1.5, 2.5});
  }
}

TEST_CASE("netcdf3: the numbers of CDF-5 have more widths") {
  const struct {
    int type;
    std::string bytes;
    double value;
    std::string name;
  } cases[] = {{7, "\xc8", 200, "8-bit unsigned integer"},
               {8, "\xff\xfe", 65534, "16-bit unsigned integer"},
               {9, std::string("\xff\0\0\1", 4), 4278190081, "32-bit unsigned integer"},
               {10, "\xff\xff\xff\xff\xff\xff\xff\xfd", -3, "64-bit integer"},
               {11, std::string("\x80\0\0\0\0\0\0\0", 8), 0x1p63, "64-bit unsigned integer"}};
  for (const auto& [type, bytes, value, name] : cases) {
    Header header{.version = 5, .vars = {{"v", {}, type}}};
    place(header, {8});
    const Written written(header.string() + bytes);
    CHECK(read(written.open(), 0, {}, {}) == std::vector<double>{value});
    CHECK(written.open().variables()[0].info.type_name == name);
    Header old = header;
    old.version = 2;
    CHECK_THAT(Written(old.string() + bytes).refusal(),
               ContainsSubstring("a type has the unknown code " + std::to_string(type)));
  }
}

TEST_CASE("netcdf3: attributes are texts and numbers") {
  Header header{.dims = {{"x", 2}}};
  Bytes list;
  list.put(12, 4).put(3, 4);
  list.put(5, 4).text("title").pad().put(kChar, 4).put(6, 4).text(std::string("storm\0", 6)).pad();
  list.put(5, 4).text("range").pad().put(kShort, 4).put(3, 4).put(0xffff, 2).put(7, 2).put(8, 2).pad();
  list.put(1, 4).text("f").pad().put(kFloat, 4).put(1, 4).put(0.25F);
  header.attributes = list.string();
  const Written written(header.string());
  const Attributes found = written.open().attributes();
  REQUIRE(found.size() == 3);
  CHECK(found.at("title").texts == std::vector<std::string>{"storm"});
  CHECK(found.at("range").numbers == std::vector<double>{-1, 7, 8});
  CHECK(found.at("f").numbers == std::vector<double>{0.25});

  Bytes far;
  far.put(12, 4).put(1, 4).put(1, 4).text("f").pad().put(kDouble, 4).put(0xffffffffU, 4);
  header.attributes = far.string();
  CHECK_THAT(Written(header.string()).refusal(), ContainsSubstring("an attribute has 4294967295 values"));
}

TEST_CASE("netcdf3: the numbers of every version, each with its name") {
  const struct {
    int type;
    std::string bytes;
    double value;
    std::string name;
  } cases[] = {{1, "\xfe", -2, "8-bit integer"},
               {3, "\xff\xfd", -3, "16-bit integer"},
               {4, "\xff\xff\xff\xfc", -4, "32-bit integer"},
               {5, std::string("\xc0\x20\0\0", 4), -2.5, "32-bit float"},
               {6, std::string("\xc0\x04\0\0\0\0\0\0", 8), -2.5, "64-bit float"}};
  for (const auto& [type, bytes, value, name] : cases)
    for (const int version : {1, 2, 5}) {
      Header header{.version = version, .vars = {{"v", {}, type}}};
      place(header, {8});
      const Written written(header.string() + bytes);
      CHECK(read(written.open(), 0, {}, {}) == std::vector<double>{value});
      CHECK(written.open().variables()[0].info.type_name == name);
    }
}

TEST_CASE("netcdf3: bytes have a sign, and the records of all variables together fit into 63 bits") {
  Header header{.version = 5, .dims = {{"t", 0}, {"x", std::uint64_t{1} << 62}}, .vars = {{"b", {}, kByte}}};
  place(header, {1});
  const Written written(header.string() + "\xfe");
  CHECK(written.open().variables()[0].info.type_name == "8-bit integer");
  CHECK(read(written.open(), 0, {}, {}) == std::vector<double>{-2});
  CHECK(std::string(netcdf3::make_box_reader(written.open(), written.open().variables()[0])->name()) ==
        "NetCDF-3, pread");
  header.vars = {{"a", {0, 1}, kByte}, {"b", {0, 1}, kByte}};
  const Written large(header.string());
  CHECK(large.refusal() == large.path() + " is damaged: a record of its variables has more than 2^63 bytes");
}

TEST_CASE("netcdf3: headers are longer than what is read of them at once, and so are their texts") {
  for (const std::size_t length : {65432, 65448, 65460, 65472, 65484, 65496, 65508, 65536, 70001}) {
    INFO("a text of " << length);
    Header header{.dims = {{"x", 2}}, .vars = {{"a", {0}, kShort}, {"b", {0}, kDouble}}};
    Bytes list;
    list.put(12, 4).put(2, 4);
    list.put(4, 4).text("long").put(kChar, 4).put(length, 4).text(std::string(length - 1, 'l') + "e").pad();
    list.put(5, 4).text("short").pad().put(kInt, 4).put(1, 4).put(77, 4);
    header.attributes = list.string();
    place(header, {4, 16});
    const Written written(Bytes().text(header.string()).put(5, 2).put(7, 2).put(0.5).put(-2.0).string());
    const netcdf3::File file = written.open();
    CHECK(file.attributes().at("long").texts == std::vector<std::string>{std::string(length - 1, 'l') + "e"});
    CHECK(file.attributes().at("short").numbers == std::vector<double>{77});
    CHECK(read(file, 0, {0}, {2}) == std::vector<double>{5, 7});
    CHECK(read(file, 1, {0}, {2}) == std::vector<double>{0.5, -2});
  }
}

TEST_CASE("netcdf3: headers that are damaged or lie are named with file and byte") {
  const auto damaged = [](const Written& file, const std::string& what) {
    CHECK_THAT(file.refusal(), ContainsSubstring(file.path() + " is damaged: at byte ") && ContainsSubstring(what));
  };
  Header header{.dims = {{"y", 3}, {"x", 5}}, .vars = {{"a", {0, 1}, kShort}}};
  place(header, {30});
  const std::string good = header.string() + std::string(30, 'x');
  CHECK(Written(good).refusal() == "accepted");
  for (std::size_t size = 4; size < header.string().size(); ++size)
    damaged(Written(good.substr(0, size)), "bytes more, and the file ends at " + std::to_string(size));
  CHECK_THAT(Written("CDF").refusal(), ContainsSubstring("the file ends at 3"));
  CHECK_THAT(Written("CDF\x03" + good.substr(4)).refusal(), ContainsSubstring("is not a NetCDF-3 file"));

  const auto changed = [&](std::size_t at, const std::string& bytes) {
    return Written(good.substr(0, at) + bytes + good.substr(at + bytes.size()));
  };
  damaged(changed(8, std::string("\0\0\0\x0b", 4)), "at byte 8 of its NetCDF header there is no list of dimensions");
  damaged(changed(12, "\x7f\xff\xff\xff"), "bytes");  // 2^31 dimensions
  damaged(changed(16, "\xff\xff\xff\xff"), "at byte 16 of its NetCDF header a name has 4294967295 bytes");
  damaged(changed(24, std::string(4, '\0') + std::string("\0\0\0\1x\0\0\0", 8) + std::string(4, '\0')),
          "end dimensions of which more than one counts records");

  Header other = header;
  other.vars[0].dims = {0, 2};
  damaged(Written(other.string() + std::string(40, 'x')), "'a' has dimension 2 of 2");
  other.dims = {{"y", 3}, {"x", 0}};
  other.vars[0].dims = {0, 1};
  damaged(Written(other.string() + std::string(40, 'x')), "'a' counts records on another axis than its first");
  other = header;
  other.vars[0].type = 7;
  damaged(Written(other.string() + std::string(40, 'x')), "a type has the unknown code 7");
  other = header;
  other.vars.push_back(other.vars[0]);
  damaged(Written(other.string() + std::string(40, 'x')), "a second variable is named 'a'");
}

TEST_CASE("netcdf3: a variable that would end beyond the file is named") {
  Header header{.version = 5, .records = 2, .dims = {{"t", 0}, {"y", 3}, {"x", 5}}};
  header.vars = {{"a", {1, 2}, kShort}, {"r", {0, 2}, kFloat}};
  place(header, {30, 20});
  const std::string whole = header.string() + std::string(32 + 40, 'x');
  CHECK(Written(whole).refusal() == "accepted");
  const Written cut(whole.substr(0, whole.size() - 1));
  CHECK_THAT(cut.refusal(), ContainsSubstring(cut.path() + ": 'r' is truncated or damaged: its 2 records from byte ") &&
                                ContainsSubstring("beyond the file's " + std::to_string(whole.size() - 1)));
  const auto refusal_with = [&](const std::function<void(Header&)>& change) {
    Header other = header;
    change(other);
    return Written(other.string() + std::string(72, 'x')).refusal();
  };
  CHECK_THAT(refusal_with([](Header& h) { h.records = 3; }), ContainsSubstring("'r' is truncated or damaged"));
  CHECK_THAT(refusal_with([](Header& h) { h.records = std::uint64_t{1} << 62; }),
             ContainsSubstring("'r' is truncated or damaged"));
  CHECK_THAT(refusal_with([](Header& h) { h.records = std::uint64_t{1} << 63; }),
             ContainsSubstring("has 9223372036854775808 records"));
  CHECK_THAT(refusal_with([](Header& h) { h.dims[1].second = std::uint64_t{1} << 63; }),
             ContainsSubstring("a dimension has 9223372036854775808 values"));
  CHECK_THAT(refusal_with([](Header& h) { h.dims[1].second = std::uint64_t{1} << 62; }),
             ContainsSubstring("'a' has an impossible size: 4611686018427387904 x 5 x 2"));
  CHECK_THAT(refusal_with([](Header& h) { h.dims[1].second = 1000; }),
             ContainsSubstring("'a' is truncated or damaged: its 10000 bytes from byte "));
  CHECK_THAT(refusal_with([](Header& h) { h.vars[0].begin = ~std::uint64_t{0}; }),
             ContainsSubstring("'a' is truncated or damaged"));
}

TEST_CASE("netcdf3: text is no box of numbers, and a file that becomes shorter is an error") {
  Header header{.dims = {{"x", 3}}, .vars = {{"text", {0}, kChar}, {"v", {0}, kDouble}}};
  place(header, {3, 24});
  const Written written(header.string() + "abc?" + std::string(24, '\0'));
  const netcdf3::File file = written.open();
  CHECK_THROWS_WITH(netcdf3::make_box_reader(file, file.variables()[0]),
                    written.path() + ": 'text' holds text; expected numbers");
  const auto reader = netcdf3::make_box_reader(file, file.variables()[1], {.values = "fields"});
  std::vector<double> out(3);
  const std::vector<std::int64_t> start{0}, count{3}, more{4};
  reader->read(start, count, out.data());
  CHECK_THROWS_WITH(reader->read(start, more, out.data()),
                    written.path() + ": 'v' has shape (3,); the box [0, 4) is not within it");
  std::filesystem::resize_file(written.path(), std::filesystem::file_size(written.path()) - 1);
  CHECK_THROWS_WITH(reader->read(start, count, out.data()),
                    written.path() + " is truncated: it ends before its fields do");
}
