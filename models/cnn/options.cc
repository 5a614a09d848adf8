#include "models/cnn/options.h"

#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr double kMaxLayers = 8000;  // a pass has mask numbers for 8190 stages (models/pass.h)
constexpr double kMaxWidth = 1 << 20;

}  // namespace

KeyTable CnnOptions::keys() {
  return {"The convolutional network",
          {key("width", width, "channels of the hidden layers").within(1, kMaxWidth).also_called({"hiddendim"}),
           key("depth", depth, "number of convolutions").within(2, kMaxLayers).also_called({"layers", "numlayers"}),
           key("edge", edge,
               "what lies beyond the edges: zeros, or wrap (the other end), for all axes or one for each, as in "
               "[\"zeros\", \"wrap\"] for a globe's rows and columns; null: zeros")
               .also_called({"padding", "paddingmode"}),
           key("activate_output", activate_output, "LeakyReLU after the last convolution too, as in NERSC's course")},
          [this](const KeyOrigins& origins) {
            if (!edge) return;
            for (const std::string& word : *edge)
              ISOBAR_CHECK(word == "zeros" || word == "wrap", origins.where("edge"),
                           " must be a list of zeros and wrap, not ", word);
          }};
}

CnnConfig CnnOptions::config() const {
  CnnConfig config{.width = width, .depth = depth, .activate_output = activate_output};
  if (!edge) return config;
  config.edge.clear();
  for (const std::string& word : *edge) config.edge.push_back(word == "wrap" ? Edge::wrap : Edge::zeros);
  return config;
}

}  // namespace isobar
