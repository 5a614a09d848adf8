#include "data/files/hdf5_box_reader.h"

#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "data/files/array_copy.h"
#include "data/files/chunks.h"
#include "data/files/shuffle.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"

namespace isobar {
namespace {

std::string ends_early(const BoxReaderOptions& options) {
  return "is truncated: it ends before its " + options.values + " do";
}

class ContiguousReader : public BoxReader {
 public:
  ContiguousReader(const hdf5::File& file, const hdf5::DatasetInfo& info, std::string where,
                   const BoxReaderOptions& options)
      : BoxReader(info.shape, std::move(where)),
        file_(file.path(), file.path()),
        format_(*info.format),
        offset_(info.layout.offset),
        ends_(ends_early(options)) {}

  const char* name() const override { return "contiguous, pread"; }

 private:
  void pull(const Request& box) override {
    const auto element = static_cast<std::int64_t>(format_.bytes);
    ArrayInFile(file_, offset_, ends_)
        .copy(from_in_bytes(copy_axes(shape(), box.count, box.count), element),
              position_in(shape(), box.start) * element, 0, {format_, box.dtype, static_cast<std::byte*>(box.out)});
  }

  FileReader file_;
  NumberFormat format_;
  std::uint64_t offset_;
  std::string ends_;
};

class ChunkReader : public BoxReader {
 public:
  ChunkReader(const hdf5::File& file, std::string name, const hdf5::DatasetInfo& info, std::string where,
              const BoxReaderOptions& options)
      : BoxReader(info.shape, where),
        file_(file),
        raw_file_(file.path(), file.path()),
        name_(std::move(name)),
        format_(*info.format),
        grid_(info.shape, info.layout.chunk, info.format->bytes, where),
        filters_(info.layout.filters),
        rows_(options.rows),
        ends_(ends_early(options)),
        cache_(options.budget) {}

  const char* name() const override {
    return filters_.empty() ? "chunks, pread" : "compressed chunks, inflated in parallel";
  }

 private:
  void pull(const Request& box) override {
    std::call_once(addresses_once_, [this] { find_chunks(); });
    const Sink sink{format_, box.dtype, static_cast<std::byte*>(box.out)};
    grid_.for_each_part(box.start, box.count, [&](const ChunkPart& part) { copy(part, sink); });
  }

  void find_chunks() {
    std::vector<hdf5::ChunkAddress> addresses = file_.chunk_addresses(name_);
    if (filters_.empty())
      for (const hdf5::ChunkAddress& address : addresses) check_size(address.bytes);
    addresses_ = std::move(addresses);
  }

  void check_size(std::uint64_t bytes) const {
    ISOBAR_CHECK(bytes == grid_.chunk_bytes(), file_.path(), " is damaged: a chunk of '", name_, "' has ", bytes,
                 " bytes, not ", grid_.chunk_bytes());
  }

  void copy(const ChunkPart& part, const Sink& sink) {
    if (filters_.empty()) {
      const std::uint64_t offset = addresses_[static_cast<std::size_t>(part.index)].offset;
      return ArrayInFile(raw_file_, offset, ends_).copy(part.axes, part.from, part.to, sink);
    }
    const ChunkCache::Decoded chunk = cache_.get(part.index, [&] { return decode(part.index); });
    copy_from(chunk->data() + part.from, part.axes, 0, part.to, sink);
  }

  std::vector<std::byte> decode(std::int64_t index) const {
    const hdf5::ChunkAddress& address = addresses_[static_cast<std::size_t>(index)];
    std::vector<std::byte> bytes(address.bytes), other;
    raw_file_.read(address.offset, bytes, ends_.c_str());
    for (std::size_t i = filters_.size(); i-- > 0;) {
      if (address.skipped_filters >> i & 1) continue;
      if (filters_[i] == hdf5::Filter::shuffle)
        unshuffle(bytes, format_.bytes, other);
      else
        inflate(bytes, other, index);
      bytes.swap(other);
    }
    check_size(bytes.size());
    return bytes;
  }

  void inflate(const std::vector<std::byte>& from, std::vector<std::byte>& to, std::int64_t index) const {
    // Deflate makes at most 1032 bytes of one: no memory is taken for what cannot come out.
    to.resize(std::min(grid_.chunk_bytes(), 1032 * from.size()));
    uLongf size = to.size();
    const bool whole = to.size() == grid_.chunk_bytes() &&
                       uncompress(reinterpret_cast<Bytef*>(to.data()), &size,
                                  reinterpret_cast<const Bytef*>(from.data()), from.size()) == Z_OK &&
                       size == to.size();
    if (whole) return;
    const auto [first, last] = grid_.rows_of(index);
    throw_error(file_.path(), " is damaged: ", rows_, " ", first, " to ", last, " of '", name_,
                "' cannot be decompressed");
  }

  const hdf5::File& file_;
  FileReader raw_file_;
  std::string name_;
  NumberFormat format_;
  ChunkGrid grid_;
  std::vector<hdf5::Filter> filters_;
  std::string rows_, ends_;
  std::once_flag addresses_once_;
  std::vector<hdf5::ChunkAddress> addresses_;  // row-major, known once a box is read
  ChunkCache cache_;
};

class LibraryReader : public BoxReader {
 public:
  LibraryReader(const hdf5::File& file, std::string name, const hdf5::DatasetInfo& info, std::string where)
      : BoxReader(info.shape, std::move(where)), file_(file), name_(std::move(name)) {}

  const char* name() const override { return "through the HDF5 library"; }

 private:
  void pull(const Request& box) override {
    if (box.dtype == DType::fp64)
      file_.read(name_, box.start, box.count, static_cast<double*>(box.out));
    else
      file_.read(name_, box.start, box.count, static_cast<float*>(box.out));
  }

  const hdf5::File& file_;
  std::string name_;
};

}  // namespace

std::unique_ptr<BoxReader> make_box_reader(const hdf5::File& file, const std::string& name,
                                           const hdf5::DatasetInfo& info, const BoxReaderOptions& options) {
  using Kind = hdf5::Layout::Kind;
  const hdf5::Layout& layout = info.layout;
  std::string where = file.path() + ": '" + name + "'";
  ISOBAR_CHECK(info.type != hdf5::Type::text && info.type != hdf5::Type::other, where, " holds ", info.type_name,
               "; expected numbers");
  hdf5::check_filters(where, layout);
  std::vector<std::int64_t> bytes = info.shape;
  bytes.push_back(sizeof(double));
  checked_product(bytes, where);
  const bool known_filters = std::ranges::find(layout.filters, hdf5::Filter::other) == layout.filters.end();
  if (info.format && layout.kind == Kind::contiguous)
    return std::make_unique<ContiguousReader>(file, info, std::move(where), options);
  if (info.format && layout.kind == Kind::chunked && known_filters)
    return std::make_unique<ChunkReader>(file, name, info, std::move(where), options);
  return std::make_unique<LibraryReader>(file, name, info, std::move(where));
}

}  // namespace isobar
