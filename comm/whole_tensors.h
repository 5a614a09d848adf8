// Named tensors that are distributed over ranks. They are assembled one by one on the first rank, which alone writes
// files, and compared if several ranks hold the same part.
//
// A rank holds a shard of a tensor (tensor parallel), or a slice of that (the moments of a sharded optimizer). The
// ranks exchange what they hold, so that this file needs no knowledge of how a model is split.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "comm/communicator.h"
#include "engine/files/flat_tensors.h"

namespace isobar {

// Writes the whole tensors as write_flat does: the file does not depend on how they are distributed. All ranks call it
// with the same buffers; `path` and `metadata` are used on the first one. In addition to its parts a rank holds one
// tensor at a time (the first rank: two, or three where files have another order). If several ranks hold a part, the
// lowest rank's is written. Error naming the tensor if some of its elements are on no rank.
void write_whole(const std::filesystem::path& path, const Parameters& parameters, const FlatBuffers& buffers,
                 const Metadata& metadata, const Communicator& world);

// Calls visit on the first rank with every whole tensor of a buffer, in the order of files, on the host. All ranks call
// it with the same buffer.
using VisitTensor = std::function<void(const NamedParameter& parameter, const Tensor& whole)>;
void visit_whole(const Parameters& parameters, const FlatBuffer& buffer, const Communicator& world,
                 const VisitTensor& visit);

// The first tensor of which two ranks hold the same elements with different bits, as a sentence that names the tensor
// and both ranks; empty if there is none. All ranks call it and get the same.
std::string difference_of_replicas(const Parameters& parameters, const FlatBuffers& buffers, const Communicator& world);

}  // namespace isobar
