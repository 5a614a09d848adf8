#include "kernels/emulator/async_proxy.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "kernels/emulator/devices.h"
#include "kernels/emulator/machine.h"
#include "kernels/emulator/warpgroup.h"

namespace isobar::emulator {
namespace {

constexpr std::int64_t kNoPhase = -2;
constexpr std::uint64_t kMbarrierMark = 0x6d62617272000000u, kMapMark = 0xa54d6170u;
constexpr int kMaxBytes = (1 << 20) - 1;  // max bytes that an mbarrier can expect

struct Mbarrier {
  Barrier barrier;  // its generation counts the ended phases
  const void* at = nullptr;
  int arrivals = 0;        // per phase
  std::int64_t bytes = 0;  // expected and not landed
  int maker = 0;
  bool is_published = false;             // visible to other threads than its maker
  std::vector<std::int64_t> waited_for;  // the last phase, by thread

  bool is_complete() const { return barrier.arrived == arrivals && bytes == 0; }
  char* token() { return &barrier.token[barrier.generation & 1]; }
};

struct TileCopy {
  std::byte* to;
  TensorMapShape shape;
  int at[kMaxDimensions];
  std::size_t bytes;
  Mbarrier* mbarrier;
};

struct AsyncProxy {
  std::deque<Mbarrier> mbarriers;  // at fixed addresses: threads wait at them
  std::deque<TileCopy> in_flight;
  std::vector<std::byte> known;  // shared memory as products and copies may see it
  std::mt19937 random;
};

AsyncProxy& proxy() {
  static AsyncProxy instance;
  return instance;
}

std::byte* shared() {
  return reinterpret_cast<std::byte*>(block.dynamic_shared);
}

bool is_shared(const void* data, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(data);
  return first >= shared() && first + bytes <= shared() + machine->dynamic_bytes;
}

Mbarrier& mbarrier_of(std::uint64_t word, const Site& site) {
  const std::uint64_t index = word - kMbarrierMark;
  if (index >= proxy().mbarriers.size()) fail_with(site, "an mbarrier is used before it is made");
  Mbarrier& mbarrier = proxy().mbarriers[index];
  if (!mbarrier.is_published) fail_with(site, "an mbarrier is used before mbarrier_init_fence has made it known");
  return mbarrier;
}

// ---- Tiles ----------------------------------------------------------------------------------------------------------

std::size_t bytes_of_box(const TensorMapShape& shape) {
  auto bytes = static_cast<std::size_t>(shape.element_bytes);
  for (int i = 0; i < shape.dimensions; ++i) bytes *= shape.box[i];
  return bytes;
}

// Words of a map: the base; a mark; the rest packed. The virtual GPU searches a kernel's parameters for addresses, and
// must find the base only.
constexpr std::uint64_t kNoAddress = std::uint64_t{1} << 63;

void put(void* map, const TensorMapShape& shape) {
  TensorMap words;
  words.word[0] = reinterpret_cast<std::uintptr_t>(shape.base);
  words.word[1] = kMapMark << 32 | static_cast<std::uint64_t>(shape.element_bytes) << 16 |
                  static_cast<std::uint64_t>(shape.dimensions) << 8 | (shape.swizzle ? 1 : 0);
  for (int i = 0; i < kMaxDimensions; ++i) {
    words.word[2 + i] = kNoAddress | shape.size[i] << 16 | shape.box[i];
    if (i + 1 < kMaxDimensions) words.word[7 + i] = kNoAddress | shape.stride[i] << 16;
  }
  std::memcpy(map, &words, sizeof words);
}

bool get(const void* map, TensorMapShape& shape) {
  TensorMap words;
  std::memcpy(&words, map, sizeof words);
  if (words.word[1] >> 32 != kMapMark) return false;
  shape.base = reinterpret_cast<const void*>(words.word[0]);
  shape.element_bytes = static_cast<int>(words.word[1] >> 16 & 0xff);
  shape.dimensions = static_cast<int>(words.word[1] >> 8 & 0xff);
  shape.swizzle = (words.word[1] & 1) != 0;
  for (int i = 0; i < kMaxDimensions; ++i) {
    shape.size[i] = (words.word[2 + i] & ~kNoAddress) >> 16;
    shape.box[i] = static_cast<std::uint32_t>(words.word[2 + i] & 0xffff);
    if (i + 1 < kMaxDimensions) shape.stride[i] = (words.word[7 + i] & ~kNoAddress) >> 16;
  }
  return true;
}

// The memory of a row of the box, or null if the row is outside the tensor.
const std::byte* row_of(const TileCopy& copy, std::size_t row) {
  const TensorMapShape& shape = copy.shape;
  std::int64_t offset = 0;
  for (int i = 1; i < shape.dimensions; ++i) {
    const std::int64_t index = copy.at[i] + static_cast<std::int64_t>(row % shape.box[i]);
    row /= shape.box[i];
    if (index < 0 || index >= static_cast<std::int64_t>(shape.size[i])) return nullptr;
    offset += index * static_cast<std::int64_t>(shape.stride[i - 1]);
  }
  return static_cast<const std::byte*>(shape.base) + offset;
}

// A write by the asynchronous proxy: visible to that proxy at once. ThreadSanitizer sees a memcpy whose size is not
// constant.
void write_shared(std::byte* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
  const Unseen bookkeeping;
  std::memcpy(proxy().known.data() + (to - shared()), from, bytes);
}

// Sixteen bytes of a row, from byte `first` of the box on; bytes outside the tensor are zero.
Bytes16 chunk_of(const TileCopy& copy, const std::byte* row, std::size_t first) {
  Bytes16 chunk = {};
  const auto begin = std::int64_t{copy.at[0]} * copy.shape.element_bytes + static_cast<std::int64_t>(first);
  const auto row_bytes = static_cast<std::int64_t>(copy.shape.size[0]) * copy.shape.element_bytes;
  const std::int64_t from = std::max<std::int64_t>(begin, 0), end = std::min(begin + 16, row_bytes);
  if (row != nullptr && from < end) {
    const auto count = static_cast<std::size_t>(end - from);
    std::memcpy(reinterpret_cast<std::byte*>(&chunk) + (from - begin), row + from, count);
  }
  return chunk;
}

void land(const TileCopy& copy) {
  acquire(copy.mbarrier->token());
  const std::size_t row_bytes = copy.shape.box[0] * static_cast<std::size_t>(copy.shape.element_bytes);
  const auto base = static_cast<std::size_t>(copy.to - shared());
  std::size_t chunk_bytes = sizeof(Bytes16);
  for (std::size_t at = 0; at < copy.bytes; at += chunk_bytes) {
    const Bytes16 chunk = chunk_of(copy, row_of(copy, at / row_bytes), at % row_bytes);
    write_shared(shared() + (copy.shape.swizzle ? swizzled(base + at) : base + at), &chunk, chunk_bytes);
  }
  release(copy.mbarrier->token());
}

// Records a copy; its destination in shared memory is NaN until it lands.
void start(const TileCopy& copy, const char* what, std::size_t alignment, const Site& site) {
  if (!is_shared(copy.to, copy.bytes))
    fail_with(site, what, " of ", copy.bytes, " bytes leaves the block's dynamic shared memory");
  if (static_cast<std::size_t>(copy.to - shared()) % alignment != 0)
    fail_with(site, what, " that is not ", alignment, "-byte aligned");
  const std::vector<std::byte> nothing(copy.bytes, std::byte{0xff});
  write_shared(copy.to, nothing.data(), copy.bytes);
  release(copy.mbarrier->token());  // the landing happens after this
  const Unseen bookkeeping;
  proxy().in_flight.push_back(copy);
}

}  // namespace

// ---- mbarriers ------------------------------------------------------------------------------------------------------

std::uint64_t init_mbarrier(const void* at, int arrivals, const Site& site) {
  check_hopper("an mbarrier", site);
  if (!is_shared(at, sizeof(std::uint64_t))) fail_with(site, "an mbarrier outside the block's dynamic shared memory");
  if (arrivals < 1) fail_with(site, "an mbarrier of ", arrivals, " arrivals");
  AsyncProxy& p = proxy();
  for (const Mbarrier& other : p.mbarriers)
    if (other.at == at) fail_with(site, "an mbarrier is made twice");
  Mbarrier& mbarrier = p.mbarriers.emplace_back();
  mbarrier.at = at;
  mbarrier.arrivals = arrivals;
  mbarrier.maker = thread_number();
  mbarrier.waited_for.assign(static_cast<std::size_t>(machine->threads), kNoPhase);
  return kMbarrierMark + p.mbarriers.size() - 1;
}

void publish_mbarriers() {
  for (Mbarrier& mbarrier : proxy().mbarriers)
    if (mbarrier.maker == thread_number()) mbarrier.is_published = true;
}

void arrive_at_mbarrier(std::uint64_t word, int bytes, const Site& site) {
  Mbarrier& mbarrier = mbarrier_of(word, site);
  if (mbarrier.barrier.arrived == mbarrier.arrivals)
    fail_with(site, "more than ", mbarrier.arrivals, " arrivals in one phase of an mbarrier");
  if (bytes < 0 || mbarrier.bytes + bytes > kMaxBytes) fail_with(site, "an mbarrier cannot expect so many bytes");
  release(mbarrier.token());
  mbarrier.bytes += bytes;
  ++mbarrier.barrier.arrived;
  if (mbarrier.is_complete()) mbarrier.barrier.open();
}

void wait_for_mbarrier(std::uint64_t word, int parity, const Site& site) {
  Mbarrier& mbarrier = mbarrier_of(word, site);
  std::int64_t& last = mbarrier.waited_for[static_cast<std::size_t>(thread_number())];
  const std::int64_t phase = last == kNoPhase ? (parity == 0 ? 0 : -1) : last + 1;
  if ((phase & 1) != parity) fail_with(site, "a thread waits twice for one phase of an mbarrier");
  last = phase;
  const auto ended = [&] { return std::int64_t{mbarrier.barrier.generation}; };
  if (ended() > phase + 1)
    fail_with(site, "an mbarrier is two phases further than a thread that waits for it: it would wait for ever");
  while (ended() <= phase) wait_for_opening(mbarrier.barrier, site);
  acquire(&mbarrier.barrier.token[phase & 1]);
}

std::string describe_mbarrier(const Barrier& barrier) {
  for (const Mbarrier& mbarrier : proxy().mbarriers) {
    if (&mbarrier.barrier != &barrier) continue;
    return concat(" for phase ", barrier.generation, " of the mbarrier at byte ",
                  static_cast<const std::byte*>(mbarrier.at) - shared(), " of shared memory (",
                  mbarrier.arrivals - barrier.arrived, " of ", mbarrier.arrivals, " arrivals and ", mbarrier.bytes,
                  " bytes are missing)");
  }
  return "";
}

// ---- Tensor maps ----------------------------------------------------------------------------------------------------

const char* encode_tensor_map(void* map, const TensorMapShape& shape) {
  constexpr std::uint64_t kLargestSize = std::uint64_t{1} << 32, kLargestStride = std::uint64_t{1} << 40;
  if (reinterpret_cast<std::uintptr_t>(shape.base) % 16 != 0) return "a tensor of a map is not 16-byte aligned";
  if (shape.dimensions < 1 || shape.dimensions > kMaxDimensions) return "a tensor map has 1 to 5 dimensions";
  for (int i = 0; i < shape.dimensions; ++i) {
    if (shape.size[i] < 1 || shape.size[i] > kLargestSize) return "a size in a tensor map is 0 or above 2^32";
    if (shape.box[i] < 1 || shape.box[i] > 256) return "a size of a tensor map's box is 0 or above 256";
    if (shape.element_step[i] != 1) return "steps between elements are not emulated";
    if (i == 0) continue;
    const std::uint64_t stride = shape.stride[i - 1];
    if (stride % 16 != 0 || stride >= kLargestStride) return "a stride in a tensor map is no multiple of 16 below 2^40";
  }
  const std::uint32_t row_bytes = shape.box[0] * static_cast<std::uint32_t>(shape.element_bytes);
  if (row_bytes % 16 != 0) return "a row of a tensor map's box is no multiple of 16 bytes";
  if (shape.swizzle && row_bytes > 128) return "a row of a swizzled box is longer than the 128 bytes of the swizzle";
  put(map, shape);
  return nullptr;
}

// ---- Copies ---------------------------------------------------------------------------------------------------------

void load_tile(void* to, const void* map, std::uint64_t word, const int* coordinates, int dimensions,
               const Site& site) {
  TileCopy copy{static_cast<std::byte*>(to), {}, {}, 0, &mbarrier_of(word, site)};
  if (!get(map, copy.shape)) fail_with(site, "a tensor map was not encoded");
  if (dimensions != copy.shape.dimensions)
    fail_with(site, dimensions, " coordinates for a tensor map of ", copy.shape.dimensions, " dimensions");
  std::copy_n(coordinates, dimensions, copy.at);
  copy.bytes = bytes_of_box(copy.shape);
  start(copy, "a tile", copy.shape.swizzle ? 1024 : 128, site);
}

void load_bytes_in_bulk(void* to, const void* from, int bytes, std::uint64_t word, const Site& site) {
  if (bytes < 16 || bytes % 16 != 0) fail_with(site, "a copy in bulk of ", bytes, " bytes, no multiple of 16");
  if (reinterpret_cast<std::uintptr_t>(from) % 16 != 0)
    fail_with(site, "a copy in bulk from an address that is not 16-byte aligned");
  TileCopy copy{static_cast<std::byte*>(to), {}, {}, static_cast<std::size_t>(bytes), &mbarrier_of(word, site)};
  copy.shape.base = from;
  copy.shape.element_bytes = 1;
  copy.shape.dimensions = 1;
  copy.shape.size[0] = copy.bytes;
  copy.shape.box[0] = static_cast<std::uint32_t>(bytes);
  start(copy, "a copy in bulk", 16, site);
}

bool land_a_copy() {
  AsyncProxy& p = proxy();
  if (p.in_flight.empty()) return false;
  const auto count = static_cast<std::ptrdiff_t>(p.in_flight.size());
  const Schedule::Order order = machine->schedule.order;
  const std::ptrdiff_t which = order == Schedule::Order::forward   ? 0
                               : order == Schedule::Order::reverse ? count - 1
                                                                   : static_cast<std::ptrdiff_t>(p.random()) % count;
  const TileCopy copy = p.in_flight[static_cast<std::size_t>(which)];
  p.in_flight.erase(p.in_flight.begin() + which);
  land(copy);
  Mbarrier& mbarrier = *copy.mbarrier;
  mbarrier.bytes -= static_cast<std::int64_t>(copy.bytes);
  if (mbarrier.bytes < 0)
    machine->failure = in_kernel(concat(-mbarrier.bytes, " bytes more land at an mbarrier than it was told to expect"));
  else if (mbarrier.is_complete())
    mbarrier.barrier.open();
  return true;
}

void publish_shared_memory() {
  const Unseen bookkeeping;
  std::memcpy(proxy().known.data(), shared(), machine->dynamic_bytes);
}

void check_async_read(const void* from, std::size_t bytes, const Site& site) {
  if (!is_shared(from, bytes)) fail_with(site, "a product reads outside the block's dynamic shared memory");
  const Unseen bookkeeping;
  const auto offset = static_cast<const std::byte*>(from) - shared();
  if (std::memcmp(from, proxy().known.data() + offset, bytes) != 0)
    fail_with(site, "a product reads shared memory that a thread has written, with no fence_async_proxy between");
}

// ---- Called by the scheduler ----------------------------------------------------------------------------------------

void reset_async_proxy() {
  AsyncProxy& p = proxy();
  p.mbarriers.clear();
  p.in_flight.clear();
  if (capability() == kHopper) p.known.assign(machine->dynamic_bytes, std::byte{0xff});
  p.random.seed(machine->schedule.seed);
}

const char* error_of_copies() {
  return proxy().in_flight.empty() ? nullptr : "the block ends while a tile is in flight";
}

}  // namespace isobar::emulator
