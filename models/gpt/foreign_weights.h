// The weights of a GPT under the names of other programs, and back.
//
//   isobar                              nanoGPT, Hugging Face (transformer.h.N.*, transformer.wte, ...)
//   blocks.N.norm1, norm2               ln_1, ln_2
//   blocks.N.attn.{q,k,v}   [C, C] each attn.c_attn      nanoGPT [3C, C], Hugging Face [C, 3C]: queries, keys, values
//   blocks.N.attn.proj                  attn.c_proj      Hugging Face [in, out]
//   blocks.N.mlp.{fc1,fc2}              mlp.{c_fc,c_proj}          Hugging Face [in, out]
//   norm, wte, wpe                      ln_f, wte, wpe
//   head.weight                         lm_head.weight   absent where it is tied, or a copy of wte.weight
//
// Which of the two programs a file is of is told by the shape of c_attn. Files of Hugging Face may lack the prefix
// "transformer."; their buffers attn.bias and attn.masked_bias are masks, which are skipped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/files/safetensors.h"

namespace isobar {

enum class GptNames : std::uint8_t { isobar, nanogpt, huggingface };

// A tensor and its bytes, row-major.
struct OwnedTensor {
  TensorInfo info;
  std::vector<std::byte> bytes;
};
using OwnedTensors = std::map<std::string, OwnedTensor>;  // by name

// Error naming the file where it is none of the three.
GptNames names_of_gpt(const SafetensorsFile& file);

// Under isobar's names; a head that is equal to wte.weight is left out: it is tied. Error naming a tensor that a GPT
// does not have, or that does not fit.
OwnedTensors gpt_to_isobar(const SafetensorsFile& file);

// Under other names. Error naming a tensor that these programs have no place for.
OwnedTensors gpt_from_isobar(const OwnedTensors& weights, GptNames names);

// Changes the number of rows of wte.weight and head.weight: fewer cut the last ones, more add zeros.
void set_vocabulary_rows(OwnedTensors& weights, std::int64_t rows);

}  // namespace isobar
