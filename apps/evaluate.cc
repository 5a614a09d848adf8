// isobar evaluate: a saved model on the validation set, whatever its task: the loss, and the task's own metrics.
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/commands.h"
#include "apps/config_options.h"
#include "apps/train/config.h"
#include "apps/train/journal.h"
#include "apps/train/model_file.h"
#include "apps/train/run_folder.h"
#include "apps/train/trainer.h"
#include "engine/files/atomic_file.h"
#include "engine/storage.h"
#include "kernels/common/check.h"
#include "kernels/cuda/runtime.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

struct EvaluateFlags {
  ConfigOptions config;
  std::string weights, data, scores;
};

// The config of the weights, with the paths of --data and what --set says.
RunConfig config_of(const EvaluateFlags& o, ModelDescription& description) {
  ISOBAR_CHECK(description.config, o.weights, " does not say what model it is of");
  ConfigEntries entries = entries_from(to_json(*description.config), o.weights);
  if (!o.data.empty())
    for (const auto& [key, path] : description.config->recipe->paths_in(o.data))
      entries[key] = {fs::absolute(path).lexically_normal().string(), "--data"};
  for (const std::string& assignment : o.config.assignments) set_from_assignment(entries, assignment);
  return read_config(entries);
}

void evaluate(const EvaluateFlags& o) {
  const Device device = o.config.use_device();
  const StreamScope stream(std::make_shared<gpu::OwnedStream>(device));
  const fs::path file = weights_at(o.weights);
  ISOBAR_CHECK(o.scores.empty() || fs::weakly_canonical(replaced_by_writing(o.scores)) != fs::weakly_canonical(file),
               "--scores ", o.scores, " would replace the weights");
  ModelDescription description = describe_model(file);
  RunConfig config = config_of(o, description);
  Recipe& recipe = *config.recipe;
  const fs::path run = run_of(file);
  for (const std::string& line : config.complete_and_check()) std::cout << line << '\n';
  for (const std::string& line : recipe.open((run.empty() ? file.parent_path() : run) / "stats", !run.empty()))
    std::cout << line << '\n';
  recipe.check_resume(description.weights);

  const std::unique_ptr<Task> task = recipe.make_trained_task(description.weights, config.compute, device);
  read_model(file, *task);
  Loaders loaders(recipe.train(), recipe.valid(), config.reading, config.batch, config.compute.seed, device);
  const std::unique_ptr<Metrics> metrics = task->metrics();
  score_all(*task, loaders, *metrics, [] { return false; });
  const Report report = metrics->report();

  std::cout << "weights: " << file.string() << "\nvalidation loss " << metrics->loss() << '\n'
            << report.table << std::endl;
  if (o.scores.empty()) return;
  nlohmann::ordered_json scores{{"val_loss", metrics->loss()}};
  add_figures(scores, report.summary);
  write_file_atomically(o.scores, scores.dump(2) + "\n");
}

}  // namespace

void register_evaluate(CLI::App& app) {
  auto options = std::make_shared<EvaluateFlags>();
  CLI::App* command = app.add_subcommand("evaluate", "Judge a trained model on its validation set");
  command->add_option("--weights", options->weights, "FILE.safetensors, or a run's folder (its best weights)")
      ->required();
  add_set_option(*command, options->config);
  add_device_options(*command, options->config);
  command->add_option("--data", options->data, "a folder as for train; default: the data of the run");
  command->add_option("--scores", options->scores, "FILE.json for the loss and the metrics");
  command->callback([options] { evaluate(*options); });
}

}  // namespace isobar
