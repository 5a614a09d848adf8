// The attention op passes on whether operands may be rounded to TF32 (tests/kernels/attention.cc has its numbers).
#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/ops.h"
#include "engine/tape.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using Values = std::vector<double>;

constexpr std::int64_t kWidth = 16;

// One token a sample, so that P is 1: o is v, and dv is d_o, as products take them.
struct Attended {
  Values v, o, d_o, dv;
};
Attended attend(DeviceKind kind, bool tf32) {
  const auto waves = [&](double phase) {
    Tensor x = Tensor::empty({3, kWidth}, DType::fp32, Device{.kind = kind});
    Values values;
    for (std::int64_t i = 0; i < x.numel(); ++i) values.push_back(std::sin(static_cast<double>(i) + phase));
    x.set_values(values);
    return x;
  };
  const Tensor v = waves(2), d_o = waves(3), dv = Tensor::zeros(v.shape(), v.dtype(), v.device());
  Tape tape;
  Tensor o;
  {
    const TapeScope recording(tape);
    o = attention(waves(0), waves(1), make_leaf(v, dv), {.batch = 3, .heads = 2, .tf32 = tf32});
  }
  tape.backward(o, d_o);
  return {v.to_vector(), o.to_vector(), d_o.to_vector(), dv.to_vector()};
}

// To the last bits of fp32, which the softmax rounds once more.
bool is_in_tf32(const Values& values) {
  return std::all_of(values.begin(), values.end(), [](double value) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    const auto nearest = std::bit_cast<float>((bits + 0x1000u) & ~0x1fffu);
    return std::abs(nearest - value) <= std::abs(value) * 0x1p-22;
  });
}

}  // namespace

TEST_CASE("attention on the CPU rounds nothing to TF32") {
  const Attended a = attend(DeviceKind::cpu, true), b = attend(DeviceKind::cpu, false);
  CHECK(a.o == b.o);
  CHECK(a.dv == b.dv);
  CHECK_FALSE(is_in_tf32(a.o));
  CHECK_FALSE(is_in_tf32(a.dv));
}

#if ISOBAR_HAS_EMULATOR
TEST_CASE("attention on a GPU rounds to TF32 where its options let it, forward and backward") {
  const Attended a = attend(DeviceKind::emulator, true), b = attend(DeviceKind::emulator, false);
  CHECK(is_in_tf32(a.o));
  CHECK(is_in_tf32(a.dv));
  CHECK_FALSE(is_in_tf32(b.o));
  CHECK_FALSE(is_in_tf32(b.dv));
  for (std::size_t i = 0; i < a.v.size(); ++i) {
    CHECK(std::abs(a.o[i] - a.v[i]) <= std::abs(a.v[i]) * 0x1.01p-11);
    CHECK(std::abs(a.dv[i] - a.d_o[i]) <= std::abs(a.d_o[i]) * 0x1.01p-11);
  }
}
#endif

}  // namespace isobar
