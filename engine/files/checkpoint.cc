#include "engine/files/checkpoint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <functional>
#include <span>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "engine/files/atomic_file.h"
#include "engine/files/checksum.h"
#include "engine/files/folders.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"
#include "kernels/common/number_text.h"

namespace isobar {
namespace {

namespace fs = std::filesystem;

constexpr const char* kChecksums = "checksums.xxh64";
constexpr std::size_t kMaxChecksumsBytes = std::size_t{1} << 20;  // bytes
constexpr std::size_t kMaxTrackerBytes = 64;

// Prefixes of hidden names: of a folder that is being written, of one that is moved aside while its successor takes its
// place, and of one that is being deleted. They lie beside the folder, so that renames stay in one file system.
constexpr std::string_view kWriting = ".writing_";
constexpr std::string_view kAside = ".aside_";
constexpr std::string_view kDeleting = ".deleting_";

fs::path hidden(const fs::path& folder, std::string_view prefix) {
  return folder.parent_path() / (std::string(prefix) + folder.filename().string());
}

bool path_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

void rename_folder(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  ISOBAR_CHECK(!error, from.string(), ": cannot be renamed to ", to.string(), ": ", error.message());
}

// Renames a folder before it is deleted: no reader sees a part of its files. What cannot be deleted then (a file that
// is still open, on a network file system) is deleted when the store is next opened. Returns the hidden name.
fs::path hide_for_deletion(const fs::path& folder) {
  fs::path to_delete = hidden(folder, kDeleting);
  rename_folder(folder, to_delete);
  return to_delete;
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  ISOBAR_CHECK(!error, folder.string(), ": cannot be made: ", error.message());
}

// The entries of a folder; empty if it does not exist.
std::vector<fs::path> contents_of(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> entries = entries_of(folder, error);
  ISOBAR_CHECK(!error || error == std::errc::no_such_file_or_directory, folder.string(),
               ": cannot be read: ", error.message());
  return entries;
}

// Completes or undoes what a killed writer left unfinished beside this folder.
void recover(const fs::path& folder) {
  const fs::path aside = hidden(folder, kAside);
  if (path_exists(aside) && !path_exists(folder)) rename_folder(aside, folder);
  for (const std::string_view prefix : {kAside, kWriting, kDeleting}) remove_all_of(hidden(folder, prefix));
}

// Where a reader finds this folder: in its place, or aside, if a writer was killed while replacing it.
std::optional<fs::path> where_is(const fs::path& folder) {
  for (const fs::path& place : {folder, hidden(folder, kAside)}) {
    if (path_exists(place)) return place;
  }
  return std::nullopt;
}

std::string hexadecimal(std::uint64_t value) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(value));
  return digits;
}

std::string last_line_of_checksums(std::string_view lines) {
  return "# " + hexadecimal(xxh64(std::as_bytes(std::span(lines)))) + "\n";
}

// A line for each file of the folder, in the order of their names, and a last line with the checksum of these lines.
std::string checksums_of(const fs::path& folder) {
  std::string lines;
  for (const fs::path& file : contents_of(folder)) {
    lines += hexadecimal(xxh64_of_file(file)) + "  " + file.filename().string() + "\n";
  }
  return lines + last_line_of_checksums(lines);
}

void flush_folder(const fs::path& folder) {
  for (const fs::path& file : contents_of(folder)) flush_to_disk(file);
  flush_to_disk(folder);
}

bool is_mount_point(const fs::path& path) {
  struct statx found = {};
  if (::statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, STATX_TYPE, &found) != 0) return false;
  if ((found.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0)
    return (found.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
  struct stat own = {}, above = {};  // a Linux kernel older than 5.8
  return S_ISDIR(found.stx_mode) && ::stat(path.c_str(), &own) == 0 && ::stat((path / "..").c_str(), &above) == 0 &&
         own.st_dev != above.st_dev;
}

constexpr std::array kAllNames{CheckpointNames::isobar, CheckpointNames::megatron};

// Where checkpoints with these names lie.
fs::path checkpoints_of(const fs::path& run_folder, CheckpointNames names) {
  return names == CheckpointNames::isobar ? run_folder / "checkpoints" : run_folder;
}

std::string_view prefix_of(CheckpointNames names) {
  return names == CheckpointNames::isobar ? "step_" : "iter_";
}

// A whole number that is the whole text; nothing for another text.
std::optional<std::int64_t> whole_number_from(std::string_view text) {
  const std::optional<std::int64_t> number = number_from<std::int64_t>(text);
  return number && *number >= 0 ? number : std::nullopt;
}

// The step of a checkpoint's folder, from its name or its hidden name; nothing for names that no store makes.
std::optional<std::int64_t> step_of(std::string_view name, CheckpointNames names) {
  for (const std::string_view prefix : {kAside, kWriting, kDeleting})
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  if (!name.starts_with(prefix_of(names))) return std::nullopt;
  name.remove_prefix(prefix_of(names).size());
  return whole_number_from(name);
}

// The iteration that the tracker names; nothing where there is none, or where it names no iteration ("release").
std::optional<std::int64_t> tracked_step(const fs::path& run_folder) {
  const fs::path tracker = run_folder / kTrackerFile;
  std::error_code ignored;
  if (!fs::is_regular_file(tracker, ignored)) return std::nullopt;
  std::string text = read_file(tracker, kMaxTrackerBytes);
  const std::size_t end = text.find_last_not_of(" \t\r\n");
  return whole_number_from(std::string_view(text).substr(0, end == std::string::npos ? 0 : end + 1));
}

// The steps that have a checkpoint, whole or not; newest first.
std::vector<std::int64_t> steps_of(const fs::path& run_folder) {
  std::vector<std::int64_t> steps;
  const std::optional<std::int64_t> tracked = tracked_step(run_folder);
  for (const CheckpointNames names : kAllNames)
    for (const fs::path& entry : contents_of(checkpoints_of(run_folder, names))) {
      const std::optional<std::int64_t> step = step_of(entry.filename().string(), names);
      if (step && names == CheckpointNames::megatron && tracked && *step > *tracked) continue;
      if (step && where_is(checkpoint_folder(run_folder, *step, names))) steps.push_back(*step);
    }
  std::sort(steps.begin(), steps.end(), std::greater());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  return steps;
}

}  // namespace

fs::path checkpoint_folder(const fs::path& run_folder, std::int64_t step, CheckpointNames names) {
  char name[32];
  std::snprintf(name, sizeof name, names == CheckpointNames::isobar ? "step_%08lld" : "iter_%07lld",
                static_cast<long long>(step));
  return checkpoints_of(run_folder, names) / name;
}

fs::path checkpoint_folder(const fs::path& run_folder, std::int64_t step) {
  for (const CheckpointNames names : kAllNames) {
    const fs::path folder = checkpoint_folder(run_folder, step, names);
    if (where_is(folder)) return folder;
  }
  return checkpoint_folder(run_folder, step, CheckpointNames::isobar);
}

std::optional<std::string> damage_of(const fs::path& folder) {
  try {
    std::error_code ignored;
    if (!fs::is_directory(folder, ignored)) return "it is not a folder";
    if (!path_exists(folder / kChecksums)) return std::string(kChecksums) + " is missing";
    const std::string contents = read_file(folder / kChecksums, kMaxChecksumsBytes);
    const std::size_t last_line = contents.rfind("# ");
    const std::string lines = contents.substr(0, last_line);
    if (last_line == std::string::npos || contents != lines + last_line_of_checksums(lines)) {
      return std::string(kChecksums) + " does not agree with itself";
    }
    std::istringstream stream(lines);
    for (std::string checksum, name; stream >> checksum && std::getline(stream >> std::ws, name);) {
      if (!path_exists(folder / name)) return name + " is missing";
      if (hexadecimal(xxh64_of_file(folder / name)) != checksum) return name + " does not agree with its checksum";
    }
    return std::nullopt;
  } catch (const Error& error) {
    return error.what();
  }
}

FoundCheckpoint find_newest_whole(const fs::path& run_folder) {
  FoundCheckpoint found;
  for (const std::int64_t step : steps_of(run_folder)) {
    const fs::path folder = *where_is(checkpoint_folder(run_folder, step));
    const std::optional<std::string> damage = damage_of(folder);
    if (!damage) {
      found.checkpoint = Checkpoint{step, folder};
      break;
    }
    found.skipped.push_back(concat(folder.string(), ": is damaged (", *damage, "), skipped"));
  }
  return found;
}

fs::path find_best(const fs::path& run_folder) {
  const bool is_one = path_exists(run_folder / kModelFile);  // best/ or a checkpoint itself
  const std::optional<fs::path> folder = is_one ? run_folder : where_is(run_folder / "best");
  ISOBAR_CHECK(folder, (run_folder / "best").string(), ": is not there: the run has no best weights yet");
  const std::optional<std::string> damage = damage_of(*folder);
  ISOBAR_CHECK(!damage, folder->string(), ": is damaged (", *damage, ")");
  return *folder;
}

void check_best_can_be_replaced(const fs::path& run_folder) {
  const fs::path best = run_folder / "best";
  ISOBAR_CHECK(!is_mount_point(best), best.string(),
               " is a mount point: new weights could not take its place in one "
               "step; mount ",
               run_folder.string(), " itself, or choose another --run-dir");
}

CheckpointStore::CheckpointStore(fs::path run_folder, std::int64_t keep, CheckpointNames names)
    : run_(std::move(run_folder)), keep_(keep), names_(names) {
  ISOBAR_CHECK(keep_ >= 0, "keep_checkpoints is ", keep_, "; it must be 0 (all) or more");
  make_folder(checkpoints_of(run_, names_));
  for (const CheckpointNames each : kAllNames)
    for (const fs::path& entry : contents_of(checkpoints_of(run_, each))) {
      const std::optional<std::int64_t> step = step_of(entry.filename().string(), each);
      if (step) recover(checkpoint_folder(run_, *step, each));
    }
  recover(run_ / "best");
}

void CheckpointStore::save(std::int64_t step, const WriteFiles& write_files) {
  write_whole(checkpoint_folder(run_, step, names_), write_files);
  if (names_ == CheckpointNames::megatron) write_file_atomically(run_ / kTrackerFile, std::to_string(step));
  remove_old(step);
}

void CheckpointStore::save_best(const WriteFiles& write_files) {
  write_whole(run_ / "best", write_files);
}

void CheckpointStore::write_whole(const fs::path& folder, const WriteFiles& write_files) {
  const fs::path written = hidden(folder, kWriting);
  remove_all_of(written);
  try {
    make_folder(written);
    write_files(written);
    write_file_atomically(written / kChecksums, checksums_of(written));
    flush_folder(written);
    put_in_place(written, folder);
  } catch (...) {
    remove_all_of(written);
    throw;
  }
}

void CheckpointStore::put_in_place(const fs::path& written, const fs::path& folder) {
  if (!path_exists(folder)) {
    rename_folder(written, folder);
  } else if (exchange_folders(written, folder)) {
    remove_all_of(written);  // the old one
  } else {
    const fs::path aside = hidden(folder, kAside);
    remove_all_of(aside);
    rename_folder(folder, aside);
    rename_folder(written, folder);
    remove_all_of(aside);
  }
  flush_to_disk(folder.parent_path());
}

void CheckpointStore::remove_old(std::int64_t newest_step) {
  std::int64_t kept = 0;
  for (const std::int64_t step : steps_of(run_)) {
    if (step > newest_step || kept++ < keep_ || keep_ == 0) continue;
    const fs::path to_delete = hide_for_deletion(checkpoint_folder(run_, step));
    remove_all_of(to_delete);
  }
}

}  // namespace isobar
