// What one rank holds of a model that ranks split among them: for the map of ranks that is printed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/mesh.h"

namespace isobar {

struct Holding {
  struct Dealt {
    std::string what;  // "heads"
    Part part;
    std::int64_t total = 0;
  };
  std::vector<Dealt> dealt;
  std::int64_t parameters = 0;
};

}  // namespace isobar
