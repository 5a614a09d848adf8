#include "engine/files/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <utility>

namespace isobar {

FileLock::FileLock(Descriptor descriptor, int error) {
  const bool is_elsewhere = error == EAGAIN || error == EACCES;
  state_ = error == 0 ? State::taken : is_elsewhere ? State::elsewhere : State::no_locks;
  if (!is_elsewhere) descriptor_ = std::move(descriptor);
}

FileLock FileLock::of_file(Descriptor file) {
  if (!file) return {};
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  const int error = ::fcntl(file.get(), F_OFD_SETLK, &lock) == 0 ? 0 : errno;
  return {std::move(file), error};
}

FileLock FileLock::of_folder(const std::filesystem::path& folder) {
  Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened) return {};
  const int error = ::flock(opened.get(), LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  return {std::move(opened), error};
}

}  // namespace isobar
