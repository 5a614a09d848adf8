#include "data/fields/convert.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "data/fields/calendar.h"
#include "data/fields/chosen_planes.h"
#include "data/fields/field_facts.h"
#include "data/fields/restartable_file.h"
#include "data/files/hdf5.h"
#include "data/parallel_tasks.h"
#include "engine/files/file_lock.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"

namespace isobar {
namespace {

namespace fs = std::filesystem;

constexpr double kSecondsInHour = 3600;
constexpr std::array<const char*, 3> kSplitFolders{"train", "valid", "test"};

// "12.3 GB".
std::string size_text(std::uintmax_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"bytes", "kB", "MB", "GB", "TB"};
  auto size = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; size >= 1000 && unit + 1 < kUnits.size(); ++unit) size /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.3g %s", size, kUnits[unit]);
  return text;
}

std::string number_of(std::int64_t count, const std::string& what) {
  return concat(count, ' ', what, count == 1 ? "" : "s");
}

// One file to write: consecutive steps of the sources in one year, and in one part of a split.
struct YearOfSteps {
  std::int64_t first = 0, end = 0;  // steps of the sources
  std::int64_t year = 0;
  std::size_t part = 0;
  fs::path path = {};

  std::int64_t steps() const { return end - first; }
};

// What an existing file is compared with, and a new one gets.
FieldFacts facts_of(const ChosenPlanes& planes, const std::vector<std::int64_t>& seconds, const YearOfSteps& year) {
  const FieldSeries& series = planes.series();
  FieldFacts facts;
  facts.shape = {year.steps(), planes.channels(), series.height(), series.width()};
  facts.channel_names = planes.names();
  facts.units = planes.units();
  facts.latitudes = series.latitudes();
  facts.longitudes = series.longitudes();
  for (std::string& unit : facts.units)  // a file's words for no unit are read as none
    if (unit == "unknown" || unit == "n/a" || unit == "none") unit.clear();
  if (std::ranges::all_of(facts.units, &std::string::empty)) facts.units.clear();
  // Seconds where hours are not exact, in every file of the conversion.
  const bool are_hours = std::ranges::all_of(seconds, [](std::int64_t s) { return s % 3600 == 0; });
  facts.time.emplace(TimeFacts{.values = {},
                               .units = concat(are_hours ? "hours" : "seconds", " since 1970-01-01 00:00:00"),
                               .calendar = "proleptic_gregorian"});
  for (std::int64_t step = year.first; step < year.end; ++step)
    facts.time->values.push_back(static_cast<double>(seconds[static_cast<std::size_t>(step)] / (are_hours ? 3600 : 1)));
  return facts;
}

class Converter {
 public:
  Converter(const ConvertOptions& options, const std::function<void(const std::string&)>& tell)
      : options_(options),
        tell_(tell),
        planes_(options.sources, options.channels, options.allow_missing ? Holes::kept : Holes::refused) {
    set_times();
    plan_files();
    check_outputs_are_no_sources();
  }

  void run() {
    const std::vector<FileLock> locks = create_and_lock_folders();
    std::vector<YearOfSteps> to_write;
    for (const YearOfSteps& year : years_)
      if (!is_there(year)) to_write.push_back(year);
    tell_(plan_text(to_write));
    check_room(to_write);
    for (const YearOfSteps& year : to_write) write(year);
  }

 private:
  const FieldSeries& series() const { return planes_.series(); }
  std::int64_t seconds_of(std::int64_t step) const { return seconds_[static_cast<std::size_t>(step)]; }
  StepTime time_of(std::int64_t seconds) const {
    static const TimeUnits units("seconds since 1970-01-01", "", "the sources");
    return units.at(static_cast<double>(seconds));
  }
  std::uintmax_t bytes_of(const YearOfSteps& year) const {
    return static_cast<std::uintmax_t>(checked_product(
        {year.steps(), planes_.values(), static_cast<std::int64_t>(sizeof(float))}, year.path.string()));
  }

  void set_times() {
    for (std::size_t f = 0; f < series().file_count(); ++f)
      ISOBAR_CHECK(series().file(f).time(), series().file_name(f),
                   " has no 'time', so that its steps belong to no year: data convert needs times");
    for (std::int64_t step = 0; step < series().steps(); ++step)
      seconds_.push_back(std::llround(series().hours_since_1970(step).value() * kSecondsInHour));
  }

  // The first second of each part of the split but the first.
  std::vector<std::int64_t> split_seconds() const {
    const std::vector<std::string>& dates = options_.split;
    ISOBAR_CHECK(dates.size() < kSplitFolders.size(), "--split has ", dates.size(), " dates; two are the most");
    std::vector<std::int64_t> begins;
    for (std::size_t i = 0; i < dates.size(); ++i) {
      begins.push_back(std::llround(parse_date(dates[i], "--split").begin * kSecondsInHour));
      ISOBAR_CHECK(i == 0 || begins[i - 1] < begins[i], "--split ", dates[0], ' ', dates[1],
                   ": the dates do not ascend");
    }
    return begins;
  }

  void plan_files() {
    const std::vector<std::int64_t> begins = split_seconds();
    for (std::int64_t step = 0; step < series().steps(); ++step) {
      const std::int64_t seconds = seconds_of(step), year = time_of(seconds).year;
      const auto part = static_cast<std::size_t>(std::ranges::upper_bound(begins, seconds) - begins.begin());
      if (years_.empty() || years_.back().year != year || years_.back().part != part)
        years_.push_back({step, step, year, part, folder_of(part) / name_of(year)});
      years_.back().end = step + 1;
    }
    for (std::size_t part = 0; part <= begins.size(); ++part)
      ISOBAR_CHECK(std::ranges::any_of(years_, [&](const YearOfSteps& year) { return year.part == part; }),
                   "--split leaves no step for ", folder_of(part).string(), ": the sources are from ",
                   time_of(seconds_.front()).iso(), " to ", time_of(seconds_.back()).iso());
  }

  fs::path folder_of(std::size_t part) const {
    return options_.split.empty() ? fs::path(options_.out) : fs::path(options_.out) / kSplitFolders[part];
  }
  static std::string name_of(std::int64_t year) {
    char name[16];
    std::snprintf(name, sizeof name, "%04d.h5", static_cast<int>(year));
    return name;
  }

  std::vector<std::string> source_files() const {
    std::vector<std::string> files = planes_.constant_files();
    for (std::size_t f = 0; f < series().file_count(); ++f) files.push_back(series().file_name(f));
    return files;
  }

  void check_outputs_are_no_sources() const {
    std::error_code is_not_there;
    for (const YearOfSteps& year : years_) {
      for (const std::string& source : source_files())
        ISOBAR_CHECK(!fs::equivalent(source, year.path, is_not_there), source,
                     " is a source, and would be written; choose another --out");
      for (const std::string& source : options_.sources)
        ISOBAR_CHECK(!fs::equivalent(source, year.path.parent_path(), is_not_there), source,
                     " is a folder of sources, and its files would be joined by those written; choose another --out");
    }
  }

  std::vector<FileLock> create_and_lock_folders() const {
    std::set<fs::path> folders;
    for (const YearOfSteps& year : years_) folders.insert(year.path.parent_path());
    std::vector<FileLock> locks;
    for (const fs::path& folder : folders) {
      fs::create_directories(folder);
      locks.push_back(FileLock::of_folder(folder));
      ISOBAR_CHECK(locks.back().state() != FileLock::State::elsewhere, folder.string(),
                   ": another process writes to this folder; wait for it, or choose another --out");
    }
    return locks;
  }

  // Whether the file is there already; Error if a file of its name is another one.
  bool is_there(const YearOfSteps& year) const {
    if (!fs::exists(year.path)) return false;
    if (const std::optional<std::string> what = difference(year))
      throw_error(year.path.string(), " is there already, and ", *what,
                  " are not those that would be written; choose another --out, or remove it");
    RestartableFile::remove_unfinished(year.path);
    return true;
  }

  // What is different in the existing file; none: nothing.
  std::optional<std::string> difference(const YearOfSteps& year) const {
    const auto file = hdf5::File::open(year.path.string());
    const FieldFacts there = read_facts(file, info_of_fields(file)), wanted = facts_of(planes_, seconds_, year);
    if (there.shape != wanted.shape) return "its steps, channels or points";
    if (there.channel_names != wanted.channel_names || there.units != wanted.units) return "its channels or units";
    if (there.latitudes != wanted.latitudes || there.longitudes != wanted.longitudes) return "its points";
    if (there.time != wanted.time) return "its times";
    std::vector<float> values(static_cast<std::size_t>(planes_.values())), expected(values.size());
    for (const std::int64_t step : std::set{std::int64_t{0}, year.steps() / 2, year.steps() - 1}) {
      file.read(kFields, std::array<std::int64_t, 4>{step, 0, 0, 0},
                std::array<std::int64_t, 4>{1, wanted.shape[1], wanted.shape[2], wanted.shape[3]}, values.data());
      planes_.read(year.first + step, expected.data());
      if (std::memcmp(values.data(), expected.data(), values.size() * sizeof(float)) != 0)
        return concat("its values at step ", step);
    }
    return std::nullopt;
  }

  std::string plan_text(const std::vector<YearOfSteps>& to_write) const {
    std::uintmax_t bytes = 0;
    std::int64_t steps = 0;
    for (const YearOfSteps& year : to_write) {
      bytes += bytes_of(year);
      steps += year.steps();
    }
    std::string text = concat("to write: ", size_text(bytes), ", ", number_of(steps, "step"), " of ",
                              number_of(planes_.channels(), "channel"), " on ", series().height(), " x ",
                              series().width(), " in ", number_of(std::ssize(to_write), "file"));
    if (to_write.empty()) text = "nothing to write";
    if (const auto kept = years_.size() - to_write.size(); kept > 0)
      text += concat("; kept: ", number_of(static_cast<std::int64_t>(kept), "file"), " that are there already");
    if (!series().timeline().left_out().empty()) text += concat("\nleft out: ", series().timeline().left_out());
    return text;
  }

  void check_room(const std::vector<YearOfSteps>& to_write) const {
    std::uintmax_t needed = 0;
    for (const YearOfSteps& year : to_write) {
      const std::uintmax_t bytes = bytes_of(year);
      needed += bytes - std::min(bytes, RestartableFile::occupied_bytes(year.path));
    }
    const std::uintmax_t free = fs::space(options_.out).available;
    ISOBAR_CHECK(needed <= free, options_.out, " needs ", size_text(needed), ", and its disk has ", size_text(free));
  }

  // Of everything that decides the values of a file. Sources are known by size and time of change.
  nlohmann::json made_from(const YearOfSteps& year) const {
    std::set<std::string> files(planes_.constant_files().begin(), planes_.constant_files().end());
    for (std::int64_t step = year.first; step < year.end; step += series().timeline().rest_of_file(step).count)
      for (std::size_t track = 0; track < series().timeline().tracks(); ++track)
        files.insert(series().file_name(series().timeline().place(step, track).file));
    nlohmann::json sources = nlohmann::json::array();
    for (const std::string& file : files) {
      struct stat status {};
      ISOBAR_CHECK(::stat(file.c_str(), &status) == 0, file, " cannot be read: ", std::strerror(errno));
      sources.push_back(
          {fs::weakly_canonical(file).string(), status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec});
    }
    return {{"channels", options_.channels},
            {"sources", std::move(sources)},
            {"steps", {seconds_of(year.first), seconds_of(year.end - 1), year.steps()}}};
  }

  void write(const YearOfSteps& year) const {
    const auto begin = std::chrono::steady_clock::now();
    RestartableFile file(year.path, facts_of(planes_, seconds_, year), made_from(year));
    std::int64_t written = 0;
    for (const auto& [first, end] : file.missing()) {
      written += end - first;
      for (std::int64_t step = first; step < end; step += steps_at_once(year))
        write_steps(file, year, {step, std::min(end, step + steps_at_once(year))});
    }
    file.finish();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::string text = concat(year.path.string(), ": ", number_of(year.steps(), "step"));
    if (written < year.steps()) text += concat(", ", year.steps() - written, " of them from the run before");
    tell_(concat(text, ", in ", std::llround(seconds), " s"));
  }

  // Every thread has a step, and a kill loses a small part of the file.
  std::int64_t steps_at_once(const YearOfSteps& year) const {
    constexpr std::int64_t kTimesAFile = 16;
    const std::int64_t step_bytes = planes_.values() * static_cast<std::int64_t>(sizeof(float));
    const std::int64_t few = std::min(options_.flush_bytes / step_bytes, year.steps() / kTimesAFile);
    return std::max<std::int64_t>(few, thread_count(options_.threads));
  }

  void write_steps(RestartableFile& file, const YearOfSteps& year, StepRange steps) const {
    parallel_tasks(steps[1] - steps[0], options_.threads, [&](std::int64_t i) {
      std::vector<float> fields(static_cast<std::size_t>(planes_.values()));
      planes_.read(year.first + steps[0] + i, fields.data());
      file.write(steps[0] + i, fields.data());
    });
    file.record(steps);
  }

  const ConvertOptions& options_;
  const std::function<void(const std::string&)>& tell_;
  const ChosenPlanes planes_;
  std::vector<std::int64_t> seconds_;  // [steps] since 1970-01-01T00
  std::vector<YearOfSteps> years_;     // in the order of the steps
};

}  // namespace

void convert_fields(const ConvertOptions& options, const std::function<void(const std::string&)>& tell) {
  ISOBAR_CHECK(!options.out.empty(), "data convert needs a folder: --out");
  ISOBAR_CHECK(!options.channels.empty(), "data convert needs channels: --channels");
  Converter(options, tell).run();
}

}  // namespace isobar
