// normalize on CUDA: the grid's y is over the planes of the output, its x over chunks of a plane.
#include "kernels/normalize.h"

#include "kernels/cuda/array.h"
#include "kernels/cuda/launch.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

constexpr int kChunk = 4;

__global__ void __launch_bounds__(kMapThreads)
    normalize_kernel(std::int64_t batch, std::int64_t channels, std::int64_t extra, std::int64_t pixels, Input x,
                     const double* mean, const double* std, const double* planes, Output y) {
  const std::int64_t outputs = channels + extra;
  for (std::int64_t plane = blockIdx.y; plane < batch * outputs; plane += gridDim.y) {
    const std::int64_t b = plane / outputs, c = plane % outputs;
    const bool is_field = c < channels;
    const float m = is_field ? static_cast<float>(mean[c]) : 0.0f;
    const float s = is_field ? static_cast<float>(std[c]) : 1.0f;
    const float constant = is_field ? 0.0f : static_cast<float>(planes[b * extra + c - channels]);
    for_each_chunk<kChunk>(pixels, [&](std::int64_t i, int count) {
      float v[kChunk] = {constant, constant, constant, constant};
      if (is_field) {
        load(x, (b * channels + c) * pixels + i, count, v);
        for (float& pixel : v) pixel = (pixel - m) / s;
      }
      store(y, plane * pixels + i, count, v);
    });
  }
}

// normalize_kernel where points may be missing: they are filled, and planes say where they are.
__global__ void __launch_bounds__(kMapThreads)
    normalize_missing_kernel(std::int64_t batch, std::int64_t channels, std::int64_t mask_count, std::int64_t extra,
                             std::int64_t pixels, Input x, const double* mean, const double* std, const double* fill,
                             const std::int32_t* masks, const double* planes, Output y) {
  const std::int64_t outputs = channels + mask_count + extra;
  for (std::int64_t plane = blockIdx.y; plane < batch * outputs; plane += gridDim.y) {
    const std::int64_t b = plane / outputs, c = plane % outputs, mask = c - channels, e = mask - mask_count;
    const bool is_field = mask < 0, is_mask = !is_field && e < 0;
    const std::int64_t channel = is_field ? c : is_mask ? masks[mask] : 0;
    const float m = is_field ? static_cast<float>(mean[c]) : 0.0f;
    const float s = is_field ? static_cast<float>(std[c]) : 1.0f;
    const bool is_filled = is_field && fill != nullptr;
    const float instead = is_filled ? static_cast<float>(fill[c]) : 0.0f;
    const float constant = is_field || is_mask ? 0.0f : static_cast<float>(planes[b * extra + e]);
    for_each_chunk<kChunk>(pixels, [&](std::int64_t i, int count) {
      float v[kChunk] = {constant, constant, constant, constant};
      if (is_field || is_mask) load(x, (b * channels + channel) * pixels + i, count, v);
      for (float& pixel : v) {
        const bool present = pixel == pixel;
        if (is_mask) pixel = present ? 1.0f : 0.0f;
        if (is_field) pixel = ((present || !is_filled ? pixel : instead) - m) / s;
      }
      store(y, plane * pixels + i, count, v);
    });
  }
}

__global__ void __launch_bounds__(kMapThreads)
    denormalize_kernel(std::int64_t batch, std::int64_t channels, std::int64_t pixels, Input x, const double* mean,
                       const double* std, Output y) {
  for (std::int64_t plane = blockIdx.y; plane < batch * channels; plane += gridDim.y) {
    const float m = static_cast<float>(mean[plane % channels]), s = static_cast<float>(std[plane % channels]);
    for_each_chunk<kChunk>(pixels, [&](std::int64_t i, int count) {
      float v[kChunk];
      load(x, plane * pixels + i, count, v);
      for (float& pixel : v) pixel = pixel * s + m;
      store(y, plane * pixels + i, count, v);
    });
  }
}

// Throws the Error of kernels/normalize.h. The CPU throws it too, for its 16-bit dtypes.
void require_fp32(const char* kernel, DType dtype) {
  require_cuda_dtypes(kernel, dtype);
  ISOBAR_CHECK(dtype == DType::fp32, kernel, ": ", name_of(dtype), " is not a dtype of this kernel; use fp32");
}

dim3 plane_grid(std::int64_t planes, std::int64_t pixels) {
  return dim3(blocks_for(pixels, kMapThreads * kChunk * 4, grid_limit(1024)),
              blocks_for(planes, 1, grid_limit(1 << 15)));
}

}  // namespace

void normalize(const NormalizeArgs& a, Stream stream) {
  require_fp32("normalize", a.dtype);
  const std::int64_t pixels = a.height * a.width, planes = a.batch * (a.channels + a.mask_count + a.extra);
  if (planes * pixels == 0) return;
  const Input x = input<kChunk>(a.x, DType::fp32, pixels);
  const Output y = output<kChunk>(a.y, a.dtype, pixels);
  if (a.fill == nullptr && a.mask_count == 0)
    launch("normalize", normalize_kernel, plane_grid(planes, pixels), dim3(kMapThreads), 0, stream, a.batch, a.channels,
           a.extra, pixels, x, a.mean, a.std, a.planes, y);
  else
    launch("normalize", normalize_missing_kernel, plane_grid(planes, pixels), dim3(kMapThreads), 0, stream, a.batch,
           a.channels, a.mask_count, a.extra, pixels, x, a.mean, a.std, a.fill, a.masks, a.planes, y);
}

void denormalize(const DenormalizeArgs& a, Stream stream) {
  require_fp32("denormalize", a.dtype);
  const std::int64_t pixels = a.height * a.width, planes = a.batch * a.channels;
  if (planes * pixels == 0) return;
  launch("denormalize", denormalize_kernel, plane_grid(planes, pixels), dim3(kMapThreads), 0, stream, a.batch,
         a.channels, pixels, input<kChunk>(a.x, a.dtype, pixels), a.mean, a.std,
         output<kChunk>(a.y, DType::fp32, pixels));
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
