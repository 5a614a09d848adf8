// column_sum: every dtype, ragged shapes, written or added to.
#include "kernels/cases/column_sum.h"

#include <limits>

#include "tests/harness/kernel_testing.h"

namespace isobar::testing {

static const std::vector<DeviceKind> kDevices = all_devices();

TEST_CASE("column_sum adds the rows") {
  for (DType dtype : kFloating)
    for (std::int64_t cols : {0, 1, 31, 33, 384, 1000, 2053})
      for (std::int64_t rows : {0, 1, 6, 7, 22, 67, 300})
        for (bool accumulate : {false, true}) {
          if (rows == 22 && cols < 384) continue;  // these are for a GPU's kernel of few rows
          const DType acc = accumulator_of(dtype);
          const Values before = random_values(cols, acc, 2);
          Values x = random_values(rows * cols, dtype, 1, 1, 0.25);
          if (rows == 7 && cols > 30) x[30] = std::nan(""), x[6 * cols] = -std::numeric_limits<double>::infinity();
          const auto [sum] = expected(dtype, [&]<class Real>(Arithmetic<Real>) {
            std::array<std::vector<Real>, 1> out;
            for (std::int64_t c = 0; c < cols; ++c) {
              Real total = accumulate ? static_cast<Real>(before[c]) : Real(0);
              for (std::int64_t row = 0; row < rows; ++row) total += static_cast<Real>(x[row * cols + c]);
              out[0].push_back(total);
            }
            return out;
          });
          INFO(name_of(dtype) << ", " << rows << " x " << cols << ", accumulate " << accumulate);
          on_devices(kDevices, {dtype}, [&](Workbench& bench) {
            const Grad mode = accumulate ? Grad::accumulate : Grad::overwrite;
            const ColumnSumArgs a = cases::column_sum({.rows = rows, .cols = cols, .dtype = dtype, .mode = mode},
                                                      bench.operands({{"x", x, rows % 2}, {"out", before}}));
            ISOBAR_RUN(bench.device(), column_sum, a);
            bench.check("out", {a.out}, sum);
          });
        }
}

// Short rows: several together are whole chunks, where their number divides so.
TEST_CASE("column_sum adds integers exactly, however many rows") {
  for (const auto& [rows, cols] : {std::pair{9001, 5}, {9000, 5}, {16384, 1}, {8193, 1}, {5000, 20}})
    for (const bool accumulate : {false, true}) {
      std::vector<double> ramp;
      for (int i = 0; i < rows * cols; ++i) ramp.push_back((i / cols) % 7 + i % cols);
      const Values x = values_of(ramp, DType::bf16), before = constant_values(cols, DType::fp32, accumulate ? 3 : 0);
      Values sum = before;
      for (int i = 0; i < rows * cols; ++i) sum[i % cols] += x[i];
      INFO(rows << " x " << cols << ", accumulate " << accumulate);
      on_devices(kDevices, {DType::bf16}, [&](Workbench& bench) {
        const ColumnSumArgs a = cases::column_sum(
            {.rows = rows, .cols = cols, .dtype = DType::bf16, .mode = accumulate ? Grad::accumulate : Grad::overwrite},
            bench.operands({{"x", x}, {"out", before}}));
        ISOBAR_RUN(bench.device(), column_sum, a);
        bench.check_equal("out", {a.out}, sum);
      });
    }
}

}  // namespace isobar::testing
