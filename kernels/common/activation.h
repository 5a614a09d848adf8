// The functions between the layers of a network.
#pragma once

#include <cstdint>

namespace isobar {

// gelu_erf: x·Φ(x), exact (Hendrycks & Gimpel 2016). gelu_tanh: 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))).
enum class Activation : std::uint8_t { none, gelu_erf, gelu_tanh };

// Functions whose derivative follows from their value, so that a layer keeps its output and no input of the function.
// relu: max(x, 0). leaky_relu: x, or kLeakySlope·x below 0. tanh.
enum class Pointwise : std::uint8_t { none, relu, leaky_relu, tanh };
inline constexpr double kLeakySlope = 0.01;

constexpr const char* name_of(Pointwise kind) {
  switch (kind) {
    case Pointwise::relu:
      return "relu";
    case Pointwise::leaky_relu:
      return "leaky_relu";
    case Pointwise::tanh:
      return "tanh";
    default:
      return "none";
  }
}

}  // namespace isobar
