// Attributes of a dataset in an HDF5 file, and the scales of its dimensions.
#include <hdf5_hl.h>

#include <algorithm>

#include "data/files/hdf5.h"
#include "data/files/hdf5_open_file.h"
#include "data/files/hdf5_text.h"
#include "kernels/common/check.h"

namespace isobar::hdf5 {
namespace {

// A longer list in an attribute is not believed.
constexpr std::int64_t kMaxAttributeEntries = 1 << 16;

}  // namespace

std::optional<std::string> File::attribute(const std::string& dataset, const std::string& name) const {
  std::vector<std::string> texts = attribute_list(dataset, name);
  ISOBAR_CHECK(texts.size() <= 1, path_, ": the attribute '", name, "' of '", dataset, "' holds ", texts.size(),
               " texts; expected one");
  return texts.empty() ? std::nullopt : std::optional(std::move(texts.front()));
}

std::vector<std::string> File::attribute_list(const std::string& dataset, const std::string& name) const {
  const Lock lock;
  const Handle& handle = handles_->dataset(path_, dataset);
  if (H5Aexists(handle.get(), name.c_str()) <= 0) return {};
  const Handle attribute(H5Aopen(handle.get(), name.c_str(), H5P_DEFAULT), H5Aclose);
  ISOBAR_CHECK(attribute, path_, ": the attribute '", name, "' of '", dataset, "' is damaged");
  const Handle type(H5Aget_type(attribute.get()), H5Tclose), space(H5Aget_space(attribute.get()), H5Sclose);
  const std::int64_t count = H5Sget_simple_extent_npoints(space.get());
  if (H5Tget_class(type.get()) != H5T_STRING || count <= 0) return {};
  ISOBAR_CHECK(count <= kMaxAttributeEntries, path_, ": the attribute '", name, "' of '", dataset, "' has ", count,
               " entries, which are too many");
  return read_text(path_ + ": '" + dataset + "'", attribute.get(), type.get(), static_cast<std::size_t>(count),
                   H5Aread);
}

std::vector<double> File::attribute_numbers(const std::string& dataset, const std::string& name) const {
  const Lock lock;
  const Handle& handle = handles_->dataset(path_, dataset);
  if (H5Aexists(handle.get(), name.c_str()) <= 0) return {};
  const Handle attribute(H5Aopen(handle.get(), name.c_str(), H5P_DEFAULT), H5Aclose);
  const std::string where = path_ + ": the attribute '" + name + "' of '" + dataset + "'";
  ISOBAR_CHECK(attribute, where, " is damaged");
  const Handle type(H5Aget_type(attribute.get()), H5Tclose), space(H5Aget_space(attribute.get()), H5Sclose);
  const std::int64_t count = H5Sget_simple_extent_npoints(space.get());
  const H5T_class_t kind = H5Tget_class(type.get());
  if ((kind != H5T_FLOAT && kind != H5T_INTEGER) || count <= 0) return {};
  ISOBAR_CHECK(count <= kMaxAttributeEntries, where, " has ", count, " entries, which are too many");
  std::vector<double> values(static_cast<std::size_t>(count));
  ISOBAR_CHECK(H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, values.data()) >= 0, where, " cannot be read");
  return values;
}

void File::Handles::write_attribute(const std::string& path, const std::string& object, const std::string& name,
                                    hid_t type, hid_t space, const void* value) {
  const Handle root = object.empty() ? Handle(H5Gopen2(file.get(), "/", H5P_DEFAULT), H5Gclose) : Handle();
  const hid_t described = object.empty() ? root.get() : dataset(path, object).get();
  const Handle attribute(H5Acreate2(described, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  ISOBAR_CHECK(attribute && H5Awrite(attribute.get(), type, value) >= 0, path, ": cannot write the attribute '", name,
               "'", object.empty() ? "" : " of '" + object + "'", because());
}

void File::write_attribute(const std::string& dataset, const std::string& name, const std::string& value) {
  const Lock lock;
  const Handle type = text_type(std::max<std::size_t>(value.size(), 1));
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  handles_->write_attribute(path_, dataset, name, type.get(), space.get(), value.c_str());
}

void File::write_attribute(const std::string& dataset, const std::string& name, std::span<const std::string> values) {
  const TextTable table(values);
  const Lock lock;
  const Handle type = text_type(table.width);
  const hsize_t count = values.size();
  const Handle space(H5Screate_simple(1, &count, nullptr), H5Sclose);
  handles_->write_attribute(path_, dataset, name, type.get(), space.get(), table.bytes.data());
}

void File::write_attribute(const std::string& dataset, const std::string& name, double value) {
  const Lock lock;
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  handles_->write_attribute(path_, dataset, name, H5T_NATIVE_DOUBLE, space.get(), &value);
}

void File::write_attribute(const std::string& dataset, const std::string& name, float value) {
  const Lock lock;
  constexpr hsize_t kOne = 1;
  const Handle space(H5Screate_simple(1, &kOne, nullptr), H5Sclose);
  handles_->write_attribute(path_, dataset, name, H5T_NATIVE_FLOAT, space.get(), &value);
}

bool File::Handles::make_scale(const std::string& path, const std::string& name) {
  const hid_t scale = dataset(path, name).get();
  if (H5DSis_scale(scale) > 0) return true;
  if (H5DSset_scale(scale, name.c_str()) < 0) return false;
  const int number = scales++;
  const Handle one(H5Screate(H5S_SCALAR), H5Sclose);
  if (style == Style::netcdf) write_attribute(path, name, "_Netcdf4Dimid", H5T_NATIVE_INT, one.get(), &number);
  return true;
}

void File::make_dimension(const std::string& dataset) {
  const Lock lock;
  ISOBAR_CHECK(handles_->make_scale(path_, dataset), path_, ": cannot make '", dataset, "' a dimension", because());
}

void File::write_dimensions(const std::string& dataset, std::span<const std::string> scales) {
  const Lock lock;
  const hid_t described = handles_->dataset(path_, dataset).get();
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const hid_t scale = handles_->dataset(path_, scales[i]).get();
    ISOBAR_CHECK(
        handles_->make_scale(path_, scales[i]) && H5DSattach_scale(described, scale, static_cast<unsigned>(i)) >= 0,
        path_, ": cannot make '", scales[i], "' a dimension of '", dataset, "'", because());
  }
}

}  // namespace isobar::hdf5
