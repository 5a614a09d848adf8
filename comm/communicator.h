// A group of ranks, and its collectives. All ranks of the group call the same collectives in the same order. Copies are
// the same group. A default Communicator is a group of one rank: its collectives only copy input to output.
//
// Collectives run in the order of the current stream. Earlier work of the stream finishes before another rank sees the
// values; later work of the stream sees the result. Tensors are whole buffers on one device. `counts`: elements of each
// rank's part; empty: equal parts. Input and output may be the same buffer or must not overlap; in place, a rank's part
// lies at its own offset in the whole. Errors: buffers that overlap otherwise; calls of two ranks that do not match (it
// names both); a rank that does not arrive within the time limit; a rank that has failed.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "comm/backend.h"
#include "comm/fault.h"
#include "comm/ledger.h"
#include "comm/work.h"
#include "engine/tensor.h"

namespace isobar {

class Communicator {
 public:
  Communicator() = default;
  // The group of all ranks; other groups are split from it.
  explicit Communicator(std::unique_ptr<Backend> world);

  int rank() const { return backend_ ? backend_->rank() : 0; }
  int size() const { return backend_ ? backend_->size() : 1; }
  // Whether calls of several groups of this rank may run at the same time, in several streams of a device.
  bool may_overlap() const { return !backend_ || backend_->may_overlap(); }
  const std::string& name() const { return name_; }

  void all_reduce(const Tensor& x, Reduce reduce = Reduce::sum) const;                   // in place
  void all_gather(const Tensor& mine, const Tensor& all, Counts counts = {}) const;      // parts in rank order
  void reduce_scatter(const Tensor& all, const Tensor& mine, Counts counts = {}) const;  // sums
  void broadcast(const Tensor& x, int root) const;
  void all_to_all(const Tensor& send, Counts to, const Tensor& receive, Counts from) const;
  // Either tensor may be undefined; its rank is then Call::kNoRank.
  void send_receive(const Tensor& send, int to, const Tensor& receive, int from) const;
  void barrier() const;

  // The same for data on the host.
  void all_reduce(std::span<double> values, Reduce reduce = Reduce::sum) const;
  void all_gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) const;  // equal parts
  void broadcast_bytes(std::span<std::byte> bytes, int root) const;
  std::string broadcast_text(std::string text, int root) const;  // of any length; returns the root's

  // The group of the ranks with the same color, ordered by key (as MPI_Comm_split). All ranks of this group call it.
  Communicator split(int color, int key, std::string name) const;
  // The group of these members, which the caller has formed. Its calls are counted in this rank's ledger.
  Communicator group_of(std::unique_ptr<Backend> members, std::string name) const;
  // This group under another name. Calls through the result are counted under that name.
  Communicator named(std::string name) const;
  // The number of groups that the backend has formed for this rank, its world not included.
  std::int64_t formed() const { return state_ ? state_->formed : 0; }

  // The ledger of this rank: of all its groups.
  const CommLedger& ledger() const;

  // What Working of this rank calls from now on. Set by the code that makes the world.
  void set_work_listener(WorkListener listener) const;

 private:
  friend class Working;
  // What all groups of a rank share.
  struct RankState {
    int world_rank = 0;
    std::int64_t calls = 0, formed = 0;
    std::optional<Fault> fault;
    CommLedger ledger;
    WorkListener work;
  };

  void perform(Call call) const;
  void run_padded(const Call& call, const std::string& what) const;
  void inject(const Fault& fault, const Call& call) const;

  std::shared_ptr<Backend> backend_;  // null: one rank
  std::shared_ptr<RankState> state_;
  std::string name_ = "alone";
  std::shared_ptr<std::int64_t> calls_;  // of this group
};

// While it lives, this rank does work that the others wait for (comm/work.h):
//
//   const Working alone(parallel.world, "writing a checkpoint");
class Working {
 public:
  Working(const Communicator& ranks, const std::string& what, double max_timeouts = kMaxTimeoutsOfWork);
  ~Working();
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;

 private:
  std::shared_ptr<Communicator::RankState> rank_;
};

// Whether `holds` is true on any rank. All ranks call it, and get the same answer.
bool is_true_on_any(const Communicator& ranks, bool holds);

}  // namespace isobar
