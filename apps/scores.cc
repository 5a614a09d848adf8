#include "apps/scores.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/train/journal.h"
#include "engine/files/atomic_file.h"

namespace isobar {
namespace {

// "validation loss"
std::string loss_of(DataSplit split) {
  const std::string set = name_of_set(split);
  return set.substr(0, set.find(' ')) + " loss";
}

}  // namespace

void give_scores(DataSplit split, const Metrics& metrics, const std::string& file) {
  const Report report = metrics.report(split);
  std::cout << loss_of(split) << ' ' << metrics.loss() << '\n' << report.table << std::endl;
  if (file.empty()) return;
  nlohmann::ordered_json scores{{figure_of(split, "loss"), metrics.loss()}};
  add_figures(scores, report.summary);
  write_file_atomically(file, scores.dump(2) + "\n");
}

}  // namespace isobar
