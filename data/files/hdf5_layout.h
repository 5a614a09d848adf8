// How a dataset is stored in its HDF5 file, and its chunks. The caller holds the library's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/files/hdf5.h"
#include "data/files/hdf5_handle.h"

namespace isobar::hdf5 {

// `where` begins the message of an error; the file has `file_bytes`.
Layout layout_of(const std::string& where, const Handle& dataset, std::uint64_t file_bytes);

// The number of chunks that were written.
std::int64_t stored_chunks(const Handle& dataset);

// Calls visit(start) for the first element of every chunk, row-major over the grid of chunks.
template <class Visit>
void for_each_chunk(std::span<const std::int64_t> shape, std::span<const std::int64_t> chunk, const Visit& visit) {
  std::vector<hsize_t> start(shape.size());
  std::size_t d = start.size();
  do {
    visit(start);
    for (d = start.size(); d > 0; --d) {
      start[d - 1] += static_cast<hsize_t>(chunk[d - 1]);
      if (start[d - 1] < static_cast<hsize_t>(shape[d - 1])) break;
      start[d - 1] = 0;
    }
  } while (d > 0);
}

}  // namespace isobar::hdf5
