// copy_strided on the CPU: the elements are split evenly, so that one long block and many short ones keep all threads
// busy.
#include "kernels/copy_strided.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"

namespace isobar::cpu::ISOBAR_ISA {

void copy_strided(const CopyStridedArgs& a) {
  const auto size = static_cast<std::int64_t>(size_of(a.dtype));
  const auto* source = static_cast<const char*>(a.source);
  auto* destination = static_cast<char*>(a.destination);
  parallel_for_elements(a.blocks * a.length, kGrain, [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {  // up to the end of begin's block
      const std::int64_t block = begin / a.length, at = begin % a.length;
      const std::int64_t n = a.length - at < end - begin ? a.length - at : end - begin;
      __builtin_memcpy(destination + (block * a.destination_stride + at) * size,
                       source + (block * a.source_stride + at) * size, static_cast<std::size_t>(n * size));
      begin += n;
    }
  });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(copy_strided, CopyStridedArgs)
