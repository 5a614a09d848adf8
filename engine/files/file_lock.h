// Locks of files and folders between processes, on any machine. The system frees a lock when its process ends, also if
// it is killed: a lock that is held belongs to a process that is alive.
#pragma once

#include <cstdint>
#include <filesystem>

#include "engine/files/descriptor.h"

namespace isobar {

class FileLock {
 public:
  enum class State : std::uint8_t {
    none,       // nothing has been opened
    taken,      // this object holds the lock
    elsewhere,  // another object or process holds it
    no_locks    // the file system has no locks, as some network file systems
  };

  FileLock() = default;

  // Tries to lock a file that is open for writing, and keeps it open. It locks byte 0 alone, and not with flock(): HDF5
  // locks a whole file with flock().
  static FileLock of_file(Descriptor file);
  // Tries to lock a folder, with flock(): a folder cannot be opened for writing, which a lock of bytes needs.
  static FileLock of_folder(const std::filesystem::path& folder);

  State state() const { return state_; }
  int descriptor() const { return descriptor_.get(); }  // negative if the state is none or elsewhere

 private:
  FileLock(Descriptor descriptor, int error);  // of the call that took the lock; 0: none

  Descriptor descriptor_;
  State state_ = State::none;
};

}  // namespace isobar
