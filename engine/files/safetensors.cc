#include "engine/files/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/files/json.h"
#include "engine/storage.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"

namespace isobar {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors files hold little-endian numbers");

constexpr const char* kMetadataKey = "__metadata__";
constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // as in the reference implementation

constexpr std::pair<DType, const char*> kDtypeNames[] = {
    {DType::fp32, "F32"}, {DType::fp64, "F64"}, {DType::bf16, "BF16"}, {DType::fp16, "F16"}, {DType::i32, "I32"}};

const char* file_name_of(DType dtype) {
  for (const auto& [known, name] : kDtypeNames) {
    if (known == dtype) return name;
  }
  throw_error("safetensors has no name for dtype ", name_of(dtype));
}

std::optional<DType> dtype_from(const std::string& file_name) {
  for (const auto& [dtype, name] : kDtypeNames) {
    if (file_name == name) return dtype;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> byte_count(DType dtype, std::vector<std::int64_t> shape) {
  shape.push_back(static_cast<std::int64_t>(size_of(dtype)));
  return product_of(shape);
}

Json parse_header(const std::string& file, std::string_view text) {
  Json header = parse_json<Json>(text, file + ": the header");
  ISOBAR_CHECK(header.is_object(), file, ": the header is not a JSON object");
  return header;
}

Metadata parse_metadata(const std::string& file, const Json& entries) {
  ISOBAR_CHECK(entries.is_object(), file, ": ", kMetadataKey, " is not a JSON object");
  Metadata metadata;
  for (const auto& [key, value] : entries.items()) {
    ISOBAR_CHECK(value.is_string(), file, ": the value of ", in_quotes(key), " in ", kMetadataKey, " is not a string");
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

std::vector<std::uint64_t> parse_numbers(const Json& list, const std::string& what) {
  ISOBAR_CHECK(list.is_array(), what, " that is not a list");
  std::vector<std::uint64_t> numbers;
  for (const Json& number : list) {
    ISOBAR_CHECK(number.is_number_unsigned() && number.get<std::uint64_t>() <= INT64_MAX, what,
                 " with an entry that is not a count");
    numbers.push_back(number.get<std::uint64_t>());
  }
  return numbers;
}

// The position of a tensor's bytes in the data.
struct Place {
  TensorInfo info;
  std::size_t begin = 0, end = 0;
};

// One entry of the header, checked against the size of the data part.
Place parse_tensor(const std::string& file, const std::string& name, const Json& entry, std::size_t data_bytes) {
  const std::string tensor = concat(file, ": tensor ", in_quotes(name));
  ISOBAR_CHECK(entry.is_object(), tensor, " is not described by a JSON object");
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    ISOBAR_CHECK(entry.contains(key), tensor, " has no ", key);
  }
  ISOBAR_CHECK(entry["dtype"].is_string(), tensor, " has a dtype that is not a string");
  const auto dtype_name = entry["dtype"].get<std::string>();
  const std::optional<DType> dtype = dtype_from(dtype_name);
  ISOBAR_CHECK(dtype, tensor, " has dtype ", in_quotes(dtype_name), ", and only F32, F64, BF16, F16 and I32 are known");

  const std::vector<std::uint64_t> extents = parse_numbers(entry["shape"], tensor + " has a shape");
  const TensorInfo info{.name = name, .dtype = *dtype, .shape = {extents.begin(), extents.end()}};
  const std::optional<std::uint64_t> bytes = byte_count(info.dtype, info.shape);
  ISOBAR_CHECK(bytes, tensor, " has a shape too large for any file");

  const std::vector<std::uint64_t> offsets = parse_numbers(entry["data_offsets"], tensor + " has data_offsets");
  ISOBAR_CHECK(offsets.size() == 2 && offsets[0] <= offsets[1], tensor, " has data_offsets that are not [begin, end]");
  ISOBAR_CHECK(offsets[1] <= data_bytes, tensor, " ends at byte ", offsets[1], " of the data, but the file has only ",
               data_bytes, " bytes of it; is it cut off?");
  ISOBAR_CHECK(offsets[1] - offsets[0] == *bytes, tensor, " has ", offsets[1] - offsets[0],
               " bytes, but its shape and ", "dtype need ", *bytes);
  return {info, offsets[0], offsets[1]};
}

// Tensors, in the order of their bytes, must follow each other without gap or overlap to the end of the file.
void check_tiling(const std::string& file, std::span<const Place> places, std::size_t data_bytes) {
  std::size_t end = 0;
  for (const Place& place : places) {
    ISOBAR_CHECK(place.begin >= end, file, ": tensor ", in_quotes(place.info.name), " overlaps the one before it");
    ISOBAR_CHECK(place.begin == end, file, ": there are unused bytes before tensor ", in_quotes(place.info.name));
    end = place.end;
  }
  ISOBAR_CHECK(end == data_bytes, file, ": there are unused bytes after the last tensor");
}

std::string make_header(const std::string& file, std::span<const TensorInfo> tensors, const Metadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  std::uint64_t begin = 0;
  for (const TensorInfo& info : tensors) {
    ISOBAR_CHECK(!header.contains(info.name) && info.name != kMetadataKey, file, ": tensor ", in_quotes(info.name),
                 " is given twice, or has a name that is not free");
    const std::uint64_t end = begin + bytes_of(info);
    // Not from initializer lists: the library copies those in noexcept functions, and memory may run out.
    nlohmann::ordered_json& entry = header[info.name];
    entry["dtype"] = file_name_of(info.dtype);
    entry["shape"] = info.shape;
    entry["data_offsets"] = std::array{begin, end};
    begin = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception&) {
    throw_error(file, ": a tensor's name or the metadata is not valid UTF-8");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begin at a multiple of 8
  return text;
}

// Of the first eight bytes of a file, which are the length of a header, or else: whether they begin a ZIP archive, in
// which torch.save puts its pickle.
bool begins_archive(std::uint64_t bytes) {
  constexpr std::uint64_t kSignature = 0x04034b50;  // PK, 3, 4
  return (bytes & 0xffffffff) == kSignature;
}

template <class To, class From>
To convert_to(From value) {
  if constexpr (sizeof(To) == 2 && sizeof(From) > 2) {
    return To(static_cast<float>(value));
  } else if constexpr (sizeof(From) == 2) {
    return To(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace

std::int64_t elements_of(const TensorInfo& info) {
  return static_cast<std::int64_t>(bytes_of(info) / size_of(info.dtype));
}

std::size_t bytes_of(const TensorInfo& info) {
  const std::optional<std::uint64_t> bytes = byte_count(info.dtype, info.shape);
  ISOBAR_CHECK(bytes, "tensor ", in_quotes(info.name), " has an impossible shape");
  return *bytes;
}

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path)
    : path_(path), bytes_(std::make_shared<const FileReader>(path)) {
  const std::string file = path_.string();
  ISOBAR_CHECK(bytes_->size() >= kLengthBytes, file, ": is no safetensors file: it has only ", bytes_->size(),
               " bytes");
  std::uint64_t header_length = 0;
  bytes_->read(0, std::as_writable_bytes(std::span(&header_length, 1)));
  const bool has_header = header_length <= kMaxHeaderBytes && header_length <= bytes_->size() - kLengthBytes;
  ISOBAR_CHECK(has_header || !begins_archive(header_length), file,
               ": is a pickle, as torch.save writes them, and no safetensors file; tools/ckpt_tar.py converts a "
               "ckpt.tar where PyTorch is");
  ISOBAR_CHECK(has_header, file, ": is no safetensors file, or is cut off: it has ", bytes_->size(),
               " bytes and names a header of ", header_length);
  std::string header(header_length, ' ');
  bytes_->read(kLengthBytes, std::as_writable_bytes(std::span(header)));
  data_begin_ = kLengthBytes + header_length;
  data_bytes_ = bytes_->size() - data_begin_;
  parse(header);
}

void SafetensorsReader::parse(std::string_view header) {
  const std::string file = path_.string();
  const Json entries = parse_header(file, header);
  std::vector<Place> places;
  for (const auto& [name, entry] : entries.items()) {
    if (name == kMetadataKey) {
      metadata_ = parse_metadata(file, entry);
    } else {
      places.push_back(parse_tensor(file, name, entry, data_bytes_));
    }
  }
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  check_tiling(file, places, data_bytes_);
  for (const Place& place : places) {
    index_[place.info.name] = tensors_.size();
    tensors_.push_back(place.info);
    begins_.push_back(place.begin);
  }
}

const TensorInfo* SafetensorsReader::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

void SafetensorsReader::read(const TensorInfo& tensor, std::int64_t first, std::int64_t count, DType to,
                             std::byte* out) const {
  ISOBAR_CHECK(first >= 0 && count >= 0 && first <= elements_of(tensor) && count <= elements_of(tensor) - first,
               path_.string(), ": tensor ", in_quotes(tensor.name), " has no elements [", first, ", ", first + count,
               ")");
  const std::size_t size = size_of(tensor.dtype);
  const std::size_t begin = begins_[index_.at(tensor.name)] + static_cast<std::size_t>(first) * size;
  const std::size_t bytes = static_cast<std::size_t>(count) * size;
  if (tensor.dtype == to) return read_bytes(begin, {out, bytes});
  std::vector<std::byte> stored(bytes);
  read_bytes(begin, stored);
  copy_elements({{tensor.name, tensor.dtype, {count}}, stored}, to, out);
}

void SafetensorsReader::read_bytes(std::size_t first, std::span<std::byte> out) const {
  bytes_->read(data_begin_ + first, out);
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : reader_(path) {
  const std::size_t size = reader_.data_bytes();
  ISOBAR_CHECK(size <= machine_memory_bytes(), path.string(), ": its ", text_of_bytes(size),
               " are more than this machine's memory");
  data_.reset(new std::byte[size]);
  std::span<const std::byte> data(data_.get(), size);
  for (const TensorInfo& info : reader_.tensors()) {
    tensors_.push_back({info, data.first(bytes_of(info))});
    data = data.subspan(bytes_of(info));
  }
  reader_.read_bytes(0, {data_.get(), size});
}

const TensorBytes* SafetensorsFile::find(const std::string& name) const {
  const TensorInfo* info = reader_.find(name);
  return info == nullptr ? nullptr : &tensors_[static_cast<std::size_t>(info - reader_.tensors().data())];
}

const TensorBytes& SafetensorsFile::at(const std::string& name) const {
  const TensorBytes* tensor = find(name);
  ISOBAR_CHECK(tensor != nullptr, path().string(), ": has no tensor ", in_quotes(name));
  return *tensor;
}

void copy_elements(const TensorBytes& from, DType to, std::byte* out) {
  const DType dtype = from.info.dtype;
  if (dtype == to) {
    std::copy(from.bytes.begin(), from.bytes.end(), out);
    return;
  }
  ISOBAR_CHECK(dtype != DType::i32 && to != DType::i32, "tensor ", in_quotes(from.info.name), " has dtype ",
               name_of(dtype), ", which does not convert to ", name_of(to));
  visit_floating(dtype, [&]<class From>(Type<From>) {
    visit_floating(to, [&]<class To>(Type<To>) {
      const std::size_t count = from.bytes.size() / sizeof(From);
      for (std::size_t i = 0; i < count; ++i) {
        From value;  // a file's bytes need not be aligned
        std::memcpy(&value, from.bytes.data() + i * sizeof(From), sizeof(From));
        const To converted = convert_to<To>(value);
        std::memcpy(out + i * sizeof(To), &converted, sizeof(To));
      }
    });
  });
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorInfo> tensors,
                                     const Metadata& metadata)
    : file_(path), tensors_(std::move(tensors)) {
  const std::string header = make_header(path.string(), tensors_, metadata);
  const std::uint64_t length = header.size();
  file_.write(std::as_bytes(std::span(&length, 1)));
  file_.write(header);
}

void SafetensorsWriter::append(const std::string& name, std::span<const std::byte> bytes) {
  while (current_ < tensors_.size() && tensors_[current_].name != name && filled_ == bytes_of(tensors_[current_])) {
    ++current_;
    filled_ = 0;
  }
  const std::string file = file_.path().string();
  ISOBAR_CHECK(current_ < tensors_.size() && tensors_[current_].name == name, file, ": tensor ", in_quotes(name),
               " is written out of order, or the one before it is incomplete");
  filled_ += bytes.size();
  ISOBAR_CHECK(filled_ <= bytes_of(tensors_[current_]), file, ": tensor ", in_quotes(name), " got ", filled_,
               " bytes, but its shape and dtype need ", bytes_of(tensors_[current_]));
  file_.write(bytes);
}

void SafetensorsWriter::commit() {
  while (current_ < tensors_.size() && filled_ == bytes_of(tensors_[current_])) {
    ++current_;
    filled_ = 0;
  }
  ISOBAR_CHECK(current_ == tensors_.size(), file_.path().string(), ": tensor ", in_quotes(tensors_[current_].name),
               " got only ", filled_, " of its bytes");
  file_.commit();
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorBytes> tensors,
                       const Metadata& metadata) {
  std::vector<TensorInfo> infos;
  for (const TensorBytes& tensor : tensors) infos.push_back(tensor.info);
  SafetensorsWriter writer(path, infos, metadata);
  for (const TensorBytes& tensor : tensors) writer.append(tensor.info.name, tensor.bytes);
  writer.commit();
}

}  // namespace isobar
