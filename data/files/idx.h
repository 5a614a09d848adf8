// IDX files, in which MNIST and its relatives are published: unsigned bytes, plain or compressed by gzip.
//
//   offset 0        two zero bytes, the type of the elements (0x08: unsigned byte), the number N of dimensions
//   offset 4        N sizes, four bytes each, the most significant first
//   offset 4 + 4·N  the elements, row-major
//
//   source  http://yann.lecun.com/exdb/mnist/ ("The IDX file format"), as the MNIST files of today still are
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace isobar {

struct IdxArray {
  std::vector<std::int64_t> shape;   // at least one dimension, none of them 0
  std::vector<std::uint8_t> values;  // row-major
};

// An Error that names the file where it is no IDX file, holds other elements than unsigned bytes, has none, or has
// fewer or more than its header says. At most one byte more than that is ever decompressed.
IdxArray read_idx(const std::string& path);

}  // namespace isobar
