// isobar-train-step WEIGHTS BATCH DTYPE THREADS [CONFIG [KEY=VALUE...]]: training steps of a config's task and network
// on the CPU, one for every line on stdin. bench/cpu_step.py drives it, so that its steps alternate with PyTorch's on
// the same weights and the same batch.
//
//   WEIGHTS  safetensors of the model's state_dict          DTYPE    fp32 or bf16
//   BATCH    safetensors of a batch's tensors by name       CONFIG   as of isobar train --config; `base` if not given
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "apps/train/config.h"
#include "apps/train/config_file.h"
#include "apps/train/model_file.h"
#include "apps/train/trainer.h"
#include "data/batch.h"
#include "engine/files/safetensors.h"
#include "engine/tensor.h"
#include "kernels/common/check.h"
#include "models/task.h"

namespace isobar::bench {
namespace {

// A file's tensors; 32-bit integers stay what they are, all others become fp32.
std::shared_ptr<LoadedBatch> read_batch(const std::string& path) {
  const SafetensorsFile file(path);
  auto batch = std::make_shared<LoadedBatch>();
  for (const TensorBytes& from : file.tensors()) {
    const DType dtype = from.info.dtype == DType::i32 ? DType::i32 : DType::fp32;
    const Tensor tensor = Tensor::empty(from.info.shape, dtype, Device{});
    copy_elements(from, dtype, static_cast<std::byte*>(tensor.data()));
    batch->tensors.emplace(from.info.name, tensor);
  }
  return batch;
}

RunConfig config_of(const std::string& name, const std::vector<std::string>& assignments) {
  NamedConfig named = load_config(name, config_search_path());
  for (const std::string& assignment : assignments) set_from_assignment(named.entries, assignment);
  RunConfig config = read_config(named.entries);
  config.check();
  return config;
}

void run(const std::string& weights, const std::string& batch_file, RunConfig config) {
  const std::shared_ptr<const LoadedBatch> batch = read_batch(batch_file);
  config.batch.global_batch_size = batch_size(batch->tensors);
  const std::unique_ptr<Task> task = config.recipe->on_shapes()->make_task(config.compute, Device{DeviceKind::cpu});
  read_model(weights, *task);
  Trainer trainer(*task, config.trainer_options());
  for (std::string line; std::getline(std::cin, line);) {
    const auto begin = std::chrono::steady_clock::now();
    const StepResult result = trainer.step([&] { return batch; });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::printf("{\"seconds\": %.6f, \"loss\": %.9g}\n", seconds.count(), result.loss);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace isobar::bench

int main(int argc, char** argv) {
  try {
    ISOBAR_CHECK(argc >= 5, "usage: isobar-train-step WEIGHTS BATCH fp32|bf16 THREADS [CONFIG [KEY=VALUE...]]");
    omp_set_num_threads(std::atoi(argv[4]));
    std::vector<std::string> assignments(argv + std::min(argc, 6), argv + argc);
    assignments.push_back(std::string("amp_mode=") + (std::string(argv[3]) == "bf16" ? "bf16" : "none"));
    isobar::bench::run(argv[1], argv[2], isobar::bench::config_of(argc > 5 ? argv[5] : "base", assignments));
  } catch (const std::exception& error) {
    std::cerr << "isobar-train-step: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
