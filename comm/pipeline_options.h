// How a pipeline of ranks (comm/pipeline.h) cuts a network: options of the command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace isobar {

// How the network's blocks are dealt out over the pieces.
enum class PipelineSplit : std::uint8_t { balanced, even, listed };

struct PipelineOptions {
  std::int64_t chunks = 1;  // V
  PipelineSplit split = PipelineSplit::balanced;
  std::vector<std::int64_t> blocks = {};  // of each piece, if listed
};

// "balanced", "even" or "4,4,3". Error for anything else.
PipelineOptions pipeline_options(std::int64_t chunks, const std::string& split);
std::string to_text(const PipelineOptions& options);  // "2 chunks, split 4,4,3"

}  // namespace isobar
