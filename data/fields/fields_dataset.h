// The format of the NERSC tutorial and FourCastNet: an HDF5 file with one dataset `fields` [steps, V, LAT, LON].
#pragma once

#include <memory>

#include "data/fields/field_reader.h"
#include "data/files/hdf5.h"

namespace isobar {

// Error if there is no dataset `fields`, or if this program cannot read it.
OpenedFields open_fields_dataset(hdf5::File file, const CacheBudget& budget);

}  // namespace isobar
