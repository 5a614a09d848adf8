#include "tests/harness/places.h"

namespace isobar::testing {

const char* const kSourceFolder = ISOBAR_SOURCE_DIR;
const char* const kIsobar = ISOBAR_BINARY;
const char* const kIsobarBench = ISOBAR_BENCH_BINARY;

}  // namespace isobar::testing
