#include "apps/train/opened_run.h"

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "apps/train/model_file.h"
#include "apps/train/run_folder.h"
#include "engine/files/checkpoint.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

// Of this task weights of other data never fit in part: their numbers stand for other tokens.
constexpr const char* kTaskOfTokens = "language_model";

// A refusal also names a config key that is not as in the run of these weights, if one is: it may be the reason.
void check_resume(RunConfig& config, const OpenedRecipe& data, const GivenWeights& trained) {
  try {
    data.check_resume(trained);
  } catch (const Error& error) {
    const auto changed = first_difference(to_json(config, data.found()), stored_config(trained.file.string()),
                                          config.keys_free_on_resume());
    if (!changed) throw;
    throw_error(error.what(), "; ", config.origins.where(changed->key), " is ", changed->one, ", and ", changed->other,
                " in the run to resume");
  }
}

// In one process.
std::unique_ptr<OpenedRecipe> open_data(RunConfig& config, const OpenRequest& request, const FirstWeights& weights) {
  std::unique_ptr<OpenedRecipe> data = config.recipe->open(config.origins, request);
  for (const std::string& sentence : data->sentences()) std::cout << sentence << std::endl;
  if (weights.trained) check_resume(config, *data, *weights.trained);
  if (weights.init) data->check_start(*weights.init);
  return data;
}

}  // namespace

FirstWeights first_weights(const FoundRun& found, const std::filesystem::path& init, bool is_partial) {
  FirstWeights weights;
  if (found.checkpoint) weights.trained = describe_model(found.checkpoint->folder / kModelFile).weights;
  if (!init.empty() && !is_partial) weights.init = describe_model(init).weights;
  if (!init.empty() && is_partial && !found.checkpoint) weights.partial = describe_model(init);
  return weights;
}

std::optional<PartialStart> partial_start(const FirstWeights& weights, const RunConfig& config,
                                          const OpenedRecipe& data) {
  if (!weights.partial) return std::nullopt;
  const auto& [given, their_config] = *weights.partial;
  if (config.task == kTaskOfTokens) data.check_start(given);
  const FieldsMeaning theirs = their_config ? their_config->recipe->meaning_of(given) : FieldsMeaning();
  const std::unique_ptr<Task> on_shapes = data.make_task(config.compute, meta_like(DeviceKind::cpu));
  return PartialStart(given.file, on_shapes->parameters(), *config.network, theirs, data.meaning());
}

// A file system could not serve thousands of processes at once.
std::unique_ptr<OpenedRecipe> open_data_of_run(RunConfig& config, const OpenRequest& request,
                                               const FirstWeights& weights, const Communicator& processes) {
  if (processes.size() == 1) return open_data(config, request, weights);
  std::unique_ptr<OpenedRecipe> data;
  {
    const Working work(processes, "looking at the data", kAnyTime);  // may compute statistics of all of them
    if (processes.rank() == 0) data = open_data(config, request, weights);
  }
  OpenRequest of_others = request;
  of_others.findings = processes.broadcast_text(data ? data->findings() : "", 0);
  return data ? std::move(data) : open_data(config, of_others, weights);
}

nlohmann::ordered_json config_of_run(RunConfig& config, const OpenedRecipe& data, const ScheduleOptions& schedule) {
  std::vector<FoundKey> found = data.found();
  if (config.schedule.num_epochs) found.push_back({"num_iters", schedule.num_iters});
  return to_json(config, found);
}

std::string about_repeated_samples(const RunConfig& config, const OpenedRecipe& data, const ScheduleOptions& schedule) {
  const Dataset& train = data.train();
  const std::int64_t in_order =
      config.batch.iterations_per_epoch(train.samples()) * config.batch.global_batch_size;  // of whole batches
  const BatchRamp ramp = config.batch.ramp();
  std::int64_t enough_for = ramp.iterations_for(in_order);
  while (ramp.samples_of(enough_for) > in_order) --enough_for;
  if (!train.has_own_order() || schedule.num_iters <= enough_for) return "";
  return concat("warning: the ", train.samples(), " training samples (train_samples) are enough for ", enough_for,
                " of the ", schedule.num_iters, " iterations: from iteration ", enough_for + 1,
                " on the same ones are taken again, in the same order. A larger train_samples has new ones, for a run "
                "that has not begun again");
}

TrainerOptions trainer_options(const OpenedRun& run) {
  return run.config.trainer_options(run.config.batch.iterations_per_epoch(run.data.train().samples()));
}

}  // namespace isobar
