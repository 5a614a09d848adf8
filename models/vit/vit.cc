#include "models/vit/vit.h"

#include "engine/ops.h"

namespace isobar {

Tensor Vit::forward(const Tensor& image, const Context& context) const {
  return run_stages(stages_, {image}, context.with_batch(image.size(0)))[0];
}

std::vector<Stage> Vit::cut() const {
  std::vector<Stage> stages = trunk_.stages();
  stages.push_back({[this](const std::vector<Tensor>& in, const Context&) { return std::vector{head(in[0])}; }});
  return stages;
}

// [B·T, C] -> [B, out_channels, LAT, LON], of this rank's band
Tensor Vit::head(const Tensor& y) const {
  const VitTrunkConfig& trunk = config_.trunk;
  const Tensor pixels = head_.forward(y, parameters_.dtype());
  const std::int64_t batch = pixels.size(0) / trunk_.own_tokens();
  return unpatchify(pixels, {batch, config_.out_channels, trunk_.own_height(), trunk.width}, trunk.patch,
                    PatchOrder::channels_last);
}

// The members list their parameters in their order: it is the layout of the flat buffers.
Vit::Vit(const VitConfig& config, Parameters& parameters, const Parallel& parallel)
    : config_(config),
      parameters_(parameters),
      parallel_(parallel),
      trunk_(config.trunk, parameters, parallel),
      head_(parameters, {"head"},
            {.in = config.trunk.embed,
             .out = config.out_channels * config.trunk.patch * config.trunk.patch,
             .bias = false,
             .init_std = config.zero_head ? 0 : 0.02,
             .tf32 = config.trunk.tf32}),
      stages_(cut()) {}

}  // namespace isobar
