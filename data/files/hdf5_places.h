// Where the HDF5 library would read values.
//
// The library finds a chunk in its index fast when it reads one, but tells where one lies only after a walk through the
// index from its start: n chunks would take n²/2 steps. So it is asked to read each chunk, by a file driver that notes
// the place and reads no values.
#pragma once

#include <cstdint>
#include <string>

#include "data/files/hdf5_handle.h"

namespace isobar::hdf5 {

struct Place {
  std::uint64_t offset = 0, bytes = 0;  // in the file, a user block included
};

// Opens a file by that driver: its structure is read, its values are not, and buffers for them stay as they are. The
// caller holds the library's lock.
Handle open_for_places(const std::string& path);

// Of the values of such a file that the library asked for last; no bytes where it asked for none since the last call.
Place take_place(const Handle& file);

}  // namespace isobar::hdf5
