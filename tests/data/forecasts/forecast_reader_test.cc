// Forecast files: ours and others', axes in any order, one start, one lead, units of leads; what is refused.
#include "data/forecasts/forecast_reader.h"

#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "kernels/common/check.h"
#include "tests/harness/data_files.h"
#include "tests/harness/error_of.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"
#include "tests/harness/variable_file.h"

using namespace isobar;
using testing::Approx;
using testing::ContainsSubstring;
using testing::TemporaryFolder;
using testing::VariableFile;

namespace {

using Names = std::vector<std::string>;
using Numbers = std::vector<double>;

constexpr double kFirstOf2001 = 271752;  // hours since 1970 of 2001-01-01T00: 31 years with 8 leap days

// Tells start, lead, level, row from the north, and column.
double value_at(int start, int lead, int level, int row, int column) {
  return 10000 * start + 1000 * lead + 100 * level + 10 * row + column;
}

void write_axes(VariableFile& out, const Numbers& leads, const std::string& lead_units) {
  out.axis("time", {0, 12}, "hours since 2001-01-01");
  out.axis("prediction_timedelta", leads, lead_units);
  out.axis("level", {500, 850}, "hPa");
  out.axis("latitude", {-30, 0, 30}, "degrees_north");  // northwards
  out.axis("longitude", {0, 180}, "degrees_east");
}

std::vector<float> plane(const ForecastReader& reader, std::size_t start, std::size_t lead, std::size_t channel) {
  std::vector<float> values(static_cast<std::size_t>(reader.grid().points()));
  reader.read(start, lead, channel, values.data());
  return values;
}

}  // namespace

TEST_CASE("forecast reader: variables with start, lead and level in any order") {
  const TemporaryFolder folder;
  const std::vector<Names> orders{{"time", "prediction_timedelta", "level", "latitude", "longitude"},
                                  {"prediction_timedelta", "time", "longitude", "latitude", "level"},
                                  {"latitude", "longitude", "level", "prediction_timedelta", "time"}};
  for (std::size_t order = 0; order < orders.size(); ++order) {
    const std::string path = folder / (std::to_string(order) + ".nc");
    VariableFile out(path);
    write_axes(out, {6, 12, 18}, "hours");
    out.variable("temperature", orders[order], [](std::map<std::string, int>& at) {
      return value_at(at["time"], at["prediction_timedelta"], at["level"], 2 - at["latitude"], at["longitude"]);
    });
    out.file.write_attribute("temperature", "units", "K");
    out.file.close();

    const ForecastReader reader(path, 6);
    CHECK(reader.channels() == Names{"t500", "t850"});
    CHECK(reader.units() == Names{"K", "K"});
    CHECK(reader.starts() == Numbers{kFirstOf2001, kFirstOf2001 + 12});
    CHECK(reader.lead_hours() == Numbers{6, 12, 18});
    CHECK(reader.grid().latitudes == Numbers{30, 0, -30});
    for (int start = 0; start < 2; ++start)
      for (int lead = 0; lead < 3; ++lead)
        for (int level = 0; level < 2; ++level) {
          const std::vector<float> values = plane(reader, static_cast<std::size_t>(start),
                                                  static_cast<std::size_t>(lead), static_cast<std::size_t>(level));
          for (int i = 0; i < 6; ++i)
            CHECK(values[static_cast<std::size_t>(i)] ==
                  static_cast<float>(value_at(start, lead, level, i / 2, i % 2)));
        }
  }
}

TEST_CASE("forecast reader: lead times in any unit of time") {
  const TemporaryFolder folder;
  for (const auto& [units, lead] : {std::pair("hours", 36.0),
                                    {"days", 1.5},
                                    {"minutes", 2160.0},
                                    {"seconds", 129600.0},
                                    {"nanoseconds", 129600e9}}) {
    const std::string path = folder / "f.nc";
    VariableFile out(path);
    write_axes(out, {lead}, units);
    out.variable("t2m", {"time", "prediction_timedelta", "latitude", "longitude"}, [](auto&) { return 1; });
    out.file.close();
    CHECK(ForecastReader(path, 6).lead_hours().front() == Approx(36).epsilon(1e-14));
  }
}

TEST_CASE("forecast reader: a scalar in place of the axis of starts, or of leads") {
  const TemporaryFolder folder;
  const std::string path = folder / "one.nc";
  VariableFile out(path);
  write_axes(out, {6, 12}, "hours");
  const std::array<double, 1> start{30}, lead{6};
  out.file.write("init", std::span<const std::int64_t>(), std::span<const double>(start));
  out.file.write_attribute("init", "units", "hours since 2001-01-01");
  out.file.write("step", std::span<const std::int64_t>(), std::span<const double>(lead));
  out.file.write_attribute("step", "units", "hours");
  out.variable("t2m", {"prediction_timedelta", "latitude", "longitude"},
               [](std::map<std::string, int>& at) { return at["prediction_timedelta"]; });
  out.file.close();
  const ForecastReader reader(path, 6);
  CHECK(reader.starts() == Numbers{kFirstOf2001 + 30});
  CHECK(plane(reader, 0, 1, 0).front() == 1);

  const std::string valid = folder / "valid.nc";  // a scalar of when it is valid is none of when it starts
  VariableFile third(valid);
  write_axes(third, {6, 12}, "hours");
  for (const auto& [name, hours] : {std::pair("valid_time", 36.0), {"when", 30.0}}) {
    third.file.write(name, std::span<const std::int64_t>(), std::span<const double>(std::array{hours}));
    third.file.write_attribute(name, "units", "hours since 2001-01-01");
  }
  third.variable("t2m", {"prediction_timedelta", "latitude", "longitude"},
                 [](std::map<std::string, int>& at) { return at["prediction_timedelta"]; });
  third.file.close();
  CHECK(ForecastReader(valid, 6).starts() == Numbers{kFirstOf2001 + 30});

  const std::string other = folder / "lead.nc";
  VariableFile second(other);
  write_axes(second, {6, 12}, "hours");
  second.file.write("step", std::span<const std::int64_t>(), std::span<const double>(lead));
  second.file.write_attribute("step", "units", "hours");
  second.variable("t2m", {"time", "latitude", "longitude"}, [](std::map<std::string, int>& at) { return at["time"]; });
  second.file.close();
  const ForecastReader of_one_lead(other, 6);
  CHECK(of_one_lead.lead_hours() == Numbers{6});
  CHECK(plane(of_one_lead, 1, 0, 0).front() == 1);
}

TEST_CASE("forecast reader: the .h5 files of isobar forecast, of several leads and of one") {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, const Numbers& hours, std::vector<std::int64_t> leads) {
    const auto count = static_cast<std::int64_t>(hours.size());
    const std::string path = folder / name;
    auto file = hdf5::File::create(path);
    const testing::FieldsShape shape{count, 1, 2, 2};
    const std::vector<float> values = testing::field_values(shape);
    file.write("fields", shape, std::span<const float>(values));
    file.write("channel", std::vector<std::string>{"t2m"});
    file.write("lead", std::array{std::ssize(leads)}, std::span<const std::int64_t>(leads));
    if (!hours.empty() && hours[0] >= 0) {
      file.write("time", std::array{count}, std::span<const double>(hours));
      file.write_attribute("time", "units", "hours since 2001-01-01");
    }
    file.close();
    return path;
  };
  const ForecastReader many(write("a.h5", {36, 48, 60}, {2, 4, 6}), 3);  // 6 hours a step, whatever the data say
  CHECK(many.starts() == Numbers{kFirstOf2001 + 24});
  CHECK(many.lead_hours() == Numbers{12, 24, 36});
  CHECK(plane(many, 0, 2, 0) == std::vector<float>{200, 200.01f, 201, 201.01f});
  const ForecastReader one(write("b.h5", {36}, {2}), 3);
  CHECK(one.starts() == Numbers{kFirstOf2001 + 30});
  CHECK_THROWS_WITH(
      ForecastReader(write("c.h5", {36}, {2}), 0),
      (folder / "c.h5").string() + ": how long a step of 'lead' is cannot be known: it has one lead time");
  CHECK_THROWS_WITH(ForecastReader(write("d.h5", {-1}, {2}), 6),
                    (folder / "d.h5").string() +
                        " has no dates: a forecast is scored by the time that it starts from, 'time' in units like "
                        "\"hours since 1970-01-01\"");
  CHECK_THROWS_WITH(ForecastReader(write("g.h5", {36, 48}, {2, 4, 6}), 6),
                    (folder / "g.h5").string() + ": 'lead' has 3 values, but 'time' 2");
  testing::write_fields(folder / "e.h5", {1, 1, 2, 2});
  CHECK_THROWS_WITH(ForecastReader(folder / "e.h5", 6),
                    (folder / "e.h5").string() + " has 'fields' without 'lead': it is no forecast");
}

TEST_CASE("forecast reader: missing points are NaN, an infinity and files that are no forecasts are refused") {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, double value, const Numbers& leads, const std::string& units,
                         const Names& axes = {"time", "prediction_timedelta", "latitude", "longitude"}) {
    const std::string path = folder / name;
    VariableFile out(path);
    write_axes(out, leads, units);
    out.axis("number", {0}, "");
    out.variable("t2m", axes, [&](auto&) { return value; });
    out.file.close();
    return path;
  };
  CHECK(std::isnan(plane(ForecastReader(write("n.nc", NAN, {6}, "hours"), 6), 0, 0, 0).front()));
  CHECK(std::isnan(plane(ForecastReader(write("f.nc", 1e20, {6}, "hours"), 6), 0, 0, 0).front()));
  CHECK(std::isnan(plane(ForecastReader(write("b.nc", -1.001e15, {6}, "hours"), 6), 0, 0, 0).front()));
  CHECK(plane(ForecastReader(write("l.nc", -0.999e15, {6}, "hours"), 6), 0, 0, 0).front() == -0.999e15F);
  const ForecastReader infinite(write("i.nc", INFINITY, {6}, "hours"), 6);
  CHECK_THROWS_WITH(plane(infinite, 1, 0, 0),
                    ContainsSubstring("t2m of the forecast from 2001-01-01T12:00, 6 hours ahead, holds an infinity"));
  CHECK_THROWS_WITH(ForecastReader(write("u.nc", 1, {6}, "fortnights"), 6),
                    (folder / "u.nc").string() +
                        ": 'prediction_timedelta': lead times in 'fortnights', which is no unit of time that isobar "
                        "knows: hours, days, minutes, seconds, nanoseconds");
  CHECK_THROWS_WITH(ForecastReader(write("m.nc", 1, {6, -12}, "hours"), 6),
                    (folder / "m.nc").string() + " has a lead time of -12 hours, which is before the start");
  CHECK(ForecastReader(write("z.nc", 1, {0}, "hours"), 6).lead_hours() == Numbers{0});
  CHECK_THROWS_WITH(ForecastReader(write("l.nc", 1, {6}, "hours", {"time", "latitude", "longitude"}), 6),
                    (folder / "l.nc").string() +
                        " has no lead times: neither an axis prediction_timedelta (or step, lead_time) nor a scalar "
                        "of that name");
  CHECK_THROWS_WITH(
      ForecastReader(write("t.nc", 1, {6}, "hours", {"prediction_timedelta", "latitude", "longitude"}), 6),
      ContainsSubstring("t.nc has no dates"));
}

TEST_CASE("forecast reader: variables on other axes are refused with both names") {
  const TemporaryFolder folder;
  const auto zero = [](auto&) { return 0; };
  const Names all{"time", "prediction_timedelta", "latitude", "longitude"};
  const auto refusal_of = [&](const auto& write) {
    const std::string path = folder / "f.nc";
    VariableFile out(path);
    write(out);
    out.file.close();
    return testing::error_of([&] { ForecastReader(path, 6); });
  };
  CHECK_THAT(refusal_of([&](VariableFile& out) {
               write_axes(out, {6, 12}, "hours");
               out.variable("t2m", all, zero);
               out.variable("u10", {"prediction_timedelta", "latitude", "longitude"}, zero);
             }),
             ContainsSubstring("one has the axis 'time', and one has not"));
}
