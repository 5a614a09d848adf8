#include "data/files/box_reader.h"

#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "data/files/npy.h"
#include "data/files/number_format.h"
#include "data/files/strided_copy.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"

namespace isobar {
namespace {

using Extents = std::vector<std::int64_t>;

// Systems read whole pages, so that a gap of less costs no more than a further call.
constexpr std::int64_t kMaxGap = 4096;
// Rows that are read together, in bytes: they stay in a processor's own cache until they are copied.
constexpr std::int64_t kMaxTogether = std::int64_t{1} << 18;

// A buffer that each thread keeps.
std::span<std::byte> scratch(std::int64_t bytes) {
  thread_local std::vector<std::byte> buffer;
  const auto size = static_cast<std::size_t>(bytes);
  if (buffer.size() < size) buffer.resize(size);
  return std::span(buffer).first(size);
}

// Where values go: they are converted from `format` to `dtype`. Positions are in elements.
struct Sink {
  NumberFormat format;
  DType dtype;
  std::byte* out;

  std::int64_t element() const { return static_cast<std::int64_t>(format.bytes); }  // of the file, in bytes
  std::byte* at(std::int64_t position) const { return out + position * static_cast<std::int64_t>(size_of(dtype)); }
  void put(const std::byte* from, std::int64_t count, std::int64_t position) const {
    convert(format, from, count, dtype, at(position));
  }
};

// From an array in memory.
void copy(std::span<const CopyAxis> axes, const std::byte* array, std::int64_t from, std::int64_t to,
          const Sink& sink) {
  for_each_position(axes.first(axes.size() - 1), from, to, [&](std::int64_t run, std::int64_t position) {
    sink.put(array + run * sink.element(), axes.back().count, position);
  });
}

// Elements from the first to the last of a box, both included.
std::int64_t extent_of(std::span<const CopyAxis> axes) {
  std::int64_t extent = 1;
  for (const CopyAxis& axis : axes) extent += (axis.count - 1) * axis.from;
  return extent;
}

// From an array that lies in a file as it is, from byte `offset` on.
class StoredArray {
 public:
  StoredArray(const FileReader& file, std::uint64_t offset, const std::string& ends)
      : file_(file), offset_(offset), ends_(ends.c_str()) {}

  void copy(std::span<const CopyAxis> axes, std::int64_t from, std::int64_t to, const Sink& sink) const {
    const std::size_t together = read_together(axes, sink.element());
    for_each_position(axes.first(together), from, to, [&](std::int64_t first, std::int64_t position) {
      read(axes.subspan(together), first, position, sink);
    });
  }

 private:
  // The axes from the returned one on are read together: the gaps between their rows are small.
  static std::size_t read_together(std::span<const CopyAxis> axes, std::int64_t element) {
    std::size_t first = axes.size() - 1;
    for (; first > 0; --first) {
      const std::int64_t extent = extent_of(axes.subspan(first)), gap = axes[first - 1].from - extent;
      if (gap > kMaxGap / element || extent > kMaxTogether / element) break;
    }
    return first;
  }

  // As many positions of the first axis at once as kMaxTogether allows.
  void read(std::span<const CopyAxis> axes, std::int64_t from, std::int64_t to, const Sink& sink) const {
    const CopyAxis& axis = axes[0];
    if (axes.size() == 1 && same_bytes(sink.format, sink.dtype))
      return pull(from, {sink.at(to), static_cast<std::size_t>(axis.count * sink.element())}, sink.element());
    const std::int64_t extent = extent_of(axes.subspan(1));
    const std::int64_t at_once = 1 + std::max<std::int64_t>(kMaxTogether / sink.element() - extent, 0) / axis.from;
    std::vector<CopyAxis> part(axes.begin(), axes.end());
    for (std::int64_t i = 0; i < axis.count; i += at_once) {
      part[0].count = std::min(at_once, axis.count - i);
      const std::span<std::byte> bytes = scratch(extent_of(part) * sink.element());
      pull(from + i * axis.from, bytes, sink.element());
      isobar::copy(part, bytes.data(), 0, to + i * axis.to, sink);
    }
  }

  void pull(std::int64_t from, std::span<std::byte> bytes, std::int64_t element) const {
    file_.read(offset_ + static_cast<std::uint64_t>(from * element), bytes, ends_);
  }

  const FileReader& file_;
  std::uint64_t offset_;
  const char* ends_;
};

std::string ends_early(const BoxReaderOptions& options) {
  return "is truncated: it ends before its " + options.values + " do";
}

class ContiguousReader : public BoxReader {
 public:
  ContiguousReader(const hdf5::File& file, const hdf5::DatasetInfo& info, std::string where,
                   const BoxReaderOptions& options)
      : BoxReader(info, std::move(where)),
        file_(file.path(), file.path()),
        format_(*info.format),
        offset_(info.layout.offset),
        ends_(ends_early(options)) {}

  const char* name() const override { return "contiguous, pread"; }

 private:
  void pull(const Request& box) override {
    StoredArray(file_, offset_, ends_)
        .copy(copy_axes(shape(), box.count, box.count), position_in(shape(), box.start), 0,
              {format_, box.dtype, static_cast<std::byte*>(box.out)});
  }

  FileReader file_;
  NumberFormat format_;
  std::uint64_t offset_;
  std::string ends_;
};

// Puts byte k of every element back beside the others; the file holds all first bytes, then all second bytes, ...
// Bytes behind the last whole element stay where they are.
template <std::size_t kElement>
void unshuffle_elements(const std::vector<std::byte>& from, std::vector<std::byte>& to) {
  const std::size_t elements = from.size() / kElement, shuffled = elements * kElement;
  to.resize(from.size());
  for (std::size_t i = 0; i < elements; ++i)
    for (std::size_t k = 0; k < kElement; ++k) to[i * kElement + k] = from[k * elements + i];
  for (std::size_t i = shuffled; i < from.size(); ++i) to[i] = from[i];
}

void unshuffle(const std::vector<std::byte>& from, std::vector<std::byte>& to, std::size_t element) {
  if (element == 1) return unshuffle_elements<1>(from, to);
  if (element == 2) return unshuffle_elements<2>(from, to);
  if (element == 4) return unshuffle_elements<4>(from, to);
  unshuffle_elements<8>(from, to);
}

// Calls visit(at) for every position [first, end) of a grid, row-major.
template <class Visit>
void for_each_in_grid(const Extents& first, const Extents& end, const Visit& visit) {
  Extents at = first;
  std::size_t d = at.size();
  do {
    visit(at);
    for (d = at.size(); d > 0; --d) {
      if (++at[d - 1] < end[d - 1]) break;
      at[d - 1] = first[d - 1];
    }
  } while (d > 0);
}

class ChunkReader : public BoxReader {
 public:
  ChunkReader(const hdf5::File& file, std::string name, const hdf5::DatasetInfo& info, std::string where,
              const BoxReaderOptions& options)
      : BoxReader(info, std::move(where)),
        file_(file),
        raw_file_(file.path(), file.path()),
        name_(std::move(name)),
        format_(*info.format),
        chunk_(info.layout.chunk),
        grid_(hdf5::chunk_grid(info.shape, chunk_)),
        filters_(info.layout.filters),
        options_(options),
        ends_(ends_early(options)) {
    cache_.resize(static_cast<std::size_t>(checked_product(grid_, file.path() + ": the chunks of '" + name_ + "'")));
    Extents bytes = chunk_;
    bytes.push_back(static_cast<std::int64_t>(format_.bytes));
    chunk_bytes_ = static_cast<std::size_t>(checked_product(bytes, file.path() + ": a chunk of '" + name_ + "'"));
  }

  const char* name() const override {
    return filters_.empty() ? "chunks, pread" : "compressed chunks, inflated in parallel";
  }

 private:
  using Decoded = std::shared_ptr<const std::vector<std::byte>>;

  void pull(const Request& box) override {
    std::call_once(addresses_once_, [this] { find_chunks(); });
    Extents first, end;
    for (std::size_t d = 0; d < chunk_.size(); ++d) {
      first.push_back(box.start[d] / chunk_[d]);
      end.push_back((box.start[d] + box.count[d] - 1) / chunk_[d] + 1);
    }
    for_each_in_grid(first, end, [&](const Extents& at) { copy_part(at, box); });
  }

  void find_chunks() {
    std::vector<hdf5::ChunkAddress> addresses = file_.chunk_addresses(name_);
    if (filters_.empty())
      for (const hdf5::ChunkAddress& address : addresses) check_size(address.bytes);
    addresses_ = std::move(addresses);
  }

  void check_size(std::uint64_t bytes) const {
    ISOBAR_CHECK(bytes == chunk_bytes_, file_.path(), " is damaged: a chunk of '", name_, "' has ", bytes,
                 " bytes, not ", chunk_bytes_);
  }

  // Copies what the chunk at `at` of the grid holds of the box.
  void copy_part(const Extents& at, const Request& box) {
    Extents in_chunk, in_box, count;  // of the first element, and how many there are
    for (std::size_t d = 0; d < at.size(); ++d) {
      const std::int64_t corner = at[d] * chunk_[d];
      const std::int64_t first = std::max(box.start[d], corner);
      const std::int64_t end = std::min(box.start[d] + box.count[d], corner + chunk_[d]);
      in_chunk.push_back(first - corner);
      in_box.push_back(first - box.start[d]);
      count.push_back(end - first);
    }
    const std::vector<CopyAxis> axes = copy_axes(chunk_, box.count, count);
    const std::int64_t from = position_in(chunk_, in_chunk), to = position_in(box.count, in_box);
    const Sink sink{format_, box.dtype, static_cast<std::byte*>(box.out)};
    const std::size_t index = static_cast<std::size_t>(position_in(grid_, at));
    if (filters_.empty())
      StoredArray(raw_file_, addresses_[index].offset, ends_).copy(axes, from, to, sink);
    else
      copy(axes, chunk(index)->data(), from, to, sink);
  }

  // A decoded chunk, from memory or from the file. The first chunks are kept until the budget is spent: access
  // is random, so replacing the least recently used one would hit no more often.
  Decoded chunk(std::size_t index) {
    {
      const std::lock_guard guard(cache_mutex_);
      if (cache_[index]) return cache_[index];
    }
    auto decoded = decode(index);
    const std::lock_guard guard(cache_mutex_);
    if (!cache_[index] && spend(static_cast<std::int64_t>(chunk_bytes_))) cache_[index] = decoded;
    return decoded;
  }

  // Whether the budget had so many bytes left.
  bool spend(std::int64_t bytes) const {
    if (options_.budget == nullptr) return false;
    if (options_.budget->fetch_sub(bytes) >= bytes) return true;
    options_.budget->fetch_add(bytes);
    return false;
  }

  Decoded decode(std::size_t index) const {
    const hdf5::ChunkAddress& address = addresses_[index];
    std::vector<std::byte> bytes(address.bytes), other;
    raw_file_.read(address.offset, bytes, ends_.c_str());
    for (std::size_t i = filters_.size(); i-- > 0;) {
      if (address.skipped_filters >> i & 1) continue;
      if (filters_[i] == hdf5::Filter::shuffle)
        unshuffle(bytes, other, format_.bytes);
      else
        inflate(bytes, other, index);
      bytes.swap(other);
    }
    check_size(bytes.size());
    return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  }

  void inflate(const std::vector<std::byte>& from, std::vector<std::byte>& to, std::size_t index) const {
    // Deflate makes at most 1032 bytes of one: no memory is taken for what cannot come out.
    to.resize(std::min(chunk_bytes_, 1032 * from.size()));
    uLongf size = to.size();
    const bool whole = to.size() == chunk_bytes_ &&
                       uncompress(reinterpret_cast<Bytef*>(to.data()), &size,
                                  reinterpret_cast<const Bytef*>(from.data()), from.size()) == Z_OK &&
                       size == to.size();
    if (whole) return;
    const auto chunks_a_row = static_cast<std::int64_t>(cache_.size()) / grid_[0];
    const std::int64_t first = static_cast<std::int64_t>(index) / chunks_a_row * chunk_[0];
    throw_error(file_.path(), " is damaged: ", options_.rows, " ", first, " to ",
                std::min(shape()[0], first + chunk_[0]) - 1, " of '", name_, "' cannot be decompressed");
  }

  const hdf5::File& file_;
  FileReader raw_file_;
  std::string name_;
  NumberFormat format_;
  Extents chunk_, grid_;
  std::vector<hdf5::Filter> filters_;
  BoxReaderOptions options_;
  std::string ends_;
  std::size_t chunk_bytes_ = 0;  // decoded
  std::once_flag addresses_once_;
  std::vector<hdf5::ChunkAddress> addresses_;  // row-major, known once a box is read
  std::mutex cache_mutex_;
  std::vector<Decoded> cache_;  // one entry a chunk
};

class LibraryReader : public BoxReader {
 public:
  LibraryReader(const hdf5::File& file, std::string name, const hdf5::DatasetInfo& info, std::string where)
      : BoxReader(info, std::move(where)), file_(file), name_(std::move(name)) {}

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

// "[0, 4) x [60, 124)"
std::string box_text(std::span<const std::int64_t> start, std::span<const std::int64_t> count) {
  std::string text;
  for (std::size_t d = 0; d < start.size(); ++d)
    text += concat(d == 0 ? "[" : " x [", start[d], ", ", start[d] + count[d], ")");
  return text;
}

}  // namespace

void BoxReader::read(std::span<const std::int64_t> start, std::span<const std::int64_t> count, float* out) {
  check_and_pull({start, count, DType::fp32, out});
}

void BoxReader::read(std::span<const std::int64_t> start, std::span<const std::int64_t> count, double* out) {
  check_and_pull({start, count, DType::fp64, out});
}

void BoxReader::check_and_pull(const Request& request) {
  const auto& [start, count, dtype, out] = request;
  ISOBAR_CHECK(start.size() == shape_.size() && count.size() == shape_.size(), where_, " has shape ",
               shape_text(shape_), "; a box of ", start.size(), " axes cannot be read from it");
  for (std::size_t d = 0; d < shape_.size(); ++d)
    ISOBAR_CHECK(start[d] >= 0 && count[d] >= 0 && start[d] <= shape_[d] && count[d] <= shape_[d] - start[d], where_,
                 " has shape ", shape_text(shape_), "; the box ", box_text(start, count), " is not within it");
  if (std::ranges::find(count, 0) == count.end()) pull(request);
}

std::unique_ptr<BoxReader> make_box_reader(const hdf5::File& file, const std::string& name,
                                           const hdf5::DatasetInfo& info, const BoxReaderOptions& options) {
  using Kind = hdf5::Layout::Kind;
  const hdf5::Layout& layout = info.layout;
  std::string where = file.path() + ": '" + name + "'";
  ISOBAR_CHECK(info.type != hdf5::Type::text && info.type != hdf5::Type::other, where, " holds ", info.type_name,
               "; expected numbers");
  hdf5::check_filters(where, layout);
  Extents bytes = info.shape;
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
