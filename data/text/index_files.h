// The index arrays of a token file as Megatron of 2022 keeps them beside it.
//
//   PREFIX_SET_indexmap_NUMBERns_LENGTHsl_SEEDs_doc_idx.npy      [E·D] i32     (data/text/sample_index.h)
//                                              _sample_idx.npy   [n + 1, 2] i32, or i64 where a number is too large
//                                              _shuffle_idx.npy  [n] u32
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "data/text/sample_index.h"

namespace isobar {

struct IndexFilesOptions {
  std::string path = {};  // of the token file
  std::string split = "969,30,1";
  SplitRule rule = SplitRule::legacy;
  std::array<std::int64_t, 3> samples = {};  // of train, valid, test; 0: no files
  std::int64_t seq_length = 0;
  std::uint32_t seed = 1234;
  std::string out = {};  // folder
};

// Writes the arrays of every set that has samples. Returns a line on each. Error for a set without documents.
std::vector<std::string> write_index_files(const IndexFilesOptions& options);

}  // namespace isobar
