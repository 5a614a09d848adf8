// Scales of dimensions, as far as they can be read without trust in the file. For data/files/hdf5*.cc only; the caller
// holds the library's lock.
#pragma once

#include <string>
#include <vector>

#include "data/files/hdf5_handle.h"

namespace isobar::hdf5 {

// The paths of the first scale of each axis, "" where there is none; empty where none is attached.
std::vector<std::string> scales_of(const Handle& dataset);

}  // namespace isobar::hdf5
