// Where the sources and the programs lie that tests read and run. One file alone is compiled with these paths, so that
// all others come from the compiler cache in whatever folder the sources lie.
#pragma once

#include <string>

namespace isobar::testing {

extern const char* const kSourceFolder;  // the repository's root
extern const char* const kIsobar;        // the programs
extern const char* const kIsobarBench;
extern const char* const kIsobarBenchStep;

// Below $ISOBAR_TEST_SOURCES, where tests run on a machine without the sources.
std::string source_path(const std::string& path);

}  // namespace isobar::testing
