#include "data/fields/experiments.h"

#include <algorithm>
#include <string>

#include "kernels/common/number_text.h"

namespace isobar {
namespace {

// "0005" -> 5; -1 for a text that is no number.
double number_of_experiment(const std::string& text) {
  return number_from<int>(text).value_or(-1);
}

}  // namespace

std::vector<double> experiment_numbers(const StoredArrays& arrays) {
  const ArrayInfo* const array = arrays.find(kExpver);
  if (array == nullptr || array->shape.size() > 1) return {};
  std::vector<double> numbers;
  if (array->has_numbers) {
    numbers.resize(array->shape.empty() ? 1 : static_cast<std::size_t>(array->shape.front()));
    const std::vector<std::int64_t> start(array->shape.size(), 0);
    arrays.open(array->name)->read(start, array->shape, numbers.data());
    return numbers;
  }
  for (const std::string& text : arrays.texts(kExpver).value_or(std::vector<std::string>()))
    numbers.push_back(number_of_experiment(text));
  return numbers;
}

std::vector<Experiment> in_order_of_trust(const std::vector<double>& numbers, std::int64_t entries) {
  const bool are_known = std::ssize(numbers) == entries;
  std::vector<Experiment> experiments;
  for (std::int64_t entry = 0; entry < entries; ++entry)
    experiments.push_back({entry, are_known && is_preliminary(numbers[static_cast<std::size_t>(entry)])});
  std::ranges::stable_sort(experiments, {}, &Experiment::is_preliminary);
  return experiments;
}

}  // namespace isobar
