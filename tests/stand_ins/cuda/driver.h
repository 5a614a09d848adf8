// What the parts of the virtual GPU share: how a call is counted, refused and made to fail, the device's memory, and
// work for streams. A library that stands in for one of NVIDIA's (cublaslt.cc) finds it by the symbol kDriverName.
//
//   ISOBAR_VIRTUAL_GPU_FAIL=NAME:N      the N-th call of that function fails; NAME "any" counts all functions.
//                                       NAME:N:CODE with that error of CUDA's; NAME:N:CODE:on, and so does every later
//                                       call, as after an illegal address; NAME:N:CODE:on:DEVICE of that device only
//   ISOBAR_VIRTUAL_GPU_DEVICES=N        so many devices, 1 where nothing is said
//   ISOBAR_VIRTUAL_GPU_CONTEXTS=FILE    a line of JSON is added to the file when a thread makes its first call on a
//                                       device that makes a context there
//   ISOBAR_VIRTUAL_GPU_SCHEDULE=N       the order in which work of streams runs is drawn with this seed
//   ISOBAR_VIRTUAL_GPU_TRACE=FILE       a line of counts for every NVTX range "step N" is added to the file
//   ISOBAR_VIRTUAL_GPU_WORK=FILE        a line of JSON for every piece of work that a stream is given
//   ISOBAR_VIRTUAL_GPU_COMPUTE=0        kernels, products and copies are checked and not made; memory holds zeros. So
//                                       the work of a large model can be listed
//   ISOBAR_VIRTUAL_GPU_CALLS=FILE       the name of every call is written to the file
//   ISOBAR_VIRTUAL_GPU_DRIVER=VERSION   the newest CUDA that the driver knows, 12020 for 12.2; 0: there is no driver
//   ISOBAR_VIRTUAL_GPU_CAPABILITY=75    compute capability, here 7.5; default 80
//   ISOBAR_VIRTUAL_GPU_MEMORY=BYTES     the device's memory; 4 GiB where nothing is said
//   ISOBAR_VIRTUAL_GPU_MULTIPROCESSORS=N  of the device; 4 where nothing is said
//   ISOBAR_VIRTUAL_GPU_NUMBER=N         from 0 to 9: processes with other numbers have other devices
//   ISOBAR_VIRTUAL_GPU_CUBLASLT=VERSION what cuBLASLt says of itself; 130000 where nothing is said
//   ISOBAR_VIRTUAL_GPU_DURATIONS=N      how long each algorithm of cuBLASLt takes is drawn with this seed
//   ISOBAR_VIRTUAL_GPU_BAD_CANDIDATE=N  the candidate of this number is named for a product, and then cannot be run
//   CUDA_VISIBLE_DEVICES=               there is no device, as CUDA has it
//
// Time is made up: every piece of work takes as long as it says, whatever the host does meanwhile.
//
// A program that has misused CUDA and not noticed, or that has not freed what it allocated, ends with status 70 and the
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

// A call is refused. CUDA would return the code, or do something worse.
struct Refusal {
  cudaError_t code;
  std::string sentence;
  bool is_misuse;  // the program is wrong: every later call is refused too, so that nobody can overlook it
};

template <class... Parts>
[[noreturn]] void misuse(cudaError_t code, const Parts&... parts) {
  throw Refusal{code, concat(parts...), true};
}
// What may happen to a right program.
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

// Work for a stream, which may run again and again in a graph.
struct Operation {
  std::string name;               // "kernel layernorm_fwd"
  std::function<void()> run;      // throws Error
  std::vector<Operand> operands;  // the memory that must be allocated when it runs
  bool is_kernel = false;         // which pages of its operands it reads and writes is seen while it runs
  SharedAllocation allocates = nullptr, frees = nullptr;
  std::string site = {};         // filled in when it is queued: the NVTX ranges around the call
  std::string facts = {};        // of how it is launched, for the list of work: members of a JSON object
  bool handles_numbers = false;  // a kernel, product or copy: not made where nothing is computed
  double milliseconds = 0.001;   // that events find it to take
};

class Driver {
 public:
  virtual ~Driver() = default;
  // Runs body as one call of that function: counted, refused where the context is broken, or made to fail. body may
  // throw Refusal.
  virtual cudaError_t call(const char* function, const std::function<void()>& body) = 0;
  virtual std::string explain(cudaError_t error) = 0;  // the sentence of this thread's last refused call
  virtual void queue(cudaStream_t stream, Operation operation) = 0;
  // The bytes at an address of the device, for work that runs.
  virtual std::byte* view(const void* data) = 0;
  // Whether these bytes lie in one allocation of the device that was not freed.
  virtual bool is_allocated(const void* data, std::size_t bytes) = 0;
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

// Whether kernels, products and copies are made (ISOBAR_VIRTUAL_GPU_COMPUTE).
bool computes();
// Adds a line to the list of work (ISOBAR_VIRTUAL_GPU_WORK).
void list_work(const Operation& operation, cudaStream_t stream);

const char* setting(const char* name);  // of the environment; null: not set
std::size_t number_setting(const char* name, std::size_t otherwise);

// ---- devices.cc -----------------------------------------------------------------------------------------------------

int device_count();
void check_device(int device);  // refuses one that does not exist
// Of this thread: at first 0, and not chosen.
int current_device();
bool has_chosen_device();
void set_current_device(int device);
// Refuses what belongs to a device that is not the current one. CUDA would refuse some of it, and make a context on the
// current device for the rest.
void refuse_elsewhere(int device, const char* what);

// A thread's first call that makes a context on a device, or finds one there.
struct ContextUse {
  int thread, device;
  std::string call;
};
void use_context(const std::string& call);  // on the current device
std::vector<ContextUse> context_uses();     // of all threads
void forget_contexts();                     // and this thread's device

// ---- memory.cc ------------------------------------------------------------------------------------------------------

// Addresses of the device are nobody's memory: whoever touches one without the device faults. The bytes lie elsewhere,
// at a fixed distance, and can be reached from the moment when an allocation happens in its stream until it is freed
// there. No address is given out twice.
struct Moment;
struct Page {
  std::shared_ptr<const Moment> written;
  std::vector<std::shared_ptr<const Moment>> read;  // since then
};
struct Allocation {
  const std::byte* address = nullptr;
  std::size_t bytes = 0;
  std::string made_at, freed_at = {};
  bool is_freed = false;   // the call was made; the stream may have to get there
  bool is_mapped = false;  // its stream has come to the allocation, and not to its end
  int device = 0;
  const void* graph = nullptr;   // the capture that it belongs to, or null
  std::vector<Page> pages = {};  // who has touched them
};

SharedAllocation reserve(std::size_t bytes, const void* graph);  // of the current device
void map(Allocation& allocation);                                // full of NaN
void unmap(Allocation& allocation);
SharedAllocation find_allocation(const void* data);  // that holds the address or ends there; null: none
bool is_device_address(const void* data);
bool is_host_memory(const void* data);  // ordinary memory of this process, which no kernel can reach
std::byte* view(const void* data);
std::size_t total_memory();  // of each device
// What the default pool and graphs of a device hold. The pool keeps what is freed: until the next synchronisation, or,
// where it was told so, until it is trimmed.
std::size_t held_memory(int device);
void keep_freed_memory(int device, bool keeps);
void trim_pool(int device, std::size_t least);
void note_synchronised(int device);
void hold_for_graph(int device, std::size_t bytes);  // of what is kept, and new memory for the rest
void trim_graphs(int device, std::size_t in_use);    // gives the rest back
// Another device may use the pool's memory from now on.
void let_access(int owner, int user);
bool may_access(int user, const Allocation& allocation);
void forget_memory();  // all of it is unmapped
// Accounts for a freed allocation, from the call on. Refuses what was freed already.
void mark_freed(Allocation& allocation);
std::string describe(const Allocation& allocation);
// Throws an Error where an operand is not mapped.
void check_mapped(const Operation& operation);

void* allocate_pinned(std::size_t bytes);
void free_pinned(void* data);
bool is_pinned(const void* data, std::size_t bytes);

std::string leaked_memory();  // what is not freed, for people; "": nothing

// Runs a piece of work; nothing else runs meanwhile. A kernel's fault is an Error that names its thread and whose
// memory it touched. Returns which pages it read and wrote: of kernels what was seen, of the rest what its operands
// say.
struct Touch {
  SharedAllocation allocation;
  std::size_t page;
  bool writes;
};
std::vector<Touch> run_alone(const Operation& operation);
std::vector<Touch> touches_of(const Operation& operation);      // as its operands say
std::vector<Touch> whole_pages_of(const Operation& operation);  // of them, those that nobody else has a part of
// For work that lasts: nothing else runs meanwhile. Either side may be memory of a device.
void copy_alone(void* to, const void* from, std::size_t bytes);
void fill_alone(void* to, int byte, std::size_t bytes);

// ---- order.cc -------------------------------------------------------------------------------------------------------

// Which work of every stream has happened before: the number of the last one (a vector clock; Mattern 1989, "Virtual
// time and global states of distributed systems").
using Clock = std::map<std::uint64_t, std::uint64_t>;
void merge(Clock& into, const Clock& other);

// Of each node of a graph, whether another one must have run before: [node][other].
using NodeOrder = std::vector<std::vector<bool>>;

// A piece of work that runs: its stream, its number there, and what it follows; in a graph, its node.
struct Moment {
  std::uint64_t stream = 0, number = 0;
  std::shared_ptr<const Clock> follows = nullptr;
  const NodeOrder* order = nullptr;
  std::size_t node = 0;
  std::string what = {};  // "kernel add in step 3 > forward"
};

// Notes what was touched. Error where another piece of work has touched it, one of them writes, and neither stream
// waits for the other.
void note_touches(const std::vector<Touch>& touches, const std::shared_ptr<const Moment>& when);

// ---- streams.cc -----------------------------------------------------------------------------------------------------

void queue(cudaStream_t stream, Operation operation);
// Work of a library that has queues of its own: several devices work at it together, so other work runs meanwhile.
// run(false) returns the sentence of an error, which ends the stream, or ""; run(true) says that the work is dropped,
// because earlier work has failed. One of them is called, once. Each piece of memory that it touches it reaches by
// copy_alone and fill_alone.
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
  void run_up_to() const;  // errors are left to those who wait for the stream
  bool is_reached() const;
  bool is_before(cudaStream_t stream) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};
void synchronize(cudaStream_t stream);
// Null where nothing is captured on the stream.
const void* capture_of(cudaStream_t stream);
// Refuses a call that may not be made by a thread that captures.
void refuse_in_capture(const char* what);
void reset_streams();
std::string leaked_handles();  // streams, events and graphs that are not destroyed, for people; "": none

}  // namespace isobar::virtual_gpu
