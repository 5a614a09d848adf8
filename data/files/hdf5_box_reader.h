// Reads boxes of a dataset of an HDF5 file, the fastest way that its layout allows:
//
//   contiguous                          pread of the box's rows at the stored offset
//   chunks, plain                       pread of the box's rows in each chunk
//   chunks, deflate and/or shuffle      pread of the chunk, inflated here: in parallel, outside the library's lock
//   anything else                       the HDF5 library, one call at a time
//
// "Anything else" is another filter, a chunk that was never written (it reads as the dataset's fill value), a compact,
// external or virtual dataset, or a number that is neither an integer of 8 to 64 bits nor an IEEE float of 16 to 64.
#pragma once

#include <memory>
#include <string>

#include "data/files/box_reader.h"
#include "data/files/hdf5.h"

namespace isobar {

// `info` is that of the dataset `name`; the file must outlive the reader. Error naming both for a dataset that holds no
// numbers, or is compressed with what this build of HDF5 cannot undo.
std::unique_ptr<BoxReader> make_box_reader(const hdf5::File& file, const std::string& name,
                                           const hdf5::DatasetInfo& info, const BoxReaderOptions& options = {});

}  // namespace isobar
