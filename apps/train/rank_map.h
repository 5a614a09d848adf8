// The map of ranks, for people: where each stands, and what it holds.
#pragma once

#include <cstdint>
#include <string>

#include "comm/mesh.h"
#include "comm/parallel.h"
#include "engine/optimizer.h"
#include "models/compute_options.h"
#include "models/task.h"

namespace isobar {

// to_text(mesh) with a line for all ranks that hold the same: their part of blocks, heads, hidden units and rows of
// patches, and the bytes of weights, gradients, moments and, where one is kept, the average (with a sharded optimizer:
// the share that one of `shards` ranks has, ExchangeOptions). Tasks are made on the device meta. Throws Error where the
// model cannot be split in that way.
std::string describe_ranks(const TaskSource& source, const ComputeOptions& compute, const OptimizerOptions& optimizer,
                           const MeshSizes& sizes, const std::string& order, std::int64_t shards = 1,
                           const PipelineOptions& pipeline = {});

}  // namespace isobar
