#include "models/cnn/options.h"

namespace isobar {
namespace {

constexpr double kMaxLayers = 8000;  // a pass has mask numbers for 8190 stages (models/pass.h)
constexpr double kMaxWidth = 1 << 20;

}  // namespace

KeyTable CnnOptions::keys() {
  return {"The convolutional network",
          {key("width", width, "channels of the hidden layers").within(1, kMaxWidth).also_called({"hiddendim"}),
           key("depth", depth, "number of convolutions").within(2, kMaxLayers).also_called({"layers", "numlayers"}),
           edge_key(edge),
           key("activate_output", activate_output, "LeakyReLU after the last convolution too, as in NERSC's course")},
          [this](const KeyOrigins& origins) { check_edge(edge, origins); }};
}

CnnConfig CnnOptions::config() const {
  return {.width = width, .depth = depth, .edge = edges_of(edge), .activate_output = activate_output};
}

}  // namespace isobar
