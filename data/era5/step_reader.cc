#include "data/era5/step_reader.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"

namespace isobar {
namespace {

using Box = std::array<std::int64_t, 4>;  // one entry each for step, channel, row, column

constexpr const char* kFileEnds = "is truncated: it ends before its fields do";

// Values of `fields`, as they lie in the file.
void read_values(const FileReader& file, std::uint64_t offset, std::span<float> out) {
  file.read(offset, std::as_writable_bytes(out), kFileEnds);
}

// A buffer that each thread keeps.
float* scratch(std::size_t values) {
  thread_local std::vector<float> buffer;
  if (buffer.size() < values) buffer.resize(values);
  return buffer.data();
}

class ContiguousReader : public StepReader {
 public:
  ContiguousReader(const std::string& path, const hdf5::DatasetInfo& info)
      : file_(path, path),
        offset_(info.layout.offset),
        shape_{info.shape[0], info.shape[1], info.shape[2], info.shape[3]} {}

  const char* name() const override { return "contiguous, pread"; }

  void read(std::int64_t step, Crop crop, float* out) override {
    const auto [steps, channels, rows, columns] = shape_;
    const std::int64_t first = step * channels * rows * columns;
    if (crop.height == rows && crop.width == columns) return pull(first, channels * rows * columns, out);
    for (std::int64_t c = 0; c < channels; ++c, out += crop.height * crop.width) {
      const std::int64_t at = first + (c * rows + crop.row) * columns, count = crop.height * columns;
      if (crop.width == columns) {
        pull(at, count, out);
        continue;
      }
      float* whole_rows = scratch(static_cast<std::size_t>(count));
      pull(at, count, whole_rows);
      for (std::int64_t h = 0; h < crop.height; ++h)
        std::copy_n(whole_rows + h * columns, crop.width, out + h * crop.width);
    }
  }

 private:
  void pull(std::int64_t at, std::int64_t count, float* out) const {
    read_values(file_, offset_ + static_cast<std::uint64_t>(at) * sizeof(float),
                {out, static_cast<std::size_t>(count)});
  }

  FileReader file_;
  std::uint64_t offset_;
  Box shape_;
};

// Puts byte k of every element back beside the others; the file holds all first bytes, then all second bytes, ...
void unshuffle(const std::vector<unsigned char>& from, std::vector<unsigned char>& to) {
  const std::size_t elements = from.size() / sizeof(float);
  to.resize(from.size());
  for (std::size_t i = 0; i < elements; ++i)
    for (std::size_t k = 0; k < sizeof(float); ++k) to[i * sizeof(float) + k] = from[k * elements + i];
}

class ChunkReader : public StepReader {
 public:
  ChunkReader(const hdf5::File& file, std::string name, const hdf5::DatasetInfo& info, CacheBudget budget)
      : file_(file),
        raw_file_(file.path(), file.path()),
        name_(std::move(name)),
        filters_(info.layout.filters),
        budget_(std::move(budget)) {
    for (std::size_t d = 0; d < 4; ++d) {
      shape_[d] = info.shape[d];
      chunk_[d] = info.layout.chunk[d];
      grid_[d] = shape_[d] / chunk_[d] + (shape_[d] % chunk_[d] ? 1 : 0);
    }
    cache_.resize(static_cast<std::size_t>(checked_product(grid_, file.path() + ": the chunks of '" + name_ + "'")));
    chunk_bytes_ = static_cast<std::size_t>(checked_product({chunk_[0], chunk_[1], chunk_[2], chunk_[3], sizeof(float)},
                                                            file.path() + ": a chunk of '" + name_ + "'"));
  }

  const char* name() const override {
    return filters_.empty() ? "chunks, pread" : "compressed chunks, inflated in parallel";
  }

  void read(std::int64_t step, Crop crop, float* out) override {
    std::call_once(addresses_once_, [this] { find_chunks(); });
    Box at{step / chunk_[0], 0, 0, 0};
    for (at[1] = 0; at[1] < grid_[1]; ++at[1])
      for (at[2] = crop.row / chunk_[2]; at[2] * chunk_[2] < crop.row + crop.height; ++at[2])
        for (at[3] = 0; at[3] * chunk_[3] < crop.width; ++at[3]) copy_part(at, step % chunk_[0], crop, out);
  }

 private:
  using Decoded = std::shared_ptr<const std::vector<float>>;

  std::int64_t slab_values() const { return chunk_[1] * chunk_[2] * chunk_[3]; }  // of one step in a chunk
  std::size_t index_of(const Box& at) const {
    return static_cast<std::size_t>(((at[0] * grid_[1] + at[1]) * grid_[2] + at[2]) * grid_[3] + at[3]);
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

  // Copies what the chunk at `at` of the grid holds of the step and the crop.
  void copy_part(const Box& at, std::int64_t step_in_chunk, Crop crop, float* out) {
    const std::int64_t c0 = at[1] * chunk_[1], h0 = at[2] * chunk_[2], w0 = at[3] * chunk_[3];
    const std::int64_t channels = std::min(chunk_[1], shape_[1] - c0), columns = std::min(chunk_[3], crop.width - w0);
    // The crop's rows, counted within the chunk.
    const std::int64_t first = std::max<std::int64_t>(crop.row - h0, 0);
    const std::int64_t end = std::min(chunk_[2], crop.row + crop.height - h0);
    Decoded decoded;  // keeps the chunk alive while it is copied
    const float* slab = nullptr;
    if (filters_.empty()) {
      slab = read_rows(at, step_in_chunk, channels, first, end);
    } else {
      decoded = chunk(at);
      slab = decoded->data() + step_in_chunk * slab_values();
    }
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t h = first; h < end; ++h)
        std::copy_n(slab + (c * chunk_[2] + h) * chunk_[3], columns,
                    out + ((c0 + c) * crop.height + h0 + h - crop.row) * crop.width + w0);
  }

  // Rows [first, end) of the leading channels of a step in a plain chunk, at their places in a buffer of the step.
  const float* read_rows(const Box& at, std::int64_t step_in_chunk, std::int64_t channels, std::int64_t first,
                         std::int64_t end) const {
    float* slab = scratch(static_cast<std::size_t>(slab_values()));
    const auto pull = [&](std::int64_t from, std::int64_t count) {  // values of the step
      const auto value = static_cast<std::uint64_t>(step_in_chunk * slab_values() + from);
      read_values(raw_file_, addresses_[index_of(at)].offset + value * sizeof(float),
                  {slab + from, static_cast<std::size_t>(count)});
    };
    if (end - first == chunk_[2]) {
      pull(0, channels * chunk_[2] * chunk_[3]);
      return slab;
    }
    for (std::int64_t c = 0; c < channels; ++c) pull((c * chunk_[2] + first) * chunk_[3], (end - first) * chunk_[3]);
    return slab;
  }

  // A decoded chunk, from memory or from the file. The first chunks are kept until the budget is spent: access
  // is random, so replacing the least recently used one would hit no more often.
  Decoded chunk(const Box& at) {
    const std::size_t index = index_of(at);
    {
      const std::lock_guard guard(cache_mutex_);
      if (cache_[index]) return cache_[index];
    }
    auto decoded = decode(at);
    const auto bytes = static_cast<std::int64_t>(chunk_bytes_);
    const std::lock_guard guard(cache_mutex_);
    if (!cache_[index]) {
      if (budget_->fetch_sub(bytes) >= bytes)
        cache_[index] = decoded;
      else
        budget_->fetch_add(bytes);
    }
    return decoded;
  }

  Decoded decode(const Box& at) const {
    const hdf5::ChunkAddress& address = addresses_[index_of(at)];
    std::vector<unsigned char> bytes(address.bytes), other;
    raw_file_.read(address.offset, std::as_writable_bytes(std::span(bytes)), kFileEnds);
    for (std::size_t i = filters_.size(); i-- > 0;) {
      if (address.skipped_filters >> i & 1) continue;
      if (filters_[i] == hdf5::Filter::shuffle) {
        unshuffle(bytes, other);
      } else {
        // Deflate makes at most 1032 bytes of one: no memory is taken for what cannot come out.
        other.resize(std::min(chunk_bytes_, 1032 * bytes.size()));
        uLongf size = other.size();
        const bool whole = other.size() == chunk_bytes_ &&
                           uncompress(other.data(), &size, bytes.data(), bytes.size()) == Z_OK && size == other.size();
        ISOBAR_CHECK(whole, file_.path(), " is damaged: steps ", at[0] * chunk_[0], " to ",
                     std::min(shape_[0], (at[0] + 1) * chunk_[0]) - 1, " of '", name_, "' cannot be decompressed");
      }
      bytes.swap(other);
    }
    check_size(bytes.size());
    auto values = std::make_shared<std::vector<float>>(bytes.size() / sizeof(float));
    std::memcpy(values->data(), bytes.data(), bytes.size());
    return values;
  }

  const hdf5::File& file_;
  FileReader raw_file_;
  std::string name_;
  std::vector<hdf5::Filter> filters_;
  Box shape_{}, chunk_{}, grid_{};
  std::size_t chunk_bytes_ = 0;  // decoded
  std::once_flag addresses_once_;
  std::vector<hdf5::ChunkAddress> addresses_;  // row-major, known once a step is read
  CacheBudget budget_;
  std::mutex cache_mutex_;
  std::vector<Decoded> cache_;  // one entry a chunk
};

class LibraryReader : public StepReader {
 public:
  LibraryReader(const hdf5::File& file, std::string name, std::int64_t channels)
      : file_(file), name_(std::move(name)), channels_(channels) {}

  const char* name() const override { return "through the HDF5 library"; }

  void read(std::int64_t step, Crop crop, float* out) override {
    file_.read(name_, Box{step, 0, crop.row, 0}, Box{1, channels_, crop.height, crop.width}, out);
  }

 private:
  const hdf5::File& file_;
  std::string name_;
  std::int64_t channels_;
};

}  // namespace

std::unique_ptr<StepReader> make_step_reader(const hdf5::File& file, const std::string& name,
                                             const hdf5::DatasetInfo& info, CacheBudget budget) {
  using Kind = hdf5::Layout::Kind;
  const hdf5::Layout& layout = info.layout;
  const bool known_filters = std::ranges::find(layout.filters, hdf5::Filter::other) == layout.filters.end();
  if (layout.native && layout.kind == Kind::contiguous) return std::make_unique<ContiguousReader>(file.path(), info);
  if (layout.native && layout.kind == Kind::chunked && known_filters)
    return std::make_unique<ChunkReader>(file, name, info, std::move(budget));
  return std::make_unique<LibraryReader>(file, name, info.shape[1]);
}

}  // namespace isobar
