#include "comm/parallel.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/common/check.h"
#include "kernels/common/math.h"

namespace isobar {
namespace {

// Members of a group, in the order of their ranks in the world.
using Members = std::vector<std::int64_t>;

// The groups of one rank. A group with the same members and the same use is formed once.
class Groups {
 public:
  // form: makes the group of these members. All ranks request groups in the same order.
  using Form = std::function<Communicator(const Members& members, const std::string& name)>;
  Groups(const Communicator& world, const Mesh& mesh, std::int64_t rank, Form form)
      : mesh_(mesh), rank_(rank), form_(std::move(form)) {
    Members all(static_cast<std::size_t>(mesh.world_size()));
    std::iota(all.begin(), all.end(), std::int64_t{0});
    formed_.push_back({std::move(all), Use::beside, world});
  }

  enum class Use : std::uint8_t { in_passes, beside };
  // A rank that is not among the members forms a group of its own, and gets it: the other ranks form one now.
  Communicator of(Members members, const std::string& name, Use use) {
    if (members.size() == 1) return {};
    for (const Formed& formed : formed_)
      if (formed.use == use && formed.members == members) return formed.group.named(name);
    const bool is_member = std::ranges::find(members, rank_) != members.end();
    const Communicator group = form_(is_member ? members : Members{rank_}, name);
    formed_.push_back({members, use, is_member ? group : Communicator()});
    return formed_.back().group;
  }
  Communicator along(const std::string& axes, Use use = Use::beside) {
    return of(mesh_.group_of(rank_, axes), axes, use);
  }

  // Of the ranks of dp x cp, in their order: `shards` neighbours are a group, and so are the ranks at the same place of
  // each such group.
  void deal_out(Parallel& parallel, std::int64_t shards) {
    const Members tokens = mesh_.group_of(rank_, "dp-cp");
    const auto count = std::ssize(tokens), place = std::ranges::find(tokens, rank_) - tokens.begin();
    if (shards == ExchangeOptions::kAll) shards = count;
    ISOBAR_CHECK(shards >= 1 && count % shards == 0, "the optimizer cannot be dealt out over groups of ", shards,
                 " ranks: they do not divide the ", count, " ranks that share it, dp x cp");
    Members own, wide, replicas;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t member = tokens[static_cast<std::size_t>(i)];
      if (i % shards == place % shards) replicas.push_back(member);
      if (i / shards != place / shards) continue;
      own.push_back(member);
      for (const std::int64_t rank : mesh_.group_of(member, "tp")) wide.push_back(rank);
    }
    std::ranges::sort(wide);
    own_shards_ = own;
    wide_shards_ = wide;
    const bool is_all = shards == count;
    parallel.shards = of(own, is_all ? "dp-cp" : "shards", Use::beside);
    parallel.replicas = of(replicas, "replicas", Use::beside);
    parallel.wide_shards = of(wide,
                              is_all                                    ? name_of_stage()
                              : mesh_.group_of(rank_, "tp").size() == 1 ? "shards"
                                                                        : "shards-tp",
                              Use::beside);
  }

  // The ranks of a stage; without a pipeline they are the world.
  const char* name_of_stage() const { return mesh_.group_of(rank_, "pp").size() > 1 ? "dp-tp-cp" : "world"; }

  // Neighbours along pp, in two rounds: places 0 and 1, 2 and 3, ...; then 1 and 2, 3 and 4, ..., and the last one and
  // place 0. Of an odd number of places the last pair has a round of its own.
  void link(Parallel& parallel) {
    const Members places = mesh_.group_of(rank_, "pp");
    const auto count = std::ssize(places), own = std::ranges::find(places, rank_) - places.begin();
    if (count == 1) return;
    const auto pair_from = [&](std::int64_t first) {
      Members pair{places[static_cast<std::size_t>(first)], places[static_cast<std::size_t>((first + 1) % count)]};
      std::ranges::sort(pair);
      return pair;
    };
    const auto form = [&](std::int64_t round_begin, std::int64_t round_end) {
      std::int64_t first = round_begin;
      for (std::int64_t i = round_begin; i < round_end; i += 2)
        if (i == own || (i + 1) % count == own) first = i;
      const Communicator pair = of(pair_from(first), "pp", Use::in_passes);
      if (first == own) parallel.next = pair;
      if ((first + 1) % count == own) parallel.previous = pair;
    };
    form(0, count - count % 2);
    form(1, count);
    if (count % 2 == 1) form(count - 1, count);
  }

  // The groups of parameters that both ends of the pipeline hold. Every rank forms those of its own coordinates along
  // the other axes.
  void tie(Parallel& parallel) {
    if (mesh_.group_of(rank_, "pp").size() == 1) return;
    parallel.tied_tokens = of(at_ends(mesh_.group_of(rank_, "dp-cp")), "tied", Use::beside);
    parallel.tied_stage = of(at_ends(mesh_.group_of(rank_, "dp-cp-tp")), "tied-tp", Use::beside);
    if (!parallel.exchange.shards_optimizer()) return;
    parallel.tied_shards = of(at_ends(own_shards_), "tied-shards", Use::beside);
    parallel.tied_wide_shards = of(at_ends(wide_shards_), "tied-shards-tp", Use::beside);
  }

 private:
  struct Formed {
    Members members;
    Use use;
    Communicator group;
  };

  // The ranks at both ends of the pipelines that these are in.
  Members at_ends(const Members& members) const {
    Members ends;
    for (const std::int64_t member : members) {
      const Members places = mesh_.group_of(member, "pp");
      ends.push_back(places.front());
      ends.push_back(places.back());
    }
    std::ranges::sort(ends);
    return ends;
  }

  const Mesh& mesh_;
  std::int64_t rank_;
  Form form_;
  std::vector<Formed> formed_;
  Members own_shards_, wide_shards_;
};

void form_groups(Parallel& parallel, Groups groups) {
  using Use = Groups::Use;
  ISOBAR_CHECK(!(parallel.exchange.off && parallel.exchange.shards_optimizer()),
               "the optimizer cannot be sharded where gradients are not exchanged");
  parallel.dp = groups.along("dp");
  parallel.tp = groups.along("tp", Use::in_passes);
  parallel.cp = groups.along("cp", Use::in_passes);
  parallel.tokens = groups.along("dp-cp");
  parallel.model = groups.along("tp-cp", Use::in_passes);
  parallel.pp = groups.along("pp");
  parallel.stage = groups.along("dp-tp-cp").named(groups.name_of_stage());
  parallel.samples = groups.along("dp-pp").named(parallel.pp.size() > 1 ? "dp-pp" : "dp");
  if (parallel.exchange.shards_optimizer()) groups.deal_out(parallel, parallel.exchange.shards);
  groups.link(parallel);
  groups.tie(parallel);
}

}  // namespace

Parallel Parallel::start(const Communicator& world, const MeshSizes& sizes, const std::string& order,
                         const ExchangeOptions& exchange) {
  Parallel parallel{.mesh = Mesh(sizes, order), .world = world, .exchange = exchange};
  ISOBAR_CHECK(parallel.mesh.world_size() == world.size(), "dp ", sizes.dp, " x tp ", sizes.tp, " x cp ", sizes.cp,
               " x pp ", sizes.pp, " are ", parallel.mesh.world_size(), " ranks, and there are ", world.size());
  const auto split = [&](const Members& members, const std::string& name) {
    return world.split(static_cast<int>(members.front()), world.rank(), name);
  };
  form_groups(parallel, Groups(world, parallel.mesh, world.rank(), split));
  return parallel;
}

Parallel Parallel::imagined(std::int64_t rank, const MeshSizes& sizes, const std::string& order,
                            const ExchangeOptions& exchange, std::shared_ptr<ImaginedWorld> world) {
  Parallel parallel{.mesh = Mesh(sizes, order), .exchange = exchange};
  if (world == nullptr) world = std::make_shared<ImaginedWorld>();
  const auto place = [&](std::int64_t own, std::int64_t ranks) {
    return make_imagined_backend(world, static_cast<int>(own), static_cast<int>(ranks));
  };
  const std::int64_t ranks = parallel.mesh.world_size();
  if (ranks > 1) parallel.world = Communicator(place(rank, ranks));
  const auto group = [&](const Members& members, const std::string& name) {
    return parallel.world.group_of(place(std::ranges::find(members, rank) - members.begin(), std::ssize(members)),
                                   name);
  };
  form_groups(parallel, Groups(parallel.world, parallel.mesh, rank, group));
  return parallel;
}

// The gradient of a parameter that several tp ranks hold whole is summed over these ranks too, in a single call: calls
// of different groups may add in different orders, and the copies would drift apart by rounding. If dp x cp is one
// rank, nothing is summed, and all tp ranks have the same numbers.
Parallel::GradientGroups Parallel::gradient_groups(Sharing sharing, bool is_tied) const {
  static const Communicator nobody;
  const Communicator& all_of_stage = is_tied ? tied_stage : stage;
  if (exchange.off) return {nobody, nobody, all_of_stage};
  const Communicator& same = is_tied ? tied_tokens : tokens;
  const bool is_partial = sharing == Sharing::copy_of_partial && sequence;
  const bool is_wide = tp.size() > 1 && sharing != Sharing::shard && (is_partial || same.size() > 1);
  if (!exchange.shards_optimizer()) return {nobody, is_wide ? all_of_stage : same, all_of_stage, is_wide};
  const Communicator &narrow = is_tied ? tied_shards : shards, &wide = is_tied ? tied_wide_shards : wide_shards;
  return {is_wide ? wide : narrow, replicas, all_of_stage, is_wide};
}

bool Parallel::is_copy(Sharing sharing) const {
  const bool is_partial = sharing == Sharing::copy_of_partial && sequence;
  return sharing != Sharing::shard && !is_partial && tp.rank() > 0;
}

BucketPlan Parallel::bucket_plan() const {
  BucketPlan plan{.bytes = exchange.bucket_bytes};
  for (std::size_t i = 0; i < kSharings; ++i) {
    plan.slices[i] = gradient_groups(static_cast<Sharing>(i)).scattered.size();
    plan.tied_slices[i] = gradient_groups(static_cast<Sharing>(i), /*is_tied=*/true).scattered.size();
  }
  return plan;
}

Part Parallel::over_tp(std::int64_t total, std::int64_t unit) const {
  const Part units = part_of(ceil_div(total, unit), tp.rank(), tp.size());
  return {std::min(units.begin * unit, total), std::min(units.end * unit, total)};
}

int Parallel::rank_in_link(int place) const {
  return link_to(place).rank() == 0 ? 1 : 0;
}

const Parallel& Parallel::alone() {
  static const Parallel single;
  return single;
}

}  // namespace isobar
