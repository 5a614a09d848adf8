// isobar-train-step: training steps of the base ViT on the CPU, one for every line that arrives on stdin. bench/cpu_step.py
// drives it, so that its steps alternate with PyTorch's on the same weights and the same batch.
#include <omp.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstddef>
#include <exception>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/safetensors.h"
#include "models/forecaster.h"
#include "models/trainer.h"
#include "models/weights.h"

namespace isobar::bench {
namespace {

struct Options {
  std::string weights;  // safetensors of the model's state_dict
  std::string batch;    // safetensors with `input` and `target`, [B, 20, 360, 720], normalised
  bool bf16 = false;
  int threads = 0;  // 0: all
};

// Fields that need no normalising, on the tutorial's grid.
Grid identity_grid(const Config& config) {
  const auto channels = static_cast<std::size_t>(config.n_in_channels);
  Grid grid;
  for (std::size_t c = 0; c < channels; ++c) grid.channel_names.push_back("c" + std::to_string(c));
  grid.statistics.means.assign(channels, 0);
  grid.statistics.stds.assign(channels, 1);
  grid.row_weights.assign(static_cast<std::size_t>(config.img_size[0]), 1);
  return grid;
}

std::vector<float> read_fields(const SafetensorsFile& file, const std::string& name) {
  const TensorBytes& tensor = file.at(name);
  std::vector<float> fields(static_cast<std::size_t>(elements_of(tensor.info)));
  copy_elements(tensor, DType::fp32, reinterpret_cast<std::byte*>(fields.data()));
  return fields;
}

void run(const Options& options) {
  if (options.threads > 0) omp_set_num_threads(options.threads);
  const SafetensorsFile file(options.batch);
  std::vector<float> input = read_fields(file, "input"), target = read_fields(file, "target");

  Config config;
  config.amp_mode = options.bf16 ? AmpMode::bf16 : AmpMode::none;
  config.global_batch_size = file.at("input").info.shape[0];
  Forecaster forecaster(config, identity_grid(config), Device{DeviceKind::cpu});
  read_model(options.weights, forecaster);
  Trainer trainer(forecaster);

  const auto batch = std::make_shared<Batch>();
  batch->size = config.global_batch_size;
  batch->input = input.data();
  batch->target = target.data();
  for (std::string line; std::getline(std::cin, line);) {
    const auto begin = std::chrono::steady_clock::now();
    const StepResult result = trainer.step([&] { return batch; });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::cout << nlohmann::ordered_json({{"seconds", seconds.count()}, {"loss", result.loss}}).dump() << std::endl;
  }
}

}  // namespace
}  // namespace isobar::bench

int main(int argc, char** argv) {
  isobar::bench::Options options;
  CLI::App app("Training steps of the base ViT on the CPU, one for every line on stdin.", "isobar-train-step");
  app.add_option("--weights", options.weights, "The model's weights")->required();
  app.add_option("--batch", options.batch, "The batch: input and target, normalised")->required();
  app.add_flag("--bf16", options.bf16, "amp_mode bf16 instead of fp32");
  app.add_option("--threads", options.threads, "CPU threads; default: all")->check(CLI::PositiveNumber);
  try {
    app.parse(argc, argv);
    isobar::bench::run(options);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const std::exception& error) {
    std::cerr << "isobar-train-step: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
