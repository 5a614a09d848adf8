// The weights of a GPT under the names of Megatron-LM's core, and back.
//
//   isobar                              Megatron core (decoder.layers.N.*)
//   blocks.N.norm1, norm2               input_layernorm, pre_mlp_layernorm; with Transformer Engine
//                                       self_attention.linear_qkv.layer_norm_weight, mlp.linear_fc1.layer_norm_weight
//   blocks.N.attn.{q,k,v}               self_attention.linear_qkv: of each head the rows of q, k and v
//   blocks.N.attn.proj                  self_attention.linear_proj
//   blocks.N.mlp.{fc1,fc2}              mlp.{linear_fc1,linear_fc2}
//   norm, wte, wpe                      decoder.final_layernorm, embedding.{word,position}_embeddings
//   head.weight                         output_layer.weight
//
// Matrices are [out, in] in both. "_extra_state" of Transformer Engine is skipped.
#pragma once

#include <cstdint>

#include "models/gpt/foreign_weights.h"

namespace isobar {

bool has_megatron_names(const TensorReader& file);
bool has_megatron_names(const OwnedTensors& weights);

// heads: nothing in such a file tells how many there are. Error naming a tensor that a GPT does not have, or whose rows
// are not those of so many heads.
OwnedTensors gpt_from_megatron(OwnedTensors weights, std::int64_t heads);
OwnedTensors gpt_to_megatron(const OwnedTensors& weights, std::int64_t heads);

}  // namespace isobar
