#include "kernels/conv/cudnn_api.h"

#include <type_traits>

#include "kernels/common/check.h"
#include "kernels/cuda/library.h"

namespace isobar::cudnn {

Api load() {
  constexpr std::size_t kMajorVersion = 10000, kWanted = 9;  // 91900 for 9.19.0
  const gpu::Library library("libcudnn.so.9");
  Api api{};
  const auto get = [&](auto& function, const char* name) {
    function = library.get<std::remove_reference_t<decltype(function)>>(name);
  };
  get(api.GetVersion, "cudnnGetVersion");
  ISOBAR_CHECK(api.GetVersion() / kMajorVersion == kWanted, "libcudnn.so.9 says that it is version ", api.GetVersion(),
               ", and cuDNN 9 is needed");
  get(api.Create, "cudnnCreate");
  get(api.SetStream, "cudnnSetStream");
  get(api.GetErrorString, "cudnnGetErrorString");
  get(api.GetLastErrorString, "cudnnGetLastErrorString");
  get(api.BackendCreateDescriptor, "cudnnBackendCreateDescriptor");
  get(api.BackendDestroyDescriptor, "cudnnBackendDestroyDescriptor");
  get(api.BackendSetAttribute, "cudnnBackendSetAttribute");
  get(api.BackendFinalize, "cudnnBackendFinalize");
  get(api.BackendGetAttribute, "cudnnBackendGetAttribute");
  get(api.BackendExecute, "cudnnBackendExecute");
  return api;
}

}  // namespace isobar::cudnn
