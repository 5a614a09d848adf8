#include "data/forecasts/netcdf_writer.h"

#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "data/files/hdf5.h"

namespace isobar {
namespace {

// Fields are one after another in the file, where its reader finds them without an index. Compressed, and where some
// levels have no channel, a chunk is a field, [LAT, LON] of a start, a lead and a level.
class NetcdfWriter : public ForecastWriter {
 public:
  NetcdfWriter(const std::filesystem::path& path, CfLayout layout, bool compress)
      : layout_(std::move(layout)), file_(hdf5::File::create(path.string(), hdf5::Style::netcdf)) {
    // By this attribute netCDF knows which of its versions and which library wrote a file.
    file_.write_attribute("", "_NCProperties", "version=2,isobar,hdf5=" + hdf5::library_version());
    write_attributes("", layout_.attributes);
    for (const CfAxis& axis : layout_.axes) write_axis(axis);
    for (const CfVariable& variable : layout_.variables) make_variable(variable, compress);
  }

  void put(std::int64_t start, std::int64_t lead, std::span<const float> fields) override {
    for (const CfVariable& variable : layout_.variables) {
      const std::vector<std::int64_t> extents = layout_.extents(variable);
      const std::int64_t pixels = extents.end()[-2] * extents.back();
      for (std::size_t level = 0; level < variable.channels.size(); ++level)
        if (variable.channels[level] >= 0)
          file_.write_box(variable.name, layout_.place(variable, start, lead, static_cast<std::int64_t>(level)),
                          extents, fields.data() + variable.channels[level] * pixels);
    }
  }

  void close() override { file_.close(); }

 private:
  void write_attributes(const std::string& name, const CfAttributes& attributes) {
    for (const auto& [key, text] : attributes)
      if (!text.empty()) file_.write_attribute(name, key, text);
  }

  void write_axis(const CfAxis& axis) {
    const std::array length{std::ssize(axis.values)};
    if (axis.are_whole)
      file_.write(axis.name, length,
                  std::span<const std::int32_t>(std::vector<std::int32_t>(axis.values.begin(), axis.values.end())));
    else
      file_.write(axis.name, length, std::span<const double>(axis.values));
    file_.make_dimension(axis.name);
    write_attributes(axis.name, axis.attributes);
  }

  void make_variable(const CfVariable& variable, bool compress) {
    if (compress)
      file_.reserve(variable.name, layout_.shape(variable),
                    hdf5::Storage{.chunk = layout_.extents(variable), .shuffle = true, .deflate = 1});
    else if (variable.is_complete())
      file_.reserve(variable.name, layout_.shape(variable));
    else
      file_.reserve(variable.name, layout_.shape(variable), hdf5::Storage{.chunk = layout_.extents(variable)});
    file_.write_dimensions(variable.name, layout_.dimensions(variable));
    file_.write_attribute(variable.name, "_FillValue", std::numeric_limits<float>::quiet_NaN());
    write_attributes(variable.name, variable.attributes);
  }

  const CfLayout layout_;
  hdf5::File file_;
};

}  // namespace

std::unique_ptr<ForecastWriter> make_netcdf_writer(const std::filesystem::path& path, CfLayout layout, bool compress) {
  return std::make_unique<NetcdfWriter>(path, std::move(layout), compress);
}

}  // namespace isobar
