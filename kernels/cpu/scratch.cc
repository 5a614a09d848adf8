#include "kernels/cpu/scratch.h"

#include <cstdlib>

#include "kernels/common/check.h"
#include "kernels/common/math.h"

namespace isobar::cpu {
namespace {

struct Block {
  void* data = nullptr;
  std::size_t bytes = 0;
  ~Block() { std::free(data); }
};

}  // namespace

void* scratch(Scratch slot, std::size_t bytes) {
  thread_local Block blocks[kScratchSlots];
  Block& block = blocks[static_cast<int>(slot)];
  if (block.bytes < bytes) {
    constexpr std::size_t kPage = 4096;
    const std::size_t rounded = round_up(bytes, kPage);
    std::free(block.data);
    block = {};
    block.data = std::aligned_alloc(kPage, rounded);
    ISOBAR_CHECK(block.data != nullptr, "out of memory: a CPU kernel asked for ", rounded, " bytes of scratch");
    block.bytes = rounded;
  }
  return block.data;
}

}  // namespace isobar::cpu
