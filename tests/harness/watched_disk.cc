#include "tests/harness/watched_disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>  // RENAME_EXCHANGE
#include <filesystem>

namespace {

using isobar::testing::DiskCall;
using isobar::testing::WatchedDisk;

WatchedDisk* disk = nullptr;

ino_t inode_of(const char* path) {
  struct stat status {};
  return ::lstat(path, &status) == 0 ? status.st_ino : 0;
}

DiskCall move(const char* name, const char* from, const char* to) {
  DiskCall call{.name = name, .path = from, .to = to, .file = inode_of(from), .held = {}};
  if (std::filesystem::is_directory(from))
    for (const auto& entry : std::filesystem::directory_iterator(from))
      call.held.insert(inode_of(entry.path().c_str()));
  return call;
}

// describe: gives the DiskCall as it is before; make: makes the call.
template <class Describe, class Make>
int watched(const Describe& describe, const Make& make) {
  if (disk == nullptr) return static_cast<int>(make());
  DiskCall call = describe();
  const int result = static_cast<int>(make());
  const int error = errno;
  call.has_changed = result == 0;
  if (disk->after) disk->after(call);
  errno = error;
  return result;
}

long no_exchange() {
  errno = EINVAL;
  return -1;
}

}  // namespace

extern "C" int fsync(int descriptor) {
  const auto describe = [&] {
    struct stat status {};
    ::fstat(descriptor, &status);
    return DiskCall{.name = "fsync", .path = {}, .to = {}, .file = status.st_ino, .held = {}};
  };
  return watched(describe, [&] { return ::syscall(SYS_fsync, descriptor); });
}
extern "C" int rename(const char* from, const char* to) noexcept {
  return watched([&] { return move("rename", from, to); },
                 [&] { return ::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0u); });
}
extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  return watched([&] { return move("renameat2", from, to); },
                 [&] {
                   const bool is_refused = disk != nullptr && !disk->can_exchange && (flags & RENAME_EXCHANGE) != 0;
                   return is_refused ? no_exchange()
                                     : ::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
                 });
}
extern "C" int mkdir(const char* path, mode_t mode) noexcept {
  return watched([&] { return DiskCall{.name = "mkdir", .path = path, .to = {}, .held = {}}; },
                 [&] { return ::syscall(SYS_mkdirat, AT_FDCWD, path, mode); });
}
extern "C" int unlink(const char* path) noexcept {
  return watched([&] { return DiskCall{.name = "unlink", .path = path, .to = {}, .held = {}}; },
                 [&] { return ::syscall(SYS_unlinkat, AT_FDCWD, path, 0); });
}
extern "C" int rmdir(const char* path) noexcept {
  return watched([&] { return DiskCall{.name = "rmdir", .path = path, .to = {}, .held = {}}; },
                 [&] { return ::syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR); });
}

namespace isobar::testing {

std::string DiskCall::text() const {
  const std::filesystem::path there = is_move() ? to : path;
  return there.empty() ? name : name + " " + there.filename().string();
}

WatchedDisk::WatchedDisk() {
  disk = this;
}

WatchedDisk::~WatchedDisk() {
  disk = nullptr;
}

}  // namespace isobar::testing
