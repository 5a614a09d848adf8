// safetensors files: named tensors with dtype and shape, and a map of strings, in the layout of Hugging Face's format:
//
//   u64 (little-endian) length N of the header | N bytes of JSON | the tensors' bytes, little-endian, row-major
//   header: {"__metadata__": {string: string}, NAME: {"dtype": "F32", "shape": [..], "data_offsets": [begin, end)}, ..}
//
// Reading first checks all that it relies on: lengths, JSON, dtypes, shapes, and that the tensors fill the data without
// gap or overlap. A wrong file gives one Error, which names the file and the tensor. SafetensorsFile copies the whole
// file to memory, SafetensorsReader only what is requested. Writing streams: the header follows from names and shapes,
// the tensors come one by one, and nothing is held in memory. dtypes: F32, F64, BF16, F16, I32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/files/atomic_file.h"
#include "engine/files/reader.h"
#include "kernels/common/dtype.h"

namespace isobar {

struct TensorInfo {
  std::string name;
  DType dtype = DType::fp32;
  std::vector<std::int64_t> shape;  // empty: a scalar
};

// Number of elements or bytes of a tensor.
std::int64_t elements_of(const TensorInfo& info);
std::size_t bytes_of(const TensorInfo& info);

// A tensor whose bytes are elsewhere: in a file that was read, or in the writer's memory.
struct TensorBytes {
  TensorInfo info;
  // In a file: valid while the SafetensorsFile lives, and not always aligned.
  std::span<const std::byte> bytes;
};

using Metadata = std::map<std::string, std::string>;

// Named tensors that are read one piece at a time: those of a file, or what is made of another program's.
class TensorReader {
 public:
  virtual ~TensorReader() = default;

  virtual const std::filesystem::path& path() const = 0;  // where they come from
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  virtual const TensorInfo* find(const std::string& name) const = 0;  // null if there is none
  // Reads elements [first, first + count) of one of the tensors to `out`; converts as copy_elements does.
  virtual void read(const TensorInfo& tensor, std::int64_t first, std::int64_t count, DType to,
                    std::byte* out) const = 0;
};

// A file whose tensors are read from the disk one piece at a time.
class SafetensorsReader : public TensorReader {
 public:
  explicit SafetensorsReader(const std::filesystem::path& path);

  const std::filesystem::path& path() const override { return path_; }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }  // in the order of their bytes
  const Metadata& metadata() const { return metadata_; }
  std::size_t data_bytes() const { return data_bytes_; }  // of all tensors

  const TensorInfo* find(const std::string& name) const override;
  void read(const TensorInfo& tensor, std::int64_t first, std::int64_t count, DType to, std::byte* out) const override;
  // Reads out.size() bytes from byte `first` of the tensors' data on.
  void read_bytes(std::size_t first, std::span<std::byte> out) const;

 private:
  void parse(std::string_view header);

  std::filesystem::path path_;
  std::shared_ptr<const FileReader> bytes_;
  std::size_t data_begin_ = 0, data_bytes_ = 0;  // in the file
  std::vector<TensorInfo> tensors_;
  std::vector<std::size_t> begins_;  // of the tensors, in the data
  std::map<std::string, std::size_t> index_;
  Metadata metadata_;
};

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return reader_.path(); }
  const std::vector<TensorBytes>& tensors() const { return tensors_; }  // in the order of their bytes
  const Metadata& metadata() const { return reader_.metadata(); }

  const TensorBytes* find(const std::string& name) const;  // null if there is none
  const TensorBytes& at(const std::string& name) const;    // Error if there is none

 private:
  SafetensorsReader reader_;
  std::shared_ptr<std::byte[]> data_;
  std::vector<TensorBytes> tensors_;
};

// Copies a tensor's elements to `out`, bytes_of({.dtype = to, .shape}) of them. Converts between floating dtypes
// through fp64: each value is rounded once. i32 converts only to itself, else an Error.
void copy_elements(const TensorBytes& from, DType to, std::byte* out);

// Writes a file tensor by tensor, atomically: the file exists after commit(), and not before.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorInfo> tensors, const Metadata& metadata = {});

  // The bytes of the next tensor in the given order, whole or in pieces; a piece never spans two tensors.
  void append(const std::string& name, std::span<const std::byte> bytes);
  void commit();  // Error if a tensor's bytes are missing

 private:
  AtomicFile file_;
  std::vector<TensorInfo> tensors_;
  std::size_t current_ = 0;  // the tensor that append() fills
  std::size_t filled_ = 0;   // number of its bytes so far
};

void write_safetensors(const std::filesystem::path& path, std::span<const TensorBytes> tensors,
                       const Metadata& metadata = {});

}  // namespace isobar
