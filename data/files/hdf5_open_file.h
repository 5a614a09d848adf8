// An open HDF5 file: the library's handles of it and of its datasets. For data/files/hdf5*.cc only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/files/hdf5.h"
#include "data/files/hdf5_handle.h"
#include "data/files/hdf5_sources.h"
#include "engine/files/atomic_file.h"

namespace isobar::hdf5 {

struct File::Handles {
  Handle file;
  std::optional<Replacement> replacement;  // being written, until close(); nothing: open for reading
  mutable std::map<std::string, Handle> datasets;
  std::uint64_t bytes = 0;              // open for reading: the size of the file when it was opened
  mutable std::vector<Source> sources;  // other files that the datasets opened so far read from
  Style style = Style::plain;           // being written
  int scales = 0;                       // being written: datasets that are dimensions

  ~Handles();

  // The caller of these holds the lock.
  const Handle& dataset(const std::string& path, const std::string& name) const;

  // Called after each read: beyond the end of a file the library returns zeros without an error.
  void check_length(const std::string& path) const;

  // A box of a dataset; the library converts to the type in memory.
  void read(const std::string& path, const std::string& name, std::span<const std::int64_t> start,
            std::span<const std::int64_t> count, hid_t memory_type, void* out) const;

  // The properties of a dataset to create.
  Handle creation_list() const;
  void create(const std::string& path, const std::string& name, hid_t type, std::span<const std::int64_t> shape,
              hid_t creation, hid_t access = H5P_DEFAULT);
  // Writes an attribute of a dataset, or of the root group where `object` is empty.
  void write_attribute(const std::string& path, const std::string& object, const std::string& name, hid_t type,
                       hid_t space, const void* value);
  // Makes a dataset a dimension's scale, unless it is one; returns whether it is one now.
  bool make_scale(const std::string& path, const std::string& name);
  // Creates a dataset and writes all of it; the library converts from the type in memory to that in the file.
  void write(const std::string& path, const std::string& name, std::span<const std::int64_t> shape,
             const Storage& storage, hid_t file_type, hid_t memory_type, const void* values);
};

}  // namespace isobar::hdf5
