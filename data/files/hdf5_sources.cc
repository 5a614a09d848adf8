#include "data/files/hdf5_sources.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>

#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"

namespace isobar::hdf5 {
namespace {

// The parts of an external dataset: files without structure, whose bytes follow one another.
std::vector<Source> external_sources(const std::string& where, hid_t creation, std::uint64_t needed) {
  std::vector<Source> sources;
  std::uint64_t held = 0;
  const int count = H5Pget_external_count(creation);
  for (int i = 0; i < count; ++i) {
    char name[4096] = "";
    off_t offset = 0;
    hsize_t bytes = 0;
    const bool told = H5Pget_external(creation, static_cast<unsigned>(i), sizeof name - 1, name, &offset, &bytes) >= 0;
    ISOBAR_CHECK(told && offset >= 0, where, " is damaged: its list of external files cannot be read");
    const std::optional<std::uint64_t> size = size_of(name);
    ISOBAR_CHECK(size, where, " lies in the file ", name, ", which cannot be found");
    const std::uint64_t begin = static_cast<std::uint64_t>(offset);
    const std::uint64_t wanted = std::min<std::uint64_t>(bytes, needed - std::min(held, needed));
    ISOBAR_CHECK(begin <= *size && wanted <= *size - begin, where, " lies in the file ", name,
                 ", which is truncated: ", wanted, " bytes from ", begin, " on are needed, it has ", *size);
    sources.push_back({name, begin + wanted});
    held += wanted;
  }
  ISOBAR_CHECK(held >= needed, where, " is damaged: its external files hold ", held, " of its ", needed, " bytes");
  return sources;
}

using NameReader = ssize_t (*)(hid_t creation, std::size_t index, char* name, std::size_t size);
std::string virtual_name(hid_t creation, std::size_t index, NameReader read) {
  const ssize_t length = read(creation, index, nullptr, 0);
  std::string name(static_cast<std::size_t>(std::max<ssize_t>(length, 0)) + 1, '\0');
  read(creation, index, name.data(), name.size());
  name.pop_back();
  return name;
}

// The files that a virtual dataset is put together from. What none of them holds the library makes up from the fill
// value, so every part must be there.
std::vector<Source> virtual_sources(const std::string& path, const std::string& where, hid_t creation,
                                    std::int64_t values) {
  std::vector<Source> sources;
  std::size_t count = 0;
  std::int64_t covered = 0;
  H5Pget_virtual_count(creation, &count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string file_name = virtual_name(creation, i, H5Pget_virtual_filename);
    const std::string dataset_name = virtual_name(creation, i, H5Pget_virtual_dsetname);
    const Handle part(H5Pget_virtual_vspace(creation, i), H5Sclose),
        from(H5Pget_virtual_srcspace(creation, i), H5Sclose);
    const hssize_t points = H5Sget_select_npoints(part.get());
    ISOBAR_CHECK(points >= 0 && file_name.find('%') == file_name.npos && dataset_name.find('%') == dataset_name.npos,
                 where, " is virtual without bounds, which isobar cannot check; make a copy of it with h5repack");
    covered += points;
    if (file_name == ".") continue;
    const std::filesystem::path beside = std::filesystem::path(path).parent_path() / file_name;
    const std::string source = size_of(beside.string()) ? beside.string() : file_name;
    const std::optional<std::uint64_t> size = size_of(source);
    ISOBAR_CHECK(size, where, " is virtual, and its source ", file_name, " cannot be found");
    const Handle file = open_for_reading(source);
    ISOBAR_CHECK(file, where, " is virtual, and its source ", source, " is a truncated or damaged HDF5 file");
    const Handle dataset(H5Dopen2(file.get(), dataset_name.c_str(), H5P_DEFAULT), H5Dclose);
    ISOBAR_CHECK(dataset && lies_in(file, dataset), where, " is virtual, and its source ", source, " has no dataset '",
                 dataset_name, "'");
    const std::vector<std::int64_t> shape = shape_of(dataset);
    std::vector<hsize_t> first(std::max<std::size_t>(shape.size(), 32)), last(first.size());
    const bool whole = H5Sget_select_type(from.get()) == H5S_SEL_ALL;
    bool fits = whole ? product_of(shape) == points
                      : H5Sget_simple_extent_ndims(from.get()) == static_cast<int>(shape.size()) &&
                            H5Sget_select_bounds(from.get(), first.data(), last.data()) >= 0;
    for (std::size_t d = 0; fits && !whole && d < shape.size(); ++d) fits = last[d] < static_cast<hsize_t>(shape[d]);
    ISOBAR_CHECK(fits, where, " is virtual, and '", dataset_name, "' in its source ", source, " is too small");
    sources.push_back({source, *size});
  }
  ISOBAR_CHECK(covered >= values, where, " is virtual, and its sources give ", covered, " of its ", values, " values");
  return sources;
}

}  // namespace

bool lies_in(const Handle& file, const Handle& object) {
  H5O_info_t root{}, about{};
  return H5Oget_info2(file.get(), &root, H5O_INFO_BASIC) >= 0 &&
         H5Oget_info2(object.get(), &about, H5O_INFO_BASIC) >= 0 && root.fileno == about.fileno;
}

std::vector<Source> sources_of(const std::string& path, const std::string& where, const Handle& dataset) {
  const Handle creation(H5Dget_create_plist(dataset.get()), H5Pclose), type(H5Dget_type(dataset.get()), H5Tclose);
  const bool is_virtual = H5Pget_layout(creation.get()) == H5D_VIRTUAL;
  if (!is_virtual && H5Pget_external_count(creation.get()) <= 0) return {};
  const std::int64_t values = checked_product(shape_of(dataset), where);
  if (is_virtual) return virtual_sources(path, where, creation.get(), values);
  const std::int64_t bytes = checked_product({values, static_cast<std::int64_t>(H5Tget_size(type.get()))}, where);
  return external_sources(where, creation.get(), static_cast<std::uint64_t>(bytes));
}

}  // namespace isobar::hdf5
