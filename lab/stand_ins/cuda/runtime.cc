// The rest of the CUDA runtime on the virtual GPU: devices, memory, copies and kernels.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "kernels/emulator/async_proxy.h"
#include "kernels/emulator/devices.h"
#include "kernels/emulator/emulator.h"
#include "lab/stand_ins/cuda/driver.h"

extern "C" const char __executable_start;  // defined by the linker

namespace isobar::virtual_gpu {
namespace {

constexpr int kVersion = 13000;
constexpr std::size_t kMaxParameterBytes = 4096;

int compute_capability() {
  return static_cast<int>(number_setting("ISOBAR_VIRTUAL_GPU_CAPABILITY", emulator::kAmpere));
}

int multiprocessors() {
  return static_cast<int>(number_setting("ISOBAR_VIRTUAL_GPU_MULTIPROCESSORS", 4));
}

}  // namespace
}  // namespace isobar::virtual_gpu

struct CUmemPoolHandle_st {
  int device;
};

namespace isobar::virtual_gpu {
namespace {

// The default pool of a device.
cudaMemPool_t pool_of(int device) {
  static auto* pools = new std::map<int, CUmemPoolHandle_st>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return &pools->emplace(device, CUmemPoolHandle_st{device}).first->second;
}

// ---- Copies ---------------------------------------------------------------------------------------------------------

// FNV-1a (Fowler, Noll, Vo): detects changed bytes.
std::uint64_t checksum(const std::byte* data, std::size_t bytes) {
  std::uint64_t sum = 0xcbf29ce484222325u;
  for (std::size_t i = 0; i < bytes; ++i) sum = (sum ^ static_cast<std::uint64_t>(data[i])) * 0x100000001b3u;
  return sum;
}

void copy_within_device(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  queue(stream, {.name = "copy within the device",
                 .run = [=] { std::memmove(view(to), view(from), bytes); },
                 .operands = {{from, bytes, "its source"}, {to, bytes, "its destination", true}},
                 .handles_numbers = true});
}

// Checked when the stream reaches the copy.
void check_still_pinned(const void* data, std::size_t bytes, const char* which) {
  ISOBAR_CHECK(is_pinned(data, bytes), which, " was freed before the copy was made");
}

// Ordinary memory is read at the call. Pinned memory is read when the stream reaches the copy.
void copy_to_device(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  const auto* source = static_cast<const std::byte*>(from);
  const bool pinned = is_pinned(from, bytes);
  if (capture_of(stream) != nullptr && !pinned)
    misuse(cudaErrorStreamCaptureUnsupported, "a graph would copy from ordinary memory of the host");
  Operation copy{.name = "copy to the device",
                 .run = {},
                 .operands = {{to, bytes, "its destination", true}},
                 .facts = pinned ? "\"pinned\": true" : "\"pinned\": false",
                 .handles_numbers = true};
  if (capture_of(stream) != nullptr) {
    copy.run = [=] {
      check_still_pinned(source, bytes, "the source of a copy to the device");
      std::memcpy(view(to), source, bytes);
    };
  } else if (pinned) {
    copy.run = [=, sum = checksum(source, bytes)] {
      check_still_pinned(source, bytes, "the source of a copy to the device");
      ISOBAR_CHECK(checksum(source, bytes) == sum,
                   "the source of a copy to the device was changed before the copy was made");
      std::memcpy(view(to), source, bytes);
    };
  } else {
    copy.run = [to, staged = std::vector<std::byte>(source, source + bytes)] {
      std::memcpy(view(to), staged.data(), staged.size());
    };
  }
  queue(stream, std::move(copy));
}

// Pinned memory holds NaN until the stream reaches the copy. For ordinary memory the host waits.
void copy_to_host(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  const bool pinned = is_pinned(to, bytes);
  if (!pinned) refuse_in_capture("copies to ordinary memory of the host");
  if (pinned && capture_of(stream) == nullptr) std::memset(to, computes() ? 0xff : 0, bytes);
  queue(stream, {.name = "copy to the host",
                 .run =
                     [=] {
                       if (pinned) check_still_pinned(to, bytes, "the destination of a copy to the host");
                       std::memcpy(to, view(from), bytes);
                     },
                 .operands = {{from, bytes, "its source"}},
                 .facts = pinned ? "\"pinned\": true" : "\"pinned\": false",
                 .handles_numbers = true});
  if (!pinned) synchronize(stream);
}

void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (bytes == 0) return;
  const bool to_device = is_device_address(to), from_device = is_device_address(from);
  const bool is_right = kind == cudaMemcpyDefault || (kind == cudaMemcpyDeviceToDevice && to_device && from_device) ||
                        (kind == cudaMemcpyHostToDevice && to_device && !from_device) ||
                        (kind == cudaMemcpyDeviceToHost && !to_device && from_device);
  if (!is_right) misuse(cudaErrorInvalidValue, "the direction of a copy is not that of its addresses");
  count(Count::copies);
  count(Count::copied_bytes, bytes);
  if (to_device && from_device) return copy_within_device(to, from, bytes, stream);
  if (to_device) return copy_to_device(to, from, bytes, stream);
  if (from_device) return copy_to_host(to, from, bytes, stream);
  misuse(cudaErrorInvalidValue, "a copy from the host to the host");
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

void* allocate(std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) misuse(cudaErrorInvalidValue, "no bytes are asked for");
  const SharedAllocation allocation = reserve(bytes, capture_of(stream));
  count(Count::allocations);
  count(Count::allocated_bytes, bytes);
  queue(stream, {.name = "allocation",
                 .run =
                     [allocation] {
                       ISOBAR_CHECK(!allocation->is_mapped,
                                    "a graph is launched again before the memory of its last launch is freed: ",
                                    describe(*allocation));
                       map(*allocation);
                     },
                 .operands = {},
                 .allocates = allocation});
  return const_cast<std::byte*>(allocation->address);
}

void free(void* data, cudaStream_t stream) {
  const SharedAllocation allocation = find_allocation(data);
  if (allocation == nullptr || allocation->address != data)
    misuse(cudaErrorInvalidValue, "what is freed is not the begin of memory of the device");
  if (capture_of(stream) != allocation->graph)
    misuse(cudaErrorInvalidValue,
           capture_of(stream) == nullptr ? "memory of a graph is freed outside of it: "
                                         : "memory that a graph has not allocated is freed in it: ",
           describe(*allocation));
  mark_freed(*allocation);
  queue(stream, {.name = "free",
                 .run =
                     [allocation] {
                       ISOBAR_CHECK(allocation->is_mapped,
                                    "memory is freed that its stream has not allocated yet: ", describe(*allocation));
                       unmap(*allocation);
                     },
                 .operands = {},
                 .frees = allocation});
}

// ---- Kernels --------------------------------------------------------------------------------------------------------

// The offsets of device addresses among the parameters. Error if an address points to freed memory.
std::vector<std::size_t> addresses_in(const std::vector<std::byte>& bytes, std::vector<Operand>& operands) {
  std::vector<std::size_t> places;
  for (std::size_t at = 0; at + sizeof(void*) <= bytes.size(); at += sizeof(void*)) {
    const void* word = nullptr;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    if (is_host_memory(word))
      misuse(cudaErrorInvalidValue, "a pointer among its parameters is memory of the host, at byte ", at);
    if (!is_device_address(word)) continue;
    places.push_back(at);
    operands.push_back({word, 0, "a pointer among its parameters"});
  }
  return places;
}

void use_views(Parameters& parameters, const std::vector<std::size_t>& places) {
  for (const std::size_t at : places) {
    const void* word = nullptr;
    std::memcpy(&word, parameters.bytes.data() + at, sizeof word);
    const void* bytes = view(word);
    std::memcpy(parameters.bytes.data() + at, &bytes, sizeof bytes);
  }
}

// `function`: the kernel's offset from the beginning of the program, as printed by nm.
std::string facts_of(const cudaLaunchConfig_t& config, const Parameters& parameters) {
  const auto at = static_cast<const char*>(parameters.kernel) - &__executable_start;
  const dim3 &grid = config.gridDim, &block = config.blockDim;
  return concat("\"function\": ", at, ", \"grid\": [", grid.x, ", ", grid.y, ", ", grid.z,
                "], \"threads\": ", block.x * block.y * block.z, ", \"shared\": ", config.dynamicSmemBytes);
}

emulator::dim3 emulated(const dim3& size) {
  return {size.x, size.y, size.z};
}

struct LocalDriver final : Driver {
  cudaError_t call(const char* function, const std::function<void()>& body) override {
    return virtual_gpu::call(function, body);
  }
  std::string explain(cudaError_t error) override { return virtual_gpu::explain(error); }
  void queue(cudaStream_t stream, Operation operation) override {
    count(Count::products);
    operation.handles_numbers = true;
    virtual_gpu::queue(stream, std::move(operation));
  }
  std::byte* view(const void* data) override { return virtual_gpu::view(data); }
  bool is_allocated(const void* data, std::size_t bytes) override {
    const SharedAllocation allocation = find_allocation(data);
    return allocation != nullptr && !allocation->is_freed &&
           static_cast<const std::byte*>(data) + bytes <= allocation->address + allocation->bytes;
  }
  void refuse_in_capture(const char* what) override { virtual_gpu::refuse_in_capture(what); }
};

}  // namespace

cudaError_t launch(const cudaLaunchConfig_t& config, void (*body)(const void*), Parameters parameters) {
  return call("cudaLaunchKernelExC", [&] {
    const std::string name = innermost_range();
    if (parameters.bytes.size() > kMaxParameterBytes)
      misuse(cudaErrorInvalidValue, "kernel ", name, " has more than ", kMaxParameterBytes, " bytes of parameters");
    const emulator::dim3 grid = emulated(config.gridDim), size = emulated(config.blockDim);
    emulator::set_capability(compute_capability() == emulator::kHopper ? emulator::kHopper : emulator::kAmpere);
    const std::size_t shared = config.dynamicSmemBytes;
    try {
      emulator::check_limits(name.c_str(), grid, size, shared);
    } catch (const Error& error) {
      misuse(cudaErrorInvalidValue, error.what());
    }
    count(Count::launches);
    Operation operation{.name = "kernel " + name,
                        .run = {},
                        .operands = {},
                        .is_kernel = true,
                        .facts = facts_of(config, parameters),
                        .handles_numbers = true};
    use_views(parameters, addresses_in(parameters.bytes, operation.operands));
    operation.run = [=, parameters = std::move(parameters)] {
      emulator::run_grid(name.c_str(), grid, size, shared, body, &parameters);
    };
    queue(config.stream, std::move(operation));
  });
}

Driver& driver() {
  static LocalDriver instance;
  return instance;
}

}  // namespace isobar::virtual_gpu

namespace emulator = isobar::emulator;
using namespace isobar::virtual_gpu;

// cublaslt.cc, a separate library, finds it.
extern "C" [[gnu::visibility("default")]] Driver* isobar_virtual_gpu_driver() {
  return &driver();
}

// ---- Devices --------------------------------------------------------------------------------------------------------

cudaError_t cudaRuntimeGetVersion(int* version) {
  return call("cudaRuntimeGetVersion", [&] { *version = kVersion; });
}

cudaError_t cudaDriverGetVersion(int* version) {
  return call("cudaDriverGetVersion",
              [&] { *version = static_cast<int>(number_setting("ISOBAR_VIRTUAL_GPU_DRIVER", kVersion)); });
}

cudaError_t cudaGetDeviceCount(int* count) {
  return call("cudaGetDeviceCount", [&] {
    if (number_setting("ISOBAR_VIRTUAL_GPU_DRIVER", kVersion) < kVersion)
      refuse(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version");
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    if (visible != nullptr && *visible == '\0') refuse(cudaErrorNoDevice, "no CUDA-capable device is detected");
    *count = device_count();
  });
}

cudaError_t cudaGetDevice(int* device) {
  return call("cudaGetDevice", [&] { *device = current_device(); });
}

cudaError_t cudaSetDevice(int device) {
  return call("cudaSetDevice", [&] {
    check_device(device);
    set_current_device(device);
    use_context("cudaSetDevice");
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call("cudaGetDeviceProperties", [&] {
    check_device(device);
    *properties = {.name = "virtual GPU",
                   .uuid = {"isobar-virtual0"},
                   .totalGlobalMem = total_memory(),
                   .major = compute_capability() / 10,
                   .minor = compute_capability() % 10,
                   .multiProcessorCount = multiprocessors()};
    properties->uuid.bytes[13] = static_cast<char>('l' + device);
    properties->uuid.bytes[14] = static_cast<char>('0' + number_setting("ISOBAR_VIRTUAL_GPU_NUMBER", 0) % 10);
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return call("cudaDeviceGetAttribute", [&] {
    check_device(device);
    if (attribute == cudaDevAttrMultiProcessorCount)
      *value = multiprocessors();
    else if (attribute == cudaDevAttrComputeCapabilityMajor)
      *value = compute_capability() / 10;
    else if (attribute == cudaDevAttrComputeCapabilityMinor)
      *value = compute_capability() % 10;
    else
      misuse(cudaErrorInvalidValue, "attribute ", static_cast<int>(attribute), " is not known");
  });
}

// Resets errors, call counts, and everything that the program has not freed or destroyed.
cudaError_t cudaDeviceReset() {
  reset_calls();
  return call("cudaDeviceReset", [&] {
    reset_streams();
    forget_memory();
    forget_contexts();
  });
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return call("cudaDeviceGetDefaultMemPool", [&] {
    check_device(device);
    *pool = pool_of(device);
  });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return call("cudaMemPoolSetAttribute", [&] {
    if (attribute != cudaMemPoolAttrReleaseThreshold)
      misuse(cudaErrorInvalidValue, "an attribute of a pool that does not exist: ", static_cast<int>(attribute));
    std::uint64_t threshold = 0;
    std::memcpy(&threshold, value, sizeof threshold);
    keep_freed_memory(pool->device, threshold > 0);
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, std::size_t least) {
  return call("cudaMemPoolTrimTo", [&] { trim_pool(pool->device, least); });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return call("cudaDeviceCanAccessPeer", [&] {
    check_device(device);
    check_device(peer);
    *can = device == peer ? 0 : 1;
  });
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* accesses, std::size_t count) {
  return call("cudaMemPoolSetAccess", [&] {
    for (std::size_t i = 0; i < count; ++i) {
      const cudaMemAccessDesc& access = accesses[i];
      check_device(access.location.id);
      if (access.location.type != cudaMemLocationTypeDevice || access.flags != cudaMemAccessFlagsProtReadWrite)
        misuse(cudaErrorInvalidValue, "a kind of access to a pool that is not known here");
      if (access.location.id == pool->device) misuse(cudaErrorInvalidValue, "a pool is told of its own device");
      let_access(pool->device, access.location.id);
    }
  });
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return call("cudaMemGetInfo", [&] {
    *total = total_memory();
    *free = *total - held_memory(current_device());
  });
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  return call("cudaGetDriverEntryPointByVersion", [&] {
    constexpr unsigned kSince = 12000;
    const bool is_known = std::strcmp(symbol, "cuTensorMapEncodeTiled") == 0 && version >= kSince;
    *function = is_known ? reinterpret_cast<void*>(cuTensorMapEncodeTiled) : nullptr;
    *found = is_known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  });
}

// The emulator's tensor map of a device address: a kernel's launch finds the address among the parameters.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base,
                                const cuuint64_t* size, const cuuint64_t* stride, const cuuint32_t* box,
                                const cuuint32_t* element_step, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  call("cuTensorMapEncodeTiled", [&] {
    if (compute_capability() < emulator::kHopper)
      misuse(cudaErrorNotSupported, "tensor maps need compute capability 9.0");
    const bool is_known = rank >= 1 && rank <= emulator::kMaxDimensions && fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE &&
                          interleave == CU_TENSOR_MAP_INTERLEAVE_NONE &&
                          (type == CU_TENSOR_MAP_DATA_TYPE_UINT16 || type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 ||
                           type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16) &&
                          (swizzle == CU_TENSOR_MAP_SWIZZLE_NONE || swizzle == CU_TENSOR_MAP_SWIZZLE_128B);
    if (reinterpret_cast<std::uintptr_t>(map) % 64 != 0)
      misuse(cudaErrorInvalidValue, "a tensor map is not 64-byte aligned");
    if (!is_known) misuse(cudaErrorInvalidValue, "a kind of tensor map that is not known here");
    if (!is_device_address(base)) misuse(cudaErrorInvalidValue, "the tensor of a map is no memory of the device");
    emulator::TensorMapShape shape{
        .base = base, .dimensions = static_cast<int>(rank), .swizzle = swizzle == CU_TENSOR_MAP_SWIZZLE_128B};
    std::copy_n(size, rank, shape.size);
    std::copy_n(stride, rank - 1, shape.stride);
    std::copy_n(box, rank, shape.box);
    std::copy_n(element_step, rank, shape.element_step);
    const char* const wrong = emulator::encode_tensor_map(map, shape);
    if (wrong != nullptr) misuse(cudaErrorInvalidValue, wrong);
    result = CUDA_SUCCESS;
  });
  return result;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return call("cudaFuncSetAttribute", [] {});
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  return call("cudaMalloc", [&] {
    refuse_in_capture("allocates memory");
    *data = allocate(bytes, nullptr);
    synchronize(nullptr);
  });
}

cudaError_t cudaFree(void* data) {
  return call("cudaFree", [&] {
    if (data == nullptr) return;
    refuse_in_capture("frees memory");
    isobar::virtual_gpu::free(data, nullptr);
    synchronize(nullptr);
  });
}

cudaError_t cudaMallocAsync(void** data, std::size_t bytes, cudaStream_t stream) {
  return call("cudaMallocAsync", [&] { *data = allocate(bytes, stream); });
}

cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  return call("cudaFreeAsync", [&] { isobar::virtual_gpu::free(data, stream); });
}

cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  return call("cudaMallocHost", [&] {
    refuse_in_capture("pins memory");
    *data = allocate_pinned(bytes);
  });
}

cudaError_t cudaFreeHost(void* data) {
  return call("cudaFreeHost", [&] { free_pinned(data); });
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return call("cudaMemcpy", [&] {
    refuse_in_capture("waits for a copy");
    copy(to, from, bytes, kind, nullptr);
    synchronize(nullptr);
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return call("cudaMemcpyAsync", [&] { copy(to, from, bytes, kind, stream); });
}
