#include "data/forecasts/climatology.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include "data/fields/channels.h"
#include "data/fields/field_axes.h"
#include "data/files/hdf5.h"
#include "data/parallel_tasks.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr std::int64_t kMinutesPerDay = 1440;

// The steps of one hour of the day, by the number of their day: [kClimatologyDays].
using StepsOfDays = std::vector<std::vector<std::int64_t>>;

// By the hour.
std::map<std::int64_t, StepsOfDays> steps_by_hour(const FieldSeries& data, DayNumbers numbers) {
  std::map<std::int64_t, StepsOfDays> hours;
  for (std::int64_t step = data.range()[0]; step < data.range()[1]; ++step) {
    ISOBAR_CHECK(data.hours_since_1970(step), data.file_name_of(step),
                 " has no dates: a climatology needs 'time' in units like \"hours since 1970-01-01\"");
    const StepTime time = data.time_of(step);
    const ClimatologySlot slot = climatology_slot(time, numbers);
    ISOBAR_CHECK(slot.minute % 60 == 0, data.file_name_of(step), ": step ", data.place(step).step, " is at ",
                 time.iso(), ", and a climatology is of whole hours");
    StepsOfDays& days = hours[slot.minute / 60];
    days.resize(kClimatologyDays);
    days[static_cast<std::size_t>(slot.day)].push_back(step);
    // The 365th day of a year that has no other after it.
    if (numbers == DayNumbers::dayofyear && slot.day == kClimatologyDays - 2 && time.days_in_year == 365.0)
      days.back().push_back(step);
  }
  return hours;
}

// Sums and counts of one hour over a band of rows, [days, V, rows, LON].
struct DaySums {
  std::vector<double> sums;
  std::vector<std::uint32_t> counts;
};

DaySums add_up(const FieldSeries& data, const StepsOfDays& days, RowBand rows, int threads) {
  const auto points = static_cast<std::size_t>(data.channels() * rows.count * data.width());
  DaySums total{std::vector<double>(days.size() * points, 0.0), std::vector<std::uint32_t>(days.size() * points, 0)};
  parallel_tasks(kClimatologyDays, threads, [&](std::int64_t day) {
    const std::size_t first = static_cast<std::size_t>(day) * points;
    std::vector<float> fields(points);
    for (const std::int64_t step : days[static_cast<std::size_t>(day)]) {
      data.read_step(step, rows, fields.data());
      for (std::size_t i = 0; i < points; ++i) {
        if (std::isnan(fields[i])) continue;
        total.sums[first + i] += static_cast<double>(fields[i]);
        ++total.counts[first + i];
      }
    }
  });
  return total;
}

void write_axis(hdf5::File& file, const char* name, const std::vector<double>& degrees, const char* units) {
  file.write(name, std::array{std::ssize(degrees)}, std::span<const double>(degrees));
  file.write_attribute(name, "units", units);
  file.write_attribute(name, "standard_name", name);
}

void write_whole_numbers(hdf5::File& file, const std::string& name, const std::vector<std::int64_t>& values,
                         const char* meaning) {
  file.write(name, std::array{std::ssize(values)}, std::span<const std::int64_t>(values));
  file.write_attribute(name, "long_name", meaning);
}

const char* day_axis(DayNumbers days) {
  return days == DayNumbers::calendar ? kCalendarDay : "dayofyear";
}

// The file with its axes, and room for the fields.
hdf5::File create_file(const FieldSeries& data, const std::string& path, const ClimatologyOptions& options,
                       const std::vector<std::int64_t>& hours) {
  hdf5::File file = hdf5::File::create(path);
  std::vector<std::int64_t> days(kClimatologyDays);
  std::iota(days.begin(), days.end(), 1);
  const std::string day = day_axis(options.days);
  write_whole_numbers(file, "hour", hours, "hour of the day (UTC)");
  write_whole_numbers(file, day, days,
                      options.days == DayNumbers::calendar
                          ? "day of a leap year: 29 February is 60, 1 March of every year is 61"
                          : "day of the year: 1 March is 60, or 61 in a leap year");
  file.write_attribute(day, kFirstTime, data.time_of(data.range()[0]).iso());
  file.write_attribute(day, kLastTime, data.time_of(data.range()[1] - 1).iso());
  write_axis(file, "latitude", data.latitudes(), "degrees_north");
  write_axis(file, "longitude", data.longitudes(), "degrees_east");
  const std::array<std::int64_t, 4> shape{std::ssize(hours), kClimatologyDays, data.height(), data.width()};
  for (std::int64_t c = 0; c < data.channels(); ++c) {
    const std::string& name = data.channel_names()[static_cast<std::size_t>(c)];
    file.reserve(name, shape);
    if (c < std::ssize(data.labels().units) && !data.labels().units[static_cast<std::size_t>(c)].empty())
      file.write_attribute(name, "units", data.labels().units[static_cast<std::size_t>(c)]);
    file.write_dimensions(name, std::array<std::string, 4>{"hour", day, "latitude", "longitude"});
  }
  return file;
}

// means: [days, V, rows, LON].
void write_band(hdf5::File& file, const FieldSeries& data, std::int64_t hour, RowBand rows,
                const std::vector<double>& means) {
  const std::int64_t pixels = rows.count * data.width();
  std::vector<float> of_channel(static_cast<std::size_t>(kClimatologyDays * pixels));
  for (std::int64_t c = 0; c < data.channels(); ++c) {
    for (std::int64_t day = 0; day < kClimatologyDays; ++day) {
      const auto from = means.begin() + (day * data.channels() + c) * pixels;
      std::transform(from, from + pixels, of_channel.begin() + day * pixels,
                     [](double mean) { return static_cast<float>(mean); });
    }
    file.write_box(data.channel_names()[static_cast<std::size_t>(c)],
                   std::array<std::int64_t, 4>{hour, 0, rows.first, 0},
                   std::array<std::int64_t, 4>{1, kClimatologyDays, rows.count, data.width()}, of_channel.data());
  }
}

// How many rows of all channels fit into the memory; at least one.
std::int64_t rows_at_once(const FieldSeries& data, std::int64_t max_bytes) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(double) + sizeof(std::uint32_t));
  const std::int64_t row_bytes = kClimatologyDays * data.channels() * data.width() * kBytes;
  return std::clamp<std::int64_t>(max_bytes / row_bytes, 1, data.height());
}

// "no steps for 300 of 366 days at 0 h": where no day of the window has any.
std::string lack_of(const std::map<std::int64_t, StepsOfDays>& hours, const std::vector<double>& weights) {
  std::string lack;
  for (const auto& [hour, days] : hours) {
    std::vector<double> sums(days.size(), 0.0);
    std::vector<std::uint32_t> counts;
    for (const auto& steps : days) counts.push_back(static_cast<std::uint32_t>(steps.size()));
    smooth_days(sums, counts, 1, weights, 1);
    const auto without = std::ranges::count_if(sums, [](double mean) { return std::isnan(mean); });
    if (without > 0)
      lack +=
          concat(lack.empty() ? "no values for " : ", ", without, " of ", kClimatologyDays, " days at ", hour, " h");
  }
  return lack;
}

}  // namespace

ClimatologySlot climatology_slot(const StepTime& time, DayNumbers numbers) {
  constexpr std::int64_t kLeapDay = 59;  // from 0: 29 February
  const auto minutes = static_cast<std::int64_t>(std::llround(time.day_of_year * kMinutesPerDay));
  const auto days_in_year = static_cast<std::int64_t>(time.days_in_year);
  std::int64_t day = minutes / kMinutesPerDay % days_in_year;  // rounding may reach the next year
  if (numbers == DayNumbers::calendar && days_in_year < kClimatologyDays && day >= kLeapDay) ++day;
  return {day, minutes % kMinutesPerDay};
}

std::vector<double> window_weights(std::int64_t window) {
  ISOBAR_CHECK(window >= 1 && window % 2 == 1 && window <= kClimatologyDays, "a window of ", window,
               " days is not an odd number of days within a year");
  const std::int64_t half = window / 2;
  if (half == 0) return {1.0};
  std::vector<double> weights;
  double sum = 0;
  for (std::int64_t j = -half; j <= half; ++j) {
    weights.push_back(1 - static_cast<double>(std::abs(j)) / static_cast<double>(half));
    sum += weights.back();
  }
  for (double& weight : weights) weight *= static_cast<double>(window) / sum;
  return weights;
}

void smooth_days(std::vector<double>& sums, const std::vector<std::uint32_t>& counts, std::int64_t points,
                 const std::vector<double>& weights, int threads) {
  const std::int64_t days = std::ssize(sums) / points, half = std::ssize(weights) / 2;
  // A task smooths a few points over all days, so that their sums can be replaced.
  constexpr std::int64_t kPoints = 256;
  parallel_tasks((points + kPoints - 1) / kPoints, threads, [&](std::int64_t task) {
    const std::int64_t first = task * kPoints, count = std::min(kPoints, points - first);
    std::vector<double> means(static_cast<std::size_t>(days * count)), weight(static_cast<std::size_t>(count));
    for (std::int64_t day = 0; day < days; ++day) {
      const std::span<double> mean(means.data() + day * count, static_cast<std::size_t>(count));
      std::ranges::fill(weight, 0.0);
      for (std::int64_t j = -half; j <= half; ++j) {
        const std::int64_t from = ((day + j) % days + days) % days * points + first;
        const double w = weights[static_cast<std::size_t>(j + half)];
        for (std::size_t i = 0; i < mean.size(); ++i) {
          mean[i] += w * sums[static_cast<std::size_t>(from) + i];
          weight[i] += w * counts[static_cast<std::size_t>(from) + i];
        }
      }
      for (std::size_t i = 0; i < mean.size(); ++i)
        mean[i] = weight[i] > 0 ? mean[i] / weight[i] : std::numeric_limits<double>::quiet_NaN();
    }
    for (std::int64_t day = 0; day < days; ++day)
      std::copy_n(means.begin() + day * count, count, sums.begin() + day * points + first);
  });
}

std::uintmax_t climatology_bytes(const FieldSeries& data) {
  const auto hours = static_cast<std::uintmax_t>(steps_by_hour(data, DayNumbers::calendar).size());
  return hours * kClimatologyDays * static_cast<std::uintmax_t>(data.values()) * sizeof(float);
}

std::string write_climatology(const FieldSeries& data, const std::string& path, const ClimatologyOptions& options) {
  const std::vector<double> weights = window_weights(options.window);
  ISOBAR_CHECK(std::ssize(data.latitudes()) == data.height() && std::ssize(data.longitudes()) == data.width(),
               data.file_name(0), " has no latitudes and longitudes, which a climatology is written with");
  const std::map<std::int64_t, StepsOfDays> hours = steps_by_hour(data, options.days);
  std::vector<std::int64_t> numbers;
  for (const auto& [hour, days] : hours) numbers.push_back(hour);
  hdf5::File file = create_file(data, path, options, numbers);
  const std::int64_t height = rows_at_once(data, options.max_bytes);
  std::int64_t number = 0;
  for (const auto& [hour, days] : hours) {
    for (std::int64_t row = 0; row < data.height(); row += height) {
      const RowBand rows{row, std::min(height, data.height() - row)};
      DaySums total = add_up(data, days, rows, options.threads);
      smooth_days(total.sums, total.counts, data.channels() * rows.count * data.width(), weights, options.threads);
      write_band(file, data, number, rows, total.sums);
    }
    ++number;
  }
  file.close();
  return lack_of(hours, weights);
}

}  // namespace isobar
