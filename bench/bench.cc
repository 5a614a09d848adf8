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

#include "apps/finite_numbers.h"
#include "bench/machine.h"
#include "bench/ops.h"
#include "bench/peaks.h"
#include "kernels/common/check.h"

namespace isobar::bench {
namespace {

struct Options {
  std::vector<std::string> ops;     // empty: all
  std::vector<std::string> shapes;  // one an op, or empty: the base ViT's
  std::string sweep;                // which sizes take which values; empty: none
  bool small = false;               // small shapes instead of the base ViT's
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
  Timing timing;
  Cost cost;
  double floor_seconds;
  std::string baseline;
  Timing baseline_timing;

  double percent_of_floor() const { return 100 * floor_seconds / timing.median; }
  double ratio_to_baseline() const { return timing.median / baseline_timing.median; }
};

// Why a result should not be believed; empty where nothing is known against it.
std::string doubt_about(const Result& r) {
  std::string doubt;
  if (r.percent_of_floor() > 100)
    doubt = "quicker than its floor: the peaks are too low, or operands stay in the caches";
  if (r.timing.median > 1.25 * r.timing.min)
    doubt += std::string(doubt.empty() ? "" : "; ") +
             "noisy (the median is more than 1.25 times the minimum): does the machine do something else?";
  return doubt;
}

const Op& find_op(const std::string& name) {
  std::string known;
  for (const Op& op : ops()) {
    if (op.name == name) return op;
    known += (known.empty() ? "" : ", ") + op.name;
  }
  throw_error("there is no op \"", name, "\"; there are ", known);
}

Arithmetic parse_dtype(const std::string& name, Device device) {
  if (name == "tf32") {
    ISOBAR_CHECK(device.kind == DeviceKind::cuda, "the dtype tf32 is for GPUs: --device cuda");
    return {.dtype = DType::fp32, .tf32 = true};
  }
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    if (name == name_of(dtype)) return {dtype};
  }
  throw_error("there is no dtype \"", name, "\"; there are fp32, tf32, bf16, fp16");
}

bool has(const Op& op, const Arithmetic& dtype) {
  return dtype.tf32 ? op.has_tf32 : dtype == DType::fp32 || !op.fp32_only;
}

Device parse_device(const std::string& name) {
  if (name == "cpu") return {DeviceKind::cpu};
  if (name == "cuda") return {DeviceKind::cuda};
  throw_error("there is no device \"", name, "\"; there are cpu, cuda");
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
               example.size() == 1 ? " number (" : " numbers (", op.dims, "), like ", to_text(example));
  return shape;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Sizes of a shape, by name, that take several values together.
struct Sweep {
  std::vector<std::string> dims;
  std::vector<std::int64_t> values;
};

// "m=64:4096", doubling, or "q_tokens,kv_tokens=100,200,400".
Sweep parse_sweep(const std::string& text) {
  const auto number = [&](const std::string& digits) {
    ISOBAR_CHECK(!digits.empty() && digits.size() <= 15 &&
                     digits.find_first_not_of("0123456789") == std::string::npos && std::stoll(digits) > 0,
                 "the sweep \"", text, "\" is none; it looks like m=64:4096 or q_tokens,kv_tokens=100,200,400");
    return std::stoll(digits);
  };
  const std::size_t equals = std::min(text.find('='), text.size());
  const std::string values = text.substr(std::min(equals + 1, text.size()));
  Sweep sweep = {split(text.substr(0, equals), ','), {}};
  if (const std::size_t colon = values.find(':'); colon != std::string::npos) {
    const std::int64_t last = number(values.substr(colon + 1));
    for (std::int64_t value = number(values.substr(0, colon)); value <= last; value *= 2) sweep.values.push_back(value);
  } else {
    for (const std::string& value : split(values, ',')) sweep.values.push_back(number(value));
  }
  ISOBAR_CHECK(!sweep.values.empty(), "the sweep \"", text, "\" ends before it begins");
  return sweep;
}

// The shapes of one op: one, or one a value of the sweep.
std::vector<Shape> shapes_of(const Op& op, const Shape& shape, const std::string& sweep_text) {
  if (sweep_text.empty()) return {shape};
  const Sweep sweep = parse_sweep(sweep_text);
  const std::vector<std::string> dims = split(op.dims, ' ');
  std::vector<Shape> shapes(sweep.values.size(), shape);
  for (const std::string& name : sweep.dims) {
    const auto found = std::find(dims.begin(), dims.end(), name);
    ISOBAR_CHECK(found != dims.end(), "op ", op.name, " has no size \"", name, "\"; it has ", op.dims);
    for (std::size_t i = 0; i < shapes.size(); ++i)
      shapes[i][static_cast<std::size_t>(found - dims.begin())] = sweep.values[i];
  }
  return shapes;
}

// The named baseline of an op; none where the name is empty.
std::optional<Baseline> find_baseline(const Op& op, const std::string& name) {
  if (name.empty()) return std::nullopt;
  std::string known;
  for (const Baseline& baseline : op.baselines) {
    if (baseline.name == name) return baseline;
    known += (known.empty() ? "" : ", ") + baseline.name;
  }
  throw_error("op ", op.name, " has no baseline \"", name, "\"; it has ", known);
}

// One line of the table to come, checked before anything is timed.
struct Task {
  const Op* op;
  Shape shape;
  Arithmetic dtype;
  std::optional<Baseline> baseline;
};

std::vector<Task> tasks_of(const Options& options, const Arithmetic& dtype, Device device) {
  std::vector<std::string> names = options.ops;
  if (names.empty()) {
    for (const Op& op : ops()) {
      if (has(op, dtype)) names.push_back(op.name);
    }
  }
  ISOBAR_CHECK(options.shapes.empty() || options.shapes.size() == options.ops.size(), "there are ",
               options.shapes.size(), " --shape for ", options.ops.size(), " --op; give one an op, or none");
  const std::int64_t batch = device.kind == DeviceKind::cuda ? 16 : 1;
  std::vector<Task> tasks;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Op& op = find_op(names[i]);
    ISOBAR_CHECK(has(op, dtype), "op ", op.name, " has no dtype ", dtype.name(), "; it has fp32",
                 op.fp32_only ? "" : ", bf16, fp16");
    const Shape shape = !options.shapes.empty() ? parse_shape(op, options.shapes[i])
                        : options.small         ? op.small_shape
                                                : op.base_shape(batch);
    for (const Shape& one : shapes_of(op, shape, options.sweep))
      tasks.push_back({.op = &op, .shape = one, .dtype = dtype, .baseline = find_baseline(op, options.baseline)});
  }
  return tasks;
}

Result time_task(const Task& task, Device device, const Peaks& peaks, Stopwatch& stopwatch) {
  Memory memory(device);
  const Problem problem = {memory, task.dtype, task.shape};
  const Call call = task.op->prepare(problem);
  Result result = {.op = task.op->name,
                   .shape = to_text(task.shape),
                   .dtype = task.dtype.name(),
                   .device = name_of(device.kind),
                   .timing = stopwatch.time(call.run),
                   .cost = call.cost,
                   .floor_seconds = call.cost.floor_seconds(peaks.bandwidth, peaks.flops),
                   .baseline = {},
                   .baseline_timing = {}};
  if (task.baseline) {
    result.baseline = task.baseline->name;
    result.baseline_timing = stopwatch.time(task.baseline->prepare(problem, call.cost));
  }
  return result;
}

void print_json(const Result& r, const Machine& machine, const Peaks& peaks) {
  nlohmann::ordered_json line = {{"op", r.op},
                                 {"shape", r.shape},
                                 {"dtype", r.dtype},
                                 {"device", r.device},
                                 {"microseconds", r.timing.median * 1e6},
                                 {"microseconds_min", r.timing.min * 1e6},
                                 {"microseconds_max", r.timing.max * 1e6},
                                 {"calls", r.timing.calls},
                                 {"gbytes_per_second", r.cost.bytes / r.timing.median * 1e-9},
                                 {"tflops", r.cost.flops / r.timing.median * 1e-12},
                                 {"percent_of_floor", r.percent_of_floor()},
                                 {"baseline", nullptr},
                                 {"ratio_to_baseline", nullptr},
                                 {"warning", nullptr},
                                 {"cpu", machine.cpu},
                                 {"instruction_set", machine.instruction_set},
                                 {"threads", machine.threads},
                                 {"commit", machine.commit},
                                 {"peak_gbytes_per_second", peaks.bandwidth * 1e-9},
                                 {"peak_tflops", peaks.flops * 1e-12},
                                 {"peak_tflops_source", peaks.flops_source}};
  if (!r.baseline.empty()) {
    line["baseline"] = r.baseline;
    line["ratio_to_baseline"] = r.ratio_to_baseline();
  }
  if (const std::string doubt = doubt_about(r); !doubt.empty()) line["warning"] = doubt;
  std::cout << line.dump() << std::endl;
}

void print_header(const Machine& machine, const Peaks& peaks, Device device) {
  std::printf("%s, %s, %d threads, commit %s\n", machine.cpu.c_str(), machine.instruction_set.c_str(), machine.threads,
              machine.commit.c_str());
  std::printf("peaks measured now on %s: copy %.1f GB/s, %s %.3f TFLOP/s\n", name_of(device.kind),
              peaks.bandwidth * 1e-9, peaks.flops_source, peaks.flops * 1e-12);
  std::printf("%-18s %-24s %-5s %12s %12s %12s %9s %9s %10s  %s\n", "op", "shape", "dtype", "us", "min", "max", "GB/s",
              "TFLOP/s", "% of floor", "time / baseline");
}

void print_row(const Result& r) {
  std::printf("%-18s %-24s %-5s %12.1f %12.1f %12.1f %9.2f %9.4f %10.1f  ", r.op.c_str(), r.shape.c_str(),
              r.dtype.c_str(), r.timing.median * 1e6, r.timing.min * 1e6, r.timing.max * 1e6,
              r.cost.bytes / r.timing.median * 1e-9, r.cost.flops / r.timing.median * 1e-12, r.percent_of_floor());
  if (r.baseline.empty()) {
    std::printf("-\n");
  } else {
    std::printf("%.2f of %s\n", r.ratio_to_baseline(), r.baseline.c_str());
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
  const Arithmetic dtype = parse_dtype(options.dtype, device);
  const std::vector<Task> tasks = tasks_of(options, dtype, device);
  require_device(device);
  if (options.threads > 0) omp_set_num_threads(options.threads);

  Stopwatch stopwatch(device, options.seconds, /*brief=*/options.small);
  const Machine machine = this_machine();
  const Peaks peaks = measure_peaks(device, dtype, stopwatch, options.small);
  if (!options.json) print_header(machine, peaks, device);
  for (const Task& task : tasks) {
    const Result result = time_task(task, device, peaks, stopwatch);
    options.json ? print_json(result, machine, peaks) : print_row(result);
    if (const std::string doubt = doubt_about(result); !doubt.empty())
      std::cerr << "isobar-bench: warning: " << result.op << ' ' << result.shape << " is " << doubt << std::endl;
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
  app.add_option("--sweep", options.sweep,
                 "Several shapes an op: sizes by name and their values, like m=64:4096 (doubling) or "
                 "q_tokens,kv_tokens=100,200,400");
  app.add_flag("--small", options.small, "Small, ragged shapes instead of the base ViT's: whether everything runs");
  app.add_option("--dtype", options.dtype, "fp32, bf16, fp16, or tf32 on a GPU")->capture_default_str();
  app.add_option("--device", options.device, "cpu or cuda")->capture_default_str();
  app.add_option("--baseline", options.baseline, "Also time this and print the ratio: memcpy, and what --list names");
  app.add_option("--threads", options.threads, "CPU threads; default: all")->check(CLI::PositiveNumber);
  app.add_option("--seconds", options.seconds, "Time to spend on each measurement")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag("--json", options.json, "One JSON object a line instead of a table");
  app.add_flag("--list", options.list, "List the ops, what their shapes mean, and their baselines");
  try {
    isobar::want_finite_numbers(app);
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
