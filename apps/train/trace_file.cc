#include "apps/train/trace_file.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/files/atomic_file.h"
#include "kernels/common/check.h"

namespace isobar {

using nlohmann::ordered_json;

namespace {

constexpr double kNano = 1e9, kNanoPerMicro = 1e3, kMilli = 1e3, kGiga = 1e9, kPercent = 100;

const char* category_of(TraceEvent::Kind kind) {
  return kind == TraceEvent::Kind::range ? "user_annotation" : "cpu_op";
}

std::string this_host() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "host";
  return name.data();
}

struct KernelTime {
  std::int64_t calls = 0;
  double seconds = 0;
  Cost cost = {};
};

bool is_step(const TraceEvent& event) {
  return event.name.starts_with(kStepInTrace);
}

// As PyTorch's profiler names them.
const char* name_in_torch(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return "double";
    case DType::bf16:
      return "c10::BFloat16";
    case DType::fp16:
      return "c10::Half";
    case DType::i32:
      return "int";
    default:
      return "float";
  }
}

ordered_json arguments_of(const TraceEvent& event) {
  ordered_json shapes = ordered_json::array(), types = ordered_json::array();
  for (const CallOperand& operand : event.operands) {
    shapes.push_back(operand.shape);
    types.push_back(name_in_torch(operand.dtype));
  }
  return {{"bytes", event.cost.bytes}, {"flops", event.cost.flops}, {"Input Dims", shapes}, {"Input type", types}};
}

// A name that viewers show for a process or a thread.
ordered_json name_entry(const char* of, const std::string& name, std::int64_t process) {
  return {{"ph", "M"}, {"name", of}, {"pid", process}, {"tid", process}, {"args", {{"name", name}}}};
}

}  // namespace

std::string chrome_trace(const std::vector<TraceEvent>& events, Device device, std::int64_t process) {
  ordered_json list = ordered_json::array();
  list.push_back(name_entry("process_name", "isobar, rank 0", process));
  list.push_back(name_entry("thread_name", concat("steps on ", name_of(device.kind)), process));
  for (const TraceEvent& event : events) {
    // Both ends are rounded, so that no event reaches beyond the one around it.
    const double begin = std::round(event.begin * kNano), end = std::round((event.begin + event.seconds) * kNano);
    ordered_json entry{{"ph", "X"},
                       {"cat", category_of(event.kind)},
                       {"name", event.name},
                       {"pid", process},
                       {"tid", process},
                       {"ts", begin / kNanoPerMicro},
                       {"dur", (end - begin) / kNanoPerMicro}};
    if (event.kind != TraceEvent::Kind::range) entry["args"] = arguments_of(event);
    list.push_back(std::move(entry));
  }
  return ordered_json{{"schemaVersion", 1},
                      {"deviceProperties", ordered_json::array()},
                      {"device", name_of(device.kind)},
                      {"traceEvents", std::move(list)}}
      .dump();
}

std::filesystem::path write_trace(const std::filesystem::path& folder, const std::vector<TraceEvent>& events,
                                  Device device) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  ISOBAR_CHECK(!error, folder.string(), ": cannot be made: ", error.message());
  const auto process = static_cast<std::int64_t>(getpid());
  const std::int64_t time = std::chrono::system_clock::now().time_since_epoch().count();
  const std::filesystem::path file = folder / concat(this_host(), "_", process, ".", time, ".pt.trace.json");
  write_file_atomically(file, chrome_trace(events, device, process));
  return file;
}

Lines kernel_table(const std::vector<TraceEvent>& events) {
  std::map<std::string, KernelTime> times;
  double steps = 0;
  for (const TraceEvent& event : events) {
    if (is_step(event)) steps += event.seconds;
    if (event.kind == TraceEvent::Kind::range) continue;
    KernelTime& time = times[event.name];
    ++time.calls;
    time.seconds += event.seconds;
    time.cost.bytes += event.cost.bytes;
    time.cost.flops += event.cost.flops;
  }
  std::vector<std::pair<std::string, KernelTime>> sorted(times.begin(), times.end());
  std::ranges::stable_sort(sorted, std::greater(), [](const auto& entry) { return entry.second.seconds; });
  std::array<char, 160> line{};
  Lines lines;
  const auto print = [&](const char* format, auto... values) {
    std::snprintf(line.data(), line.size(), format, values...);
    lines.emplace_back(line.data());
  };
  print("%-32s %8s %12s %7s %9s %9s", "kernel", "calls", "ms", "%", "GB/s", "GFLOP/s");
  for (const auto& [name, time] : sorted) {
    const double seconds = std::max(time.seconds, 1e-9);
    print("%-32s %8lld %12.3f %7.1f %9.1f %9.1f", name.c_str(), static_cast<long long>(time.calls),
          time.seconds * kMilli, steps > 0 ? kPercent * time.seconds / steps : 0.0, time.cost.bytes / seconds / kGiga,
          time.cost.flops / seconds / kGiga);
  }
  return lines;
}

}  // namespace isobar
