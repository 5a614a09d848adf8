// The calls by which this program changes what is on the disk, seen by a test.
//
// fsync, rename, renameat2, mkdir, unlink and rmdir are defined in watched_disk.cc and take the place of the C
// library's in the whole program. They hand their calls on to the system.
#pragma once

#include <sys/types.h>

#include <functional>
#include <set>
#include <string>

namespace isobar::testing {

struct DiskCall {
  std::string name;          // "renameat2"
  std::string path;          // what is made, moved or removed; empty for fsync
  std::string to;            // of moves: where to
  ino_t file = 0;            // what is flushed or moved
  std::set<ino_t> held;      // of a folder that is moved: its files
  bool has_changed = false;  // the call succeeded

  bool is_move() const { return !to.empty(); }
  std::string text() const;  // "rename .aside_best": the name of what is there now; "fsync"
};

// While it lives, it sees the calls; one at a time.
class WatchedDisk {
 public:
  WatchedDisk();
  ~WatchedDisk();
  WatchedDisk(const WatchedDisk&) = delete;
  WatchedDisk& operator=(const WatchedDisk&) = delete;

  std::function<void(const DiskCall& call)> after;  // called after each of them
  bool can_exchange = true;  // false: renameat2 says of an exchange what a file system says that cannot do it
};

}  // namespace isobar::testing
