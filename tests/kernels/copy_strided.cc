// copy_strided: every word that a GPU may take, gaps that stay as they are, one block, no block, and a broadcast.
#include "kernels/cases/copy_strided.h"

#include "tests/harness/kernel_testing.h"

namespace isobar::testing {
namespace {

const std::vector<DeviceKind> kDevices = all_devices();

struct Case {
  std::int64_t blocks, length, source_stride, destination_stride;
  std::int64_t source_shift = 0, destination_shift = 0;  // elements off the alignment of the buffers
};

std::int64_t extent(std::int64_t blocks, std::int64_t length, std::int64_t stride) {
  return blocks == 0 ? 0 : (blocks - 1) * stride + length;
}

}  // namespace

TEST_CASE("copy_strided copies blocks and nothing between them") {
  const std::vector<Case> cases = {
      {0, 5, 7, 9},
      {3, 0, 4, 4},
      {1, 1, 0, 0},
      {1, 1000, 3, 1},       // one block: strides mean nothing
      {3, 8, 24, 16},        // 16-byte words in every dtype
      {5, 4, 12, 20},        // 8-byte words of 16 bits
      {5, 2, 6, 10},         // 4-byte words of 16 bits
      {7, 3, 5, 4},          // single elements
      {7, 3, 3, 3},          // packed
      {4, 8, 16, 24, 1, 0},  // the beginnings are not aligned
      {4, 8, 16, 24, 0, 2},
      {4, 8, 16, 24, 4, 4},
      {4, 8, 15, 24},  // a stride is not
      {4, 8, 16, 25},
      {6, 33, 0, 40},          // the same block again and again
      {700, 1, 3, 2},          // more blocks than threads of a block
      {67, 1000, 1003, 1001},  // more words than the emulator's grid has threads
      {2, 40000, 40008, 40000},
  };
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp64, DType::i32})
    for (const Case& c : cases) {
      const std::int64_t from = extent(c.blocks, c.length, c.source_stride);
      const std::int64_t to = extent(c.blocks, c.length, c.destination_stride);
      Values source = constant_values(from, dtype, 0), before = constant_values(to, dtype, 0);
      for (std::int64_t i = 0; i < from; ++i) source[i] = static_cast<double>(i % 251);  // exact in every dtype
      for (std::int64_t i = 0; i < to; ++i) before[i] = static_cast<double>(-1 - i % 7);
      Values after = before;
      for (std::int64_t i = 0; i < c.blocks; ++i)
        for (std::int64_t j = 0; j < c.length; ++j)
          after[i * c.destination_stride + j] = source[i * c.source_stride + j];
      INFO(name_of(dtype) << ", " << c.blocks << " blocks of " << c.length << ", strides " << c.source_stride << " and "
                          << c.destination_stride << ", shifts " << c.source_shift << " and " << c.destination_shift);
      on_devices(kDevices, {}, [&](Workbench& bench) {
        const Pointer out = bench.in_out(before, c.destination_shift);
        const CopyStridedArgs a =
            cases::copy_strided({.blocks = c.blocks,
                                 .length = c.length,
                                 .source_stride = c.source_stride,
                                 .destination_stride = c.destination_stride,
                                 .dtype = dtype},
                                bench.operands({{"source", source, c.source_shift}, {"destination", out}}));
        ISOBAR_RUN(bench.device(), copy_strided, a);
        bench.check_equal("destination", out, after);
      });
    }
}

}  // namespace isobar::testing
