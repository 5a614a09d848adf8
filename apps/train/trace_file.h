// A trace of some iterations (kernels/common/trace.h): as a file that PyTorch's plugin of TensorBoard and browsers
// open, and as a table by kernel.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/train/log_lines.h"
#include "kernels/common/device.h"
#include "kernels/common/trace.h"

namespace isobar {

struct TraceOptions {
  std::filesystem::path folder;
  std::int64_t first = 0, end = 0;  // iterations, counted from 0

  bool has(std::int64_t iteration) const { return iteration >= first && iteration < end; }
};

// What the plugin finds iterations by; their number follows.
inline constexpr const char* kStepInTrace = "ProfilerStep#";

// Chrome's trace format, which ui.perfetto.dev and chrome://tracing open: an object with "traceEvents", the names of
// the process and the thread ("ph": "M"), then complete events ("ph": "X") with times in microseconds. One that begins
// within another ends within it, to the nanosecond. "args" of a kernel or a message: bytes and operations of its cost
// model, and as PyTorch's profiler has them with record_shapes "Input Dims" and "Input type", one entry an operand. A
// kernel's operands are the tensors that it reads and those that it writes, workspaces included.
std::string chrome_trace(const std::vector<TraceEvent>& events, Device device, std::int64_t process);

// Writes FOLDER/HOST_PROCESS.TIME.pt.trace.json, the name that PyTorch's plugin looks for; returns it.
std::filesystem::path write_trace(const std::filesystem::path& folder, const std::vector<TraceEvent>& events,
                                  Device device);

// Calls, milliseconds, part of the iterations, GB/s and GFLOP/s of each kernel and message; the longest first.
Lines kernel_table(const std::vector<TraceEvent>& events);

}  // namespace isobar
