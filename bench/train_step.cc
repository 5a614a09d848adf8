// isobar-train-step WEIGHTS BATCH DTYPE THREADS: training steps of the base ViT on the CPU, one for every line on
// stdin. bench/cpu_step.py drives it, so that its steps alternate with PyTorch's on the same weights and the same
// batch.
//
//   WEIGHTS  safetensors of the model's state_dict          DTYPE    fp32 or bf16
//   BATCH    safetensors with `input` and `target`, [B, 20, 360, 720], normalised
#include <omp.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "bench/training_step.h"
#include "engine/files/safetensors.h"
#include "kernels/common/check.h"

namespace isobar::bench {
namespace {

std::vector<float> read_fields(const SafetensorsFile& file, const std::string& name) {
  const TensorBytes& tensor = file.at(name);
  std::vector<float> fields(static_cast<std::size_t>(elements_of(tensor.info)));
  copy_elements(tensor, DType::fp32, reinterpret_cast<std::byte*>(fields.data()));
  return fields;
}

void run(const std::string& weights, const std::string& batch, const std::string& dtype) {
  const SafetensorsFile file(batch);
  const std::vector<float> input = read_fields(file, "input"), target = read_fields(file, "target");
  StepConfig config;
  config.batch = file.at("input").info.shape[0];
  TrainingStep step(config, {dtype == "bf16" ? DType::bf16 : DType::fp32}, Device{DeviceKind::cpu});
  step.read_weights(weights);
  for (std::string line; std::getline(std::cin, line);) {
    const auto begin = std::chrono::steady_clock::now();
    const StepResult result = step.run(input, target);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::printf("{\"seconds\": %.6f, \"loss\": %.9g}\n", seconds.count(), result.loss);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace isobar::bench

int main(int argc, char** argv) {
  try {
    ISOBAR_CHECK(argc == 5, "usage: isobar-train-step WEIGHTS BATCH fp32|bf16 THREADS");
    omp_set_num_threads(std::atoi(argv[4]));
    isobar::bench::run(argv[1], argv[2], argv[3]);
  } catch (const std::exception& error) {
    std::cerr << "isobar-train-step: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
