// The vision transformer of the NERSC tutorial: fields in, fields out.
//
//   tokens = patches · W + b + pos_embed                          x: the residual stream [B·N, E]
//   depth times:   x += drop_path(proj(attention(q, k, v of norm1(x))))
//                  x += drop_path(fc2(gelu(fc1(norm2(x)))))
//   fields = unpatchify(head(norm(x)))                            the channel is the head's fastest index
//
// Attention is not causal and scales by head_dim^-0.5; GELU is the exact one; norms have eps 1e-6; the head has no
// bias. Parameter names and layouts are those of the PyTorch model's state_dict.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ops.h"
#include "engine/parameters.h"

namespace isobar {

struct VitConfig {
  std::int64_t height = 0, width = 0, patch = 8;
  std::int64_t in_channels = 0, out_channels = 0;
  std::int64_t embed = 384, depth = 12, heads = 8;
  double dropout =
      0;  // of embeddings, attention, projections and the hidden layer; drop-path rises to it over the depth
  bool zero_head = false;  // the head starts at zero instead of N(0, 0.02)
  bool recompute = false;  // keep only the blocks' inputs, compute the rest again in the backward pass
  bool tf32 = false;

  std::int64_t tokens() const { return (height / patch) * (width / patch); }
};

// Whether masks are drawn, and from which random numbers: `stream` must differ from step to step by at least 2^16.
struct VitMode {
  bool training = false;
  DropoutKey key;
};

class Vit {
 public:
  // Lists its parameters; they must be allocated before forward().
  Vit(const VitConfig& config, Parameters& parameters);

  // [B, in_channels, H, W] in the parameters' dtype -> [B, out_channels, H, W] in the same.
  Tensor forward(const Tensor& image, const VitMode& mode) const;

  const VitConfig& config() const { return config_; }

 private:
  struct Block {
    int norm1_weight, norm1_bias, qkv_weight, qkv_bias, proj_weight, proj_bias;
    int norm2_weight, norm2_bias, fc1_weight, fc1_bias, fc2_weight, fc2_bias;
  };
  // The residual stream and the branch that the next norm adds to it (undefined before the first block).
  struct Residual {
    Tensor x, branch;
  };

  int add_linear(const std::vector<std::string>& names, std::int64_t out, std::int64_t in);
  int add_vector(const std::vector<std::string>& names, std::int64_t size, double value);

  Tensor embed(const Tensor& image, const VitMode& mode) const;
  Residual block(std::int64_t index, const Residual& residual, std::int64_t batch, const VitMode& mode) const;
  Tensor attend(const Block& block, std::int64_t index, const Tensor& y, std::int64_t batch, const VitMode& mode) const;
  Tensor perceive(const Block& block, std::int64_t index, const Tensor& y, std::int64_t batch,
                  const VitMode& mode) const;
  LayernormResult add_and_norm(const Residual& residual, int weight, int bias) const;

  const Tensor& get(int handle) const { return parameters_.get(handle); }
  float drop_rate(const VitMode& mode) const { return mode.training ? static_cast<float>(config_.dropout) : 0; }
  float drop_path_rate(std::int64_t index, const VitMode& mode) const;

  VitConfig config_;
  Parameters& parameters_;
  int pos_embed_, patch_weight_, patch_bias_, norm_weight_, norm_bias_, head_weight_;
  std::vector<Block> blocks_;
};

}  // namespace isobar
