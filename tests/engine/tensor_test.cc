// Tensors of whole numbers, and devices and dtypes that there are no kernels for.
#include "engine/tensor.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/ops.h"
#include "kernels/common/run.h"
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

TEST_CASE("views, slices and copies share or hold what they say", "[tensor]") {
  Tensor x = Tensor::empty({2, 3}, DType::fp32, Device{});
  x.set_values({0, 1, 2, 3, 4, 5});
  CHECK(to_string(x.shape()) == "[2, 3]");
  CHECK(to_string(Shape{}) == "[]");
  CHECK(x.size(0) == 2);
  CHECK(x.size(-1) == 3);
  CHECK(x.bytes() == 24);
  CHECK(x.view({-1}).shape() == Shape{6});
  CHECK(x.view({3, -1}).shape() == Shape{3, 2});
  CHECK(x.view({6}).data() == x.data());
  CHECK_THROWS_WITH(x.view({4, -1}), "a tensor of shape [2, 3] has no view [4, 1]");
  CHECK_THROWS_WITH(x.view({5}), "a tensor of shape [2, 3] has no view [5]");
  CHECK_THROWS_WITH(x.view({0, -1}), testing::ContainsSubstring("has no view [0, 0]"));
  const Tensor middle = x.slice(2, {3}), of_slice = middle.slice(1, {1});
  CHECK(middle.to_vector() == std::vector<double>{2, 3, 4});
  CHECK(of_slice.item() == 3);
  CHECK(x.to(DType::fp32).data() == x.data());
  CHECK(x.to(Device{}).data() == x.data());
  const Tensor wide = x.to(DType::fp64);
  CHECK(wide.dtype() == DType::fp64);
  CHECK(wide.to_vector() == x.to_vector());
  Tensor other = Tensor::zeros({6}, DType::fp32, Device{});
  CHECK(other.to_vector() == std::vector<double>(6, 0.0));
  other.copy_from(x);
  CHECK(other.to_vector() == x.to_vector());
  CHECK_THROWS_WITH(other.copy_from(wide), "a tensor [6] of fp32 cannot be copied from [2, 3] of fp64");
  CHECK_THROWS_WITH(other.copy_from(middle), "a tensor [6] of fp32 cannot be copied from [3] of fp32");
  CHECK_THROWS_WITH(x.set_values({1}), "1 values for a tensor of shape [2, 3]");
  CHECK_THROWS_WITH(x.item(), "a tensor of shape [2, 3] is not a single number");
  CHECK_THROWS_WITH(x.data_as<double>(), "a tensor of fp32 is read as fp64");
  Tensor half = Tensor::empty({2}, DType::bf16, Device{});
  half.set_values({1.5, -0.1});
  CHECK(half.to_vector() == std::vector<double>{1.5, -0.10009765625});
}

TEST_CASE("runs of elements are copied between tensors, and nothing beside them", "[tensor]") {
  Tensor from = Tensor::empty({3, 4}, DType::i32, Device{}), to = Tensor::empty({2, 5}, DType::i32, Device{});
  to.set_values(std::vector<double>(10, 0.0));
  from.set_values({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  copy_strided(to, {1, 5}, from, {2, 4}, 2, 2);
  CHECK(to.to_vector() == std::vector<double>{0, 2, 3, 0, 0, 0, 6, 7, 0, 0});
  copy_strided(to, {0, 3}, from, {11, 0}, 3, 1);
  CHECK(to.to_vector() == std::vector<double>{11, 2, 3, 11, 0, 0, 11, 7, 0, 0});
  copy_strided(to, {8, 0}, from, {0, 0}, 1, 2);
  CHECK(to.to_vector() == std::vector<double>{11, 2, 3, 11, 0, 0, 11, 7, 0, 1});
  copy_strided(to, {99, 1}, from, {99, 1}, 0, 7);  // nothing
  CHECK_THROWS_WITH(copy_strided(to, {1, 5}, from, {3, 4}, 3, 2),
                    "3 runs of 2 elements, every 5 from 1, lie outside a tensor of shape [2, 5]");
  CHECK_THROWS_WITH(copy_strided(to, {0, 2}, from, {3, 4}, 3, 2),
                    "3 runs of 2 elements, every 4 from 3, lie outside a tensor of shape [3, 4]");
  CHECK_THROWS_WITH(copy_strided(to, {-1, 2}, from, {0, 4}, 1, 2), testing::ContainsSubstring("every 2 from -1"));
  CHECK_THROWS_WITH(copy_strided(to, {0, 1}, from, {0, 4}, 2, 2),
                    "runs of 2 elements, every 1, overlap where they are copied to");
  CHECK_THROWS_WITH(copy_strided(to, {0, 2}, Tensor::zeros({3, 4}, DType::fp32, Device{}), {0, 2}, 2, 2),
                    "runs of fp32 on cpu cannot be copied to i32 on cpu");
}

TEST_CASE("only leaves and what ops make have an id, and each its own", "[tensor]") {
  const Tensor x = Tensor::zeros({2, 3}, DType::fp32, Device{});
  CHECK_FALSE(x.tracked());
  const Tensor a = make_leaf(x, Tensor::zeros({6}, DType::fp32, Device{})), b = make_leaf(x, a.leaf()->grad);
  CHECK(a.tracked());
  CHECK(a.id() != b.id());
  CHECK_FALSE(a.leaf()->touched);
  CHECK(a.view({6}).id() == a.id());
  CHECK_FALSE(a.detach().slice(0, {6}).tracked());
  CHECK_FALSE(a.detach().tracked());
  CHECK(a.detach().leaf() == nullptr);
  CHECK_THROWS_WITH(make_leaf(x, Tensor::zeros({5}, DType::fp32, Device{})),
                    "a leaf of shape [2, 3] with a gradient of shape [5]");
  // A part or a copy that the tape would not know of has to be asked for.
  const std::string end = " of a tracked tensor [2, 3] gets no gradient: take it of detach() where that is meant";
  CHECK_THROWS_WITH(a.slice(0, {6}), "a slice" + end);
  CHECK_THROWS_WITH(a.to(DType::fp64), "a copy in another dtype" + end);
  CHECK_THROWS_WITH(a.to(meta_like(DeviceKind::cpu)), "a copy on another device" + end);
  CHECK(a.to(DType::fp32).id() == a.id());
  CHECK(a.to(Device{}).id() == a.id());
  CHECK_FALSE(a.detach().to(DType::fp64).tracked());
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
