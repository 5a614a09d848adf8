// The groups that one rank of a run stands in. A default one is the single rank of a serial run.
#pragma once

#include <string>

#include "comm/communicator.h"
#include "comm/mesh.h"

namespace isobar {

struct Parallel {
  Mesh mesh = Mesh::single();
  Communicator world{};
  Communicator dp{}, tp{}, cp{};
  Communicator tokens{};  // dp x cp: ranks that see different parts of the batch through the same weights
  Communicator model{};   // tp x cp: ranks that work on the same samples

  // Every rank of `world` calls it. Throws Error where the sizes do not multiply to the number of ranks.
  static Parallel start(const Communicator& world, const MeshSizes& sizes, const std::string& order);

  bool is_first() const { return world.rank() == 0; }  // the rank that writes and prints
};

}  // namespace isobar
