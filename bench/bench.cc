// isobar-bench: times kernels and says how far they are from what the device can do. The floor of a kernel is its cost
// model (kernels/*.h) over peaks that are measured in the same run: copy bandwidth, and arithmetic.
#include <omp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/ops.h"
#include "bench/peaks.h"
#include "kernels/common/check.h"

namespace isobar::bench {
namespace {

struct Options {
  std::vector<std::string> ops;     // empty: all
  std::vector<std::string> shapes;  // one an op, or empty: the base ViT's
  std::string dtype = "fp32";
  std::string device = "cpu";
  std::string baseline;
  int threads = 0;
  double seconds = 0.5;
  bool json = false;
  bool list = false;
};

struct Result {
  std::string op, shape, dtype, device;
  double seconds;
  Cost cost;
  double floor_seconds;
  std::string baseline;
  double baseline_seconds;
};

const Op& find_op(const std::string& name) {
  std::string known;
  for (const Op& op : ops()) {
    if (op.name == name) return op;
    known += (known.empty() ? "" : ", ") + op.name;
  }
  fail("there is no op \"", name, "\"; there are ", known);
}

DType parse_dtype(const std::string& name) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    if (name == name_of(dtype)) return dtype;
  }
  fail("there is no dtype \"", name, "\"; there are fp32, bf16, fp16");
}

Device parse_device(const std::string& name) {
  if (name == "cpu") return {DeviceKind::cpu};
  if (name == "cuda") return {DeviceKind::cuda};
  fail("there is no device \"", name, "\"; there are cpu, cuda");
}

std::string to_text(const Shape& shape) {
  std::string text;
  for (const std::int64_t size : shape) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

// "4050x384" or "4050,384".
Shape parse_shape(const Op& op, const std::string& text) {
  Shape shape;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find_first_of("x,", begin), text.size());
    const std::string number = text.substr(begin, end - begin);
    const bool is_number =
        !number.empty() && number.size() <= 15 && number.find_first_not_of("0123456789") == std::string::npos;
    ISOBAR_CHECK(is_number && std::stoll(number) > 0, "the shape \"", text, "\" of op ", op.name,
                 " is not a list of positive numbers like ", to_text(op.base_shape(1)));
    shape.push_back(std::stoll(number));
    begin = end + 1;
  }
  const Shape example = op.base_shape(1);
  ISOBAR_CHECK(shape.size() == example.size(), "the shape \"", text, "\" of op ", op.name, " needs ", example.size(),
               " numbers (", op.dims, "), like ", to_text(example));
  return shape;
}

// The named baseline of an op; none where the name is empty.
std::optional<Baseline> find_baseline(const Op& op, const std::string& name) {
  if (name.empty()) return std::nullopt;
  std::string known;
  for (const Baseline& baseline : op.baselines) {
    if (baseline.name == name) return baseline;
    known += (known.empty() ? "" : ", ") + baseline.name;
  }
  fail("op ", op.name, " has no baseline \"", name, "\"; it has ", known);
}

// One line of the table to come, checked before anything is timed.
struct Task {
  const Op* op;
  Shape shape;
  DType dtype;
  std::optional<Baseline> baseline;
};

std::vector<Task> tasks_of(const Options& options, DType dtype, Device device) {
  std::vector<std::string> names = options.ops;
  if (names.empty()) {
    for (const Op& op : ops()) {
      if (dtype == DType::fp32 || !op.fp32_only) names.push_back(op.name);
    }
  }
  ISOBAR_CHECK(options.shapes.empty() || options.shapes.size() == options.ops.size(), "there are ",
               options.shapes.size(), " --shape for ", options.ops.size(), " --op; give one an op, or none");
  const std::int64_t batch = device.kind == DeviceKind::cuda ? 16 : 1;
  std::vector<Task> tasks;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Op& op = find_op(names[i]);
    ISOBAR_CHECK(dtype == DType::fp32 || !op.fp32_only, "op ", op.name, " has no dtype ", name_of(dtype),
                 "; it has fp32");
    tasks.push_back({.op = &op,
                     .shape = options.shapes.empty() ? op.base_shape(batch) : parse_shape(op, options.shapes[i]),
                     .dtype = dtype,
                     .baseline = find_baseline(op, options.baseline)});
  }
  return tasks;
}

Result time_task(const Task& task, Device device, const Peaks& peaks, Stopwatch& stopwatch) {
  Memory memory(device);
  const Problem problem = {memory, task.dtype, task.shape};
  const Call call = task.op->prepare(problem);
  Result result = {.op = task.op->name,
                   .shape = to_text(task.shape),
                   .dtype = name_of(task.dtype),
                   .device = name_of(device.kind),
                   .seconds = stopwatch.median(call.run),
                   .cost = call.cost,
                   .floor_seconds = call.cost.floor_seconds(peaks.bandwidth, peaks.flops),
                   .baseline = {},
                   .baseline_seconds = 0};
  if (task.baseline) {
    result.baseline = task.baseline->name;
    result.baseline_seconds = stopwatch.median(task.baseline->prepare(problem, call.cost));
  }
  return result;
}

void print_json(const Result& r) {
  nlohmann::ordered_json line = {{"op", r.op},
                                 {"shape", r.shape},
                                 {"dtype", r.dtype},
                                 {"device", r.device},
                                 {"microseconds", r.seconds * 1e6},
                                 {"gbytes_per_second", r.cost.bytes / r.seconds * 1e-9},
                                 {"tflops", r.cost.flops / r.seconds * 1e-12},
                                 {"percent_of_floor", 100 * r.floor_seconds / r.seconds},
                                 {"baseline", nullptr},
                                 {"ratio_to_baseline", nullptr}};
  if (!r.baseline.empty()) {
    line["baseline"] = r.baseline;
    line["ratio_to_baseline"] = r.seconds / r.baseline_seconds;
  }
  std::cout << line.dump() << std::endl;
}

void print_header(const Peaks& peaks, Device device) {
  std::printf("peaks measured now on %s: copy %.1f GB/s, %s %.3f TFLOP/s\n", name_of(device.kind),
              peaks.bandwidth * 1e-9, peaks.flops_source, peaks.flops * 1e-12);
  std::printf("%-18s %-24s %-5s %12s %9s %9s %10s  %s\n", "op", "shape", "dtype", "us", "GB/s", "TFLOP/s", "% of floor",
              "time / baseline");
}

void print_row(const Result& r) {
  std::printf("%-18s %-24s %-5s %12.1f %9.2f %9.4f %10.1f  ", r.op.c_str(), r.shape.c_str(), r.dtype.c_str(),
              r.seconds * 1e6, r.cost.bytes / r.seconds * 1e-9, r.cost.flops / r.seconds * 1e-12,
              100 * r.floor_seconds / r.seconds);
  if (r.baseline.empty()) {
    std::printf("-\n");
  } else {
    std::printf("%.2f of %s\n", r.seconds / r.baseline_seconds, r.baseline.c_str());
  }
  std::fflush(stdout);
}

void print_list() {
  for (const Op& op : ops()) {
    std::string baselines;
    for (const Baseline& baseline : op.baselines) baselines += (baselines.empty() ? "" : ", ") + baseline.name;
    std::printf("%-18s shape: %s, like %s; baselines: %s\n", op.name.c_str(), op.dims.c_str(),
                to_text(op.base_shape(1)).c_str(), baselines.c_str());
  }
}

void run(const Options& options) {
  if (options.list) return print_list();
  const Device device = parse_device(options.device);
  const std::vector<Task> tasks = tasks_of(options, parse_dtype(options.dtype), device);
  require_device(device);
  if (options.threads > 0) omp_set_num_threads(options.threads);

  Stopwatch stopwatch(device, options.seconds);
  const Peaks peaks = measure_peaks(device, tasks[0].dtype, stopwatch);
  if (!options.json) print_header(peaks, device);
  for (const Task& task : tasks) {
    const Result result = time_task(task, device, peaks, stopwatch);
    options.json ? print_json(result) : print_row(result);
  }
}

}  // namespace
}  // namespace isobar::bench

int main(int argc, char** argv) {
  isobar::bench::Options options;
  CLI::App app("Times isobar's kernels and compares them with what the device can do.", "isobar-bench");
  app.add_option("--op", options.ops, "What to time; repeatable; default: every op");
  app.add_option("--shape", options.shapes,
                 "Sizes like 4050x384, one an op; default: the base ViT's, batch 1 (GPU: 16)");
  app.add_option("--dtype", options.dtype, "fp32, bf16 or fp16")->capture_default_str();
  app.add_option("--device", options.device, "cpu or cuda")->capture_default_str();
  app.add_option("--baseline", options.baseline, "Also time this and print the ratio: memcpy, and what --list names");
  app.add_option("--threads", options.threads, "CPU threads; default: all")->check(CLI::PositiveNumber);
  app.add_option("--seconds", options.seconds, "Time to spend on each measurement")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag("--json", options.json, "One JSON object a line instead of a table");
  app.add_flag("--list", options.list, "List the ops, what their shapes mean, and their baselines");
  try {
    app.parse(argc, argv);
    isobar::bench::run(options);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const std::bad_alloc&) {
    std::cerr << "isobar-bench: there is not enough memory for this shape\n";
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "isobar-bench: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
