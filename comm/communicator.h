// A group of ranks, and the verbs that all its ranks call in the same order. Copies are the same group; a default one
// is a group of one rank, whose verbs copy what has to be copied and do nothing else.
//
// Verbs go to the current stream: what was launched there before has happened when another rank sees the values, and
// what is launched there afterwards sees the result. Tensors are whole buffers on one device; `counts` are the ranks'
// parts in elements, empty for equal parts. Buffers are equal (in place: a rank's own part within the whole) or apart:
// others are an Error. Throws Error too where the ranks' calls do not fit together, naming both ranks, where a rank has
// not come within the time allowed, and where a rank has failed.
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
  // All ranks: the group that others are split from.
  explicit Communicator(std::unique_ptr<Backend> world);

  int rank() const { return backend_ ? backend_->rank() : 0; }
  int size() const { return backend_ ? backend_->size() : 1; }
  // Whether calls of several groups of the rank may be under way at once, in several streams of a device.
  bool may_overlap() const { return !backend_ || backend_->may_overlap(); }
  const std::string& name() const { return name_; }

  void all_reduce(const Tensor& x, Reduce reduce = Reduce::sum) const;                   // in place
  void all_gather(const Tensor& mine, const Tensor& all, Counts counts = {}) const;      // parts in rank order
  void reduce_scatter(const Tensor& all, const Tensor& mine, Counts counts = {}) const;  // sums
  void broadcast(const Tensor& x, int root) const;
  void all_to_all(const Tensor& send, Counts to, const Tensor& receive, Counts from) const;
  // Either tensor may be undefined, and its rank is then Call::kNoRank.
  void send_receive(const Tensor& send, int to, const Tensor& receive, int from) const;
  void barrier() const;

  // The same for what lies on the host.
  void all_reduce(std::span<double> values, Reduce reduce = Reduce::sum) const;
  void all_gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) const;  // equal parts
  void broadcast_bytes(std::span<std::byte> bytes, int root) const;
  std::string broadcast_text(std::string text, int root) const;  // of any length; the root's

  // The group of the ranks that give the same color, ordered by key. All ranks of this group call it.
  Communicator split(int color, int key, std::string name) const;
  // The group of these members of this one, of which the caller knows. Its calls are counted with this rank's.
  Communicator group_of(std::unique_ptr<Backend> members, std::string name) const;
  // This group by another name, which its calls from there are counted under.
  Communicator named(std::string name) const;
  // Groups that the backend has formed for this rank beside its world.
  std::int64_t formed() const { return state_ ? state_->formed : 0; }

  // Of this rank, all its groups together.
  const CommLedger& ledger() const;

  // Of this rank: whom Working tells, from here on. For who makes the world.
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

// As long as it lives, what this rank does between its calls is work that the others wait for (comm/work.h):
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

// Whether `holds` on at least one rank; all ranks get the same answer.
bool is_true_on_any(const Communicator& ranks, bool holds);

}  // namespace isobar
