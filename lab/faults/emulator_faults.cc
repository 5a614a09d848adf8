// Kernels with one fault each, for tests/CMakeLists.txt: the sanitizer of the build must report it, with the line.
// "none" runs the same kernel whole and must report nothing.
#define ISOBAR_EMULATE
#include <cstdio>
#include <string>
#include <vector>

#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/launch.h"

namespace isobar::emulator {
namespace {

enum class Fault {
  none,
  global_read,
  global_write,
  static_shared,
  dynamic_shared,
  copy_source,
  missing_barrier,
  missing_syncwarp,
  early_copy
};

constexpr int kThreads = 64;

// Each thread adds its left neighbour's value to its own, by way of an asynchronous copy into dynamic shared memory and
// of static shared memory.
__global__ void neighbour_kernel(Fault fault, const float* in, float* out) {
  ISOBAR_DYNAMIC_SHARED(float, copied);
  __shared__ float values[kThreads];
  const int i = static_cast<int>(threadIdx.x), last = kThreads - 1;
  if (i % 4 == 0) {
    // The guard's sixteen bytes are the first behind the array.
    cp_async_16(copied + i, in + (fault == Fault::copy_source && i + 4 == kThreads ? kThreads : i));
    cp_async_commit();
    cp_async_wait<0>();
  }
  __syncthreads();
  float* const value = values + (fault == Fault::static_shared && i == last ? kThreads : i);
  *value = copied[fault == Fault::dynamic_shared && i == last ? kThreads : i];
  if (fault != Fault::missing_barrier) __syncthreads();
  const int left = i > 0 ? i - 1 : 0;
  const float own = fault == Fault::global_read && i == last ? in[kThreads] : values[i];
  const float sum = own + values[left];

  // Pairs of lanes swap their sums. A shuffle meets, but orders no memory: only __syncwarp does.
  copied[i] = sum;
  if (fault == Fault::missing_syncwarp)
    __shfl_sync(kAllLanes, sum, 0);
  else
    __syncwarp();
  out[fault == Fault::global_write && i == last ? kThreads : i] = copied[i ^ 1];

  // A copy into memory that others may still read.
  if (fault == Fault::early_copy && i % 4 == 0) cp_async_16(values + (i + 32) % kThreads, in + i);
}

Fault fault_named(const std::string& name) {
  const char* names[] = {"none",        "global_read",     "global_write",     "static_shared", "dynamic_shared",
                         "copy_source", "missing_barrier", "missing_syncwarp", "early_copy"};
  for (int i = 0; i < 9; ++i)
    if (name == names[i]) return static_cast<Fault>(i);
  std::printf("no such fault: %s\n", name.c_str());
  return Fault::none;
}

void run(Fault fault) {
  // 16-byte aligned by the allocator, exactly as long as used.
  const std::vector<float> in(kThreads, 1);
  std::vector<float> out(kThreads);
  launch("neighbour", neighbour_kernel, 1, kThreads, kThreads * sizeof(float), nullptr, fault, in.data(), out.data());
  std::printf("sum of the first and last: %g\n", out.front() + out.back());
}

}  // namespace
}  // namespace isobar::emulator

int main(int count, char** arguments) {
  using namespace isobar::emulator;
  run(fault_named(count > 1 ? arguments[1] : "none"));
}
