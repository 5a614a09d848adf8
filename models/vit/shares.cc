#include "models/vit/shares.h"

#include "comm/context_attention.h"

namespace isobar {
namespace {

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

  const VitConfig& config_;
  const PassSizes& sizes_;
  const Parallel& parallel_;
  CommLedger& ledger_;
  std::int64_t forwards_;  // of a block
  Tokens rows_;
};

}  // namespace

std::vector<Holding::Dealt> shares_of(const VitConfig& config, const Parallel& parallel) {
  return {{"heads", parallel.over_tp(config.heads), config.heads},
          {"hidden units", parallel.over_tp(config.hidden(), Mlp::kTogether), config.hidden()},
          {"rows of patches", parallel.over_cp(config.patch_rows()), config.patch_rows()}};
}

void add_traffic_of_pass(const VitConfig& config, const PassSizes& sizes, const Parallel& parallel,
                         CommLedger& ledger) {
  PassTraffic(config, sizes, parallel, ledger).add();
}

}  // namespace isobar
