// The metrics of a classifier: its loss, and the fraction of correct predictions.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/tensor.h"
#include "models/task.h"

namespace isobar {

class ClassificationMetrics : public Metrics {
 public:
  explicit ClassificationMetrics(std::int64_t classes);

  // Adds a batch: the loss, prediction and label of every sample. Error for a label that is not a class; samples with
  // the label kIgnoredLabel are not counted.
  void add(const std::vector<double>& losses, const std::vector<std::int32_t>& predictions,
           const std::vector<std::int32_t>& labels);

  void begin() override;
  std::vector<std::span<double>> sums() override { return {sums_}; }
  double loss() const override;
  std::string lack() const override { return all_seen() == 0 ? "all labels are ignored" : ""; }
  double accuracy() const;  // a fraction
  // In metrics.jsonl: accuracy. In summary.json: val_accuracy. Both are fractions.
  Report report(DataSplit split) const override;

 private:
  std::string table(DataSplit split) const;
  double right(std::size_t label) const { return sums_[1 + 2 * label]; }
  double seen(std::size_t label) const { return sums_[2 + 2 * label]; }
  double all_right() const;
  double all_seen() const;

  std::int64_t classes_;
  // The losses, then per class the number of correct samples and of all samples.
  std::vector<double> sums_;
};

// The values of an i32 tensor, on the host.
std::vector<std::int32_t> int_values(const Tensor& tensor);

}  // namespace isobar
