// One rank's end of a communicator of the stand-in: its creation, its checks, and how its operations run.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/nccl/api.h"
#include "kernels/emulator/stand_in.h"
#include "lab/stand_ins/nccl/segment.h"

namespace isobar::nccl::stand_in {

// The program's emulator; refuses if no program has passed it.
const emulator::StandInTable& program();
int library_version();
bool has_launch_order();  // NCCL_LAUNCH_ORDER_IMPLICIT=1, and a version that supports it

std::uint64_t tick();
void count_thread();

std::size_t size_of_type(Type type);

// A call of this rank.
struct Operation {
  Verb verb;
  const void* send = nullptr;
  void* receive = nullptr;
  std::size_t count = 0;  // as in NCCL: of one part for all_gather and reduce_scatter
  Type type = kInt8;
  Op op = kSum;
  int root = 0;  // or the peer of a message
  Stream stream = nullptr;

  bool is_message() const { return verb == Verb::send || verb == Verb::receive; }
};
std::string to_text(Verb verb, std::uint64_t count, int type, int op);
inline std::string to_text(const Operation& o) {
  return to_text(o.verb, o.count, o.type, o.op);
}

class Event {
 public:
  explicit Event(Stream stream) : stream(stream), event_(program().record_event(stream)) {}
  ~Event() { program().delete_event(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void make_wait(Stream other) const { program().make_wait(event_, other); }
  void run_up_to() const { program().run_up_to(event_); }
  bool is_reached() const { return program().is_reached(event_); }
  bool is_before(Stream other) const { return program().is_before(event_, other); }
  const Stream stream;

 private:
  void* event_;
};

class Member;

// This process's state of a device: its communicators, and the last operation of any of them.
struct DeviceState {
  std::mutex mutex;
  std::vector<Member*> members;
  std::shared_ptr<Event> last;
  std::uint64_t last_communicator = 0;
  std::atomic<int> running{0};         // operations of any of them
  std::atomic<std::uint64_t> time{0};  // in nanoseconds (model.h)

  static std::shared_ptr<DeviceState> of(const std::string& name);
};

struct Place {
  std::uint64_t id = 0;
  std::string name;  // of the communicator, for sentences
  int rank = 0, size = 1;
  int device = 0;
  std::string device_name;
  bool blocking = true;
  bool splits_share = false;  // its memory with the communicators split from it
  bool shares = false;        // uses the memory of the communicator it was split from
  std::uint64_t turn = 0;     // the rank at which sums begin
};

class Member : public std::enable_shared_from_this<Member> {
 public:
  explicit Member(const Place& place);  // opens the communicator; refuses a place that is taken
  ~Member();                            // never leaves anything behind
  const Place& place() const { return place_; }
  std::string call_name(std::uint64_t call) const;  // "comm 3f2a, call 17"

  // ---- The operation in progress. A task is polled until it returns true; until then nothing else may begin.
  using Task = std::function<bool()>;
  Result begin(Task task);
  void prepare(Task task);  // begin() without the first step
  Result poll();
  Result look();  // as poll(), for a thread other than the caller's: makes no progress
  bool is_busy();
  Result note(const Refusal& refusal);  // the communicator keeps this error
  std::string error();

  void register_memory();  // refuses more than the limit
  bool has_all_ranks();    // of a communicator in creation; refuses mismatches
  // A split: describes the call, then waits for the others' calls. Null and true: no part for this rank.
  void describe_split(int color, int key);
  bool make_part(int color, bool blocking, bool splits_share, std::shared_ptr<Member>& part);
  bool launch(const std::vector<Operation>& operations);

  void check(const Operation& operation) const;  // refuses errors that this rank can detect alone
  void check_reached(const std::string& name, const void* data) const;
  bool has_outstanding_work();
  void finish_work();  // the host waits

  void finalize() { is_finalized_ = true; }
  bool is_finalized() const { return is_finalized_; }
  void signal_abort() noexcept;    // ends everything that waits in it
  void leave(State how) noexcept;  // left or aborted; returns when no operation runs: if aborted, none of the device

  struct Batch;
  std::string run(const Batch& batch, bool dropped);

 private:
  struct Transfer;

  Result step();
  void finish_in_thread();

  RankSlot& slot() const { return segment_.rank(place_.rank); }
  std::uint64_t communicators_before(Description& description) const;
  Description describe(const Operation& operation) const;
  void post(const Description& description);
  void compare_call(std::uint64_t call, int other) const;
  void post_message(const Operation& operation);
  bool connect();
  void order_after_others(Stream stream);
  void clear_outputs(const Operation& operation) const;
  [[noreturn]] void fail(const std::string& sentence) const;
  // On all communicators of the device: other ranks may wait in any of them.
  [[noreturn]] void fail_device(const std::string& sentence) const;

  // Waits until `waits_for` returns no rank. False: the operation must end, with sentence_ or without.
  bool wait(const std::function<std::uint64_t()>& waits_for);
  bool rest(std::uint32_t seen, std::uint64_t needed, std::uint64_t left);
  void find_dead_ranks();
  void find_deadlock();
  std::uint64_t edges_of(int rank) const;

  void run_collective(const Operation& operation, std::size_t trace);
  bool show(const void* data, std::size_t bytes);  // one round; if true, the boxes of all ranks can be read
  std::uint64_t latest_arrival() const;            // of the ranks, in the round that was shown
  void take();
  void run_messages(const Batch& batch);
  bool step(Transfer& transfer);
  std::uint64_t advance(std::vector<Transfer>& transfers);

  Place place_;
  Segment segment_;
  std::shared_ptr<DeviceState> device_;

  std::mutex mutex_;  // guards the following
  Task task_;
  bool stepping_ = false, has_thread_ = false;
  int delay_ = 0, begun_ = 0;
  Result result_ = kSuccess;
  std::string error_;
  std::chrono::steady_clock::time_point looked_{};

  std::atomic<std::uint64_t> issued_{0};
  std::vector<std::uint64_t> sent_, expected_;  // messages by peer
  std::shared_ptr<Event> last_;
  std::atomic<bool> aborted_{false}, is_finalized_{false};
  std::atomic<int> running_{0};
  std::size_t registered_ = 0;  // bytes, of this process's limit

  // State of the running operation.
  std::uint64_t round_ = 0;
  std::uint64_t began_ = 0;  // its messages, at the latest time among the devices that send to this one
  std::string sentence_, operation_;
  std::uint64_t idle_steps_ = 0;
  std::chrono::steady_clock::time_point idle_since_{};
};

struct Member::Batch {
  std::shared_ptr<Member> member;
  std::vector<Operation> operations;
  std::vector<std::size_t> traces;
  std::string first;  // the name of its first call
};

// The process's record of operations (trace.h).
std::size_t trace_issued(const Place& place, const std::string& operation);
void trace_begun(std::size_t entry);
void trace_ended(std::size_t entry);
void trace_times(std::size_t entry, std::uint64_t began, std::uint64_t ended);

}  // namespace isobar::nccl::stand_in
