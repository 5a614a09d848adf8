// The declarations of comm/nccl/api.h against NVIDIA's header, where it is installed.
#include "comm/nccl/api.h"

#include "tests/harness/alike.h"
#include "tests/harness/nccl_world.h"
#include "tests/harness/testing.h"

#if __has_include(<nccl.h>)
#include <nccl.h>

#include <cstddef>
#include <type_traits>

namespace isobar::nccl {
namespace {

using testing::are_alike;

#define ISOBAR_SAME_FUNCTION(name) static_assert(are_alike(decltype(Api::name){}, decltype(&nccl##name){}))

ISOBAR_SAME_FUNCTION(GetVersion);
ISOBAR_SAME_FUNCTION(GetUniqueId);
ISOBAR_SAME_FUNCTION(CommInitRankConfig);
ISOBAR_SAME_FUNCTION(CommSplit);
ISOBAR_SAME_FUNCTION(CommFinalize);
ISOBAR_SAME_FUNCTION(CommDestroy);
ISOBAR_SAME_FUNCTION(CommAbort);
ISOBAR_SAME_FUNCTION(CommGetAsyncError);
ISOBAR_SAME_FUNCTION(CommCount);
ISOBAR_SAME_FUNCTION(CommUserRank);
ISOBAR_SAME_FUNCTION(GetErrorString);
ISOBAR_SAME_FUNCTION(GetLastError);
ISOBAR_SAME_FUNCTION(AllReduce);
ISOBAR_SAME_FUNCTION(Reduce);
ISOBAR_SAME_FUNCTION(Broadcast);
ISOBAR_SAME_FUNCTION(AllGather);
ISOBAR_SAME_FUNCTION(ReduceScatter);
ISOBAR_SAME_FUNCTION(Send);
ISOBAR_SAME_FUNCTION(Recv);
ISOBAR_SAME_FUNCTION(GroupStart);
ISOBAR_SAME_FUNCTION(GroupEnd);
// Where parameters of one size could be swapped.
static_assert(std::is_same_v<decltype(&ncclReduce),
                             ncclResult_t (*)(const void* send, void* receive, size_t count, ncclDataType_t type,
                                              ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)>);
static_assert(std::is_same_v<decltype(&ncclCommSplit), ncclResult_t (*)(ncclComm_t comm, int color, int key,
                                                                        ncclComm_t* part, ncclConfig_t* config)>);

static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
static_assert(int{kSuccess} == ncclSuccess && int{kUnhandledCudaError} == ncclUnhandledCudaError);
static_assert(int{kSystemError} == ncclSystemError && int{kInternalError} == ncclInternalError);
static_assert(int{kInvalidArgument} == ncclInvalidArgument && int{kInvalidUsage} == ncclInvalidUsage);
static_assert(int{kRemoteError} == ncclRemoteError && int{kInProgress} == ncclInProgress);
static_assert(int{kInt8} == ncclInt8 && int{kUint8} == ncclUint8 && int{kInt32} == ncclInt32);
static_assert(int{kUint32} == ncclUint32 && int{kInt64} == ncclInt64 && int{kUint64} == ncclUint64);
static_assert(int{kFloat16} == ncclFloat16 && int{kFloat32} == ncclFloat32 && int{kFloat64} == ncclFloat64);
static_assert(int{kBfloat16} == ncclBfloat16);
static_assert(int{kSum} == ncclSum && int{kProd} == ncclProd && int{kMax} == ncclMax && int{kMin} == ncclMin);
static_assert(int{kAvg} == ncclAvg && kNoColor == NCCL_SPLIT_NOCOLOR);

static_assert(offsetof(Config, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(Config, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(Config, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(Config, cga_cluster_size) == offsetof(ncclConfig_t, cgaClusterSize));
static_assert(offsetof(Config, min_ctas) == offsetof(ncclConfig_t, minCTAs));
static_assert(offsetof(Config, max_ctas) == offsetof(ncclConfig_t, maxCTAs));
static_assert(offsetof(Config, net_name) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(Config, split_share) == offsetof(ncclConfig_t, splitShare));
static_assert(sizeof(Config) <= sizeof(ncclConfig_t) && INT_MIN == NCCL_CONFIG_UNDEF_INT);

}  // namespace

TEST_CASE("nccl: our declarations are those of nccl.h") {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const Config ours;
  CHECK(ours.magic == theirs.magic);
  CHECK(ours.blocking == theirs.blocking);
}

}  // namespace isobar::nccl

#else

TEST_CASE("nccl: our declarations are those of nccl.h") {
  ISOBAR_SKIP("nccl.h was not found");
}

#endif

TEST_CASE("nccl: the library is found, named by its version, and known for a stand-in") {
  isobar::testing::use_stand_in();
  const isobar::nccl::Api& api = isobar::nccl::api();
  CHECK(api.version == 22809);
  CHECK(api.is_stand_in);
  CHECK(api.orders_launches);
}
