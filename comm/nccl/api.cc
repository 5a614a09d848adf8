#include "comm/nccl/api.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "kernels/common/check.h"
#include "kernels/common/kernel.h"
#include "kernels/cuda/library.h"
#include "kernels/emulator/stand_in.h"

namespace isobar::nccl {
namespace {

constexpr int kOldestVersion = 21800;       // split, and nonblocking communicators that can be split
constexpr int kOrdersLaunchesFrom = 22600;  // NCCL_LAUNCH_ORDER_IMPLICIT

bool asks_for_launch_order() {
  ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
  return std::string(std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT")) == "1";
}

std::string file_of(const void* function) {
  Dl_info found{};
  return ::dladdr(function, &found) != 0 && found.dli_fname != nullptr ? found.dli_fname : "libnccl.so.2";
}

// Passes the emulator's table to a library that stands in for NCCL.
void attach(const gpu::Library& library, Api& api) {
  const auto attach = library.get_optional<emulator::AttachFunction>(emulator::kAttachName);
  if (attach == nullptr) return;
  api.is_stand_in = true;
  if constexpr (ISOBAR_HAS_EMULATOR)
    api.serves_gpus = attach(&emulator::stand_in_table());
  else
    fail_not_built(DeviceKind::emulator);
}

Api load() {
  const bool wants_order = asks_for_launch_order();
  const gpu::Library library("libnccl.so.2");
  Api api{};
  const auto get = [&](auto& function, const char* name) {
    function = library.get<std::remove_reference_t<decltype(function)>>(name);
  };
  get(api.GetVersion, "ncclGetVersion");
  api.GetVersion(&api.version);
  ISOBAR_CHECK(api.version >= kOldestVersion, "NCCL 2.18 or later is needed, and libnccl.so.2 says that it is version ",
               api.version);
  api.file = file_of(reinterpret_cast<const void*>(api.GetVersion));
  get(api.GetUniqueId, "ncclGetUniqueId");
  get(api.CommInitRankConfig, "ncclCommInitRankConfig");
  get(api.CommSplit, "ncclCommSplit");
  get(api.CommFinalize, "ncclCommFinalize");
  get(api.CommDestroy, "ncclCommDestroy");
  get(api.CommAbort, "ncclCommAbort");
  get(api.CommGetAsyncError, "ncclCommGetAsyncError");
  get(api.CommCount, "ncclCommCount");
  get(api.CommUserRank, "ncclCommUserRank");
  get(api.GetErrorString, "ncclGetErrorString");
  get(api.GetLastError, "ncclGetLastError");
  get(api.AllReduce, "ncclAllReduce");
  get(api.Reduce, "ncclReduce");
  get(api.Broadcast, "ncclBroadcast");
  get(api.AllGather, "ncclAllGather");
  get(api.ReduceScatter, "ncclReduceScatter");
  get(api.Send, "ncclSend");
  get(api.Recv, "ncclRecv");
  get(api.GroupStart, "ncclGroupStart");
  get(api.GroupEnd, "ncclGroupEnd");
  attach(library, api);
  api.orders_launches = wants_order && api.version >= kOrdersLaunchesFrom;
  return api;
}

}  // namespace

const Api& api() {
  static const Api loaded = load();
  return loaded;
}

std::string name_of_version(int version) {
  return concat(version / 10000, '.', version / 100 % 100, '.', version % 100);
}

}  // namespace isobar::nccl
