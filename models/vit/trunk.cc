#include "models/vit/trunk.h"

#include <string>

#include "comm/ops.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr std::int64_t kHiddenPerChannel = 4;
constexpr double kEps = 1e-6;
constexpr double kInitStd = 0.02;  // truncated at ±2, a hundred standard deviations away: a plain normal
// The embedding's mask has number 0. It is given as many numbers as a block, whose masks follow.
constexpr std::uint64_t kEmbeddingMask = 0, kFirstBlock = TransformerBlock::kMasks;

std::vector<TransformerBlock> add_blocks(const VitTrunkConfig& config, Parameters& parameters,
                                         const Parallel& parallel) {
  std::vector<TransformerBlock> blocks;
  for (std::int64_t i = 0; i < config.depth; ++i)
    blocks.emplace_back(parameters, "blocks." + std::to_string(i),
                        TransformerOptions{.width = config.embed,
                                           .heads = config.heads,
                                           .hidden = kHiddenPerChannel * config.embed,
                                           .eps = kEps,
                                           .dropout = config.dropout,
                                           .drop_path = config.drop_path(i),
                                           .tf32 = config.tf32},
                        parallel);
  return blocks;
}

}  // namespace

double VitTrunkConfig::drop_path(std::int64_t block) const {
  return depth < 2 ? 0 : dropout * static_cast<double>(block) / static_cast<double>(depth - 1);
}

std::vector<Holding::Dealt> dealt_of(const VitTrunkConfig& config, const Parallel& parallel) {
  const std::int64_t hidden = kHiddenPerChannel * config.embed, rows = config.patch_rows();
  return {{"heads", parallel.over_tp(config.heads), config.heads},
          {"hidden units", parallel.over_tp(hidden, Mlp::kTogether), hidden},
          {"rows of patches", parallel.over_cp(rows), rows}};
}

Part VitTrunk::own_band() const {
  const Part of_patches = parallel_.over_cp(config_.patch_rows());
  return {of_patches.begin * config_.patch, of_patches.end * config_.patch};
}

// The same pass, whose rows are this rank's tokens; with sequence parallel, some of their rows between the branches.
Context VitTrunk::on_own_rows(Context context, std::int64_t batch) const {
  const std::int64_t row = config_.row_tokens();
  context.block.tokens = {own_band().begin / config_.patch * row, config_.tokens()};
  context.block.token_unit = row;
  context.block.sample_rows = own_tokens();
  if (parallel_.sequence) context.block.first_own = parallel_.over_tp(batch * own_tokens()).begin;
  return context;
}

std::vector<Stage> VitTrunk::cut() const {
  using Tensors = std::vector<Tensor>;
  const auto residual = [](const Tensors& in) { return Residual{in[0], in.size() > 1 ? in[1] : Tensor()}; };
  std::vector<Stage> stages;
  stages.push_back({[this](const Tensors& in, const Context& context) { return Tensors{embed(in[0], context)}; }});
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const auto block = [this, i, residual](const Tensors& in, const Context& context) {
      const std::int64_t batch = batch_of(in[0], context);
      const Context masks = on_own_rows(context, batch).masks_from(kFirstBlock + i * TransformerBlock::kMasks);
      const Residual out = blocks_[i].forward(residual(in), batch, masks);
      return Tensors{out.x, out.branch};
    };
    stages.push_back({block, config_.recompute});
  }
  stages.push_back({[this, residual](const Tensors& in, const Context& context) {
    const Residual last = residual(in);
    const Tensor y = norm_.forward(last.x, last.branch).y;
    if (!parallel_.sequence) return Tensors{y};
    return Tensors{all_rows(y, batch_of(y, context) * own_tokens(), parallel_.tp)};
  }});
  return stages;
}

// Samples of the rank, of which x [rows, C] has all rows, or with sequence parallel its own ones.
std::int64_t VitTrunk::batch_of(const Tensor& x, const Context& context) const {
  if (context.block.batch_size != 0) return context.block.batch_size;
  ISOBAR_CHECK(
      !parallel_.sequence || parallel_.tp.size() == 1,
      "sequence parallel: a rank's own rows do not tell the number of samples; PassBlock::batch_size must be set");
  return x.size(0) / own_tokens();
}

// [B, V, own LAT, LON] -> [B·own T, C], or with sequence parallel the rank's own rows of these
Tensor VitTrunk::embed(const Tensor& image, const Context& context) const {
  ISOBAR_CHECK(image.shape() == Shape({image.size(0), config_.in_channels, own_height(), config_.width}),
               "the model takes fields ", to_string({-1, config_.in_channels, own_height(), config_.width}), ", not ",
               to_string(image.shape()));
  const PassBlock block = on_own_rows(context, image.size(0)).block;
  Tensor tokens = add_row(patch_embed_.forward(image), parameters_.get(pos_embed_), block.tokens.first, own_tokens());
  if (parallel_.sequence) tokens = own_rows(tokens, parallel_.tp);
  return dropout(tokens, context.rate(config_.dropout), context.mask(kEmbeddingMask),
                 block.elements(tokens, image.size(0), PassBlock::Rows::own));
}

// The members list their parameters in their order: it is the layout of the flat buffers.
VitTrunk::VitTrunk(const VitTrunkConfig& config, Parameters& parameters, const Parallel& parallel)
    : config_(config),
      parameters_(parameters),
      parallel_(parallel),
      pos_embed_(parameters.add({.names = {"pos_embed"},
                                 .shape = {1, config.tokens(), config.embed},
                                 .init = {Init::Kind::normal, kInitStd}})),
      patch_embed_(parameters, "patch_embed",
                   {.channels = config.in_channels, .patch = config.patch, .width = config.embed, .tf32 = config.tf32}),
      blocks_(add_blocks(config, parameters, parallel)),
      norm_(parameters, "norm", config.embed, kEps, parallel.sharing_between_branches()),
      stages_(cut()) {
  ISOBAR_CHECK(parallel.cp.size() <= config.patch_rows(), "context parallel: ", config.height, " rows in patches of ",
               config.patch, " are ", config.patch_rows(), " rows of patches, and each of ", parallel.cp.size(),
               " ranks needs one");
}

}  // namespace isobar
