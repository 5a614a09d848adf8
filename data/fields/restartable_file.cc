#include "data/fields/restartable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "data/files/hdf5.h"
#include "engine/files/atomic_file.h"
#include "engine/files/json.h"
#include "engine/files/system_error.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"

namespace isobar {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "steps are written with the byte order of the machine");

fs::path hidden(const fs::path& path, const char* extension) {
  return path.parent_path() / ("." + path.filename().string() + extension);
}
fs::path partial_of(const fs::path& path) {
  return hidden(path, ".partial");
}
fs::path journal_of(const fs::path& path) {
  return hidden(path, ".done");
}

void create_fields(const fs::path& path, const FieldFacts& facts) {
  auto file = hdf5::File::create(path.string());
  file.reserve(kFields, facts.shape);
  const auto write_axis = [&](const char* name, const std::vector<double>& values, const char* units) {
    if (values.empty()) return;
    const std::int64_t count = std::ssize(values);
    file.write(name, std::span(&count, 1), std::span<const double>(values));
    file.write_attribute(name, "units", units);
  };
  write_axis("lat", facts.latitudes, "degrees_north");
  write_axis("lon", facts.longitudes, "degrees_east");
  file.write("channel", facts.channel_names);
  if (!facts.units.empty()) file.write("units", facts.units);
  const std::vector<std::int64_t> times(facts.time->values.begin(), facts.time->values.end());
  file.write("time", std::span(facts.shape).first(1), std::span<const std::int64_t>(times));
  file.write_attribute("time", "units", facts.time->units);
  file.write_attribute("time", "calendar", facts.time->calendar);
  file.close();
}

// Joins ranges that touch.
void add_range(std::vector<StepRange>& ranges, StepRange added) {
  ranges.push_back(added);
  std::ranges::sort(ranges);
  std::vector<StepRange> joined;
  for (const StepRange& range : ranges) {
    if (!joined.empty() && range[0] <= joined.back()[1])
      joined.back()[1] = std::max(joined.back()[1], range[1]);
    else
      joined.push_back(range);
  }
  ranges = std::move(joined);
}

}  // namespace

std::uintmax_t RestartableFile::occupied_bytes(const fs::path& path) {
  struct stat status {};
  constexpr std::uintmax_t kBlock = 512;  // stat's, whatever the file system's is
  return ::stat(partial_of(path).c_str(), &status) == 0 ? kBlock * static_cast<std::uintmax_t>(status.st_blocks) : 0;
}

void RestartableFile::remove_unfinished(const fs::path& path) {
  fs::remove(partial_of(path));
  fs::remove(journal_of(path));
}

RestartableFile::RestartableFile(fs::path path, FieldFacts facts, nlohmann::json made_from)
    : path_(std::move(path)),
      facts_(std::move(facts)),
      made_from_(std::move(made_from)),
      step_bytes_(checked_product({facts_.shape[1], facts_.shape[2], facts_.shape[3], sizeof(float)}, path_.string())) {
  if (fs::exists(partial_of(path_)) && fs::exists(journal_of(path_)))
    read_journal();
  else
    begin();
  open();
}

void RestartableFile::begin() {
  // A new partial file beside an old journal would seem to hold its steps.
  if (fs::remove(journal_of(path_))) flush_to_disk(path_.parent_path());
  create_fields(partial_of(path_), facts_);
  write_journal();
}

void RestartableFile::read_journal() {
  const std::string journal = journal_of(path_).string();
  const auto json = read_json<nlohmann::json>(journal);
  try {
    const nlohmann::json& before = json.at("made_from");
    for (const auto& [key, value] : made_from_.items())
      ISOBAR_CHECK(before.contains(key) && before.at(key) == value, journal, ": its file was begun with other ", key,
                   "; go on with the same ones, or remove it to begin anew");
    for (const auto& range : json.at("done").get<std::vector<StepRange>>()) {
      ISOBAR_CHECK(range[0] >= 0 && range[0] < range[1] && range[1] <= facts_.shape[0], journal, ": [", range[0], ", ",
                   range[1], ") are no steps of its file; remove it to begin anew");
      add_range(done_, range);
    }
  } catch (const nlohmann::json::exception&) {
    throw_error(journal,
                R"( is not of the form {"made_from": {...}, "done": [[0, 10], ...]}; remove it to begin anew)");
  }
}

void RestartableFile::write_journal() const {
  write_file_atomically(journal_of(path_), nlohmann::json{{"made_from", made_from_}, {"done", done_}}.dump() + "\n");
}

void RestartableFile::open() {
  const fs::path partial = partial_of(path_);
  {
    const auto file = hdf5::File::open(partial.string());
    const hdf5::DatasetInfo info = info_of_fields(file);
    ISOBAR_CHECK(read_facts(file, info) == facts_ && info.layout.kind == hdf5::Layout::Kind::contiguous,
                 partial.string(), " is not the file that ", journal_of(path_).string(),
                 " is of; remove both to begin anew");
    offset_ = info.layout.offset;
  }
  file_ = Descriptor(::open(partial.c_str(), O_RDWR | O_CLOEXEC));
  if (!file_) fail_with_errno(path_, "written");
  reserve_room();
}

// The room for all steps, so that a full disk is met before any of them is written.
void RestartableFile::reserve_room() const {
  const std::int64_t bytes = checked_product({facts_.shape[0], step_bytes_}, path_.string());
  while (::fallocate(file_.get(), 0, static_cast<off_t>(offset_), bytes) != 0) {
    if (errno == EINTR) continue;
    if (errno == EOPNOTSUPP || errno == ENOSYS) return;  // a file system that cannot
    fail_with_errno(path_, "written");
  }
}

std::vector<StepRange> RestartableFile::missing() const {
  std::vector<StepRange> ranges;
  std::int64_t next = 0;
  for (const StepRange& range : done_) {
    if (range[0] > next) ranges.push_back({next, range[0]});
    next = range[1];
  }
  if (next < facts_.shape[0]) ranges.push_back({next, facts_.shape[0]});
  return ranges;
}

void RestartableFile::write(std::int64_t step, const float* fields) {
  std::span<const std::byte> bytes = std::as_bytes(std::span(fields, static_cast<std::size_t>(step_bytes_) / 4));
  auto to = static_cast<off_t>(offset_) + step * step_bytes_;
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), to);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_with_errno(path_, "written");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    to += written;
  }
}

void RestartableFile::record(StepRange steps) {
  if (::fdatasync(file_.get()) != 0) fail_with_errno(path_, "written");
  add_range(done_, steps);
  write_journal();
}

void RestartableFile::finish() {
  ISOBAR_CHECK(missing().empty(), path_.string(), ": not all steps are written");
  ISOBAR_CHECK(!fs::exists(path_), path_.string(), " is there already");
  if (::fsync(file_.get()) != 0 || ::rename(partial_of(path_).c_str(), path_.c_str()) != 0)
    fail_with_errno(path_, "written");
  flush_to_disk(path_.parent_path());
  fs::remove(journal_of(path_));
}

}  // namespace isobar
