#include "data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "kernels/common/check.h"

namespace isobar {

namespace {

// The first `rows` rows of every tensor, in the same memory.
Batch leading_rows(const Batch& batch, std::int64_t rows) {
  Batch part;
  for (const auto& [name, tensor] : batch) {
    Shape shape = tensor.shape();
    shape[0] = rows;
    part[name] = tensor.slice(0, std::move(shape));
  }
  return part;
}

// A batch in progress: its samples are given to readers one by one.
struct Slot {
  Batch buffers;  // host tensors with room for a whole batch
  LoadedBatch batch;
  std::int64_t begun = 0;     // samples given to readers
  std::int64_t finished = 0;  // samples read or failed
  std::exception_ptr error;   // of the first sample that failed
  std::int64_t failed_row = 0;

  std::int64_t size() const { return std::ssize(batch.samples); }
  bool whole() const { return finished == size(); }
};

struct SampleRead {
  Slot* slot = nullptr;
  std::int64_t row = 0;  // of the slot's batch
};

}  // namespace

class Loader::State : public std::enable_shared_from_this<Loader::State> {
 public:
  State(const Dataset& dataset, Sampler sampler, LoaderOptions options)
      : dataset_(dataset), sampler_(std::move(sampler)), options_(std::move(options)), batches_(count_batches()) {
    ISOBAR_CHECK(sampler_.samples() == dataset_.samples(), "a sampler of ", sampler_.samples(),
                 " samples is not for the ", dataset_.samples(), " of ", dataset_.name());
    slots_.resize(static_cast<std::size_t>(options_.read_ahead) + 1);  // one more for the batch that the caller holds
    queue_.reserve(slots_.size());
    for (Slot& slot : slots_) {
      slot.buffers = empty_batch(dataset_.layout(), options_.cut.largest_part(), options_.allocator);
      free_.push_back(&slot);
    }
  }

  std::int64_t batches() const { return batches_; }
  Cursor cursor() const { return wanted_; }
  const Sampler& sampler() const { return sampler_; }
  const LoaderOptions& options() const { return options_; }

  void start(Cursor cursor) {
    if (batches_ == 0) return;
    if (cursor.batch == batches_) cursor = {cursor.epoch + 1, 0};
    ISOBAR_CHECK(cursor.epoch >= 0 && cursor.batch >= 0 && cursor.batch < batches_, "the loader has no batch ",
                 cursor.batch, " of epoch ", cursor.epoch, ": an epoch has ", batches_, " batches");
    wanted_ = upcoming_ = cursor;
    stopping_ = false;
    try {
      for (std::int64_t i = 0; i < options_.workers; ++i) workers_.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      const std::size_t started = workers_.size();
      stop();
      throw_error(options_.workers_key, " is ", options_.workers, ", but the system starts no more than ", started,
                  " threads: ", error.code().message());
    }
  }

  void stop() {
    {
      const std::lock_guard guard(mutex_);
      stopping_ = true;
    }
    for_workers_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
    for (Slot* slot : queue_) free_.push_back(slot);
    queue_.clear();
  }

  std::shared_ptr<const LoadedBatch> next() {
    std::unique_lock lock(mutex_);
    ISOBAR_CHECK(batches_ > 0, dataset_.name(), " has no samples");
    ISOBAR_CHECK(!queue_.empty() || !free_.empty(), "the loader's ", slots_.size(),
                 " buffers are all held by the caller");
    if (options_.workers == 0) read_in_this_thread(lock);
    for_caller_.wait(lock, [this] { return !queue_.empty() && queue_.front()->whole(); });
    Slot* slot = queue_.front();
    queue_.erase(queue_.begin());
    wanted_ = after(slot->batch.at);
    if (slot->error) {
      free_.push_back(slot);
      for_workers_.notify_one();
      // Taken out of the slot: otherwise a worker that refills the slot would destroy an exception that the caller
      // still uses.
      std::rethrow_exception(std::exchange(slot->error, nullptr));
    }
    return {&slot->batch, [state = shared_from_this(), slot](const LoadedBatch*) { state->take_back(slot); }};
  }

 private:
  std::int64_t count_batches() const {
    options_.cut.check();
    ISOBAR_CHECK(options_.workers >= 0 && options_.read_ahead >= 1, "the loader cannot have ", options_.workers,
                 " workers that read ", options_.read_ahead, " batches ahead");
    const std::int64_t batches = options_.cut.batches(sampler_.samples());
    ISOBAR_CHECK(batches >= 1 || options_.cut.keeps_incomplete, "a batch of ", options_.cut.batch,
                 " samples is larger than the ", sampler_.samples(), " samples of ", dataset_.name());
    return batches * options_.cut.parts;
  }

  Cursor after(Cursor at) const {
    return at.batch + 1 < batches_ ? Cursor{at.epoch, at.batch + 1} : Cursor{at.epoch + 1, 0};
  }

  // Sets the samples of the slot's batch at `batch.at`.
  void set_samples(Slot& slot) {
    LoadedBatch& batch = slot.batch;
    if (order_epoch_ != batch.at.epoch) {
      order_epoch_ = -1;
      order_ = sampler_.order(batch.at.epoch);
      order_epoch_ = batch.at.epoch;
    }
    const BatchCut& cut = options_.cut;
    const Part part = cut.part(sampler_.samples(), batch.at.batch);
    batch.missing = cut.batch - cut.batch_size(sampler_.samples(), batch.at.batch / cut.parts);
    batch.samples.clear();
    for (std::int64_t i = part.begin + cut.rank; i < part.end; i += cut.ranks)
      batch.samples.push_back(order_[static_cast<std::size_t>(i)]);
    batch.tensors = leading_rows(slot.buffers, slot.size());
  }

  // Turns a free slot into the upcoming batch. The caller holds the mutex. If that fails (no memory for the order of
  // the samples), the batch has no samples and an error, which its caller gets.
  void begin_batch() {
    Slot& slot = *free_.back();
    slot.batch.at = upcoming_;
    slot.begun = slot.finished = 0;
    slot.error = nullptr;
    try {
      set_samples(slot);
    } catch (...) {
      slot.batch.samples.clear();
      slot.error = std::current_exception();
    }
    free_.pop_back();
    queue_.push_back(&slot);
    upcoming_ = after(upcoming_);
    if (slot.whole()) for_caller_.notify_one();  // there is nothing to read
  }

  // Claims the next unread sample of the earliest batch that has one. The caller holds the mutex.
  std::optional<SampleRead> claim() {
    while (true) {
      for (Slot* slot : queue_)
        if (slot->begun < slot->size()) return SampleRead{slot, slot->begun++};
      if (free_.empty()) return std::nullopt;
      begin_batch();
    }
  }

  // Reads one sample; releases the mutex meanwhile.
  void carry_out(SampleRead task, std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    std::exception_ptr error;
    try {
      const LoadedBatch& batch = task.slot->batch;
      const SampleKey key{batch.samples[static_cast<std::size_t>(task.row)], batch.at.epoch, sampler_.seed()};
      read_row(dataset_, key, batch.tensors, task.row);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    Slot& slot = *task.slot;
    if (error && (!slot.error || task.row < slot.failed_row)) {
      slot.error = std::move(error);
      slot.failed_row = task.row;
    }
    ++slot.finished;
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (const auto task = claim()) {
        for_workers_.notify_one();  // claim() may have begun a batch, which has work for others
        carry_out(*task, lock);
        if (task->slot->whole()) for_caller_.notify_one();
      } else {
        for_workers_.wait(lock);
      }
    }
  }

  void read_in_this_thread(std::unique_lock<std::mutex>& lock) {
    if (queue_.empty()) begin_batch();
    Slot& slot = *queue_.front();
    while (!slot.whole()) carry_out({&slot, slot.begun++}, lock);
  }

  void take_back(Slot* slot) {
    {
      const std::lock_guard guard(mutex_);
      free_.push_back(slot);
    }
    for_workers_.notify_one();
  }

  const Dataset& dataset_;
  const Sampler sampler_;
  const LoaderOptions options_;
  const std::int64_t batches_;

  std::mutex mutex_;
  std::condition_variable for_workers_, for_caller_;
  std::vector<std::thread> workers_;
  bool stopping_ = false;
  std::vector<Slot> slots_;
  // queue_: begun and not yet returned to the caller, in order
  std::vector<Slot*> free_, queue_;
  Cursor wanted_;    // what next() returns next
  Cursor upcoming_;  // what begin_batch() begins next
  std::vector<std::int64_t> order_;
  std::int64_t order_epoch_ = -1;
};

Loader::Loader(const Dataset& dataset, Sampler sampler, LoaderOptions options)
    : state_(std::make_shared<State>(dataset, std::move(sampler), std::move(options))) {
  state_->start({});
}

Loader::~Loader() {
  state_->stop();
}

std::int64_t Loader::batches_per_epoch() const {
  return state_->batches();
}
std::shared_ptr<const LoadedBatch> Loader::next() {
  return state_->next();
}
Cursor Loader::cursor() const {
  return state_->cursor();
}

void Loader::seek(Cursor cursor) {
  state_->stop();
  state_->start(cursor);
}

// Batches that the caller holds keep the state that made them alive.
void Loader::use(const Dataset& view) {
  auto state = std::make_shared<State>(view, state_->sampler(), state_->options());
  state_->stop();
  state->start(state_->cursor());
  state_ = std::move(state);
}

}  // namespace isobar
