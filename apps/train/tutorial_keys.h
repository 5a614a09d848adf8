// Keys of the NERSC tutorial's configs that are read and stored, but have no effect.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "engine/keys.h"

namespace isobar {

enum class LoaderKind : std::uint8_t { pytorch, dali };

template <>
struct EnumNames<LoaderKind> {
  static constexpr std::array names{"pytorch", "dali"};
};

struct TutorialKeys {
  std::string inf_data_path = "/data/test";
  bool enable_fused = false;
  bool enable_jit = false;
  LoaderKind data_loader_config = LoaderKind::pytorch;
  std::string wireup_info = "env";
  std::string wireup_store = "tcp";

  KeyTable keys();
};

}  // namespace isobar
