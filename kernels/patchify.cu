// patchify on CUDA. A block moves a tile through shared memory (kernels/cuda/patch_tiles.h).
#include "kernels/patchify.h"

#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/patch_tiles.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

// Whether the element types guarantee that all chunks are whole.
template <class I, class T>
constexpr bool kWhole = !std::is_same_v<I, AnyType> && !std::is_same_v<T, AnyType>;

template <class T>
struct Storer {
  Writer<T, kTileChunk> to;
  const float* tile;
  __device__ void operator()(const TileChunk& at) const {
    float v[kTileChunk];
    for (int k = 0; k < kTileChunk; ++k) v[k] = k < at.count ? tile[at.shared + k * at.stride] : 0.0f;
    to.write(at.element, at.count, v);
  }
};

// I is the element type of the image, T that of the tokens; or both are AnyType.
template <class I, class T>
__global__ void __launch_bounds__(kTileThreads)
    patchify_kernel(Patches a, Reader<I, kTileChunk> image, Writer<T, kTileChunk> tokens) {
  ISOBAR_DYNAMIC_SHARED(float, shared);
  for (int index = static_cast<int>(blockIdx.x); index < a.tiles; index += static_cast<int>(gridDim.x)) {
    const Tile tile = tile_at(a, index);
    for_each_image_chunk<kWhole<I, T>>(a, tile, TileLoader<I>{image, shared});
    __syncthreads();
    for_each_token_chunk<kWhole<I, T>>(a, tile, Storer<T>{tokens, shared});
    __syncthreads();
  }
}

template <class I, class T>
__global__ void __launch_bounds__(kTileThreads)
    unpatchify_kernel(Patches a, Reader<T, kTileChunk> tokens, Writer<I, kTileChunk> image) {
  ISOBAR_DYNAMIC_SHARED(float, shared);
  for (int index = static_cast<int>(blockIdx.x); index < a.tiles; index += static_cast<int>(gridDim.x)) {
    const Tile tile = tile_at(a, index);
    for_each_token_chunk<kWhole<I, T>>(a, tile, TileLoader<T>{tokens, shared});
    __syncthreads();
    for_each_image_chunk<kWhole<I, T>>(a, tile, Storer<I>{image, shared});
    __syncthreads();
  }
}

// Calls f(Type<I>{}, Type<T>{}). Images in fp32 with aligned chunks (tokens too) have their own instances.
template <class F>
void with_types(const Input& from, const Output& to, DType image_dtype, DType token_dtype, const F& f) {
  if (image_dtype != DType::fp32 || !all_packed(from, to)) return f(Type<AnyType>{}, Type<AnyType>{});
  visit_cuda_floating(token_dtype, [&]<class T>(Type<T> type) { f(Type<float>{}, type); });
}

}  // namespace

void patchify(const PatchifyArgs& a, Stream stream) {
  require_cuda_dtypes("patchify", a.image_dtype, a.token_dtype);
  const Patches p = patches("patchify", a, a.order);
  if (p.tiles == 0) return;
  const Input image = input<kTileChunk>(a.image, a.image_dtype, image_run(p));
  const Output tokens = output<kTileChunk>(a.tokens, a.token_dtype, token_run(p));
  with_types(image, tokens, a.image_dtype, a.token_dtype, [&]<class I, class T>(Type<I>, Type<T>) {
    launch("patchify", patchify_kernel<I, T>, dim3(blocks_for(p.tiles, 1, grid_limit(1 << 16))), dim3(kTileThreads),
           shared_bytes(p), stream, p, Reader<I, kTileChunk>(image), Writer<T, kTileChunk>(tokens));
  });
}

void unpatchify(const UnpatchifyArgs& a, Stream stream) {
  require_cuda_dtypes("unpatchify", a.image_dtype, a.token_dtype);
  const Patches p = patches("unpatchify", a, a.order);
  if (p.tiles == 0) return;
  const Input tokens = input<kTileChunk>(a.tokens, a.token_dtype, token_run(p));
  const Output image = output<kTileChunk>(a.image, a.image_dtype, image_run(p));
  with_types(tokens, image, a.image_dtype, a.token_dtype, [&]<class I, class T>(Type<I>, Type<T>) {
    launch("unpatchify", unpatchify_kernel<I, T>, dim3(blocks_for(p.tiles, 1, grid_limit(1 << 16))), dim3(kTileThreads),
           shared_bytes(p), stream, p, Reader<T, kTileChunk>(tokens), Writer<I, kTileChunk>(image));
  });
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
