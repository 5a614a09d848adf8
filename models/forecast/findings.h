// The results of one process's look at the data of a forecast, for the processes that use them without looking.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "data/fields/catalog.h"
#include "data/fields/statistics.h"

namespace isobar {

struct ForecastFindings {
  std::shared_ptr<FieldCatalog> catalog = std::make_shared<FieldCatalog>();  // grows as files are opened
  std::optional<ComputedStatistics> statistics = {};  // of the training steps; none: they are in files
  bool of_another_process = false;                    // unpacked from those of another process

  // Omits the time means of the statistics: they may be as large as all weights, and only the process that stores them
  // needs them.
  std::string pack() const;
  // The inverse of pack(); Error for any other text. An empty text gives empty findings.
  static ForecastFindings unpack(const std::string& packed);
};

}  // namespace isobar
