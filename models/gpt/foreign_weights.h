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
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/files/safetensors.h"

namespace isobar {

enum class GptNames : std::uint8_t {
  isobar,
  nanogpt,
  huggingface,
  megatron
};  // megatron: models/gpt/megatron_weights.h

// A tensor and its bytes, row-major.
struct OwnedTensor {
  TensorInfo info;
  std::vector<std::byte> bytes;
};
using OwnedTensors = std::map<std::string, OwnedTensor>;  // by name

// Weights as they lie in a file, or in the files of a folder of Hugging Face.
struct ForeignWeights {
  std::filesystem::path path;
  OwnedTensors tensors;
  Metadata metadata = {};  // of a file
};

// A file; or a folder with model.safetensors, or with the parts that model.safetensors.index.json names. Error naming
// the file that is missing or damaged, and a tensor that two parts have.
ForeignWeights read_foreign_weights(const std::filesystem::path& path);

// Whether a file has the tensors of a GPT under other names than isobar's.
bool has_foreign_names(const TensorReader& file);

// Error naming the file where it is none of them.
GptNames names_of_gpt(const ForeignWeights& weights);

// Under isobar's names; a head that is equal to wte.weight is left out: it is tied. Error naming a tensor that a GPT
// does not have, or that does not fit. heads: needed for Megatron-LM's names, which do not tell; 0: not known.
OwnedTensors gpt_to_isobar(ForeignWeights weights, std::int64_t heads = 0);

// Under other names. Error naming a tensor that these programs have no place for.
OwnedTensors gpt_from_isobar(const OwnedTensors& weights, GptNames names, std::int64_t heads = 0);

// Changes the number of rows of wte.weight and head.weight: fewer cut the last ones, more add zeros.
void set_vocabulary_rows(OwnedTensors& weights, std::int64_t rows);

// Zeros for the biases that a GPT without biases does not have, and those of its norms: it computes the same.
void add_zero_biases(OwnedTensors& weights);

// Tensors in memory, read as those of a file are.
class OwnedTensorReader : public TensorReader {
 public:
  // path: where they come from.
  OwnedTensorReader(std::filesystem::path path, OwnedTensors tensors);

  const std::filesystem::path& path() const override { return path_; }
  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  const TensorInfo* find(const std::string& name) const override;
  void read(const TensorInfo& tensor, std::int64_t first, std::int64_t count, DType to, std::byte* out) const override;

 private:
  std::filesystem::path path_;
  OwnedTensors owned_;
  std::vector<TensorInfo> infos_;
};

}  // namespace isobar
