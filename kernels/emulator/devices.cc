#include "kernels/emulator/devices.h"

#include <map>
#include <mutex>
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

}  // namespace

void set_device(int index, std::string name) {
  device_of_thread = {index, std::move(name)};
}

CurrentDevice current_device() {
  CurrentDevice device = device_of_thread;
  if (device.name.empty()) device.name = concat(host_name(), " emulator ", device.index);
  return device;
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
