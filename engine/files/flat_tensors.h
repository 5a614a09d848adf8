// Flat buffers in the layout of a network's parameters (weights, moments) as safetensors files: one whole tensor per
// parameter, even if this process holds only a part of it.
#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/files/safetensors.h"
#include "engine/parameters.h"

namespace isobar {

// A buffer whose elements have the parameters' flat layout. Its tensors are named prefix + the parameter's name.
struct FlatBuffer {
  std::string prefix;
  Tensor values;                // [n]: the ranges one after the other
  std::vector<FlatRange> held;  // in the layout; empty: all of it
  bool trained_only = false;    // it has no tensors of frozen parameters
  bool of_squares = false;      // means of squares: no number is negative

  bool has(const NamedParameter& parameter) const { return !(trained_only && parameter.frozen); }
};
using FlatBuffers = std::vector<FlatBuffer>;

// The part of a named tensor in a buffer: elements [first, end) of this process's part of the tensor
// (NamedParameter::shape, row-major as in memory), at element `at` of the buffer; nothing of a tensor that the buffer
// does not have. Error if they are not one range.
struct HeldPart {
  std::int64_t first = 0, end = 0, at = 0;
  std::int64_t size() const { return end - first; }
};
HeldPart held_part(const FlatBuffer& buffer, const NamedParameter& parameter);
Tensor values_of(const FlatBuffer& buffer, const HeldPart& part);  // [part.size()]

// For elements [first, end) of a part of a tensor of shape `full_shape`: calls copy(in_full, in_part, length) for every
// run that is contiguous in the whole tensor. Both positions are in elements; in_part counts from `first`.
using CopyRun = std::function<void(std::int64_t in_full, std::int64_t in_part, std::int64_t length)>;
void for_each_run(const Shape& full_shape, const Shard& shard, FlatRange elements, const CopyRun& copy);

// Writes a file of whole tensors. `whole` returns each in its full shape, in the order of files, on the host. It is
// called for every tensor of every buffer, one after the other as in the file.
using WholeTensor = std::function<Tensor(const FlatBuffer& buffer, const NamedParameter& parameter)>;
void write_flat(const std::filesystem::path& path, const Parameters& parameters, const FlatBuffers& buffers,
                const Metadata& metadata, const WholeTensor& whole);

// Reads the elements that the buffers hold, once, and converts them from the file's floating dtype. Error for a tensor
// that is missing, unknown or of a wrong shape, before anything is read, and for one that has a number that is not
// finite, or is negative where the buffer's cannot be: the buffers then have tensors of the file and their own. The
// Error names the tensor. Reads no other part of the file, but for the rest of a row where memory has another order.
void read_flat(const TensorReader& file, const Parameters& parameters, const FlatBuffers& buffers);
void read_flat(const std::filesystem::path& path, const Parameters& parameters, const FlatBuffers& buffers);

// Reads only the tensors of these names, as read_flat does; the file may hold others.
void read_named(const std::filesystem::path& path, const Parameters& parameters, const FlatBuffer& buffer,
                const std::set<std::string>& names);

// Sets the elements that the buffer holds of a parameter from the whole tensor, in the order of files. NaN: the element
// does not change.
void set_whole(const FlatBuffer& buffer, const NamedParameter& parameter, std::span<const double> whole);

// Whether every number of a tensor of fp32 or fp64 is finite.
bool is_finite(const Tensor& values);

}  // namespace isobar
