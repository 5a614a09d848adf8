#include "models/vit/vit.h"

#include "engine/ops.h"

namespace isobar {

Tensor Vit::patches(const Tensor& image, const Context& context) const {
  return run_stages(stages_, {image}, context.with_batch(image.size(0)))[0];
}

Tensor Vit::forward(const Tensor& image, const Context& context) const {
  const VitTrunkConfig& trunk = config_.trunk;
  return unpatchify(patches(image, context), {image.size(0), config_.out_channels, trunk_.own_height(), trunk.width},
                    trunk.patch, PatchOrder::channels_last);
}

std::vector<Stage> Vit::cut() const {
  std::vector<Stage> stages = trunk_.stages();
  stages.push_back({[this](const std::vector<Tensor>& in, const Context&) {
    return std::vector{head_.forward(in[0], parameters_.dtype())};
  }});
  return stages;
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
