// Streams and events of the emulator device: in which order work runs, what a forgotten event does, and where errors of
// work that runs late come out.
#include "kernels/emulator/streams.h"

#include "tests/harness/testing.h"

#if ISOBAR_HAS_EMULATOR

#define ISOBAR_EMULATE
#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kernels/common/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/runtime.h"
#include "kernels/emulator/devices.h"
#include "kernels/gemm/gemm.h"

namespace isobar::emulator {
namespace {

using testing::ContainsSubstring;

class TestStream {
 public:
  TestStream() = default;
  ~TestStream() { destroy_stream(stream_); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  operator Stream() const { return stream_; }  // NOLINT: used as one

 private:
  Stream stream_ = create_stream();
};

__global__ void set_kernel(float* x, float value) {
  *x = value;
}
__global__ void add_kernel(const float* x, float increment, float* y) {
  *y = *x + increment;
}
__global__ void divergent_kernel() {
  if (threadIdx.x == 0)
    __syncthreads();
  else
    __syncthreads_count(1);
}

void set(float* x, float value, Stream stream) {
  launch("set", set_kernel, 1, 1, 0, stream, x, value);
}
void add(const float* x, float increment, float* y, Stream stream) {
  launch("add", add_kernel, 1, 1, 0, stream, x, increment, y);
}
void fail(Stream stream) {
  launch("divergent", divergent_kernel, 1, 2, 0, stream);
}

TEST_CASE(
    "streams: work is queued with its arguments and runs in order at the wait, and the null stream runs at once") {
  float x = 1, y = 2;
  set(&x, 3, nullptr);
  CHECK(x == 3);
  const TestStream stream;
  float value = 5;
  set(&x, value, stream);
  value = 100;
  add(&x, 7, &y, stream);
  copy(&x, &y, sizeof x, stream);
  set(&y, 9, stream);
  CHECK(x == 3);
  CHECK(y == 2);
  synchronize(stream);
  CHECK(x == 12);
  CHECK(y == 9);
  synchronize(stream);
  synchronize(nullptr);
}

TEST_CASE("streams: a drawn order differs from seed to seed, and keeps to streams and events") {
  std::set<std::string> free_orders, led_orders;
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    draw_order(seed);
    for (const bool is_led : {false, true}) {
      const TestStream a, b, reader;
      Event of_a, of_b;
      std::string order;
      for (const char letter : {'1', '2'}) submit(a, [&order, letter] { order += letter; });
      of_a.record(a);
      if (is_led) of_a.make_wait(b);
      submit(b, [&order] { order += 'b'; });
      of_b.record(b);
      of_a.make_wait(reader);
      of_b.make_wait(reader);
      synchronize(reader);
      (is_led ? led_orders : free_orders).insert(order);
    }
  }
  draw_order(0);
  CHECK(free_orders == std::set<std::string>{"12b", "1b2", "b12"});
  CHECK(led_orders == std::set<std::string>{"12b"});
}

TEST_CASE("streams: a product waits in its stream too") {
  const TestStream stream;
  float a = 2, b = 3, c = 0;
  gemm({.m = 1, .n = 1, .k = 1, .a = &a, .b = &b, .c = &c}, stream);
  set(&a, 5, stream);
  CHECK(c == 0);
  synchronize(stream);
  CHECK(c == 6);
}

// In both directions: whichever stream was made first.
TEST_CASE("streams: a reader on another stream needs an event to see what was written") {
  const TestStream older, younger;
  for (const bool with_event : {true, false}) {
    for (const bool swapped : {false, true}) {
      const Stream writer = swapped ? younger : older, reader = swapped ? older : younger;
      float x = 1, y = 0;
      Event written;
      set(&x, 2, writer);
      written.record(writer);
      if (with_event) written.make_wait(reader);
      add(&x, 10, &y, reader);
      synchronize(reader);
      CHECK(y == (with_event ? 12 : 11));
      CHECK(x == (with_event ? 2 : 1));  // no more runs than the wait needs
      synchronize(writer);
      CHECK(x == 2);
    }
  }
}

// The current stream goes on after work beside it: it forks, the side stream computes y from x, and the two join.
TEST_CASE("streams: a fork and a join without their event give a wrong number") {
  const TestStream main, side;
  struct Case {
    bool fork, join;
    float z;
  };
  for (const Case& c : {Case{true, true, 112}, {false, true, 111}, {true, false, 100}, {false, false, 100}}) {
    float x = 1, y = 0, z = -1;
    set(&x, 2, main);
    Event start, done;
    start.record(main);
    if (c.fork) start.make_wait(side);
    add(&x, 10, &y, side);
    done.record(side);
    if (c.join) done.make_wait(main);
    add(&y, 100, &z, main);
    synchronize(main);
    CHECK(z == c.z);
    synchronize(side);
  }
}

TEST_CASE("streams: who overwrites what another stream still reads needs an event") {
  const TestStream main, side;
  for (const bool fork : {true, false}) {
    float x = 1, y = 0;
    add(&x, 10, &y, main);
    Event start, done;
    start.record(main);
    if (fork) start.make_wait(side);
    set(&x, 5, side);
    done.record(side);
    done.make_wait(main);
    synchronize(main);
    CHECK(y == (fork ? 11 : 15));
  }
}

TEST_CASE("streams: a wait is for the point of the last record before it, and no later one") {
  const TestStream writer, reader;
  float x = 1, y = 0;
  Event event;
  event.record(writer);
  set(&x, 2, writer);
  event.record(writer);
  event.make_wait(reader);
  set(&x, 3, writer);
  event.record(writer);
  add(&x, 10, &y, reader);
  synchronize(reader);
  CHECK(y == 12);
  CHECK(x == 2);
  set(&x, 4, writer);
  event.synchronize();
  CHECK(x == 3);  // and not 4
  event.make_wait(nullptr);
  Event never;
  CHECK_THROWS_WITH(never.make_wait(reader), "somebody waits for an event that was never recorded");
  CHECK_THROWS_WITH(never.synchronize(), "somebody waits for an event that was never recorded");
}

TEST_CASE("streams: the null stream waits for an event at once, and its own events are reached") {
  const TestStream stream;
  float x = 1, y = 0;
  set(&x, 2, stream);
  Event written;
  written.record(stream);
  written.make_wait(nullptr);
  CHECK(x == 2);
  written.record(nullptr);
  written.synchronize();
  written.make_wait(stream);
  add(&x, 10, &y, stream);
  synchronize(stream);
  CHECK(y == 12);
}

TEST_CASE("streams: events lead from stream to stream") {
  const TestStream a, b, c;
  float x = 1, y = 0, z = 0;
  Event first, second, back;
  set(&x, 2, a);
  first.record(a);
  first.make_wait(b);
  add(&x, 10, &y, b);
  second.record(b);
  second.make_wait(c);
  add(&y, 100, &z, c);
  back.record(c);
  back.make_wait(a);
  add(&z, 1000, &x, a);
  synchronize(a);
  CHECK(x == 1112);
}

TEST_CASE("streams: events tell whether they are reached, and which streams they are before") {
  const TestStream first, second, third;
  CHECK(is_idle(first));
  CHECK(is_idle(nullptr));
  float x = 0;
  set(&x, 1, first);
  CHECK(!is_idle(first));
  Event middle, end;
  middle.record(first);
  set(&x, 2, first);
  end.record(first);
  CHECK(!middle.is_reached());
  CHECK(middle.is_before(first));
  CHECK(!middle.is_before(second));
  middle.make_wait(second);
  CHECK(middle.is_before(second));
  CHECK(!end.is_before(second));
  Event of_second;
  of_second.record(second);
  of_second.make_wait(third);
  CHECK(middle.is_before(third));  // by way of the second
  CHECK(!end.is_before(third));
  CHECK(!middle.is_before(nullptr));  // which waits for nobody
  CHECK(x == 0);                      // asking runs nothing
  middle.synchronize();
  CHECK(middle.is_reached());
  CHECK(middle.is_before(nullptr));
  CHECK(!end.is_reached());
  CHECK(x == 1);
  synchronize(first);
  CHECK(end.is_before(second));
  CHECK(is_idle(first));
}

TEST_CASE("streams: the memory of a device and its name are known") {
  const std::vector<char> memory(66);
  const char* block = memory.data() + 1;
  note_memory(3, block, 64);
  CHECK(is_memory(3, block, 64));
  CHECK(is_memory(3, block + 60, 4));
  CHECK(!is_memory(3, block + 60, 5));
  CHECK(!is_memory(3, block - 1, 2));
  CHECK(!is_memory(2, block, 1));
  forget_memory(block);
  CHECK(!is_memory(3, block, 1));
  CHECK(current_device().index == 0);
  std::thread other([] {
    set_device(2, "two");
    CHECK(current_device().index == 2);
    CHECK(current_device().name == "two");
    set_device(4);
    CHECK_THAT(current_device().name, ContainsSubstring("emulator 4"));
  });
  other.join();
  CHECK(current_device().index == 0);
}

TEST_CASE("streams: an error of late work is thrown at every wait, and what follows it does not run") {
  float x = 1, y = 1;
  const TestStream failing, waiting, other;
  set(&x, 2, failing);
  fail(failing);
  set(&x, 3, failing);
  Event event;
  event.record(failing);
  event.make_wait(waiting);
  set(&y, 3, waiting);
  CHECK_THROWS_WITH(synchronize(waiting),
                    ContainsSubstring("kernel divergent") && ContainsSubstring("divergent barrier"));
  CHECK(x == 2);
  CHECK(y == 1);
  CHECK_THROWS_WITH(synchronize(failing), ContainsSubstring("kernel divergent"));
  set(&x, 4, failing);
  CHECK_THROWS_WITH(synchronize(failing), ContainsSubstring("kernel divergent"));
  CHECK_THROWS_WITH(event.synchronize(), ContainsSubstring("kernel divergent"));
  CHECK(x == 2);
  event.make_wait(other);
  CHECK_THROWS_WITH(synchronize(other), ContainsSubstring("kernel divergent"));
  CHECK_THROWS_WITH(fail(nullptr), ContainsSubstring("kernel divergent"));
}

TEST_CASE("streams: a grid that no GPU can launch is refused at the call") {
  const TestStream stream;
  float x = 0;
  CHECK_THROWS_WITH(launch("set", set_kernel, 1, 2000, 0, stream, &x, 1.0f), ContainsSubstring("cannot be launched"));
  CHECK_NOTHROW(synchronize(stream));
}

TEST_CASE("streams: what is left runs when the stream is destroyed, and an unknown one is refused") {
  float x = 1;
  const Stream stream = create_stream();
  set(&x, 2, stream);
  fail(stream);
  CHECK(x == 1);
  destroy_stream(stream);
  CHECK(x == 2);
  CHECK_THROWS_WITH(set(&x, 3, stream), ContainsSubstring("none of the emulator's"));
}

// Work of a rank may wait for that of another: no lock is held while it runs.
TEST_CASE("streams: threads with streams of their own wait for each other within their work") {
  // The emulator's list of streams is made before there are threads: ThreadSanitizer, which does not look into the
  // emulator, cannot see what guards the making of it.
  const TestStream first;
  std::atomic<int> arrived{0};
  std::vector<float> x(2, 0);
  const auto rank = [&](int r) {
    const TestStream stream;
    submit(stream, [&arrived] {
      ++arrived;
      arrived.notify_all();
      for (int n = arrived; n < 2; n = arrived) arrived.wait(n);
    });
    set(&x[static_cast<std::size_t>(r)], static_cast<float>(1 + r), stream);
    synchronize(stream);
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
  CHECK(x == std::vector<float>{1, 2});
}

TEST_CASE("streams: a thread may wait for work that another thread gave or runs") {
  const TestStream first, second;
  std::vector<float> x(200, 0);
  Event event;
  for (std::size_t i = 1; i < x.size(); ++i) {
    const Stream stream = i % 2 == 0 ? first : second;
    if (i > 1) event.make_wait(stream);
    add(&x[i - 1], 1, &x[i], stream);
    event.record(stream);
  }
  std::thread one([&] { synchronize(first); }), two([&] { synchronize(second); });
  one.join();
  two.join();
  CHECK(x.back() == 199);
}

TEST_CASE("streams: owners, events and copies by device") {
  const Device device{DeviceKind::emulator};
  float x = 1, y = 2;
  {
    const gpu::OwnedStream stream(device);
    CHECK(stream.get() != nullptr);
    CHECK(stream.device() == device);
    gpu::Event event(device);
    CHECK_THROWS_WITH(event.synchronize(), ContainsSubstring("never recorded"));
    gpu::copy(&x, &y, sizeof x, device, stream.get());
    event.record(stream.get());
    CHECK(x == 1);
    gpu::Event moved = std::move(event);
    moved.synchronize();
    CHECK(x == 2);
    set(&x, 3, stream.get());
    gpu::synchronize(device, stream.get());
    CHECK(x == 3);
    set(&x, 4, stream.get());
  }
  CHECK(x == 4);
  const gpu::OwnedStream none(Device{});
  CHECK(none.get() == nullptr);
  gpu::copy(&x, &y, sizeof x, Device{}, none.get());
  CHECK(x == 2);
  gpu::Event nothing(Device{});
  nothing.record(none.get());
  nothing.make_wait(none.get());
  nothing.synchronize();
  gpu::synchronize(Device{}, none.get());
}

}  // namespace
}  // namespace isobar::emulator

#endif
