// Tensors of whole numbers, and devices and dtypes that there are no kernels for.
#include "engine/tensor.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/ops.h"
#include "kernels/elementwise.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

TEST_CASE("a tensor of i32 holds whole numbers, and gives them back", "[tensor]") {
  Tensor ids = Tensor::empty({4}, DType::i32, Device{});
  const std::vector<double> values{0, 1, -7, 50256};
  ids.set_values(values);
  CHECK(ids.data_as<std::int32_t>()[2] == -7);
  CHECK(ids.data_as<std::int32_t>()[3] == 50256);
  CHECK(ids.to_vector() == values);
}

TEST_CASE("a dtype that an op does not have is an error", "[tensor]") {
  const Tensor ids = Tensor::empty({4}, DType::i32, Device{});
  CHECK_THROWS_WITH(gelu(ids, Activation::gelu_erf), testing::ContainsSubstring("i32"));
}

TEST_CASE("a device that this build has no kernels for is an error", "[tensor]") {
  float value = 0;
  const auto fill_on = [&](DeviceKind kind) { ISOBAR_RUN(Device{kind}, fill, {.n = 1, .value = 1, .y = &value}); };
  if constexpr (!ISOBAR_HAS_CUDA) CHECK_THROWS_WITH(fill_on(DeviceKind::cuda), testing::ContainsSubstring("cuda"));
  if constexpr (!ISOBAR_HAS_EMULATOR)
    CHECK_THROWS_WITH(fill_on(DeviceKind::emulator), testing::ContainsSubstring("emulator"));
  fill_on(DeviceKind::cpu);
  CHECK(value == 1);
}

TEST_CASE("a tensor over memory of another owner reads and writes it, and keeps it alive", "[tensor]") {
  auto owned = std::make_shared<std::vector<float>>(6, 1.0f);
  const std::weak_ptr<std::vector<float>> watched = owned;
  {
    Tensor whole = Tensor::over({owned, owned->data()}, {2, 3}, DType::fp32);
    whole.set_values({0, 1, 2, 3, 4, 5});
    CHECK(*owned == std::vector<float>{0, 1, 2, 3, 4, 5});
    owned.reset();
    const Tensor row = whole.slice(3, {3});
    whole = {};
    CHECK_FALSE(watched.expired());
    CHECK(row.to_vector() == std::vector<double>{3, 4, 5});
  }
  CHECK(watched.expired());
}

}  // namespace
}  // namespace isobar
