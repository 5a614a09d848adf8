#include "data/fields/describe.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iomanip>
#include <optional>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "data/fields/field_file.h"
#include "data/fields/field_series.h"
#include "data/fields/layout.h"
#include "data/fields/preliminary.h"
#include "data/files/npy.h"
#include "data/parallel_tasks.h"
#include "kernels/common/check.h"
#include "kernels/common/comma_list.h"

namespace isobar {
namespace {

namespace fs = std::filesystem;

// The first and the last value of an axis, or that the axis is missing.
std::string axis_text(const std::vector<double>& axis) {
  if (axis.empty()) return "not in the files";
  std::ostringstream out;
  out << axis.front() << " to " << axis.back();
  return out.str();
}

std::string time_text(const FieldFile& file) {
  if (!file.has_times()) return "time unknown";
  return file.time_of(0).iso() + " to " + file.time_of(file.steps() - 1).iso() +
         (file.time() ? "" : " (from the file's name)");
}

// "2018.h5 after step 17, ...", the first few holes of each file, and where a file does not follow the one before it.
std::string holes_text(const FieldSeries& dataset) {
  constexpr std::size_t kShown = 3;
  std::string text;
  for (std::size_t f = 0; f < dataset.file_count(); ++f) {
    if (!dataset.file(f).time() || dataset.file(f).time()->holes().empty()) continue;
    const std::vector<std::int64_t>& holes = dataset.file(f).time()->holes();
    text += (text.empty() ? "" : "; ") + fs::path(dataset.file_name(f)).filename().string() + " after step ";
    for (std::size_t i = 0; i < std::min(holes.size(), kShown); ++i)
      text += (i == 0 ? "" : ", ") + std::to_string(holes[i]);
    if (holes.size() > kShown) text += " and " + std::to_string(holes.size() - kShown) + " more";
  }
  const std::vector<Segment> segments = dataset.segments();
  std::size_t between = 0;
  for (std::size_t i = 1; i < segments.size(); ++i) {
    const std::int64_t last = segments[i].first - 1, first = segments[i].first;
    if (!dataset.hours_since_1970(last) || !dataset.hours_since_1970(first) || dataset.regular(last, first)) continue;
    if (++between > kShown) continue;
    text += (text.empty() ? "" : "; ") + fs::path(dataset.file_name_of(last)).filename().string() + " ends at " +
            dataset.time_of(last).iso() + ", " + fs::path(dataset.file_name_of(first)).filename().string() +
            " begins at " + dataset.time_of(first).iso();
  }
  if (between > kShown) text += "; " + std::to_string(between - kShown) + " more between files";
  return text;
}

// "units, time": the facts that the files do not give, and that therefore cannot be compared.
std::string facts_not_given(const FieldSeries& dataset) {
  std::string text;
  const auto add = [&](const std::string& what) { text += (text.empty() ? "" : ", ") + what; };
  const auto has_time = [&](std::size_t f) { return dataset.file(f).time().has_value(); };
  const std::vector<std::string>& units = dataset.labels().units;
  bool every_time = true;
  for (std::size_t f = 0; f < dataset.file_count(); ++f) every_time = every_time && has_time(f);
  if (dataset.file(0).channel_names().empty()) add("channel names");
  if (std::ranges::all_of(units, &std::string::empty)) {
    add("units");
  } else {
    for (std::size_t c = 0; c < units.size(); ++c)
      if (units[c].empty()) add("the unit of " + dataset.channel_names()[c]);
  }
  if (!every_time) add("time");
  if (dataset.latitudes().empty()) add("latitudes");
  if (dataset.longitudes().empty()) add("longitudes");
  return text;
}

// Nothing for files that do not tell of preliminary data.
void describe_expver(const FieldSeries& dataset, std::ostream& out) {
  const PreliminarySteps found = find_preliminary(dataset);
  const std::string text = describe(found, dataset);
  if (!text.empty())
    out << "  expver: " << text << '\n';
  else if (found.is_told)
    out << "  expver: no step is preliminary\n";
}

void describe_labels(const FieldSeries& dataset, std::ostream& out) {
  const FieldLabels& labels = dataset.labels();
  if (!std::ranges::all_of(labels.units, &std::string::empty)) {
    const char* before = "  units: ";
    for (const std::string& unit : labels.units) out << std::exchange(before, ", ") << (unit.empty() ? "?" : unit);
    out << '\n';
  }
  if (labels.step_hours > 0) out << "  time step: " << hours_text(labels.step_hours) << '\n';
  if (const std::string holes = holes_text(dataset); !holes.empty()) out << "  holes in time: " << holes << '\n';
  describe_expver(dataset, out);
  if (!dataset.timeline().left_out().empty()) out << "  left out: " << dataset.timeline().left_out() << '\n';
  std::set<std::string> no_channels;
  for (std::size_t f = 0; f < dataset.file_count(); ++f)
    no_channels.insert(dataset.file(f).left_out().begin(), dataset.file(f).left_out().end());
  for (const std::string& reason : no_channels) out << "  no channel: " << reason << '\n';
  if (const std::string open = facts_not_given(dataset); !open.empty()) out << "  not given: " << open << '\n';
}

// "-9999, 1e+20": the fill values of all files.
std::string fill_values_text(const FieldSeries& dataset) {
  std::set<float> values;
  for (std::size_t f = 0; f < dataset.file_count(); ++f)
    values.insert(dataset.file(f).fill_values().begin(), dataset.file(f).fill_values().end());
  return comma_list(values);
}

// Error naming file, step and channel if there is a hole.
void read_all_steps(const FieldSeries& dataset) {
  parallel_tasks(dataset.steps(), /*threads=*/0, [&](std::int64_t step) {
    thread_local std::vector<float> fields;
    fields.resize(static_cast<std::size_t>(dataset.values()));
    dataset.read_step(step, fields.data());
  });
}

void describe_files(const FieldSeries& dataset, bool all_steps, std::ostream& out) {
  out << "  " << dataset.file_count() << (dataset.file_count() == 1 ? " file, " : " files, ") << dataset.steps()
      << " steps of " << dataset.channels() << " channels on " << dataset.height() << " x " << dataset.width() << '\n';
  for (std::size_t f = 0; f < dataset.file_count(); ++f) {
    const FieldFile& file = dataset.file(f);
    out << "    " << fs::path(file.path()).filename().string() << "  " << file.steps() << " steps  " << time_text(file)
        << "  " << file.how_it_is_read() << (file.chunk().empty() ? "" : " " + shape_text(file.chunk())) << '\n';
  }
  out << "  channels:";
  for (const std::string& name : dataset.channel_names()) out << ' ' << name;
  out << (dataset.file(0).channel_names().empty() ? " (not named in the files)" : "") << '\n'
      << "  latitudes: " << axis_text(dataset.latitudes()) << ", longitudes: " << axis_text(dataset.longitudes())
      << '\n';
  describe_labels(dataset, out);
  if (const std::string fills = fill_values_text(dataset); !fills.empty()) out << "  fill values: " << fills << '\n';
  if (!all_steps) return;
  read_all_steps(dataset);
  out << "  all steps are read: no holes in the fields\n";
}

FieldLabels said_by(const FieldSeries& dataset, const Statistics& statistics) {
  FieldLabels labels = dataset.labels();
  complete_labels(labels, statistics.labels.value_or(FieldLabels()));
  return labels;
}

// Time means of a cropped grid are accepted: a run with the same crop can use them.
void describe_time_means(const fs::path& file, const FieldSeries& dataset, std::ostream& out) {
  const std::vector<std::int64_t> shape = read_npy(file.string()).shape;
  const bool is_cropped =
      shape.size() == 4 && (shape[2] < dataset.height() || shape[3] < dataset.width()) && shape[2] > 0 && shape[3] > 0;
  const std::int64_t height = is_cropped ? std::min(shape[2], dataset.height()) : dataset.height();
  const std::int64_t width = is_cropped ? std::min(shape[3], dataset.width()) : dataset.width();
  load_time_means(file.string(), dataset.channels(), height, width);
  out << "  time means: " << dataset.channels() << " x " << height << " x " << width
      << (is_cropped ? concat(", of a crop: they fit img_size up to [", height, ",", width, "]\n") : " or larger\n");
}

void describe_statistics_files(const fs::path& folder, const FieldSeries& dataset, std::ostream& out) {
  const fs::path means = folder / kMeansFile, stds = folder / kStdsFile;
  const fs::path time_means = folder / kTimeMeansFile;
  if (!fs::exists(means) && !fs::exists(stds)) {
    out << "statistics: none; isobar data stats PATH --out DIR makes them\n";
    return;
  }
  const Statistics statistics = load_statistics(means.string(), stds.string(), dataset.channels());
  if (statistics.labels)
    check_labels(dataset.labels(), dataset.file_name(0), *statistics.labels, (folder / kLabelsFile).string());
  out << "statistics: " << folder.string() << '\n' << describe_statistics(statistics, dataset.channel_names());
  for (const std::string& doubt :
       unit_warnings(said_by(dataset, statistics), dataset.channel_names(), statistics.means))
    out << "  warning: " << doubt << '\n';
  if (fs::exists(time_means)) describe_time_means(time_means, dataset, out);
}

}  // namespace

std::string describe_statistics(const Statistics& statistics, const std::vector<std::string>& channel_names) {
  std::ostringstream out;
  for (std::size_t c = 0; c < channel_names.size(); ++c)
    out << "  " << std::left << std::setw(8) << channel_names[c] << " mean " << std::setw(12) << statistics.means[c]
        << " standard deviation " << statistics.stds[c] << '\n';
  return out.str();
}

std::string describe_data(const std::string& path, bool all_steps) {
  std::ostringstream out;
  std::optional<FieldSeries> first;
  const auto describe_part = [&](const std::string& title, const std::string& part) {
    FieldSeries dataset({.paths = {part}});
    out << title << ":\n";
    describe_files(dataset, all_steps, out);
    if (!first) first.emplace(std::move(dataset));
  };
  for (const char* part : {"train", "valid", "test"})
    if (fs::is_directory(fs::path(path) / part)) describe_part(part, (fs::path(path) / part).string());
  if (!first) describe_part(path, path);

  const fs::path folder = fs::is_directory(path) ? fs::path(path) : fs::path(path).parent_path();
  describe_statistics_files(fs::is_directory(folder / "stats") ? folder / "stats" : folder, *first, out);
  return out.str();
}

}  // namespace isobar
