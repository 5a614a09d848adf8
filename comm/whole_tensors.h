// Named tensors of which the ranks hold parts: put together one by one on the first rank, which alone writes files, and
// compared where several ranks hold the same.
//
// What a rank holds of a tensor is its shard (tensor parallel), or a slice of that (the moments of a sharded
// optimizer). Ranks tell each other what they hold, so that nothing here knows how a model is split.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "comm/communicator.h"
#include "engine/files/flat_tensors.h"

namespace isobar {

// Writes the whole tensors as write_flat does: the file does not depend on how the ranks share them. All ranks call it
// with the same buffers; `path` and `metadata` count on the first one. Besides its parts a rank holds one tensor at a
// time (the first rank: two). Of parts that several ranks hold, the lowest rank's is written. Error naming the tensor
// of which some elements are held by nobody.
void write_whole(const std::filesystem::path& path, const Parameters& parameters, const FlatBuffers& buffers,
                 const Metadata& metadata, const Communicator& world);

// Calls visit with every whole tensor of a buffer, on the host, on the first rank. All ranks call it with the same
// buffer.
using VisitTensor = std::function<void(const NamedParameter& parameter, const Tensor& whole)>;
void visit_whole(const Parameters& parameters, const FlatBuffer& buffer, const Communicator& world,
                 const VisitTensor& visit);

// The first tensor of which two ranks that hold the same elements have different bits, as a sentence that names it and
// the two; empty where there is none. Every rank calls it and gets the same.
std::string difference_of_replicas(const Parameters& parameters, const FlatBuffers& buffers, const Communicator& world);

}  // namespace isobar
