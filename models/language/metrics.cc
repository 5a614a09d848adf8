#include "models/language/metrics.h"

#include <cmath>
#include <iomanip>
#include <numbers>
#include <sstream>

#include "kernels/common/check.h"
#include "kernels/cross_entropy.h"

namespace isobar {

void LanguageMetrics::add(const std::vector<double>& losses, const std::vector<std::int32_t>& predictions,
                          const std::vector<std::int32_t>& targets) {
  ISOBAR_CHECK(losses.size() == targets.size() && predictions.size() == targets.size(), losses.size(), " losses and ",
               predictions.size(), " predictions do not fit ", targets.size(), " targets");
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] == kIgnoredLabel) continue;
    const auto id = static_cast<std::size_t>(targets[i]);
    ISOBAR_CHECK(targets[i] >= 0 && (bytes_ == nullptr || id < bytes_->size()), "a target is token ", targets[i],
                 ", which is not in the vocabulary");
    sums_[0] += losses[i];
    sums_[1] += 1;
    sums_[2] += predictions[i] == targets[i] ? 1 : 0;
    if (bytes_ != nullptr) sums_[3] += static_cast<double>((*bytes_)[id]);
  }
}

void LanguageMetrics::add(const LanguageMetrics& other) {
  for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += other.sums_[i];
}

double LanguageMetrics::perplexity() const {
  return std::exp(loss());
}

double LanguageMetrics::bits_per_byte() const {
  return sums_[0] / std::numbers::ln2 / sums_[3];
}

Report LanguageMetrics::report(DataSplit split) const {
  Report report;
  const auto give = [&](const char* name, const char* tag, double value) {
    report.line.push_back({name, "", value});
    report.summary.push_back({figure_of(split, name), "", value});
    report.scalars.emplace_back(std::string(tag) + "/valid", value);
  };
  give("perplexity", "Perplexity", perplexity());
  if (knows_bytes()) give("bits_per_byte", "Bits per byte", bits_per_byte());
  give("token_accuracy", "Token accuracy", accuracy());

  std::ostringstream sentence;
  sentence << "Perplexity: " << std::fixed << std::setprecision(3) << perplexity();
  if (knows_bytes()) sentence << ", " << bits_per_byte() << " bits per byte";
  sentence << ", " << std::setprecision(1) << 100 * accuracy() << " % of the tokens predicted";
  report.sentence = sentence.str();

  std::ostringstream table;
  table << "On the " << name_of_set(split) << ", " << std::setprecision(0) << std::fixed << sums_[1] << " targets\n"
        << "    loss           " << std::setprecision(6) << loss() << "\n    perplexity     " << perplexity();
  if (knows_bytes()) table << "\n    bits per byte  " << bits_per_byte();
  report.table = table.str();
  return report;
}

}  // namespace isobar
