// Memory: reference-counted blocks of bytes on a device, from a pool that keeps freed blocks for the next step.
//
// Every block is counted under the tag of the innermost MemoryScope, so that a report shows the use by purpose
// (parameters, optimizer, activations, gradients, workspace). On the host the requested size is counted, rounded up to
// kStorageAlignment. The freed block that is reused may be up to a quarter larger, but the count must not depend on
// what ran before. A block on the device meta is only counted, as on the device that meta stands for; its address must
// not be used.
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

// A block of host memory and its size: an entry of the pool's list of freed blocks. A Storage keeps the entry of its
// block, so that returning the block needs no memory.
using HostBlock = std::multimap<std::size_t, void*>::node_type;

struct MemoryLedger;  // storage.cc

// A block of memory. Its last reference returns it to the pool. On CUDA and the emulator a block belongs to the stream
// that was current when it was made, and keeps that stream alive. It is freed in the order of its stream: after all
// work that the stream has been given. If another stream is current when the last reference is released, the block's
// stream first waits for that one, which may have used the memory last. To use the memory on a third stream, hold a
// reference until an event has ordered that stream before the release (engine/stream.h).
class Storage {
 public:
  Storage(std::size_t bytes, Device device);
  // Host memory of another owner, kept alive by `memory`. It is not from the pool and not counted.
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
  std::shared_ptr<MemoryLedger> ledger_;  // the ledger that counts it; another thread may free it
  std::size_t counted_ = 0;               // bytes in ledger_
  int tag_ = 0;
  std::shared_ptr<const gpu::OwnedStream> stream_;  // the stream that it belongs to; null: the default one
  std::unique_ptr<emulator::Work> return_;          // on a stream of the emulator: returns the block to the pool
};

// The purpose of the allocations that this thread makes while it lives. tag: a string literal.
class MemoryScope {
 public:
  explicit MemoryScope(const char* tag);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  int previous_;
};

// While it lives, allocations of this thread are counted apart from the rest of the process. A rank that is a thread
// reports its own memory with it.
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
  std::size_t peak_bytes = 0;  // max held at once under this tag
};

// Of the process, or of this thread if it has its own ledger.
std::vector<MemoryUse> memory_use();  // by tag, in order of first use
std::size_t memory_bytes();           // held now, all tags
std::size_t peak_memory_bytes();      // max held at once
std::size_t pooled_memory_bytes();    // freed host blocks in the pool
std::size_t largest_new_block();      // counted since the last call of this function
std::size_t machine_memory_bytes();   // of the host, in use or not
std::size_t shared_memory_bytes();    // of the host, within the limits of this process's control groups
std::size_t process_memory_bytes();   // the process's own limits (RLIMIT_AS, RLIMIT_DATA); SIZE_MAX: none
std::string memory_report();          // a table of the above, for people

// "310.0 MiB"; "61.2 GiB" from 1024.0 MiB on.
std::string text_of_bytes(std::size_t bytes);

// The stream of this thread's kernels and copies on CUDA and the emulator: that of the innermost StreamScope, or null,
// the default stream. The CPU ignores it.
Stream current_stream();

// Makes a stream the current one of this thread while it lives; null: the default stream. Memory of another device than
// the stream's is an Error, except memory of the CPU, which needs no stream. Work of the stream may still run when the
// scope ends.
class StreamScope {
 public:
  explicit StreamScope(std::shared_ptr<const gpu::OwnedStream> stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  std::shared_ptr<const gpu::OwnedStream> previous_;
};

// The owner of current_stream(); null: the default stream.
std::shared_ptr<const gpu::OwnedStream> share_current_stream();

// Host memory for copies to and from the device, freed with the last reference. For a GPU it is pinned, so that copies
// need no staging buffer and run asynchronously. It is not from the pool and not counted.
std::shared_ptr<void> transfer_memory(std::size_t bytes, Device device);

// Copies between two buffers of one device, or between a device and the host, in the order of the current stream. If
// one buffer is the host's, the host waits for the stream, and an Error of earlier work of the stream is thrown here.
// A copy to the device meta does nothing; a copy from it is an Error.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, std::size_t bytes);

}  // namespace isobar
