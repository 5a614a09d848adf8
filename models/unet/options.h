// The size of a U-Net and its initial weights: options of the config.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "engine/keys.h"
#include "models/convolutional.h"
#include "models/unet/unet.h"

namespace isobar {

enum class ConvInitKind : std::uint8_t { normal };

template <>
struct EnumNames<ConvInitKind> {
  static constexpr std::array names{"normal"};
};

struct UnetOptions {
  std::int64_t width = 64;
  bool full_scale = true;
  std::optional<std::int64_t> levels = {};  // null: by full_scale
  EdgeWords edge = {};
  bool bounded = true;
  ConvInitKind conv_init = ConvInitKind::normal;
  double conv_scale = 0.02, conv_bias = 0;

  KeyTable keys();

  UnetConfig config() const;
};

}  // namespace isobar
