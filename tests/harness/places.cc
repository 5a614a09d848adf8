#include "tests/harness/places.h"

#include <cstdlib>

namespace isobar::testing {

const char* const kSourceFolder = ISOBAR_SOURCE_DIR;
const char* const kIsobar = ISOBAR_BINARY;
const char* const kIsobarBench = ISOBAR_BENCH_BINARY;
const char* const kIsobarBenchStep = ISOBAR_BENCH_STEP_BINARY;

std::string source_path(const std::string& path) {
  const char* const elsewhere = std::getenv("ISOBAR_TEST_SOURCES");
  return std::string(elsewhere != nullptr ? elsewhere : kSourceFolder) + "/" + path;
}

}  // namespace isobar::testing
