// Copies parts of arrays to where a reader's caller wants them, converted: from an array in memory, and from one that
// lies in a file as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/files/number_format.h"
#include "data/files/strided_copy.h"
#include "engine/files/reader.h"
#include "kernels/common/dtype.h"

namespace isobar {

// Where values go: they are converted from `format` to `dtype`, fp32 or fp64. Positions count elements.
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

// The axes of copy_axes() as the two functions below take them: `from` counts bytes, `to` still counts elements. The
// last axis is a run of consecutive elements.
std::vector<CopyAxis> from_in_bytes(std::vector<CopyAxis> axes, std::int64_t element);

// From an array in memory. `from`: the byte of the first element; `to`: its position in the sink.
void copy_from(const std::byte* array, std::span<const CopyAxis> axes, std::int64_t from, std::int64_t to,
               const Sink& sink);

// An array that lies in a file as it is, from byte `offset` on. It holds references.
class ArrayInFile {
 public:
  // ends: what an Error says of a file that ends too early.
  ArrayInFile(const FileReader& file, std::uint64_t offset, const std::string& ends)
      : file_(file), offset_(offset), ends_(ends.c_str()) {}

  // The same from the file. Rows are read together where the gaps between them are small.
  void copy(std::span<const CopyAxis> axes, std::int64_t from, std::int64_t to, const Sink& sink) const;

 private:
  void read(std::span<const CopyAxis> axes, std::int64_t from, std::int64_t to, const Sink& sink) const;
  void pull(std::int64_t from, std::span<std::byte> bytes) const;

  const FileReader& file_;
  std::uint64_t offset_;
  const char* ends_;
};

}  // namespace isobar
