// Other files that a dataset of an HDF5 file reads from: the parts of external and virtual datasets. If a part is
// missing, the library returns the fill value without an error. The caller holds the library's lock.
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

// Whether the object is stored in `file` itself, and not in another file behind a link.
bool lies_in(const Handle& file, const Handle& object);

// All other files that an opened dataset reads from. Error if one is missing or too short. path: of the dataset's own
// file. where: begins the message of an error.
std::vector<Source> sources_of(const std::string& path, const std::string& where, const Handle& dataset);

}  // namespace isobar::hdf5
