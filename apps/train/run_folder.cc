#include "apps/train/run_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <sstream>
#include <utility>
#include <vector>

#include "apps/train/model_file.h"
#include "engine/files/atomic_file.h"
#include "engine/files/checkpoint.h"
#include "engine/files/folders.h"
#include "engine/files/huggingface_folder.h"
#include "engine/files/json.h"
#include "engine/files/reader.h"
#include "kernels/common/check.h"

namespace isobar {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr const char* kRunId = "run_id";
constexpr const char* kLayoutFile = "layout.json";
constexpr std::array kFiles{"config.json",  kRunId,      "out.log",    "metrics.jsonl",
                            "summary.json", kLayoutFile, kTrackerFile, "stopped"};

// A folder of a run, and the names of what a run puts there; hidden ones are of files that are being written.
struct OwnedFolder {
  const char* name;
  const char* pattern;
  bool holds_weights = false;  // that a run would go on from, or be used by
};

constexpr std::array kOwnedFolders{
    OwnedFolder{"checkpoints", R"((\.writing_|\.aside_|\.deleting_)?step_\d+)", true},
    OwnedFolder{"", R"((\.writing_|\.aside_|\.deleting_)?iter_\d+)", true},  // of Megatron-LM's names
    OwnedFolder{"best", R"(\.?(model\.safetensors|optimizer\.safetensors|state\.json|checksums\.xxh64)(\..*)?)", true},
    OwnedFolder{"logs", R"(events\.out\.tfevents\..*)"},
    OwnedFolder{"images", R"(\.?\w+_\d{8,}\.png(\..*)?)"},
    OwnedFolder{"stats", R"(\.?((global_means|global_stds|time_means)\.npy|stats\.json)(\..*)?)"}};

// What lies in one of these folders and bears a run's name; nothing where there is no such folder.
std::vector<fs::path> owned_in(const fs::path& run, const OwnedFolder& folder) {
  const fs::path place = run / folder.name;
  if (!fs::is_directory(place)) return {};
  std::error_code error;
  std::vector<fs::path> entries = entries_of(place, error);
  ISOBAR_CHECK(!error, place.string(), ": cannot be read: ", error.message());
  const std::regex ours(folder.pattern);
  std::erase_if(entries, [&](const fs::path& entry) { return !std::regex_match(entry.filename().string(), ours); });
  return entries;
}

std::string draw_run_id() {
  std::random_device device;
  char digits[33];
  std::snprintf(digits, sizeof digits, "%08x%08x%08x%08x", device(), device(), device(), device());
  return digits;
}

bool is_run_id(const fs::path& file) {
  return fs::is_regular_file(file) && fs::file_size(file) == 33 &&
         std::regex_match(read_file(file), std::regex("[0-9a-f]{32}\n"));
}

// The run's number; empty where an older isobar made the run.
std::string read_run_id(const fs::path& run) {
  const fs::path file = run / kRunId;
  if (!fs::exists(file)) return "";
  ISOBAR_CHECK(is_run_id(file), file.string(),
               " is damaged: it does not hold 32 hexadecimal digits; without it, the config tells runs apart");
  return read_file(file).substr(0, 32);
}

ordered_json parsed_or_null(std::string_view text, const fs::path& file) {
  try {
    return parse_json<ordered_json>(text, file.string());
  } catch (const Error&) {
    return nullptr;
  }
}

ordered_json parse_or_null(const fs::path& file) {
  return fs::exists(file) ? parsed_or_null(read_file(file), file) : nullptr;
}

// The run that a checkpoint says it is of; empty where it does not say.
std::string run_id_of(const fs::path& checkpoint) {
  const ordered_json state = parse_or_null(checkpoint / "state.json");
  const bool has_id = state.is_object() && state.contains(kRunId) && state.at(kRunId).is_string();
  return has_id ? state.at(kRunId).get<std::string>() : "";
}

std::string sign_of_another_id(const std::string& ours, const std::string& theirs) {
  return ours == theirs ? "" : concat("its run_id is ", theirs, ", and this run's is ", ours);
}

// In one write, so that a killed process leaves whole lines; a line that the disk had no room for is cut when the run
// is resumed.
void append_line(const fs::path& file, std::string line) {
  line += '\n';
  // A pipe would wait for its reader for ever.
  ISOBAR_CHECK(!fs::exists(file) || fs::is_regular_file(file), file.string(), " is not a regular file");
  const int descriptor = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  ssize_t written = -1;
  do {
    written = descriptor < 0 ? -1 : write(descriptor, line.data(), line.size());
  } while (descriptor >= 0 && written < 0 && errno == EINTR);
  const int error = errno;
  if (descriptor >= 0) close(descriptor);
  ISOBAR_CHECK(written >= 0, "cannot write to ", file.string(), ": ", std::strerror(error));
  ISOBAR_CHECK(static_cast<std::size_t>(written) == line.size(), "cannot write to ", file.string(),
               ": no space left on the disk");
}

std::string time_stamp() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm local = {};
  localtime_r(&seconds, &local);
  std::ostringstream out;
  out << std::put_time(&local, "%Y-%m-%d %H:%M:%S") << ',' << std::setw(3) << std::setfill('0') << milliseconds;
  return out.str();
}

std::string log_line(std::string_view message) {
  return time_stamp() + " - root - INFO - " + std::string(message);
}

}  // namespace

std::optional<ConfigDifference> first_difference(const ordered_json& one, const ordered_json& other,
                                                 const std::vector<std::string>& free) {
  for (const auto& [key, value] : one.items()) {
    const bool is_free = std::ranges::find(free, key) != free.end();
    if (!is_free && other.contains(key) && other[key] != value)
      return ConfigDifference{key, value.dump(), other[key].dump()};
  }
  return std::nullopt;
}

RunFolder::RunFolder(fs::path path, ExistingRun existing, RunFolderFlags flags)
    : path_(std::move(path)), existing_(existing), flags_(std::move(flags)) {
  ISOBAR_CHECK(!fs::exists(path_) || fs::is_directory(path_), "run folder ", path_.string(), " is not a folder");
  check_best_can_be_replaced(path_);
  if (fs::exists(path_)) lock();
  run_there_ = is_run();
  ISOBAR_CHECK(!run_there_ || existing != ExistingRun::refuse, "run folder ", path_.string(),
               " holds a run already: give ", flags_.go_on,
               " to go on with it, --overwrite to start it again, or another ", flags_.choices);
  if (!run_there_) refuse_foreign_files();
}

void RunFolder::prepare(const ordered_json& config, const std::vector<std::string>& free_on_resume,
                        const KeyOrigins& origins) {
  if (is_resumed()) check_same_run(config, free_on_resume, origins);
  std::error_code error;
  folder_is_new_ = fs::create_directories(path_, error);
  ISOBAR_CHECK(!error, "cannot make run folder ", path_.string(), ": ", error.message(), "; say where it goes with ",
               flags_.place);
  if (lock_.state() == FileLock::State::none) lock();
  ISOBAR_CHECK(run_there_ || !is_run(), "run folder ", path_.string(), " got a run from another process just now");
  if (run_there_ && existing_ == ExistingRun::overwrite) remove_run(Links::emptied);
  fs::create_directories(images(), error);
  ISOBAR_CHECK(!error, "cannot make run folder ", path_.string(), ": ", error.message());
  fs::remove(path_ / "stopped", error);
  ISOBAR_CHECK(!error, "cannot remove ", (path_ / "stopped").string(), ": ", error.message());
  run_id_ = is_resumed() ? read_run_id(path_) : "";
  if (run_id_.empty()) {
    run_id_ = draw_run_id();
    write_file_atomically(path_ / kRunId, run_id_ + "\n");
  }
  write_file_atomically(path_ / "config.json", config.dump(2) + "\n");
  for (const std::string& line : std::exchange(announced_, {})) append_line(path_ / "out.log", line);
  is_prepared_ = true;
}

// Two processes that trained into one folder would mix their files.
void RunFolder::lock() {
  FileLock taken = FileLock::of_folder(path_);
  ISOBAR_CHECK(taken.state() != FileLock::State::elsewhere, "run folder ", path_.string(),
               " is in use: another process trains into it");
  lock_ = std::move(taken);
}

// config.json is the first thing that a run writes.
bool holds_run(const fs::path& folder) {
  const ordered_json config = parse_or_null(folder / "config.json");
  return config.is_object() && config.contains("num_iters") && config.contains("global_batch_size");
}

bool RunFolder::is_run() const {
  return holds_run(path_);
}

void RunFolder::refuse_foreign_files() const {
  for (const char* file : kFiles) {
    const bool is_number = file == kRunId && is_run_id(path_ / file);  // of a start that was killed just then
    ISOBAR_CHECK(is_number || !fs::exists(path_ / file), "run folder ", path_.string(), " holds ", file,
                 ", but no run: choose another ", flags_.folder);
  }
  for (const OwnedFolder& folder : kOwnedFolders) {
    const std::vector<fs::path> left = folder.holds_weights ? owned_in(path_, folder) : std::vector<fs::path>();
    ISOBAR_CHECK(left.empty(), "run folder ", path_.string(), " holds ",
                 (fs::path(folder.name) / left.front().filename()).string(),
                 " of a run whose config.json is missing: move it away, or choose another ", flags_.folder);
  }
}

void RunFolder::remove_run(Links links) const {
  for (const OwnedFolder& folder : kOwnedFolders) {
    const fs::path place = path_ / folder.name;
    const bool is_link = fs::is_symlink(place);
    // What a new run found in a linked checkpoints/ was nothing: refuse_foreign_files() has looked.
    if (is_link && links == Links::kept && !folder.holds_weights) continue;
    for (const fs::path& file : owned_in(path_, folder)) fs::remove_all(file);
    std::error_code is_mount_point;  // an empty folder that stays does no harm
    if (!is_link && fs::is_directory(place) && fs::is_empty(place)) fs::remove(place, is_mount_point);
  }
  // config.json last: as long as it is there, the rest is known to be a run's.
  for (auto file = kFiles.rbegin(); file != kFiles.rend(); ++file) fs::remove(path_ / *file);
}

void RunFolder::discard() const {
  remove_run(Links::kept);
  if (folder_is_new_ && fs::is_empty(path_)) fs::remove(path_);
}

void RunFolder::check_same_run(const ordered_json& config, const std::vector<std::string>& free_on_resume,
                               const KeyOrigins& origins) const {
  const auto found = first_difference(config, parse_or_null(path_ / "config.json"), free_on_resume);
  ISOBAR_CHECK(!found, origins.where(found->key), " is ", found->one, ", but ", found->other, " in the run to resume, ",
               path_.string());
}

std::string RunFolder::sign_of_another_run(const fs::path& checkpoint,
                                           const std::vector<std::string>& free_on_resume) const {
  const std::string ours = read_run_id(path_), theirs = run_id_of(checkpoint);
  if (!ours.empty() && !theirs.empty()) return sign_of_another_id(ours, theirs);
  const auto found =
      first_difference(stored_config(checkpoint / kModelFile), parse_or_null(path_ / "config.json"), free_on_resume);
  return found ? concat("its config key ", found->key, " is ", found->one, ", and this run's is ", found->other) : "";
}

void RunFolder::check_own(const fs::path& checkpoint, const std::vector<std::string>& free_on_resume) const {
  const std::string sign = sign_of_another_run(checkpoint, free_on_resume);
  ISOBAR_CHECK(sign.empty(), checkpoint.string(), " is of another run (", sign, "): move it out of the run folder");
}

namespace {

// The newest whole checkpoint of a run without a validation set; none for other runs.
std::optional<fs::path> last_unvalidated(const fs::path& run) {
  if (fs::exists(run / kModelFile) || fs::exists(run / "best")) return std::nullopt;
  const std::optional<Checkpoint> newest = find_newest_whole(run).checkpoint;
  if (!newest) return std::nullopt;
  const ordered_json state = parse_or_null(newest->folder / "state.json");
  const bool is_unvalidated = state.is_object() && state.value(kUnvalidated, ordered_json()) == true;
  return is_unvalidated ? std::optional(newest->folder) : std::nullopt;
}

}  // namespace

fs::path weights_at(const fs::path& path) {
  if (!fs::is_directory(path) || is_huggingface_folder(path)) return path;
  const std::optional<fs::path> last = last_unvalidated(path);
  const fs::path best = last ? *last : find_best(path);
  const std::string ours = read_run_id(path), theirs = run_id_of(best);
  const std::string sign = ours.empty() || theirs.empty() ? "" : sign_of_another_id(ours, theirs);
  ISOBAR_CHECK(sign.empty(), best.string(), " is of another run (", sign, "): name the file, if it is meant");
  return best / kModelFile;
}

void RunFolder::check_best(const std::vector<std::string>& free_on_resume) const {
  const fs::path best = path_ / "best";
  if (!fs::exists(best / kModelFile)) return;
  std::string sign;
  try {
    sign = sign_of_another_run(best, free_on_resume);
  } catch (const Error&) {
    return;  // damaged: whoever wants to use it refuses it
  }
  ISOBAR_CHECK(sign.empty(), best.string(), " is of another run (", sign, "): move it out of the run folder");
}

void RunFolder::cut_metrics(std::int64_t last_iteration, bool is_validated) const {
  const fs::path file = path_ / "metrics.jsonl";
  if (!fs::exists(file)) return;
  std::istringstream lines(read_file(file));
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    const ordered_json parsed = parsed_or_null(line, file);
    const auto found = parsed.is_object() ? parsed.find("iteration") : parsed.end();
    if (found == parsed.end() || !found->is_number_integer()) continue;
    const auto iteration = found->get<std::int64_t>();
    const bool again = iteration == last_iteration && !is_validated && parsed.value("event", ordered_json()) == "valid";
    if (iteration <= last_iteration && !again) kept += line + "\n";
  }
  write_file_atomically(file, kept);
}

void RunFolder::mark_stopped(std::string_view why) const {
  write_file_atomically(path_ / "stopped", std::string(why) + "\n");
}

void RunFolder::append_metrics(const ordered_json& line) const {
  append_line(path_ / "metrics.jsonl", line.dump());
}

void RunFolder::announce(std::string_view message) {
  announced_.push_back(log_line(message));
  print(announced_.back());
}

void RunFolder::say(const std::string& line) {
  if (is_prepared_)
    append_line(path_ / "out.log", line);
  else
    announced_.push_back(line);
  print(line);
}

void RunFolder::print(const std::string& line) const {
  if (console)
    console(line);
  else
    std::cout << line << std::endl;
}

void RunFolder::log(std::string_view message, bool show) const {
  const std::string line = log_line(message);
  append_line(path_ / "out.log", line);
  if (show) print(line);
}

void RunFolder::keep_layout(const RankLayout& layout) const {
  const ordered_json sizes{{"dp", layout.dp}, {"tp", layout.tp}, {"cp", layout.cp}, {"pp", layout.pp}};
  write_file_atomically(path_ / kLayoutFile, sizes.dump() + "\n");
}

RankLayout layout_of_run(const fs::path& run_folder) {
  ordered_json said = parse_or_null(run_folder / kLayoutFile);
  if (!said.is_object()) {
    const ordered_json summary = parse_or_null(run_folder / "summary.json");
    said = summary.is_object() ? summary.value("layout", ordered_json()) : ordered_json();
  }
  const auto size = [&](const char* axis) {
    const ordered_json value = said.is_object() ? said.value(axis, ordered_json()) : ordered_json();
    return value.is_number_integer() ? std::max<std::int64_t>(value.get<std::int64_t>(), 1) : 1;
  };
  return {size("dp"), size("tp"), size("cp"), size("pp")};
}

ordered_json RunFolder::read_summary() const {
  return parse_or_null(path_ / "summary.json");
}

void RunFolder::write_summary(const ordered_json& summary) const {
  write_file_atomically(path_ / "summary.json", summary.dump(2) + "\n");
}

fs::path run_of(const fs::path& weights) {
  const fs::path folder = fs::absolute(weights).lexically_normal().parent_path(), above = folder.parent_path();
  const bool is_checkpoint = above.filename() == "checkpoints";
  const fs::path run = is_checkpoint ? above.parent_path() : above;
  const bool in_run = is_checkpoint || folder.filename() == "best" || folder.filename().string().starts_with("iter_");
  return in_run && fs::exists(run / "config.json") ? run : fs::path();
}

bool is_file_of_run(const fs::path& file, const fs::path& run) {
  return !run.empty() && std::ranges::any_of(kFiles, [&](const char* name) {
    return resolved_path(file) == resolved_path(run / name);
  });
}

}  // namespace isobar
