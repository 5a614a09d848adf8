// How a tensor of a network begins with the weights of another network, whose channels, grid or patches may differ
// (models/partial_start.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/files/safetensors.h"
#include "engine/tensor.h"

namespace isobar {

// What the fields at a network's ports are, as its task says.
struct FieldsMeaning {
  struct Channel {
    std::string name, unit;  // unit "": unknown
  };
  std::vector<Channel> inputs, outputs;       // in the order of the ports; empty: unknown
  std::int64_t height = 0, width = 0;         // of the network's grid; 0: unknown
  std::vector<double> latitudes, longitudes;  // of its rows and columns, degrees; empty: unknown
  bool goes_round = false;                    // the last column and the first one are neighbours
  std::optional<bool> adds_input = {};        // the output is added to the input; none: unknown
};

struct TensorStart {
  enum class How : std::uint8_t {
    taken,    // from the tensor of the same name, as it is
    changed,  // from that tensor, see `values`
    initial   // the initial values stay
  };
  How how = How::initial;
  std::string sentence;  // for people: "taken"; "new: the file does not have it"
  std::vector<double> values =
      {};  // of `changed`: the whole tensor, in the order of files; NaN: the initial value stays
};

// By its shape alone. theirs: the tensor of this name in the file; null: the file does not have it.
TensorStart start_by_shape(const Shape& ours, const TensorInfo* theirs);

}  // namespace isobar
