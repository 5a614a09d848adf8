// Memory: reference-counted blocks of bytes on a device, from a pool that keeps freed blocks for the next step.
//
// Every block is counted under the tag of the innermost MemoryScope, so that a report can say what holds how much
// (parameters, optimizer, activations, gradients, workspace). On the host a block counts as what was asked for, rounded
// up to kStorageAlignment, though a freed block that serves it may be up to a quarter larger: so what a program holds
// does not depend on what ran before it. On the device meta it is counted as on the device that it stands for, and
// that is all: its address is nobody's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/common/device.h"
#include "kernels/common/stream.h"

namespace isobar::gpu {
class OwnedStream;  // kernels/cuda/runtime.h
}
namespace isobar::emulator {
class Work;  // kernels/emulator/streams.h
}

namespace isobar {

inline constexpr std::size_t kStorageAlignment = 256;  // bytes; enough for any vector load and for cuBLASLt

// A block of host memory by its size: an entry of the pool's list of freed blocks. Whoever uses the block keeps the
// entry, so that giving it back needs no memory.
using HostBlock = std::multimap<std::size_t, void*>::node_type;

struct MemoryLedger;  // storage.cc

// A block of memory; freed (to the pool) with its last reference. On CUDA and the emulator it belongs to the stream
// that was current when it was made, and keeps it alive: it is freed in the order of that stream, when all has run that
// the stream was given before. If another stream is current where the last reference goes, the own one first waits for
// it, since it may have used the memory last. Whoever uses memory on a stream that is neither, or that still works when
// the last reference goes, keeps a reference until an event has ordered the two (engine/stream.h).
class Storage {
 public:
  Storage(std::size_t bytes, Device device);
  // Host memory that its owner allocated, and that `memory` keeps alive. It comes from no pool and is not counted.
  Storage(std::shared_ptr<void> memory, std::size_t bytes);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return device_; }

 private:
  void free_in_order() noexcept;

  HostBlock host_block_;           // empty on CUDA, and for memory of another owner
  std::shared_ptr<void> adopted_;  // the memory of another owner, else null
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  Device device_;
  std::shared_ptr<MemoryLedger> ledger_;  // that counts it: another thread may free it
  std::size_t counted_ = 0;               // there
  int tag_ = 0;
  std::shared_ptr<const gpu::OwnedStream> stream_;  // that it belongs to; null: the default stream
  std::unique_ptr<emulator::Work> return_;          // on a stream of the emulator: gives the block back to the pool
};

// Names what the allocations made while it lives are for. The tag is a string literal.
class MemoryScope {
 public:
  explicit MemoryScope(const char* tag);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  int previous_;
};

// While it lives, what this thread allocates is counted apart from the rest of the process: a rank that is a thread
// reports its own memory.
class OwnMemoryLedger {
 public:
  OwnMemoryLedger();
  ~OwnMemoryLedger();
  OwnMemoryLedger(const OwnMemoryLedger&) = delete;
  OwnMemoryLedger& operator=(const OwnMemoryLedger&) = delete;

 private:
  std::shared_ptr<MemoryLedger> previous_;
  int previous_tag_;
};

struct MemoryUse {
  std::string tag;
  std::size_t bytes = 0;       // held now
  std::size_t peak_bytes = 0;  // most ever held under this tag
};

// Of the process, or of this thread where it has a ledger of its own.
std::vector<MemoryUse> memory_use();  // by tag, in order of first use
std::size_t memory_bytes();           // held now, all tags
std::size_t peak_memory_bytes();      // most ever held at once
std::size_t pooled_memory_bytes();    // freed blocks of the host that wait for their next use
std::size_t largest_new_block();      // of those that were counted since this was last asked
std::size_t machine_memory_bytes();   // of the host, in use or not
std::size_t shared_memory_bytes();    // of the host, as far as the control groups allow that this process is in
std::size_t process_memory_bytes();   // that its own limits allow (RLIMIT_AS, RLIMIT_DATA); the largest number: none
std::string memory_report();          // a table of the above, for people

// "310.0 MiB"; "61.2 GiB" from 1024.0 MiB on.
std::string text_of_bytes(std::size_t bytes);

// The stream that kernels and copies of this thread go to on CUDA and the emulator: that of the innermost StreamScope,
// or null, the default stream. The CPU ignores it.
Stream current_stream();

// Makes a stream the current one of this thread while it lives; null: the default stream. The stream is for memory of
// its own device (the CPU's needs none): memory of another device with streams is an Error. When the scope ends, its
// work may still run.
class StreamScope {
 public:
  explicit StreamScope(std::shared_ptr<const gpu::OwnedStream> stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  std::shared_ptr<const gpu::OwnedStream> previous_;
};

// The stream that current_stream() is the handle of; null: the default stream.
std::shared_ptr<const gpu::OwnedStream> share_current_stream();

// Host memory for copies to and from the device, freed with the last reference: pinned where that is a GPU, which then
// reaches it without staging, and at its own time. It comes from no pool and is not counted.
std::shared_ptr<void> transfer_memory(std::size_t bytes, Device device);

// Copies between two buffers of one device, or between a device and the host, in the order of the current stream.
// Returns when the host may touch both buffers: if one of them is the host's, the host waits for the stream, and an
// Error of work that the stream was given before is thrown here. To the device meta nothing is copied; values of it are
// an Error.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, std::size_t bytes);

}  // namespace isobar
