#include "data/files/netcdf3.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "data/files/array_copy.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"

namespace isobar::netcdf3 {
namespace {

// What begins a list in the header. A list without entries is two zeros, or its tag and a zero.
enum class Tag : std::uint32_t { none = 0, dimensions = 10, variables = 11, attributes = 12 };

// Limits of NetCDF's library: dimensions of a variable, bytes of a name.
constexpr std::uint64_t kMaxDimensions = 1024, kMaxName = 256;

// A kind of number by its code in the file, counted from 1; the first six are those of CDF-1 and CDF-2.
using Kind = NumberFormat::Kind;
struct KnownType {
  const char* name;
  std::size_t bytes;
  std::optional<Kind> kind;  // nothing: characters
};
constexpr std::array<KnownType, 11> kTypes = {{{"8-bit integer", 1, Kind::signed_integer},
                                               {"text", 1, std::nullopt},
                                               {"16-bit integer", 2, Kind::signed_integer},
                                               {"32-bit integer", 4, Kind::signed_integer},
                                               {"32-bit float", 4, Kind::floating},
                                               {"64-bit float", 8, Kind::floating},
                                               {"8-bit unsigned integer", 1, Kind::unsigned_integer},
                                               {"16-bit unsigned integer", 2, Kind::unsigned_integer},
                                               {"32-bit unsigned integer", 4, Kind::unsigned_integer},
                                               {"64-bit integer", 8, Kind::signed_integer},
                                               {"64-bit unsigned integer", 8, Kind::unsigned_integer}}};

std::optional<NumberFormat> format_of(const KnownType& type) {
  if (!type.kind) return std::nullopt;
  return NumberFormat{*type.kind, type.bytes, std::endian::big};
}

// Reads the header from the first byte on, in pieces: its length stands nowhere.
class HeaderReader {
 public:
  explicit HeaderReader(const std::string& path) : path_(path), file_(path) {}

  std::uint64_t at() const { return at_; }
  std::uint64_t file_bytes() const { return file_.size(); }
  const std::string& path() const { return path_; }

  template <class... Parts>
  [[noreturn]] void fail_at(std::uint64_t byte, const Parts&... parts) const {
    throw_error(path_, " is damaged: at byte ", byte, " of its NetCDF header ", parts...);
  }

  // The next bytes; they stay until the next call. Never more than the file has.
  std::span<const std::byte> take(std::uint64_t count) {
    if (count > file_bytes() - at_)
      fail_at(at_, "it needs ", count, " bytes more, and the file ends at ", file_bytes());
    if (at_ < first_ || at_ + count > first_ + piece_.size()) fill(count);
    const auto bytes =
        std::span(piece_).subspan(static_cast<std::size_t>(at_ - first_), static_cast<std::size_t>(count));
    at_ += count;
    return bytes;
  }

  std::uint64_t number(std::size_t bytes) {
    std::uint64_t value = 0;
    for (const std::byte byte : take(bytes)) value = value << 8 | std::to_integer<std::uint64_t>(byte);
    return value;
  }

 private:
  void fill(std::uint64_t count) {
    constexpr std::uint64_t kPiece = 1 << 16;
    piece_.resize(static_cast<std::size_t>(std::min(std::max(count, kPiece), file_bytes() - at_)));
    file_.read(at_, piece_);
    first_ = at_;
  }

  std::string path_;
  FileReader file_;
  std::vector<std::byte> piece_;
  std::uint64_t first_ = 0, at_ = 0;  // of the piece; of what comes next
};

class Parser {
 public:
  explicit Parser(const std::string& path) : header_(path) {
    const auto magic = header_.take(4);
    ISOBAR_CHECK(is_netcdf3(magic), path, " is not a NetCDF-3 file");
    version_ = std::to_integer<int>(magic[3]);
  }

  const HeaderReader& header() const { return header_; }

  // The number of records; nothing where it was not yet known when the header was written.
  std::optional<std::uint64_t> records() {
    const std::uint64_t unknown = version_ == 5 ? ~std::uint64_t{0} : 0xffffffffu;
    const std::uint64_t count = size();
    return count == unknown ? std::nullopt : std::optional(count);
  }

  void dimensions() {
    const std::uint64_t count = list_of(Tag::dimensions, "dimensions");
    for (std::uint64_t i = 0; i < count; ++i) {
      std::string name = text();
      const std::uint64_t at = header_.at(), length = size();
      if (length > std::uint64_t{INT64_MAX}) header_.fail_at(at, "a dimension has ", length, " values");
      dimensions_.push_back({std::move(name), static_cast<std::int64_t>(length)});
    }
    const auto has_no_length = [](const Dimension& dimension) { return dimension.length == 0; };
    if (std::ranges::count_if(dimensions_, has_no_length) > 1)
      header_.fail_at(header_.at(), "end dimensions of which more than one counts records");
  }

  Attributes attributes() {
    Attributes found;
    const std::uint64_t count = list_of(Tag::attributes, "attributes");
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::string name = text();
      found[name] = attribute();
    }
    return found;
  }

  std::vector<Variable> variables() {
    std::vector<Variable> found;
    std::set<std::string> names;
    const std::uint64_t count = list_of(Tag::variables, "variables");
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t at = header_.at();
      found.push_back(variable());
      if (!names.insert(found.back().info.name).second)
        header_.fail_at(at, "a second variable is named '", found.back().info.name, "'");
    }
    return found;
  }

 private:
  struct Dimension {
    std::string name;
    std::int64_t length;  // 0: counts records
  };

  std::uint64_t size() { return header_.number(version_ == 5 ? 8 : 4); }

  void skip_padding(std::uint64_t bytes) { header_.take((4 - bytes % 4) % 4); }

  std::string text() {
    const std::uint64_t at = header_.at(), length = size();
    if (length > kMaxName) header_.fail_at(at, "a name has ", length, " bytes");
    const auto bytes = header_.take(length);
    std::string value(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    skip_padding(length);
    return value;
  }

  // The number of a list's entries.
  std::uint64_t list_of(Tag tag, const char* what) {
    const std::uint64_t at = header_.at();
    const auto found = static_cast<Tag>(header_.number(4));
    const std::uint64_t count = size();
    if (found != tag && (found != Tag::none || count != 0)) header_.fail_at(at, "there is no list of ", what);
    return count;
  }

  const KnownType& type() {
    const std::uint64_t at = header_.at(), code = header_.number(4);
    if (code < 1 || code > (version_ == 5 ? 11u : 6u)) header_.fail_at(at, "a type has the unknown code ", code);
    return kTypes[code - 1];
  }

  Attribute attribute() {
    const KnownType& of = type();
    const std::uint64_t at = header_.at(), count = size();
    if (count > header_.file_bytes()) header_.fail_at(at, "an attribute has ", count, " values");
    const std::uint64_t bytes = count * of.bytes;
    const auto values = header_.take(bytes);
    Attribute found;
    if (const auto format = format_of(of)) {
      found.numbers.resize(count);
      convert(*format, values.data(), static_cast<std::int64_t>(count), DType::fp64, found.numbers.data());
    } else {
      std::string_view characters(reinterpret_cast<const char*>(values.data()), values.size());
      characters = characters.substr(0, characters.find_last_not_of('\0') + 1);  // some programs store C's last zero
      found.texts.emplace_back(characters);
    }
    skip_padding(bytes);
    return found;
  }

  Variable variable() {
    Variable found;
    ArrayInfo& info = found.info;
    info.name = text();
    const std::uint64_t at = header_.at(), rank = size();
    if (rank > kMaxDimensions) header_.fail_at(at, "'", info.name, "' has ", rank, " dimensions");
    for (std::uint64_t d = 0; d < rank; ++d) {
      const std::uint64_t id_at = header_.at(), id = size();
      if (id >= dimensions_.size())
        header_.fail_at(id_at, "'", info.name, "' has dimension ", id, " of ", dimensions_.size());
      const Dimension& dimension = dimensions_[id];
      if (dimension.length == 0 && d > 0)
        header_.fail_at(id_at, "'", info.name, "' counts records on another axis than its first");
      found.has_records = found.has_records || dimension.length == 0;
      info.shape.push_back(dimension.length);
      info.dimensions.push_back(dimension.name);
    }
    info.attributes = attributes();
    const KnownType& of = type();
    info.format = format_of(of);
    info.has_numbers = info.format.has_value();
    info.type_name = of.name;
    size();  // bytes of the variable: redundant, and wrong where they do not fit into 32 bits
    found.begin = header_.number(version_ == 1 ? 4 : 8);
    return found;
  }

  HeaderReader header_;
  int version_ = 0;
  std::vector<Dimension> dimensions_;
};

std::size_t bytes_of(const ArrayInfo& info) {
  return info.format ? info.format->bytes : 1;  // of a value; characters have no format
}

std::string where_of(const std::string& path, const Variable& variable) {
  return path + ": '" + variable.info.name + "'";
}

// Bytes of a variable without records, or of one of its records.
std::int64_t bytes_at_once(const std::string& path, const Variable& variable) {
  std::vector<std::int64_t> extents(variable.info.shape.begin() + (variable.has_records ? 1 : 0),
                                    variable.info.shape.end());
  extents.push_back(static_cast<std::int64_t>(bytes_of(variable.info)));
  return checked_product(extents, where_of(path, variable));
}

// From one record to the next: the records of all variables, each padded to 4 bytes; but not where there is only one.
std::int64_t record_bytes_of(const std::string& path, const std::vector<Variable>& variables) {
  std::int64_t sum = 0, count = 0, last = 0;
  for (const Variable& variable : variables) {
    if (!variable.has_records) continue;
    last = bytes_at_once(path, variable);
    ++count;
    const bool fits = last <= INT64_MAX - 3 && !__builtin_add_overflow(sum, (last + 3) / 4 * 4, &sum);
    ISOBAR_CHECK(fits, path, " is damaged: a record of its variables has more than 2^63 bytes");
  }
  return count == 1 ? last : sum;
}

// How many records there are where the header does not tell: as many as the file has room for.
std::int64_t records_in(std::uint64_t file_bytes, const std::vector<Variable>& variables, std::int64_t record_bytes) {
  std::uint64_t begin = file_bytes;
  for (const Variable& variable : variables)
    if (variable.has_records) begin = std::min(begin, variable.begin);
  return record_bytes == 0 ? 0
                           : static_cast<std::int64_t>((file_bytes - begin) / static_cast<std::uint64_t>(record_bytes));
}

// Throws where a variable ends beyond the file.
void check_end(const std::string& path, std::uint64_t file_bytes, const Variable& variable, std::int64_t record_bytes) {
  const std::int64_t at_once = bytes_at_once(path, variable);
  std::int64_t bytes = at_once;
  bool fits = true;
  if (variable.has_records) {
    const std::int64_t records = variable.info.shape[0];
    if (records == 0 || at_once == 0) return;
    fits =
        !__builtin_mul_overflow(records - 1, record_bytes, &bytes) && !__builtin_add_overflow(bytes, at_once, &bytes);
  }
  fits = fits && variable.begin <= file_bytes && static_cast<std::uint64_t>(bytes) <= file_bytes - variable.begin;
  ISOBAR_CHECK(fits, where_of(path, variable), " is truncated or damaged: its ",
               variable.has_records ? concat(variable.info.shape[0], " records") : concat(bytes, " bytes"),
               " from byte ", variable.begin, " on would end beyond the file's ", file_bytes, " bytes");
}

class VariableReader : public BoxReader {
 public:
  VariableReader(const File& file, const Variable& variable, const BoxReaderOptions& options)
      : BoxReader(variable.info.shape, where_of(file.path(), variable)),
        file_(file.path(), file.path()),
        variable_(variable),
        record_bytes_(file.record_bytes()),
        ends_("is truncated: it ends before its " + options.values + " do") {}

  const char* name() const override { return "NetCDF-3, pread"; }

 private:
  void pull(const Request& box) override {
    const NumberFormat& format = *variable_.info.format;
    const auto element = static_cast<std::int64_t>(format.bytes);
    std::vector<CopyAxis> axes;
    std::span<const std::int64_t> shape = this->shape(), start = box.start, count = box.count;
    std::int64_t first = 0;
    if (variable_.has_records) {
      first = start[0] * record_bytes_;
      const std::int64_t records = count[0];
      shape = shape.subspan(1), start = start.subspan(1), count = count.subspan(1);
      axes.push_back({records, record_bytes_, product_of(count).value()});
    }
    const std::vector<CopyAxis> rest = from_in_bytes(copy_axes(shape, count, count), element);
    axes.insert(axes.end(), rest.begin(), rest.end());
    ArrayInFile(file_, variable_.begin, ends_)
        .copy(axes, first + position_in(shape, start) * element, 0,
              {format, box.dtype, static_cast<std::byte*>(box.out)});
  }

  FileReader file_;
  Variable variable_;
  std::int64_t record_bytes_;
  std::string ends_;
};

}  // namespace

bool is_netcdf3(std::span<const std::byte> first_bytes) {
  if (first_bytes.size() < 4 || std::memcmp(first_bytes.data(), "CDF", 3) != 0) return false;
  const int version = std::to_integer<int>(first_bytes[3]);
  return version == 1 || version == 2 || version == 5;
}

File File::open(const std::string& path) {
  Parser parser(path);
  const std::uint64_t file_bytes = parser.header().file_bytes();
  File file;
  file.path_ = path;
  const std::optional<std::uint64_t> records = parser.records();
  parser.dimensions();
  file.attributes_ = parser.attributes();
  file.variables_ = parser.variables();
  file.record_bytes_ = record_bytes_of(path, file.variables_);
  ISOBAR_CHECK(!records || *records <= std::uint64_t{INT64_MAX}, path, " is damaged: it has ", *records, " records");
  file.records_ =
      records ? static_cast<std::int64_t>(*records) : records_in(file_bytes, file.variables_, file.record_bytes_);
  for (Variable& variable : file.variables_) {
    if (variable.has_records) variable.info.shape[0] = file.records_;
    check_end(path, file_bytes, variable, file.record_bytes_);
  }
  return file;
}

std::unique_ptr<BoxReader> make_box_reader(const File& file, const Variable& variable,
                                           const BoxReaderOptions& options) {
  ISOBAR_CHECK(variable.info.format, where_of(file.path(), variable), " holds ", variable.info.type_name,
               "; expected numbers");
  std::vector<std::int64_t> bytes = variable.info.shape;
  bytes.push_back(sizeof(double));
  checked_product(bytes, where_of(file.path(), variable));
  return std::make_unique<VariableReader>(file, variable, options);
}

}  // namespace isobar::netcdf3
