// The groups that one rank of a run stands in. A default one is the single rank of a serial run.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "comm/communicator.h"
#include "comm/mesh.h"
#include "engine/keys.h"
#include "engine/parameters.h"

namespace isobar {

// How ranks that hold parts of one sample's tokens compute its attention (docs/parallelism.md).
enum class ContextForm : std::uint8_t { automatic, all_to_all, gather, ring };

template <>
struct EnumNames<ContextForm> {
  static constexpr std::array names{"automatic", "all-to-all", "gather", "ring"};
};

struct Parallel {
  Mesh mesh = Mesh::single();
  Communicator world{};
  Communicator dp{}, tp{}, cp{};
  Communicator tokens{};  // dp x cp: ranks that see different parts of the batch through the same weights
  Communicator model{};   // tp x cp: ranks that work on the same samples
  bool sequence = false;  // between the branches of a block each tp rank holds some of the rows (sequence parallel)
  ContextForm form = ContextForm::automatic;

  // Every rank of `world` calls it. Throws Error where the sizes do not multiply to the number of ranks.
  static Parallel start(const Communicator& world, const MeshSizes& sizes, const std::string& order);

  // The parallel of one rank, for a model that is not split.
  static const Parallel& alone();

  // One rank as it would stand in a run, for what can be told without one. No call can be made.
  static Parallel imagined(std::int64_t rank, const MeshSizes& sizes, const std::string& order);

  // What this rank holds of heads or hidden units dealt over tp, in whole units of `unit` (the last one may be
  // shorter), and of rows of patches dealt over cp.
  Part over_tp(std::int64_t total, std::int64_t unit = 1) const;
  Part over_cp(std::int64_t total) const { return part_of(total, cp.rank(), cp.size()); }

  // Of a parameter that every tp rank holds and applies to the rows between the branches of blocks: norms, and the
  // biases of products that end a branch.
  Sharing sharing_between_branches() const {
    return sequence && tp.size() > 1 ? Sharing::copy_of_partial : Sharing::copy;
  }

  bool is_first() const { return world.rank() == 0; }  // the rank that writes and prints
};

}  // namespace isobar
