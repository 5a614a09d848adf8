// isobar-bench: times kernels and says how far they are from what the device can do. The floor of a kernel is its cost
// model (kernels/*.h) over the best that was measured in the same run: of a copy, of plain arithmetic, and of kernels.
// With --ladder it shows kernels that were written several times, from naive to fast (bench/ladder/ladder.h).
#include <omp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/finite_numbers.h"
#include "bench/against.h"
#include "bench/ladder/show.h"
#include "bench/machine.h"
#include "bench/ops.h"
#include "bench/peaks.h"
#include "kernels/common/check.h"
#include "kernels/cuda/timing.h"

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
  std::string against;  // an older isobar-bench, or a file of an earlier run's JSON lines; empty: none
  int threads = 0;
  double seconds = 0.5;
  bool json = false;
  bool list = false;
  std::vector<std::string> ladders;  // --ladder; empty: all of them, where it was given
  double mean = 0;                   // of x in the ladder of layer norm
};

struct Result {
  std::string op, dims, shape, dtype, device;
  Timing timing;
  Cost cost;
  std::string baseline;
  Timing baseline_timing = {};
  std::optional<double> old_seconds = std::nullopt;  // of --against, the least

  // A median says nothing where the machine does something else: then the least of the calls is judged.
  bool is_noisy() const { return is_noisy(timing) || (!baseline.empty() && is_noisy(baseline_timing)); }
  double judged(const Timing& t) const { return is_noisy() ? t.min : t.median; }
  double percent_of_floor(const Peaks& peaks) const {
    return 100 * cost.floor_seconds(peaks.bandwidth, peaks.flops) / judged(timing);
  }
  double ratio_to_baseline() const { return judged(timing) / judged(baseline_timing); }
  double ratio_to_old() const { return timing.min / *old_seconds; }

 private:
  static bool is_noisy(const Timing& t) { return t.median > 1.25 * t.min; }
};

// A kernel that moved or computed more a second than was thought possible raises the peak: no share is above 100 %.
void raise(Peaks& peaks, const Result& r) {
  if (r.cost.bytes / r.timing.min > peaks.bandwidth) {
    peaks.bandwidth = r.cost.bytes / r.timing.min;
    peaks.bandwidth_source = r.op;
  }
  if (r.cost.flops / r.timing.min > peaks.flops) {
    peaks.flops = r.cost.flops / r.timing.min;
    peaks.flops_source = r.op;
  }
}

// Why a result should not be believed as it is; empty where nothing is known against it.
std::string doubt_about(const Result& r) {
  if (!r.is_noisy()) return {};
  return "noisy (the median is more than 1.25 times the minimum): judged by the minimum; does the machine do something "
         "else?";
}

// Of a file that `--json` has written: the least seconds of each op, shape, dtype and device.
class OldResults {
 public:
  explicit OldResults(const std::string& file) : file_(file) {
    if (file.empty()) return;
    std::ifstream lines(file);
    ISOBAR_CHECK(lines, "--against: ", file, " cannot be read");
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      ISOBAR_CHECK(json.is_object() && json.contains("op") && json.value("microseconds_min", 0.0) > 0,
                   "--against: ", file, " is not what isobar-bench --json writes");
      const double seconds = json["microseconds_min"].get<double>() * 1e-6;
      const auto [found, is_new] = least_.try_emplace(
          key(json.value("op", ""), json.value("shape", ""), json.value("dtype", ""), json.value("device", "")),
          seconds);
      if (!is_new) found->second = std::min(found->second, seconds);
    }
  }

  // Error where the file does not speak of it.
  std::optional<double> of(const Result& r) const {
    if (file_.empty()) return std::nullopt;
    const auto found = least_.find(key(r.op, r.shape, r.dtype, r.device));
    ISOBAR_CHECK(found != least_.end(), "--against: ", file_, " has no ", r.op, ' ', r.shape, ' ', r.dtype, " on ",
                 r.device);
    return found->second;
  }

 private:
  static std::string key(const std::string& op, const std::string& shape, const std::string& dtype,
                         const std::string& device) {
    return concat(op, ' ', shape, ' ', dtype, ' ', device);
  }

  std::string file_;
  std::map<std::string, double> least_;
};

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

// "4050x384" or "4050,384"; an Error names whose shape it is, and an example.
Shape parse_sizes(const std::string& text, const std::string& of, const std::string& example) {
  Shape shape;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find_first_of("x,", begin), text.size());
    const std::string number = text.substr(begin, end - begin);
    const bool is_number =
        !number.empty() && number.size() <= 15 && number.find_first_not_of("0123456789") == std::string::npos;
    ISOBAR_CHECK(is_number && std::stoll(number) > 0, "the shape \"", text, "\" of ", of,
                 " is not a list of positive numbers like ", example);
    shape.push_back(std::stoll(number));
    begin = end + 1;
  }
  return shape;
}

Shape parse_shape(const Op& op, const std::string& text) {
  const Shape example = op.base_shape(1);
  Shape shape = parse_sizes(text, "op " + op.name, to_text(example));
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

Result time_task(const Task& task, Device device, Stopwatch& stopwatch) {
  Memory memory(device);
  const Problem problem = {memory, task.dtype, task.shape};
  const Call call = task.op->prepare(problem);
  Result result = {.op = task.op->name,
                   .dims = task.op->dims,
                   .shape = to_text(task.shape),
                   .dtype = task.dtype.name(),
                   .device = name_of(device.kind),
                   .timing = stopwatch.time(call.run),
                   .cost = call.cost,
                   .baseline = {}};
  if (task.baseline) {
    result.baseline = task.baseline->name;
    result.baseline_timing = stopwatch.time(task.baseline->prepare(problem, call.cost));
  }
  return result;
}

void print_json(const Result& r, const Machine& machine, const Peaks& peaks) {
  nlohmann::ordered_json line = {{"op", r.op},
                                 {"dims", r.dims},
                                 {"shape", r.shape},
                                 {"dtype", r.dtype},
                                 {"device", r.device},
                                 {"microseconds", r.timing.median * 1e6},
                                 {"microseconds_min", r.timing.min * 1e6},
                                 {"microseconds_max", r.timing.max * 1e6},
                                 {"calls", r.timing.calls},
                                 {"judged_by", r.is_noisy() ? "minimum" : "median"},
                                 {"gbytes_per_second", r.cost.bytes / r.judged(r.timing) * 1e-9},
                                 {"tflops", r.cost.flops / r.judged(r.timing) * 1e-12},
                                 {"percent_of_floor", r.percent_of_floor(peaks)},
                                 {"baseline", nullptr},
                                 {"ratio_to_baseline", nullptr},
                                 {"ratio_to_old", nullptr},
                                 {"warning", nullptr},
                                 {"cpu", machine.cpu},
                                 {"instruction_set", machine.instruction_set},
                                 {"threads", machine.threads},
                                 {"commit", machine.commit},
                                 {"peak_gbytes_per_second", peaks.bandwidth * 1e-9},
                                 {"peak_gbytes_per_second_source", peaks.bandwidth_source},
                                 {"peak_tflops", peaks.flops * 1e-12},
                                 {"peak_tflops_source", peaks.flops_source}};
  if (!r.baseline.empty()) {
    line["baseline"] = r.baseline;
    line["ratio_to_baseline"] = r.ratio_to_baseline();
  }
  if (r.old_seconds) line["ratio_to_old"] = r.ratio_to_old();
  if (const std::string doubt = doubt_about(r); !doubt.empty()) line["warning"] = doubt;
  std::cout << line.dump() << std::endl;
}

void print_header(const Machine& machine, const Peaks& peaks, Device device) {
  std::printf("%s, %s, %d threads, commit %s\n", machine.cpu.c_str(), machine.instruction_set.c_str(), machine.threads,
              machine.commit.c_str());
  std::printf("the best measured now on %s: %s %.1f GB/s, %s %.3f TFLOP/s\n", name_of(device.kind),
              peaks.bandwidth_source.c_str(), peaks.bandwidth * 1e-9, peaks.flops_source.c_str(), peaks.flops * 1e-12);
  std::printf("%-28s %-24s %-5s %12s %12s %12s %9s %9s %10s  %s\n", "op", "shape", "dtype", "us", "min", "max", "GB/s",
              "TFLOP/s", "% of floor", "time / baseline, / old");
}

void print_row(const Result& r, const Peaks& peaks) {
  std::printf("%-28s %-24s %-5s %12.1f %12.1f %12.1f %9.2f %9.4f %10.1f  ", r.op.c_str(), r.shape.c_str(),
              r.dtype.c_str(), r.timing.median * 1e6, r.timing.min * 1e6, r.timing.max * 1e6,
              r.cost.bytes / r.judged(r.timing) * 1e-9, r.cost.flops / r.judged(r.timing) * 1e-12,
              r.percent_of_floor(peaks));
  if (r.baseline.empty()) {
    std::printf("-");
  } else {
    std::printf("%.2f of %s", r.ratio_to_baseline(), r.baseline.c_str());
  }
  if (r.old_seconds) std::printf(", %.2f of the old minimum", r.ratio_to_old());
  std::printf("\n");
}

void print_list() {
  for (const Op& op : ops()) {
    std::string baselines;
    for (const Baseline& baseline : op.baselines) baselines += (baselines.empty() ? "" : ", ") + baseline.name;
    std::printf("%-28s shape: %s, like %s; baselines: %s\n", op.name.c_str(), op.dims.c_str(),
                to_text(op.base_shape(1)).c_str(), baselines.c_str());
  }
}

// Returns whether all rungs are right.
bool run_ladders(const Options& options) {
  LadderOptions ladder;
  ladder.mean = options.mean, ladder.seconds = options.seconds;
  for (const std::string& name : options.ladders) {
    if (!name.empty()) ladder.subjects.push_back(name);
  }
  ISOBAR_CHECK(options.shapes.size() <= 1, "--ladder takes one --shape");
  if (!options.shapes.empty()) ladder.shape = parse_sizes(options.shapes.front(), "the ladder", "4050x384");
  if (options.threads > 0) omp_set_num_threads(options.threads);
  return show_ladders(ladder);
}

void print_json(const Comparison& c, const Machine& machine) {
  std::cout << nlohmann::ordered_json{{"op", c.timed.op},
                                      {"shape", c.timed.shape},
                                      {"dtype", c.timed.dtype},
                                      {"device", c.timed.device},
                                      {"microseconds_min", c.seconds * 1e6},
                                      {"old_microseconds_min", c.old_seconds * 1e6},
                                      {"ratio_to_old", c.ratio.median},
                                      {"ratio_to_old_low", c.ratio.low},
                                      {"ratio_to_old_high", c.ratio.high},
                                      {"rounds", kRounds},
                                      {"verdict", name_of(verdict_of(c.ratio))},
                                      {"cpu", machine.cpu},
                                      {"instruction_set", machine.instruction_set},
                                      {"threads", machine.threads},
                                      {"commit", machine.commit}}
                   .dump()
            << std::endl;
}

// This program beside an older one, in turn.
void compare_programs(const Options& options, const std::vector<Task>& tasks) {
  ISOBAR_CHECK(options.baseline.empty(), "--against a program times no --baseline");
  std::vector<Timed> timed;
  for (const Task& task : tasks)
    timed.push_back({task.op->name, to_text(task.shape), task.dtype.name(), options.device});
  const std::vector<Comparison> compared = compare(options.against, timed, options.seconds, options.threads);
  const Machine machine = this_machine();
  if (!options.json) {
    std::printf("%s, %s, %d threads; %d rounds in turn, least times\n", machine.cpu.c_str(),
                machine.instruction_set.c_str(), machine.threads, kRounds);
    std::printf("%-28s %-24s %-5s %12s %12s %9s %14s\n", "op", "shape", "dtype", "us", "old us", "us / old", "between");
  }
  for (const Comparison& c : compared) {
    if (options.json)
      print_json(c, machine);
    else
      std::printf("%-28s %-24s %-5s %12.1f %12.1f %9.3f %6.3f, %6.3f  %s\n", c.timed.op.c_str(), c.timed.shape.c_str(),
                  c.timed.dtype.c_str(), c.seconds * 1e6, c.old_seconds * 1e6, c.ratio.median, c.ratio.low,
                  c.ratio.high, name_of(verdict_of(c.ratio)));
  }
}

void run(const Options& options) {
  if (options.list) return print_list();
  const Device device = parse_device(options.device);
  const Arithmetic dtype = parse_dtype(options.dtype, device);
  const std::vector<Task> tasks = tasks_of(options, dtype, device);
  const bool is_against_program = is_program(options.against);
  const OldResults old(is_against_program ? "" : options.against);
  require_device(device);
  if (options.threads > 0) omp_set_num_threads(options.threads);
  if (is_against_program) return compare_programs(options, tasks);

  const cuda::AlgorithmTiming timing(device);  // as a run does: a library's fastest algorithm
  Stopwatch stopwatch(device, options.seconds, /*brief=*/options.small);
  const Machine machine = this_machine();
  Peaks peaks = measure_peaks(device, dtype, stopwatch, options.small);
  std::vector<Result> results;
  for (const Task& task : tasks) {
    Result result = time_task(task, device, stopwatch);
    result.old_seconds = old.of(result);
    raise(peaks, result);
    // As they come, with the peaks that are known then. The table waits for all of them.
    if (options.json) print_json(result, machine, peaks);
    if (const std::string doubt = doubt_about(result); !doubt.empty())
      std::cerr << "isobar-bench: warning: " << result.op << ' ' << result.shape << " is " << doubt << std::endl;
    results.push_back(std::move(result));
  }
  if (options.json) return;
  print_header(machine, peaks, device);
  for (const Result& result : results) print_row(result, peaks);
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
  app.add_option("--against", options.against,
                 "An older isobar-bench: time both in turn and say which is faster; or JSON lines of an earlier run of "
                 "the same ops and shapes: also print the ratio of the minima");
  app.add_option("--threads", options.threads, "CPU threads; default: all")->check(CLI::PositiveNumber);
  app.add_option("--seconds", options.seconds, "Time to spend on each measurement")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag("--json", options.json, "One JSON object a line instead of a table");
  app.add_flag("--list", options.list, "List the ops, what their shapes mean, and their baselines");
  const auto* const ladder =
      app.add_option("--ladder", options.ladders,
                     "Show a kernel from naive to fast: layernorm (--shape ROWSxCOLUMNS), product (MxNxK), "
                     "attention (HEADSxTOKENS) or conv (SAMPLESxSIDExINxOUT); several names, or none for all of them")
          ->expected(0, 4);
  app.add_option("--mean", options.mean, "With --ladder layernorm: the mean of x, whose elements lie within 1 of it")
      ->capture_default_str();
  try {
    isobar::require_finite_numbers(app);
    app.parse(argc, argv);
    if (ladder->count() > 0) return isobar::bench::run_ladders(options) ? 0 : 1;
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
