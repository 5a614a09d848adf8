#include "engine/storage.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iomanip>
#include <limits>
#include <mutex>
#include <new>
#include <sstream>
#include <utility>

#include "engine/control_groups.h"
#include "kernels/common/check.h"
#include "kernels/common/math.h"
#include "kernels/cuda/runtime.h"
#include "kernels/emulator/devices.h"
#include "kernels/emulator/streams.h"

namespace isobar {

// The bytes held under every tag. Threads may share one, and a block may be freed by another thread than made it.
struct MemoryLedger {
  std::mutex mutex;
  std::vector<MemoryUse> uses{{"other", 0, 0}};
  std::size_t held = 0, peak = 0, largest = 0;

  int tag_index(const char* tag) {
    const std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < uses.size(); ++i)
      if (uses[i].tag == tag) return static_cast<int>(i);
    uses.push_back({tag, 0, 0});
    return static_cast<int>(uses.size()) - 1;
  }
  void add(int tag, std::size_t bytes) {
    const std::lock_guard lock(mutex);
    uses[tag].bytes += bytes;
    uses[tag].peak_bytes = std::max(uses[tag].peak_bytes, uses[tag].bytes);
    held += bytes;
    peak = std::max(peak, held);
    largest = std::max(largest, bytes);
  }
  void remove(int tag, std::size_t bytes) {
    const std::lock_guard lock(mutex);
    uses[tag].bytes -= bytes;
    held -= bytes;
  }
};

namespace {

// Freed host blocks, by size. They are kept for the next step, since their pages are already mapped. If none fits a
// request, a new block is made. Blocks are returned to the system only if the pool and the blocks in use exceed 1.25
// times the max that was ever in use at once, or if there is no other memory left.
class HostPool {
 public:
  HostBlock allocate(std::size_t bytes) {
    const std::size_t capacity = round_up(bytes, kStorageAlignment);
    if (HostBlock block = take_free(capacity)) return block;
    HostBlock block = make_block(capacity);
    release_for(capacity);
    block.mapped() = new_memory(capacity);
    while (block.mapped() == nullptr && release_one()) block.mapped() = new_memory(capacity);
    ISOBAR_CHECK(block.mapped() != nullptr, "out of memory: ", capacity, " bytes were asked for");
    {
      const std::lock_guard lock(mutex_);
      count_use(capacity);  // only now: what was not there was never in use
    }
    if (capacity >= kHugePage) madvise(block.mapped(), capacity, MADV_HUGEPAGE);
    return block;
  }

  // Allocates nothing: destructors call it.
  void free(HostBlock block) noexcept {
    const std::lock_guard lock(mutex_);
    used_ -= block.key();
    spare_ += block.key();
    free_.insert(std::move(block));
  }

  std::size_t spare() {
    const std::lock_guard lock(mutex_);
    return spare_;
  }

 private:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;
  static std::size_t alignment_of(std::size_t bytes) { return bytes >= kHugePage ? 4096 : kStorageAlignment; }

  static void* new_memory(std::size_t bytes) {
    return std::aligned_alloc(alignment_of(bytes), round_up(bytes, alignment_of(bytes)));
  }

  static HostBlock make_block(std::size_t capacity) {
    std::multimap<std::size_t, void*> list{{capacity, nullptr}};
    return list.extract(list.begin());
  }

  // The smallest freed block that is at most a quarter too large, or none.
  HostBlock take_free(std::size_t capacity) {
    const std::lock_guard lock(mutex_);
    const auto found = free_.lower_bound(capacity);
    if (found == free_.end() || found->first > capacity + capacity / 4) return {};
    spare_ -= found->first;
    count_use(found->first);
    return free_.extract(found);
  }

  // Makes room for a new block of this size.
  void release_for(std::size_t capacity) {
    const std::lock_guard lock(mutex_);
    const std::size_t used = used_ + capacity, peak = std::max(peak_, used);
    while (used + spare_ > peak + peak / 4) release_largest();  // ends: `used` alone is at most `peak`
  }

  // False if no block is spare.
  bool release_one() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return false;
    release_largest();
    return true;
  }

  void count_use(std::size_t bytes) {
    used_ += bytes;
    peak_ = std::max(peak_, used_);
  }

  void release_largest() {
    const auto largest = std::prev(free_.end());
    std::free(largest->second);
    spare_ -= largest->first;
    free_.erase(largest);
  }

  std::mutex mutex_;
  std::multimap<std::size_t, void*> free_;
  std::size_t used_ = 0, spare_ = 0, peak_ = 0;  // bytes in use, bytes in free_, max of used_ so far
};

HostPool& host_pool() {
  static auto* pool = new HostPool;  // outlives every static tensor
  return *pool;
}

std::shared_ptr<MemoryLedger>& ledger() {
  static auto* of_process = new std::shared_ptr<MemoryLedger>(std::make_shared<MemoryLedger>());
  thread_local std::shared_ptr<MemoryLedger> of_thread = *of_process;
  return of_thread;
}

thread_local int current_tag = 0;
thread_local std::shared_ptr<const gpu::OwnedStream> stream_of_thread;

// The current stream if that device has streams, else null. Error if it belongs to another device.
std::shared_ptr<const gpu::OwnedStream> stream_for(Device device) {
  if (device.kind == DeviceKind::cpu || !holds_values(device) || stream_of_thread == nullptr) return nullptr;
  const Device own = stream_of_thread->device();
  ISOBAR_CHECK(own == device, "the current stream belongs to ", name_of(own.kind), " ", own.index,
               " and cannot be used for memory of ", name_of(device.kind), " ", device.index);
  return stream_of_thread;
}

// The size that the ledger counts for a block.
std::size_t counted_bytes(std::size_t bytes, DeviceKind kind) {
  return kind == DeviceKind::cuda ? bytes : round_up(std::max<std::size_t>(bytes, 1), kStorageAlignment);
}

// A unique address for a block without memory, outside of the addresses that a process can have.
void* address_of_nothing(std::size_t bytes) {
  static std::atomic<std::uintptr_t> next{std::uintptr_t{1} << 60};
  return reinterpret_cast<void*>(next.fetch_add(round_up(bytes + 1, kStorageAlignment)));  // NOLINT: never read
}

Stream handle_of(const std::shared_ptr<const gpu::OwnedStream>& stream) {
  return stream == nullptr ? nullptr : stream->get();
}

// The last work of a stream of the emulator on a block. Later reads of the block get NaN.
class ReturnToPool final : public emulator::Work {
 public:
  void run(std::exception_ptr&) noexcept override {
    std::memset(block.mapped(), 0xff, block.key());
    host_pool().free(std::move(block));
  }
  HostBlock block;
};

}  // namespace

Storage::Storage(std::size_t bytes, Device device)
    : bytes_(bytes),
      device_(device),
      ledger_(ledger()),
      counted_(counted_bytes(bytes, behaviour_of(device))),
      tag_(current_tag),
      stream_(stream_for(device)) {
  if (device.kind == DeviceKind::emulator && stream_ != nullptr) return_ = std::make_unique<ReturnToPool>();
  if (device.kind == DeviceKind::cuda)
    data_ = gpu::allocate(bytes, device.index, handle_of(stream_));
  else if (!holds_values(device))
    data_ = address_of_nothing(bytes);
  else
    host_block_ = host_pool().allocate(std::max<std::size_t>(bytes, 1));
  if (host_block_) {
    data_ = host_block_.mapped();
    bytes_ = host_block_.key();
  }
  if constexpr (ISOBAR_HAS_EMULATOR)
    if (device.kind == DeviceKind::emulator) emulator::note_memory(device.index, data_, bytes_);
  ledger_->add(tag_, counted_);
}

Storage::Storage(std::shared_ptr<void> memory, std::size_t bytes)
    : adopted_(std::move(memory)), data_(adopted_.get()), bytes_(bytes) {
  ISOBAR_CHECK(data_ != nullptr, "no memory was given for a block of ", bytes, " bytes");
}

Storage::~Storage() {
  if (adopted_) return;
  ledger_->remove(tag_, counted_);
  if (!holds_values(device_)) return;
  if constexpr (ISOBAR_HAS_EMULATOR)
    if (device_.kind == DeviceKind::emulator) emulator::forget_memory(data_);
  if (device_.kind == DeviceKind::cpu)
    host_pool().free(std::move(host_block_));
  else
    free_in_order();
}

void Storage::free_in_order() noexcept {
  const Stream own = handle_of(stream_);
  const bool is_elsewhere = stream_of_thread != stream_;
  if (is_elsewhere && (stream_of_thread == nullptr || stream_of_thread->device() == device_)) {
    try {
      gpu::Event used(device_);
      used.record(current_stream());
      used.make_wait(own);
    } catch (...) {
      // The host waits instead. If that fails too, the device has failed, and the next call on it throws.
      gpu::quietly([this] { gpu::synchronize(device_, current_stream()); });
    }
  }
  if (device_.kind == DeviceKind::cuda) return gpu::free(data_, own);
  if (return_ == nullptr) return host_pool().free(std::move(host_block_));
  static_cast<ReturnToPool&>(*return_).block = std::move(host_block_);
  if constexpr (ISOBAR_HAS_EMULATOR) emulator::queue_work(own, std::move(return_));
}

MemoryScope::MemoryScope(const char* tag) : previous_(current_tag) {
  current_tag = ledger()->tag_index(tag);
}
MemoryScope::~MemoryScope() {
  current_tag = previous_;
}

OwnMemoryLedger::OwnMemoryLedger() : previous_(ledger()), previous_tag_(current_tag) {
  ledger() = std::make_shared<MemoryLedger>();
  current_tag = 0;
}
OwnMemoryLedger::~OwnMemoryLedger() {
  ledger() = previous_;
  current_tag = previous_tag_;
}

std::vector<MemoryUse> memory_use() {
  const std::lock_guard lock(ledger()->mutex);
  return ledger()->uses;
}

std::size_t memory_bytes() {
  const std::lock_guard lock(ledger()->mutex);
  return ledger()->held;
}

std::size_t peak_memory_bytes() {
  const std::lock_guard lock(ledger()->mutex);
  return ledger()->peak;
}

std::size_t largest_new_block() {
  const std::lock_guard lock(ledger()->mutex);
  return std::exchange(ledger()->largest, 0);
}

std::size_t pooled_memory_bytes() {
  return host_pool().spare();
}

std::size_t machine_memory_bytes() {
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

namespace {

std::size_t resource_limit(decltype(RLIMIT_AS) resource) {
  rlimit limit = {};
  const bool is_known = ::getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return is_known ? static_cast<std::size_t>(limit.rlim_cur) : std::numeric_limits<std::size_t>::max();
}

}  // namespace

std::size_t shared_memory_bytes() {
  return std::min(machine_memory_bytes(), control_group_limit());
}

std::size_t process_memory_bytes() {
  return std::min(resource_limit(RLIMIT_AS), resource_limit(RLIMIT_DATA));
}

std::string text_of_bytes(std::size_t bytes) {
  constexpr std::size_t kMiB = std::size_t{1} << 20, kGiB = kMiB << 10;
  const bool in_gib = bytes >= kGiB - kMiB / 20;  // with one digit: 1024.0 MiB
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << static_cast<double>(bytes) / static_cast<double>(in_gib ? kGiB : kMiB)
      << (in_gib ? " GiB" : " MiB");
  return out.str();
}

std::string memory_report() {
  const auto mib = [](std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << "memory                now MiB   peak MiB\n";
  for (const MemoryUse& use : memory_use())
    if (use.peak_bytes > 0)
      out << "  " << std::left << std::setw(18) << use.tag << std::right << std::setw(9) << mib(use.bytes)
          << std::setw(11) << mib(use.peak_bytes) << '\n';
  out << "  " << std::left << std::setw(18) << "all" << std::right << std::setw(9) << mib(memory_bytes())
      << std::setw(11) << mib(peak_memory_bytes()) << '\n';
  return out.str();
}

Stream current_stream() {
  return handle_of(stream_of_thread);
}

std::shared_ptr<const gpu::OwnedStream> share_current_stream() {
  return stream_of_thread;
}

StreamScope::StreamScope(std::shared_ptr<const gpu::OwnedStream> stream) : previous_(stream_of_thread) {
  if (stream != nullptr && stream->get() == nullptr) stream = nullptr;  // a stream of the CPU
  stream_of_thread = std::move(stream);
}
StreamScope::~StreamScope() {
  stream_of_thread = std::move(previous_);
}

std::shared_ptr<void> transfer_memory(std::size_t bytes, Device device) {
  if (device.kind == DeviceKind::cuda) return {gpu::allocate_pinned(bytes), gpu::free_pinned};
  return {::operator new(bytes), [](void* memory) { ::operator delete(memory); }};
}

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, std::size_t bytes) {
  if (bytes == 0 || !holds_values(to_device)) return;
  ISOBAR_CHECK(holds_values(from_device), "values were asked of a tensor on the device meta, which has shapes alone");
  const bool to_host = to_device.kind == DeviceKind::cpu, from_host = from_device.kind == DeviceKind::cpu;
  const Device device = to_host ? from_device : to_device;
  ISOBAR_CHECK(to_host || from_host || to_device.kind == from_device.kind, "memory of ", name_of(from_device.kind),
               " cannot be copied to ", name_of(to_device.kind), ": copy it to the CPU first");
  const Stream stream = handle_of(stream_for(device));
  gpu::copy(to, from, bytes, device, stream);
  if (to_host || from_host) gpu::synchronize(device, stream);
}

}  // namespace isobar
