// The groups of ranks that one rank of a run belongs to. A default Parallel is the single rank of a serial run.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/imagined.h"
#include "comm/mesh.h"
#include "comm/pipeline_options.h"
#include "engine/keys.h"
#include "engine/parameters.h"

namespace isobar {

// How context-parallel ranks, each with a part of a sample's tokens, compute attention (docs/parallelism.md).
enum class ContextForm : std::uint8_t { automatic, all_to_all, gather, ring };

template <>
struct EnumNames<ContextForm> {
  static constexpr std::array names{"automatic", "all-to-all", "gather", "ring"};
};

// How gradients are summed over the ranks.
struct ExchangeOptions {
  static constexpr std::int64_t kAll = 0;

  std::size_t bucket_bytes = std::size_t{25} << 20;  // min size of a bucket; the last of a section may be smaller
  bool off = false;                                  // each rank trains alone: measures what the exchange costs
  // Size of a group of ranks that shards the optimizer (ZeRO-1). A group is neighbours among the ranks of dp x cp, in
  // rank order; the groups are replicas of each other. 1: not sharded. kAll: one group, all of dp x cp.
  std::int64_t shards = 1;

  bool shards_optimizer() const { return shards != 1; }
};

struct Parallel {
  Mesh mesh = Mesh::single();
  Communicator world{};
  Communicator dp{}, tp{}, cp{}, pp{};
  Communicator tokens{};            // dp x cp: ranks with the same weights and different parts of the batch
  Communicator model{};             // tp x cp: ranks that work on the same samples
  Communicator stage{};             // dp x tp x cp: ranks that hold the same stages of the network
  Communicator samples{};           // dp x pp: of these, ranks of one pp see the same samples
  Communicator next{}, previous{};  // this rank and a neighbour along pp, which wraps round
  Communicator shards{};            // of `tokens`: those that shard the optimizer; by default this rank alone
  Communicator wide_shards{};       // shards x tp
  Communicator replicas{};          // of `tokens`: those with the same slice, one of each group `shards`
  // The same groups with the ranks at the other end of the pipeline, for parameters that both ends hold (tied ones); on
  // ranks that are no end, and without a pipeline, this rank alone.
  Communicator tied_tokens{}, tied_stage{}, tied_shards{}, tied_wide_shards{};
  bool sequence = false;  // sequence parallel: between the branches of a block each tp rank holds some of the rows
  ContextForm form = ContextForm::automatic;
  ExchangeOptions exchange = {};
  PipelineOptions pipeline = {};

  // Every rank of `world` calls it. Throws Error if the product of the sizes is not the number of ranks, or if the
  // optimizer cannot be sharded in that way.
  //
  // Groups with the same members share one group of the backend, under several names. A group of one rank needs none.
  // Exception: the groups that passes use (tp, cp, tp-cp) are not shared with the groups for gradients, so that
  // gradients can be summed while a pass exchanges.
  static Parallel start(const Communicator& world, const MeshSizes& sizes, const std::string& order,
                        const ExchangeOptions& exchange = {});

  // One rank only, for a model that is not split.
  static const Parallel& alone();

  // One rank of a run that does not exist, for predictions: its calls are counted and exchange nothing
  // (comm/imagined.h). world: shared by the imagined ranks of one run; null: a new one.
  static Parallel imagined(std::int64_t rank, const MeshSizes& sizes, const std::string& order,
                           const ExchangeOptions& exchange = {}, std::shared_ptr<ImaginedWorld> world = nullptr);

  // A gradient is summed in two steps. Over `scattered`, each rank gets the sum of one slice; slices are equal. Over
  // `summed`, the slice is summed further. The step of a group of one rank is skipped.
  struct GradientGroups {
    const Communicator &scattered, &summed;
    const Communicator& holders;  // all ranks that hold such a parameter, or parts of it
    bool over_tp = false;         // ranks of several tp are in them
  };
  GradientGroups gradient_groups(Sharing sharing, bool is_tied = false) const;
  // The layout of the parameters that these two steps need.
  BucketPlan bucket_plan() const;
  // Whether another rank computes the same gradient of such a parameter, and only that rank's copy counts.
  bool is_copy(Sharing sharing) const;

  // This rank's part of heads or hidden units, split over tp in multiples of `unit` (the last multiple may be
  // incomplete); and of rows of patches, split over cp.
  Part over_tp(std::int64_t total, std::int64_t unit = 1) const;
  Part over_cp(std::int64_t total) const { return part_of(total, cp.rank(), cp.size()); }

  // Of a parameter that every tp rank holds whole and applies to the rows between the branches of a block: norms, and
  // the biases of products that end a branch.
  Sharing sharing_between_branches() const {
    return sequence && tp.size() > 1 ? Sharing::copy_of_partial : Sharing::copy;
  }

  bool is_first() const { return world.rank() == 0; }  // the rank that writes and prints

  // Of a pipeline the last stage has the loss: the number of ranks that have one.
  int ranks_with_loss() const { return world.size() / pp.size(); }
  // The group that an exchange with this place of the pipeline uses, and the rank of that place in it. It is a
  // neighbour.
  const Communicator& link_to(int place) const { return place == (pp.rank() + 1) % pp.size() ? next : previous; }
  int rank_in_link(int place) const;
};

}  // namespace isobar
