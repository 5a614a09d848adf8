// The functions between the layers of a network.
#pragma once

#include <cstdint>

namespace isobar {

// gelu_erf: x·Φ(x), exact (Hendrycks & Gimpel 2016). gelu_tanh: 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))).
enum class Activation : std::uint8_t { none, gelu_erf, gelu_tanh };

}  // namespace isobar
