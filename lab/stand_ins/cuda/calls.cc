// The begin and end of every call of the virtual GPU: counts, failures on demand, persistent errors.
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>

#include <cuda_profiler_api.h>
#include <nvtx3/nvToolsExt.h>
#include "lab/stand_ins/cuda/driver.h"

namespace isobar::virtual_gpu {
namespace {

constexpr std::array kCountNames{"launches",    "products",        "graphs", "synchronisations",
                                 "allocations", "allocated_bytes", "copies", "copied_bytes"};
using Counts = std::array<std::size_t, kCountNames.size()>;

// Reports misuse that the program has not noticed, as in a destructor that ignores the status; and leaks.
void check_at_end();

// Returned by every call from now on.
struct Broken {
  cudaError_t code;
  std::string why;
  bool is_queried = false;  // the program has queried the sentence
};

struct Calls {
  std::mutex mutex;
  std::map<std::string, std::size_t> made;  // by function, and "any"; with "@1" for device 1
  std::map<int, Broken> broken;             // by device, or kAllDevices
  bool may_leak = false;
  Counts counts{};
  Calls() { std::atexit(check_at_end); }
  static Calls& instance() {
    static auto* calls = new Calls;
    return *calls;
  }
  Broken* broken_here() {
    for (const int device : {kAllDevices, current_device()})
      if (const auto found = broken.find(device); found != broken.end()) return &found->second;
    return nullptr;
  }
  void break_device(int device, cudaError_t code, const std::string& sentence) {
    broken.emplace(device, Broken{code, sentence});  // the first one is kept
  }
};

struct Range {
  std::string name;
  Counts before;
};
thread_local std::vector<Range> ranges;
thread_local cudaError_t error_of_thread = cudaSuccess;
thread_local std::string sentence_of_thread, answer;

void check_at_end() {
  const Calls& calls = Calls::instance();
  std::string why;
  for (const auto& [device, broken] : calls.broken)
    if (!broken.is_queried) why = broken.why;
  if (calls.broken.empty() && !calls.may_leak && number_setting("ISOBAR_VIRTUAL_GPU_MAY_LEAK", 0) == 0)
    why = leaked_memory().empty() ? leaked_handles() : leaked_memory();
  if (why.empty()) return;
  std::cerr << "virtual GPU: " << why << std::endl;
  constexpr int kMisused = 70;  // EX_SOFTWARE
  _exit(kMisused);
}

const char* generic_sentence(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorDevicesUnavailable:
      return "CUDA-capable device(s) is/are busy or unavailable";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorECCUncorrectable:
      return "uncorrectable ECC error encountered";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorNotPermitted:
      return "operation not permitted";
    default:
      return "an error of the virtual GPU";
  }
}

// What ISOBAR_VIRTUAL_GPU_FAIL defines for this call: its error, or success.
struct Failure {
  cudaError_t code = cudaSuccess;
  bool stays = false;
};

// `count`: the calls of a function, or of "any", so far; on one device if the setting names one.
Failure failure_of(const std::string& function, const std::function<std::size_t(const std::string&)>& count) {
  const char* text = setting("ISOBAR_VIRTUAL_GPU_FAIL");
  if (text == nullptr) return {};
  std::istringstream words(text);
  std::string name, number, code, on, device;
  for (std::string* word : {&name, &number, &code, &on, &device}) std::getline(words, *word, ':');
  if (name != "any" && name != function) return {};
  if (!device.empty() && device != std::to_string(current_device())) return {};
  if (number != std::to_string(count(device.empty() ? name : concat(name, '@', device)))) return {};
  if (!code.empty()) return {static_cast<cudaError_t>(std::stoi(code)), on == "on"};
  return {function.find("Malloc") != std::string::npos ? cudaErrorMemoryAllocation : cudaErrorUnknown};
}

// Functions that create no context: queries, those for a device that they name, and those of descriptors.
bool makes_context(const std::string& function) {
  static const std::set<std::string> none{
      "cudaRuntimeGetVersion", "cudaDriverGetVersion",        "cudaGetDeviceCount",      "cudaGetDevice",
      "cudaSetDevice",         "cudaGetDeviceProperties",     "cudaDeviceGetAttribute",  "cudaMemPoolSetAttribute",
      "cudaMemPoolTrimTo",     "cudaDeviceGetDefaultMemPool", "cudaDeviceCanAccessPeer", "cudaMemPoolSetAccess",
      "cudaDeviceGraphMemTrim"};
  return !none.contains(function) && (function.rfind("cublasLtMat", 0) != 0 || function == "cublasLtMatmul");
}

bool frees(const std::string& function) {
  return function.find("Free") != std::string::npos || function.find("Destroy") != std::string::npos;
}

cudaError_t note_error(cudaError_t code, const std::string& sentence) {
  error_of_thread = code;
  sentence_of_thread = sentence;
  return code;
}

void write_name(const char* function) {
  const char* file = setting("ISOBAR_VIRTUAL_GPU_CALLS");
  if (file == nullptr) return;
  static auto* out = new std::ofstream(file);
  *out << function << std::endl;
}

// The operand's known size, or else the bytes of its allocation from the operand's begin on.
std::size_t reach_of(const Operand& operand) {
  if (operand.bytes != 0) return operand.bytes;
  const SharedAllocation allocation = find_allocation(operand.data);
  const auto at = static_cast<const std::byte*>(operand.data) - allocation->address;
  return allocation->bytes - static_cast<std::size_t>(at);
}

void write_trace(const Range& range) {
  const char* file = setting("ISOBAR_VIRTUAL_GPU_TRACE");
  if (file == nullptr || range.name.rfind("step ", 0) != 0) return;
  Calls& calls = Calls::instance();
  const std::lock_guard lock(calls.mutex);
  std::ofstream out(file, std::ios::app);
  out << "{\"range\": \"" << range.name << '"';
  for (std::size_t i = 0; i < kCountNames.size(); ++i)
    out << ", \"" << kCountNames[i] << "\": " << calls.counts[i] - range.before[i];
  out << ", \"held_bytes\": " << held_memory(current_device()) << "}\n";
}

}  // namespace

const char* setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

bool computes() {
  static const bool on = number_setting("ISOBAR_VIRTUAL_GPU_COMPUTE", 1) != 0;
  return on;
}

void list_work(const Operation& operation, cudaStream_t stream) {
  const char* file = setting("ISOBAR_VIRTUAL_GPU_WORK");
  if (file == nullptr) return;
  Calls& calls = Calls::instance();
  const std::lock_guard lock(calls.mutex);
  static auto* out = new std::ofstream(file);
  *out << "{\"site\": \"" << operation.site << "\", \"name\": \"" << operation.name << "\", \"stream\": \"" << stream
       << "\", \"operands\": [";
  for (std::size_t i = 0; i < operation.operands.size(); ++i) {
    const Operand& operand = operation.operands[i];
    *out << (i == 0 ? "" : ", ") << "[\"" << operand.data << "\", " << reach_of(operand) << ']';
  }
  *out << ']' << (operation.facts.empty() ? "" : ", ") << operation.facts << '}' << std::endl;
}

std::size_t number_setting(const char* name, std::size_t otherwise) {
  const char* text = setting(name);
  if (text == nullptr) return otherwise;
  char* end = nullptr;
  const unsigned long long number = std::strtoull(text, &end, 10);
  ISOBAR_CHECK(*end == '\0' && *text >= '0' && *text <= '9', name, " is \"", text, "\", which is no whole number");
  return number;
}

std::string innermost_range() {
  return ranges.empty() ? "" : ranges.back().name;
}

std::string site() {
  std::string path;
  for (const Range& range : ranges) path += (path.empty() ? "" : " > ") + range.name;
  return path.empty() ? "no range" : path;
}

void break_context(int device, cudaError_t code, const std::string& sentence) {
  Calls& calls = Calls::instance();
  const std::lock_guard lock(calls.mutex);
  if (calls.broken_here() == nullptr) calls.break_device(device, code, sentence);
}

cudaError_t call(const char* function, const std::function<void()>& body) {
  Calls& calls = Calls::instance();
  {
    const std::lock_guard lock(calls.mutex);
    write_name(function);
    const std::string of_device = concat('@', current_device());
    const std::size_t nth = ++calls.made[function];
    ++calls.made["any"];
    ++calls.made[function + of_device];
    ++calls.made["any" + of_device];
    if (const Broken* broken = calls.broken_here()) return note_error(broken->code, broken->why);
    const Failure failure = failure_of(function, [&](const std::string& of) { return calls.made[of]; });
    if (failure.code != cudaSuccess) {
      const std::string sentence =
          concat(generic_sentence(failure.code), " (as asked for: call ", nth, " of ", function, ")");
      calls.may_leak = calls.may_leak || failure.stays || frees(function);
      if (failure.stays) calls.break_device(current_device(), failure.code, sentence);
      return note_error(failure.code, sentence);
    }
  }
  try {
    if (makes_context(function)) use_context(function);
    body();
    return cudaSuccess;
  } catch (const Refusal& refusal) {
    const std::string what = refusal.sentence.empty() ? generic_sentence(refusal.code) : refusal.sentence;
    const std::string sentence = concat(what, " (", function, " in ", site(), ")");
    if (refusal.is_misuse) break_context(kAllDevices, refusal.code, sentence);
    return note_error(refusal.code, sentence);
  } catch (const Error& error) {  // from work in a stream: break_context has been called
    const std::lock_guard lock(calls.mutex);
    const Broken* broken = calls.broken_here();
    return note_error(broken == nullptr ? cudaErrorUnknown : broken->code, error.what());
  }
}

std::string explain(cudaError_t error) {
  if (error != cudaSuccess) {
    Calls& calls = Calls::instance();
    const std::lock_guard lock(calls.mutex);
    if (Broken* broken = calls.broken_here()) broken->is_queried = true;
  }
  return sentence_of_thread.empty() || error == cudaSuccess ? generic_sentence(error) : sentence_of_thread;
}

cudaError_t last_error(bool clear) {
  const cudaError_t error = error_of_thread;
  if (clear) error_of_thread = cudaSuccess;
  return error;
}

void reset_calls() {
  Calls& calls = Calls::instance();
  const std::lock_guard lock(calls.mutex);
  calls.made.clear();
  calls.broken.clear();
  calls.may_leak = false;
  error_of_thread = cudaSuccess;
}

void count(Count what, std::size_t amount) {
  Calls& calls = Calls::instance();
  const std::lock_guard lock(calls.mutex);
  calls.counts[static_cast<std::size_t>(what)] += amount;
}

}  // namespace isobar::virtual_gpu

using namespace isobar::virtual_gpu;

cudaError_t cudaGetLastError() {
  return last_error(true);
}

const char* cudaGetErrorString(cudaError_t error) {
  answer = explain(error);
  return answer.c_str();
}

int nvtxRangePushA(const char* name) {
  Calls& calls = Calls::instance();
  const std::lock_guard lock(calls.mutex);
  ranges.push_back({name, calls.counts});
  return static_cast<int>(ranges.size()) - 1;
}

int nvtxRangePop() {
  if (ranges.empty()) return -1;
  write_trace(ranges.back());
  ranges.pop_back();
  return static_cast<int>(ranges.size());
}

cudaError_t cudaProfilerStart() {
  return call("cudaProfilerStart", [] {});
}

cudaError_t cudaProfilerStop() {
  return call("cudaProfilerStop", [] {});
}
