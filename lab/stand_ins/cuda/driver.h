// Shared by the parts of the virtual GPU: how calls are counted, refused and made to fail, the device's memory, and
// work for streams. A library that stands in for one of NVIDIA's (cublaslt.cc, cudnn.cc) finds the driver
// by the symbol kDriverName.
//
//   ISOBAR_VIRTUAL_GPU_FAIL=NAME:N      the N-th call of that function fails; NAME "any" counts all functions.
//                                       NAME:N:CODE with that CUDA error; NAME:N:CODE:on and so does every later call,
//                                       as after an illegal address; NAME:N:CODE:on:DEVICE only for that device
//   ISOBAR_VIRTUAL_GPU_DEVICES=N        number of devices; default 1
//   ISOBAR_VIRTUAL_GPU_CONTEXTS=FILE    appends a line of JSON when a thread makes its first call on a device that
//                                       creates a context there
//   ISOBAR_VIRTUAL_GPU_SCHEDULE=N       seed of the order in which work of streams runs
//   ISOBAR_VIRTUAL_GPU_TRACE=FILE       appends a line of counts for every NVTX range "step N"
//   ISOBAR_VIRTUAL_GPU_WORK=FILE        a line of JSON for every piece of work that is enqueued
//   ISOBAR_VIRTUAL_GPU_COMPUTE=0        kernels, products and copies are checked and not run; memory holds zeros. So
//                                       the work of a large model can be listed
//   ISOBAR_VIRTUAL_GPU_CALLS=FILE       writes the name of every call to the file
//   ISOBAR_VIRTUAL_GPU_DRIVER=VERSION   newest CUDA that the driver supports, 12020 for 12.2; 0: no driver
//   ISOBAR_VIRTUAL_GPU_CAPABILITY=75    compute capability, here 7.5; default 80
//   ISOBAR_VIRTUAL_GPU_MEMORY=BYTES     the device's memory; default 4 GiB
//   ISOBAR_VIRTUAL_GPU_MULTIPROCESSORS=N  of the device; default 4
//   ISOBAR_VIRTUAL_GPU_NUMBER=N         from 0 to 9: processes with other numbers have other devices
//   ISOBAR_VIRTUAL_GPU_CUBLASLT=VERSION the version that cuBLASLt reports; default 130000
//   ISOBAR_VIRTUAL_GPU_CUDNN=VERSION    the version that cuDNN reports; default 91900
//   ISOBAR_VIRTUAL_GPU_DURATIONS=N      seed of the durations of cuBLASLt's algorithms and cuDNN's engines
//   ISOBAR_VIRTUAL_GPU_BAD_CANDIDATE=N  the heuristic returns the candidate of this number, which then cannot run
//   CUDA_VISIBLE_DEVICES=               empty: no device, as in CUDA
//
// Time is simulated: every piece of work takes the time that it states, whatever the host does meanwhile.
//
// A program that has misused CUDA without noticing, or has not freed an allocation, ends with status 70 and the
// sentence on stderr.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include "kernels/common/check.h"

namespace isobar::virtual_gpu {

// A refused call. CUDA would return the code, or do something worse.
struct Refusal {
  cudaError_t code;
  std::string sentence;
  bool is_misuse;  // the program is wrong: every later call is refused too, so that it cannot be overlooked
};

template <class... Parts>
[[noreturn]] void misuse(cudaError_t code, const Parts&... parts) {
  throw Refusal{code, concat(parts...), true};
}
// An error that a correct program may get.
template <class... Parts>
[[noreturn]] void refuse(cudaError_t code, const Parts&... parts) {
  throw Refusal{code, concat(parts...), false};
}

// Bytes of the device that a piece of work reads or writes.
struct Operand {
  const void* data;
  std::size_t bytes;
  const char* name;
  bool is_written = false;
};

struct Allocation;
using SharedAllocation = std::shared_ptr<Allocation>;

// Work for a stream. In a graph it may run many times.
struct Operation {
  std::string name;               // "kernel layernorm_fwd"
  std::function<void()> run;      // throws Error
  std::vector<Operand> operands;  // the memory that must be allocated when it runs
  bool is_kernel = false;         // the pages of its operands that it reads and writes are observed while it runs
  SharedAllocation allocates = nullptr, frees = nullptr;
  std::string site = {};         // set when it is queued: the NVTX ranges around the call
  std::string facts = {};        // about its launch, for the list of work: members of a JSON object
  bool handles_numbers = false;  // a kernel, product or copy: skipped with COMPUTE=0
  double milliseconds = 0.001;   // as measured by events
};

class Driver {
 public:
  virtual ~Driver() = default;
  // Runs body as one call of that function: it is counted, refused if the context is broken, or made to fail. body may
  // throw Refusal.
  virtual cudaError_t call(const char* function, const std::function<void()>& body) = 0;
  virtual std::string explain(cudaError_t error) = 0;  // the sentence of this thread's last refused call
  virtual void queue(cudaStream_t stream, Operation operation) = 0;
  // The bytes at a device address, for running work.
  virtual std::byte* view(const void* data) = 0;
  // Whether these bytes lie in one allocation of the device that is not freed.
  virtual bool is_allocated(const void* data, std::size_t bytes) = 0;
  // Refuses a call that a capturing thread may not make.
  virtual void refuse_in_capture(const char* what) = 0;
};

Driver& driver();

inline constexpr const char* kDriverName = "isobar_virtual_gpu_driver";
using DriverFunction = Driver* (*)();

// ---- calls.cc -------------------------------------------------------------------------------------------------------

cudaError_t call(const char* function, const std::function<void()>& body);
std::string explain(cudaError_t error);
std::string site();             // "step 3 > forward > gelu_fwd"
std::string innermost_range();  // "gelu_fwd"; of this thread
// A device fails for good; kAllDevices: the program is wrong.
inline constexpr int kAllDevices = -1;
void break_context(int device, cudaError_t code, const std::string& sentence);
cudaError_t last_error(bool clear);
void reset_calls();  // as after cudaDeviceReset

enum class Count { launches, products, graphs, synchronisations, allocations, allocated_bytes, copies, copied_bytes };
void count(Count what, std::size_t amount = 1);

// Whether kernels, products and copies are computed (ISOBAR_VIRTUAL_GPU_COMPUTE).
bool computes();
// Adds a line to the list of work (ISOBAR_VIRTUAL_GPU_WORK).
void list_work(const Operation& operation, cudaStream_t stream);

const char* setting(const char* name);  // of the environment; null: unset
std::size_t number_setting(const char* name, std::size_t otherwise);

// ---- devices.cc -----------------------------------------------------------------------------------------------------

int device_count();
void check_device(int device);  // refuses one that does not exist
// Of this thread: initially 0, and not chosen.
int current_device();
bool has_chosen_device();
void set_current_device(int device);
// Refuses an object of a device that is not the current one. CUDA would refuse some of these, and for the rest create a
// context on the current device.
void refuse_elsewhere(int device, const char* what);

// A thread's first call that creates a context on a device, or uses one there.
struct ContextUse {
  int thread, device;
  std::string call;
};
void use_context(const std::string& call);  // on the current device
std::vector<ContextUse> context_uses();     // of all threads
void forget_contexts();                     // also the device of this thread

// ---- memory.cc ------------------------------------------------------------------------------------------------------

// Device addresses are not memory of the process: an access without the device faults. The bytes lie elsewhere, at a
// fixed distance. They are accessible from the allocation in its stream until the free in its stream. No address is
// used twice.
struct Moment;
struct Page {
  std::shared_ptr<const Moment> written;
  std::vector<std::shared_ptr<const Moment>> read;  // since then
};
struct Allocation {
  const std::byte* address = nullptr;
  std::size_t bytes = 0;
  std::string made_at, freed_at = {};
  bool is_freed = false;   // the free was called; the stream may not have reached it
  bool is_mapped = false;  // its stream has reached the allocation, and not the free
  int device = 0;
  const void* graph = nullptr;   // the capture that it belongs to, or null
  std::vector<Page> pages = {};  // the last accesses
};

SharedAllocation reserve(std::size_t bytes, const void* graph);  // of the current device
void map(Allocation& allocation);                                // filled with NaN
void unmap(Allocation& allocation);
SharedAllocation find_allocation(const void* data);  // the one that contains the address or ends there; null: none
bool is_device_address(const void* data);
bool is_host_memory(const void* data);  // ordinary memory of this process, which no kernel can access
std::byte* view(const void* data);
std::size_t total_memory();  // of each device
// Bytes held by the default pool and the graphs of a device. The pool keeps freed memory until the next
// synchronisation, or, after keep_freed_memory(true), until a trim.
std::size_t held_memory(int device);
void keep_freed_memory(int device, bool keeps);
void trim_pool(int device, std::size_t least);
void note_synchronised(int device);
void hold_for_graph(int device, std::size_t bytes);  // from kept memory, and new memory for the rest
void trim_graphs(int device, std::size_t in_use);    // frees the rest
// From now on another device may use the pool's memory.
void let_access(int owner, int user);
bool may_access(int user, const Allocation& allocation);
void forget_memory();  // unmaps everything
// Accounts for a freed allocation, from the call on. Refuses one that is freed already.
void mark_freed(Allocation& allocation);
std::string describe(const Allocation& allocation);
// Throws Error if an operand is not mapped.
void check_mapped(const Operation& operation);

void* allocate_pinned(std::size_t bytes);
void free_pinned(void* data);
bool is_pinned(const void* data, std::size_t bytes);

std::string leaked_memory();  // allocations that are not freed, as text; "": none

// Runs a piece of work; no other work runs meanwhile. A kernel's fault is an Error that names its thread and the
// allocation that it accessed. Returns the pages that were read and written: for kernels as observed, for other work
// from its operands.
struct Touch {
  SharedAllocation allocation;
  std::size_t page;
  bool writes;
};
std::vector<Touch> run_alone(const Operation& operation);
std::vector<Touch> touches_of(const Operation& operation);      // from its operands
std::vector<Touch> whole_pages_of(const Operation& operation);  // only pages that lie entirely within an operand
// For work that lasts: no other work runs meanwhile. Either side may be device memory.
void copy_alone(void* to, const void* from, std::size_t bytes);
void fill_alone(void* to, int byte, std::size_t bytes);

// ---- order.cc -------------------------------------------------------------------------------------------------------

// The work of every stream that has happened before: the number of the last one (a vector clock; Mattern 1989, "Virtual
// time and global states of distributed systems").
using Clock = std::map<std::uint64_t, std::uint64_t>;
void merge(Clock& into, const Clock& other);

// [node][other]: whether `other` must have run before `node` of a graph.
using NodeOrder = std::vector<std::vector<bool>>;

// A running piece of work: its stream, its number there, and the work that it follows; in a graph, its node.
struct Moment {
  std::uint64_t stream = 0, number = 0;
  std::shared_ptr<const Clock> follows = nullptr;
  const NodeOrder* order = nullptr;
  std::size_t node = 0;
  std::string what = {};  // "kernel add in step 3 > forward"
};

// Records accesses. Error if another piece of work has accessed a page, one of the two writes it, and neither stream
// waits for the other.
void note_touches(const std::vector<Touch>& touches, const std::shared_ptr<const Moment>& when);

// ---- streams.cc -----------------------------------------------------------------------------------------------------

void queue(cudaStream_t stream, Operation operation);
// Work of a library with its own queues: several devices run it together, so other work runs meanwhile. run(false)
// returns the sentence of an error, which ends the stream, or "". run(true) means that the work is dropped, because
// earlier work has failed. Exactly one of them is called, once. It accesses device memory only by copy_alone and
// fill_alone.
struct LastingOperation {
  Operation operation;  // its name and operands; nothing to run
  std::function<std::string(bool dropped)> run;
};
void queue_lasting(cudaStream_t stream, LastingOperation operation);
bool is_stream(cudaStream_t stream);  // not null, and exists

// A point in the work of a stream, for such a library.
class Point {
 public:
  explicit Point(cudaStream_t stream);
  ~Point();
  Point(const Point&) = delete;
  Point& operator=(const Point&) = delete;
  void make_wait(cudaStream_t stream) const;
  void run_up_to() const;  // errors are reported by waits for the stream
  bool is_reached() const;
  bool is_before(cudaStream_t stream) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};
void synchronize(cudaStream_t stream);
// Null if nothing is captured on the stream.
const void* capture_of(cudaStream_t stream);
// Refuses a call that a capturing thread may not make.
void refuse_in_capture(const char* what);
void reset_streams();
std::string leaked_handles();  // streams, events and graphs that are not destroyed, as text; "": none

}  // namespace isobar::virtual_gpu
