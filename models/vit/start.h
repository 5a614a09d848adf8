// How a vision transformer for fields begins with the weights of another one, of other channels, patches or grid
// (models/partial_start.h). What the names of the tensors are: models/vit/vit.h.
#pragma once

#include <string>

#include "engine/files/safetensors.h"
#include "models/tensor_start.h"

namespace isobar {

// patch_embed.proj.weight [C, V, P, P]: input channels are matched by name, and the weights of new ones are 0. Patches
// of another size: models/vit/resize.h.
TensorStart start_of_patch_weights(const Shape& ours, const TensorInfo& theirs, const SafetensorsReader& file,
                                   const FieldsMeaning& their_fields, const FieldsMeaning& our_fields);

// head.weight [P·P·V', C], the channel fastest: output channels are matched by name; the rows of new ones keep their
// initial values. patch: P.
TensorStart start_of_head(const Shape& ours, std::int64_t patch, const TensorInfo& theirs,
                          const SafetensorsReader& file, const FieldsMeaning& their_fields,
                          const FieldsMeaning& our_fields);

// pos_embed [1, T, C]: interpolated bilinearly between the centres of patches. By latitude and longitude where both
// grids tell them and the other one has this one within it, else by the place in the grid.
TensorStart start_of_positions(const Shape& ours, std::int64_t patch, const TensorInfo& theirs,
                               const SafetensorsReader& file, const FieldsMeaning& their_fields,
                               const FieldsMeaning& our_fields);

}  // namespace isobar
