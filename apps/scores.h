// The scores of a set, as commands that judge weights give them.
#pragma once

#include <string>

#include "data/dataset.h"
#include "models/task.h"

namespace isobar {

// Prints the loss and the task's table. Writes loss and metrics into the file, under the names of summary.json, unless
// it is empty.
void give_scores(DataSplit split, const Metrics& metrics, const std::string& file);

}  // namespace isobar
