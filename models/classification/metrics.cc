#include "models/classification/metrics.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "kernels/common/check.h"
#include "kernels/cross_entropy.h"

namespace isobar {

std::vector<std::int32_t> int_values(const Tensor& tensor) {
  const Tensor host = tensor.to(Device{});
  return {host.data_as<std::int32_t>(), host.data_as<std::int32_t>() + host.numel()};
}

ClassificationMetrics::ClassificationMetrics(std::int64_t classes)
    : classes_(classes), sums_(static_cast<std::size_t>(1 + 2 * classes), 0.0) {}

void ClassificationMetrics::begin() {
  std::ranges::fill(sums_, 0.0);
}

void ClassificationMetrics::add(const std::vector<double>& losses, const std::vector<std::int32_t>& predictions,
                                const std::vector<std::int32_t>& labels) {
  ISOBAR_CHECK(losses.size() == labels.size() && predictions.size() == labels.size(), losses.size(), " losses and ",
               predictions.size(), " predictions do not fit ", labels.size(), " labels");
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] == kIgnoredLabel) continue;
    ISOBAR_CHECK(labels[i] >= 0 && labels[i] < classes_, "a sample has the label ", labels[i], ", but the model knows ",
                 classes_, " classes");
    const auto label = static_cast<std::size_t>(labels[i]);
    sums_[0] += losses[i];
    sums_[1 + 2 * label] += predictions[i] == labels[i] ? 1 : 0;
    sums_[2 + 2 * label] += 1;
  }
}

double ClassificationMetrics::all_right() const {
  double sum = 0;
  for (std::size_t c = 0; c < static_cast<std::size_t>(classes_); ++c) sum += right(c);
  return sum;
}

double ClassificationMetrics::all_seen() const {
  double sum = 0;
  for (std::size_t c = 0; c < static_cast<std::size_t>(classes_); ++c) sum += seen(c);
  return sum;
}

double ClassificationMetrics::loss() const {
  return sums_[0] / all_seen();
}

double ClassificationMetrics::accuracy() const {
  return all_right() / all_seen();
}

Report ClassificationMetrics::report(DataSplit split) const {
  std::ostringstream sentence;
  sentence << "Accuracy: " << std::fixed << std::setprecision(2) << 100 * accuracy() << " %, " << std::setprecision(0)
           << all_seen() - all_right() << " of " << all_seen() << " read wrongly";
  return {.line = {{"accuracy", "", accuracy()}},
          .summary = {{figure_of(split, "accuracy"), "", accuracy()}},
          .scalars = {{"Accuracy/valid", accuracy()}},
          .sentence = sentence.str(),
          .table = table(split)};
}

std::string ClassificationMetrics::table(DataSplit split) const {
  std::ostringstream out;
  out << "Accuracy on the " << name_of_set(split) << ", and its loss\n   class  samples    right  accuracy\n"
      << std::fixed;
  const auto row = [&](const std::string& name, double seen, double right) {
    out << std::setw(8) << name << std::setprecision(0) << std::setw(9) << seen << std::setw(9) << right
        << std::setprecision(2) << std::setw(8);
    if (seen > 0)
      out << 100 * right / seen << " %\n";
    else
      out << "-" << '\n';
  };
  for (std::size_t c = 0; c < static_cast<std::size_t>(classes_); ++c) row(std::to_string(c), seen(c), right(c));
  row("all", all_seen(), all_right());
  out << "    loss  " << std::setprecision(6) << loss();
  return out.str();
}

}  // namespace isobar
