#include "models/compute_options.h"

#include <cstdlib>
#include <string_view>

#include "kernels/common/check.h"

namespace isobar {

KeyTable ComputeOptions::keys() {
  return {"The arithmetic",
          {key("amp_mode", amp_mode,
               "16-bit arithmetic for the model's activations and products; weights and optimizer stay in 32 bits")
               .also_called({"mixedprecision", "precision", "amp", "fp16", "bf16"}),
           key("dtype", dtype, "arithmetic when amp_mode is none; fp64 on a CPU only"),
           key("tf32", tf32, "fp32 products on a GPU may round their inputs to TF32").free_on_resume(),
           key("recompute", recompute, "blocks run again in the backward pass instead of keeping their activations")
               .free_on_resume()
               .also_called({"checkpointing", "gradientcheckpointing", "activationcheckpointing"}),
           key("cuda_graph", cuda_graph, "forward and backward become one CUDA graph").free_on_resume(),
           key("autotune", autotune,
               "a GPU's products and convolutions take the fastest algorithms of cuBLASLt and cuDNN, timed once; "
               "false: their first guess")
               .free_on_resume()
               .in_older_runs("false"),
           key("seed", seed, "decides initial weights, order of samples and dropout")
               .at_least(0)
               .also_called({"randomseed"})},
          [this](const KeyOrigins& origins) {
            ISOBAR_CHECK(dtype == ArithmeticType::fp32 || amp_mode == AmpMode::none, origins.where("amp_mode"),
                         " must be none when dtype is fp64, not ", name_of_enum(amp_mode));
          }};
}

KeyTable ComputeOptions::freezing_keys() {
  return {
      "What is trained",
      {key("freeze", freeze,
           "parameters that keep their values, by patterns of their names, [\"blocks.*\", \"pos_embed\"]: * stands for "
           "any characters, ? for one; they have no gradients, moments, weight decay or average; null: none")
           .also_called({"frozen", "submodulestofreeze", "freezelayers"})}};
}

bool ComputeOptions::may_use_tf32() const {
  const char* const nvidias = std::getenv("NVIDIA_TF32_OVERRIDE");
  return tf32 && (nvidias == nullptr || std::string_view(nvidias) != "0");
}

DType ComputeOptions::activation() const {
  switch (amp_mode) {
    case AmpMode::bf16:
      return DType::bf16;
    case AmpMode::fp16:
      return DType::fp16;
    case AmpMode::none:
      break;
  }
  return dtype == ArithmeticType::fp64 ? DType::fp64 : DType::fp32;
}

void ComputeOptions::allocate(Parameters& parameters, Device device, const BucketPlan& plan) const {
  ISOBAR_CHECK(activation() != DType::fp64 || behaviour_of(device) == DeviceKind::cpu,
               "dtype: fp64 runs on the CPU only (--device cpu)");
  if (!trains)
    parameters.freeze_all();
  else if (freeze)
    parameters.freeze(*freeze);
  parameters.allocate(activation(), device, static_cast<std::uint64_t>(seed), plan);
}

}  // namespace isobar
