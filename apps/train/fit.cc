#include "apps/train/fit.h"

#include <algorithm>
#include <iomanip>
#include <optional>
#include <sstream>

#include "kernels/common/check.h"

namespace isobar {
namespace {

// Of the other stages of a pipeline, the one that needs most; 0: there are none.
std::size_t peak_of_others(const TaskSource& source, const TrainerOptions& options, const PlannedRank& rank,
                           DeviceKind like) {
  std::size_t peak = 0;
  for (const std::int64_t stage : Mesh(rank.sizes, rank.order).group_of(rank.rank, "pp")) {
    if (stage == rank.rank) continue;
    PlannedRank of_stage = rank;
    of_stage.rank = stage;
    peak = std::max(peak, predict_step(source, options, of_stage, like).peak_bytes);
  }
  return peak;
}

// Of the stages of a pipeline, the one that needs most.
std::size_t peak_of(const TaskSource& source, const TrainerOptions& options, const PlannedRank& rank, DeviceKind like) {
  return std::max(predict_step(source, options, rank, like).peak_bytes, peak_of_others(source, options, rank, like));
}

// The largest global_batch_size below that of the options of which every rank fits; 0: none.
std::int64_t largest_batch(const TaskSource& source, TrainerOptions options, const PlannedRank& rank, DeviceKind like,
                           std::size_t bytes) {
  const std::int64_t unit = rank.sizes.dp * options.batch.grad_accumulation;  // one sample a rank at once
  std::int64_t fits = 0, too_many = options.batch.at_once(rank.sizes.dp);
  while (too_many - fits > 1) {
    const std::int64_t samples = fits + (too_many - fits) / 2;
    options.batch.global_batch_size = samples * unit;
    (peak_of(source, options, rank, like) <= bytes ? fits : too_many) = samples;
  }
  return fits * unit;
}

std::optional<FittingLayout> try_layout(const TaskSource& source, const TrainerOptions& options,
                                        const PlannedRank& rank, std::size_t bytes, DeviceKind like) {
  try {
    const StepPrediction step = predict_step(source, options, rank, like);
    if (step.peak_bytes > bytes) return std::nullopt;
    return FittingLayout{rank, step.peak_bytes, step.traffic.total().bytes};
  } catch (const Error&) {  // the model, or the batch, cannot be split so
    return std::nullopt;
  }
}

std::vector<PlannedRank> layouts_of(std::int64_t ranks) {
  std::vector<PlannedRank> all;
  for (std::int64_t tp = 1; tp <= ranks; ++tp)
    for (std::int64_t cp = 1; tp * cp <= ranks; ++cp) {
      if (ranks % (tp * cp) != 0) continue;
      const std::int64_t dp = ranks / (tp * cp);
      for (const bool sequence : {false, true})
        for (const bool sharded : {false, true})
          if ((!sequence || tp > 1) && (!sharded || dp * cp > 1))
            all.push_back({.sizes = {.dp = dp, .tp = tp, .cp = cp},
                           .exchange = {.shards = sharded ? ExchangeOptions::kAll : 1},
                           .sequence = sequence});
    }
  return all;
}

}  // namespace

StepPrediction check_room(const TaskSource& source, const TrainerOptions& options, const PlannedRank& rank,
                          DeviceKind like, const Room& room) {
  const std::size_t own = room.bytes / static_cast<std::size_t>(room.ranks);
  StepPrediction step = predict_step(source, options, rank, like);
  const std::size_t peak = std::max(step.peak_bytes, peak_of_others(source, options, rank, like));
  if (peak <= own) return step;
  const std::int64_t largest = largest_batch(source, options, rank, like, own);
  throw_error("global_batch_size ", options.batch.global_batch_size, ": a step needs ", text_of_bytes(peak),
              " of memory", room.ranks > 1 ? concat(" on each of ", room.ranks, " ranks") : "", ", and ", room.whose,
              " has ", text_of_bytes(room.bytes), "; ",
              largest > 0 ? concat("the largest batch that fits is ", largest) : "no batch fits");
}

std::vector<FittingLayout> fitting_layouts(const TaskSource& source, const TrainerOptions& options, std::int64_t ranks,
                                           std::size_t bytes, DeviceKind like) {
  std::vector<FittingLayout> fitting;
  for (const PlannedRank& rank : layouts_of(ranks))
    if (const auto layout = try_layout(source, options, rank, bytes, like)) fitting.push_back(*layout);
  std::ranges::stable_sort(fitting, {}, &FittingLayout::exchanged_bytes);
  return fitting;
}

std::string to_text(const std::vector<FittingLayout>& layouts) {
  std::ostringstream out;
  for (const auto& [rank, peak, exchanged] : layouts) {
    const MeshSizes& sizes = rank.sizes;
    out << "dp " << std::left << std::setw(5) << sizes.dp << "tp " << std::setw(5) << sizes.tp << "cp " << std::setw(5)
        << sizes.cp << std::right << std::setw(11) << text_of_bytes(peak) << std::setw(11)
        << text_of_bytes(static_cast<std::size_t>(exchanged)) << " exchanged";
    if (sizes.tp > 1) out << "  --tensor-parallel " << sizes.tp;
    if (sizes.cp > 1) out << "  --context-parallel " << sizes.cp;
    if (rank.sequence) out << "  --sequence-parallel";
    if (rank.exchange.shards_optimizer()) out << "  --shard-optimizer";
    out << '\n';
  }
  return out.str();
}

}  // namespace isobar
