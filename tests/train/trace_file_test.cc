// A trace of what a thread does, its file, and its table.
#include "apps/train/trace_file.h"

#include <nlohmann/json.hpp>

#include "engine/conv_ops.h"
#include "engine/files/reader.h"
#include "engine/ops.h"
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
  CHECK(inner.operands == CallOperands{{{64}, DType::fp32}});
  CHECK(events[0].operands.empty());
  CHECK(trace_of_thread == nullptr);
  CHECK(operands_asked_for == nullptr);
}

TEST_CASE("trace: the operands of ops, with the shapes and types that their tensors have") {
  const auto rows = [](std::int64_t count, std::int64_t columns, DType dtype) {
    return Tensor::zeros({count, columns}, dtype, {});
  };
  const Tensor x = rows(6, 8, DType::bf16), w = rows(24, 8, DType::bf16), b = Tensor::zeros({24}, DType::fp32, {});
  const Tensor qkv = rows(6, 24, DType::fp32), image = Tensor::zeros({2, 5, 4, 3}, DType::fp32, {});
  const Tensor kernel = Tensor::zeros({7, 3, 3, 3}, DType::fp32, {}), none;
  const auto traced = [](const auto& op) {
    Trace trace;
    op();
    return trace.events();
  };
  const auto named = [](const std::vector<TraceEvent>& events, const std::string& name) {
    for (const TraceEvent& event : events)
      if (event.name == name) return event.operands;
    return CallOperands{};
  };
  const DType half = DType::bf16, full = DType::fp32;
  CHECK(named(traced([&] { linear(x, w, b, {.out_dtype = DType::fp32}); }), "gemm") ==
        CallOperands{{{6, 8}, half}, {{24, 8}, half}, {{24}, full}, {{6, 24}, full}});
  // Queries, keys and values are columns of one tensor.
  CHECK(named(traced([&] { attention(qkv, {.batch = 2, .heads = 1, .causal = true}); }), "attention_fwd") ==
        CallOperands{{{6, 24}, full}, {{6, 24}, full}, {{6, 24}, full}, {{6, 8}, full}, {{2, 1, 3}, full}});
  CHECK(named(traced([&] { add(qkv, qkv); }), "add") == CallOperands(3, {{6, 24}, full}));
  const CallOperands of_conv =
      named(traced([&] { conv(image, kernel, none, {.stride = {1}, .pad = {1}}); }), "conv_fwd");
  REQUIRE(of_conv.size() >= 3);
  CHECK(of_conv[0].shape == Shape{2, 5, 4, 3});
  CHECK(of_conv[1].shape == Shape{7, 3, 3, 3});
  CHECK(of_conv[2].shape == Shape{2, 5, 4, 7});
}

TEST_CASE("trace: a list of operands has what its own scope asked for") {
  const Tensor y = Tensor::empty({3}, DType::i32, {});
  const OperandScope outer;
  {
    const OperandScope inner;
    y.data();
    CHECK(inner.operands().size() == 1);
  }
  y.view({1, 3}).data();
  CHECK(outer.operands() == CallOperands{{{1, 3}, DType::i32}});
}

TEST_CASE("trace: it is full before its file is larger than viewers open") {
  Trace trace;
  for (std::size_t i = 0; i + 1 < Trace::kMostEvents; ++i) {
    trace.open(TraceEvent::Kind::range, "r");
    trace.close();
  }
  CHECK(!trace.is_full());
  trace.open(TraceEvent::Kind::range, "r");
  trace.close();
  CHECK(trace.is_full());
}

TEST_CASE("trace: a file of Chrome's format under the name that PyTorch's plugin looks for, and a table") {
  const std::vector<TraceEvent> events{
      {.kind = TraceEvent::Kind::range, .name = "ProfilerStep#7", .begin = 0, .seconds = 0.1},
      {.kind = TraceEvent::Kind::kernel,
       .name = "gemm",
       .begin = 0.01,
       .seconds = 0.05,
       .cost = {1e8, 5e9},
       .operands = {{{2, 3}, DType::bf16}, {{3}, DType::fp32}, {{}, DType::i32}}},
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
  CHECK(list[3].at("args").at("Input Dims").dump() == "[[2,3],[3],[]]");
  CHECK(list[3].at("args").at("Input type").dump() == R"(["c10::BFloat16","float","int"])");
  CHECK(list[4].at("args").at("Input Dims").dump() == "[]");
  const auto others = nlohmann::json::parse(chrome_trace({{.kind = TraceEvent::Kind::kernel,
                                                           .name = "k",
                                                           .begin = 0,
                                                           .seconds = 1,
                                                           .cost = {},
                                                           .operands = {{{1}, DType::fp16}, {{4, 1}, DType::fp64}}}},
                                                         Device{}, 5));
  CHECK(others.at("traceEvents")[2].at("args").at("Input type").dump() == R"(["c10::Half","double"])");
  CHECK(others.at("traceEvents")[2].at("pid") == 5);
  CHECK(list[3].at("args").at("bytes") == 1e8);
  CHECK(list[0].at("args").at("name") == "isobar, rank 0");
  CHECK_FALSE(list[2].contains("args"));
  CHECK(list[5].at("cat") == "cpu_op");  // a message
  for (const auto& event : list) {
    CHECK(event.at("pid") == list[0].at("pid"));
    CHECK(event.at("tid") == event.at("pid"));
  }
  CHECK(json.at("schemaVersion") == 1);
  CHECK(json.at("device") == "cpu");

  const Lines table = kernel_table(events);
  REQUIRE(table.size() == 4);
  CHECK(table[1] == "gemm                                    1       50.000    50.0       2.0     100.0");
  CHECK(table[2] == "adam                                    2       20.000    20.0      10.0       0.0");
  CHECK_THAT(table[3], testing::ContainsSubstring("all_reduce over dp "));
  CHECK(table[0] == "kernel                              calls           ms       %      GB/s   GFLOP/s");
  // Without a step there is nothing to have a share of; the longest comes first, and equals by their names.
  const Lines alone = kernel_table({{.kind = TraceEvent::Kind::kernel, .name = "b", .seconds = 1},
                                    {.kind = TraceEvent::Kind::kernel, .name = "a", .seconds = 1},
                                    {.kind = TraceEvent::Kind::kernel, .name = "c", .seconds = 2}});
  REQUIRE(alone.size() == 4);
  CHECK(alone[1] == "c                                       1     2000.000     0.0       0.0       0.0");
  CHECK_THAT(alone[2], testing::Matches("a .*"));
}
