// An IDX file of any bytes, compressed or not, is an array with a value for every place of its shape, or an Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "data/files/idx.h"
#include "kernels/common/check.h"
#include "tests/fuzz/input_file.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(idx) {
  const isobar::testing::InputFile file(data, size);
  try {
    const isobar::IdxArray array = isobar::read_idx(file.path());
    std::size_t places = 1;
    for (const std::int64_t extent : array.shape) places *= static_cast<std::size_t>(extent);
    if (array.shape.empty() || places == 0 || array.values.size() != places) std::abort();
  } catch (const isobar::Error&) {
  }
  return 0;
}
