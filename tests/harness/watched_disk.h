// The system calls by which this program changes the disk, reported to a test.
//
// fsync, rename, renameat2, mkdir, unlink and rmdir are defined in watched_disk.cc and take the place of the C
// library's in the whole program. They pass their calls to the system.
#pragma once

#include <sys/types.h>

#include <functional>
#include <set>
#include <string>

namespace isobar::testing {

struct DiskCall {
  std::string name;          // "renameat2"
  std::string path;          // that is made, moved or removed; empty for fsync
  std::string to;            // of a move: the new path
  ino_t file = 0;            // that is flushed or moved
  std::set<ino_t> held;      // of a folder that is moved: its files
  bool has_changed = false;  // the call succeeded

  bool is_move() const { return !to.empty(); }
  std::string text() const;  // "rename .aside_best" (the new name), "mkdir .writing_best", "fsync"
};

// Reports calls while it lives. Only one may live at a time.
class WatchedDisk {
 public:
  WatchedDisk();
  ~WatchedDisk();
  WatchedDisk(const WatchedDisk&) = delete;
  WatchedDisk& operator=(const WatchedDisk&) = delete;

  std::function<void(const DiskCall& call)> after;  // called after each of them
  bool can_exchange = true;  // false: renameat2 refuses an exchange, as file systems do that cannot exchange
};

}  // namespace isobar::testing
