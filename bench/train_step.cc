// isobar-train-step WEIGHTS BATCH DTYPE PLACE [CONFIG [KEY=VALUE...]]: training steps of a config's task and network,
// one for every line on stdin, or as many as the line says. bench/cpu_step.py and bench/gpu_step.py drive it, so that
// its steps alternate with PyTorch's on the same weights and the same batch, which lies on the device.
//
//   WEIGHTS  safetensors of the model's state_dict          DTYPE    fp32, tf32, bf16 or fp16
//   BATCH    safetensors of a batch's tensors by name       CONFIG   as of isobar train --config; `base` if not given
//   PLACE    a number of threads of the CPU, or cuda
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/train/config.h"
#include "apps/train/config_file.h"
#include "apps/train/model_file.h"
#include "apps/train/trainer.h"
#include "data/batch.h"
#include "engine/files/safetensors.h"
#include "engine/storage.h"
#include "engine/tensor.h"
#include "kernels/common/check.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/timing.h"
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

std::vector<std::string> keys_of(const std::string& dtype) {
  const bool is_mixed = dtype == "bf16" || dtype == "fp16";
  return {"amp_mode=" + (is_mixed ? dtype : "none"), std::string("tf32=") + (dtype == "tf32" ? "true" : "false")};
}

// `place` as on the command line.
Device device_of(const std::string& place) {
  if (place == "cuda") {
    gpu::set_device(0);  // memory that is freed stays the process's, as in a run
    return Device{DeviceKind::cuda};
  }
  omp_set_num_threads(std::atoi(place.c_str()));
  return Device{DeviceKind::cpu};
}

void run(const std::string& weights, const std::string& batch_file, RunConfig config, Device device) {
  const StreamScope scope(std::make_shared<const gpu::OwnedStream>(device));
  const std::shared_ptr<LoadedBatch> batch = read_batch(batch_file);
  batch->tensors = on_device(batch->tensors, device);
  config.batch.global_batch_size = batch_size(batch->tensors);
  const std::unique_ptr<Task> task = config.recipe->on_shapes()->make_task(config.compute, device);
  read_model(weights, *task);
  Trainer trainer(*task, config.trainer_options());
  std::optional<cuda::AlgorithmTiming> timing;
  if (config.compute.autotune) timing.emplace(device);
  for (std::string line; std::getline(std::cin, line);) {
    const int steps = std::max(1, std::atoi(line.c_str()));
    double loss = 0;
    const auto begin = std::chrono::steady_clock::now();
    for (int step = 0; step < steps; ++step) loss = trainer.step([&] { return batch; }).loss;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::printf("{\"seconds\": %.6f, \"loss\": %.9g, \"peak_bytes\": %zu}\n", seconds.count() / steps, loss,
                peak_memory_bytes());
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace isobar::bench

int main(int argc, char** argv) {
  try {
    ISOBAR_CHECK(argc >= 5,
                 "usage: isobar-train-step WEIGHTS BATCH fp32|tf32|bf16|fp16 THREADS|cuda [CONFIG [KEY=VALUE...]]");
    const isobar::Device device = isobar::bench::device_of(argv[4]);
    std::vector<std::string> assignments(argv + std::min(argc, 6), argv + argc);
    for (const std::string& key : isobar::bench::keys_of(argv[3])) assignments.push_back(key);
    isobar::bench::run(argv[1], argv[2], isobar::bench::config_of(argc > 5 ? argv[5] : "base", assignments), device);
  } catch (const std::exception& error) {
    std::cerr << "isobar-train-step: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
