// The memory of the virtual GPU: its addresses are valid only for work of the device.
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <set>

#include "kernels/common/math.h"
#include "kernels/emulator/emulator.h"
#include "lab/stand_ins/cuda/driver.h"

namespace isobar::virtual_gpu {
namespace {

constexpr std::size_t kAddresses = std::size_t{1} << 40;  // reserved, for the life of the process
constexpr std::size_t kPage = 4096;

std::byte* reserve_addresses() {
  void* begin = mmap(nullptr, kAddresses, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ISOBAR_CHECK(begin != MAP_FAILED, "the virtual GPU found no addresses for its memory");
  return static_cast<std::byte*>(begin);
}

struct Pool {
  std::size_t used = 0;
  std::size_t held = 0;       // in use or kept
  std::size_t of_graphs = 0;  // held for graphs that are or were launched
  bool keeps_freed = false;
};

struct Memory {
  std::mutex mutex;
  std::byte* device = reserve_addresses();                   // never accessed
  std::byte* bytes = reserve_addresses();                    // the actual bytes
  std::size_t next = kPage;                                  // offset of the first address that was never used
  std::map<int, Pool> pools;                                 // by device
  std::set<std::pair<int, int>> access;                      // owner, user
  std::map<const std::byte*, SharedAllocation> allocations;  // all that ever existed
  std::map<const std::byte*, std::size_t> pinned;
  static Memory& instance() {
    static auto* memory = new Memory;
    return *memory;
  }
};

std::size_t pages_of(std::size_t bytes) {
  return round_up(std::max<std::size_t>(bytes, 1), kPage);
}

bool is_within(const std::byte* begin, std::size_t bytes, const void* data) {
  const auto* address = static_cast<const std::byte*>(data);
  return address >= begin && address < begin + bytes;
}

// The last allocation that begins at or below an address, or null.
SharedAllocation find_below(const void* data) {
  Memory& memory = Memory::instance();
  const std::lock_guard lock(memory.mutex);
  const auto found = memory.allocations.upper_bound(static_cast<const std::byte*>(data));
  return found == memory.allocations.begin() ? nullptr : std::prev(found)->second;
}

}  // namespace

std::string describe(const Allocation& allocation) {
  return concat(allocation.bytes, " bytes allocated in ", allocation.made_at,
                allocation.is_freed ? ", freed in " + allocation.freed_at : "");
}

SharedAllocation reserve(std::size_t bytes, const void* graph) {
  Memory& memory = Memory::instance();
  const std::lock_guard lock(memory.mutex);
  Pool& pool = memory.pools[current_device()];
  const std::size_t used = pool.used + (graph == nullptr ? bytes : 0);
  const std::size_t held = std::max(pool.held, used);
  if (bytes > total_memory() || held + pool.of_graphs > total_memory())
    refuse(cudaErrorMemoryAllocation, "out of memory: ", bytes, " bytes were asked for, ", pool.used, " of ",
           total_memory(), " are used, ", pool.held - pool.used, " kept by the pool, ", pool.of_graphs,
           " held by graphs");
  const std::size_t span = pages_of(bytes) + kPage;  // an unused page between two allocations
  ISOBAR_CHECK(memory.next + span <= kAddresses, "the virtual GPU has given out all its addresses");
  auto allocation = std::make_shared<Allocation>();
  allocation->address = memory.device + memory.next;
  allocation->bytes = bytes;
  allocation->made_at = site();
  allocation->device = current_device();
  allocation->graph = graph;
  memory.next += span;
  pool.used = used;
  pool.held = held;
  memory.allocations.emplace(allocation->address, allocation);
  return allocation;
}

void map(Allocation& allocation) {
  std::byte* begin = view(allocation.address);
  ISOBAR_CHECK(mprotect(begin, pages_of(allocation.bytes), PROT_READ | PROT_WRITE) == 0,
               "the virtual GPU cannot make memory accessible");
  if (computes()) std::memset(begin, 0xff, allocation.bytes);
  allocation.is_mapped = true;
  allocation.pages.assign(pages_of(allocation.bytes) / kPage, {});
}

void unmap(Allocation& allocation) {
  std::byte* begin = view(allocation.address);
  allocation.is_mapped = false;
  allocation.pages.clear();
  madvise(begin, pages_of(allocation.bytes), MADV_DONTNEED);
  mprotect(begin, pages_of(allocation.bytes), PROT_NONE);
}

SharedAllocation find_allocation(const void* data) {
  const SharedAllocation allocation = find_below(data);
  return allocation != nullptr && data <= allocation->address + allocation->bytes ? allocation : nullptr;
}

bool is_device_address(const void* data) {
  return is_within(Memory::instance().device, kAddresses, data);
}

bool is_host_memory(const void* data) {
  Memory& memory = Memory::instance();
  constexpr std::uintptr_t kLowest = 1 << 20, kHighest = std::uintptr_t{1} << 47;  // where programs have memory
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (address < kLowest || address >= kHighest || is_pinned(data, 1)) return false;
  if (is_device_address(data) || is_within(memory.bytes, kAddresses, data)) return false;
  unsigned char present = 0;
  return mincore(reinterpret_cast<void*>(address / kPage * kPage), kPage, &present) == 0;
}

std::byte* view(const void* data) {
  const Memory& memory = Memory::instance();
  return memory.bytes + (static_cast<const std::byte*>(data) - memory.device);
}

std::size_t total_memory() {
  static const std::size_t bytes = number_setting("ISOBAR_VIRTUAL_GPU_MEMORY", std::size_t{4} << 30);
  return bytes;
}

namespace {

template <class F>
auto with_pool(int device, const F& f) {
  Memory& memory = Memory::instance();
  const std::lock_guard lock(memory.mutex);
  return f(memory.pools[device]);
}

}  // namespace

std::size_t held_memory(int device) {
  return with_pool(device, [](const Pool& pool) { return pool.held + pool.of_graphs; });
}

void keep_freed_memory(int device, bool keeps) {
  with_pool(device, [=](Pool& pool) { pool.keeps_freed = keeps; });
}

void trim_pool(int device, std::size_t least) {
  with_pool(device, [=](Pool& pool) { pool.held = std::max(pool.used, std::min(pool.held, least)); });
}

void note_synchronised(int device) {
  with_pool(device, [](Pool& pool) {
    if (!pool.keeps_freed) pool.held = pool.used;
  });
}

void hold_for_graph(int device, std::size_t bytes) {
  with_pool(device, [=](Pool& pool) {
    if (pool.held + pool.of_graphs + bytes > total_memory())
      refuse(cudaErrorMemoryAllocation, "out of memory: a graph needs ", bytes, " bytes, the pool holds ", pool.held,
             " of ", total_memory());
    pool.of_graphs += bytes;
  });
}

void trim_graphs(int device, std::size_t in_use) {
  with_pool(device, [=](Pool& pool) { pool.of_graphs = std::min(pool.of_graphs, in_use); });
}

void let_access(int owner, int user) {
  Memory& memory = Memory::instance();
  const std::lock_guard lock(memory.mutex);
  memory.access.insert({owner, user});
}

bool may_access(int user, const Allocation& allocation) {
  Memory& memory = Memory::instance();
  const std::lock_guard lock(memory.mutex);
  return allocation.device == user || memory.access.contains({allocation.device, user});
}

void mark_freed(Allocation& allocation) {
  if (allocation.is_freed) misuse(cudaErrorInvalidValue, "memory is freed twice: ", describe(allocation));
  allocation.is_freed = true;
  allocation.freed_at = site();
  if (allocation.graph != nullptr) return;
  with_pool(allocation.device, [&](Pool& pool) { pool.used -= allocation.bytes; });
}

void forget_memory() {
  Memory& memory = Memory::instance();
  const std::lock_guard lock(memory.mutex);
  for (auto& [address, allocation] : memory.allocations) {
    if (allocation->is_mapped) unmap(*allocation);
    allocation->is_freed = true;
    allocation->freed_at = "cudaDeviceReset";
  }
  memory.pools.clear();
  memory.pinned.clear();
}

std::string leaked_memory() {
  Memory& memory = Memory::instance();
  const std::lock_guard lock(memory.mutex);
  std::size_t count = 0;
  const Allocation* first = nullptr;
  for (const auto& [address, allocation] : memory.allocations)
    if (!allocation->is_freed && count++ == 0) first = allocation.get();
  if (count > 0) return concat(count, " allocations of the device are not freed, the first: ", describe(*first));
  if (memory.pinned.empty()) return "";
  return concat(memory.pinned.size(), " blocks of pinned memory are not freed");
}

void check_mapped(const Operation& operation) {
  for (const Operand& operand : operation.operands) {
    const SharedAllocation allocation = find_allocation(operand.data);
    const char* problem = allocation == nullptr   ? "which nobody has allocated"
                          : allocation->is_mapped ? nullptr
                          : allocation->is_freed  ? "which is freed"
                                                  : "which its stream has not allocated yet";
    if (problem != nullptr)
      throw_error(operand.name, " is memory ", problem, allocation == nullptr ? "" : ": " + describe(*allocation));
  }
}

void* allocate_pinned(std::size_t bytes) {
  void* data = std::aligned_alloc(kPage, pages_of(bytes));
  if (data == nullptr) refuse(cudaErrorMemoryAllocation, "out of memory: ", bytes, " bytes to be pinned");
  Memory& memory = Memory::instance();
  const std::lock_guard lock(memory.mutex);
  memory.pinned[static_cast<std::byte*>(data)] = bytes;
  return data;
}

void free_pinned(void* data) {
  if (data == nullptr) return;
  {
    Memory& memory = Memory::instance();
    const std::lock_guard lock(memory.mutex);
    if (memory.pinned.erase(static_cast<std::byte*>(data)) == 0)
      misuse(cudaErrorInvalidValue, "memory that is not pinned is freed as if it were");
  }
  std::free(data);
}

bool is_pinned(const void* data, std::size_t bytes) {
  Memory& memory = Memory::instance();
  const std::lock_guard lock(memory.mutex);
  auto found = memory.pinned.upper_bound(static_cast<const std::byte*>(data));
  if (found == memory.pinned.begin()) return false;
  --found;
  return static_cast<const std::byte*>(data) + bytes <= found->first + found->second;
}

// ---- Faults ---------------------------------------------------------------------------------------------------------

namespace {

thread_local const void* touched = nullptr;  // the address that the kernel faulted on
thread_local bool runs_kernel = false;

std::string describe_touched(const void* data) {
  Memory& memory = Memory::instance();
  if (is_within(memory.bytes, kAddresses, data)) {
    const SharedAllocation below = find_below(memory.device + (static_cast<const std::byte*>(data) - memory.bytes));
    if (below == nullptr) return "touches memory of the device that nobody has allocated";
    if (below->is_freed) return concat("touches memory that is freed: ", describe(*below));
    return concat(below->is_mapped ? "touches what lies behind " : "touches what its stream has not allocated yet: ",
                  describe(*below));
  }
  if (is_within(memory.device, kAddresses, data)) return "follows an address of the device that lies in memory";
  return concat("touches the address ", data);
}

// Execution continues here after a kernel's fault: on the kernel's own stack, outside of the signal handler.
[[noreturn]] void fail_after_fault() {
  static std::string sentence;  // no temporary may live on this stack
  sentence = describe_touched(touched);
  emulator::fail_in_kernel(sentence.c_str());
}

// Reports a fault of the host itself before it ends the program.
void report_host_fault(const void* data) {
  const std::string sentence = concat("virtual GPU: the host ",
                                      is_device_address(data) ? "touches memory of the device" : "touches the address ",
                                      is_device_address(data) ? std::string() : concat(data), " in ", site(), "\n");
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, sentence.data(), sentence.size());
  signal(SIGSEGV, SIG_DFL);  // the instruction faults again
}

// The allocations that the running kernel may access, and its accesses so far. The fault handler allocates nothing.
struct Watched {
  std::vector<SharedAllocation> allocations;
  std::vector<Touch> touches;
};
thread_local Watched* watched = nullptr;

std::byte* page_at(const Allocation& allocation, std::size_t page) {
  return view(allocation.address) + page * kPage;
}

// The first access to a page of the operands: unprotects it, for reads only if it is a read.
bool note_touch(const void* data, bool writes) {
  for (const SharedAllocation& allocation : watched->allocations) {
    const std::byte* begin = view(allocation->address);
    if (!is_within(begin, pages_of(allocation->bytes), data)) continue;
    const auto page = static_cast<std::size_t>(static_cast<const std::byte*>(data) - begin) / kPage;
    mprotect(page_at(*allocation, page), kPage, writes ? PROT_READ | PROT_WRITE : PROT_READ);
    watched->touches.push_back({allocation, page, writes});
    return true;
  }
  return false;
}

void on_fault(int, siginfo_t* info, void* context) {
  if (!runs_kernel) return report_host_fault(info->si_addr);
  constexpr greg_t kWrite = 2;  // in the processor's code of a page fault
  const greg_t code = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR];
  if (note_touch(info->si_addr, (code & kWrite) != 0)) return;
  touched = info->si_addr;
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  constexpr greg_t kBelowLocals = 4096;
  registers[REG_RSP] = ((registers[REG_RSP] - kBelowLocals) & ~greg_t{15}) - 8;
  registers[REG_RIP] = reinterpret_cast<greg_t>(fail_after_fault);
}

// While it lives, it handles faults; outside of a kernel only if no other handler is installed.
class FaultHandler {
 public:
  FaultHandler() {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, &previous_);
    runs_kernel = true;
  }
  ~FaultHandler() {
    runs_kernel = false;
    if ((previous_.sa_flags & SA_SIGINFO) != 0 || previous_.sa_handler != SIG_DFL)
      sigaction(SIGSEGV, &previous_, nullptr);
  }
  FaultHandler(const FaultHandler&) = delete;
  FaultHandler& operator=(const FaultHandler&) = delete;

 private:
  struct sigaction previous_ = {};
};

// While it lives, the first access to a page of a kernel's operands faults.
class Watch {
 public:
  explicit Watch(const Operation& kernel) {
    std::size_t pages = 0;
    for (const Operand& operand : kernel.operands) {
      const SharedAllocation allocation = find_allocation(operand.data);
      auto& all = watched_.allocations;
      if (std::find(all.begin(), all.end(), allocation) != all.end()) continue;
      all.push_back(allocation);
      pages += pages_of(allocation->bytes) / kPage;
      protect(*allocation, PROT_NONE);
    }
    watched_.touches.reserve(2 * pages);  // each may be read, then written
    watched = &watched_;
  }
  ~Watch() {
    watched = nullptr;
    for (const SharedAllocation& allocation : watched_.allocations) protect(*allocation, PROT_READ | PROT_WRITE);
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  const std::vector<Touch>& touches() const { return watched_.touches; }

 private:
  static void protect(const Allocation& allocation, int access) {
    mprotect(view(allocation.address), pages_of(allocation.bytes), access);
  }
  Watched watched_;
};

void add_touches(std::vector<Touch>& touches, const SharedAllocation& allocation, std::size_t begin, std::size_t end,
                 bool writes) {
  for (std::size_t page = begin / kPage; page * kPage < end; ++page) touches.push_back({allocation, page, writes});
}

}  // namespace

namespace {

std::mutex& one_at_a_time() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

std::byte* bytes_at(const void* data) {
  return is_device_address(data) ? view(data) : static_cast<std::byte*>(const_cast<void*>(data));
}

}  // namespace

void copy_alone(void* to, const void* from, std::size_t bytes) {
  const std::lock_guard lock(one_at_a_time());
  std::memcpy(bytes_at(to), bytes_at(from), bytes);
}

void fill_alone(void* to, int byte, std::size_t bytes) {
  const std::lock_guard lock(one_at_a_time());
  std::memset(bytes_at(to), byte, bytes);
}

std::vector<Touch> run_alone(const Operation& operation) {
  const std::lock_guard lock(one_at_a_time());
  if (operation.is_kernel) {
    const Watch watch(operation);
    const FaultHandler handler;
    operation.run();
    return watch.touches();
  }
  operation.run();
  return touches_of(operation);
}

// Other work may use the rest of a page meanwhile.
std::vector<Touch> whole_pages_of(const Operation& operation) {
  std::vector<Touch> touches;
  for (const Operand& operand : operation.operands) {
    const SharedAllocation allocation = find_allocation(operand.data);
    const auto begin = static_cast<std::size_t>(static_cast<const std::byte*>(operand.data) - allocation->address);
    const std::size_t first = round_up(begin, kPage), end = (begin + operand.bytes) / kPage * kPage;
    add_touches(touches, allocation, first, std::max(first, end), operand.is_written);
  }
  return touches;
}

std::vector<Touch> touches_of(const Operation& operation) {
  std::vector<Touch> touches;
  for (const Operand& operand : operation.operands) {
    const SharedAllocation allocation = find_allocation(operand.data);
    const auto begin = static_cast<std::size_t>(static_cast<const std::byte*>(operand.data) - allocation->address);
    add_touches(touches, allocation, begin, begin + operand.bytes, operand.is_written);
  }
  return touches;
}

}  // namespace isobar::virtual_gpu
