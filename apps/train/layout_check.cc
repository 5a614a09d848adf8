#include "apps/train/layout_check.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "apps/train/loaders.h"
#include "apps/train/trainer.h"
#include "comm/whole_tensors.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr int kSteps = 3;
constexpr double kMinEps = 1e-3;

using Values = LayoutJudge::Values;
using NamedValues = LayoutJudge::NamedValues;

// The results of some steps: whole tensors, on the first rank.
struct Steps {
  // losses: mean over the global batch. norms: of the gradients, before clipping.
  Values losses, norms;
  NamedValues gradients, weights;
};

NamedValues whole_tensors(const Parameters& parameters, const FlatBuffer& buffer, const Communicator& world,
                          double factor) {
  NamedValues tensors;
  visit_whole(parameters, buffer, world, [&](const NamedParameter& p, const Tensor& whole) {
    Values& values = tensors[p.name] = whole.to_vector();
    for (double& value : values) value *= factor;
  });
  return tensors;
}

Steps make_steps(const CheckedLayout& checked, const ComputeOptions& compute, Device device, const Parallel& parallel) {
  const RunConfig& config = checked.config;
  const OpenedRecipe& data = checked.data;
  const std::unique_ptr<Task> task = data.make_task(compute, device, parallel);
  TrainerOptions options = config.trainer_options(config.batch.iterations_per_epoch(data.train().samples()));
  options.compute = compute;
  options.optimizer.eps = std::max(options.optimizer.eps, kMinEps);
  Trainer trainer(*task, options, parallel);
  Loaders loaders(data.train(), data.valid(), config.reading, config.batch, compute.seed, device,
                  {parallel.dp.rank(), parallel.dp.size(), task->band()});
  Steps steps;
  for (int step = 0; step < kSteps; ++step) {
    StepResult result = trainer.step([&] { return loaders.next(); });
    parallel.world.all_reduce({&result.loss, 1});
    steps.losses.push_back(result.loss / parallel.ranks_with_loss());
    steps.norms.push_back(result.grad_norm);
    // A head that starts at zero gives all other parameters zero gradients in the first step
    if (step + 1 == kSteps)
      steps.gradients =
          whole_tensors(task->parameters(), trainer.gradients(), parallel.world, 1 / result.gradient_scale);
  }
  steps.weights = whole_tensors(task->parameters(), {"", task->parameters().weights(), {}}, parallel.world, 1);
  return steps;
}

double rounding_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return 0x1p-8;
    case DType::fp16:
      return 0x1p-11;
    default:
      return 0x1p-24;
  }
}

}  // namespace

LayoutCheck check_layout(const CheckedLayout& checked, const Parallel& parallel) {
  const ComputeOptions& compute = checked.config.compute;
  const Steps together = make_steps(checked, compute, checked.device, parallel);
  LayoutCheck check;
  if (parallel.is_first()) {
    const Working work(parallel.world, "computing the steps of one rank", kAnyTime);
    const Steps serial = make_steps(checked, compute, checked.device, Parallel::alone());
    const bool is_exact = compute.activation() == DType::fp64;
    Steps exact = serial;
    if (!is_exact) {
      ComputeOptions fp64 = compute;
      fp64.amp_mode = AmpMode::none;
      fp64.dtype = ArithmeticType::fp64;
      fp64.cuda_graph = false;
      exact = make_steps(checked, fp64, Device{}, Parallel::alone());
    }
    const LayoutJudge judge(is_exact ? 0 : rounding_of(compute.activation()));
    check.loss = judge.of_values("loss", exact.losses, serial.losses, together.losses, largest(exact.losses));
    check.norm = judge.of_values("gradient norm", exact.norms, serial.norms, together.norms, largest(exact.norms));
    check.gradients = judge.worst(exact.gradients, serial.gradients, together.gradients);
    check.weights = judge.worst(exact.weights, serial.weights, together.weights);
  }
  parallel.world.barrier();
  return check;
}

std::string to_text(const LayoutCheck& check) {
  std::ostringstream out;
  out.precision(2);
  out << std::scientific;
  const auto line = [&](const char* what, const Deviation& deviation) {
    out << what << deviation.difference << " of the largest element, " << deviation.of_bound << " of the bound";
  };
  const auto tensors = [&](const char* what, const Deviation& deviation) {
    line(what, deviation);
    out << ", at " << deviation.tensor << ", of " << deviation.compared << " tensors";
    if (deviation.zero > 0) out << "; " << deviation.zero << " more are zero";
  };
  line("loss       ", check.loss);
  out << ", of " << check.loss.compared << " steps";
  line("\nnorm       ", check.norm);
  out << ", of " << check.norm.compared << " steps";
  tensors("\ngradients  ", check.gradients);
  tensors("\nweights    ", check.weights);
  return out.str();
}

}  // namespace isobar
