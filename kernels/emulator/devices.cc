#include "kernels/emulator/devices.h"

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "kernels/common/check.h"
#include "kernels/common/host_name.h"

namespace isobar::emulator {
namespace {

struct Block {
  std::size_t bytes = 0;
  int index = 0;
};

struct Blocks {
  std::mutex mutex;
  std::map<const std::byte*, Block> blocks;

  static Blocks& instance() {
    static auto* all = new Blocks;  // outlives every static tensor
    return *all;
  }
};

thread_local CurrentDevice device_of_thread;

int capability_from_environment() {
  const char* text = std::getenv("ISOBAR_EMULATOR_CAPABILITY");
  if (text == nullptr) return kAmpere;
  const std::string value = text;
  ISOBAR_CHECK(value == "80" || value == "90", "ISOBAR_EMULATOR_CAPABILITY is \"", value, "\": expected 80 or 90");
  return std::stoi(value);
}

std::atomic<int>& chosen_capability() {
  static std::atomic<int> chosen = capability_from_environment();
  return chosen;
}

}  // namespace

void set_device(int index, std::string name) {
  device_of_thread = {index, std::move(name)};
}

CurrentDevice current_device() {
  CurrentDevice device = device_of_thread;
  if (device.name.empty()) device.name = concat(host_name(), " emulator ", device.index);
  return device;
}

int capability() {
  return chosen_capability();
}

void set_capability(int capability) {
  chosen_capability() = capability;
}

void note_memory(int index, const void* data, std::size_t bytes) {
  Blocks& all = Blocks::instance();
  const std::lock_guard lock(all.mutex);
  all.blocks[static_cast<const std::byte*>(data)] = {bytes, index};
}

void forget_memory(const void* data) noexcept {
  Blocks& all = Blocks::instance();
  const std::lock_guard lock(all.mutex);
  all.blocks.erase(static_cast<const std::byte*>(data));
}

bool is_memory(int index, const void* data, std::size_t bytes) {
  Blocks& all = Blocks::instance();
  const std::lock_guard lock(all.mutex);
  const auto* first = static_cast<const std::byte*>(data);
  auto block = all.blocks.upper_bound(first);
  if (block == all.blocks.begin()) return false;
  --block;
  return block->second.index == index && first + bytes <= block->first + block->second.bytes;
}

}  // namespace isobar::emulator
