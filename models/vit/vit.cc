#include "models/vit/vit.h"

#include <cmath>

#include "engine/tape.h"

namespace isobar {
namespace {

constexpr double kEps = 1e-6;
constexpr double kInitStd = 0.02;  // truncated at ±2, a hundred standard deviations away: a plain normal

// Where in the network a mask is drawn; every block has eight numbers of its own.
enum Site : std::uint64_t { kEmbedding = 0, kAttention = 8, kProjection, kAttentionPath, kHidden, kOutput, kMlpPath };

DropoutKey key_of(const VitMode& mode, Site site, std::int64_t block = 0) {
  return {mode.key.seed, mode.key.stream + site + 8 * static_cast<std::uint64_t>(block)};
}

}  // namespace

int Vit::add_linear(const std::vector<std::string>& names, std::int64_t out, std::int64_t in) {
  return parameters_.add({.names = names,
                          .shape = {out, in},
                          .init = {Init::Kind::normal, kInitStd},
                          .decay = true,
                          .compute_copy = true});
}

int Vit::add_vector(const std::vector<std::string>& names, std::int64_t size, double value) {
  return parameters_.add({.names = names, .shape = {size}, .init = {Init::Kind::constant, value}});
}

Vit::Vit(const VitConfig& config, Parameters& parameters) : config_(config), parameters_(parameters) {
  const std::int64_t e = config.embed, p = config.patch;
  const double bound =
      1 / std::sqrt(static_cast<double>(config.in_channels * p * p));  // PyTorch's default for a Conv2d

  pos_embed_ = parameters.add(
      {.names = {"pos_embed"}, .shape = {1, config.tokens(), e}, .init = {Init::Kind::normal, kInitStd}});
  patch_weight_ = parameters.add({.names = {"patch_embed.proj.weight"},
                                  .shape = {e, config.in_channels, p, p},
                                  .init = {Init::Kind::uniform, bound},
                                  .decay = true,
                                  .compute_copy = true});
  patch_bias_ =
      parameters.add({.names = {"patch_embed.proj.bias"}, .shape = {e}, .init = {Init::Kind::uniform, bound}});
  for (std::int64_t i = 0; i < config.depth; ++i) {
    const std::string at = "blocks." + std::to_string(i) + ".", attn = at + "attn.", mlp = at + "mlp.";
    blocks_.push_back({
        .norm1_weight = add_vector({at + "norm1.weight"}, e, 1),
        .norm1_bias = add_vector({at + "norm1.bias"}, e, 0),
        .qkv_weight = add_linear({attn + "q.weight", attn + "k.weight", attn + "v.weight"}, e, e),
        .qkv_bias = add_vector({attn + "q.bias", attn + "k.bias", attn + "v.bias"}, e, 0),
        .proj_weight = add_linear({attn + "proj.weight"}, e, e),
        .proj_bias = add_vector({attn + "proj.bias"}, e, 0),
        .norm2_weight = add_vector({at + "norm2.weight"}, e, 1),
        .norm2_bias = add_vector({at + "norm2.bias"}, e, 0),
        .fc1_weight = add_linear({mlp + "fc1.weight"}, 4 * e, e),
        .fc1_bias = add_vector({mlp + "fc1.bias"}, 4 * e, 0),
        .fc2_weight = add_linear({mlp + "fc2.weight"}, e, 4 * e),
        .fc2_bias = add_vector({mlp + "fc2.bias"}, e, 0),
    });
  }
  norm_weight_ = add_vector({"norm.weight"}, e, 1);
  norm_bias_ = add_vector({"norm.bias"}, e, 0);
  head_weight_ = parameters.add({.names = {"head.weight"},
                                 .shape = {config.out_channels * p * p, e},
                                 .init = {Init::Kind::normal, config.zero_head ? 0 : kInitStd},
                                 .decay = true,
                                 .compute_copy = true});
}

float Vit::drop_path_rate(std::int64_t index, const VitMode& mode) const {
  if (!mode.training || config_.depth < 2) return 0;
  return static_cast<float>(config_.dropout * static_cast<double>(index) / static_cast<double>(config_.depth - 1));
}

LayernormResult Vit::add_and_norm(const Residual& residual, int weight, int bias) const {
  if (residual.branch.defined()) return layernorm_residual(residual.x, residual.branch, get(weight), get(bias), kEps);
  return {residual.x, layernorm(residual.x, get(weight), get(bias), kEps, parameters_.activation_dtype())};
}

Tensor Vit::embed(const Tensor& image, const VitMode& mode) const {
  const Tensor patches = patchify(image, config_.patch, PatchOrder::channels_first, parameters_.activation_dtype());
  const Tensor tokens = linear(patches, get(patch_weight_).view({config_.embed, -1}), get(patch_bias_),
                               {.out_dtype = parameters_.dtype(), .tf32 = config_.tf32});
  return dropout(add_row(tokens, get(pos_embed_)), drop_rate(mode), key_of(mode, kEmbedding));
}

Tensor Vit::attend(const Block& block, std::int64_t index, const Tensor& y, std::int64_t batch,
                   const VitMode& mode) const {
  const LinearOptions options{.out_dtype = y.dtype(), .tf32 = config_.tf32};
  const double scale = 1 / std::sqrt(static_cast<double>(config_.embed / config_.heads));
  const Tensor qkv = linear(y, get(block.qkv_weight), get(block.qkv_bias), options);
  const Tensor o = attention(qkv, batch, config_.heads, scale, drop_rate(mode), key_of(mode, kAttention, index));
  const Tensor branch = linear(o, get(block.proj_weight), get(block.proj_bias), options);
  return drop_path(dropout(branch, drop_rate(mode), key_of(mode, kProjection, index)), batch,
                   drop_path_rate(index, mode), key_of(mode, kAttentionPath, index));
}

Tensor Vit::perceive(const Block& block, std::int64_t index, const Tensor& y, std::int64_t batch,
                     const VitMode& mode) const {
  const LinearOptions options{.activation = Activation::gelu_erf, .out_dtype = y.dtype(), .tf32 = config_.tf32};
  const Tensor &w1 = get(block.fc1_weight), &b1 = get(block.fc1_bias), &w2 = get(block.fc2_weight),
               &b2 = get(block.fc2_bias);
  const float rate = drop_rate(mode);
  if (rate == 0)
    return drop_path(mlp(y, w1, b1, w2, b2, options), batch, drop_path_rate(index, mode),
                     key_of(mode, kMlpPath, index));
  const Tensor hidden = dropout(linear(y, w1, b1, options), rate, key_of(mode, kHidden, index));
  const Tensor branch = linear(hidden, w2, b2, {.out_dtype = y.dtype(), .tf32 = config_.tf32});
  return drop_path(dropout(branch, rate, key_of(mode, kOutput, index)), batch, drop_path_rate(index, mode),
                   key_of(mode, kMlpPath, index));
}

Vit::Residual Vit::block(std::int64_t index, const Residual& residual, std::int64_t batch, const VitMode& mode) const {
  const Block& b = blocks_[static_cast<std::size_t>(index)];
  const LayernormResult first = add_and_norm(residual, b.norm1_weight, b.norm1_bias);
  const Residual middle{first.sum, attend(b, index, first.y, batch, mode)};
  const LayernormResult second = add_and_norm(middle, b.norm2_weight, b.norm2_bias);
  return {second.sum, perceive(b, index, second.y, batch, mode)};
}

Tensor Vit::forward(const Tensor& image, const VitMode& mode) const {
  ISOBAR_CHECK(image.shape() == Shape({image.size(0), config_.in_channels, config_.height, config_.width}),
               "the model takes fields ", to_string({-1, config_.in_channels, config_.height, config_.width}), ", not ",
               to_string(image.shape()));
  const std::int64_t batch = image.size(0);
  Residual residual{embed(image, mode), {}};
  for (std::int64_t i = 0; i < config_.depth; ++i) {
    if (!config_.recompute) {
      residual = block(i, residual, batch, mode);
      continue;
    }
    const auto body = [this, i, batch, mode](const std::vector<Tensor>& in) {
      const Residual out = block(i, {in[0], in.size() > 1 ? in[1] : Tensor()}, batch, mode);
      return std::vector<Tensor>{out.x, out.branch};
    };
    const std::vector<Tensor> out =
        recompute(body, residual.branch.defined() ? std::vector{residual.x, residual.branch} : std::vector{residual.x});
    residual = {out[0], out[1]};
  }
  const Tensor y = add_and_norm(residual, norm_weight_, norm_bias_).y;
  const Tensor pixels = linear(y, get(head_weight_), {}, {.out_dtype = parameters_.dtype(), .tf32 = config_.tf32});
  return unpatchify(pixels, {batch, config_.out_channels, config_.height, config_.width}, config_.patch,
                    PatchOrder::channels_last);
}

}  // namespace isobar
