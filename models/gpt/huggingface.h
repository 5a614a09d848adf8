// Folders of a GPT-2 as Hugging Face's transformers reads and writes them: GPT2LMHeadModel.from_pretrained(FOLDER).
//
//   config.json              sizes, the form of the GELU, whether the head is tied
//   model.safetensors        the weights (models/gpt/foreign_weights.h), or parts of them that an index names
//   vocab.json, merges.txt, tokenizer_config.json      of the tokenizer; transformers finds them by these names
//
// What config.json does not have keeps the default of transformers' GPT2Config.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "kernels/common/dtype.h"
#include "models/gpt/gpt.h"

namespace isobar {

// Error for a network that GPT2LMHeadModel does not compute: heads of another size than C/NH.
nlohmann::ordered_json huggingface_config(const GptConfig& config, DType dtype, std::int32_t eod);

// Error naming the key of the folder's config.json that makes it another network than this one. The sizes of tensors
// are left to whoever reads them.
void check_huggingface_config(const std::filesystem::path& folder, const GptConfig& config);

// The config of a language model with the folder's network and tokenizer, by isobar's keys. Error naming the key of
// config.json that makes it a network which isobar's GPT is not, and a file of the tokenizer that is not there.
nlohmann::ordered_json keys_of_huggingface(const std::filesystem::path& folder);

// The files of GPT-2's tokenizer, beside the weights. vocab_file, merge_file: copied. eod: the token's text.
void write_huggingface_tokenizer(const std::filesystem::path& folder, const std::string& vocab_file,
                                 const std::string& merge_file, const std::string& eod, std::int64_t positions);

}  // namespace isobar
