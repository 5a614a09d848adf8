#include "lab/accesses/counter.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/common/check.h"
#include "kernels/common/math.h"
#include "kernels/emulator/emulator.h"
#include "kernels/emulator/machine.h"

extern "C" char __bss_start, _end, __data_start;  // NOLINT: the linker's names for the program's variables

namespace isobar::accesses {
namespace {

using emulator::kLanes;

constexpr std::size_t kStep = 16, kSectorBytes = 32, kWordBytes = 4;
constexpr int kBanks = 32;

struct Span {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;

  std::uintptr_t end() const { return begin + bytes; }
  bool holds(const Span& other) const { return begin <= other.begin && other.end() <= end(); }
};

Span span_of(const void* data, std::size_t bytes) {
  return {reinterpret_cast<std::uintptr_t>(data), bytes};
}

// ---- what a request costs -------------------------------------------------------------------------------------------

// What the lanes of a warp access together; zero bytes where a lane does not.
using Request = std::array<Span, kLanes>;

// The numbers of the units of so many bytes that are touched, each once.
std::vector<std::uintptr_t> touched(std::span<const Span> lanes, std::size_t unit) {
  std::vector<std::uintptr_t> numbers;
  numbers.reserve(4 * kLanes);
  for (const Span& lane : lanes)
    for (std::uintptr_t at = lane.begin / unit; lane.bytes > 0 && at * unit < lane.end(); ++at)
      if (numbers.empty() || numbers.back() != at) numbers.push_back(at);
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

// How many bytes are touched, each counted once.
std::int64_t bytes_of(Request request) {
  std::sort(request.begin(), request.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  std::uintptr_t end = 0, bytes = 0;
  for (const Span& lane : request) {
    bytes += std::max(end, lane.end()) - std::max(end, lane.begin);
    end = std::max(end, lane.end());
  }
  return static_cast<std::int64_t>(bytes);
}

Cost cost_in_global_memory(const Request& request) {
  return {.requests = 1,
          .moved = std::ssize(touched(request, kSectorBytes)),
          .least = ceil_div<std::int64_t>(bytes_of(request), kSectorBytes)};
}

// How many words the busiest bank has to deliver to these lanes.
int wavefronts_of(std::span<const Span> lanes) {
  int words_of_bank[kBanks] = {};
  for (const std::uintptr_t word : touched(lanes, kWordBytes)) ++words_of_bank[word % kBanks];
  return *std::max_element(words_of_bank, words_of_bank + kBanks);
}

Cost cost_in_shared_memory(const Request& request) {
  std::size_t widest = kWordBytes;
  for (const Span& lane : request) widest = std::max(widest, lane.bytes);
  const std::size_t together = kLanes * kWordBytes / widest;
  Cost cost = {.requests = 1, .merged = wavefronts_of(request)};
  for (std::size_t first = 0; first < kLanes; first += together) {
    const int wavefronts = wavefronts_of(std::span(request).subspan(first, together));
    cost.moved += wavefronts;
    cost.least += wavefronts > 0 ? 1 : 0;
  }
  return cost;
}

// ---- a count in progress --------------------------------------------------------------------------------------------

// Bytes that the kernel moves by one access of the GPU, and which of them the host's accesses have not moved yet.
struct Window {
  Span bytes;
  std::uint64_t left = 0, started = 0;  // a bit a byte; a bit a part that has counted
  const void* code = nullptr;
  bool counts = true;
};
constexpr std::size_t kMaxBytes = 64;
using Windows = std::array<Window, 2>;  // the latest first: a copy has two ends

// The requests of a place in the running block.
struct Log {
  std::vector<std::int64_t> of_thread = std::vector<std::int64_t>(emulator::kMaxThreads);  // accesses so far
  std::vector<std::vector<Request>> of_warp = std::vector<std::vector<Request>>(emulator::kMaxWarps);
};

struct Count {
  std::span<const std::span<const std::byte>> global;
  std::map<std::string, Costs> costs;
  std::map<Place, Log> block;  // that runs
  std::string kernel;          // whose block it is
  emulator::uint3 index = {};
  std::vector<Windows> windows = std::vector<Windows>(emulator::kMaxThreads);
};
Count* in_progress = nullptr;

// Adds up what the block that ran has done.
void end_block(Count& count) {
  for (const auto& [place, log] : count.block) {
    Cost& cost = count.costs[count.kernel][place];
    for (const std::vector<Request>& requests : log.of_warp)
      for (const Request& request : requests)
        cost += place.is_shared ? cost_in_shared_memory(request) : cost_in_global_memory(request);
  }
  count.block.clear();
}

void note_block(Count& count) {
  const emulator::uint3 index = emulator::block.index;
  const auto same = [&] {
    return count.kernel == emulator::machine->kernel && index.x == count.index.x && index.y == count.index.y &&
           index.z == count.index.z;
  };
  if (same()) return;
  end_block(count);
  count.kernel = emulator::machine->kernel;
  count.index = index;
  std::fill(count.windows.begin(), count.windows.end(), Windows{});
}

void add(Count& count, const Place& place, const Span& bytes) {
  const emulator::Fiber& thread = emulator::current();
  Log& log = count.block[place];
  const auto occurrence =
      static_cast<std::size_t>(log.of_thread[static_cast<std::size_t>(emulator::thread_number())]++);
  std::vector<Request>& requests = log.of_warp[static_cast<std::size_t>(thread.warp)];
  if (requests.size() <= occurrence) requests.resize(occurrence + 1);
  requests[occurrence][static_cast<std::size_t>(thread.lane)] = bytes;
}

// ---- what the compiled code calls -----------------------------------------------------------------------------------

// Whether the caller is a thread of a kernel that is counted.
bool is_in_kernel(const void* frame) {
  if (in_progress == nullptr || emulator::machine == nullptr || emulator::self == nullptr) return false;
  return span_of(emulator::current().stack, emulator::kStackBytes).holds(span_of(frame, 1));
}

enum class Space { global, shared, none };

// What is no memory of the kernel: the thread's variables, parameters, what stands in for registers and hardware.
bool is_own(const Span& bytes) {
  const emulator::Emulator& m = *emulator::machine;
  const emulator::Fiber& thread = emulator::current();
  constexpr std::size_t kMostParameters = 4096;
  for (const Span& own :
       {span_of(thread.stack, emulator::kStackBytes), span_of(m.arguments, kMostParameters),
        span_of(m.fibers.data(), m.fibers.size() * sizeof(emulator::Fiber)),
        span_of(m.warps.data(), m.warps.size() * sizeof(emulator::Warp)), span_of(&m, sizeof m),
        span_of(thread.landing.data(), thread.landing.size() * sizeof(emulator::Copy)),
        span_of(&emulator::block, sizeof emulator::block), span_of(&emulator::self, sizeof emulator::self)})
    if (own.holds(bytes)) return true;
  return false;
}

Space space_of(const Count& count, const Span& bytes, const void* code) {
  for (const std::span<const std::byte> memory : count.global)
    if (span_of(memory.data(), memory.size()).holds(bytes)) return Space::global;
  if (span_of(emulator::block.dynamic_shared, emulator::machine->dynamic_bytes).holds(bytes)) return Space::shared;
  if (is_own(bytes)) return Space::none;
  const auto variables = reinterpret_cast<std::uintptr_t>(&__data_start);
  if (Span{variables, reinterpret_cast<std::uintptr_t>(&_end) - variables}.holds(bytes)) return Space::shared;
  emulator::fail_with(std::source_location(), "counting: code at ", code, " touches memory that nobody has named");
}

// Finds the window that the bytes are a part of and takes them out of it.
Window* window_of(Windows& windows, const Span& bytes) {
  for (Window& window : windows) {
    if (!window.bytes.holds(bytes)) continue;
    const std::uint64_t mask = ((bytes.bytes < 64 ? std::uint64_t{1} << bytes.bytes : 0) - 1)
                               << (bytes.begin - window.bytes.begin);
    if ((window.left & mask) != mask) continue;
    window.left &= ~mask;
    return &window;
  }
  return nullptr;
}

void touch_step(Count& count, const Span& bytes, bool is_store, const void* code) {
  const Space space = space_of(count, bytes, code);
  if (space == Space::none) return;
  Place place{code, 0, space == Space::shared, is_store};
  Window* const window = window_of(count.windows[static_cast<std::size_t>(emulator::thread_number())], bytes);
  if (window == nullptr) return add(count, place, bytes);
  const std::size_t part = (bytes.begin - window->bytes.begin) / kStep, first = part * kStep;
  if (!window->counts || (window->started >> part & 1) != 0) return;
  window->started |= std::uint64_t{1} << part;
  place.code = window->code;
  place.part = static_cast<int>(part);
  add(count, place, {window->bytes.begin + first, std::min(kStep, window->bytes.bytes - first)});
}

void touch(const void* data, std::size_t bytes, bool is_store, const void* code, const void* frame) {
  if (!is_in_kernel(frame)) return;
  note_block(*in_progress);
  for (std::size_t at = 0; at < bytes; at += kStep)
    touch_step(*in_progress, {reinterpret_cast<std::uintptr_t>(data) + at, std::min(kStep, bytes - at)}, is_store,
               code);
}

}  // namespace

Cost sum_of(const Costs& costs, bool is_shared) {
  Cost sum;
  for (const auto& [place, cost] : costs)
    if (place.is_shared == is_shared) sum += cost;
  return sum;
}

std::map<std::string, Costs> count(std::span<const std::span<const std::byte>> global,
                                   const std::function<void()>& launches) {
  Count counted;
  counted.global = global;
  struct Running {
    explicit Running(Count* count) { in_progress = count; }
    ~Running() { in_progress = nullptr; }
  };
  {
    const Running running(&counted);
    launches();
  }
  end_block(counted);
  return counted.costs;
}

}  // namespace isobar::accesses

namespace isobar::emulator {

void one_access(const void* pointer, std::size_t bytes, bool counts) {
  using namespace accesses;  // NOLINT: of this file
  if (!is_in_kernel(__builtin_frame_address(0))) return;
  if (bytes > kMaxBytes) fail_in_kernel("counting: an access of more bytes than it has room for");
  note_block(*in_progress);
  Windows& windows = in_progress->windows[static_cast<std::size_t>(thread_number())];
  windows[1] = windows[0].bytes.begin == reinterpret_cast<std::uintptr_t>(pointer) ? Window{} : windows[0];
  windows[0] = {.bytes = span_of(pointer, bytes),
                .left = (bytes < 64 ? std::uint64_t{1} << bytes : 0) - 1,
                .code = __builtin_return_address(0),
                .counts = counts};
}

}  // namespace isobar::emulator

// ---- ThreadSanitizer's functions ------------------------------------------------------------------------------------

// NOLINTBEGIN: their names and types are the compiler's
#define ISOBAR_TOUCH(name, bytes, is_store)                                                                  \
  extern "C" void __tsan_##name(const void* data) {                                                          \
    isobar::accesses::touch(data, bytes, is_store, __builtin_return_address(0), __builtin_frame_address(0)); \
  }
#define ISOBAR_TOUCH_BOTH(bytes) ISOBAR_TOUCH(read##bytes, bytes, false) ISOBAR_TOUCH(write##bytes, bytes, true)
ISOBAR_TOUCH_BOTH(1)
ISOBAR_TOUCH_BOTH(2)
ISOBAR_TOUCH_BOTH(4)
ISOBAR_TOUCH_BOTH(8)
ISOBAR_TOUCH_BOTH(16)
#undef ISOBAR_TOUCH_BOTH
#undef ISOBAR_TOUCH

extern "C" {
void __tsan_read_range(const void* data, std::size_t bytes) {
  isobar::accesses::touch(data, bytes, false, __builtin_return_address(0), __builtin_frame_address(0));
}
void __tsan_write_range(const void* data, std::size_t bytes) {
  isobar::accesses::touch(data, bytes, true, __builtin_return_address(0), __builtin_frame_address(0));
}
void __tsan_init() {}
void __tsan_vptr_update(void**, void*) {}
// Of the guards of static variables in host code.
unsigned char __tsan_atomic8_load(const volatile unsigned char* from, int) {
  return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}
}
// NOLINTEND
