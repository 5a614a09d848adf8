#include "engine/files/folders.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <system_error>

#include "engine/files/atomic_file.h"
#include "engine/files/descriptor.h"
#include "engine/files/system_error.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

namespace fs = std::filesystem;

fs::path without_slash(const fs::path& path) {
  const fs::path named = path.has_filename() ? path : path.parent_path();
  return fs::is_symlink(named) ? fs::weakly_canonical(named) : named;
}

// Removes the folders of killed writers: those that no process holds the lock of.
void remove_leftover_folders(const fs::path& folder, const std::string& prefix) {
  std::error_code ignored;
  for (const fs::path& entry : entries_of(folder, ignored)) {
    if (!entry.filename().string().starts_with(prefix) || !fs::is_directory(fs::symlink_status(entry, ignored)))
      continue;
    const FileLock lock = FileLock::of_folder(entry);
    if (lock.state() == FileLock::State::taken) remove_all_of(entry);
  }
}

}  // namespace

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

fs::path resolved_path(const fs::path& path) {
  return path.empty() ? path : fs::weakly_canonical(fs::absolute(path));
}

void remove_all_of(const fs::path& path) {
  if (::unlink(path.c_str()) == 0 || errno != EISDIR) return;
  std::error_code ignored;
  for (const fs::path& entry : entries_of(path, ignored)) remove_all_of(entry);
  ::rmdir(path.c_str());
}

bool exchange_folders(const fs::path& a, const fs::path& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  ISOBAR_CHECK(errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP, a.string(), ": cannot be exchanged with ",
               b.string(), ": ", std::strerror(errno));
  return false;
}

FolderReplacement::FolderReplacement(const fs::path& path) : path_(without_slash(path)) {
  const fs::path around = folder_of(path_);
  ISOBAR_CHECK(fs::is_directory(around), path.string(), ": there is no folder ", around.string());
  const std::string prefix = "." + path_.filename().string().substr(0, 200) + ".writing.";
  remove_leftover_folders(around, prefix);
  std::random_device random;
  for (bool is_new = false; !is_new;) {
    const fs::path made = around / (prefix + std::to_string(random()));
    is_new = ::mkdir(made.c_str(), 0777) == 0;
    if (!is_new && errno != EEXIST) fail_with_errno(path_, "made");
    if (!is_new) continue;
    temporary_ = made;
    lock_ = FileLock::of_folder(temporary_);
    struct stat status {};
    is_new = ::stat(made.c_str(), &status) == 0;  // else another writer took it for a leftover in that moment
  }
}

FolderReplacement::~FolderReplacement() {
  if (!temporary_.empty()) remove_all_of(temporary_);
}

void FolderReplacement::put_in_place() {
  ISOBAR_CHECK(!temporary_.empty(), path_.string(), ": put in place twice");
  const Descriptor opened(::open(temporary_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened || ::syncfs(opened.get()) != 0) fail_with_errno(path_, "flushed to the disk");
  if (!fs::exists(path_)) {
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_with_errno(path_, "put in place");
    temporary_.clear();
  } else if (exchange_folders(temporary_, path_)) {
    remove_all_of(temporary_);
    temporary_.clear();
  } else {
    const fs::path old = folder_of(path_) / ("." + path_.filename().string() + ".aside");
    remove_all_of(old);
    if (::rename(path_.c_str(), old.c_str()) != 0) fail_with_errno(path_, "moved aside");
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_with_errno(path_, "put in place");
    temporary_.clear();
    remove_all_of(old);
  }
  lock_ = FileLock();
  flush_to_disk(folder_of(path_));
}

}  // namespace isobar
