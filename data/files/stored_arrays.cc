#include "data/files/stored_arrays.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "data/files/hdf5.h"
#include "data/files/hdf5_box_reader.h"
#include "data/files/netcdf3.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

namespace fs = std::filesystem;

template <class Entries>
std::vector<ArrayInfo> infos_of(const Entries& entries) {
  std::vector<ArrayInfo> infos;
  for (const auto& entry : entries) infos.push_back(entry.info);
  return infos;
}

class ArraysOfNetcdf3 : public StoredArrays {
 public:
  explicit ArraysOfNetcdf3(netcdf3::File file)
      : StoredArrays(file.path(), infos_of(file.variables()), file.attributes()), file_(std::move(file)) {}

  const char* format() const override { return "NetCDF-3"; }

 private:
  std::unique_ptr<BoxReader> open_reader(std::size_t index, const BoxReaderOptions& options,
                                         zarr::MissingChunk) const override {
    return netcdf3::make_box_reader(file_, file_.variables()[index], options);
  }

  netcdf3::File file_;
};

class ArraysOfZarr : public StoredArrays {
 public:
  explicit ArraysOfZarr(zarr::Store store)
      : StoredArrays(store.path().string(), infos_of(store.arrays()), store.attributes()), store_(std::move(store)) {}

  const char* format() const override { return "Zarr"; }

 private:
  std::unique_ptr<BoxReader> open_reader(std::size_t index, const BoxReaderOptions& options,
                                         zarr::MissingChunk missing) const override {
    return zarr::make_box_reader(store_, store_.arrays()[index], options, missing);
  }

  zarr::Store store_;
};

ArrayInfo info_of(const hdf5::File& file, const std::string& dataset) {
  const hdf5::DatasetInfo about = file.info(dataset);
  ArrayInfo info{.name = dataset};
  info.shape = about.shape;
  info.dimensions = file.dimension_names(dataset);
  info.attributes = file.attributes(dataset);
  info.has_numbers = about.type != hdf5::Type::text && about.type != hdf5::Type::other;
  info.format = about.format;
  info.type_name = about.type_name;
  return info;
}

std::vector<ArrayInfo> infos_of_datasets(const hdf5::File& file) {
  std::vector<ArrayInfo> infos;
  for (const std::string& dataset : file.datasets()) infos.push_back(info_of(file, dataset));
  return infos;
}

class ArraysOfHdf5 : public StoredArrays {
 public:
  explicit ArraysOfHdf5(hdf5::File file)
      : StoredArrays(file.path(), infos_of_datasets(file), file.attributes("")), file_(std::move(file)) {}

  const char* format() const override { return "HDF5"; }
  std::optional<std::vector<std::string>> texts(const std::string& name) const override {
    const bool is_text = find(name) != nullptr && file_.info(name).type == hdf5::Type::text;
    return is_text ? std::optional(file_.strings(name)) : std::nullopt;
  }

 private:
  std::unique_ptr<BoxReader> open_reader(std::size_t index, const BoxReaderOptions& options,
                                         zarr::MissingChunk) const override {
    const std::string& name = arrays()[index].name;
    return make_box_reader(file_, name, file_.info(name), options);
  }

  hdf5::File file_;
};

// The stores of NetCDF's library are Zarr with additions, by which it finds dimensions and types.
bool is_nczarr(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / ".nczgroup", ignored) || fs::exists(folder / ".nczattrs", ignored)) return true;
  for (const char* name : {".zgroup", ".zattrs", "zarr.json"})
    if (fs::exists(folder / name, ignored) && read_file(folder / name).find("_nczarr") != std::string::npos)
      return true;
  return false;
}

std::unique_ptr<StoredArrays> open_folder(const std::string& path) {
  ISOBAR_CHECK(zarr::is_store(path), path,
               " is a folder, and no Zarr store: it has no zarr.json, .zmetadata, .zgroup "
               "or .zarray");
  return std::make_unique<ArraysOfZarr>(zarr::Store::open(path));
}

// What to do with files that isobar does not read, by their first bytes.
struct OtherFormat {
  std::string_view first_bytes;
  const char* advice;
};
constexpr std::array<OtherFormat, 3> kOtherFormats = {
    {{"GRIB", " is a GRIB file, which isobar does not read; write it as NetCDF-4 with cdo -f nc4 copy"},
     {"PK\x03\x04", " is a zip file; unzip it, and name what it holds"},
     {"\x1f\x8b", " is compressed by gzip; decompress it with gunzip"}}};

constexpr std::string_view kHdf5 = "\x89HDF\r\n\x1a\n";

std::string first_bytes_of(const std::string& path) {
  std::string bytes(kHdf5.size(), '\0');
  bytes.resize(FileReader(path).read_up_to_end(0, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

}  // namespace

StoredArrays::StoredArrays(std::string path, std::vector<ArrayInfo> arrays, Attributes attributes)
    : path_(std::move(path)), arrays_(std::move(arrays)), attributes_(std::move(attributes)) {}

const ArrayInfo* StoredArrays::find(const std::string& name) const {
  const auto found = std::ranges::find(arrays_, name, &ArrayInfo::name);
  return found == arrays_.end() ? nullptr : &*found;
}

std::unique_ptr<BoxReader> StoredArrays::open(const std::string& name, const BoxReaderOptions& options,
                                              zarr::MissingChunk missing) const {
  const ArrayInfo* found = find(name);
  ISOBAR_CHECK(found != nullptr, path_, " has no array '", name, "'");
  return open_reader(static_cast<std::size_t>(found - arrays_.data()), options, missing);
}

std::unique_ptr<StoredArrays> stored_arrays_of(hdf5::File file) {
  return std::make_unique<ArraysOfHdf5>(std::move(file));
}

bool is_for_hdf5(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored))
    return path.find("://") == std::string::npos && !fs::is_directory(path, ignored);
  const std::string bytes = first_bytes_of(path);
  return !netcdf3::is_netcdf3(std::as_bytes(std::span(bytes))) &&
         std::ranges::none_of(kOtherFormats,
                              [&](const OtherFormat& other) { return bytes.starts_with(other.first_bytes); });
}

bool holds_stored_arrays(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return zarr::is_store(path);
  if (!fs::is_regular_file(path, ignored)) return false;
  const std::string bytes = first_bytes_of(path);
  return bytes == kHdf5 || netcdf3::is_netcdf3(std::as_bytes(std::span(bytes)));
}

std::string advice_on(const std::string& path) {
  if (path.find("://") != std::string::npos)
    return path + " is an address, and isobar reads files; download what it names first";
  std::error_code ignored;
  if (fs::is_directory(path, ignored))
    return is_nczarr(path)
               ? path + " is a store of NCZarr, which isobar does not read; write it as NetCDF-4 with nccopy"
               : "";
  if (!fs::is_regular_file(path, ignored)) return "";
  const std::string bytes = first_bytes_of(path);
  for (const auto& [first_bytes, advice] : kOtherFormats)
    if (bytes.starts_with(first_bytes)) return path + advice;
  return "";
}

std::unique_ptr<StoredArrays> open_stored_arrays(const std::string& path) {
  if (const std::string advice = advice_on(path); !advice.empty()) throw_error(advice);
  ISOBAR_CHECK(fs::exists(path), path, " does not exist");
  if (fs::is_directory(path)) return open_folder(path);
  const std::string bytes = first_bytes_of(path);
  if (bytes == kHdf5) return std::make_unique<ArraysOfHdf5>(hdf5::File::open(path));
  if (netcdf3::is_netcdf3(std::as_bytes(std::span(bytes))))
    return std::make_unique<ArraysOfNetcdf3>(netcdf3::File::open(path));
  throw_error(path, " is no file that isobar reads: HDF5, NetCDF, or a Zarr store");
}

}  // namespace isobar
