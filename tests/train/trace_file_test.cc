// A trace of what a thread does, its file, and its table.
#include "apps/train/trace_file.h"

#include <nlohmann/json.hpp>

#include "engine/files/reader.h"
#include "engine/stream.h"
#include "engine/tensor.h"
#include "kernels/common/run.h"
#include "kernels/cuda/runtime.h"
#include "kernels/elementwise.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;

namespace {

void fill_with_ones(const Tensor& y) {
  ISOBAR_RUN(y.device(), fill, {.n = y.numel(), .dtype = y.dtype(), .value = 1, .y = y.data()}, current_stream());
}

}  // namespace

TEST_CASE("trace: kernels and ranges, one within another, with what kernels cost") {
  const Tensor y = Tensor::zeros({64}, DType::fp32, {});
  std::vector<TraceEvent> events;
  {
    const gpu::Range before("begun before");
    Trace trace;
    {
      const gpu::Range range("copying");
      fill_with_ones(y);
    }
    events = trace.events();
  }
  fill_with_ones(y);  // nobody listens any more
  REQUIRE(events.size() == 2);
  CHECK(events[0].name == "copying");
  CHECK(events[0].kind == TraceEvent::Kind::range);
  const TraceEvent& inner = events[1];
  CHECK(inner.kind == TraceEvent::Kind::kernel);
  CHECK(inner.name == "fill");
  CHECK(inner.begin >= events[0].begin);
  CHECK(inner.begin + inner.seconds <= events[0].begin + events[0].seconds);
  CHECK(inner.cost.bytes == 64 * sizeof(float));
  CHECK(trace_of_thread == nullptr);
}

TEST_CASE("trace: a file of Chrome's format under the name that PyTorch's plugin looks for, and a table") {
  const std::vector<TraceEvent> events{
      {.kind = TraceEvent::Kind::range, .name = "ProfilerStep#7", .begin = 0, .seconds = 0.1},
      {.kind = TraceEvent::Kind::kernel, .name = "gemm", .begin = 0.01, .seconds = 0.05, .cost = {1e8, 5e9}},
      {.kind = TraceEvent::Kind::kernel, .name = "adam", .begin = 0.07, .seconds = 0.01, .cost = {1e8, 0}},
      {.kind = TraceEvent::Kind::message, .name = "all_reduce over dp", .begin = 0.08, .seconds = 0.01},
      {.kind = TraceEvent::Kind::kernel, .name = "adam", .begin = 0.09, .seconds = 0.01, .cost = {1e8, 0}}};
  const testing::TemporaryFolder folder;
  const std::filesystem::path file = write_trace(folder / "NAME", events, {});
  CHECK(file.parent_path() == folder / "NAME");
  CHECK(file.filename().string().ends_with(".pt.trace.json"));
  const auto json = nlohmann::json::parse(read_file(file));
  const auto& list = json.at("traceEvents");
  REQUIRE(list.size() == 2 + events.size());
  CHECK(list[0].at("name") == "process_name");
  CHECK(list[0].at("ph") == "M");
  CHECK(list[1].at("name") == "thread_name");
  CHECK(list[1].at("args").at("name") == "steps on cpu");
  CHECK(list[2].at("cat") == "user_annotation");
  CHECK(list[3].at("cat") == "cpu_op");
  CHECK(list[3].at("ph") == "X");
  CHECK(list[3].at("ts") == 1e4);
  CHECK(list[3].at("dur") == 5e4);
  CHECK(list[3].at("args").at("flops") == 5e9);

  const Lines table = kernel_table(events);
  REQUIRE(table.size() == 4);
  CHECK(table[1] == "gemm                                    1       50.000    50.0       2.0     100.0");
  CHECK(table[2] == "adam                                    2       20.000    20.0      10.0       0.0");
  CHECK_THAT(table[3], testing::ContainsSubstring("all_reduce over dp "));
}
