#include "apps/train/layout_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <sstream>
#include <vector>

#include "apps/train/loaders.h"
#include "apps/train/trainer.h"
#include "comm/whole_tensors.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr int kSteps = 3;
constexpr double kLeastEps = 1e-3;
constexpr double kExact = 1e-12;

using Values = std::vector<double>;
using NamedValues = std::map<std::string, Values>;

// What steps have made: whole tensors, on the first rank.
struct Steps {
  Values losses;  // means over the global batch
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
  const Recipe& recipe = *config.recipe;
  const std::unique_ptr<Task> task = recipe.make_task(compute, device, parallel);
  OptimizerOptions optimizer = config.optimizer;
  optimizer.eps = std::max(optimizer.eps, kLeastEps);
  Trainer trainer(*task, {config.batch, optimizer, config.schedule, compute}, parallel, checked.exchange);
  Loaders loaders(recipe.train(), recipe.valid(), config.reading, config.batch, compute.seed, device,
                  {parallel.dp.rank(), parallel.dp.size(), task->band()});
  Steps steps;
  for (int step = 0; step < kSteps; ++step) {
    StepResult result = trainer.step([&] { return loaders.next(); });
    parallel.world.all_reduce({&result.loss, 1});
    steps.losses.push_back(result.loss / parallel.world.size());
    if (step + 1 == kSteps)  // a head that starts at zero hides all gradients but its own at first
      steps.gradients = whole_tensors(task->parameters(), trainer.gradients(), parallel.world, 1 / result.loss_scale);
  }
  steps.weights = whole_tensors(task->parameters(), {"", task->parameters().weights(), {}}, parallel.world, 1);
  return steps;
}

double largest(const Values& x) {
  double most = 0;
  for (const double value : x) most = std::max(most, std::abs(value));
  return most;
}

// NaN, which no comparison finds, is as far as can be.
double largest_difference(const Values& a, const Values& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    most = std::max(most, difference);
  }
  return most;
}

// The tensor whose size says how large a difference of this one is.
std::string yardstick_of(const std::string& name) {
  const std::string keys = ".k.bias";
  return name.ends_with(keys) ? name.substr(0, name.size() - keys.size()) + ".q.bias" : name;
}

// Three runs of the same steps: exact in fp64; serial and parallel in the precision checked.
class Judge {
 public:
  // rounding: of the precision, relative; 0 where exact and serial are one.
  explicit Judge(double rounding) : rounding_(rounding) {}

  Deviation of_values(const std::string& name, const Values& exact, const Values& serial, const Values& parallel,
                      double size) const {
    const double difference = largest_difference(exact, parallel);
    const double bound = rounding_ == 0 ? kExact * size : 2 * largest_difference(exact, serial) + rounding_ * size;
    return {size > 0 ? difference / size : difference, difference == 0 ? 0 : difference / bound, name};
  }

  Deviation worst(const NamedValues& exact, const NamedValues& serial, const NamedValues& parallel) const {
    Deviation worst;
    for (const auto& [name, values] : exact) {
      const auto yardstick = exact.find(yardstick_of(name));
      const double size = largest((yardstick == exact.end() ? exact.find(name) : yardstick)->second);
      const Deviation one = of_values(name, values, serial.at(name), parallel.at(name), size);
      if (worst.tensor.empty() || !(one.of_bound <= worst.of_bound)) worst = one;
    }
    return worst;
  }

 private:
  double rounding_;
};

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
    CheckedLayout alone = checked;
    alone.exchange = {};
    const Steps serial = make_steps(alone, compute, checked.device, Parallel::alone());
    const bool is_exact = compute.activation() == DType::fp64;
    Steps exact = serial;
    if (!is_exact) {
      ComputeOptions fp64 = compute;
      fp64.amp_mode = AmpMode::none;
      fp64.dtype = ArithmeticType::fp64;
      fp64.cuda_graph = false;
      exact = make_steps(alone, fp64, Device{}, Parallel::alone());
    }
    const Judge judge(is_exact ? 0 : rounding_of(compute.activation()));
    check.loss = judge.of_values("", exact.losses, serial.losses, together.losses, largest(exact.losses));
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
    if (!deviation.tensor.empty()) out << ", at " << deviation.tensor;
  };
  line("loss       ", check.loss);
  line("\ngradients  ", check.gradients);
  line("\nweights    ", check.weights);
  return out.str();
}

}  // namespace isobar
