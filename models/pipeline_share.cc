#include "models/pipeline_share.h"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <utility>

#include "comm/pipeline.h"
#include "engine/storage.h"
#include "engine/tape.h"
#include "kernels/common/check.h"
#include "kernels/common/cost_account.h"
#include "models/network.h"

namespace isobar {
namespace {

// Error text: "--pipeline-parallel 2 x --pipeline-chunks 2".
std::string text_of_pieces(std::int64_t ranks, const PipelineOptions& options) {
  return concat("--pipeline-parallel ", ranks,
                options.chunks > 1 ? concat(" x --pipeline-chunks ", options.chunks) : "");
}

bool is_block(const Tensors& passed_on) {
  return passed_on.size() == 2;
}

// Of a whole network on one rank: what each of its stages computes, and which of them are blocks.
struct StageCosts {
  std::vector<double> flops;
  std::vector<bool> are_blocks;

  std::int64_t blocks() const { return std::ranges::count(are_blocks, true); }
};

StageCosts costs_of(const Network& network, DType dtype, Device device) {
  Shape shape{1};
  shape.insert(shape.end(), network.ports().in.begin(), network.ports().in.end());
  StageCosts costs;
  Tensors state{Tensor::empty(shape, network.ports().are_tokens() ? DType::i32 : dtype, device)};
  const Pass pass = Pass().over(1).over(TokenPlaces{.key_share = network.ports().share_of_pairs});
  for (const Stage& stage : network.stages()) {
    const CostAccount kernels;
    state = stage.forward(state, pass);
    costs.flops.push_back(kernels.total().flops);
    costs.are_blocks.push_back(is_block(state));
  }
  return costs;
}

// Pieces with these numbers of blocks: what comes before the first block is the first piece's, what comes behind the
// last one the last piece's.
std::vector<Part> pieces_of_blocks(const StageCosts& costs, const std::vector<std::int64_t>& blocks) {
  std::vector<Part> pieces;
  const auto stages = static_cast<std::int64_t>(costs.flops.size());
  std::int64_t at = 0, done = 0;
  const auto is_block_at = [&](std::int64_t stage) { return costs.are_blocks[static_cast<std::size_t>(stage)]; };
  for (std::size_t piece = 0; piece < blocks.size(); ++piece) {
    const std::int64_t begin = at, until = done + blocks[piece];
    if (piece == 0)
      while (at < stages && !is_block_at(at)) ++at;
    for (; done < until; ++at) done += is_block_at(at) ? 1 : 0;
    if (piece + 1 == blocks.size()) at = stages;
    pieces.push_back({begin, at});
  }
  return pieces;
}

std::vector<Part> cut_listed(const StageCosts& costs, const PipelineOptions& options, std::int64_t pieces) {
  const std::vector<std::int64_t>& blocks = options.blocks;
  ISOBAR_CHECK(std::ssize(blocks) == pieces, "--pipeline-split: ", blocks.size(), " numbers of blocks are given for ",
               pieces, " pieces");
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    ISOBAR_CHECK(blocks[i] > 0 || i == 0 || i + 1 == blocks.size(), "--pipeline-split: piece ", i,
                 " has no block, and is neither the first nor the last");
    sum += blocks[i];
  }
  ISOBAR_CHECK(sum == costs.blocks(), "--pipeline-split: the numbers add up to ", sum, " blocks, and the network has ",
               costs.blocks());
  return pieces_of_blocks(costs, blocks);
}

std::vector<Part> cut_stages(const Network& network, const StageCosts& costs, const PipelineOptions& options,
                             std::int64_t ranks) {
  const std::int64_t pieces = ranks * options.chunks;
  if (options.split == PipelineSplit::listed) return cut_listed(costs, options, pieces);
  ISOBAR_CHECK(costs.blocks() >= pieces, text_of_pieces(ranks, options), " needs ", pieces,
               " blocks at least, and the ", network.name(), " has ", costs.blocks());
  if (options.split == PipelineSplit::balanced) return balanced_pieces(costs.flops, costs.are_blocks, pieces);
  std::vector<std::int64_t> blocks;
  for (std::int64_t piece = 0; piece < pieces; ++piece) blocks.push_back(part_of(costs.blocks(), piece, pieces).size());
  return pieces_of_blocks(costs, blocks);
}

PipelineCut cut_network(const Network& network, const StageCosts& costs, const PipelineOptions& options,
                        std::int64_t ranks) {
  PipelineCut cut{.pieces = cut_stages(network, costs, options, ranks)};
  std::int64_t blocks = 0;
  for (const Part& piece : cut.pieces) {
    double work = 0;
    const std::int64_t first = blocks;
    for (auto stage = static_cast<std::size_t>(piece.begin); std::cmp_less(stage, piece.end); ++stage) {
      work += costs.flops[stage];
      blocks += costs.are_blocks[stage] ? 1 : 0;
    }
    cut.work.push_back(work);
    cut.blocks.push_back({first, blocks});
  }
  return cut;
}

// The ranks that hold each parameter; marks those that several do.
void find_tied(PipelineCut& cut, std::span<const Stage> stages, const Parameters& parameters, std::int64_t ranks) {
  std::vector<std::vector<std::int64_t>> holders(static_cast<std::size_t>(parameters.handles()));
  for (std::size_t piece = 0; piece < cut.pieces.size(); ++piece)
    for (std::int64_t stage = cut.pieces[piece].begin; stage < cut.pieces[piece].end; ++stage)
      for (const int handle : stages[static_cast<std::size_t>(stage)].weights) {
        std::vector<std::int64_t>& all = holders[static_cast<std::size_t>(handle)];
        const std::int64_t rank = static_cast<std::int64_t>(piece) % ranks;
        if (std::ranges::find(all, rank) == all.end()) all.push_back(rank);
      }
  for (std::size_t handle = 0; handle < holders.size(); ++handle) {
    std::vector<std::int64_t>& all = holders[handle];
    std::ranges::sort(all);
    cut.is_tied.push_back(all.size() > 1);
    ISOBAR_CHECK(all.size() <= 1 || all == std::vector<std::int64_t>({0, ranks - 1}), "a pipeline of ", ranks,
                 " ranks: places ", all.front(), " and ", all.back(), " would hold ",
                 parameters.name_of(static_cast<int>(handle)), ", and only the first and the last place may share one");
  }
}

}  // namespace

// A network on shapes, and all that it refers to.
struct PipelineShare::Shaped {
  Shaped(const NetworkRecipe& recipe, const Ports& ports, const ComputeOptions& compute, Parallel ranks)
      : parallel(std::move(ranks)), network(recipe.make(ports, {parameters, compute, parallel})) {
    parameters.allocate(compute.activation(), meta_like(DeviceKind::cpu), 0);
  }

  // This rank's neighbours along tp and cp, without a pipeline.
  static Parallel imagined(const Parallel& real) {
    const MeshSizes sizes{.tp = real.tp.size(), .cp = real.cp.size()};
    Parallel parallel = Parallel::imagined(real.cp.rank() * sizes.tp + real.tp.rank(), sizes, "tp-cp-dp");
    parallel.sequence = real.sequence;
    parallel.form = real.form;
    return parallel;
  }

  Parameters parameters;
  const Parallel parallel;
  std::unique_ptr<Network> network;
};

Tensor joined_stream(const Tensors& between) {
  ISOBAR_CHECK(between.size() == 1 || is_block(between), "a pipeline passes on one tensor, and a stage gives ",
               between.size());
  return between.size() == 1 || !between[1].defined() ? between[0] : add(between[0], between[1]);
}

Tensors split_stream(const Tensor& joined) {
  return {joined, Tensor()};
}

PipelineShare::PipelineShare(const NetworkRecipe& recipe, const Ports& ports, const Build& build)
    : rank_(build.parallel.pp.rank()),
      ranks_(build.parallel.pp.size()),
      chunks_(static_cast<int>(build.parallel.pipeline.chunks)) {
  const OwnMemoryLedger apart;
  const TapeScope off(nullptr);
  const Shaped alone(recipe, ports, build.compute, {});
  const Network& whole = *alone.network;
  ISOBAR_CHECK(whole.has_residual_stream(), "--pipeline-parallel ", ranks_, ": ", whole.name(),
               " has no residual stream, at which a pipeline cuts a network");
  cut_ = cut_network(whole, costs_of(whole, alone.parameters.dtype(), alone.parameters.device()),
                     build.parallel.pipeline, ranks_);
  find_tied(cut_, whole.stages(), alone.parameters, ranks_);
  shaped_ = std::make_unique<Shaped>(recipe, ports, build.compute, Shaped::imagined(build.parallel));
  for (int chunk = 0; chunk < chunks_; ++chunk) {
    const Part own = cut_.blocks[static_cast<std::size_t>(piece_of(chunk))];
    build.parameters.note_dealt({chunks_ == 1 ? "blocks" : concat("blocks of chunk ", chunk), "pp", own.begin, own.end,
                                 cut_.blocks.back().end});
  }
}

PipelineShare::~PipelineShare() = default;

Weights PipelineShare::held(std::span<const Stage> stages) const {
  Weights handles;
  for (int chunk = 0; chunk < chunks_; ++chunk)
    for (std::int64_t stage = stages_of(chunk).begin; stage < stages_of(chunk).end; ++stage) {
      const Weights& listed = stages[static_cast<std::size_t>(stage)].weights;
      handles.insert(handles.end(), listed.begin(), listed.end());
    }
  return handles;
}

Weights PipelineShare::tied(std::span<const Stage> stages) const {
  Weights handles = held(stages);
  std::erase_if(handles, [&](int handle) { return !cut_.is_tied[static_cast<std::size_t>(handle)]; });
  return handles;
}

Tensor PipelineShare::room_behind(int piece, const Shape& input, DType dtype, Device device) const {
  std::vector<Boundary>& behind = boundaries_[input];
  if (behind.empty()) {
    const OwnMemoryLedger apart;
    const TapeScope off(nullptr);
    const CostAccount not_counted;
    const Pass pass = Pass().over(input[0]);
    Tensors state{Tensor::empty(input, dtype, shaped_->parameters.device())};
    for (const Part& stages : cut_.pieces) {
      for (std::int64_t stage = stages.begin; stage < stages.end; ++stage)
        state = shaped_->network->stages()[static_cast<std::size_t>(stage)].forward(state, pass);
      const Tensor joined = joined_stream(state);
      behind.push_back({joined.shape(), joined.dtype()});
    }
  }
  const Boundary& boundary = behind[static_cast<std::size_t>(piece)];
  return Tensor::empty(boundary.shape, boundary.dtype, device);
}

std::string to_text(const PipelineCut& cut, std::int64_t ranks) {
  double all = 0;
  for (const double work : cut.work) all += work;
  const bool has_chunks = std::ssize(cut.pieces) > ranks;
  std::ostringstream out;
  out << std::fixed;
  for (std::size_t i = 0; i < cut.pieces.size(); ++i) {
    const auto piece = static_cast<std::int64_t>(i);
    const std::int64_t blocks = cut.blocks[i].size();
    out << "  place " << piece % ranks;
    if (has_chunks) out << ", chunk " << piece / ranks;
    out << ": stages " << cut.pieces[i].begin << '-' << cut.pieces[i].end - 1 << ", " << blocks
        << (blocks == 1 ? " block, " : " blocks, ") << std::setprecision(3) << cut.work[i] / 1e9 << " Gflop a sample, "
        << std::setprecision(1) << 100 * cut.work[i] / all << " % of the network\n";
  }
  return out.str();
}

}  // namespace isobar
