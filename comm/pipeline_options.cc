#include "comm/pipeline_options.h"

#include <sstream>

#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr std::int64_t kMaxBlocksOfPiece = 1 << 20;

std::vector<std::int64_t> listed_blocks(const std::string& split) {
  std::vector<std::int64_t> blocks;
  std::istringstream in(split);
  for (std::string number; std::getline(in, number, ',');) {
    std::istringstream digits(number);
    std::int64_t value = -1;
    digits >> value;
    ISOBAR_CHECK(
        !digits.fail() && digits.peek() == std::char_traits<char>::eof() && value >= 0 && value <= kMaxBlocksOfPiece,
        "--pipeline-split ", split, ": balanced, even, or the number of blocks of each piece, \"4,4,3\"");
    blocks.push_back(value);
  }
  ISOBAR_CHECK(!blocks.empty() && !split.ends_with(','), "--pipeline-split ", split,
               ": balanced, even, or the number of blocks of each piece, \"4,4,3\"");
  return blocks;
}

}  // namespace

PipelineOptions pipeline_options(std::int64_t chunks, const std::string& split) {
  PipelineOptions options{.chunks = chunks};
  if (split == "even")
    options.split = PipelineSplit::even;
  else if (split != "balanced")
    options = {chunks, PipelineSplit::listed, listed_blocks(split)};
  return options;
}

std::string to_text(const PipelineOptions& options) {
  std::string split = options.split == PipelineSplit::balanced ? "balanced" : "even";
  if (options.split == PipelineSplit::listed) {
    split.clear();
    for (const std::int64_t blocks : options.blocks) split += (split.empty() ? "" : ",") + std::to_string(blocks);
  }
  return concat(options.chunks, options.chunks == 1 ? " chunk" : " chunks", ", split ", split);
}

}  // namespace isobar
