// What the HDF5 library does with a file whose structure is damaged, found out before this process asks it.
#pragma once

#include <optional>
#include <string>

namespace isobar::hdf5 {

// Lets a child process ask the library for whatever isobar will ask it (data/files/trial.h). Returns what became of it,
// for the end of a sentence; nothing where all is well. The caller holds the library's lock.
std::optional<std::string> try_to_walk(const std::string& path);

}  // namespace isobar::hdf5
