// The folders of the sources and programs that tests read and run. Only one file is compiled with these paths, so that
// all others come from the compiler cache whatever the folder of the sources.
#pragma once

#include <string>

namespace isobar::testing {

extern const char* const kSourceFolder;  // the repository's root
extern const char* const kIsobar;        // the programs
extern const char* const kIsobarBench;
extern const char* const kIsobarBenchStep;

// Below $ISOBAR_TEST_SOURCES if that is set, for a machine without the sources.
std::string source_path(const std::string& path);

}  // namespace isobar::testing
