// Streams as the engine uses them, on the emulator, where a forgotten event is a wrong number: memory that goes back
// with its stream, work beside the current stream, and errors of work that runs late.
#include "engine/stream.h"

#include <cmath>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "engine/tensor.h"
#include "kernels/common/check.h"
#include "kernels/common/run.h"
#include "kernels/elementwise.h"
#include "kernels/emulator/streams.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;

TEST_CASE("streams: the CPU runs work beside the current stream at once", "[stream]") {
  const StreamScope scope(std::make_shared<gpu::OwnedStream>(Device{}));
  CHECK(current_stream() == nullptr);
  SideStream side(Device{});
  int runs = 0;
  Pending pending = side.run([&] { ++runs; });
  CHECK(runs == 1);
  pending.wait();
  CHECK_THROWS_WITH((void)side.run([] { throw Error("of the body"); }), "of the body");
}

TEST_CASE("streams: memory is copied by way of the host from one kind of device to another", "[stream]") {
  char byte = 0;
  CHECK_THROWS_WITH(copy_bytes(&byte, {DeviceKind::cuda}, &byte, {DeviceKind::emulator}, 1),
                    "memory of emulator cannot be copied to cuda: copy it to the CPU first");
}

#if ISOBAR_HAS_EMULATOR

constexpr Device kEmulator{DeviceKind::emulator};
constexpr std::size_t kBlock = std::size_t{3} << 20;

std::shared_ptr<const gpu::OwnedStream> new_stream() {
  return std::make_shared<gpu::OwnedStream>(kEmulator);
}

Tensor tensor_of(double value) {
  Tensor x = Tensor::empty({4}, DType::fp32, kEmulator);
  ISOBAR_RUN(kEmulator, fill, {.n = 4, .value = value, .y = x.data()}, current_stream());
  return x;
}

// y = a + b
void add_to(const Tensor& y, const Tensor& a, const Tensor& b) {
  ISOBAR_RUN(kEmulator, add, {.n = 4, .a = a.data(), .b = b.data(), .y = y.data()}, current_stream());
}
Tensor sum_of(const Tensor& a, const Tensor& b) {
  Tensor y = Tensor::empty({4}, DType::fp32, kEmulator);
  add_to(y, a, b);
  return y;
}

float first_of(const Tensor& x) {  // past the streams: what the memory holds now
  return *static_cast<const float*>(x.data());
}
std::vector<double> four(double value) {
  return std::vector<double>(4, value);
}

TEST_CASE("streams: a scope makes a stream current, and the host waits for it where it reads", "[stream]") {
  CHECK(current_stream() == nullptr);
  const Tensor before = tensor_of(1);
  CHECK(first_of(before) == 1);
  const auto outer = new_stream(), inner = new_stream();
  {
    const StreamScope scope(outer);
    CHECK(current_stream() == outer->get());
    {
      const StreamScope nested(inner);
      CHECK(current_stream() == inner->get());
      const StreamScope none(nullptr);
      CHECK(current_stream() == nullptr);
    }
    CHECK(share_current_stream() == outer);
    Tensor x = tensor_of(1);
    ISOBAR_RUN(kEmulator, fill, {.n = 4, .value = 2, .y = x.data()}, current_stream());
    CHECK(first_of(x) != 2);
    CHECK(x.to_vector() == four(2));
    x.set_values({1, 2, 3, 4});
    CHECK(x.slice(2, {1}).item() == 3);
    Tensor y = tensor_of(0);
    y.copy_from(x);
    CHECK(first_of(y) != 1);
    CHECK(y.to_vector() == std::vector<double>{1, 2, 3, 4});
    std::thread other([] { CHECK(current_stream() == nullptr); });
    other.join();
  }
  CHECK(current_stream() == nullptr);
}

TEST_CASE("streams: a stream is for memory of its own device", "[stream]") {
  const StreamScope scope(new_stream());
  CHECK_NOTHROW(Storage(16, Device{}));
  CHECK_THROWS_WITH(Storage(16, {DeviceKind::emulator, 1}),
                    "the current stream belongs to emulator 0 and cannot be used for memory of emulator 1");
}

TEST_CASE("streams: memory goes back to the pool when the work given before has run", "[stream]") {
  const auto stream = new_stream();
  const StreamScope scope(stream);
  const std::size_t held = memory_bytes();
  auto block = std::make_unique<Storage>(kBlock, kEmulator);
  const void* place = block->data();
  Tensor copied = Tensor::empty({kBlock / 4}, DType::fp32, kEmulator);
  ISOBAR_RUN(kEmulator, fill, {.n = kBlock / 4, .value = 3, .y = block->data()}, current_stream());
  copy_bytes(copied.data(), kEmulator, block->data(), kEmulator, kBlock);
  block.reset();
  CHECK(memory_bytes() == held + copied.bytes());  // the report counts what the program holds
  {
    const StreamScope none(nullptr);
    const Storage meanwhile(kBlock, kEmulator);  // of the default stream, which could write it at once
    CHECK(meanwhile.data() != place);
  }
  CHECK(Storage(kBlock, kEmulator).data() != place);
  CHECK(copied.slice(77, {1}).item() == 3);  // waits
  std::vector<std::unique_ptr<Storage>> after;
  bool found = false;
  for (int i = 0; i < 3; ++i) {
    after.push_back(std::make_unique<Storage>(kBlock, kEmulator));
    found = found || after.back()->data() == place;
  }
  CHECK(found);
}

TEST_CASE("streams: memory keeps its stream alive, and any thread may drop it", "[stream]") {
  std::weak_ptr<const gpu::OwnedStream> watched;
  std::optional<Tensor> x, sum;
  {
    auto stream = new_stream();
    watched = stream;
    const StreamScope scope(std::move(stream));
    x = tensor_of(5);
    sum = sum_of(*x, *x);
  }
  CHECK_FALSE(watched.expired());
  std::thread other([&] { x.reset(); });
  other.join();
  {
    const StreamScope scope(watched.lock());
    CHECK(sum->to_vector() == four(10));
  }
  sum.reset();
  CHECK(watched.expired());
}

TEST_CASE("streams: memory of one stream that was last used on another is freed when that use is over", "[stream]") {
  const auto main = new_stream(), side = new_stream();
  const StreamScope scope(main);
  Tensor result;
  {
    std::optional<Tensor> of_side;
    gpu::Event made(kEmulator);
    {
      const StreamScope beside(side);
      of_side = tensor_of(7);
      made.record(current_stream());
    }
    made.make_wait(current_stream());
    result = sum_of(*of_side, *of_side);
  }  // of_side goes back to its stream, while main's sum has not run
  gpu::synchronize(kEmulator, side->get());
  CHECK(result.to_vector() == four(14));
}

TEST_CASE("streams: work beside the current stream follows what that was given, and is waited for", "[stream]") {
  for (const bool on_default : {false, true}) {
    const StreamScope scope(on_default ? nullptr : new_stream());
    SideStream side(kEmulator);
    Tensor x = tensor_of(2), y = tensor_of(0), z;
    {
      Pending pending = side.run([&] {
        CHECK(current_stream() != nullptr);
        add_to(y, x, x);
      });
      const Tensor meanwhile = sum_of(x, x);
      CHECK(meanwhile.to_vector() == four(4));
      CHECK(first_of(y) == 0);  // nobody has waited for it
      Pending moved = std::move(pending);
      moved.wait();
      moved.wait();
      z = sum_of(y, x);
    }
    CHECK(z.to_vector() == four(6));
    add_to(x, z, z);
    {
      const Pending pending = side.run([&] { add_to(y, x, z); });
    }  // waited for at its end
    CHECK(sum_of(y, y).to_vector() == four(36));
  }
}

TEST_CASE("streams: what the current stream does before the wait does not see the work beside it", "[stream]") {
  const StreamScope scope(new_stream());
  SideStream side(kEmulator);
  Tensor x = tensor_of(2), y = tensor_of(1);
  Pending pending = side.run([&] { add_to(y, x, x); });
  const Tensor early = sum_of(y, y);
  CHECK(early.to_vector() == four(2));
  pending.wait();
  CHECK(sum_of(y, y).to_vector() == four(8));
}

TEST_CASE("streams: several works beside one stream, one waited for, run in their order", "[stream]") {
  const StreamScope scope(new_stream());
  SideStream side(kEmulator);
  Tensor x = tensor_of(1), y = tensor_of(0), z = tensor_of(0);
  Pending first = side.run([&] { add_to(y, x, x); });
  const Tensor three = sum_of(x, tensor_of(2));
  Pending second = side.run([&] { add_to(z, y, three); });
  first.wait();
  CHECK(y.to_vector() == four(2));
  CHECK(first_of(z) == 0);
  second.wait();
  CHECK(z.to_vector() == four(5));
}

TEST_CASE("streams: tensors made beside the current stream are used and dropped on it", "[stream]") {
  const StreamScope scope(new_stream());
  SideStream side(kEmulator);
  Tensor total = tensor_of(0);
  for (int i = 1; i <= 3; ++i) {
    Tensor made;
    side.run([&] { made = tensor_of(i); }).wait();
    total = sum_of(total, made);
  }
  CHECK(total.to_vector() == four(6));
}

TEST_CASE("streams: memory that is dropped before the work beside has been waited for is a wrong number", "[stream]") {
  const StreamScope scope(new_stream());
  SideStream side(kEmulator);
  Tensor y = tensor_of(0);
  {
    std::optional<Tensor> x = tensor_of(2);
    Pending pending = side.run([&] { add_to(y, *x, *x); });
    x.reset();
  }
  CHECK(std::isnan(y.to_vector()[0]));
}

TEST_CASE("streams: a body that throws is waited for with what it launched", "[stream]") {
  const StreamScope scope(new_stream());
  SideStream side(kEmulator);
  Tensor x = tensor_of(2), y = tensor_of(0);
  const auto body = [&] {
    add_to(y, x, x);
    throw Error("of the body");
  };
  CHECK_THROWS_WITH((void)side.run(body), "of the body");
  CHECK(y.to_vector() == four(4));
}

TEST_CASE("streams: an error of late work is thrown where the host reads", "[stream]") {
  const auto late = [] { emulator::submit(current_stream(), [] { throw Error("late"); }); };
  {
    const StreamScope scope(new_stream());
    Tensor x = tensor_of(1);
    CHECK_NOTHROW(late());
    CHECK_THROWS_WITH(x.to_vector(), "late");
    CHECK_THROWS_WITH(x.set_values({1, 2, 3, 4}), "late");
  }
  {
    const StreamScope scope(new_stream());
    SideStream side(kEmulator);
    Tensor x = tensor_of(1);
    CHECK_NOTHROW(side.run(late).wait());
    CHECK_THROWS_WITH(x.item() + x.to_vector()[0], ContainsSubstring("not a single number"));
    CHECK_THROWS_WITH(x.to_vector(), "late");
  }
  SideStream side(kEmulator);  // beside the default stream, which waits at once
  CHECK_THROWS_WITH(side.run(late).wait(), "late");
  CHECK_THROWS_WITH([&] { const Pending pending = side.run([] {}); }(), "late");
  const auto two_errors = [&] {
    const Pending pending = side.run([] {});
    throw Error("the first");
  };
  CHECK_THROWS_WITH(two_errors(), "the first");
}

#endif

}  // namespace
}  // namespace isobar
