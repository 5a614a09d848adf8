#include "apps/train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <utility>
#include <vector>

#include "engine/files/atomic_file.h"
#include "engine/files/json.h"
#include "kernels/common/check.h"

namespace isobar {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr std::array kFiles{"config.json", "out.log", "metrics.jsonl", "summary.json", "stopped"};

// A folder of a run, and the names of what a run puts there; hidden ones are of files that are being written.
struct OwnedFolder {
  const char* name;
  const char* pattern;
};

constexpr std::array kOwnedFolders{
    OwnedFolder{"checkpoints", R"((\.writing_|\.aside_|\.deleting_)?step_\d+)"},
    OwnedFolder{"best", R"(\.?(model\.safetensors|optimizer\.safetensors|state\.json|checksums\.xxh64)(\..*)?)"},
    OwnedFolder{"logs", R"(events\.out\.tfevents\..*)"}, OwnedFolder{"images", R"(\.?\w+_\d{8,}\.png(\..*)?)"},
    OwnedFolder{"stats", R"(\.?((global_means|global_stds|time_means)\.npy|stats\.json)(\..*)?)"}};

ordered_json parse_or_null(const fs::path& file) {
  if (!fs::exists(file)) return nullptr;
  const std::string contents = read_file(file);
  try {
    return parse_json<ordered_json>(contents, file.string());
  } catch (const Error&) {
    return nullptr;
  }
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

FileLock::~FileLock() {
  if (folder_ >= 0) close(folder_);
}

FileLock::FileLock(FileLock&& other) noexcept : folder_(std::exchange(other.folder_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(folder_, other.folder_);
  return *this;
}

bool FileLock::take(const fs::path& folder) {
  FileLock opened;
  opened.folder_ = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (opened.is_taken() && flock(opened.folder_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  *this = std::move(opened);
  return true;
}

RunFolder::RunFolder(fs::path path, ExistingRun existing) : path_(std::move(path)), existing_(existing) {
  ISOBAR_CHECK(!fs::exists(path_) || fs::is_directory(path_), "run folder ", path_.string(), " is not a folder");
  if (fs::exists(path_)) lock();
  run_there_ = is_run();
  ISOBAR_CHECK(!run_there_ || existing != ExistingRun::refuse, "run folder ", path_.string(),
               " holds a run already: give --resume to go on with it, --overwrite to start it again, or another "
               "--run-num or --run-dir");
  if (!run_there_) refuse_foreign_files();
}

void RunFolder::prepare(const ordered_json& config, const std::vector<std::string>& free_on_resume) {
  if (is_resumed()) check_same_run(config, free_on_resume);
  std::error_code error;
  folder_is_new_ = fs::create_directories(path_, error);
  ISOBAR_CHECK(!error, "cannot make run folder ", path_.string(), ": ", error.message(),
               "; say where it goes with --run-dir DIR or --set expdir=DIR");
  if (!lock_.is_taken()) lock();
  ISOBAR_CHECK(run_there_ || !is_run(), "run folder ", path_.string(), " got a run from another process just now");
  if (run_there_ && existing_ == ExistingRun::overwrite) remove_run();
  fs::create_directories(images(), error);
  ISOBAR_CHECK(!error, "cannot make run folder ", path_.string(), ": ", error.message());
  fs::remove(path_ / "stopped", error);
  ISOBAR_CHECK(!error, "cannot remove ", (path_ / "stopped").string(), ": ", error.message());
  write_file_atomically(path_ / "config.json", config.dump(2) + "\n");
  for (const std::string& line : std::exchange(announced_, {})) append_line(path_ / "out.log", line);
}

// Two processes that trained into one folder would mix their files.
void RunFolder::lock() {
  ISOBAR_CHECK(lock_.take(path_), "run folder ", path_.string(), " is in use: another process trains into it");
}

// config.json is the first thing that a run writes.
bool RunFolder::is_run() const {
  const ordered_json config = parse_or_null(path_ / "config.json");
  return config.is_object() && config.contains("num_iters") && config.contains("global_batch_size");
}

void RunFolder::refuse_foreign_files() const {
  for (const char* file : kFiles) {
    ISOBAR_CHECK(!fs::exists(path_ / file), "run folder ", path_.string(), " holds ", file,
                 ", but no run: choose another --run-dir");
  }
}

void RunFolder::remove_run() const {
  for (const auto& [name, pattern] : kOwnedFolders) {
    const fs::path folder = path_ / name;
    if (!fs::is_directory(folder) || fs::is_symlink(folder)) continue;
    const std::regex ours(pattern);
    std::vector<fs::path> owned;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (std::regex_match(entry.path().filename().string(), ours)) owned.push_back(entry.path());
    }
    for (const fs::path& file : owned) fs::remove_all(file);
    if (fs::is_empty(folder)) fs::remove(folder);
  }
  // config.json last: as long as it is there, the rest is known to be a run's.
  for (auto file = kFiles.rbegin(); file != kFiles.rend(); ++file) fs::remove(path_ / *file);
}

void RunFolder::discard() const {
  remove_run();
  if (folder_is_new_ && fs::is_empty(path_)) fs::remove(path_);
}

void RunFolder::check_same_run(const ordered_json& config, const std::vector<std::string>& free_on_resume) const {
  const ordered_json before = parse_or_null(path_ / "config.json");
  for (const auto& [key, value] : config.items()) {
    const bool free = std::ranges::find(free_on_resume, key) != free_on_resume.end();
    if (free || !before.contains(key)) continue;
    ISOBAR_CHECK(before[key] == value, "config key ", key, " is ", value.dump(), ", but ", before[key].dump(),
                 " in the run to resume, ", path_.string());
  }
}

void RunFolder::cut_metrics(std::int64_t last_iteration, bool is_validated) const {
  const fs::path file = path_ / "metrics.jsonl";
  if (!fs::exists(file)) return;
  std::istringstream lines(read_file(file));
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    const auto parsed = parse_json_if_valid<ordered_json>(line, file.string()).value_or(ordered_json());
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
  const bool in_run = is_checkpoint || folder.filename() == "best";
  return in_run && fs::exists(run / "config.json") ? run : fs::path();
}

}  // namespace isobar
