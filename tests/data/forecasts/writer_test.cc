// Files of forecasts: every format holds every field at its start, lead and channel, isobar reads them as data, and a
// writer that does not end leaves what was there. tools/check_forecast_files.py reads them by xarray.
#include "data/forecasts/writer.h"

#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "data/fields/field_series.h"
#include "data/files/hdf5.h"
#include "data/files/stored_arrays.h"
#include "data/forecasts/cf_layout.h"
#include "engine/files/reader.h"
#include "tests/harness/data_files.h"
#include "tests/harness/file_size_limit.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;
using testing::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

using Texts = std::vector<std::string>;
using Extents = std::vector<std::int64_t>;

constexpr std::int64_t kRows = 3, kColumns = 4, kPixels = kRows * kColumns;
constexpr double kNewYear = 420768;  // 2018-01-01T00 in hours since 1970

// Three leads of 12 h: dt is two steps of 6 h.
ForecastContents contents_of(std::int64_t starts, Texts channels = {"t2m", "u850", "t850", "t500"}) {
  ForecastContents contents{.channels = std::move(channels),
                            .units = {},
                            .starts = starts,
                            .leads = {2, 4, 6},
                            .start_hours = {},
                            .step_hours = 6,
                            .height = kRows,
                            .width = kColumns,
                            .latitudes = {60, 30, 0},
                            .longitudes = {0, 90, 180, 270},
                            .source = "isobar 0",
                            .history = "isobar forecast"};
  for (const std::string& channel : contents.channels) contents.units.push_back(channel[0] == 'u' ? "m s-1" : "K");
  for (std::int64_t s = 0; s < starts; ++s) contents.start_hours.push_back(kNewYear - 12 + 6 * static_cast<double>(s));
  return contents;
}

// Tells start, lead, channel and point.
float value_at(std::int64_t start, std::int64_t lead, std::int64_t channel, std::int64_t point) {
  return static_cast<float>(10000 * start + 1000 * lead + 100 * channel + point);
}

// One point is missing: the second of t2m at the first lead.
std::vector<float> fields_of(const ForecastContents& contents, std::int64_t start, std::int64_t lead) {
  std::vector<float> fields;
  for (std::int64_t c = 0; c < std::ssize(contents.channels); ++c)
    for (std::int64_t i = 0; i < kPixels; ++i) fields.push_back(value_at(start, lead, c, i));
  if (lead == 0) fields[1] = std::numeric_limits<float>::quiet_NaN();
  return fields;
}

void put_all(ForecastWriter& writer, const ForecastContents& contents) {
  for (std::int64_t lead = std::ssize(contents.leads) - 1; lead >= 0; --lead)  // any order
    for (std::int64_t start = 0; start < contents.starts; ++start)
      writer.put(start, lead, fields_of(contents, start, lead));
}

void write_all(const fs::path& path, const ForecastContents& contents, const ForecastFormat& format = {}) {
  const auto writer = make_forecast_writer(path, contents, format);
  put_all(*writer, contents);
  writer->close();
}

std::vector<float> read_whole(const StoredArrays& arrays, const std::string& name) {
  const Extents shape = arrays.find(name)->shape;
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  std::vector<float> values(static_cast<std::size_t>(count));
  arrays.open(name, {}, zarr::MissingChunk::nan_or_error)->read(Extents(shape.size(), 0), shape, values.data());
  return values;
}

std::string text_of(const StoredArrays& arrays, const std::string& array, const std::string& name) {
  const Attributes& attributes = arrays.find(array)->attributes;
  return attributes.contains(name) ? attributes.at(name).texts.front() : "";
}

bool is_same(float a, float b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

std::size_t entries(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {}));
}

const std::vector<const char*> kFormats{"f.nc", "f.zarr"};

}  // namespace

TEST_CASE("forecast files: every field lies at its start, lead and channel, compressed or not") {
  const TemporaryFolder folder;
  const ForecastContents contents = contents_of(2);
  for (const char* name : kFormats)
    for (const bool compress : {false, true}) {
      CAPTURE(name, compress);
      write_all(folder / name, contents, {.compress = compress});
      CHECK(entries(folder.path()) == 1);
      const auto arrays = open_stored_arrays((folder / name).string());
      for (std::int64_t c = 0; c < 4; ++c) {
        const std::string& channel = contents.channels[static_cast<std::size_t>(c)];
        CHECK(arrays->find(channel)->shape == Extents{2, 3, kRows, kColumns});
        CHECK(arrays->find(channel)->dimensions == Texts{"time", "prediction_timedelta", "latitude", "longitude"});
        const std::vector<float> values = read_whole(*arrays, channel);
        bool all = true;
        for (std::int64_t i = 0; i < std::ssize(values); ++i) {
          const std::int64_t start = i / (3 * kPixels), lead = i / kPixels % 3, point = i % kPixels;
          const bool is_missing = c == 0 && lead == 0 && point == 1;
          all = all && is_same(values[static_cast<std::size_t>(i)],
                               is_missing ? std::nanf("") : value_at(start, lead, c, point));
        }
        CHECK(all);
      }
      if (std::string(name) == "f.nc") {
        const auto filters = hdf5::File::open(folder / name).info(contents.channels[0]).layout.filters;
        const std::vector<hdf5::Filter> both{hdf5::Filter::shuffle, hdf5::Filter::deflate};
        CHECK((filters == (compress ? both : std::vector<hdf5::Filter>{})));
      }
      CHECK(read_whole(*arrays, "time") == std::vector<float>{kNewYear - 12, kNewYear - 6});
      CHECK(read_whole(*arrays, "prediction_timedelta") == std::vector<float>{12, 24, 36});
      CHECK(read_whole(*arrays, "latitude") == std::vector<float>{60, 30, 0});
      CHECK(read_whole(*arrays, "longitude") == std::vector<float>{0, 90, 180, 270});
      CHECK(text_of(*arrays, "prediction_timedelta", "units") == "hours");
      CHECK(text_of(*arrays, "prediction_timedelta", "dtype") == "timedelta64[ns]");
      CHECK(text_of(*arrays, "time", "standard_name") == "time");
      CHECK(text_of(*arrays, "u850", "standard_name") == "eastward_wind");
      CHECK(text_of(*arrays, "u850", "units") == "m s-1");
      CHECK(text_of(*arrays, "t850", "long_name") == "temperature at 850 hPa");
      CHECK(arrays->attributes().at("Conventions").texts == Texts{"CF-1.8"});
      fs::remove_all(folder / name);
    }
}

TEST_CASE("forecast files: isobar reads one start, or one lead, as steps at the times they are for") {
  const TemporaryFolder folder;
  ForecastContents contents = contents_of(1);
  for (const char* name : kFormats) {
    CAPTURE(name);
    write_all(folder / name, contents);
    const FieldSeries leads({.paths = {folder / name}, .channels = {"t500", "u850"}, .choose = true});
    CHECK(leads.steps() == 3);
    CHECK(leads.labels().step_hours == 12);
    CHECK(leads.labels().units == Texts{"K", "m s-1"});
    CHECK(leads.time_of(0).iso() == "2018-01-01T00:00");
    CHECK(leads.time_of(2).iso() == "2018-01-02T00:00");
    std::vector<float> step(2 * kPixels);
    leads.read_step(1, step.data());
    CHECK(step.front() == value_at(0, 1, 3, 0));
    CHECK(step.back() == value_at(0, 1, 1, kPixels - 1));
    fs::remove_all(folder / name);

    ForecastContents many = contents_of(4);
    many.leads = {3};
    write_all(folder / name, many);
    const FieldSeries starts({.paths = {folder / name}, .channels = {"t500"}, .choose = true});
    CHECK(starts.steps() == 4);
    CHECK(starts.time_of(0).iso() == "2018-01-01T06:00");
    starts.read_step(2, step.data());
    CHECK(step.front() == value_at(2, 0, 3, 0));
    fs::remove_all(folder / name);

    write_all(folder / name, contents_of(2));
    CHECK_THROWS_WITH(FieldSeries({.paths = {folder / name}, .channels = {"t500"}, .choose = true}),
                      ContainsSubstring("t500 has 3 entries on its axis 'prediction_timedelta' and 2 on 'time'"));
    fs::remove_all(folder / name);
  }
}

TEST_CASE("forecast files: the names of WeatherBench 2 with an axis of levels, where what no channel has is missing") {
  const TemporaryFolder folder;
  const ForecastContents contents = contents_of(2);
  for (const char* name : kFormats)
    for (const bool compress : {false, true}) {
      CAPTURE(name, compress);
      write_all(folder / name, contents, {.compress = compress, .long_names = true});
      const auto arrays = open_stored_arrays((folder / name).string());
      CHECK(read_whole(*arrays, "level") == std::vector<float>{500, 850});
      CHECK(arrays->find("2m_temperature")->shape == Extents{2, 3, kRows, kColumns});
      CHECK(arrays->find("temperature")->dimensions ==
            Texts{"time", "prediction_timedelta", "level", "latitude", "longitude"});
      CHECK(arrays->find("u_component_of_wind")->shape == Extents{2, 3, 2, kRows, kColumns});
      const std::vector<float> temperature = read_whole(*arrays, "temperature"),
                               wind = read_whole(*arrays, "u_component_of_wind");
      bool all = true;
      for (std::int64_t start = 0; start < 2; ++start)
        for (std::int64_t lead = 0; lead < 3; ++lead)
          for (std::int64_t i = 0; i < kPixels; ++i) {
            const auto at = static_cast<std::size_t>(((start * 3 + lead) * 2) * kPixels + i);
            all = all && temperature[at] == value_at(start, lead, 3, i) && std::isnan(wind[at]) &&
                  temperature[at + kPixels] == value_at(start, lead, 2, i) &&
                  wind[at + kPixels] == value_at(start, lead, 1, i);
          }
      CHECK(all);
      fs::remove_all(folder / name);
    }
  CHECK_THROWS_WITH(
      make_forecast_writer(folder / "f.nc", contents_of(1, {"t850", "temperature_850"}), {.long_names = true}),
      ContainsSubstring("f.nc: the channels temperature_850 and t850 would both be temperature"));
}

TEST_CASE("forecast files: the .h5 of the first start is that of a file written at once") {
  const TemporaryFolder folder;
  const ForecastContents contents = contents_of(2);
  write_all(folder / "f.h5", contents);
  std::vector<float> fields;
  for (std::int64_t lead = 0; lead < 3; ++lead) {
    const std::vector<float> step = fields_of(contents, 0, lead);
    fields.insert(fields.end(), step.begin(), step.end());
  }
  hdf5::File whole = hdf5::File::create(folder / "whole.h5");
  whole.write("fields", Extents{3, 4, kRows, kColumns}, std::span<const float>(fields));
  whole.write("lead", Extents{3}, std::span<const std::int64_t>(contents.leads));
  whole.write("channel", contents.channels);
  whole.write("units", contents.units);
  whole.write("time", Extents{3}, std::span<const double>(std::vector<double>{kNewYear, kNewYear + 12, kNewYear + 24}));
  whole.write_attribute("time", "units", "hours since 1970-01-01 00:00:00");
  whole.write_attribute("time", "calendar", "proleptic_gregorian");
  whole.write_attribute("fields", "coordinates", "time");
  whole.write("lat", Extents{kRows}, std::span<const double>(contents.latitudes));
  whole.write_attribute("lat", "units", "degrees_north");
  whole.write("lon", Extents{kColumns}, std::span<const double>(contents.longitudes));
  whole.write_attribute("lon", "units", "degrees_east");
  whole.write_dimensions("fields", Texts{"lead", "channel", "lat", "lon"});
  whole.write_dimensions("units", Texts{"channel"});
  whole.write_dimensions("time", Texts{"lead"});
  whole.close();
  CHECK((read_file(folder / "f.h5") == read_file(folder / "whole.h5")));
}

TEST_CASE("forecast files: the same forecast makes the same bytes") {
  const TemporaryFolder folder;
  write_all(folder / "a.nc", contents_of(2));
  write_all(folder / "b.nc", contents_of(2));
  CHECK((read_file(folder / "a.nc") == read_file(folder / "b.nc")));
}

TEST_CASE("forecast files: without a grid rows and columns are numbered, without dates there is no such file") {
  const TemporaryFolder folder;
  ForecastContents contents = contents_of(1);
  contents.latitudes.clear();
  contents.longitudes.clear();
  for (const char* name : kFormats) {
    write_all(folder / name, contents);
    const auto arrays = open_stored_arrays((folder / name).string());
    CHECK(arrays->find("t2m")->dimensions == Texts{"time", "prediction_timedelta", "row", "column"});
    CHECK(read_whole(*arrays, "column") == std::vector<float>{0, 1, 2, 3});
  }
  contents.step_hours = 0.25;  // leads of 30, 60 and 90 minutes
  write_all(folder / "f.nc", contents);
  const auto arrays = open_stored_arrays((folder / "f.nc").string());
  CHECK(read_whole(*arrays, "prediction_timedelta") == std::vector<float>{0.5, 1, 1.5});
  contents.start_hours.clear();
  CHECK_THROWS_WITH(make_forecast_writer(folder / "g.nc", contents),
                    (folder / "g.nc").string() +
                        ": a forecast of this format has dates, but the data do not tell the times of their steps: "
                        "name it .h5");
  CHECK_FALSE(fs::exists(folder / "g.nc"));
}

TEST_CASE("forecast files: names that no variable can have, and formats without such options, are refused") {
  const TemporaryFolder folder;
  const auto refused = [&](const char* name, const Texts& channels, const ForecastFormat& format, const char* words) {
    CAPTURE(name);
    CHECK_THROWS_WITH(make_forecast_writer(folder / name, contents_of(1, channels), format), ContainsSubstring(words));
    CHECK(entries(folder.path()) == 0);
  };
  for (const char* name : kFormats) {
    refused(name, {"a/b"}, {}, "the channel 'a/b' cannot be the name of a variable");
    refused(name, {".."}, {}, "the channel '..' cannot be");
    refused(name, {"time"}, {}, "the channel time has the name of another channel or of an axis");
  }
  refused("f.h5", {"t2m"}, {.compress = true}, "compression is for .nc and .zarr");
  refused("f.h5", {"t2m"}, {.long_names = true}, "the names of WeatherBench 2 are for .nc and .zarr");
  ForecastContents large = contents_of(1);
  large.height = large.width = std::int64_t{1} << 20;
  large.latitudes.clear();
  large.longitudes.clear();
  for (const char* name : {"f.nc", "f.zarr", "f.h5"})
    CHECK_THROWS_WITH(make_forecast_writer(folder / name, large), ContainsSubstring(" bytes, and the disk has "));
}

TEST_CASE("forecast files: a writer that does not end leaves what was there, and the next one removes its remains") {
  const TemporaryFolder folder;
  const ForecastContents contents = contents_of(1);
  for (const char* name : {"f.nc", "f.zarr", "f.h5"}) {
    CAPTURE(name);
    {
      const auto writer = make_forecast_writer(folder / name, contents);
      put_all(*writer, contents);
      CHECK_FALSE(fs::exists(folder / name));
    }
    CHECK(entries(folder.path()) == 0);
    write_all(folder / name, contents);
    ForecastContents other = contents;
    other.start_hours.front() += 24;
    {
      const auto writer = make_forecast_writer(folder / name, other);
      put_all(*writer, other);
    }
    CHECK(entries(folder.path()) == 1);
    const auto first_start = [&] { return FieldSeries({.paths = {folder / name}}).time_of(0).iso(); };
    CHECK(first_start() == "2018-01-01T00:00");
    write_all(folder / name, other);
    CHECK(first_start() == "2018-01-02T00:00");
    CHECK(entries(folder.path()) == 1);
    fs::remove_all(folder / name);
  }
  fs::create_directory(folder / ".f.zarr.writing.5");  // of a writer that was killed
  testing::write_text(folder / ".f.zarr.writing.5/.zgroup", "{}");
  write_all(folder / "f.zarr", contents);
  CHECK(entries(folder.path()) == 1);
}

TEST_CASE("forecast files: a store or a folder of another maker is not replaced") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "f.zarr");
  const auto refused = [&] {
    CHECK_THROWS_WITH(make_forecast_writer(folder / "f.zarr", contents_of(1)),
                      ContainsSubstring("f.zarr exists and is no forecast that isobar wrote: it is not replaced"));
  };
  refused();
  testing::write_text(folder / "f.zarr/.zgroup", R"({"zarr_format": 2})");
  testing::write_text(folder / "f.zarr/.zattrs", R"({"source": "ERA5"})");
  refused();
  CHECK(read_file(folder / "f.zarr/.zattrs") == R"({"source": "ERA5"})");
  fs::create_directory(folder / "f.nc");
  CHECK_THROWS_WITH(make_forecast_writer(folder / "f.nc", contents_of(1)), ContainsSubstring("f.nc is a folder"));
  CHECK_THROWS_WITH(make_forecast_writer(folder / "none/f.zarr", contents_of(1)),
                    ContainsSubstring("there is no folder"));
}

TEST_CASE("forecast files: a full disk is one sentence, and nothing stays") {
  const TemporaryFolder folder;
  ForecastContents contents = contents_of(1);
  contents.height = contents.width = 64;
  contents.latitudes.clear();
  contents.longitudes.clear();
  const std::vector<float> fields(4 * 64 * 64, 1.0F);
  for (const char* name : {"f.nc", "f.zarr", "f.h5"})
    for (const bool compress : {false, true}) {
      if (compress && std::string(name) == "f.h5") continue;
      CAPTURE(name, compress);
      const auto write = [&] {
        const testing::FileSizeLimit full(1000);
        const auto writer = make_forecast_writer(folder / name, contents, {.compress = compress});
        for (std::int64_t lead = 0; lead < 3; ++lead) writer->put(0, lead, fields);
        writer->close();
      };
      CHECK_THROWS_WITH(write(), ContainsSubstring(name) && ContainsSubstring("File too large"));
      CHECK(entries(folder.path()) == 0);
    }
}

TEST_CASE("forecast files: axes and variables by the CF conventions, in both naming schemes") {
  ForecastContents contents = contents_of(2, {"t2m", "u850", "t500", "storm"});
  contents.units[3] = "";
  const auto attribute = [](const CfAttributes& attributes, const std::string& name) {
    for (const auto& [key, value] : attributes)
      if (key == name) return value;
    return std::string("none");
  };
  const CfLayout plain = cf_layout("f.nc", contents, /*long_names=*/false);
  const Texts axes{"time", "prediction_timedelta", "latitude", "longitude"};
  REQUIRE(plain.axes.size() == axes.size());
  for (std::size_t a = 0; a < axes.size(); ++a) CHECK(plain.axes[a].name == axes[a]);
  CHECK(plain.axes[0].values == std::vector<double>{kNewYear - 12, kNewYear - 6});
  CHECK(plain.axes[1].values == std::vector<double>{12, 24, 36});
  CHECK(plain.axes[1].are_whole);
  CHECK(attribute(plain.axes[0].attributes, "long_name") == "initial time of the forecast");
  CHECK(attribute(plain.axes[0].attributes, "calendar") == "proleptic_gregorian");
  CHECK(attribute(plain.axes[1].attributes, "long_name") == "time from the start to the forecast");
  CHECK(attribute(plain.axes[1].attributes, "dtype") == "timedelta64[ns]");
  CHECK(attribute(plain.axes[2].attributes, "units") == "degrees_north");
  CHECK(attribute(plain.axes[3].attributes, "axis") == "X");
  CHECK(attribute(plain.attributes, "Conventions") == "CF-1.8");
  CHECK(attribute(plain.attributes, "history") == "isobar forecast");
  CHECK(attribute(plain.variables[0].attributes, "long_name") == "2m temperature");
  CHECK(attribute(plain.variables[0].attributes, "standard_name") == "air_temperature");
  CHECK(attribute(plain.variables[1].attributes, "long_name") == "u component of wind at 850 hPa");
  CHECK(attribute(plain.variables[1].attributes, "units") == "m s-1");
  CHECK(attribute(plain.variables[3].attributes, "long_name") == "storm");
  CHECK(attribute(plain.variables[3].attributes, "units") == "none");
  CHECK(plain.variables[2].channels == Extents{2});
  CHECK(plain.shape(plain.variables[0]) == Extents{2, 3, kRows, kColumns});
  CHECK(plain.extents(plain.variables[0]) == Extents{1, 1, kRows, kColumns});
  CHECK(plain.place(plain.variables[0], 1, 2, 0) == Extents{1, 2, 0, 0});

  const CfLayout levels = cf_layout("f.nc", contents, /*long_names=*/true);
  const std::vector<CfAttributes> of_axes{
      {{"standard_name", "time"},
       {"long_name", "initial time of the forecast"},
       {"units", "hours since 1970-01-01 00:00:00"},
       {"calendar", "proleptic_gregorian"},
       {"axis", "T"}},
      {{"standard_name", "forecast_period"},
       {"long_name", "time from the start to the forecast"},
       {"units", "hours"},
       {"dtype", "timedelta64[ns]"}},
      {{"standard_name", "air_pressure"},
       {"long_name", "pressure"},
       {"units", "hPa"},
       {"positive", "down"},
       {"axis", "Z"}},
      {{"standard_name", "latitude"}, {"long_name", "latitude"}, {"units", "degrees_north"}, {"axis", "Y"}},
      {{"standard_name", "longitude"}, {"long_name", "longitude"}, {"units", "degrees_east"}, {"axis", "X"}}};
  for (std::size_t a = 0; a < levels.axes.size(); ++a) CHECK((levels.axes[a].attributes == of_axes.at(a)));
  CHECK((levels.attributes == CfAttributes{{"Conventions", "CF-1.8"},
                                           {"title", "Forecast of a neural network"},
                                           {"source", "isobar 0"},
                                           {"history", "isobar forecast"}}));
  REQUIRE(levels.axes.size() == 5);
  CHECK(levels.axes[2].name == "level");
  CHECK(levels.axes[2].values == std::vector<double>{500, 850});
  CHECK(levels.axes[2].are_whole);
  CHECK(attribute(levels.axes[2].attributes, "positive") == "down");
  REQUIRE(levels.variables.size() == 4);
  CHECK(levels.variables[1].name == "u_component_of_wind");
  CHECK(levels.variables[1].channels == Extents{-1, 1});
  CHECK_FALSE(levels.variables[1].is_complete());
  CHECK(levels.variables[0].is_complete());
  CHECK(levels.variables[2].channels == Extents{2, -1});
  CHECK(attribute(levels.variables[2].attributes, "long_name") == "temperature");
  CHECK(levels.variables[3].name == "storm");
  CHECK(levels.place(levels.variables[1], 1, 2, 1) == Extents{1, 2, 1, 0, 0});
  CHECK(levels.place(levels.variables[0], 1, 2, 0) == Extents{1, 2, 0, 0});
  CHECK(levels.extents(levels.variables[1]) == Extents{1, 1, 1, kRows, kColumns});

  contents.step_hours = 0.75;  // leads of 1.5, 3 and 4.5 hours
  CHECK_FALSE(cf_layout("f.nc", contents, false).axes[1].are_whole);
  contents.latitudes.clear();
  CHECK(attribute(cf_layout("f.nc", contents, false).axes[2].attributes, "long_name") == "number of the row");
  contents.longitudes.clear();
  CHECK(attribute(cf_layout("f.nc", contents, false).axes[3].attributes, "long_name") == "number of the column");
}
