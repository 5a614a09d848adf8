// The scheduler of kernels/emulator/emulator.h: fibers, barriers, warp collectives and asynchronous copies.
//
// A fiber that has to wait switches directly to the next one that can run (pass_on). The launching thread gets control
// back only at the end of a pass over a warp, or over the block in lockstep. ThreadSanitizer builds compile this file
// uninstrumented: every CUDA thread is a TSan fiber, and only barriers make happens-before edges between them.
#include "kernels/emulator/emulator.h"

#include <sys/mman.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/common/check.h"
#include "kernels/common/math.h"
#include "kernels/emulator/async_proxy.h"
#include "kernels/emulator/devices.h"
#include "kernels/emulator/machine.h"
#include "kernels/emulator/warpgroup.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(ISOBAR_EMULATE_TSAN)
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
}
#endif

#if !defined(__x86_64__)
#error "the emulator switches fibers with x86-64 assembly: configure with -DISOBAR_EMULATOR=OFF"
#endif

// Saves the callee-saved registers on this stack, stores its pointer in *save, and continues on the other stack.
extern "C" void isobar_switch_stack(void** save, void* to);
asm(R"(
.text
.globl isobar_switch_stack
.type isobar_switch_stack,@function
isobar_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmp *%rcx
.size isobar_switch_stack, .-isobar_switch_stack
)");

namespace isobar::emulator {

const ThreadState* self = nullptr;
BlockState block = {};

Emulator* machine = nullptr;

namespace {

constexpr std::size_t kGuardBytes = 4096;

// ---- Annotations for the sanitizers ---------------------------------------------------------------------------------

#if defined(__SANITIZE_ADDRESS__)
void before_switch(void** from_stack, const void* stack, std::size_t bytes) {
  __sanitizer_start_switch_fiber(from_stack, stack, bytes);
}
void after_switch(void* own_stack, const void** previous, std::size_t* bytes) {
  __sanitizer_finish_switch_fiber(own_stack, previous, bytes);
}
void forget_frames(void* stack) {
  __asan_unpoison_memory_region(stack, kStackBytes);
}
#else
void before_switch(void**, const void*, std::size_t) {}
void after_switch(void*, const void**, std::size_t*) {}
void forget_frames(void*) {}
#endif

#if defined(ISOBAR_EMULATE_TSAN)
void* this_tsan_fiber() {
  return __tsan_get_current_fiber();
}
void* new_tsan_fiber() {
  return __tsan_create_fiber(0);
}
void delete_tsan_fiber(void* fiber) {
  if (fiber != nullptr) __tsan_destroy_fiber(fiber);
}
void enter_tsan_fiber(void* fiber) {
  constexpr unsigned kNoSynchronisation = 1;
  __tsan_switch_to_fiber(fiber, kNoSynchronisation);
}
#else
void* this_tsan_fiber() {
  return nullptr;
}
void* new_tsan_fiber() {
  return nullptr;
}
void delete_tsan_fiber(void*) {}
void enter_tsan_fiber(void*) {}
#endif

// ---- State of the launch --------------------------------------------------------------------------------------------

Emulator& emulator() {
  static Emulator instance;
  return instance;
}

// ---- Switching ------------------------------------------------------------------------------------------------------

void to_launcher(Fiber& from, bool for_ever) {
  before_switch(for_ever ? nullptr : &from.asan_stack, machine->stack, machine->stack_bytes);
  enter_tsan_fiber(machine->tsan_fiber);
  isobar_switch_stack(&from.stack_pointer, machine->stack_pointer);
  after_switch(from.asan_stack, nullptr, nullptr);
}

void to_fiber(void** save, void** asan_stack, Fiber& fiber) {
  self = &fiber;
  before_switch(asan_stack, fiber.stack, kStackBytes);
  enter_tsan_fiber(fiber.tsan_fiber);
  isobar_switch_stack(save, fiber.stack_pointer);
}

// Switches from a fiber that cannot continue to the next one of this pass that can, or to the launcher.
void pass_on(Fiber& from) {
  Emulator& m = *machine;
  while (++m.cursor < m.pass_end) {
    Fiber& next = m.fibers[m.order[m.cursor]];
    if (!next.can_run()) continue;
    to_fiber(&from.stack_pointer, &from.asan_stack, next);
    after_switch(from.asan_stack, nullptr, nullptr);
    return;
  }
  to_launcher(from, false);
}

}  // namespace

void wait_for_opening(const Barrier& barrier, const Site& site) {
  Fiber& me = current();
  me.waits_for = &barrier;
  me.generation = barrier.generation;
  me.site = site;
  pass_on(me);
  me.waits_for = nullptr;
}

int arrive(Barrier& barrier, int needed, bool orders_memory, const Site& site) {
  const int parity = barrier.generation & 1;
  if (orders_memory) release(&barrier.token[parity]);
  if (barrier.arrived == 0) barrier.site = site;
  if (++barrier.arrived >= needed) {
    barrier.open();
  } else {
    wait_for_opening(barrier, site);
  }
  if (orders_memory) acquire(&barrier.token[parity]);
  return parity;
}

namespace {

bool same_place(const Site& a, const Site& b) {
  if (std::memcmp(&a, &b, sizeof a) == 0) return true;  // the same constant of the program, the usual case
  return a.line() == b.line() && a.column() == b.column() &&
         (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

}  // namespace

std::string place_of(const Site& site) {
  return concat(site.file_name(), ":", site.line());
}

std::string in_kernel(const std::string& what) {
  return concat("kernel ", machine->kernel, ", block (", block.index.x, ",", block.index.y, ",", block.index.z,
                "): ", what);
}

void stop_launch() {
  release(&machine->end_token);  // the launcher reads what this thread has recorded
  to_launcher(current(), true);
  std::abort();  // never resumed
}

static void record_failure(const char* what) {
  const uint3 t = self->index;
  machine->failure = in_kernel(concat("thread (", t.x, ",", t.y, ",", t.z, "): ", what));
}

void record_failure(const char* what, const Site& site) {
  record_failure(what);
  machine->failure += " at " + place_of(site);
}

namespace {

void check_same_place(const Barrier& barrier, const char* what, const Site& site) {
  if (barrier.arrived == 0 || same_place(barrier.site, site)) return;
  record_failure(what, site);
  machine->failure += " while others wait at " + place_of(barrier.site);
  stop_launch();
}

// Other threads may wait for an exit.
void leave(Fiber& fiber) {
  Emulator& m = *machine;
  Warp& warp = m.warps[fiber.warp];
  fiber.done = true;
  warp.alive &= ~(1u << fiber.lane);
  --warp.live;
  --m.alive;
  Barrier& of_block = m.barriers[0].barrier;
  if (of_block.arrived > 0 && of_block.arrived >= m.alive) of_block.open();
  for (LaneGroup& group : warp.groups) {
    if (group.barrier.arrived > 0 && group.needs_all)
      record_failure("a thread ends that an instruction of 32 lanes waits for", group.barrier.site);
    if (group.barrier.arrived > 0 && group.barrier.arrived >= std::popcount(group.mask & warp.alive))
      group.barrier.open();
  }
  if (const char* left = error_of_thread(fiber)) record_failure(left);
}

void run_thread() {
  const void* previous = nullptr;
  std::size_t bytes = 0;
  after_switch(nullptr, &previous, &bytes);
  // The first thread of a launch comes from the launcher, others may come from a fiber.
  if (machine->stack == nullptr) {
    machine->stack = previous;
    machine->stack_bytes = bytes;
  }
  acquire(&machine->start_token);
  machine->body(machine->arguments);
  release(&machine->end_token);
  Fiber& me = current();
  leave(me);
  to_launcher(me, true);
  std::abort();  // a thread that has ended is never resumed
}

// ---- Preparing fibers -----------------------------------------------------------------------------------------------

void make_fibers(std::size_t count) {
  std::vector<Fiber>& fibers = machine->fibers;
  if (fibers.size() >= count) return;
  const std::size_t each = kStackBytes + kGuardBytes, missing = count - fibers.size();
  void* memory =
      mmap(nullptr, each * missing, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ISOBAR_CHECK(memory != MAP_FAILED, "the emulator found no memory for the stacks of ", count, " threads");
  for (std::size_t i = 0; i < missing; ++i) {
    char* guard = static_cast<char*>(memory) + each * i;
    ISOBAR_CHECK(mprotect(guard, kGuardBytes, PROT_NONE) == 0, "the emulator cannot protect the end of a stack");
    Fiber& fiber = fibers.emplace_back();
    fiber.stack = guard + kGuardBytes;
    fiber.tsan_fiber = new_tsan_fiber();
  }
}

void set_to_start(Fiber& fiber, int number, const dim3& size) {
  const unsigned i = static_cast<unsigned>(number);
  fiber.index = {i % size.x, i / size.x % size.y, i / (size.x * size.y)};
  fiber.warp = number / kLanes;
  fiber.lane = number % kLanes;
  fiber.done = false;
  fiber.waits_for = nullptr;
  fiber.copies.clear();
  fiber.copy_groups.clear();
  // The first switch pops six registers and jumps to run_thread, which finds a return address of zero above it.
  constexpr int kRegisters = 6;
  void** top = reinterpret_cast<void**>(fiber.stack + kStackBytes);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(run_thread);
  for (int i = 0; i < kRegisters; ++i) *--top = nullptr;
  fiber.stack_pointer = top;
}

void reset_block(std::size_t dynamic_bytes) {
  Emulator& m = *machine;
  m.alive = m.threads;
  for (NamedBarrier& barrier : m.barriers) barrier = {};
  for (int w = 0; w * kLanes < m.threads; ++w) {
    const int lanes = std::min(kLanes, m.threads - w * kLanes);
    m.warps[w].alive = lanes == kLanes ? 0xffffffffu : (1u << lanes) - 1;
    m.warps[w].live = lanes;
    for (LaneGroup& group : m.warps[w].groups) {
      group.mask = 0;
      group.barrier = {};
    }
  }
  for (int i = 0; i < m.threads; ++i) set_to_start(m.fibers[i], i, block.size);
  std::memset(block.dynamic_shared, 0xff, dynamic_bytes);
  reset_async_proxy();
  reset_warpgroups();
}

// After a failure: the stacks hold frames that never return.
void abandon_fibers() {
  for (Fiber& fiber : machine->fibers) {
    forget_frames(fiber.stack);
    delete_tsan_fiber(fiber.tsan_fiber);
    fiber.tsan_fiber = new_tsan_fiber();
  }
}

// ---- The schedule ---------------------------------------------------------------------------------------------------

std::vector<int> order_of_threads(const Schedule& schedule, int threads) {
  const int warps = ceil_div(threads, kLanes);
  std::vector<int> warp_order(warps), order;
  std::iota(warp_order.begin(), warp_order.end(), 0);
  std::mt19937 random(schedule.seed);
  if (schedule.order == Schedule::Order::reverse) std::reverse(warp_order.begin(), warp_order.end());
  if (schedule.order == Schedule::Order::shuffled) std::shuffle(warp_order.begin(), warp_order.end(), random);
  for (const int warp : warp_order) {
    std::vector<int> lanes(std::min(kLanes, threads - warp * kLanes));
    std::iota(lanes.begin(), lanes.end(), warp * kLanes);
    if (schedule.order == Schedule::Order::reverse) std::reverse(lanes.begin(), lanes.end());
    if (schedule.order == Schedule::Order::shuffled) std::shuffle(lanes.begin(), lanes.end(), random);
    order.insert(order.end(), lanes.begin(), lanes.end());
  }
  return order;
}

// The i-th block to run. A shuffle steps through the blocks with a stride that is coprime to their number.
std::uint64_t block_in_order(const Schedule& schedule, std::uint64_t i, std::uint64_t blocks) {
  if (schedule.order == Schedule::Order::forward) return i;
  if (schedule.order == Schedule::Order::reverse) return blocks - 1 - i;
  std::uint64_t stride = blocks * 5 / 8 + 1;
  while (std::gcd(stride, blocks) != 1) ++stride;
  return (i * stride + schedule.seed) % blocks;
}

// One pass over order[first, last): every fiber that can run does so once. False if none could.
bool run_pass(std::size_t first, std::size_t last) {
  Emulator& m = *machine;
  m.pass_end = last;
  bool moved = false;
  for (m.cursor = first; m.cursor < last; ++m.cursor) {
    Fiber& fiber = m.fibers[m.order[m.cursor]];
    if (!fiber.can_run()) continue;
    moved = true;
    to_fiber(&m.stack_pointer, &m.asan_stack, fiber);
    after_switch(m.asan_stack, nullptr, nullptr);
    if (!m.failure.empty()) break;
  }
  return moved;
}

// The waiting threads, one for each place, barrier and warpgroup.
std::string describe_deadlock() {
  std::string threads;
  int shown = 0;
  const Fiber* last = nullptr;
  for (int i = 0; i < machine->threads && shown < 6; ++i) {
    const Fiber& fiber = machine->fibers[i];
    const bool is_alike = last != nullptr && same_place(last->site, fiber.site) &&
                          last->warp / (kWarpgroup / kLanes) == fiber.warp / (kWarpgroup / kLanes);
    if (fiber.done || is_alike) continue;
    threads += concat(shown++ > 0 ? ", thread (" : " thread (", fiber.index.x, ",", fiber.index.y, ",", fiber.index.z,
                      ") waits at ", place_of(fiber.site), describe_mbarrier(*fiber.waits_for));
    last = &fiber;
  }
  return in_kernel("deadlock," + threads);
}

void run_block() {
  Emulator& m = *machine;
  const std::size_t threads = m.order.size();
  const std::size_t span = m.schedule.lockstep ? threads : kLanes;
  release(&m.start_token);
  while (m.alive > 0) {
    bool moved = false;
    for (std::size_t first = 0; first < threads && m.failure.empty(); first += span) {
      while (m.failure.empty() && run_pass(first, std::min(threads, first + span))) moved = true;
    }
    if (!moved && m.failure.empty() && !land_a_copy()) m.failure = describe_deadlock();
    if (!m.failure.empty()) {
      acquire(&m.end_token);
      abandon_fibers();
      throw_error(m.failure);
    }
  }
  acquire(&m.end_token);
  for (const char* left : {error_of_copies(), error_of_warpgroups()})
    if (left != nullptr) throw_error(in_kernel(left));
}

// Exactly as large as requested, so that AddressSanitizer finds an access past its end.
struct DynamicShared {
  explicit DynamicShared(std::size_t bytes) {
    ISOBAR_CHECK(posix_memalign(&memory, kSharedAlignment, std::max<std::size_t>(bytes, 1)) == 0, "out of memory");
  }
  ~DynamicShared() { std::free(memory); }
  DynamicShared(const DynamicShared&) = delete;
  DynamicShared& operator=(const DynamicShared&) = delete;
  void* memory = nullptr;
};

LaneGroup& group_of(Warp& warp, unsigned mask, const Site& site) {
  for (LaneGroup& group : warp.groups) {
    if (group.mask == mask) return group;
    if (group.mask == 0) {
      group.mask = mask;
      return group;
    }
  }
  fail_in_kernel("a warp uses more different masks than the emulator keeps", site);
}

LaneGroup& enter_group(unsigned mask, const Site& site) {
  if ((mask >> self->lane & 1) == 0) fail_in_kernel("a lane is not in the mask it passes", site);
  return group_of(machine->warps[self->warp], mask, site);
}

int live_lanes(unsigned mask) {
  const Warp& warp = machine->warps[self->warp];
  return mask == 0xffffffffu ? warp.live : std::popcount(mask & warp.alive);
}

}  // namespace

// ---- Called by kernels ----------------------------------------------------------------------------------------------

void fail_in_kernel(const char* what, const Site& site) {
  record_failure(what, site);
  stop_launch();
}

void fail_in_kernel(const char* what) {
  record_failure(what);
  stop_launch();
}

int block_barrier(bool vote, const Site& site) {
  Barrier& barrier = machine->barriers[0].barrier;
  check_same_place(barrier, "divergent barrier", site);
  int& votes = barrier.votes[barrier.generation & 1];
  votes = (barrier.arrived == 0 ? 0 : votes) + (vote ? 1 : 0);
  return barrier.votes[arrive(barrier, machine->alive, true, site)];
}

namespace {

// The barrier of that number; the running thread is registered, but has not arrived.
Barrier& enter_named_barrier(int id, int threads, const Site& site) {
  if (id < 1 || id >= kNamedBarriers) fail_with(site, "there is no named barrier ", id);
  if (threads < kLanes || threads % kLanes != 0) fail_with(site, "a named barrier of ", threads, " threads");
  NamedBarrier& named = machine->barriers[id];
  if (named.barrier.arrived == 0) {
    named.threads = threads;
    named.here.reset();
  }
  if (named.threads != threads)
    fail_with(site, "barrier ", id, " is used for ", threads, " threads, and by others for ", named.threads);
  const auto me = static_cast<std::size_t>(thread_number());
  if (named.here[me]) fail_with(site, "a thread arrives twice at barrier ", id, " before it opens");
  named.here[me] = true;
  return named.barrier;
}

}  // namespace

void sync_named_barrier(int id, int threads, const Site& site) {
  arrive(enter_named_barrier(id, threads, site), threads, true, site);
}

void arrive_at_named_barrier(int id, int threads, const Site& site) {
  Barrier& barrier = enter_named_barrier(id, threads, site);
  release(&barrier.token[barrier.generation & 1]);
  if (++barrier.arrived >= threads) barrier.open();
}

void warp_barrier(unsigned mask, const Site& site) {
  arrive(enter_group(mask, site).barrier, live_lanes(mask), true, site);
}

Exchange exchange_bytes(unsigned mask, const void* mine, std::size_t bytes, Combine combine, const Site& site) {
  LaneGroup& group = enter_group(mask, site);
  check_same_place(group.barrier, "divergent collective", site);
  if (combine != nullptr && live_lanes(mask) != kLanes) fail_in_kernel("an instruction of 32 lanes misses some", site);
  Meeting& meeting = group.meetings[group.barrier.generation & 1];
  {
    Unseen bookkeeping;
    if (group.barrier.arrived == 0) {
      std::memset(meeting.deposits, 0xff, kLanes * bytes);
      meeting.combined = false;
      group.needs_all = combine != nullptr;
    }
    std::memcpy(meeting.deposits + static_cast<std::size_t>(self->lane) * bytes, mine, bytes);
  }
  arrive(group.barrier, live_lanes(mask), false, site);
  if (combine != nullptr && !meeting.combined) {
    Unseen bookkeeping;
    combine(meeting.deposits, meeting.result);
    meeting.combined = true;
  }
  return {meeting.deposits, meeting.result};
}

void start_copy(const Copy& copy) {
  current().copies.push_back(copy);
}

void commit_copies() {
  Fiber& me = current();
  me.copy_groups.push_back(me.copies.size());
}

std::span<const Copy> landing_copies(std::size_t groups_in_flight) {
  Fiber& me = current();
  if (me.copy_groups.size() <= groups_in_flight) return {};
  const auto groups = static_cast<std::ptrdiff_t>(me.copy_groups.size() - groups_in_flight);
  const std::size_t count = me.copy_groups[static_cast<std::size_t>(groups - 1)];
  const auto end = me.copies.begin() + static_cast<std::ptrdiff_t>(count);
  me.landing.assign(me.copies.begin(), end);
  me.copies.erase(me.copies.begin(), end);
  me.copy_groups.erase(me.copy_groups.begin(), me.copy_groups.begin() + groups);
  for (std::size_t& group_end : me.copy_groups) group_end -= count;
  return me.landing;
}

// ---- Called by launch() and the tests -------------------------------------------------------------------------------

void check_limits(const char* kernel, const dim3& grid, const dim3& size, std::size_t dynamic_shared) {
  const std::uint64_t threads = std::uint64_t{size.x} * size.y * size.z;
  ISOBAR_CHECK(threads >= 1 && threads <= kMaxThreads && size.z <= 64, "kernel ", kernel, ": a block of ", size.x,
               " x ", size.y, " x ", size.z, " threads cannot be launched");
  ISOBAR_CHECK(grid.x <= 0x7fffffffu && grid.y <= 65535 && grid.z <= 65535, "kernel ", kernel, ": a grid of ", grid.x,
               " x ", grid.y, " x ", grid.z, " blocks cannot be launched");
  if (capability() == kHopper) {
    constexpr std::size_t kMax = 227 << 10;
    ISOBAR_CHECK(dynamic_shared <= kMax, "kernel ", kernel, ": ", dynamic_shared,
                 " bytes of dynamic shared memory are more than a GPU of compute capability 9.0 has (", kMax, ")");
    return;
  }
  constexpr std::size_t kMax = 99 << 10;
  ISOBAR_CHECK(dynamic_shared <= kMax, "kernel ", kernel, ": ", dynamic_shared,
               " bytes of dynamic shared memory are more than every GPU since Ampere has (", kMax, ")");
}

void run_grid(const char* kernel, const dim3& grid, const dim3& size, std::size_t dynamic_shared,
              void (*body)(const void*), const void* arguments) {
  Emulator& m = emulator();
  const std::lock_guard lock(m.one_launch);
  machine = &m;
  m.kernel = kernel;
  m.failure.clear();
  m.threads = static_cast<int>(size.x * size.y * size.z);
  m.body = body;
  m.arguments = arguments;
  m.dynamic_bytes = dynamic_shared;
  m.order = order_of_threads(m.schedule, m.threads);
  m.tsan_fiber = this_tsan_fiber();
  m.stack = nullptr;
  make_fibers(static_cast<std::size_t>(m.threads));
  const DynamicShared shared(dynamic_shared);
  block = {{}, size, grid, static_cast<unsigned char*>(shared.memory)};
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::uint64_t b = block_in_order(m.schedule, i, blocks);
    block.index = {static_cast<unsigned>(b % grid.x), static_cast<unsigned>(b / grid.x % grid.y),
                   static_cast<unsigned>(b / grid.x / grid.y)};
    reset_block(dynamic_shared);
    run_block();
  }
}

void set_schedule(const Schedule& schedule) {
  const std::lock_guard lock(emulator().one_launch);
  emulator().schedule = schedule;
}

Schedule current_schedule() {
  const std::lock_guard lock(emulator().one_launch);
  return emulator().schedule;
}

Schedule parse_schedule(const std::string& words) {
  const std::string suffix = ",lockstep";
  Schedule schedule;
  std::string order = words;
  if (order.size() >= suffix.size() && order.compare(order.size() - suffix.size(), suffix.size(), suffix) == 0) {
    schedule.lockstep = true;
    order.resize(order.size() - suffix.size());
  }
  if (order == "reverse") {
    schedule.order = Schedule::Order::reverse;
  } else if (order != "forward") {
    ISOBAR_CHECK(!order.empty() && order.size() <= 9 && order.find_first_not_of("0123456789") == std::string::npos,
                 "ISOBAR_EMULATOR_ORDER is \"", words,
                 "\": expected forward, reverse or a number, then perhaps \",lockstep\"");
    schedule.order = Schedule::Order::shuffled;
    schedule.seed = static_cast<std::uint32_t>(std::stoul(order));
  }
  return schedule;
}

std::string name_of(const Schedule& schedule) {
  const std::string order = schedule.order == Schedule::Order::forward   ? "forward"
                            : schedule.order == Schedule::Order::reverse ? "reverse"
                                                                         : std::to_string(schedule.seed);
  return order + (schedule.lockstep ? ",lockstep" : "");
}

}  // namespace isobar::emulator
