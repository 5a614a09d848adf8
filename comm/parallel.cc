#include "comm/parallel.h"

#include "kernels/common/check.h"

namespace isobar {

Parallel Parallel::start(const Communicator& world, const MeshSizes& sizes, const std::string& order) {
  Parallel parallel{.mesh = Mesh(sizes, order), .world = world};
  ISOBAR_CHECK(parallel.mesh.world_size() == world.size(), "dp ", sizes.dp, " x tp ", sizes.tp, " x cp ", sizes.cp,
               " are ", parallel.mesh.world_size(), " ranks, and there are ", world.size());
  const int rank = world.rank();
  const auto group = [&](const std::string& axes) {
    return world.split(static_cast<int>(parallel.mesh.group_of(rank, axes).front()), rank, axes);
  };
  parallel.dp = group("dp");
  parallel.tp = group("tp");
  parallel.cp = group("cp");
  parallel.tokens = group("dp-cp");
  parallel.model = group("tp-cp");
  return parallel;
}

}  // namespace isobar
