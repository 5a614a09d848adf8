// The map of ranks, for people: where each stands, and what it holds.
#pragma once

#include <string>

#include "comm/mesh.h"
#include "models/recipe.h"

namespace isobar {

// to_text(mesh) with a line for all ranks that hold the same: their part of heads, hidden units and rows of patches,
// and the bytes of weights, gradients and moments (with a sharded optimizer: the share that one of `shards` ranks has,
// ExchangeOptions). Throws Error where the model cannot be split in that way, and what Recipe::holding throws.
std::string describe_ranks(const Recipe& recipe, const ComputeOptions& compute, const MeshSizes& sizes,
                           const std::string& order, std::int64_t shards = 1);

}  // namespace isobar
