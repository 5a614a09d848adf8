// A NetCDF-3 file of any bytes has variables that lie within it, or is an Error.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/files/netcdf3.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"
#include "tests/fuzz/input_file.h"
#include "tests/fuzz/target.h"

namespace {

constexpr std::int64_t kMaxValues = 1 << 20;  // of a variable: the memory is the caller's, not the parser's

void read_whole(const isobar::netcdf3::File& file, const isobar::netcdf3::Variable& variable) {
  const auto reader = isobar::netcdf3::make_box_reader(file, variable);
  const auto values = isobar::product_of(reader->shape());
  if (!values || *values > kMaxValues) return;
  std::vector<double> out(static_cast<std::size_t>(*values));
  const std::vector<std::int64_t> start(reader->shape().size(), 0);
  reader->read(start, reader->shape(), out.data());
}

}  // namespace

FUZZ_TARGET(netcdf3) {
  const isobar::testing::InputFile input(data, size);
  try {
    const auto file = isobar::netcdf3::File::open(input.path());
    for (const auto& variable : file.variables()) {
      try {
        read_whole(file, variable);
      } catch (const isobar::Error&) {
      }
    }
  } catch (const isobar::Error&) {
  }
  return 0;
}
