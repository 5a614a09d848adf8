#include "kernels/emulator/warpgroup.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <vector>

#include "kernels/common/dtype.h"
#include "kernels/emulator/async_proxy.h"
#include "kernels/emulator/devices.h"
#include "kernels/emulator/machine.h"

namespace isobar::emulator {
namespace {

constexpr int kRows = 64, kDepth = 16, kMaxColumns = 256, kChunk = 8;  // kChunk: sixteen bytes of elements
constexpr int kWarpgroups = kMaxThreads / kWarpgroup;
// the address on a GPU of the block's shared memory: the system uses the first part
constexpr std::size_t kSharedBegin = 1024;
// The bits of an accumulator, NaN, from the issue of the product until a wait.
constexpr std::uint32_t kPending = 0xffffffffu;
constexpr int kRegisters = 64 << 10;

// ---- Operands in shared memory --------------------------------------------------------------------------------------

// A descriptor's fields (PTX ISA, "Matrix descriptor"), in bytes.
struct Descriptor {
  std::size_t start, leading, stride;
  int base_offset, layout;

  explicit Descriptor(std::uint64_t bits)
      : start((bits & 0x3fff) << 4),
        leading((bits >> 16 & 0x3fff) << 4),
        stride((bits >> 32 & 0x3fff) << 4),
        base_offset(static_cast<int>(bits >> 49 & 7)),
        layout(static_cast<int>(bits >> 62)) {}
};

// The 16-byte chunks of an operand of `lines` rows of A or columns of B, each once. A chunk holds eight elements of k
// of one line, or, transposed, eight lines at one k.
struct Operand {
  std::uint64_t bits = 0;
  int lines = 0;
  bool is_transposed = false;
  std::vector<Bytes16> chunks;  // as they were when the product was issued

  int count() const { return lines * kDepth / kChunk; }

  std::size_t address(int chunk) const {
    const Descriptor d(bits);
    if (!is_transposed) {
      const auto line = static_cast<std::size_t>(chunk / 2), half = static_cast<std::size_t>(chunk % 2);
      return swizzled(d.start + line % 8 * 128 + line / 8 * d.stride + half * 16);
    }
    const auto k = static_cast<std::size_t>(chunk % kDepth), eight = static_cast<std::size_t>(chunk / kDepth);
    return swizzled(d.start + eight % 8 * 16 + eight / 8 * d.leading + k % 8 * 128 + k / 8 * d.stride);
  }
  // The address of a chunk in this program.
  const std::byte* at(int chunk) const {
    return reinterpret_cast<const std::byte*>(block.dynamic_shared) + (address(chunk) - kSharedBegin);
  }

  template <class T>
  float element(int line, int k) const {
    const int chunk = is_transposed ? line / kChunk * kDepth + k : line * 2 + k / kChunk;
    const int place = is_transposed ? line % kChunk : k % kChunk;
    std::uint16_t value;
    std::memcpy(&value, reinterpret_cast<const std::byte*>(&chunks[static_cast<std::size_t>(chunk)]) + 2 * place, 2);
    return static_cast<float>(std::bit_cast<T>(value));
  }
};

void check_descriptor(std::uint64_t bits, const Site& site) {
  const Descriptor d(bits);
  constexpr std::uint64_t kReserved = 3ull << 14 | 3ull << 30 | 7ull << 46 | 1ull << 61 | 0x1ffull << 52;
  if (bits == 0 || d.start < kSharedBegin) fail_with(site, "a descriptor that names no tile");
  if ((bits & kReserved) != 0) fail_with(site, "a descriptor with bits set that must be 0");
  if (d.layout != 1) fail_with(site, "a descriptor whose layout is not the swizzle of 128 bytes: ", d.layout);
  if (d.base_offset != 0) fail_with(site, "a descriptor with a base offset, which is not emulated");
  if (d.stride % 1024 != 0) fail_with(site, "a descriptor whose stride is no multiple of the swizzle's 1024 bytes");
}

// Reads the operand; ThreadSanitizer sees the access of this thread.
void read(Operand& operand, const Site& site) {
  std::size_t bytes = sizeof(Bytes16);
  for (int i = 0; i < operand.count(); ++i) {
    if (operand.address(i) < kSharedBegin) fail_with(site, "a descriptor that names no tile");
    check_async_read(operand.at(i), bytes, site);
    std::memcpy(&operand.chunks[static_cast<std::size_t>(i)], operand.at(i), bytes);
  }
}

bool is_unchanged(const Operand& operand) {
  const Unseen bookkeeping;
  for (int i = 0; i < operand.count(); ++i)
    if (std::memcmp(operand.at(i), &operand.chunks[static_cast<std::size_t>(i)], sizeof(Bytes16)) != 0) return false;
  return true;
}

// ---- Products -------------------------------------------------------------------------------------------------------

using Fragment = std::array<std::uint32_t, 4>;

// A product of a warpgroup, from the first thread that issues it until all have waited for it.
struct SharedProduct {
  Product form;  // of the thread that came first
  Operand a, b;
  std::vector<Fragment> a_words;  // by thread of the warpgroup, if A is in registers
  Barrier issued;
  int waited = 0;
  std::vector<float> result;  // [64, columns], computed at the first use
};

struct Accumulators {
  float* d;
  std::vector<float> values;
  std::uint64_t last;  // the last product that writes them
};
// A product that a thread has issued and not waited for.
struct Issued {
  float* d;
  const std::uint32_t* a;  // null if A is in shared memory
  Fragment words;          // of A, when it was issued
};

// Of a thread.
struct Pipeline {
  std::uint64_t completed = 0;  // products; later ones are pending
  std::deque<Issued> pending;
  std::deque<std::uint64_t> groups;  // number of products up to the end of each
  bool is_fenced = false;
  std::vector<Accumulators> accumulators;

  std::uint64_t issued() const { return completed + pending.size(); }
};

struct Warpgroup {
  std::deque<SharedProduct> products;  // at fixed addresses: threads wait at them
  std::uint64_t first = 0;             // the number of products.front()
};

struct Warpgroups {
  std::array<Warpgroup, kWarpgroups> groups;
  std::vector<Pipeline> pipelines = std::vector<Pipeline>(kMaxThreads);
  std::array<int, kMaxWarps> registers;  // per thread
  int free_registers = 0;                // of the block
  Barrier released;                      // opens when registers are released
  bool is_used = true;                   // by this block
};

Warpgroups& warpgroups() {
  static Warpgroups instance;
  return instance;
}

Pipeline& pipeline() {
  return warpgroups().pipelines[static_cast<std::size_t>(thread_number())];
}

template <class T>
float half_of(std::uint32_t word, int half) {
  return static_cast<float>(std::bit_cast<T>(static_cast<std::uint16_t>(word >> (16 * half))));
}

// Row `row` of A from the registers of the threads that hold it, in the layout of mma.sync's A, sixteen rows a warp.
template <class T>
void row_from_registers(const SharedProduct& product, int row, float (&a)[kDepth]) {
  for (int t = 0; t < 4; ++t) {
    const auto thread = static_cast<std::size_t>(row / 16 * kLanes + row % 8 * 4 + t);
    const Fragment& words = product.a_words[thread];
    for (int half = 0; half < 2; ++half)
      for (int side = 0; side < 2; ++side)
        a[8 * side + 2 * t + half] = half_of<T>(words[static_cast<std::size_t>(row % 16 / 8 + 2 * side)], half);
  }
}

template <class T>
void multiply(SharedProduct& product) {
  const int columns = product.form.columns;
  std::vector<float> b(static_cast<std::size_t>(kDepth * columns));
  for (int k = 0; k < kDepth; ++k)
    for (int column = 0; column < columns; ++column)
      b[static_cast<std::size_t>(k * columns + column)] = product.b.element<T>(column, k);
  product.result.assign(static_cast<std::size_t>(kRows * columns), 0);
  for (int row = 0; row < kRows; ++row) {
    float a[kDepth];
    if (product.form.a != nullptr) row_from_registers<T>(product, row, a);
    for (int k = 0; product.form.a == nullptr && k < kDepth; ++k) a[k] = product.a.element<T>(row, k);
    float* sum = product.result.data() + row * columns;
    for (int k = 0; k < kDepth; ++k) {
      const float* b_row = b.data() + k * columns;
      for (int column = 0; column < columns; ++column) sum[column] += a[k] * b_row[column];
    }
  }
}

void check_agreement(const Product& mine, const Product& first, const Site& site) {
  const bool agree = mine.columns == first.columns && mine.adds == first.adds && mine.is_bf16 == first.is_bf16 &&
                     mine.a_tile == first.a_tile && mine.b_tile == first.b_tile &&
                     (mine.a == nullptr) == (first.a == nullptr) && mine.a_is_transposed == first.a_is_transposed &&
                     mine.b_is_transposed == first.b_is_transposed;
  if (!agree) fail_with(site, "the threads of a warpgroup issue different products");
}

// Called for the first thread of the warpgroup: the product begins.
void begin(Warpgroup& group, const Product& form, const Site& site) {
  SharedProduct* product = nullptr;
  {
    const Unseen bookkeeping;
    product = &group.products.emplace_back();
    product->form = form;
    product->b = {form.b_tile, form.columns, form.b_is_transposed, {}};
    if (form.a == nullptr) product->a = {form.a_tile, kRows, form.a_is_transposed, {}};
    product->a_words.resize(kWarpgroup);
    for (Operand* operand : {&product->a, &product->b})
      operand->chunks.resize(static_cast<std::size_t>(operand->count()));
  }
  for (Operand* operand : {&product->a, &product->b}) {
    if (operand->lines == 0) continue;
    check_descriptor(operand->bits, site);
    read(*operand, site);
  }
  release(product->issued.token);  // a thread that waits for the product then knows that the tiles have been read
}

// Accumulators in flight hold NaN; their values are kept here.
void take_accumulators(Pipeline& mine, const Product& product, const Site& site) {
  const auto count = static_cast<std::size_t>(product.columns / 2);
  for (Accumulators& pending : mine.accumulators) {
    if (pending.d == product.d && pending.values.size() == count) {
      pending.last = mine.issued();
      return;
    }
    if (pending.d < product.d + count && product.d < pending.d + pending.values.size())
      fail_with(site, "a product writes a part of another one's accumulators");
  }
  mine.accumulators.push_back({product.d, {product.d, product.d + count}, mine.issued()});
  std::fill_n(product.d, count, std::bit_cast<float>(kPending));
}

void check_untouched(const Accumulators& pending, const Site& site) {
  const auto* bits = reinterpret_cast<const std::uint32_t*>(pending.d);
  if (std::any_of(bits, bits + pending.values.size(), [](std::uint32_t word) { return word != kPending; }))
    fail_with(site, "accumulators were changed before the product that writes them was waited for");
}

// Adds the running thread's part of a product: rows g and g + 8 of its warp's sixteen, two columns of each eight.
void add_part(const SharedProduct& product, std::vector<float>& to) {
  const int row = current().warp % 4 * 16 + current().lane / 4, columns = product.form.columns;
  if (!product.form.adds) std::fill(to.begin(), to.end(), 0.0f);
  for (int i = 0; i < columns / 2; ++i) {
    const int column = i / 4 * 8 + current().lane % 4 * 2 + i % 2;
    to[static_cast<std::size_t>(i)] +=
        product.result[static_cast<std::size_t>((row + i % 4 / 2 * 8) * columns + column)];
  }
}

// The running thread's part of its oldest product, which all threads have issued.
void complete(Pipeline& mine, SharedProduct& product, const Site& site) {
  const Issued& issued = mine.pending.front();
  acquire(product.issued.token);
  if (current().lane == 0 && !(is_unchanged(product.a) && is_unchanged(product.b)))
    fail_with(site, "a tile in shared memory was changed before the product that reads it was waited for");
  if (issued.a != nullptr && !std::equal(issued.words.begin(), issued.words.end(), issued.a))
    fail_with(site, "registers were changed before the product that reads them was waited for");
  if (product.result.empty()) product.form.is_bf16 ? multiply<bf16>(product) : multiply<fp16>(product);
  const auto to = std::find_if(mine.accumulators.begin(), mine.accumulators.end(),
                               [&](const Accumulators& pending) { return pending.d == issued.d; });
  check_untouched(*to, site);
  add_part(product, to->values);
  if (to->last == mine.completed) {
    std::copy(to->values.begin(), to->values.end(), to->d);
    mine.accumulators.erase(to);
  }
  mine.pending.pop_front();
  ++mine.completed;
}

Warpgroup& warpgroup() {
  return warpgroups().groups[static_cast<std::size_t>(thread_number() / kWarpgroup)];
}

}  // namespace

void check_hopper(const char* what, const Site& site) {
  if (capability() < kHopper) fail_with(site, what, " needs compute capability 9.0, and this GPU has 8.0");
}

std::uint64_t shared_address(const void* data) {
  return static_cast<std::uint64_t>(static_cast<const unsigned char*>(data) - block.dynamic_shared) + kSharedBegin;
}

void fence_products() {
  pipeline().is_fenced = true;
}

void issue_product(const Product& form, const Site& site) {
  check_hopper("wgmma", site);
  warpgroups().is_used = true;
  if (thread_number() / kWarpgroup * kWarpgroup + kWarpgroup > machine->threads)
    fail_with(site, "wgmma in a warpgroup of less than 128 threads");
  if (form.columns % 8 != 0 || form.columns < 8 || form.columns > kMaxColumns)
    fail_with(site, "wgmma has no products of ", form.columns, " columns");
  Pipeline& mine = pipeline();
  Warpgroup& group = warpgroup();
  if (!mine.is_fenced) fail_with(site, "a product without a wgmma_fence since the last group of products");
  if (mine.issued() == group.first + group.products.size()) begin(group, form, site);
  const Unseen bookkeeping;
  SharedProduct& product = group.products[static_cast<std::size_t>(mine.issued() - group.first)];
  check_agreement(form, product.form, site);
  take_accumulators(mine, form, site);
  Issued issued{form.d, form.a, {}};
  if (form.a != nullptr) std::copy_n(form.a, issued.words.size(), issued.words.begin());
  product.a_words[static_cast<std::size_t>(thread_number() % kWarpgroup)] = issued.words;
  mine.pending.push_back(issued);
  if (++product.issued.arrived == kWarpgroup) product.issued.open();
}

void commit_products() {
  Pipeline& mine = pipeline();
  mine.groups.push_back(mine.issued());
  mine.is_fenced = false;
}

void wait_for_products(std::size_t groups_in_flight, const Site& site) {
  Pipeline& mine = pipeline();
  Warpgroup& group = warpgroup();
  for (; mine.groups.size() > groups_in_flight; mine.groups.pop_front()) {
    while (mine.completed < mine.groups.front()) {
      SharedProduct& product = group.products[static_cast<std::size_t>(mine.completed - group.first)];
      if (product.issued.generation == 0) wait_for_opening(product.issued, site);
      const Unseen bookkeeping;
      complete(mine, product, site);
      if (++product.waited < kWarpgroup) continue;
      group.products.pop_front();  // the oldest: all threads wait in the order of issue
      ++group.first;
    }
  }
}

// ---- Registers ------------------------------------------------------------------------------------------------------

// The first lane of a warp acts for all of it.
void set_registers(int count, bool more, const Site& site) {
  check_hopper("setmaxnreg", site);
  if (count % 8 != 0 || count < 24 || count > 256) fail_with(site, "setmaxnreg of ", count, " registers");
  Warpgroups& all = warpgroups();
  int& mine = all.registers[static_cast<std::size_t>(current().warp)];
  while (mine != count) {
    if (more != (count > mine))
      fail_with(site, "setmaxnreg to ", more ? "more" : "fewer", " registers, ", count, ", of a warp that has ", mine);
    const int difference = kLanes * (count - mine);
    if (difference > all.free_registers) {
      wait_for_opening(all.released, site);
      continue;
    }
    all.free_registers -= difference;
    mine = count;
    if (!more) all.released.open();
  }
}

// ---- Called by the scheduler ----------------------------------------------------------------------------------------

void reset_warpgroups() {
  Warpgroups& all = warpgroups();
  const int each = std::min(kRegisters / machine->threads / 8 * 8, 248);  // as for a kernel with one block an SM
  all.registers.fill(each);
  all.free_registers = kRegisters - each * machine->threads;
  all.released = {};
  if (!all.is_used) return;  // most kernels do not use it
  all.is_used = false;
  for (Warpgroup& group : all.groups) {
    group.products.clear();
    group.first = 0;
  }
  for (Pipeline& pipeline : all.pipelines) pipeline = {};
}

const char* error_of_thread(const Fiber& fiber) {
  const Pipeline& its = warpgroups().pipelines[static_cast<std::size_t>(fiber.warp * kLanes + fiber.lane)];
  return its.pending.empty() ? nullptr : "a thread ends before it has waited for its products";
}

const char* error_of_warpgroups() {
  const Warpgroups& all = warpgroups();
  for (int warp = 0; warp < machine->threads / kLanes; ++warp)
    if (all.registers[static_cast<std::size_t>(warp)] != all.registers[static_cast<std::size_t>(warp / 4 * 4)])
      return "a part of a warpgroup has changed its registers by setmaxnreg";
  return nullptr;
}

}  // namespace isobar::emulator
