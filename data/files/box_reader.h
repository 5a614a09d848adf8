// Reads boxes of an array of numbers that lies in a file, whatever the format of the file: any number of axes, any kind
// of number. data/files/hdf5_box_reader.h opens one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/common/dtype.h"

namespace isobar {

// How many bytes of decoded chunks may still be kept in memory; shared by all readers of a data set. Null: none.
using CacheBudget = std::shared_ptr<std::atomic<std::int64_t>>;

struct BoxReaderOptions {
  CacheBudget budget = nullptr;
  // For messages: what the first axis counts, and what the array holds.
  std::string rows = "rows", values = "values";
};

class BoxReader {
 public:
  virtual ~BoxReader() = default;

  const std::vector<std::int64_t>& shape() const { return shape_; }

  // Writes the elements [start, start + count) of each axis, row-major and converted as by convert() of
  // data/files/number_format.h. An axis may have a count of 0: then nothing is read. Reads no more of the file than the
  // box needs: its rows and small gaps between them, or whole chunks where they are compressed. Error naming file,
  // array and numbers for a box that is not within the array, and for a file that is damaged or ends early.
  // Thread-safe.
  void read(std::span<const std::int64_t> start, std::span<const std::int64_t> count, float* out);
  void read(std::span<const std::int64_t> start, std::span<const std::int64_t> count, double* out);

  virtual const char* name() const = 0;  // for `isobar data info`

 protected:
  // A box that is within the array and not empty.
  struct Request {
    std::span<const std::int64_t> start, count;
    DType dtype;
    void* out;
  };

  // `where` begins messages: "FILE: 'ARRAY'".
  BoxReader(std::vector<std::int64_t> shape, std::string where) : shape_(std::move(shape)), where_(std::move(where)) {}
  const std::string& where() const { return where_; }

 private:
  virtual void pull(const Request& request) = 0;
  void check_and_pull(const Request& request);

  const std::vector<std::int64_t> shape_;
  const std::string where_;
};

}  // namespace isobar
