// What a forecast's data have told the process that looked at them, for the processes that go by it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "data/era5/catalog.h"
#include "data/era5/statistics.h"

namespace isobar {

struct ForecastFindings {
  std::shared_ptr<FieldCatalog> catalog = std::make_shared<FieldCatalog>();  // grows as files are opened
  std::optional<ComputedStatistics> statistics = {};  // of the training steps; none: files have them
  bool of_another_process = false;                    // they were unpacked

  // Statistics without their time means, which may be as large as all weights, and are for the process that keeps them.
  std::string pack() const;
  // Of what pack() has made; Error for anything else. Of an empty text: nothing was found yet.
  static ForecastFindings unpack(const std::string& packed);
};

}  // namespace isobar
