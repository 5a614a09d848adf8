// copy_strided on CUDA: it moves the widest words, up to 16 bytes, for which starts and strides are aligned.
#include "kernels/copy_strided.h"

#include "kernels/cuda/array.h"
#include "kernels/cuda/launch.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

// N · 2 bytes, aligned to their size.
template <int N>
using Word = Chunk<std::uint16_t, N>;

// The words of all blocks are assigned to the threads cyclically; a thread divides once, and then only adds.
template <int N>
__global__ void __launch_bounds__(kMapThreads)
    copy_strided_kernel(std::int64_t blocks, std::int64_t words, std::int64_t source_stride,
                        std::int64_t destination_stride, const std::uint16_t* source, std::uint16_t* destination) {
  const std::int64_t block_step = global_threads() / words, word_step = global_threads() % words;
  std::int64_t block = global_thread() / words, word = global_thread() % words;
  while (block < blocks) {
    const std::uint16_t* from = source + (block * source_stride + word) * N;
    std::uint16_t* to = destination + (block * destination_stride + word) * N;
    require_aligned<std::uint16_t, N>(from);
    require_aligned<std::uint16_t, N>(to);
    *reinterpret_cast<Word<N>*>(to) = *reinterpret_cast<const Word<N>*>(from);
    block += block_step;
    word += word_step;
    if (word >= words) {
      word -= words;
      ++block;
    }
  }
}

template <int N>
void run(const CopyStridedArgs& a, Stream stream) {
  const auto words_in = [&](std::int64_t elements) {
    return elements * static_cast<std::int64_t>(size_of(a.dtype)) / static_cast<std::int64_t>(sizeof(Word<N>));
  };
  const std::int64_t words = words_in(a.length);
  launch("copy_strided", copy_strided_kernel<N>, dim3(map_blocks<1>(a.blocks * words)), dim3(kMapThreads), 0, stream,
         a.blocks, words, words_in(a.source_stride), words_in(a.destination_stride),
         static_cast<const std::uint16_t*>(a.source), static_cast<std::uint16_t*>(a.destination));
}

}  // namespace

void copy_strided(const CopyStridedArgs& a, Stream stream) {
  ISOBAR_CHECK(a.blocks <= 1 || a.destination_stride >= a.length, "copy_strided: blocks of ", a.length,
               " elements overlap at a distance of ", a.destination_stride);
  if (a.blocks == 0 || a.length == 0) return;
  const std::int64_t strides = a.blocks > 1 ? a.source_stride | a.destination_stride : 0;
  const std::uint64_t sizes = static_cast<std::uint64_t>(a.length | strides) * size_of(a.dtype);
  const std::uint64_t lowest = sizes | reinterpret_cast<std::uintptr_t>(a.source) |
                               reinterpret_cast<std::uintptr_t>(a.destination);  // low zero bits: zero in all
  if (lowest % 16 == 0) return run<8>(a, stream);
  if (lowest % 8 == 0) return run<4>(a, stream);
  if (lowest % 4 == 0) return run<2>(a, stream);
  run<1>(a, stream);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
