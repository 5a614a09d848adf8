// The device meta: shapes without values, memory that is counted and not taken, kernels that add their costs.
#include <cstddef>
#include <string>
#include <vector>

#include "engine/ops.h"
#include "engine/readback.h"
#include "engine/storage.h"
#include "engine/tape.h"
#include "kernels/common/cost_account.h"
#include "kernels/gelu.h"
#include "kernels/gemm/gemm.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;

constexpr Device kMeta = meta_like(DeviceKind::cpu);
constexpr std::size_t kTiB = std::size_t{1} << 40;

// What forward and backward passes of a small perceptron hold at most.
std::size_t peak_of_perceptron(Device device, DType dtype) {
  const OwnMemoryLedger memory;
  const auto leaf = [&](const Shape& shape) {
    return make_leaf(Tensor::zeros(shape, dtype, device), Tensor::zeros(shape, accumulator_of(dtype), device));
  };
  const Tensor w1 = leaf({40, 24}), w2 = leaf({24, 40});
  const Tensor b1 =
      make_leaf(Tensor::zeros({40}, accumulator_of(dtype), device), Tensor::zeros({40}, accumulator_of(dtype), device));
  const Tensor x = Tensor::zeros({13, 24}, dtype, device);
  Tape tape;
  Tensor y;
  {
    const MemoryScope scope("activations");
    const TapeScope recording(tape);
    y = mlp(x, w1, b1, w2, {}, {.activation = Activation::gelu_erf, .out_dtype = dtype});
  }
  tape.backward(y);
  return peak_memory_bytes();
}

}  // namespace

TEST_CASE("meta: memory is counted and not taken") {
  const OwnMemoryLedger ledger;
  const std::size_t pooled = pooled_memory_bytes();
  {
    const Storage large(100 * kTiB, kMeta), other(1, kMeta), exact(1, meta_like(DeviceKind::cuda));
    CHECK(memory_bytes() == 100 * kTiB + kStorageAlignment + 1);
    CHECK(large.data() != other.data());
    CHECK(static_cast<std::byte*>(large.data()) + 100 * kTiB <= static_cast<std::byte*>(other.data()));
    CHECK(largest_new_block() == 100 * kTiB);
  }
  CHECK(largest_new_block() == 0);
  CHECK(memory_bytes() == 0);
  CHECK(peak_memory_bytes() == 100 * kTiB + kStorageAlignment + 1);
  CHECK(pooled_memory_bytes() == pooled);
}

TEST_CASE("meta: a tensor takes values and gives none") {
  Tensor x = Tensor::zeros({2, 3}, DType::fp32, kMeta), host = Tensor::zeros({2, 3}, DType::fp32, Device{});
  x.set_values(std::vector<double>(6, 1.0));
  x.copy_from(host);
  x.copy_from(Tensor::zeros({6}, DType::fp32, kMeta));
  CHECK(host.to(kMeta).shape() == Shape{2, 3});
  CHECK(x.to(DType::bf16).dtype() == DType::bf16);
  const std::string refused = "values were asked of a tensor on the device meta, which has shapes alone";
  CHECK_THROWS_WITH(x.to_vector(), ContainsSubstring(refused));
  CHECK_THROWS_WITH(x.slice(0, {1}).item(), ContainsSubstring(refused));
  CHECK_THROWS_WITH(x.to(Device{}), ContainsSubstring(refused));
  CHECK_THROWS_WITH(host.copy_from(x), ContainsSubstring(refused));
  CHECK_THROWS_WITH(linear(x, host, {}, {}), ContainsSubstring("is on cpu, and the input on meta"));
  const Readback read(x);
  read.begin();
  CHECK(read.values() == std::vector<double>(6, 0.0));
}

TEST_CASE("meta: kernels add what they cost to the innermost account") {
  const Tensor x = Tensor::zeros({5, 7}, DType::fp32, kMeta), w = Tensor::zeros({3, 7}, DType::fp32, kMeta);
  const CostAccount outer;
  linear(x, w, {}, {});
  {
    const CostAccount inner;
    gelu(x, Activation::gelu_erf);
    gelu(x, Activation::gelu_erf);
    REQUIRE(inner.kernels().size() == 1);
    const KernelUse& use = inner.kernels().at("gelu_fwd");
    CHECK(use.calls == 2);
    CHECK(use.cost.flops == 2 * gelu_fwd_cost({.n = 35}).flops);
    CHECK(inner.total().bytes == 2 * gelu_fwd_cost({.n = 35}).bytes);
  }
  REQUIRE(outer.kernels().size() == 1);
  CHECK(outer.kernels().at("gemm").calls == 1);
  CHECK(outer.total().flops == 2.0 * 5 * 3 * 7);
  CHECK(outer.total().bytes == gemm_cost({.m = 5, .n = 3, .k = 7}).bytes);
  gelu(Tensor::zeros({4}, DType::fp32, Device{}), Activation::gelu_erf);  // is run, and costs nothing here
  CHECK(outer.kernels().size() == 1);
}

TEST_CASE("meta: passes hold what they hold on the device that is meant") {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp64}) {
    INFO(name_of(dtype));
    CHECK(peak_of_perceptron(kMeta, dtype) == peak_of_perceptron(Device{}, dtype));
  }
  // A GPU keeps the hidden layer; its blocks are not rounded up.
  CHECK(peak_of_perceptron(meta_like(DeviceKind::cuda), DType::fp32) != peak_of_perceptron(kMeta, DType::fp32));
}

TEST_CASE("a block counts as what was asked for, whichever block serves it") {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  const OwnMemoryLedger ledger;
  { const Storage large(40 * kMiB, Device{}); }
  const Storage again(36 * kMiB, Device{});
  CHECK(memory_bytes() == 36 * kMiB);
}

}  // namespace isobar
