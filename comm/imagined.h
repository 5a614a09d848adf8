// Ranks that do not exist: one rank of a run makes its calls, which are counted and exchange nothing.
#pragma once

#include <memory>
#include <vector>

#include "comm/backend.h"

namespace isobar {

// What the ranks of one imagined world know of each other. They are imagined one after another: the n-th largest number
// that a rank asks for (all_reduce of the host's numbers by max) is that of the ranks up to it. So the first one to be
// imagined should be the one that has the most.
struct ImaginedWorld {
  DeviceKind like = DeviceKind::cpu;  // the ranks' devices: GPUs exchange by NCCL, which wants equal parts (Backend)
  std::vector<double> largest = {};   // by call
};

// One rank's end of a group of `size`. Tensors of calls are on the device meta. Of numbers of the host a sum is as if
// all ranks had handed in what this one does. Throws Error for other calls.
std::unique_ptr<Backend> make_imagined_backend(std::shared_ptr<ImaginedWorld> world, int rank, int size);

}  // namespace isobar
