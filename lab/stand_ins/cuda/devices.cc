// The current device of each thread, and the devices on which it has created a context.
#include <unistd.h>

#include <atomic>
#include <bitset>
#include <cstdlib>
#include <fstream>
#include <mutex>

#include "lab/stand_ins/cuda/driver.h"

namespace isobar::virtual_gpu {
namespace {

constexpr std::size_t kMaxDevices = 16;

struct Uses {
  std::mutex mutex;
  std::vector<ContextUse> all;
  static Uses& instance() {
    static auto* uses = new Uses;
    return *uses;
  }
};

struct Thread {
  int device = 0;
  bool has_chosen = false;
  std::bitset<kMaxDevices> has_context;
  int number = ++threads;
  static std::atomic<int> threads;
};
std::atomic<int> Thread::threads{0};
thread_local Thread of_thread;

void write_use(const ContextUse& use) {
  const char* file = setting("ISOBAR_VIRTUAL_GPU_CONTEXTS");
  if (file == nullptr) return;
  std::ofstream(file, std::ios::app) << concat("{\"process\": ", ::getpid(), ", \"thread\": ", use.thread,
                                               ", \"device\": ", use.device, ", \"call\": \"", use.call, "\"}\n");
}

}  // namespace

int device_count() {
  const std::size_t count = number_setting("ISOBAR_VIRTUAL_GPU_DEVICES", 1);
  ISOBAR_CHECK(count >= 1 && count <= kMaxDevices, "ISOBAR_VIRTUAL_GPU_DEVICES is ", count, ": 1 to ", kMaxDevices);
  return static_cast<int>(count);
}

int current_device() {
  return of_thread.device;
}

bool has_chosen_device() {
  return of_thread.has_chosen;
}

void set_current_device(int device) {
  of_thread.device = device;
  of_thread.has_chosen = true;
}

void check_device(int device) {
  if (device < 0 || device >= device_count()) misuse(cudaErrorInvalidDevice, "there is no device ", device);
}

void refuse_elsewhere(int device, const char* what) {
  if (device != current_device())
    misuse(cudaErrorInvalidResourceHandle, what, " of device ", device, " is used by a thread whose device is ",
           current_device());
}

void use_context(const std::string& call) {
  const auto device = static_cast<std::size_t>(current_device());
  if (of_thread.has_context[device]) return;
  of_thread.has_context[device] = true;
  Uses& uses = Uses::instance();
  const std::lock_guard lock(uses.mutex);
  uses.all.push_back({of_thread.number, current_device(), call});
  write_use(uses.all.back());
}

std::vector<ContextUse> context_uses() {
  Uses& uses = Uses::instance();
  const std::lock_guard lock(uses.mutex);
  return uses.all;
}

void forget_contexts() {
  Uses& uses = Uses::instance();
  const std::lock_guard lock(uses.mutex);
  uses.all.clear();
  of_thread.has_context.reset();
  set_current_device(0);
  of_thread.has_chosen = false;
}

}  // namespace isobar::virtual_gpu
