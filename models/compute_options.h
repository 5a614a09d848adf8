// How any network is computed: the dtype of its arithmetic, the seed of its random numbers, and which of its parameters
// have gradients.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/keys.h"
#include "engine/parameters.h"

namespace isobar {

enum class AmpMode : std::uint8_t { none, bf16, fp16 };
enum class ArithmeticType : std::uint8_t { fp32, fp64 };

template <>
struct EnumNames<AmpMode> {
  static constexpr std::array names{"none", "bf16", "fp16"};
};
template <>
struct EnumNames<ArithmeticType> {
  static constexpr std::array names{"fp32", "fp64"};
};

struct ComputeOptions {
  AmpMode amp_mode = AmpMode::none;
  ArithmeticType dtype = ArithmeticType::fp32;
  bool tf32 = true;
  bool recompute = false;
  bool cuda_graph = false;
  bool autotune = true;
  std::int64_t seed = 0;
  std::optional<std::vector<std::string>> freeze = {};  // patterns of parameters' names (Parameters::freeze)
  bool trains = true;  // no key: false for a model that is only applied, whose weights are all frozen

  KeyTable keys();
  KeyTable freezing_keys();

  DType activation() const;  // the dtype of the inputs of matrix products

  // tf32, except if NVIDIA_TF32_OVERRIDE=0 disables it for NVIDIA's libraries, and so for isobar's own kernels.
  bool may_use_tf32() const;

  // Freezes some of a network's parameters, allocates and initialises all. Error for fp64 on a GPU, and as
  // Parameters::freeze.
  void allocate(Parameters& parameters, Device device, const BucketPlan& plan = {}) const;
};

}  // namespace isobar
