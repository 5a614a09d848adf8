// Boxes of arrays of Zarr stores.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "data/files/array_copy.h"
#include "data/files/chunks.h"
#include "data/files/npy.h"
#include "data/files/zarr.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"

namespace isobar::zarr {
namespace {

namespace fs = std::filesystem;

using Extents = std::vector<std::int64_t>;

std::uint64_t little_endian_64(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 8; i-- > 0;) value = value << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  return value;
}

// "c/3/0", "3.0"
std::string key_of(const Array& array, const Extents& at) {
  std::string key = array.has_prefix ? "c" : "";
  for (const std::int64_t i : at) key += (key.empty() ? "" : array.separator) + std::to_string(i);
  return key.empty() ? "0" : key;
}

// The file, unless there is none; other reasons why it cannot be read are Errors.
std::unique_ptr<FileReader> open_if_there(const fs::path& path) {
  std::error_code error;
  if (fs::status(path, error).type() == fs::file_type::not_found) return nullptr;
  return std::make_unique<FileReader>(path, path.string());
}

// Reorders the elements of a chunk, whose axes lie in `order`, to row-major.
std::vector<std::byte> row_major(const std::vector<std::byte>& bytes, const Extents& chunk,
                                 const std::vector<std::size_t>& order, std::size_t element) {
  std::vector<std::byte> to(bytes.size());
  std::vector<CopyAxis> axes(chunk.size());
  std::int64_t stride = 1;
  for (std::size_t d = chunk.size(); d-- > 0; stride *= chunk[d]) axes[d] = {.count = chunk[d], .to = stride};
  stride = 1;
  for (std::size_t i = order.size(); i-- > 0; stride *= chunk[order[i]]) axes[order[i]].from = stride;
  for_each_position(std::span<const CopyAxis>(axes), 0, 0, [&](std::int64_t from, std::int64_t position) {
    std::memcpy(to.data() + static_cast<std::size_t>(position) * element,
                bytes.data() + static_cast<std::size_t>(from) * element, element);
  });
  return to;
}

// Where the bytes of a chunk lie.
struct ChunkPlace {
  std::unique_ptr<FileReader> file;
  std::string path;
  std::uint64_t offset = 0, bytes = 0;
};

class ArrayReader : public BoxReader {
 public:
  ArrayReader(const Array& array, const std::string& where, const BoxReaderOptions& options, MissingChunk missing)
      : BoxReader(array.info.shape, where),
        array_(array),
        format_(*array.info.format),
        missing_(missing),
        ends_("is truncated: it ends before its " + options.values + " do"),
        grid_(array.info.shape, array.chunk, array.info.format->bytes, where),
        chunks_(options.budget),
        indices_(options.budget) {
    if (!array.shards) return;
    const Extents& shard = array.shards->shape;
    shard_grid_ = chunk_grid(shape(), shard);
    checked_product(shard_grid_, where + ", the number of its shards,");
    in_shard_ = chunk_grid(shard, array.chunk);
    Extents bytes = in_shard_;
    bytes.push_back(kIndexEntry);
    index_bytes_ = static_cast<std::size_t>(checked_product(bytes, where + ", the index of a shard,"));
  }

  const char* name() const override { return is_plain() ? "Zarr chunks, pread" : "Zarr chunks, decoded in parallel"; }

 private:
  static constexpr std::int64_t kIndexEntry = 16;  // bytes: two numbers, offset and length
  static constexpr std::size_t kIndexChecksum = 4;

  // Whether chunks lie in their files as they are.
  bool is_plain() const { return array_.codecs.empty() && array_.order.empty(); }

  void pull(const Request& box) override {
    const Sink sink{format_, box.dtype, static_cast<std::byte*>(box.out)};
    grid_.for_each_part(box.start, box.count, [&](const ChunkPart& part) {
      if (is_plain())
        read_part(part, sink);
      else
        decode_part(part, sink);
    });
  }

  void read_part(const ChunkPart& part, const Sink& sink) const {
    const ChunkPlace place = place_of(part.at);
    if (place.file == nullptr) return fill(part, sink);
    ISOBAR_CHECK(place.bytes == grid_.chunk_bytes(), place.path, " is truncated or damaged: a chunk of it has ",
                 place.bytes, " bytes, not ", grid_.chunk_bytes());
    ArrayInFile(*place.file, place.offset, ends_).copy(part.axes, part.from, part.to, sink);
  }

  void decode_part(const ChunkPart& part, const Sink& sink) {
    // What does not exist is kept as a chunk without bytes.
    const ChunkCache::Decoded chunk = chunks_.get(part.index, [&] { return decode(place_of(part.at)); });
    if (chunk->empty()) return fill(part, sink);
    copy_from(chunk->data() + part.from, part.axes, 0, part.to, sink);
  }

  std::vector<std::byte> decode(const ChunkPlace& place) const {
    if (place.file == nullptr) return {};
    std::vector<std::byte> bytes(static_cast<std::size_t>(place.bytes));
    place.file->read(place.offset, bytes, ends_.c_str());
    bytes = undo_codecs(array_.codecs, std::move(bytes), grid_.chunk_bytes(), place.path);
    return array_.order.empty() ? bytes : row_major(bytes, array_.chunk, array_.order, format_.bytes);
  }

  // Where a chunk at a place in the grid lies. Without a file if it does not exist.
  ChunkPlace place_of(const Extents& at) const {
    if (array_.shards) return place_in_shard(at);
    ChunkPlace place;
    place.path = path_of(at);
    place.file = open_if_there(place.path);
    if (place.file != nullptr) place.bytes = place.file->size();
    return place;
  }

  // Of the file in which a chunk should be.
  std::string path_of(Extents at) const {
    for (std::size_t d = 0; array_.shards && d < at.size(); ++d) at[d] /= in_shard_[d];
    return (array_.folder / key_of(array_, at)).string();
  }

  ChunkPlace place_in_shard(const Extents& at) const {
    Extents shard, within;
    for (std::size_t d = 0; d < at.size(); ++d) {
      shard.push_back(at[d] / in_shard_[d]);
      within.push_back(at[d] % in_shard_[d]);
    }
    ChunkPlace place;
    place.path = path_of(at);
    place.file = open_if_there(place.path);
    if (place.file == nullptr) return place;
    const ChunkCache::Decoded index =
        indices_.get(position_in(shard_grid_, shard), [&] { return read_index(*place.file, place.path); });
    const auto entry =
        std::span(*index).subspan(static_cast<std::size_t>(position_in(in_shard_, within) * kIndexEntry));
    place.offset = little_endian_64(entry);
    place.bytes = little_endian_64(entry.subspan(8));
    constexpr std::uint64_t kAbsent = ~std::uint64_t{0};
    if (place.offset == kAbsent && place.bytes == kAbsent) {
      place.file.reset();
      return place;
    }
    const std::uint64_t file_bytes = place.file->size();
    ISOBAR_CHECK(place.offset <= file_bytes && place.bytes <= file_bytes - place.offset, place.path,
                 " is truncated or damaged: chunk ", shape_text(at), " in it would have ", place.bytes,
                 " bytes from byte ", place.offset, " on, and it has ", file_bytes);
    return place;
  }

  std::vector<std::byte> read_index(const FileReader& file, const std::string& path) const {
    const bool has_checksum = array_.shards->index_has_checksum;
    const std::size_t stored = index_bytes_ + (has_checksum ? kIndexChecksum : 0);
    ISOBAR_CHECK(index_bytes_ <= file.size() && stored <= file.size(), path, " is truncated or damaged: it has ",
                 file.size(), " bytes, and the index of its chunks alone ", stored);
    std::vector<std::byte> bytes(stored);
    file.read(array_.shards->index_first ? 0 : file.size() - stored, bytes, ends_.c_str());
    const Codec checksum{.kind = Codec::Kind::crc32c};
    return undo_codecs(std::span(&checksum, has_checksum ? 1 : 0), std::move(bytes), index_bytes_,
                       path + ", the index of its chunks,");
  }

  // What a chunk that does not exist means.
  void fill(const ChunkPart& part, const Sink& sink) const {
    const std::optional<double> value = array_.fill_value;
    const bool is_fill = value && (missing_ == MissingChunk::fill_value ||
                                   (missing_ == MissingChunk::nan_or_error && std::isnan(*value)));
    ISOBAR_CHECK(is_fill, where(), ": its chunk ", shape_text(part.at),
                 " does not exist: ", array_.shards ? "it should be in " : "there is no file ", path_of(part.at),
                 ". It means the fill value, ", value ? concat(*value) : "which is not told",
                 ", or that the store is not complete");
    for_each_position(std::span(part.axes).first(part.axes.size() - 1), 0, part.to,
                      [&](std::int64_t, std::int64_t to) { fill_run(sink, to, part.axes.back().count, *value); });
  }

  void fill_run(const Sink& sink, std::int64_t to, std::int64_t count, double value) const {
    const bool is_fp32 = format_.kind == NumberFormat::Kind::floating && format_.bytes == 4;
    if (is_fp32) value = static_cast<float>(value);  // what a chunk of them would hold
    if (sink.dtype == DType::fp64)
      std::fill_n(reinterpret_cast<double*>(sink.at(to)), count, value);
    else
      std::fill_n(reinterpret_cast<float*>(sink.at(to)), count, static_cast<float>(value));
  }

  Array array_;
  NumberFormat format_;
  MissingChunk missing_;
  std::string ends_;
  ChunkGrid grid_;
  Extents shard_grid_, in_shard_;  // shards of the array; chunks of a shard
  std::size_t index_bytes_ = 0;
  ChunkCache chunks_;
  mutable ChunkCache indices_;
};

}  // namespace

std::unique_ptr<BoxReader> make_box_reader(const Store& store, const Array& array, const BoxReaderOptions& options,
                                           MissingChunk missing) {
  const std::string where = store.path().string() + ": '" + array.info.name + "'";
  ISOBAR_CHECK(array.info.format, where, " holds ", array.info.type_name, "; expected numbers");
  ISOBAR_CHECK(array.refusal.empty(), where, " ", array.refusal);
  check_codecs(array.codecs, where);
  Extents bytes = array.info.shape;
  bytes.push_back(sizeof(double));
  checked_product(bytes, where);
  return std::make_unique<ArrayReader>(array, where, options, missing);
}

}  // namespace isobar::zarr
