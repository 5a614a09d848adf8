// NVIDIA's own cuDNN for a program on a machine without a GPU: a libcudnn.so.9 that passes every description on to the
// file that ISOBAR_NVIDIAS_CUDNN names. In place of a handle the library gets the properties of an H100, for which it
// then chooses and plans engines, and compiles some. Nothing can be run.
#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "kernels/conv/cudnn_api.h"

using namespace isobar::cudnn;

namespace {

// Names that only this file needs.
constexpr auto kDeviceProperties = static_cast<DescriptorType>(38);
constexpr auto kAsJson = static_cast<AttributeName>(2702), kOfHeuristics = static_cast<AttributeName>(204),
               kOfEngine = static_cast<AttributeName>(1307), kOfPlan = static_cast<AttributeName>(407);
constexpr auto kCharacters = static_cast<AttributeType>(24);
constexpr const char* kH100 =
    R"({"deviceVer": 900, "driverVer": 13000, "cudaDeviceId": 0, "totalGlobalMem": 85000000000,
"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536,
"multiProcessorCount": 132, "warpSize": 32, "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
"reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024,
"maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1, "smClockRateKHz": 1980000,
"memClockRateKHz": 2619000, "l2CacheSize": 52428800, "deviceName": "NVIDIA H100 80GB HBM3"})";

template <class Function>
Function theirs(const char* name) {
  static void* const library = [] {
    const char* file = std::getenv("ISOBAR_NVIDIAS_CUDNN");
    return file == nullptr ? nullptr : dlopen(file, RTLD_NOW | RTLD_LOCAL);
  }();
  return library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, name));
}
#define ISOBAR_THEIRS(name) theirs<decltype(Api::name)>("cudnn" #name)

Descriptor h100() {
  static const Descriptor device = [] {
    Descriptor made = nullptr;
    const std::string json = kH100;
    ISOBAR_THEIRS(BackendCreateDescriptor)(kDeviceProperties, &made);
    ISOBAR_THEIRS(BackendSetAttribute)(made, kAsJson, kCharacters, static_cast<std::int64_t>(json.size()), json.data());
    ISOBAR_THEIRS(BackendFinalize)(made);
    return made;
  }();
  return device;
}

Status tell_device(Descriptor to, AttributeName name) {
  const Descriptor device = h100();
  return ISOBAR_THEIRS(BackendSetAttribute)(to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device);
}

}  // namespace

extern "C" {

Status cudnnCreate(Handle* handle) {
  static char fake = 0;
  *handle = reinterpret_cast<Handle>(&fake);
  return CUDNN_STATUS_SUCCESS;
}
Status cudnnSetStream(Handle, isobar::Stream) {
  return CUDNN_STATUS_SUCCESS;
}
std::size_t cudnnGetVersion() {
  const auto version = ISOBAR_THEIRS(GetVersion);
  return version == nullptr ? 0 : version();
}
const char* cudnnGetErrorString(Status status) {
  return ISOBAR_THEIRS(GetErrorString)(status);
}
void cudnnGetLastErrorString(char* message, std::size_t max_size) {
  ISOBAR_THEIRS(GetLastErrorString)(message, max_size);
}
Status cudnnBackendCreateDescriptor(DescriptorType type, Descriptor* descriptor) {
  return ISOBAR_THEIRS(BackendCreateDescriptor)(type, descriptor);
}
Status cudnnBackendDestroyDescriptor(Descriptor descriptor) {
  return ISOBAR_THEIRS(BackendDestroyDescriptor)(descriptor);
}
Status cudnnBackendSetAttribute(Descriptor descriptor, AttributeName name, AttributeType type, std::int64_t count,
                                const void* elements) {
  if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE) return CUDNN_STATUS_SUCCESS;
  if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE) return tell_device(descriptor, kOfPlan);
  const Status status = ISOBAR_THEIRS(BackendSetAttribute)(descriptor, name, type, count, elements);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) return tell_device(descriptor, kOfHeuristics);
  if (name == CUDNN_ATTR_ENGINE_OPERATION_GRAPH) return tell_device(descriptor, kOfEngine);
  return status;
}
Status cudnnBackendFinalize(Descriptor descriptor) {
  return ISOBAR_THEIRS(BackendFinalize)(descriptor);
}
Status cudnnBackendGetAttribute(Descriptor descriptor, AttributeName name, AttributeType type, std::int64_t requested,
                                std::int64_t* count, void* elements) {
  return ISOBAR_THEIRS(BackendGetAttribute)(descriptor, name, type, requested, count, elements);
}
Status cudnnBackendExecute(Handle, Descriptor, Descriptor) {
  return CUDNN_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
