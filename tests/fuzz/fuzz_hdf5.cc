// An HDF5 file of any bytes is a data set whose steps can be read, whole, cropped and one row of them, or an Error; and
// its arrays can be listed, or are an Error.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/fields/field_series.h"
#include "data/files/stored_arrays.h"
#include "kernels/common/check.h"
#include "tests/fuzz/input_file.h"
#include "tests/fuzz/target.h"

namespace {

constexpr std::int64_t kMaxValues = 1 << 20;  // of a step: the memory is the caller's, not the parser's

void read_first_and_last(const isobar::FieldSeriesOptions& options) {
  const isobar::FieldSeries dataset(options);
  if (dataset.values() > kMaxValues) return;
  std::vector<float> step(static_cast<std::size_t>(dataset.values()));
  for (std::int64_t at : {std::int64_t{0}, dataset.steps() - 1}) {
    try {
      dataset.read_step(at, step.data());
      dataset.read_step(at, {dataset.height() - 1, 1}, step.data());
      dataset.time_of(at);
    } catch (const isobar::Error&) {
    }
  }
}

}  // namespace

FUZZ_TARGET(hdf5) {
  const isobar::testing::InputFile file(data, size);
  for (std::int64_t crop : {0, 1}) {
    try {
      read_first_and_last({.paths = {file.path()}, .height = crop, .width = crop, .cache_bytes = 1 << 16});
    } catch (const isobar::Error&) {
    }
  }
  try {
    isobar::open_stored_arrays(file.path());
  } catch (const isobar::Error&) {
  }
  return 0;
}
