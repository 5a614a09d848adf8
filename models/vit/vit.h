// The vision transformer of the NERSC tutorial: fields in, fields out.
//
//   patches = head(trunk(fields))                                 the channel is the head's fastest index
//   fields  = unpatchify(patches)
//
// The head has no bias. Parameter names and layouts are those of the PyTorch model's state_dict.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/layers/linear.h"
#include "models/vit/trunk.h"

namespace isobar {

struct VitConfig {
  VitTrunkConfig trunk;
  std::int64_t out_channels = 0;  // V of the output
  bool zero_head = false;         // the head starts at zero instead of N(0, 0.02)
};

class Vit {
 public:
  // Lists its parameters; they must be allocated before forward(). Both arguments must outlive it.
  Vit(const VitConfig& config, Parameters& parameters, const Parallel& parallel = Parallel::alone());
  Vit(const Vit&) = delete;  // its stages refer to it
  Vit& operator=(const Vit&) = delete;

  // [B, V, LAT, LON] in the parameters' dtype -> [B, out_channels, LAT, LON] in the same, of this rank's band of rows
  // (VitTrunk::own_band). Error where an image has another shape.
  Tensor forward(const Tensor& image, const Context& context) const;
  // The same as the head gives it: rows of patches [B·T, P·P·out_channels], PatchOrder::channels_last.
  Tensor patches(const Tensor& image, const Context& context) const;

  // The trunk's stages, then the head: what patches() runs.
  std::span<const Stage> stages() const { return stages_; }
  const VitConfig& config() const { return config_; }
  Part own_band() const { return trunk_.own_band(); }

 private:
  std::vector<Stage> cut() const;

  VitConfig config_;
  const Parameters& parameters_;
  const Parallel& parallel_;
  VitTrunk trunk_;
  Linear head_;
  std::vector<Stage> stages_;
};

}  // namespace isobar
