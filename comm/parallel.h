// The groups that one rank of a run stands in. A default one is the single rank of a serial run.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/imagined.h"
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

// How gradients are summed over the ranks.
struct ExchangeOptions {
  static constexpr std::int64_t kAll = 0;

  std::size_t bucket_bytes = std::size_t{25} << 20;  // least size of a bucket; the last of a section: what is left
  bool off = false;                                  // each rank trains for itself: to see what the exchange costs
  // Ranks of dp x cp that deal out the optimizer among them (ZeRO-1), neighbours in the order of ranks; beyond them are
  // replicas. 1: every rank has all of it. kAll: all of dp x cp.
  std::int64_t shards = 1;

  bool shards_optimizer() const { return shards != 1; }
};

struct Parallel {
  Mesh mesh = Mesh::single();
  Communicator world{};
  Communicator dp{}, tp{}, cp{};
  Communicator tokens{};       // dp x cp: ranks that see different parts of the batch through the same weights
  Communicator model{};        // tp x cp: ranks that work on the same samples
  Communicator shards{};       // of `tokens`: those that deal out the optimizer; by default this rank alone
  Communicator wide_shards{};  // shards x tp
  Communicator replicas{};     // of `tokens`: those that have the same slices, one a group of `shards`
  bool sequence = false;  // between the branches of a block each tp rank holds some of the rows (sequence parallel)
  ContextForm form = ContextForm::automatic;
  ExchangeOptions exchange = {};

  // Every rank of `world` calls it. Throws Error where the sizes do not multiply to the number of ranks, and where the
  // optimizer cannot be dealt out in that way.
  //
  // Groups of the same members are one group of the backend, by several names, and one of a single rank is none. But
  // what the passes call (tp, cp, tp-cp) is another one than what is called beside them, or sums of gradients could not
  // be under way while a pass exchanges.
  static Parallel start(const Communicator& world, const MeshSizes& sizes, const std::string& order,
                        const ExchangeOptions& exchange = {});

  // The parallel of one rank, for a model that is not split.
  static const Parallel& alone();

  // One rank as it would stand in a run, for what can be told without one: its calls are counted, and exchange nothing
  // (comm/imagined.h). world: that of the other ranks that are imagined; null: one of its own.
  static Parallel imagined(std::int64_t rank, const MeshSizes& sizes, const std::string& order,
                           const ExchangeOptions& exchange = {}, std::shared_ptr<ImaginedWorld> world = nullptr);

  // A gradient is summed in two steps: over `scattered`, where each rank gets the sum of an equal slice, and that slice
  // over `summed`. A group of one rank leaves out its step.
  struct GradientGroups {
    const Communicator &scattered, &summed;
  };
  GradientGroups gradient_groups(Sharing sharing) const;
  // How parameters are laid out for that.
  BucketPlan bucket_plan() const;
  // Whether the gradient that this rank has of such a parameter is another rank's as well, and only that one's counts.
  bool is_copy(Sharing sharing) const;

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
