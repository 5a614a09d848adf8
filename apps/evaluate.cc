// isobar evaluate: scores a saved model of any task on one of its data sets: the loss and the task's metrics. The other
// sets are not opened.
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "apps/commands.h"
#include "apps/config_options.h"
#include "apps/given_weights.h"
#include "apps/outputs.h"
#include "apps/scores.h"
#include "apps/train/config.h"
#include "apps/train/model_file.h"
#include "apps/train/run_folder.h"
#include "apps/train/scoring.h"
#include "engine/storage.h"
#include "kernels/cuda/runtime.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

struct EvaluateFlags {
  ConfigOptions config;
  std::string weights, data, scores, split = "valid";
  std::optional<std::int64_t> batch_size;
};

DataSplit split_named(const std::string& name) {
  return name == "train" ? DataSplit::train : name == "test" ? DataSplit::test : DataSplit::valid;
}

void evaluate(const EvaluateFlags& o) {
  const Device device = o.config.use_device();
  const StreamScope stream(std::make_shared<gpu::OwnedStream>(device));
  const fs::path file = weights_at(o.weights);
  ModelDescription description = describe_given(file);
  RunConfig config = config_of_weights(o.weights, description, o.data, o.config.assignments);
  if (!o.scores.empty())
    check_output("--scores", o.scores, {.weights = file, .data = data_of(config), .statistics = {}});
  const DataSplit split = split_named(o.split);
  const std::unique_ptr<OpenedSplit> data = config.recipe->open_split(split, description.weights);

  const std::unique_ptr<Task> task = data->make_task(config.compute, device);
  read_model(file, *task);
  EvaluationSet set(data->samples(), o.batch_size.value_or(samples_at_once(config.batch, file)), config.reading,
                    config.compute.seed, device);
  const std::unique_ptr<Metrics> metrics = task->metrics();
  score_all(*task, set, *metrics, [] { return false; });
  std::cout << "weights: " << file.string() << '\n';
  if (const std::string note = data->note(); !note.empty()) std::cout << note << '\n';
  give_scores(split, *metrics, o.scores);
}

}  // namespace

void register_evaluate(CLI::App& app) {
  auto options = std::make_shared<EvaluateFlags>();
  CLI::App* command = app.add_subcommand("evaluate", "Judge a trained model on one of its data sets");
  command
      ->add_option("--weights", options->weights,
                   "FILE.safetensors, a run's folder (its best weights), or a folder of Hugging Face")
      ->required();
  add_set_option(*command, options->config);
  add_device_options(*command, options->config);
  command->add_option("--data", options->data, "a folder or file as for train, instead of the data of the run");
  command->add_option("--split", options->split, "which set: train, valid, test")
      ->check(CLI::IsMember({"train", "valid", "test"}))
      ->capture_default_str();
  command
      ->add_option("--batch-size", options->batch_size,
                   "samples that are computed at once; default: as many as one rank of the run had")
      ->check(whole_number_from(1));
  command->add_option("--scores", options->scores, "FILE.json for the loss and the metrics");
  command->callback([options] { evaluate(*options); });
}

}  // namespace isobar
