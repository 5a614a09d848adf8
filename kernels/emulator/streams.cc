// The queues of kernels/emulator/streams.h, and the order in which their work runs.
#include "kernels/emulator/streams.h"

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>

#include "kernels/common/check.h"
#include "kernels/emulator/questions.h"

namespace isobar::emulator {

// The work of one stream, oldest first. The oldest stays in the queue while it runs.
struct Queue {
  std::unique_ptr<Work> first;
  Work* last = nullptr;
  bool busy = false;  // a thread runs the oldest work
  std::exception_ptr failure;

  void append(std::unique_ptr<Work> work) {
    Work* added = work.get();
    (last == nullptr ? first : last->next_) = std::move(work);
    last = added;
  }
  std::unique_ptr<Work> take_first() {
    std::unique_ptr<Work> work = std::move(first);
    first = std::move(work->next_);
    if (first == nullptr) last = nullptr;
    return work;
  }
};

// A point in the work of a queue: just after the work of that number.
struct Mark {
  std::shared_ptr<Queue> queue;  // null: of the null stream
  std::uint64_t number = 0;
  std::exception_ptr failure;  // written before `reached`
  std::atomic<bool> reached{false};
};

namespace {

std::atomic<Question> the_question{nullptr};

void ask_question() {
  const Question question = the_question;
  const char* sentence = question == nullptr ? nullptr : question();
  if (sentence != nullptr) throw Error(sentence);
}

}  // namespace

void set_question(Question question) {
  the_question = question;
}

class Streams {
 public:
  static Streams& instance() {
    static auto* streams = new Streams;  // outlives every static tensor
    return *streams;
  }

  Stream create() {
    auto queue = std::make_shared<Queue>();
    const std::lock_guard lock(mutex_);
    Queue* handle = queue.get();
    queues_.emplace(handle, std::move(queue));
    return handle;
  }

  // Returns the number of the work.
  std::uint64_t append(Stream stream, std::unique_ptr<Work> work) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t number = work->number_ = ++last_number_;
    find(stream)->append(std::move(work));
    return number;
  }

  std::shared_ptr<Queue> queue_of(Stream stream) {
    const std::lock_guard lock(mutex_);
    return find(stream);
  }

  // Runs all work of the queue; returns its error.
  std::exception_ptr run_all(const std::shared_ptr<Queue>& queue) {
    std::unique_lock lock(mutex_);
    if (queue->last != nullptr) run_needed(lock, queue, queue->last->number_);
    return queue->failure;
  }

  void run_up_to(const Mark& mark) {
    std::unique_lock lock(mutex_);
    if (!mark.reached) run_needed(lock, mark.queue, mark.number);
  }

  bool is_idle(Stream stream) {
    const std::lock_guard lock(mutex_);
    return find(stream)->last == nullptr;
  }

  // Whether the last work of the stream needs the mark.
  bool leads_to(const Mark& mark, Stream stream) {
    const std::lock_guard lock(mutex_);
    if (mark.reached) return true;
    const std::shared_ptr<Queue>& queue = find(stream);
    if (queue->last == nullptr) return false;
    Needs needs;
    add_need(needs, queue, queue->last->number_);
    const auto needed = needs.find(mark.queue);
    return needed != needs.end() && needed->second >= mark.number;
  }

  void draw_order(std::uint64_t seed) {
    const std::lock_guard lock(mutex_);
    seed_ = seed;
    first_drawn_ = last_number_;
  }

  void forget(Stream stream) {
    const std::lock_guard lock(mutex_);
    queues_.erase(static_cast<Queue*>(stream));
  }

 private:
  using Needs = std::map<std::shared_ptr<Queue>, std::uint64_t>;  // queue -> the last number that is needed of it

  const std::shared_ptr<Queue>& find(Stream stream) const {
    const auto found = queues_.find(static_cast<Queue*>(stream));
    ISOBAR_CHECK(found != queues_.end(), "work was given to a stream that is none of the emulator's");
    return found->second;
  }

  static bool is_blocked(const Work& work) {
    const Mark* mark = work.awaited();
    return mark != nullptr && !mark->reached;
  }

  static void add_need(Needs& needs, const std::shared_ptr<Queue>& queue, std::uint64_t number) {
    std::uint64_t& needed = needs[queue];
    const std::uint64_t before = needed;
    if (before >= number) return;
    needed = number;
    for (const Work* work = queue->first.get(); work != nullptr && work->number_ <= number; work = work->next_.get())
      if (work->number_ > before && is_blocked(*work)) add_need(needs, work->awaited()->queue, work->awaited()->number);
  }

  // By default the work that was queued last has the highest priority; with a seed the numbers look random (Steele et
  // al. 2014, SplitMix), and are the same whatever ran before.
  std::uint64_t priority_of(const Work& work) const {
    if (seed_ == 0) return work.number_;
    std::uint64_t x = work.number_ - first_drawn_ + seed_ * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }

  // Chooses, of the needed work that may run, the one with the highest priority. False if nothing is left to do.
  bool choose(const Needs& needs, Queue*& chosen) const {
    bool left = false;
    chosen = nullptr;
    for (const auto& [queue, number] : needs) {
      const Work* work = queue->first.get();
      if (work == nullptr || work->number_ > number) continue;
      left = true;
      if (queue->busy || is_blocked(*work)) continue;
      if (chosen == nullptr || priority_of(*work) > priority_of(*chosen->first)) chosen = queue.get();
    }
    return left;
  }

  // It terminates: an event is recorded before a stream can wait for it, so no two streams wait for each other.
  void run_needed(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Queue>& queue, std::uint64_t number) {
    Needs needs;
    add_need(needs, queue, number);
    for (Queue* chosen = nullptr; choose(needs, chosen);) {
      if (chosen != nullptr)
        run_first(lock, *chosen);
      else
        changed_.wait(lock);  // another thread runs the needed work
    }
  }

  void run_first(std::unique_lock<std::mutex>& lock, Queue& queue) {
    queue.busy = true;
    std::exception_ptr failure = queue.failure;
    lock.unlock();
    queue.first->run(failure);
    lock.lock();
    queue.failure = std::move(failure);
    std::unique_ptr<Work> done = queue.take_first();
    queue.busy = false;
    changed_.notify_all();
    lock.unlock();
    done.reset();  // its destructor may give work to streams
    lock.lock();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<const Queue*, std::shared_ptr<Queue>> queues_;
  std::uint64_t last_number_ = 0;
  std::uint64_t seed_ = 0, first_drawn_ = 0;  // of draw_order, and the last work before it
};

namespace {

class Record final : public Work {
 public:
  explicit Record(std::shared_ptr<Mark> mark) : mark_(std::move(mark)) {}
  void run(std::exception_ptr& failure) noexcept override {
    mark_->failure = failure;
    mark_->reached = true;
  }

 private:
  std::shared_ptr<Mark> mark_;
};

class Wait final : public Work {
 public:
  explicit Wait(std::shared_ptr<Mark> mark) : mark_(std::move(mark)) {}
  void run(std::exception_ptr& failure) noexcept override {
    if (!failure) failure = mark_->failure;
  }

 private:
  const Mark* awaited() const override { return mark_.get(); }
  std::shared_ptr<Mark> mark_;
};

}  // namespace

void draw_order(std::uint64_t seed) {
  Streams::instance().draw_order(seed);
}

Stream create_stream() {
  return Streams::instance().create();
}

void destroy_stream(Stream stream) noexcept {
  if (stream == nullptr) return;
  Streams& streams = Streams::instance();
  streams.run_all(streams.queue_of(stream));
  streams.forget(stream);
}

void synchronize(Stream stream) {
  if (stream == nullptr) return;
  ask_question();
  Streams& streams = Streams::instance();
  if (const std::exception_ptr failure = streams.run_all(streams.queue_of(stream))) std::rethrow_exception(failure);
}

bool is_idle(Stream stream) {
  return stream == nullptr || Streams::instance().is_idle(stream);
}

void queue_work(Stream stream, std::unique_ptr<Work> work) {
  if (stream != nullptr) {
    Streams::instance().append(stream, std::move(work));
    return;
  }
  std::exception_ptr failure;
  work->run(failure);
  if (failure) std::rethrow_exception(failure);
}

void copy(void* to, const void* from, std::size_t bytes, Stream stream) {
  submit(stream, [=] { std::memcpy(to, from, bytes); });
}

void Event::record(Stream stream) {
  auto mark = std::make_shared<Mark>();
  if (stream == nullptr) {
    mark->reached = true;
  } else {
    mark->queue = Streams::instance().queue_of(stream);
    mark->number = Streams::instance().append(stream, std::make_unique<Record>(mark));
  }
  mark_ = std::move(mark);
}

const Mark& Event::mark() const {
  ISOBAR_CHECK(mark_ != nullptr, "somebody waits for an event that was never recorded");
  return *mark_;
}

void Event::make_wait(Stream stream) const {
  if (stream == nullptr) return synchronize();
  if (!mark().reached || mark().failure) Streams::instance().append(stream, std::make_unique<Wait>(mark_));
}

void Event::synchronize() const {
  ask_question();
  Streams::instance().run_up_to(mark());
  if (mark().failure) std::rethrow_exception(mark().failure);
}

bool Event::is_reached() const {
  ask_question();
  return mark().reached;
}

bool Event::is_before(Stream stream) const {
  return mark().reached || (stream != nullptr && Streams::instance().leads_to(mark(), stream));
}

}  // namespace isobar::emulator
