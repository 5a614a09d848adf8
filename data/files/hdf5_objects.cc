// What an HDF5 file holds: its datasets, their attributes and the names of their axes.
#include "data/files/hdf5_objects.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

#include "data/files/hdf5.h"
#include "data/files/hdf5_open_file.h"
#include "data/files/hdf5_text.h"
#include "kernels/common/check.h"

namespace isobar::hdf5 {
namespace {

constexpr std::int64_t kMaxAttributeValues = 1 << 16;  // a longer list in an attribute is not believed
constexpr std::size_t kMaxDatasets = 1 << 16;
constexpr const char* kDimensionList = "DIMENSION_LIST";

bool is_reserved(std::string_view name) {
  constexpr std::array<std::string_view, 4> kReserved = {"CLASS", "NAME", kDimensionList, "REFERENCE_LIST"};
  return std::ranges::find(kReserved, name) != kReserved.end() || name.starts_with("_Netcdf4") ||
         name.starts_with("_NC") || name == "_nc3_strict";
}

// The text of an attribute; empty where it is none, or is not there.
std::string short_text(hid_t object, const char* name) {
  if (H5Aexists(object, name) <= 0) return {};
  const Handle attribute(H5Aopen(object, name, H5P_DEFAULT), H5Aclose);
  const Handle type(H5Aget_type(attribute.get()), H5Tclose), space(H5Aget_space(attribute.get()), H5Sclose);
  const bool is_one = attribute && H5Tget_class(type.get()) == H5T_STRING && H5Tis_variable_str(type.get()) == 0 &&
                      H5Sget_simple_extent_npoints(space.get()) == 1;
  std::string text(is_one ? H5Tget_size(type.get()) : 0, '\0');
  if (text.empty() || H5Aread(attribute.get(), type.get(), text.data()) < 0) return {};
  return text.substr(0, text.find('\0'));
}

bool is_scale(hid_t dataset) {
  return short_text(dataset, "CLASS") == "DIMENSION_SCALE";
}

std::string name_of_object(hid_t object) {
  std::string name(1024, '\0');
  const ssize_t length = H5Iget_name(object, name.data(), name.size());
  name.resize(static_cast<std::size_t>(std::clamp<ssize_t>(length, 0, 1023)));
  return name;
}

std::string after_last_slash(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

Attribute read_attribute(const std::string& where, const Handle& attribute) {
  Attribute found;
  const Handle type(H5Aget_type(attribute.get()), H5Tclose), space(H5Aget_space(attribute.get()), H5Sclose);
  const std::int64_t count = H5Sget_simple_extent_npoints(space.get());
  const H5T_class_t kind = H5Tget_class(type.get());
  if (count <= 0 || (kind != H5T_STRING && kind != H5T_INTEGER && kind != H5T_FLOAT)) return found;
  ISOBAR_CHECK(count <= kMaxAttributeValues, where, " has ", count, " entries, which are too many");
  if (kind == H5T_STRING) {
    found.texts = read_text(where, attribute.get(), type.get(), static_cast<std::size_t>(count), H5Aread);
    return found;
  }
  found.numbers.resize(static_cast<std::size_t>(count));
  ISOBAR_CHECK(H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, found.numbers.data()) >= 0, where, " cannot be read");
  return found;
}

std::vector<std::string> attribute_names(hid_t object) {
  std::vector<std::string> names;
  const auto visit = [](hid_t, const char* name, const H5A_info_t*, void* out) -> herr_t {
    static_cast<std::vector<std::string>*>(out)->push_back(name);
    return 0;
  };
  H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, nullptr, visit, &names);
  return names;
}

}  // namespace

std::vector<std::string> scales_of(const Handle& dataset) {
  const std::size_t rank = shape_of(dataset).size();
  if (rank == 0 || H5Aexists(dataset.get(), kDimensionList) <= 0) return {};
  const Handle attribute(H5Aopen(dataset.get(), kDimensionList, H5P_DEFAULT), H5Aclose);
  const Handle stored(H5Aget_type(attribute.get()), H5Tclose), space(H5Aget_space(attribute.get()), H5Sclose);
  const Handle type(H5Tvlen_create(H5T_STD_REF_OBJ), H5Tclose);
  // The library checks none of this before it writes to the memory that it is given.
  if (!attribute || H5Tequal(stored.get(), type.get()) <= 0 ||
      H5Sget_simple_extent_npoints(space.get()) != static_cast<hssize_t>(rank))
    return {};
  std::vector<hvl_t> lists(rank, hvl_t{0, nullptr});
  std::vector<std::string> names(rank);
  const bool has_read = H5Aread(attribute.get(), type.get(), lists.data()) >= 0;
  for (std::size_t d = 0; has_read && d < rank; ++d) {
    if (lists[d].len == 0 || lists[d].p == nullptr) continue;
    const Handle scale(H5Rdereference2(dataset.get(), H5P_DEFAULT, H5R_OBJECT, lists[d].p), H5Oclose);
    if (scale) names[d] = name_of_object(scale.get());
  }
  if (has_read) H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, lists.data());
  return names;
}

std::vector<std::string> File::datasets() const {
  const Lock lock;
  std::vector<std::string> found;
  const auto visit = [](hid_t root, const char* name, const H5O_info_t* about, void* out) -> herr_t {
    if (about->type != H5O_TYPE_DATASET) return 0;
    const Handle object(H5Oopen(root, name, H5P_DEFAULT), H5Oclose);
    constexpr std::string_view kNoVariable = "This is a netCDF dimension but not a netCDF variable";
    if (short_text(object.get(), "NAME").starts_with(kNoVariable)) return 0;
    auto& names = *static_cast<std::vector<std::string>*>(out);
    names.push_back(name);
    return names.size() > kMaxDatasets ? -1 : 0;
  };
  const bool all = H5Ovisit2(handles_->file.get(), H5_INDEX_NAME, H5_ITER_INC, visit, &found, H5O_INFO_BASIC) >= 0;
  ISOBAR_CHECK(all, path_, " is damaged, or holds more than ", kMaxDatasets, " datasets: they cannot be listed");
  std::ranges::sort(found);
  return found;
}

Attributes File::attributes(const std::string& dataset) const {
  const Lock lock;
  const Handle root = dataset.empty() ? Handle(H5Gopen2(handles_->file.get(), "/", H5P_DEFAULT), H5Gclose) : Handle();
  const hid_t object = dataset.empty() ? root.get() : handles_->dataset(path_, dataset).get();
  Attributes found;
  for (const std::string& name : attribute_names(object)) {
    if (is_reserved(name)) continue;
    const std::string where =
        path_ + ": the attribute '" + name + "'" + (dataset.empty() ? "" : " of '" + dataset + "'");
    const Handle attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose);
    ISOBAR_CHECK(attribute, where, " is damaged");
    Attribute value = read_attribute(where, attribute);
    if (!value.texts.empty() || !value.numbers.empty()) found[name] = std::move(value);
  }
  return found;
}

std::vector<std::string> File::dimension_names(const std::string& dataset) const {
  const Lock lock;
  const Handle& handle = handles_->dataset(path_, dataset);
  // A scale is the coordinate of its own axis.
  if (is_scale(handle.get()) && shape_of(handle).size() == 1) return {after_last_slash(dataset)};
  std::vector<std::string> names = scales_of(handle);
  for (std::string& name : names) name = after_last_slash(name);
  if (std::ranges::all_of(names, [](const std::string& name) { return name.empty(); })) names.clear();
  return names;
}

}  // namespace isobar::hdf5
