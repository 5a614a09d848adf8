// What the ranks of a vision transformer tell each other in one step, by formulas (docs/parallelism.md has them,
// collective by collective): a second source beside the step on shapes (apps/train/dry_run.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/context_attention.h"
#include "comm/ledger.h"
#include "comm/parallel.h"
#include "engine/parameters.h"
#include "models/vit/vit.h"

namespace isobar::testing {

// What one training pass of a rank is counted for.
struct PassSizes {
  std::int64_t batch = 0;           // samples of this data rank
  DType activation = DType::fp32;   // of what the branches compute
  DType accumulator = DType::fp32;  // of the residual stream
  bool recompute = false;           // a block's forward pass is made twice
};

// One pass of one rank. Bytes are what Call::payload() counts.
class PassTraffic {
 public:
  PassTraffic(const VitConfig& config, const PassSizes& sizes, const Parallel& parallel, CommLedger& ledger)
      : config_(config),
        sizes_(sizes),
        parallel_(parallel),
        ledger_(ledger),
        forwards_(sizes.recompute ? 2 : 1),
        rows_(parallel.cp.size(), config) {}

  void add() {
    if (parallel_.tp.size() > 1) add_tensor_parallel();
    if (parallel_.cp.size() > 1) add_context_parallel();
  }

 private:
  // Tokens of a sample, by context rank.
  struct Tokens {
    Tokens(int ranks, const VitConfig& config) : ranks(ranks), config(config) {}
    std::int64_t of(int rank) const { return part_of(config.patch_rows(), rank, ranks).size() * config.row_tokens(); }
    int ranks;
    const VitConfig& config;
  };

  std::int64_t activation() const { return static_cast<std::int64_t>(size_of(sizes_.activation)); }
  std::int64_t accumulator() const { return static_cast<std::int64_t>(size_of(sizes_.accumulator)); }
  std::int64_t own_tokens() const { return rows_.of(parallel_.cp.rank()); }

  void add_tensor_parallel() {
    const auto tp = [&](Verb verb, std::int64_t calls, std::int64_t element) {
      const std::int64_t stream = sizes_.batch * own_tokens() * config_.embed;
      ledger_.add(parallel_.tp.name(), verb, calls, calls * stream * element);
    };
    const std::int64_t branches = 2 * config_.depth;  // attention's and the MLP's
    if (!parallel_.sequence) {
      tp(Verb::all_reduce, branches * (forwards_ + 1), activation());
      return;
    }
    tp(Verb::all_gather, branches * (forwards_ + 1), activation());
    tp(Verb::reduce_scatter, branches * (forwards_ + 1), activation());
    tp(Verb::all_gather, 1, accumulator());  // the gradient of the embedding
    tp(Verb::all_gather, 1, activation());   // what the head reads
  }

  void add_context_parallel() {
    switch (form_of(parallel_.form, parallel_.over_tp(config_.heads).size(), parallel_.cp.size())) {
      case ContextForm::all_to_all:
        return add_all_to_all();
      case ContextForm::gather:
        return add_gather();
      default:
        return add_ring();
    }
  }

  void add_to_cp(Verb verb, std::int64_t calls, std::int64_t bytes) {
    ledger_.add(parallel_.cp.name(), verb, config_.depth * calls, config_.depth * bytes);
  }

  std::int64_t width() const { return parallel_.over_tp(config_.heads).size() * config_.embed / config_.heads; }

  void add_all_to_all() {
    const std::int64_t heads = parallel_.over_tp(config_.heads).size();
    const std::int64_t own = part_of(heads, parallel_.cp.rank(), parallel_.cp.size()).size() * width() / heads;
    const std::int64_t by_tokens = sizes_.batch * own_tokens() * width() * activation();
    const std::int64_t by_heads = sizes_.batch * config_.tokens() * own * activation();
    add_to_cp(Verb::all_to_all, 2 * forwards_, (3 * by_tokens + by_heads) * forwards_);
    add_to_cp(Verb::all_to_all, 2, by_tokens + 3 * by_heads);
  }

  void add_gather() {
    const std::int64_t all = sizes_.batch * config_.tokens() * 2 * width() * activation();
    add_to_cp(Verb::all_gather, forwards_ + 1, (forwards_ + 1) * all);
    add_to_cp(Verb::reduce_scatter, 1, all);
  }

  void add_ring() {
    const int ranks = parallel_.cp.size();
    for (int step = 0; step < ranks; ++step) {
      const std::int64_t tokens = rows_.of((parallel_.cp.rank() - step + ranks) % ranks);
      const std::int64_t block = sizes_.batch * tokens * 2 * width();
      if (step + 1 < ranks) add_to_cp(Verb::send_receive, forwards_ + 1, (forwards_ + 1) * block * activation());
      add_to_cp(Verb::send_receive, 1, block * accumulator());
    }
  }

  const VitConfig config_;
  const PassSizes sizes_;
  const Parallel& parallel_;
  CommLedger& ledger_;
  std::int64_t forwards_;  // of a block
  Tokens rows_;
};

// Gradients, weights of a sharded optimizer, and the sums of squares of `ranges` ranges.
inline void add_traffic_of_gradients(const Parameters& parameters, const Parallel& parallel, std::size_t ranges,
                                     CommLedger& ledger) {
  const auto element = static_cast<std::int64_t>(size_of(parameters.dtype()));
  const auto add = [&](const Communicator& group, Verb verb, std::int64_t elements) {
    if (group.size() > 1) ledger.add(group.name(), verb, 1, elements * element);
  };
  if (parallel.world.size() == 1) return;
  if (!parallel.exchange.off)
    for (const Parameters::Bucket& bucket : parameters.buckets()) {
      const auto [scattered, summed, holders, over_tp] = parallel.gradient_groups(bucket.sharing);
      const std::int64_t all = bucket.range.size();
      add(scattered, Verb::reduce_scatter, all);
      add(summed, Verb::all_reduce, all / scattered.size());
      add(scattered, Verb::all_gather, all);
    }
  if (parallel.exchange.shards_optimizer() || parallel.tp.size() > 1)
    ledger.add(parallel.world.name(), Verb::all_reduce, 1, static_cast<std::int64_t>(ranges * sizeof(double)));
}

// A step of a forecaster, whose passes have so many samples each of this rank.
inline CommLedger traffic_by_formulas(const VitConfig& config, const Parameters& parameters, const Parallel& parallel,
                                      const std::vector<std::int64_t>& samples, bool recompute, std::size_t ranges) {
  CommLedger ledger;
  for (const std::int64_t batch : samples) {
    if (batch == 0) continue;
    PassTraffic(config, {batch, parameters.activation_dtype(), parameters.dtype(), recompute}, parallel, ledger).add();
    // The sums of the loss over the bands.
    if (parallel.cp.size() > 1)
      ledger.add(parallel.cp.name(), Verb::all_reduce, 1, batch * 2 * static_cast<std::int64_t>(sizeof(double)));
  }
  add_traffic_of_gradients(parameters, parallel, ranges, ledger);
  return ledger;
}

}  // namespace isobar::testing
