#include "engine/files/atomic_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <utility>

#include "engine/files/folders.h"
#include "engine/files/system_error.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

// ".NAME.writing" and a suffix that is unique to the writer; a name near the system's limit is shortened.
std::string temporary_prefix(const std::filesystem::path& path) {
  constexpr std::size_t kMaxLength = 200;
  return "." + path.filename().string().substr(0, kMaxLength) + ".writing";
}

std::string random_suffix() {
  std::random_device device;
  char digits[18];
  std::snprintf(digits, sizeof digits, ".%08x%08x", device(), device());
  return digits;
}

// Whether a temporary file that was just made is locked by this writer: false if a cleaner removed it as a leftover in
// that moment. On a file system without locks, leftovers stay and no lock is needed.
bool is_kept_alive(const FileLock& lock) {
  struct stat status {};
  return lock.descriptor() >= 0 && ::fstat(lock.descriptor(), &status) == 0 && status.st_nlink > 0;
}

// Removes the temporary files of killed writers: those that no process holds the lock of.
void remove_leftovers(const std::filesystem::path& folder, const std::string& prefix) {
  std::error_code ignored;
  for (const std::filesystem::path& entry : entries_of(folder, ignored)) {
    const std::string name = entry.filename().string();
    const bool is_temporary = name.starts_with(prefix) && (name.size() == prefix.size() || name[prefix.size()] == '.');
    if (!is_temporary) continue;
    Descriptor file(::open(entry.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat status {};
    const bool is_file = file && ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink > 0;
    if (!is_file) continue;
    const FileLock lock = FileLock::of_file(std::move(file));
    if (lock.state() == FileLock::State::taken) ::unlink(entry.c_str());
  }
}

}  // namespace

void flush_to_disk(const std::filesystem::path& path) {
  const Descriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened) fail_with_errno(path, "opened");
  // Some file systems cannot flush a folder (EINVAL) and need not.
  if (::fsync(opened.get()) != 0 && errno != EINVAL) fail_with_errno(path, "flushed to the disk");
}

std::filesystem::path replaced_by_writing(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  const fs::path target = fs::is_symlink(path) ? fs::weakly_canonical(path) : path;
  ISOBAR_CHECK(fs::is_directory(folder_of(target)), path.string(), ": there is no folder ", folder_of(target).string());
  ISOBAR_CHECK(!fs::is_directory(target), path.string(), " is a folder");
  ISOBAR_CHECK(!fs::exists(target) || fs::is_regular_file(target), path.string(), " is not a regular file");
  return target;
}

Replacement::Replacement(const std::filesystem::path& path) : path_(replaced_by_writing(path)) {
  const std::string prefix = temporary_prefix(path_);
  remove_leftovers(folder_of(path_), prefix);
  struct stat replaced {};
  const bool replaces = ::stat(path_.c_str(), &replaced) == 0;
  // No other user may read the file before it has the permissions of the one that it replaces.
  const mode_t mode = replaces ? 0600 : 0666;
  do {
    temporary_ = folder_of(path_) / (prefix + random_suffix());
    Descriptor created(::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    if (!created && errno != EEXIST) {
      temporary_.clear();
      fail_with_errno(path_, "created");
    }
    lock_ = FileLock::of_file(std::move(created));
  } while (!is_kept_alive(lock_));
  if (replaces && ::fchmod(descriptor(), replaced.st_mode & 0777) != 0) {
    const int error = errno;
    discard();
    errno = error;
    fail_with_errno(path_, "given the permissions of the old one");
  }
}

Replacement::~Replacement() {
  discard();
}

void Replacement::discard() noexcept {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  lock_ = FileLock();
}

void Replacement::put_in_place() {
  ISOBAR_CHECK(!temporary_.empty(), path_.string(), ": put in place twice");
  if (::fsync(descriptor()) != 0) fail_with_errno(path_, "flushed to the disk");
  // Unlocked after the rename: until then the lock protects the file from cleaners.
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_with_errno(path_, "put in place");
  temporary_.clear();
  lock_ = FileLock();
  flush_to_disk(folder_of(path_));
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  ISOBAR_CHECK(!committed_, path().string(), ": written to after its commit");
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.descriptor(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_with_errno(path(), "written");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text)));
}

void AtomicFile::commit() {
  ISOBAR_CHECK(!committed_, path().string(), ": committed twice");
  file_.put_in_place();
  committed_ = true;
}

void write_file_atomically(const std::filesystem::path& path, std::string_view contents) {
  AtomicFile file(path);
  file.write(contents);
  file.commit();
}

std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder, std::error_code& error) {
  std::vector<std::filesystem::path> entries;
  error.clear();
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(folder.c_str()), &::closedir);
  errno = stream == nullptr ? errno : 0;
  while (const dirent* entry = stream == nullptr ? nullptr : ::readdir(stream.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") entries.push_back(folder / name);
    errno = 0;
  }
  error.assign(errno, std::generic_category());
  std::sort(entries.begin(), entries.end());
  return entries;
}

}  // namespace isobar
