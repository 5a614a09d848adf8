#include "apps/train/rank_of_run.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/train/loaders.h"
#include "apps/train/model_file.h"
#include "apps/train/trainer.h"
#include "comm/agreement.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

// What each process has found in its own files, before the model is made and after.
std::vector<Finding> findings_of(const OpenedRun& run) {
  std::string layout;
  for (const TensorSpec& tensor : run.data.train().layout())
    layout += concat(tensor.name, ' ', to_string(tensor.shape), ';');
  return {{"a config, completed by its data,", run.setup.config.dump()},
          {"a number of training samples", concat(run.data.train().samples())},
          {"a number of validation samples", concat(run.data.valid().samples())},
          {"a number of test samples", run.data.test() == nullptr ? "none" : concat(run.data.test()->samples())},
          {"a shape of samples", layout}};
}

std::vector<Finding> findings_of(const Task& task) {
  std::string all;
  for (const auto& [name, value] : task.settings()) all += concat(name, '=', value, '\n');
  return {{"statistics or names of the data", all}};
}

std::unique_ptr<Task> make_task(const OpenedRun& run, const Parallel& parallel) {
  const ComputeOptions& compute = run.config.compute;
  return run.trained ? run.data.make_trained_task(*run.trained, compute, run.device, parallel)
                     : run.data.make_task(compute, run.device, parallel);
}

}  // namespace

void train_as_rank(const Parallel& parallel, const PlannedRank& planned, OpenedRun& run, Outcome* outcome) {
  const Communicator& world = parallel.world;
  const RunConfig& config = run.config;
  check_agreement(world, findings_of(run));
  const std::unique_ptr<Task> task = make_task(run, parallel);
  check_agreement(world, findings_of(*task));
  if (!run.init.empty()) read_model(run.init, *task);
  if (run.partial) run.partial->apply(task->parameters());
  Trainer trainer(*task, trainer_options(run), parallel);
  const bool takes_moments = !run.init_moments.empty() && !run.found.checkpoint;
  if (takes_moments) trainer.take_moments(run.init_moments);
  const std::vector<TrainingStage> stages = run.data.stages();
  const std::int64_t done = run.found.checkpoint ? run.found.checkpoint->step : 0;
  Loaders loaders(*stage_after(stages, done).samples, run.data.valid(), config.reading, config.batch,
                  config.compute.seed, run.device, {parallel.dp.rank(), parallel.dp.size(), task->band()});
  if (!run.found.is_resumed) loaders.try_first_batches();
  if (run.data.test() != nullptr) loaders.judged(*run.data.test()).try_first_batch();
  world.barrier();  // no rank has found an error: an existing run may be overwritten
  RunFolder* const folder = world.rank() == 0 ? run.folder : nullptr;
  std::optional<Working> work;
  if (folder != nullptr) {
    work.emplace(world, "preparing the run's folder");
    folder->prepare(run.setup.config, run.config.keys_free_on_resume(), run.config.origins);
    outcome->prepared = true;
    run.data.keep(folder->statistics());
  }
  try {
    RunSetup setup = run.setup;
    setup.stages = stages;
    if (takes_moments) setup.notes.push_back("Adam goes on with the moments of " + run.init_moments.string());
    for (const TrainingStage& stage : stages)
      if (setup.comm_report)
        setup.traffic_of_step.push_back(
            predict_step(run.data, trainer_options(run), planned, run.device.kind, stage.samples).traffic);
    const JudgedSets sets{.also_valid = run.data.also_valid(), .test = run.data.test()};
    TrainingRun training(folder, std::move(setup), parallel, loaders, sets, *task, trainer, run.found.checkpoint);
    work.reset();
    const TrainingRun::End end = training.train();
    if (outcome != nullptr) outcome->end = end;
  } catch (...) {
    if (outcome != nullptr) outcome->iterations = trainer.iteration();
    throw;
  }
}

}  // namespace isobar
