// Other files that a dataset of an HDF5 file reads from: the parts of external and of virtual datasets. The library
// makes up what it does not find there. The caller holds its lock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/files/hdf5_handle.h"

namespace isobar::hdf5 {

// A file that a dataset reads from, and how long it must be.
struct Source {
  std::string path;
  std::uint64_t bytes = 0;
};

// Whether a link has not led from `file` into another one.
bool lies_in(const Handle& file, const Handle& object);

// Every file but its own that an opened dataset reads from; an error where one is missing or too short. `path` is that
// of its own file, and `where` begins the message of an error.
std::vector<Source> sources_of(const std::string& path, const std::string& where, const Handle& dataset);

}  // namespace isobar::hdf5
