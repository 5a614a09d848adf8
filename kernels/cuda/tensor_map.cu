// The host's side of TMA: the driver makes CUDA's tensor maps, and the emulator its own.
#include "kernels/cuda/tensor_map.h"

#include <algorithm>

#include "kernels/common/check.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {
namespace {

// g++ 12 may build a result at an unaligned address of the caller, but aligns it if it is a member of a struct.
struct AlignedMap {
  alignas(128) TensorMap map;
};

}  // namespace

#if defined(ISOBAR_EMULATE) && !defined(ISOBAR_VIRTUAL_GPU)

TensorMap tensor_map_of(const TiledTensor& tensor) {
  TensorMapShape shape{.base = tensor.base, .dimensions = 4, .swizzle = true};
  std::copy_n(tensor.size, 4, shape.size);
  std::copy_n(tensor.stride, 3, shape.stride);
  std::copy_n(tensor.box, 4, shape.box);
  AlignedMap aligned;
  const char* const wrong = encode_tensor_map(&aligned.map, shape);
  ISOBAR_CHECK(wrong == nullptr, wrong);
  return aligned.map;
}

#else

namespace {

// The driver's function. It is not linked, because the program also runs without a driver.
decltype(&cuTensorMapEncodeTiled) find_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  constexpr unsigned kSince = 12000;
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kSince, cudaEnableDefault, &found);
#else
  const cudaError_t status = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
  ISOBAR_CHECK(status == cudaSuccess && found == cudaDriverEntryPointSuccess,
               "the NVIDIA driver has no cuTensorMapEncodeTiled, which kernels for compute capability 9.0 need");
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

}  // namespace

TensorMap tensor_map_of(const TiledTensor& tensor) {
  static const auto encode = find_encoder();
  constexpr std::uint32_t kEveryElement[] = {1, 1, 1, 1};
  AlignedMap aligned;
  const CUresult status =
      encode(&aligned.map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, const_cast<void*>(tensor.base),
             reinterpret_cast<const cuuint64_t*>(tensor.size), reinterpret_cast<const cuuint64_t*>(tensor.stride),
             tensor.box, kEveryElement, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  ISOBAR_CHECK(status == CUDA_SUCCESS, "cuTensorMapEncodeTiled refuses a tensor [", tensor.size[3], ", ",
               tensor.size[2], ", ", tensor.size[1], ", ", tensor.size[0], "] with strides of ", tensor.stride[2], ", ",
               tensor.stride[1], " and ", tensor.stride[0], " bytes: error ", static_cast<int>(status));
  return aligned.map;
}

#endif

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
