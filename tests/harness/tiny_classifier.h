// A classifier of tiny images, whose training in fp64 tests split in every way.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/train/loaders.h"
#include "apps/train/model_file.h"
#include "apps/train/trainer.h"
#include "comm/whole_tensors.h"
#include "models/task.h"
#include "tests/data/files/idx_files.h"
#include "tests/harness/forecast_config.h"
#include "tests/harness/temporary_folder.h"

namespace isobar::testing {

using NamedTensors = std::map<std::string, std::vector<double>>;

class TinyClassifier {
 public:
  static constexpr std::int64_t kIgnored = 9;  // the label that is ignored, unless the keys say otherwise

  // Image files with these labels, of three classes; read in the order of the files.
  explicit TinyClassifier(const std::string& labels, std::vector<std::string> keys = {})
      : config_(read_config(entries(labels, std::move(keys)))), data_(config_.recipe->open(config_.origins, {})) {}

  const RunConfig& config() const { return config_; }
  const OpenedRecipe& data() const { return *data_; }

 private:
  ConfigEntries entries(const std::string& labels, std::vector<std::string> keys) const {
    ImageSet set{8, 8, "", labels};
    for (std::size_t i = 0; i < labels.size() * 64; ++i) set.pixels += static_cast<char>((37 * i * i + 11 * i) % 251);
    for (const char* prefix : {"train", "t10k"}) write_images(folder_.path(), prefix, set);
    keys.insert(keys.begin(), {"task=classification", "images_path=" + folder_.path().string(), "dtype=fp64",
                               "embed_dim=16", "num_heads=2", "depth=2", "patch_size=4", "classes=3", "shuffle=false",
                               "ignored_label=" + std::to_string(kIgnored), "optimizer=adamw", "eps=1e-3",
                               "grad_clip=0.05", "lr=0.01", "weight_decay=0.1", "global_batch_size=7"});
    return entries_of(keys);
  }

  TemporaryFolder folder_;
  RunConfig config_;
  std::unique_ptr<OpenedRecipe> data_;
};

// One rank of its training, with `parts` as grad_accumulation.
class TinyRank {
 public:
  explicit TinyRank(const TinyClassifier& of, const Communicator& world = {}, const MeshSizes& sizes = {},
                    std::int64_t parts = 1, const ExchangeOptions& exchange = {})
      : parallel_(Parallel::start(world, sizes, "tp-cp-dp", exchange)),
        task_(of.data().make_task(of.config().compute, Device{}, parallel_)),
        options_(of.config().trainer_options()) {
    options_.batch.grad_accumulation = parts;
    trainer_ = std::make_unique<Trainer>(*task_, options_, parallel_);
    loaders_ = std::make_unique<Loaders>(of.data().train(), of.data().valid(), of.config().reading, options_.batch, 3,
                                         Device{}, ReadingRank{parallel_.dp.rank(), parallel_.dp.size()});
  }

  Task& task() { return *task_; }
  Trainer& trainer() { return *trainer_; }
  Loaders& loaders() { return *loaders_; }
  const Parallel& parallel() const { return parallel_; }
  const TrainerOptions& options() const { return options_; }

  // Its loss is that of the global batch.
  StepResult step() {
    StepResult result = trainer_->step([this] { return loaders_->next(); });
    parallel_.world.all_reduce({&result.loss, 1});
    result.loss /= parallel_.world.size();
    return result;
  }

  // Whole tensors, on the first rank. All ranks call it.
  NamedTensors weights() const {
    NamedTensors all;
    visit_whole(task_->parameters(), {"", task_->parameters().weights(), {}}, parallel_.world,
                [&](const NamedParameter& p, const Tensor& whole) { all[p.name] = whole.to_vector(); });
    return all;
  }
  // The same of the moving averages (config key ema).
  NamedTensors averaged_weights() {
    const Trainer::AveragedWeights in_use(*trainer_);
    return weights();
  }

  // NAME.model and NAME.optimizer in this folder, as a checkpoint has them. All ranks call it.
  void write_files(const TemporaryFolder& folder, const std::string& name) {
    const Trainer::AveragedWeights in_use(*trainer_);
    write_model(folder / (name + ".model"), *task_, nlohmann::ordered_json::object(), parallel_.world);
    trainer_->write_optimizer(folder / (name + ".optimizer"));
  }

 private:
  Parallel parallel_;  // the task refers to it
  std::unique_ptr<Task> task_;
  TrainerOptions options_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<Loaders> loaders_;
};

// The maximum difference of two lists, relative to the maximum of the first one; 1 if they cannot be compared.
// Attention does not depend on key biases, whose gradients are rounding noise: the divisor is at least 1e-3.
inline double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return 1;
  double worst = 0, largest = 1e-3;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) || std::isnan(b[i])) return 1;
    worst = std::max(worst, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(a[i]));
  }
  return worst / largest;
}

}  // namespace isobar::testing
