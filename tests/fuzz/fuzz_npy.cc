// A .npy file of any bytes is an array with a value for every place of its shape, or an Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "data/files/npy.h"
#include "kernels/common/check.h"
#include "tests/fuzz/input_file.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(npy) {
  const isobar::testing::InputFile file(data, size);
  try {
    const isobar::NpyArray array = isobar::read_npy(file.path());
    std::size_t places = array.values.size();
    for (std::int64_t extent : array.shape)
      if (extent > 0) places /= static_cast<std::size_t>(extent);
    if (!array.values.empty() && places != 1) std::abort();
  } catch (const isobar::Error&) {
  }
  return 0;
}
