#include "data/describe.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iomanip>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "data/era5.h"
#include "data/field_file.h"
#include "data/npy.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

namespace fs = std::filesystem;

// The first and the last of an axis, or that it is missing.
std::string axis_text(const std::vector<double>& axis) {
  if (axis.empty()) return "not in the files";
  std::ostringstream out;
  out << axis.front() << " to " << axis.back();
  return out.str();
}

std::string time_text(const FieldFile& file) {
  try {
    return file.time_of(0).iso() + " to " + file.time_of(file.steps() - 1).iso() +
           (file.has_time() ? "" : " (from the file's name)");
  } catch (const Error&) {
    return "time unknown";
  }
}

std::string storage_text(const FieldFile& file) {
  const std::vector<std::int64_t>& chunk = file.info().layout.chunk;
  return std::string(file.how_it_is_read()) + (chunk.empty() ? "" : " " + shape_text(chunk));
}

void describe_files(const Era5Dataset& dataset, std::ostream& out) {
  out << "  " << dataset.file_count() << (dataset.file_count() == 1 ? " file, " : " files, ") << dataset.steps()
      << " steps of " << dataset.channels() << " channels on " << dataset.height() << " x " << dataset.width() << '\n';
  for (std::size_t f = 0; f < dataset.file_count(); ++f) {
    const FieldFile& file = dataset.file(f);
    out << "    " << fs::path(file.path()).filename().string() << "  " << file.steps() << " steps  " << time_text(file)
        << "  " << storage_text(file) << '\n';
  }
  out << "  channels:";
  for (const std::string& name : dataset.channel_names()) out << ' ' << name;
  out << (dataset.file(0).channel_names().empty() ? " (not named in the files)" : "") << '\n'
      << "  latitudes: " << axis_text(dataset.latitudes()) << ", longitudes: " << axis_text(dataset.longitudes())
      << '\n';
}

void describe_statistics_files(const fs::path& folder, const Era5Dataset& dataset, std::ostream& out) {
  const fs::path means = folder / "global_means.npy", stds = folder / "global_stds.npy";
  const fs::path time_means = folder / "time_means.npy";
  if (!fs::exists(means) && !fs::exists(stds)) {
    out << "statistics: none; isobar data stats PATH --out DIR makes them\n";
    return;
  }
  const Statistics statistics = load_statistics(means.string(), stds.string(), dataset.channels());
  out << "statistics: " << folder.string() << '\n' << describe_statistics(statistics, dataset.channel_names());
  if (fs::exists(time_means)) {
    load_time_means(time_means.string(), dataset.channels(), dataset.height(), dataset.width());
    out << "  time means: " << dataset.channels() << " x " << dataset.height() << " x " << dataset.width()
        << " or larger\n";
  }
}

}  // namespace

std::string describe_statistics(const Statistics& statistics, const std::vector<std::string>& channel_names) {
  std::ostringstream out;
  for (std::size_t c = 0; c < channel_names.size(); ++c)
    out << "  " << std::left << std::setw(8) << channel_names[c] << " mean " << std::setw(12) << statistics.means[c]
        << " standard deviation " << statistics.stds[c] << '\n';
  return out.str();
}

std::string describe_data(const std::string& path) {
  std::ostringstream out;
  std::optional<Era5Dataset> first;
  const auto describe_part = [&](const std::string& title, const std::string& part) {
    Era5Dataset dataset({.paths = {part}});
    out << title << ":\n";
    describe_files(dataset, out);
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
