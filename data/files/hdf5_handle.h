// What data/files/hdf5*.cc share: objects of the HDF5 library, its lock and its errors. For them only, since this
// includes the library's header.
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace isobar::hdf5 {

// An HDF5 identifier and the function that closes it.
class Handle {
 public:
  using Closer = herr_t (*)(hid_t);
  Handle() = default;
  Handle(hid_t id, Closer closer) : id_(id), closer_(closer) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), closer_(other.closer_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(closer_, other.closer_);
    return *this;
  }
  ~Handle() {
    if (id_ >= 0) closer_(id_);
  }
  explicit operator bool() const { return id_ >= 0; }
  hid_t get() const { return id_; }
  bool close() { return closer_(std::exchange(id_, -1)) >= 0; }

 private:
  hid_t id_ = -1;
  Closer closer_ = nullptr;
};

// Holds the one lock of the library. The library keeps its error printing a thread, hence the switch here.
class Lock {
 public:
  Lock();

 private:
  std::lock_guard<std::mutex> guard_;
};

// The end of a sentence about a failed write: ": " and the system's message to the library's last call.
std::string because();

// Whether the library's last failed call ran out of memory.
bool lacked_memory();

// Read-only, without locking the file. An empty handle if the library refuses it.
Handle open_for_reading(const std::string& path);

// The size of a regular file in bytes; nothing if there is none.
std::optional<std::uint64_t> size_of(const std::string& path);

std::vector<hsize_t> sizes(std::span<const std::int64_t> extents);  // in the library's type
std::vector<std::int64_t> shape_of(const Handle& dataset);

// Selects a box of a dataset's space; returns a space for the same number of values in memory.
Handle box(hid_t space, std::span<const std::int64_t> start, std::span<const std::int64_t> count);

}  // namespace isobar::hdf5
