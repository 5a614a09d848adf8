// The part of NCCL's interface that isobar uses, in its own declarations: every build compiles it, and the library is
// loaded at first use. Values and layouts are those of libnccl.so.2 since 2.18, which later versions keep;
// tests/comm/nccl_api_test.cc compares them with nccl.h if that header exists.
#pragma once

#include <climits>
#include <cstddef>
#include <string>

#include "kernels/common/stream.h"

namespace isobar::nccl {

struct Communicator;  // opaque
using Comm = Communicator*;

struct UniqueId {
  char bytes[128];
};

enum Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7
};

enum Type : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9
};

enum Op : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };

inline constexpr int kNoColor = -1;

// ncclConfig_t as of 2.18. Later versions append fields, and treat the missing fields of an older one as not set:
// `size` and `version` identify it.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21800;
  int blocking = INT_MIN;  // INT_MIN: not set
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

struct Api {
  Result (*GetVersion)(int* version);
  Result (*GetUniqueId)(UniqueId* id);
  Result (*CommInitRankConfig)(Comm* comm, int ranks, UniqueId id, int rank, Config* config);
  Result (*CommSplit)(Comm comm, int color, int key, Comm* part, Config* config);
  Result (*CommFinalize)(Comm comm);
  Result (*CommDestroy)(Comm comm);
  Result (*CommAbort)(Comm comm);
  Result (*CommGetAsyncError)(Comm comm, Result* error);
  Result (*CommCount)(Comm comm, int* ranks);
  Result (*CommUserRank)(Comm comm, int* rank);
  const char* (*GetErrorString)(Result result);
  const char* (*GetLastError)(Comm comm);
  Result (*AllReduce)(const void* send, void* receive, std::size_t count, Type type, Op op, Comm comm, Stream stream);
  Result (*Reduce)(const void* send, void* receive, std::size_t count, Type type, Op op, int root, Comm comm,
                   Stream stream);
  Result (*Broadcast)(const void* send, void* receive, std::size_t count, Type type, int root, Comm comm,
                      Stream stream);
  Result (*AllGather)(const void* send, void* receive, std::size_t count, Type type, Comm comm, Stream stream);
  Result (*ReduceScatter)(const void* send, void* receive, std::size_t count, Type type, Op op, Comm comm,
                          Stream stream);
  Result (*Send)(const void* send, std::size_t count, Type type, int peer, Comm comm, Stream stream);
  Result (*Recv)(void* receive, std::size_t count, Type type, int peer, Comm comm, Stream stream);
  Result (*GroupStart)();
  Result (*GroupEnd)();

  int version = 0;               // 22809 for 2.28.9
  std::string file{};            // of the library
  bool is_stand_in = false;      // a library for tests, which uses the emulator's streams
  bool serves_gpus = true;       // false: a stand-in, in a program that has no device cuda
  bool orders_launches = false;  // operations of several communicators on one device run in the host's order
};

// The library libnccl.so.2, loaded at the first call (kernels/cuda/library.h lists the folders). Sets
// NCCL_LAUNCH_ORDER_IMPLICIT=1 before that, unless the user has set it. Error if it is not found or is older than 2.18.
const Api& api();

std::string name_of_version(int version);  // "2.28.9"

}  // namespace isobar::nccl
