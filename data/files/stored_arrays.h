// The arrays of a file of any format that isobar reads: HDF5 (NetCDF-4 is HDF5 too), NetCDF-3, and Zarr.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/files/array_info.h"
#include "data/files/box_reader.h"
#include "data/files/hdf5.h"
#include "data/files/zarr.h"

namespace isobar {

class StoredArrays {
 public:
  virtual ~StoredArrays() = default;

  const std::string& path() const { return path_; }
  const std::vector<ArrayInfo>& arrays() const { return arrays_; }  // text and others included; those of groups too
  const Attributes& attributes() const { return attributes_; }      // of the file as a whole
  const ArrayInfo* find(const std::string& name) const;             // null if there is none

  virtual const char* format() const = 0;  // "HDF5", "NetCDF-3", "Zarr"

  // Reads boxes of an array; this object must outlive the reader. Error naming file and array if there is none of this
  // name, if it holds no numbers, or if it is compressed by what isobar, or this build of it, cannot undo. missing: of
  // Zarr; what was never written to an HDF5 file reads as its fill value.
  std::unique_ptr<BoxReader> open(const std::string& name, const BoxReaderOptions& options = {},
                                  zarr::MissingChunk missing = zarr::MissingChunk::error) const;
  // All texts of an array, row-major; none if there is no such array, if it holds no text, or if isobar does not read
  // texts of this format: it reads those of HDF5.
  virtual std::optional<std::vector<std::string>> texts(const std::string&) const { return std::nullopt; }

 protected:
  StoredArrays(std::string path, std::vector<ArrayInfo> arrays, Attributes attributes);

 private:
  virtual std::unique_ptr<BoxReader> open_reader(std::size_t index, const BoxReaderOptions& options,
                                                 zarr::MissingChunk missing) const = 0;

  std::string path_;
  std::vector<ArrayInfo> arrays_;
  Attributes attributes_;
};

// Knows the format by the file's first bytes, and Zarr by the folder's. An Error tells what to do with a file that
// isobar does not read: GRIB, zip, gzip, NCZarr, addresses.
std::unique_ptr<StoredArrays> open_stored_arrays(const std::string& path);
std::unique_ptr<StoredArrays> stored_arrays_of(hdf5::File file);

// What to do with what isobar does not read, as a sentence: GRIB, zip, gzip, NCZarr, addresses; empty for all else.
std::string advice_on(const std::string& path);

// Whether HDF5's library is to read a file, or to say what is wrong with it: nothing else is known by its first bytes.
bool is_for_hdf5(const std::string& path);

// Whether a file begins as one of these formats, or a folder is a Zarr store.
bool holds_stored_arrays(const std::string& path);

}  // namespace isobar
