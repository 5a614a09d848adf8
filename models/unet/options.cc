#include "models/unet/options.h"

namespace isobar {
namespace {

constexpr double kMaxWidth = 1 << 16, kMaxLevels = 20;
constexpr std::int64_t kLevels = 6, kFewerLevels = 5;  // of the reference, with and without full_scale

}  // namespace

KeyTable UnetOptions::keys() {
  return {"The U-Net",
          {key("width", width, "channels of the first level; the widest levels have 8 times as many")
               .within(1, kMaxWidth)
               .also_called({"ngf", "basechannels"}),
           key("full_scale", full_scale, "6 levels, so that 64 points become one; false: 5 levels"),
           key("levels", levels, "how often the grid is halved, and doubled again; null: as full_scale says")
               .within(1, kMaxLevels),
           edge_key(edge),
           key("bounded", bounded, "tanh after the last layer; set it to false for fields that go beyond -1 and 1"),
           key("conv_init", conv_init, "the distribution of the initial weights").in_yaml({"weight_init.conv_init"}),
           key("conv_scale", conv_scale, "its standard deviation").at_least(0).in_yaml({"weight_init.conv_scale"}),
           key("conv_bias", conv_bias, "the initial value of every bias").in_yaml({"weight_init.conv_bias"})},
          [this](const KeyOrigins& origins) { check_edge(edge, origins); }};
}

UnetConfig UnetOptions::config() const {
  return {.width = width,
          .levels = levels.value_or(full_scale ? kLevels : kFewerLevels),
          .edge = edges_of(edge),
          .bounded = bounded,
          .init = {.scale = conv_scale, .bias = conv_bias}};
}

}  // namespace isobar
