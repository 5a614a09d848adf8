// The files of GPT-2's tokenizer: read, and checked before anything is made of them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "data/text/byte_pairs.h"

namespace isobar {

struct Gpt2Files {
  std::vector<std::string> tokens;         // by id, as bytes; of a token that is not written with bytes, its name
  std::vector<bool> is_made;               // by id: a byte, or the result of a rule
  std::array<std::int32_t, 256> byte_ids;  // the token of each single byte
  std::vector<BytePairs::Rule> rules;      // by rank
};

// Error naming the file and the token, id or line at fault.
Gpt2Files read_gpt2_files(const std::string& vocab_file, const std::string& merge_file);

}  // namespace isobar
