// Ways to get one step of `fields` out of a file, the fastest that its layout allows.
//
//   contiguous                          pread of the rows at the stored offset
//   chunks, plain                       pread of the step's rows in each chunk
//   chunks, deflate and/or shuffle      pread of the chunk, inflated here: in parallel, outside the library's lock
//   anything else                       the HDF5 library, one call at a time
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "data/files/hdf5.h"

namespace isobar {

// Rows [row, row + height) and columns [0, width) of a grid.
struct Crop {
  std::int64_t row = 0, height = 0, width = 0;
};

// How many bytes of decoded chunks may still be kept in memory; shared by the files of a data set.
using CacheBudget = std::shared_ptr<std::atomic<std::int64_t>>;

class StepReader {
 public:
  virtual ~StepReader() = default;
  // Writes [C, crop.height, crop.width], and reads no more of the file than the rows need: whole rows, and whole chunks
  // where they are compressed. Thread-safe.
  virtual void read(std::int64_t step, Crop crop, float* out) = 0;
  virtual const char* name() const = 0;  // for `isobar data info`
};

// `info` is that of the dataset `name`, fp32 of rank 4; the file must outlive the reader.
std::unique_ptr<StepReader> make_step_reader(const hdf5::File& file, const std::string& name,
                                             const hdf5::DatasetInfo& info, CacheBudget budget);

}  // namespace isobar
