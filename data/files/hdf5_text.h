// Texts in HDF5 files, of fixed or variable length. The caller holds the library's lock.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "data/files/hdf5_handle.h"

namespace isobar::hdf5 {

// All texts of a dataset or an attribute, which `read` (H5Dread, H5Aread) reads. Error, before memory is allocated, if
// they have more than 2^28 bytes. where: names file and dataset for the message of an error.
std::vector<std::string> read_text(const std::string& where, hid_t object, hid_t type, std::size_t count,
                                   herr_t (*read)(hid_t object, hid_t type, void* buffer));

// Texts of equal width one after another, as the library expects them.
struct TextTable {
  std::size_t width = 1;
  std::string bytes;

  explicit TextTable(std::span<const std::string> values);
};

Handle text_type(std::size_t width);  // padded with zeros

}  // namespace isobar::hdf5
