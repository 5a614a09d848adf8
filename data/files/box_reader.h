// Reads boxes of a dataset of an HDF5 file, of any number of axes and any kind of number, the fastest way that its
// layout allows:
//
//   contiguous                          pread of the box's rows at the stored offset
//   chunks, plain                       pread of the box's rows in each chunk
//   chunks, deflate and/or shuffle      pread of the chunk, inflated here: in parallel, outside the library's lock
//   anything else                       the HDF5 library, one call at a time
//
// "Anything else" is another filter, a chunk that was never written (it reads as the dataset's fill value), a compact,
// external or virtual dataset, or a number that is neither an integer of 8 to 64 bits nor an IEEE float of 16 to 64.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/files/hdf5.h"
#include "kernels/common/dtype.h"

namespace isobar {

// How many bytes of decoded chunks may still be kept in memory; shared by all readers of a data set. Null: none.
using CacheBudget = std::shared_ptr<std::atomic<std::int64_t>>;

struct BoxReaderOptions {
  CacheBudget budget = nullptr;
  // For messages: what the first axis counts, and what the dataset holds.
  std::string rows = "rows", values = "values";
};

class BoxReader {
 public:
  virtual ~BoxReader() = default;

  const std::vector<std::int64_t>& shape() const { return shape_; }

  // Writes the elements [start, start + count) of each axis, row-major and converted as by convert() of
  // data/files/number_format.h. An axis may have a count of 0: then nothing is read. Reads no more of the file than the
  // box needs: its rows and small gaps between them, or whole chunks where they are compressed. Error naming file,
  // dataset and numbers for a box that is not within the dataset, and for a file that is damaged or ends early.
  // Thread-safe.
  void read(std::span<const std::int64_t> start, std::span<const std::int64_t> count, float* out);
  void read(std::span<const std::int64_t> start, std::span<const std::int64_t> count, double* out);

  virtual const char* name() const = 0;  // for `isobar data info`

 protected:
  // A box that is within the dataset and not empty.
  struct Request {
    std::span<const std::int64_t> start, count;
    DType dtype;
    void* out;
  };

  explicit BoxReader(const hdf5::DatasetInfo& info, std::string where) : shape_(info.shape), where_(std::move(where)) {}
  const std::string& where() const { return where_; }  // "FILE: 'DATASET'"

 private:
  virtual void pull(const Request& request) = 0;
  void check_and_pull(const Request& request);

  const std::vector<std::int64_t> shape_;
  const std::string where_;
};

// `info` is that of the dataset `name`; the file must outlive the reader. Error naming both for a dataset that holds no
// numbers, or is compressed with what this build of HDF5 cannot undo.
std::unique_ptr<BoxReader> make_box_reader(const hdf5::File& file, const std::string& name,
                                           const hdf5::DatasetInfo& info, const BoxReaderOptions& options = {});

}  // namespace isobar
