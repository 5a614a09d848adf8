// The sun and the planes that are computed from it, against almanacs, against samples of the formulas, and against what
// is known of sphere and orbit.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "data/fields/calendar.h"
#include "data/fields/computed_planes.h"
#include "data/fields/sun.h"
#include "kernels/common/check.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::Approx;
using testing::ContainsSubstring;

namespace {

constexpr double kRadians = std::numbers::pi / 180;

double hours_at(const std::string& date) {
  return TimeUnits("hours since " + date, "proleptic_gregorian", "sun_test").hours_since_1970(0);
}

double declination(const Sun& sun) {
  return std::asin(sun.sin_declination) / kRadians;
}

double cosine_of_zenith(const Sun& sun, double latitude, double longitude) {
  return std::sin(latitude * kRadians) * sun.sin_declination +
         std::cos(latitude * kRadians) * sun.cos_declination * std::cos(sun.hour_angle_at(longitude));
}

// `count` values, evenly spaced: first, first + step, ...
std::vector<double> spaced(double first, double step, int count) {
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(first + step * i);
  return values;
}

// The plane `name`, W m**-2 if it is radiation.
std::vector<float> plane(const std::string& name, const GridPoints& grid, double hours, double step_hours = 1) {
  std::vector<float> values(grid.latitudes.size() * grid.longitudes.size());
  const ComputedPlanes planes({name}, grid, step_hours, RadiationUnit::watt);
  planes.write(hours, 0, planes.rows(), values.data());
  return values;
}

// toa_radiation at a point from 1,800 samples an hour, W m**-2.
double sampled_radiation(double latitude, double longitude, double hours, double step_hours) {
  const int samples = static_cast<int>(1800 * step_hours);
  double sum = 0;
  for (int i = 0; i < samples; ++i) {
    const Sun sun = sun_at(hours - step_hours + (i + 0.5) / 1800);
    sum += std::max(0.0, cosine_of_zenith(sun, latitude, longitude)) / (sun.distance * sun.distance);
  }
  return kSolarConstant * sum / samples;
}

// The largest difference between toa_radiation and its samples, as a part of the largest value.
double distance_from_samples(const GridPoints& grid, double hours, double step_hours) {
  const std::vector<float> values = plane("toa_radiation", grid, hours, step_hours);
  double worst = 0, largest = 0;
  std::size_t i = 0;
  for (double latitude : grid.latitudes) {
    for (double longitude : grid.longitudes) {
      const double expected = sampled_radiation(latitude, longitude, hours, step_hours);
      worst = std::max(worst, std::abs(static_cast<double>(values[i++]) - expected));
      largest = std::max(largest, expected);
    }
  }
  return worst / largest;
}

// The longitude where the plane is largest, on one row.
double longitude_of_maximum(const std::string& name, double latitude, const std::string& date) {
  const GridPoints row{{latitude}, spaced(-180, 0.5, 720)};
  const std::vector<float> values = plane(name, row, hours_at(date));
  return row.longitudes[static_cast<std::size_t>(std::max_element(values.begin(), values.end()) - values.begin())];
}

// Rows in the middle of equal bands of latitude, so that cos(latitude) weighs their area.
GridPoints globe(int rows, int columns) {
  return {spaced(90 - 90.0 / rows, -180.0 / rows, rows), spaced(0, 360.0 / columns, columns)};
}

// Sum of area times f(value), divided by the whole area.
template <class F>
double area_mean(const GridPoints& grid, const std::vector<float>& values, const F& f) {
  double sum = 0, area = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double weight = std::cos(grid.latitudes[i / grid.longitudes.size()] * kRadians);
    sum += weight * f(static_cast<double>(values[i]));
    area += weight;
  }
  return sum / area;
}

double area_mean(const GridPoints& grid, const std::vector<float>& values) {
  return area_mean(grid, values, [](double value) { return value; });
}

}  // namespace

// Instants: U.S. Naval Observatory, Earth's Seasons (aa.usno.navy.mil/data/Earth_Seasons), 2026.
TEST_CASE("Sun: declination at the equinoxes and solstices of 2026") {
  constexpr double kArcMinute = 1.0 / 60;
  for (const char* equinox : {"2026-03-20 14:46", "2026-09-23 00:05"})
    CHECK(declination(sun_at(hours_at(equinox))) == Approx(0).margin(kArcMinute));
  CHECK(declination(sun_at(hours_at("2026-06-21 08:24"))) == Approx(23.4358).margin(kArcMinute));
  CHECK(declination(sun_at(hours_at("2026-12-21 20:50"))) == Approx(-23.4358).margin(kArcMinute));
  CHECK(declination(sun_at(hours_at("2026-03-21 14:46"))) > 0.3);
}

// J. Meeus, Astronomical Algorithms, 2nd edition, examples 25.b and 28.a: 1992 October 13, 0h TD.
TEST_CASE("Sun: Meeus' example of declination, distance and equation of time") {
  const Sun sun = sun_at(hours_at("1992-10-13 00:00"));
  CHECK(declination(sun) == Approx(-7.7839).margin(0.02));
  CHECK(sun.distance == Approx(0.99761).margin(1e-4));
  CHECK(sun.equation_of_time == Approx((13 + 42.6 / 60) / 4).margin(0.02));  // 13 min 42.6 s
  CHECK(sun.cos_declination == Approx(std::sqrt(1 - sun.sin_declination * sun.sin_declination)));
}

// I. Reda and A. Andreas, Solar Position Algorithm, NREL/TP-560-34302, table A5.1: 2003-10-17 12:30:30 at UTC - 7,
// 39.742476° N 105.1786° W. The zenith angle there includes the refraction of 0.0163°.
TEST_CASE("Sun: NREL's example of hour angle and zenith") {
  const double hours = hours_at("2003-10-17 19:30:30");
  const Sun sun = sun_at(hours);
  CHECK(sun.hour_angle_at(-105.1786) / kRadians == Approx(11.1059).margin(0.02));
  CHECK(declination(sun) == Approx(-9.3143).margin(0.02));
  CHECK(sun.distance == Approx(0.99654).margin(1e-4));
  const std::vector<float> cosine = plane("cos_zenith", {{39.742476}, {-105.1786}}, hours);
  CHECK(std::acos(static_cast<double>(cosine[0])) / kRadians == Approx(50.1116 + 0.0163).margin(0.02));
}

TEST_CASE("Sun: a minute is a minute in 2026") {
  const double start = hours_at("2026-03-20 12:00");
  for (int minute = 0; minute < 30; ++minute) {  // fp32 hours are 112 s apart, fp32 days since 2000 84 s
    const Sun now = sun_at(start + minute / 60.0), next = sun_at(start + (minute + 1) / 60.0);
    CHECK((next.hour_angle_at(0) - now.hour_angle_at(0)) / kRadians == Approx(0.25).epsilon(1e-3));
    CHECK(declination(next) - declination(now) == Approx(0.0165 / 60).epsilon(0.02));
  }
}

TEST_CASE("Sun: other centuries and no numbers are refused") {
  CHECK_THROWS_WITH(sun_at(hours_at("1799-12-31 23:00")),
                    ContainsSubstring("known from 1800 to 2199, not at 1799-12-31T23:00"));
  CHECK_THROWS_WITH(sun_at(hours_at("2200-01-01 00:00")), ContainsSubstring("not at 2200-01-01T00:00"));
  CHECK_NOTHROW(sun_at(hours_at("1800-01-01 00:00")));
  CHECK_NOTHROW(sun_at(hours_at("2199-12-31 23:00")));
  for (double hours : {std::nan(""), std::numeric_limits<double>::infinity(), -1e300})
    CHECK_THROWS_WITH(sun_at(hours), ContainsSubstring("the sun's position"));
}

TEST_CASE("Computed planes: noon at 90 degrees west is at 18 UTC") {
  const char* date = "2026-04-15 18:00";  // the equation of time is zero on this day, the declination 9.8 degrees
  CHECK(longitude_of_maximum("cos_zenith", 9.8, date) == -90);
  CHECK(longitude_of_maximum("toa_radiation", 9.8, date) == -82.5);  // of the hour before: noon is in its middle
  CHECK(plane("cos_zenith", {{9.8}, {-90}}, hours_at(date))[0] == Approx(1).margin(1e-4));
  CHECK(plane("cos_zenith", {{9.8}, {90}}, hours_at(date))[0] == 0);
  const Sun sun = sun_at(hours_at(date));
  const double hour = kSolarConstant / (sun.distance * sun.distance) *  // mean over 15° around the zenith
                      (std::pow(sun.sin_declination, 2) +
                       std::pow(sun.cos_declination, 2) * std::sin(7.5 * kRadians) / (7.5 * kRadians));
  CHECK(plane("toa_radiation", {{9.8}, {-82.5}}, hours_at(date))[0] == Approx(hour).epsilon(1e-4));
}

TEST_CASE("Computed planes: the globe gets a quarter of the solar constant") {
  const GridPoints grid = globe(720, 24);
  for (const char* date : {"2026-01-04 00:00", "2026-03-20 15:00", "2026-06-21 07:30", "2026-10-01 22:15"}) {
    for (double step : {1.0, 6.0}) {
      const double hours = hours_at(date), distance = sun_at(hours - step / 2).distance;
      const double expected = kSolarConstant / 4 / (distance * distance);
      CHECK(area_mean(grid, plane("toa_radiation", grid, hours, step)) == Approx(expected).epsilon(4e-5));
    }
  }
}

TEST_CASE("Computed planes: radiation is that of 1,800 samples an hour") {
  const GridPoints grid{{90, 75, 66.4, 45, 10, 0, -23.4, -66.6, -89}, spaced(-172, 45, 8)};
  for (const char* date : {"2026-03-20 06:00", "2026-06-21 12:00", "2026-11-03 00:30"}) {
    CHECK(distance_from_samples(grid, hours_at(date), 1) < 1e-4);
    CHECK(distance_from_samples(grid, hours_at(date), 0.25) < 1e-4);
    CHECK(distance_from_samples(grid, hours_at(date), 1.5) < 1e-4);
  }
  const GridPoints coarse{{80, 60, 5, -66}, spaced(10, 90, 4)};
  CHECK(distance_from_samples(coarse, hours_at("2026-03-20 06:00"), 6) < 1e-4);
  CHECK(distance_from_samples(coarse, hours_at("2026-09-23 18:00"), 6) < 1e-4);
}

TEST_CASE("Computed planes: the polar night is dark and the polar day is bright") {
  const double hours = hours_at("2026-12-21 21:00");
  const Sun sun = sun_at(hours - 12);
  for (double latitude : {90.0, 80.0, 67.5}) {
    const GridPoints night{{latitude}, spaced(0, 15, 24)}, day{{-latitude}, spaced(0, 15, 24)};
    for (const char* name : {"cos_zenith", "toa_radiation"}) {
      for (float value : plane(name, night, hours)) CHECK(value == 0);
      for (float value : plane(name, day, hours)) CHECK(value > 0);
    }
    const double expected = kSolarConstant / (sun.distance * sun.distance) * std::sin(-latitude * kRadians) *
                            sun.sin_declination;  // the mean of cos h over a day is 0
    // Not quite: the equation of time changes by 30 s on that day, 3.5e-4 of it.
    for (float value : plane("toa_radiation", day, hours, 24)) CHECK(value == Approx(expected).epsilon(4e-4));
  }
}

TEST_CASE("Computed planes: an hour across midnight is whole") {
  const GridPoints grid{{75, 66.2}, spaced(-187 + 360, 1.75, 9)};  // midnight at 180° E at 00 UTC
  CHECK(distance_from_samples(grid, hours_at("2026-06-21 00:00"), 1) < 1e-4);
  CHECK(distance_from_samples(grid, hours_at("2026-06-21 00:30"), 1) < 1e-4);
  for (float value : plane("toa_radiation", grid, hours_at("2026-06-21 00:30"))) CHECK(value > 1);
  const GridPoints south{{-75}, spaced(-180, 3, 120)};
  for (float value : plane("toa_radiation", south, hours_at("2026-12-21 13:00"))) CHECK(value > 100);
}

TEST_CASE("Computed planes: six hours are the mean of the six hours before, in either unit") {
  const GridPoints grid = globe(7, 11);
  const double hours = hours_at("2026-05-01 03:00");
  std::vector<double> sum(77);
  for (int hour = 0; hour < 6; ++hour) {
    const std::vector<float> values = plane("toa_radiation", grid, hours - hour);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(values[i]);
  }
  std::vector<float> joules(77);
  ComputedPlanes({"toa_radiation"}, grid, 6, RadiationUnit::joule).write(hours, 0, 7, joules.data());
  const std::vector<float> watts = plane("toa_radiation", grid, hours, 6);
  for (std::size_t i = 0; i < sum.size(); ++i) {
    CHECK(watts[i] == Approx(sum[i] / 6).epsilon(1e-6).margin(1e-3));
    CHECK(joules[i] == Approx(3600 * static_cast<double>(watts[i])).epsilon(1e-6));
  }
}

TEST_CASE("Computed planes: where the points lie") {
  const ComputedPlanes planes({"cos_longitude", "cos_latitude", "sin_longitude"}, {{60, -90}, {-30, 0, 120}}, 0,
                              RadiationUnit::joule);
  std::vector<float> values(18);
  planes.write(hours_at("1700-01-01"), 0, 2, values.data());  // they need no time
  const double root = std::sqrt(0.75);
  const std::array<double, 18> expected = {root, 1, -0.5, root, 1, -0.5, 0.5,  0.5, 0.5,
                                           0,    0, 0,    -0.5, 0, root, -0.5, 0,   root};
  for (std::size_t i = 0; i < 18; ++i) CHECK(values[i] == Approx(expected[i]).margin(1e-7));
}

TEST_CASE("Computed planes: bands hold the bits of the whole grid") {
  const GridPoints grid = globe(13, 21);
  for (double step : {1.0, 6.0}) {
    const ComputedPlanes planes(computed_channel_names(), grid, step, RadiationUnit::joule);
    const std::size_t count = planes.names().size();
    const double hours = hours_at("2026-02-11 17:00");
    std::vector<float> whole(count * 13 * 21);
    planes.write(hours, 0, 13, whole.data());
    for (const RowBand band : {RowBand{0, 4}, RowBand{4, 5}, RowBand{9, 4}, RowBand{12, 1}, RowBand{13, 0}}) {
      const auto size = static_cast<std::size_t>(band.count * 21);
      std::vector<float> part(count * size, -1.0f);
      planes.write(hours, band.first, band.count, part.data());
      for (std::size_t p = 0; p < count; ++p)
        CHECK(std::equal(
            part.begin() + static_cast<std::ptrdiff_t>(p * size),
            part.begin() + static_cast<std::ptrdiff_t>((p + 1) * size),
            whole.begin() + static_cast<std::ptrdiff_t>((p * 13 + static_cast<std::size_t>(band.first)) * 21)));
    }
    for (const RowBand band : {RowBand{-1, 2}, RowBand{12, 2}, RowBand{0, -1}, RowBand{14, 0}})
      CHECK_THROWS_WITH(planes.write(hours, band.first, band.count, whole.data()),
                        ContainsSubstring("are not within the grid's 13"));
  }
}

TEST_CASE("Computed planes: longitudes beyond 180 have the bits of those west of Greenwich") {
  const std::vector<double> latitudes = {80, 12.25, -45};
  const std::vector<std::string>& names = computed_channel_names();
  const ComputedPlanes west(names, {latitudes, {-180, -179.9, -90, -0.3}}, 1, RadiationUnit::watt);
  const ComputedPlanes east(names, {latitudes, {180, 360 - 179.9, 270, 360 - 0.3}}, 1, RadiationUnit::watt);
  for (double hour = 0; hour < 24; ++hour) {
    std::vector<float> a(names.size() * 12), b(a.size());
    west.write(hours_at("2026-06-11") + hour, 0, 3, a.data());
    east.write(hours_at("2026-06-11") + hour, 0, 3, b.data());
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (i % 2 == 0) CHECK(a[i] == b[i]);  // -180 and -90; the others are not the same doubles
      CHECK(a[i] == Approx(b[i]).epsilon(1e-6).margin(1e-4));
    }
  }
}

TEST_CASE("Computed planes: threads write what one thread writes") {
  const ComputedPlanes planes(computed_channel_names(), globe(5, 12), 1, RadiationUnit::joule);
  const auto written = [&](double hours) {
    std::vector<float> values(5 * 5 * 12);
    planes.write(hours, 0, 5, values.data());
    return values;
  };
  constexpr std::size_t kThreads = 4, kInstants = 10, kRounds = 1000;  // long enough that they run at the same time
  std::vector<std::vector<float>> alone;
  for (std::size_t i = 0; i < kInstants; ++i) alone.push_back(written(490000 + 5 * static_cast<double>(i)));
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        for (std::size_t round = 0; round < kRounds; ++round) {
          const std::size_t i = (round + t) % kInstants;
          if (written(490000 + 5 * static_cast<double>(i)) != alone[i]) ++wrong;
        }
      });
  }
  CHECK(wrong == 0);
}

TEST_CASE("Computed planes: mean and deviation are those of the globe over a year") {
  const GridPoints grid = globe(60, 72);
  const ComputedPlanes planes(computed_channel_names(), grid, 1, RadiationUnit::joule);
  const std::size_t size = 60 * 72;
  std::array<double, 5> sum{}, squares{};
  constexpr int kInstants = 40;
  std::vector<float> values(5 * size);
  for (int i = 0; i < kInstants; ++i) {
    planes.write(hours_at("2026-01-01") + 219.3 * i, 0, 60, values.data());
    for (std::size_t p = 0; p < 5; ++p) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(p * size);
      const std::vector<float> one(begin, begin + static_cast<std::ptrdiff_t>(size));
      sum[p] += area_mean(grid, one) / kInstants;
      squares[p] += area_mean(grid, one, [](double value) { return value * value; }) / kInstants;
    }
  }
  for (std::size_t p = 0; p < 5; ++p) {
    INFO(planes.names()[p]);
    CHECK(planes.mean(p) == Approx(sum[p]).epsilon(2e-3).margin(1e-6));
    CHECK(planes.deviation(p) == Approx(std::sqrt(squares[p] - sum[p] * sum[p])).epsilon(5e-3));
  }
  CHECK(planes.mean(1) == Approx(3600 * 1361 / 4.0));
  CHECK(ComputedPlanes({"toa_radiation"}, grid, 1, RadiationUnit::watt).mean(0) == Approx(1361 / 4.0));
}

TEST_CASE("Computed planes refuse what they cannot compute") {
  const GridPoints grid = globe(4, 8);
  const auto made = [](std::vector<std::string> names, GridPoints points, double step) {
    return ComputedPlanes(std::move(names), std::move(points), step, RadiationUnit::joule);
  };
  CHECK_THROWS_WITH(made({"cos_zenth"}, grid, 1),
                    ContainsSubstring("'cos_zenth' is not a channel that can be computed; the nearest is cos_zenith"));
  CHECK_THROWS_WITH(made({"sin_latitude"}, grid, 1), ContainsSubstring("the nearest is cos_latitude"));
  CHECK_THROWS_WITH(made({"cos_latitude", "cos_latitude"}, grid, 1), ContainsSubstring("cos_latitude is named twice"));
  CHECK_THROWS_WITH(made({"cos_zenith"}, {{}, {0}}, 1), ContainsSubstring("need the latitudes of the data"));
  CHECK_THROWS_WITH(made({"cos_zenith"}, {{0}, {}}, 1), ContainsSubstring("need the longitudes of the data"));
  CHECK_THROWS_WITH(made({"cos_zenith"}, {{0, 90.5}, {0}}, 1),
                    ContainsSubstring("latitudes from -90 to 90 degrees; number 1 is 90.5"));
  CHECK_THROWS_WITH(made({"cos_zenith"}, {{0}, {-181}}, 1), ContainsSubstring("longitudes from -180 to 360 degrees"));
  CHECK_THROWS_WITH(made({"cos_zenith"}, {{std::nan("")}, {0}}, 1), ContainsSubstring("number 0 is nan"));
  CHECK_NOTHROW(made({"cos_zenith"}, {{0}, {0, 360, -180}}, 0));
  for (double step : {0.0, -1.0, std::nan("")})
    CHECK_THROWS_WITH(made({"toa_radiation"}, grid, step),
                      ContainsSubstring("toa_radiation is a mean over the time step of the data, which is unknown"));
  CHECK_THROWS_WITH(made({"toa_radiation"}, grid, 9000), ContainsSubstring("9000 hours are more than a year"));
  std::vector<float> values(32);
  CHECK_THROWS_WITH(made({"cos_zenith"}, grid, 1).write(std::nan(""), 0, 4, values.data()),
                    ContainsSubstring("the sun's position"));
  const ComputedPlanes planes = made({"cos_latitude"}, grid, 1);
  for (const auto& [first, count] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{-1, 2}, {3, 2}, {0, 5}, {0, -1}})
    CHECK_THROWS_WITH(planes.write(0, first, count, values.data()), "computed channels: the " + std::to_string(count) +
                                                                        " rows from row " + std::to_string(first) +
                                                                        " are not within the grid's 4");
  CHECK_NOTHROW(planes.write(0, 3, 1, values.data()));
  CHECK_NOTHROW(made({"toa_radiation"}, grid, 366 * 24));
}
