// Locks by which processes keep each other out of a file or a folder, on whatever machine. The system holds a lock, and
// frees it when its process ends, however that comes: who holds one lives.
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
    elsewhere,  // somebody else does
    no_locks    // nobody can, as on some network file systems
  };

  FileLock() = default;

  // Tries to take the lock of a file that is open for writing, and keeps the file open. It is the lock of byte 0 alone:
  // HDF5 takes that of a whole file (flock) and is not kept out.
  static FileLock of_file(Descriptor file);
  // Tries to take the lock of a folder (flock, for which a folder need not be open for writing).
  static FileLock of_folder(const std::filesystem::path& folder);

  State state() const { return state_; }
  int descriptor() const { return descriptor_.get(); }  // negative: none, or elsewhere

 private:
  FileLock(Descriptor descriptor, int error);  // of the call that took the lock; 0: none

  Descriptor descriptor_;
  State state_ = State::none;
};

}  // namespace isobar
