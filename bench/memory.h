// The memory a benchmark works on, on the host or on a GPU, and how to wait for the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/common/device.h"
#include "kernels/common/dtype.h"

namespace isobar::bench {

// Throws an Error that says why when the device cannot be used by this build or on this machine.
void require_device(Device device);

// Buffers that live as long as this object. Pointers are aligned to 256 bytes.
class Memory {
 public:
  explicit Memory(Device device) : device_(device) {}
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Device device() const { return device_; }
  void* allocate(std::size_t bytes);  // contents undefined
  // n numbers spread evenly over [low, high), always the same.
  void* uniform(std::int64_t n, DType dtype, double low = -1, double high = 1);
  void* copy_of(const void* host, std::size_t bytes);
  void* pinned(std::size_t bytes);  // on the host, zeros; pinned where the device is a GPU

 private:
  Device device_;
  std::vector<void*> buffers_, pinned_;
};

void copy_on_device(Device device, void* to, const void* from, std::size_t bytes);  // asynchronous on a GPU
void wait_for(Device device);  // the host, for all that the device was given

// Seconds `call` takes on the device, once it has run.
double seconds_of(Device device, const std::function<void()>& call);

}  // namespace isobar::bench
