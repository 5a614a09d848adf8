#include "apps/sweep/sweep_folder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "apps/train/run_folder.h"
#include "engine/files/atomic_file.h"
#include "engine/files/json.h"
#include "kernels/common/check.h"

namespace isobar {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr const char* kFile = "file";
constexpr const char* kData = "data";
constexpr const char* kThreads = "threads";

std::string shown_or_missing(const ordered_json* value) {
  return value == nullptr ? "missing" : shown(*value);
}

struct Difference {
  std::string where, here, there;
};

// Of two objects, at any depth; `where` is the path of keys. The order of keys counts: it is the order of the runs.
std::optional<Difference> difference_of(const ordered_json& here, const ordered_json& there, const std::string& where) {
  if (here == there) return std::nullopt;
  if (!here.is_object() || !there.is_object()) return Difference{where, shown(here), shown(there)};
  const auto of_key = [&](const std::string& key) -> std::optional<Difference> {
    const std::string path = where.empty() ? key : where + "." + key;
    const auto one = here.find(key), other = there.find(key);
    if (one != here.end() && other != there.end()) return difference_of(*one, *other, path);
    return Difference{path, shown_or_missing(one == here.end() ? nullptr : &*one),
                      shown_or_missing(other == there.end() ? nullptr : &*other)};
  };
  for (const ordered_json* side : {&here, &there})
    for (const auto& [key, value] : side->items())
      if (std::optional<Difference> found = of_key(key)) return found;
  return Difference{(where.empty() ? "" : where + ": ") + "the order of keys", shown(here), shown(there)};
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  ISOBAR_CHECK(!error, "cannot make sweep folder ", folder.string(), ": ", error.message(),
               "; say where it goes with --run-dir DIR");
}

// The top level of a sweep's file in one order: there it means nothing.
ordered_json sorted_keys(const ordered_json& content) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : content.items()) keys.push_back(key);
  std::ranges::sort(keys);
  ordered_json sorted = ordered_json::object();
  for (const std::string& key : keys) sorted[key] = content.at(key);
  return sorted;
}

}  // namespace

SweepFolder::SweepFolder(fs::path path) : path_(std::move(path)) {
  if (!fs::exists(path_)) return;
  ISOBAR_CHECK(fs::is_directory(path_), "sweep folder ", path_.string(), " is not a folder");
  lock();
  const fs::path file = path_ / "sweep.json";
  if (fs::exists(file)) {
    kept_ = read_json<ordered_json>(file);
    const bool is_whole = kept_.is_object() && kept_.contains(kFile) && kept_.contains(kData) &&
                          kept_.at(kData).is_string() && kept_.contains(kThreads) &&
                          kept_.at(kThreads).is_number_integer();
    ISOBAR_CHECK(is_whole, file.string(), " is not a sweep's");
    return;
  }
  std::error_code error;
  for (const fs::path& entry : entries_of(path_, error))  // configs/ may be of a start that was killed
    ISOBAR_CHECK(entry.filename() == "configs" || entry.filename().string().starts_with(".sweep.json"), "sweep folder ",
                 path_.string(), " holds ", entry.filename().string(), ", but no sweep: choose another --run-dir");
  ISOBAR_CHECK(!error, "sweep folder ", path_.string(), " cannot be read: ", error.message());
}

void SweepFolder::lock() {
  FileLock taken = FileLock::of_folder(path_);
  ISOBAR_CHECK(taken.state() != FileLock::State::elsewhere, "sweep folder ", path_.string(),
               " is in use: another sweep works in it, or runs of one that was killed are still ending");
  lock_ = std::move(taken);
}

std::string SweepFolder::kept_data() const {
  return kept_.at(kData).get<std::string>();
}

int SweepFolder::kept_threads() const {
  return kept_.at(kThreads).get<int>();
}

void SweepFolder::check_same(const SweepPlan& plan) const {
  const std::string start = concat("sweep folder ", path_.string(), " holds another sweep: ");
  const std::string end = "; choose another --run-dir";
  if (const auto found = difference_of(sorted_keys(plan.file.content), sorted_keys(kept_.at(kFile)), ""))
    throw_error(start, found->where, " is ", found->there, " there, and ", found->here, " in ", plan.file.origin, end);
  for (const PlannedRun& run : plan.runs) {
    if (!fs::exists(config_of(run.name))) continue;
    const auto found = first_difference(run.config, read_json<ordered_json>(config_of(run.name)), plan.path_keys);
    ISOBAR_CHECK(!found, start, "config key ", found->key, " of its run ", run.name, " is ", found->other, ", and now ",
                 found->one, " in the config ", plan.file.config, end);
  }
}

void SweepFolder::prepare(const SweepPlan& plan, const std::string& data, int threads) {
  make_folder(path_);
  if (lock_.state() == FileLock::State::none) lock();
  make_folder(path_ / "configs");
  for (const PlannedRun& run : plan.runs) write_file_atomically(config_of(run.name), run.config.dump(2) + "\n");
  kept_ = {{kFile, plan.file.content}, {kData, data}, {kThreads, threads}};
  write_file_atomically(path_ / "sweep.json", kept_.dump(2) + "\n");
  for (const char* folder : {"runs", "logs"}) make_folder(path_ / folder);  // after sweep.json: they show a sweep
}

}  // namespace isobar
