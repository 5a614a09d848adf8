#include "data/forecasts/h5_writer.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "data/files/hdf5.h"

namespace isobar {
namespace {

class H5Writer : public ForecastWriter {
 public:
  // The fields lie first in the file, so what is beside them is written at the end.
  H5Writer(const std::filesystem::path& path, const ForecastContents& contents)
      : contents_(contents), file_(hdf5::File::create(path.string())) {
    file_.reserve("fields",
                  std::array<std::int64_t, 4>{std::ssize(contents.leads), std::ssize(contents.channels),
                                              contents.height, contents.width},
                  hdf5::Room::when_written);
  }

  void put(std::int64_t start, std::int64_t lead, std::span<const float> fields) override {
    if (start > 0) return;
    file_.write_box("fields", std::array<std::int64_t, 4>{lead, 0, 0, 0},
                    std::array<std::int64_t, 4>{1, std::ssize(contents_.channels), contents_.height, contents_.width},
                    fields.data());
  }

  void close() override {
    const std::array steps{std::ssize(contents_.leads)};
    file_.write("lead", steps, std::span<const std::int64_t>(contents_.leads));
    file_.write("channel", contents_.channels);
    if (!std::ranges::all_of(contents_.units, &std::string::empty)) file_.write("units", contents_.units);
    write_times(steps);
    const std::string rows = write_axis("lat", "degrees_north", "row", contents_.latitudes, contents_.height);
    const std::string columns = write_axis("lon", "degrees_east", "column", contents_.longitudes, contents_.width);
    file_.write_dimensions("fields", std::array<std::string, 4>{"lead", "channel", rows, columns});
    if (file_.has("units")) file_.write_dimensions("units", std::array<std::string, 1>{"channel"});
    if (file_.has("time")) file_.write_dimensions("time", std::array<std::string, 1>{"lead"});
    file_.close();
  }

 private:
  void write_times(std::span<const std::int64_t> steps) {
    if (!contents_.times_are_stored || contents_.start_hours.empty() || contents_.step_hours <= 0) return;
    std::vector<double> hours;
    for (const std::int64_t steps_ahead : contents_.leads)
      hours.push_back(contents_.start_hours.front() + static_cast<double>(steps_ahead) * contents_.step_hours);
    file_.write("time", steps, std::span<const double>(hours));
    file_.write_attribute("time", "units", "hours since 1970-01-01 00:00:00");
    file_.write_attribute("time", "calendar", "proleptic_gregorian");
    file_.write_attribute("fields", "coordinates", "time");
  }

  // Writes a coordinate of the grid; if the data have none, the indices of its rows or columns. Returns its name.
  std::string write_axis(const char* name, const char* units, const char* counted, const std::vector<double>& degrees,
                         std::int64_t count) {
    if (!degrees.empty()) {
      file_.write(name, std::array{count}, std::span<const double>(degrees));
      file_.write_attribute(name, "units", units);
      return name;
    }
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
    std::iota(numbers.begin(), numbers.end(), 0);
    file_.write(counted, std::array{count}, std::span<const std::int64_t>(numbers));
    return counted;
  }

  const ForecastContents contents_;
  hdf5::File file_;
};

}  // namespace

std::unique_ptr<ForecastWriter> make_h5_writer(const std::filesystem::path& path, const ForecastContents& contents) {
  return std::make_unique<H5Writer>(path, contents);
}

}  // namespace isobar
