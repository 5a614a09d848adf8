// Tests in a child process whether the HDF5 library survives a file: some damaged files crash it.
#pragma once

#include <optional>
#include <string>

namespace isobar::hdf5 {

// A child process makes all calls of the library that isobar will make (data/files/trial.h). Returns what happened to
// the child, for the end of a sentence; nothing if all is well. The caller holds the library's lock.
std::optional<std::string> try_to_walk(const std::string& path);

}  // namespace isobar::hdf5
