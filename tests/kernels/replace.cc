// replace: every dtype, with values for each group, with one row for all, and with zeros.
#include "kernels/cases/replace.h"

#include <cmath>

#include "tests/harness/kernel_testing.h"

namespace isobar::testing {
namespace {

const std::vector<DeviceKind> kDevices = all_devices();

enum class With { groups, row, zeros };

Values flags_of(std::int64_t n, int which) {
  Values flags = constant_values(n, DType::i32, 0);
  for (std::int64_t i = 0; i < n; ++i) flags[i] = which == 0 ? 0 : which == 1 ? i % 2 : i % 7 < 3 ? 5 : 0;
  return flags;
}

Values replaced(const Values& x, const Values& with, const Values& flags, With what) {
  Values y = x;
  const std::int64_t n = flags.size();
  for (std::int64_t i = 0; i < x.size(); ++i)
    if (flags[i % n] != 0) y[i] = what == With::zeros ? 0 : with[what == With::row ? i % n : i];
  return y;
}

void check(DType dtype, std::int64_t groups, std::int64_t n, With what, bool in_place) {
  Values x = random_values(groups * n, dtype, 1);
  const Values with = random_values(what == With::row ? n : groups * n, dtype, 2), flags = flags_of(n, 1 + n % 2);
  if (x.size() > 40) x[33] = x[34] = std::nan("");  // copied where it stays, and gone where it is replaced
  const Values y = replaced(x, with, flags, what);
  on_devices(kDevices, {dtype}, [&](Workbench& bench) {
    auto from = in_place ? bench.in_out(x) : bench.input(x);
    auto out = in_place ? from : bench.output(groups * n, dtype);
    const ReplaceArgs a = cases::replace(
        {.groups = groups, .n = n, .dtype = dtype, .with_row = what == With::row},
        bench.operands({{"x", from}, {"with", what == With::zeros ? nullptr : &with}, {"flags", flags}, {"y", out}}));
    ISOBAR_RUN(bench.device(), replace, a);
    bench.check_equal("y", out, y);
  });
}

}  // namespace

TEST_CASE("replace takes the flagged points from elsewhere") {
  for (const DType dtype : kFloating)
    for (const With what : {With::groups, With::row, With::zeros})
      for (const std::int64_t groups : {0, 1, 3, 17})
        for (const std::int64_t n : {1, 33, 1000, 1031}) {
          INFO(name_of(dtype) << ", " << groups << " x " << n << ", with " << static_cast<int>(what));
          check(dtype, groups, n, what, groups == 3);
        }
}

}  // namespace isobar::testing
