// NumPy's .npy files, C order: fp32, fp64 and bytes are read and written, integers of 32 and 64 bits are written.
//
// Reads format versions 1 to 3, writes version 1. Every error names the file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/files/number_format.h"
#include "engine/files/reader.h"

namespace isobar {

struct NpyArray {
  std::vector<std::int64_t> shape;
  std::vector<double> values;  // row-major; fp32 files are widened
};

NpyArray read_npy(const std::string& path);

// An open file, of which parts are read.
class NpyFile {
 public:
  explicit NpyFile(const std::string& path);

  const std::vector<std::int64_t>& shape() const { return shape_; }
  // Writes `count` elements from the first one on, row-major. Thread-safe.
  void read(std::int64_t first, std::int64_t count, float* out) const;

 private:
  FileReader file_;
  std::vector<std::int64_t> shape_;
  NumberFormat format_;
  std::uint64_t data_at_ = 0;
};

// Writes under a temporary name and renames: the file is whole or not there.
void write_npy(const std::string& path, std::span<const std::int64_t> shape, std::span<const float> values);
void write_npy(const std::string& path, std::span<const std::int64_t> shape, std::span<const double> values);
void write_npy(const std::string& path, std::span<const std::int64_t> shape, std::span<const std::uint8_t> values);
void write_npy(const std::string& path, std::span<const std::int64_t> shape, std::span<const std::int32_t> values);
void write_npy(const std::string& path, std::span<const std::int64_t> shape, std::span<const std::uint32_t> values);
void write_npy(const std::string& path, std::span<const std::int64_t> shape, std::span<const std::int64_t> values);

// "(1, 20, 1, 1)", as NumPy prints a shape.
std::string shape_text(std::span<const std::int64_t> shape);

}  // namespace isobar
