// isobar-accesses: counts what the memory accesses of the CUDA kernels cost, and prints it as JSON:
//
//   {"compiler": ..., "kernels": [{"kernel": ..., "places": [...]}, ...]}
//
// A place of the code has its cost (lab/accesses/counter.h), "memory", "access", and its address in this program's
// file, for addr2line. `python3 lab/kernel_report accesses` makes a table of it.
#include <exception>
#include <iostream>

#include <nlohmann/json.hpp>

#include "lab/accesses/cases.h"

extern "C" char __executable_start;  // NOLINT: the linker's name for where the program lies

namespace {

using nlohmann::json;
using namespace isobar::accesses;

json to_json(const Counted& counted) {
  json places = json::array();
  for (const auto& [place, cost] : counted.costs) {
    places.push_back({{"address", static_cast<const char*>(place.code) - &__executable_start},
                      {"memory", place.is_shared ? "shared" : "global"},
                      {"access", place.is_store ? "store" : "load"},
                      {"requests", cost.requests},
                      {"moved", cost.moved},
                      {"least", cost.least}});
  }
  return {{"kernel", counted.kernel}, {"places", places}};
}

}  // namespace

int main() try {
  json kernels = json::array();
  for (const Counted& counted : count_kernels()) kernels.push_back(to_json(counted));
  std::cout << json{{"compiler", "g++ " __VERSION__}, {"kernels", kernels}}.dump(1) << "\n";
} catch (const std::exception& error) {
  std::cerr << "isobar-accesses: " << error.what() << "\n";
  return 1;
}
