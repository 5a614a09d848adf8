// Data of regression that are open, of images or of volumes: what the recipes of both give to a run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/recipe.h"

namespace isobar {

class OpenedRegression : public OpenedRecipe {
 public:
  // Error if the weights were trained on samples of another kind.
  using CheckKind = std::function<void(const GivenWeights&)>;

  // check_kind may refer to the data sets.
  OpenedRegression(std::unique_ptr<const TaskSource> task, std::unique_ptr<const Dataset> train,
                   std::unique_ptr<const Dataset> valid, std::vector<std::string> sentences, CheckKind check_kind)
      : task_(std::move(task)),
        train_(std::move(train)),
        valid_(std::move(valid)),
        sentences_(std::move(sentences)),
        check_kind_(std::move(check_kind)) {}

  const Dataset& train() const override { return *train_; }
  const Dataset& valid() const override { return *valid_; }
  const Dataset* test() const override { return nullptr; }
  std::vector<std::string> sentences() const override { return sentences_; }
  void check_start(const GivenWeights& weights) const override { check_kind_(weights); }
  void check_resume(const GivenWeights& weights) const override { check_kind_(weights); }
  std::unique_ptr<Task> make_task(const ComputeOptions& compute, Device device,
                                  const Parallel& parallel) const override {
    return task_->make_task(compute, device, parallel);
  }
  std::unique_ptr<Task> make_trained_task(const GivenWeights&, const ComputeOptions& compute, Device device,
                                          const Parallel& parallel) const override {
    return make_task(compute, device, parallel);
  }

 private:
  const std::unique_ptr<const TaskSource> task_;
  const std::unique_ptr<const Dataset> train_, valid_;
  const std::vector<std::string> sentences_;
  const CheckKind check_kind_;
};

class OpenedRegressionSplit : public OpenedSplit {
 public:
  OpenedRegressionSplit(std::unique_ptr<const TaskSource> task, std::unique_ptr<const Dataset> samples)
      : task_(std::move(task)), samples_(std::move(samples)) {}

  const Dataset& samples() const override { return *samples_; }
  std::unique_ptr<Task> make_task(const ComputeOptions& compute, Device device) const override {
    return task_->make_task(compute, device, Parallel::alone());
  }

 private:
  const std::unique_ptr<const TaskSource> task_;
  const std::unique_ptr<const Dataset> samples_;
};

}  // namespace isobar
