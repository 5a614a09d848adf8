// Flat buffers laid out as a network's parameters (weights, moments) as safetensors files: one tensor a parameter, in
// full, whatever part of it this process holds.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/files/safetensors.h"
#include "engine/parameters.h"

namespace isobar {

// A buffer with elements of the parameters' flat layout. Its tensors are named prefix + the parameter's name.
struct FlatBuffer {
  std::string prefix;
  Tensor values;                // [n]: the ranges one behind the other
  std::vector<FlatRange> held;  // of the layout; empty: all of it
};
using FlatBuffers = std::vector<FlatBuffer>;

// What a buffer holds of a named tensor: elements [first, end) of the part of the tensor that this process has
// (NamedParameter::shape, row-major), from element `at` of the buffer on. Error where that is not one range.
struct HeldPart {
  std::int64_t first = 0, end = 0, at = 0;
  std::int64_t size() const { return end - first; }
};
HeldPart held_part(const FlatBuffer& buffer, const NamedParameter& parameter);
Tensor values_of(const FlatBuffer& buffer, const HeldPart& part);  // [part.size()]

// Of elements [first, end) of a part of a tensor of shape `full_shape`: calls copy(in_full, in_part, length) for every
// run of them that lies together in the whole tensor. Both places are element numbers, in_part counts from `first`.
using CopyRun = std::function<void(std::int64_t in_full, std::int64_t in_part, std::int64_t length)>;
void for_each_run(const Shape& full_shape, const Shard& shard, FlatRange elements, const CopyRun& copy);

// Writes a file of whole tensors: `whole` gives each, in its full shape, on the host. It is called for every tensor of
// every buffer, in the order of the file.
using WholeTensor = std::function<Tensor(const FlatBuffer& buffer, const NamedParameter& parameter)>;
void write_flat(const std::filesystem::path& path, const Parameters& parameters, const FlatBuffers& buffers,
                const Metadata& metadata, const WholeTensor& whole);

// Reads what the buffers hold, converting from whatever floating dtype the file has. A missing, unknown or misshaped
// tensor, or one with a number that is not finite, is an Error that names it and leaves the buffers as they were. Reads
// no other part of the file.
void read_flat(const std::filesystem::path& path, const Parameters& parameters, const FlatBuffers& buffers);

// Whether every number of a tensor of fp32 or fp64 is finite.
bool is_finite(const Tensor& values);

}  // namespace isobar
