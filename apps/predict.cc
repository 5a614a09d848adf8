// isobar predict: applies a trained network to whole images or to a whole volume, and writes what it computes.
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "apps/commands.h"
#include "apps/config_options.h"
#include "apps/given_weights.h"
#include "apps/outputs.h"
#include "apps/scores.h"
#include "apps/train/config.h"
#include "apps/train/loaders.h"
#include "apps/train/model_file.h"
#include "apps/train/run_folder.h"
#include "data/files/hdf5.h"
#include "engine/storage.h"
#include "kernels/common/check.h"
#include "kernels/cuda/runtime.h"
#include "models/prediction.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

struct PredictFlags {
  ConfigOptions config;
  std::string weights, out, scores;
  PredictionRequest request;
  std::optional<std::int64_t> batch_size;
};

// Scores of other files than the run's validation set are not to be taken for its own.
DataSplit split_of(const PredictFlags& o) {
  return o.request.input.empty() ? DataSplit::valid : DataSplit::test;
}

// Error if an output would replace an input, data of the run, or the other output.
void check_outputs(const PredictFlags& o, const fs::path& weights, const RunConfig& config) {
  CommandInputs inputs{.weights = weights, .data = data_of(config), .statistics = {}};
  if (!o.request.input.empty()) inputs.data.emplace_back(o.request.input);
  for (const auto& [flag, path] : {std::pair("--out", o.out), std::pair("--scores", o.scores)}) {
    if (path.empty()) continue;
    check_format(flag, path);
    check_output(flag, path, inputs);
  }
  check_differ("--out", o.out, "--scores", o.scores);
}

void write_attributes(hdf5::File& file, const OpenedPrediction& prediction, const fs::path& weights,
                      const RunConfig& config) {
  const std::string dataset = prediction.dataset();
  const std::vector<std::string> units = prediction.units();
  if (units.size() == 1) file.write_attribute(dataset, "units", units.front());
  if (units.size() > 1) file.write_attribute(dataset, "units", units);
  file.write_attribute(dataset, "weights", fs::absolute(weights).lexically_normal().string());
  file.write_attribute(dataset, "task", config.task);
  file.write_attribute(dataset, "model", config.model);
  std::string made;
  for (const std::string& sentence : prediction.sentences()) made += (made.empty() ? "" : "; ") + sentence;
  file.write_attribute(dataset, "made_from", made);
}

// One pass over the parts in their order: each part's box is written when it is computed.
void write_prediction(const OpenedPrediction& prediction, EvaluationSet& parts, hdf5::File& file, Metrics* metrics) {
  const MemoryScope memory("prediction");
  Loader& loader = parts.loader();
  for (std::int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
    const std::shared_ptr<const LoadedBatch> batch = loader.next();
    for (const PredictedBox& box : prediction.compute(batch->samples, batch->tensors, metrics))
      file.write_box(prediction.dataset(), box.start, box.count, box.values.data());
  }
}

void predict(const PredictFlags& o) {
  const Device device = o.config.use_device();
  const StreamScope stream(std::make_shared<gpu::OwnedStream>(device));
  const fs::path weights = weights_at(o.weights);
  ModelDescription description = describe_model(weights);
  RunConfig config = config_of_weights(o.weights, description, "", o.config.assignments);
  check_outputs(o, weights, config);
  const std::unique_ptr<OpenedPrediction> prediction = config.recipe->open_prediction(o.request, description.weights);
  const std::string missing = prediction->missing_target();
  ISOBAR_CHECK(o.scores.empty() || missing.empty(), "--scores ", o.scores, ": ", prediction->parts().name(), " has no ",
               missing, " beside it to score by");
  check_disk("--out", o.out, static_cast<std::uintmax_t>(numel_of(prediction->shape())) * sizeof(float));

  Task& task = prediction->make_task(config.compute, device);
  read_model(weights, task);
  print_weights_origin(weights);
  for (const std::string& sentence : prediction->sentences()) std::cout << sentence << '\n';
  std::cout << std::flush;

  EvaluationSet parts(prediction->parts(), o.batch_size.value_or(samples_at_once(config.batch, weights)),
                      config.reading, config.compute.seed, device);
  const std::unique_ptr<Metrics> metrics = missing.empty() ? task.metrics() : nullptr;
  if (metrics) metrics->begin();
  hdf5::File file = hdf5::File::create(o.out);
  file.reserve(prediction->dataset(), prediction->shape());
  write_attributes(file, *prediction, weights, config);
  write_prediction(*prediction, parts, file, metrics.get());
  file.close();
  std::cout << "written to " << o.out << ": " << prediction->dataset() << ' ' << to_string(prediction->shape())
            << ", HDF5 that h5py reads" << std::endl;
  if (!metrics) return;
  metrics->end();
  give_scores(split_of(o), *metrics, o.scores);
}

}  // namespace

void register_predict(CLI::App& app) {
  auto options = std::make_shared<PredictFlags>();
  CLI::App* command = app.add_subcommand("predict", "Apply a trained network to whole images or to a whole volume");
  command->add_option("--weights", options->weights, "FILE.safetensors, or a run's folder (its best weights)")
      ->required();
  command->add_option("--input", options->request.input,
                      "images or a volume, as the task's data are; default: the validation set of the run");
  command->add_option("--out", options->out, "FILE.h5 for what the network computes")->required();
  command->add_option("--scores", options->scores, "FILE.json for the loss and the metrics, where there is a target");
  command->add_option("--overlap", options->request.overlap,
                      "points by which neighbouring crops of a volume overlap: half of them are cut off at each inner "
                      "end of a crop; default: half of a crop (config key data_size)");
  command
      ->add_option("--batch-size", options->batch_size,
                   "images or crops that are computed at once; default: as many as one rank of the run had")
      ->check(whole_number_from(1));
  add_set_option(*command, options->config);
  add_device_options(*command, options->config);
  command->callback([options] { predict(*options); });
}

}  // namespace isobar
