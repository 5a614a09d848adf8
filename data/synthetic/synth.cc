#include "data/synthetic/synth.h"

#include <array>
#include <cstddef>
#include <filesystem>
#include <set>
#include <span>
#include <vector>

#include "data/fields/calendar.h"
#include "data/fields/field_series.h"
#include "data/fields/statistics.h"
#include "data/files/hdf5.h"
#include "data/parallel_tasks.h"
#include "data/synthetic/synthetic_atmosphere.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"

namespace isobar {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kFirstYear = 1979;
constexpr std::int64_t kMaxYears = 1000;
// Of one step: 1 GiB; each thread holds one step
constexpr std::int64_t kMaxValues = std::int64_t{1} << 28;
constexpr std::int64_t kHoursPerStep = 6, kMaxSteps = 1460;
constexpr const char* kTimeUnits = "hours since 1979-01-01 00:00:00";

std::int64_t first_hour_of(std::int64_t year) {
  std::int64_t days = 0;
  for (std::int64_t y = kFirstYear; y < year; ++y) days += is_leap(y) ? 366 : 365;
  return 24 * days;
}

void write_year(const SyntheticAtmosphere& atmosphere, const SynthOptions& options, std::int64_t year,
                const std::string& path) {
  const std::int64_t steps = options.steps_per_year, values = options.channels * options.height * options.width;
  const std::array<std::int64_t, 4> shape = {steps, options.channels, options.height, options.width};
  const std::array<std::int64_t, 1> step_count = {steps}, rows = {options.height}, columns = {options.width};
  std::vector<std::int64_t> hours;
  for (std::int64_t t = 0; t < steps; ++t) hours.push_back(first_hour_of(year) + t * kHoursPerStep);

  auto file = hdf5::File::create(path);
  file.reserve("fields", shape);
  file.write("lat", rows, std::span<const double>(atmosphere.latitudes()));
  file.write_attribute("lat", "units", "degrees_north");
  file.write("lon", columns, std::span<const double>(atmosphere.longitudes()));
  file.write_attribute("lon", "units", "degrees_east");
  file.write("channel", atmosphere.channel_names());
  file.write("units", atmosphere.units());
  file.write("time", step_count, std::span<const std::int64_t>(hours));
  file.write_attribute("time", "units", kTimeUnits);
  file.write_attribute("time", "calendar", "proleptic_gregorian");
  parallel_tasks(steps, options.threads, [&](std::int64_t t) {
    std::vector<float> fields(static_cast<std::size_t>(values));
    atmosphere.fields(static_cast<double>(hours[static_cast<std::size_t>(t)]), fields.data());
    file.write_box("fields", std::array<std::int64_t, 4>{t, 0, 0, 0},
                   std::array<std::int64_t, 4>{1, options.channels, options.height, options.width}, fields.data());
  });
  file.close();
}

// The files of one of out/train, out/valid and out/test: consecutive years.
struct SetToWrite {
  const char* folder;
  std::int64_t first_year, years;
};
std::array<SetToWrite, 3> parts_of(const SynthOptions& options) {
  const std::int64_t valid = kFirstYear + options.train_years;
  return {{{"train", kFirstYear, options.train_years},
           {"valid", valid, options.valid_years},
           {"test", valid + options.valid_years, options.valid_years}}};
}

// Error for a year of another data set, which would be read as part of this one.
void refuse_other_years(const fs::path& folder, const SetToWrite& part) {
  std::set<std::string> own;
  for (std::int64_t y = 0; y < part.years; ++y) own.insert(std::to_string(part.first_year + y) + ".h5");
  for (const auto& entry : fs::directory_iterator(folder))
    ISOBAR_CHECK(entry.path().extension() != ".h5" || own.contains(entry.path().filename().string()),
                 entry.path().string(), " is not of the data set to be made here; choose another folder");
}

void check(const SynthOptions& options) {
  ISOBAR_CHECK(!options.out.empty(), "data synth needs a folder: --out");
  ISOBAR_CHECK(options.train_years >= 1 && options.valid_years >= 1,
               "data synth needs at least one year to train and one"
               " to validate with");
  ISOBAR_CHECK(options.steps_per_year >= 2 && options.steps_per_year <= kMaxSteps, "--steps-per-year ",
               options.steps_per_year, " is not between 2 and ", kMaxSteps, " (six-hourly)");
  ISOBAR_CHECK(options.train_years <= kMaxYears && options.valid_years <= kMaxYears, "data synth makes at most ",
               kMaxYears, " years to train and ", kMaxYears, " to validate with, not ", options.train_years, " and ",
               options.valid_years);
  ISOBAR_CHECK(options.height >= 2 && options.width >= 2, "--grid ", options.height, "x", options.width,
               " needs at least two rows and two columns");
  ISOBAR_CHECK(options.channels >= 1, "--channels ", options.channels, " is less than one");
  const auto values = product_of(std::array{options.channels, options.height, options.width});
  ISOBAR_CHECK(values && *values <= kMaxValues, "--channels ", options.channels, " on --grid ", options.height, "x",
               options.width, " make a step of more than the ", kMaxValues, " values that data synth writes at most");
}

}  // namespace

void write_synthetic_data(const SynthOptions& options) {
  check(options);
  const fs::path out(options.out);
  const auto parts = parts_of(options);
  for (const SetToWrite& part : parts) {
    fs::create_directories(out / part.folder);
    refuse_other_years(out / part.folder, part);
  }
  const SyntheticAtmosphere atmosphere(options.height, options.width, options.channels, options.seed);
  for (const SetToWrite& part : parts)
    for (std::int64_t year = part.first_year; year < part.first_year + part.years; ++year)
      write_year(atmosphere, options, year, out / part.folder / (std::to_string(year) + ".h5"));
  const FieldSeries train({.paths = {out / "train"}});
  write_statistics(compute_statistics(train, options.threads), options.height, options.width, out / "stats");
}

}  // namespace isobar
