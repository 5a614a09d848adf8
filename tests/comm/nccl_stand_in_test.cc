// The library that stands in for NCCL, by its own interface: what it does, and each thing that it refuses, planted.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/nccl/api.h"
#include "engine/tensor.h"
#include "kernels/cuda/runtime.h"
#include "kernels/emulator/devices.h"
#include "lab/stand_ins/nccl/trace.h"
#include "tests/harness/environment_variable.h"
#include "tests/harness/nccl_world.h"
#include "tests/harness/testing.h"

namespace isobar::nccl {
namespace {

using isobar::testing::ContainsSubstring;
using isobar::testing::emulator_of;

struct Options {
  bool blocking = true;
  bool one_device = false;
  int told_ranks = 0;  // that rank 1 is told of; 0: as many as there are
  int told_rank = -1;  // the same for its own number
  bool null_stream = false;
  std::atomic<bool>* has_refused = nullptr;  // set where a rank ends by a refusal
};

// One rank with the bare library. What the library refuses is thrown, with its sentence.
class Rank {
 public:
  Rank(int rank, int ranks, const UniqueId& id, const Options& options)
      : rank(rank),
        size(ranks),
        options_(options),
        device(emulator_of(options.one_device ? 0 : rank)),
        stream_(device) {
    emulator::set_device(device.index, options.one_device ? "the only device" : concat("raw device ", rank));
    if (!options.null_stream) stream = stream_.get();
    Config config;
    config.blocking = options.blocking ? 1 : 0;
    const bool is_reported = rank == 1;
    const int told_ranks = is_reported && options.told_ranks > 0 ? options.told_ranks : ranks;
    const int told_rank = is_reported && options.told_rank >= 0 ? options.told_rank : rank;
    try {
      finish(api().CommInitRankConfig(&comm, told_ranks, id, told_rank, &config));
    } catch (const Error&) {
      if (comm != nullptr) api().CommAbort(comm);
      throw;
    }
  }
  ~Rank() {
    if (comm != nullptr) api().CommAbort(comm);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void expect(Result result, Comm of = nullptr) const {
    if (result != kSuccess && result != kInProgress) throw Error(api().GetLastError(of));
  }
  // Waits for a communicator that is not blocking.
  void finish(Result result) const { finish(result, comm); }
  void finish(Result result, Comm of) const {
    while (result == kInProgress) {
      ISOBAR_CHECK(!*options_.has_refused, "");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      api().CommGetAsyncError(of, &result);
    }
    expect(result, of);
  }
  void wait() const { gpu::synchronize(device, stream); }
  void destroy() {
    if (comm == nullptr) return;
    wait();
    Result error = kSuccess;
    api().CommGetAsyncError(comm, &error);
    expect(error, comm);
    expect(api().CommDestroy(std::exchange(comm, nullptr)));
  }

  Tensor tensor(const std::vector<double>& values, DType dtype = DType::fp32) const {
    Tensor x = Tensor::empty({static_cast<std::int64_t>(values.size())}, dtype, device);
    x.set_values(values);
    return x;
  }
  Comm split(int color, int key = 0) const {
    Comm part = nullptr;
    finish(api().CommSplit(comm, color, key, &part, nullptr));
    return part;
  }
  Result all_reduce(const Tensor& x, Comm of, Op op = kSum, std::size_t count = 0) const {
    const Type type = x.dtype() == DType::bf16 ? kBfloat16 : x.dtype() == DType::fp64 ? kFloat64 : kFloat32;
    return api().AllReduce(x.data(), x.data(), count > 0 ? count : static_cast<std::size_t>(x.numel()), type, op, of,
                           stream);
  }

  const int rank, size;
  const Options options_;
  const Device device;
  Stream stream = nullptr;
  Comm comm = nullptr;

 private:
  gpu::OwnedStream stream_;
};

// What the trace has of a rank.
std::vector<stand_in::TraceEntry> trace_of(int rank) {
  void* library = ::dlopen((std::string(isobar::testing::kStandIns) + "/libnccl.so.2").c_str(), RTLD_NOW | RTLD_NOLOAD);
  ISOBAR_CHECK(library != nullptr, "the stand-in is not loaded");
  const auto read = reinterpret_cast<stand_in::TraceFunction>(::dlsym(library, stand_in::kTraceName));
  std::vector<stand_in::TraceEntry> entries(1000);
  entries.resize(read(entries.data(), entries.size()));
  std::erase_if(entries, [&](const auto& entry) { return entry.rank != rank; });
  return entries;
}

void clear_trace() {
  isobar::testing::use_stand_in();
  (void)api();
  void* library = ::dlopen((std::string(isobar::testing::kStandIns) + "/libnccl.so.2").c_str(), RTLD_NOW | RTLD_NOLOAD);
  reinterpret_cast<stand_in::ClearFunction>(::dlsym(library, stand_in::kClearName))();
}

// The ranks' sentences, one a line; "" where nothing was refused.
std::string refused(int ranks, const std::function<void(Rank& rank)>& body, Options options = {}) {
  std::atomic<bool> has_refused = false;
  options.has_refused = &has_refused;
  isobar::testing::use_stand_in();
  UniqueId id{};
  api().GetUniqueId(&id);
  std::vector<std::string> sentences(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        Rank rank(r, ranks, id, options);
        body(rank);
        rank.destroy();
      } catch (const Error& error) {
        sentences[static_cast<std::size_t>(r)] = error.what();
        has_refused = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::string all;
  for (const std::string& sentence : sentences)
    if (!sentence.empty()) all += sentence + "\n";
  return all;
}

// The sentence of rank 0's and rank 1's all_reduce calls where one of them does `other` instead.
std::string refused_pair(const std::function<Result(Rank& rank, const Tensor& x)>& other) {
  return refused(2, [&](Rank& rank) {
    const Tensor x = rank.tensor(std::vector<double>(8, 1));
    rank.expect(rank.rank == 0 ? rank.all_reduce(x, rank.comm, kSum, 4) : other(rank, x), rank.comm);
    rank.wait();
  });
}

class LaunchOrder {
 public:
  explicit LaunchOrder(const char* value) { ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", value, 1); }
  ~LaunchOrder() { ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1); }
};

}  // namespace

TEST_CASE("stand-in: operations happen when every rank's stream gets there, and outputs are NaN until then") {
  CHECK(refused(2, [](Rank& rank) {
          const Tensor mine = rank.tensor({1.0 + rank.rank}), all = rank.tensor({5, 5}), other = rank.tensor({5});
          rank.expect(api().AllGather(mine.data(), all.data(), 1, kFloat32, rank.comm, rank.stream));
          const auto* values = static_cast<const float*>(all.data());  // past the stream
          ISOBAR_CHECK(std::isnan(values[0]) && std::isnan(values[1]), "not NaN at the call");
          rank.wait();
          ISOBAR_CHECK(all.to_vector() == (std::vector<double>{1, 2}), "not there after the wait");
          // In place only the parts of other ranks go.
          float* own = all.data_as<float>() + rank.rank;
          rank.expect(api().AllGather(own, all.data(), 1, kFloat32, rank.comm, rank.stream));
          ISOBAR_CHECK(values[rank.rank] == static_cast<float>(1 + rank.rank), "the own part");
          ISOBAR_CHECK(std::isnan(values[1 - rank.rank]), "the other part");
        }) == "");
}

TEST_CASE("stand-in: what the stream still reads is not cleared before") {
  CHECK(refused(2, [](Rank& rank) {
          const Tensor mine = rank.tensor({3}), all = rank.tensor({7, 8}), copy = rank.tensor({0, 0});
          gpu::copy(copy.data(), all.data(), 8, rank.device, rank.stream);
          rank.expect(api().AllGather(mine.data(), all.data(), 1, kFloat32, rank.comm, rank.stream));
          rank.wait();
          ISOBAR_CHECK(copy.to_vector() == (std::vector<double>{7, 8}), "the copy before the call");
        }) == "");
}

TEST_CASE("stand-in: sums go round from another rank for each slice, and are rounded at every step") {
  CHECK(refused(4, [](Rank& rank) {
          const Tensor x = rank.tensor(std::vector<double>(4, rank.rank == 1 ? 256 : 1), DType::bf16);
          rank.expect(rank.all_reduce(x, rank.comm));
          rank.wait();
          // Element i begins with rank i + 1. In bf16 256 + 1 is 256, and 1 + 1 + 256 + 1 is 260.
          ISOBAR_CHECK(x.to_vector() == (std::vector<double>{256, 260, 260, 256}), "bf16: ", x.to_vector()[0], ' ',
                       x.to_vector()[1], ' ', x.to_vector()[2], ' ', x.to_vector()[3]);
          const Tensor largest = rank.tensor({rank.rank == 2 ? std::nan("") : rank.rank});
          rank.expect(rank.all_reduce(largest, rank.comm, kMax));
          ISOBAR_CHECK((rank.wait(), largest.to_vector()[0] == 3), "NCCL's max leaves NaN out");
        }) == "");
}

TEST_CASE("stand-in: another verb, count, type, operation or root is refused") {
  const auto reduce = [](Rank& rank, const Tensor& x, Op op, std::size_t n) {
    return rank.all_reduce(x, rank.comm, op, n);
  };
  const std::string first = "call 1: rank 0 calls all_reduce of 4 fp32, rank 1 ";
  CHECK_THAT(refused_pair([&](Rank& r, const Tensor& x) { return reduce(r, x, kSum, 5); }),
             ContainsSubstring(first + "all_reduce of 5 fp32"));
  CHECK_THAT(refused_pair([&](Rank& r, const Tensor& x) { return reduce(r, x, kMax, 4); }),
             ContainsSubstring(first + "all_reduce (max) of 4 fp32"));
  CHECK_THAT(refused_pair([&](Rank& r, const Tensor& x) {
               return api().AllReduce(x.data(), x.data(), 4, kInt32, kSum, r.comm, r.stream);
             }),
             ContainsSubstring(first + "all_reduce of 4 i32"));
  CHECK_THAT(refused_pair([&](Rank& r, const Tensor& x) {
               return api().Broadcast(x.data(), x.data(), 4, kFloat32, 0, r.comm, r.stream);
             }),
             ContainsSubstring(first + "broadcast of 4 fp32 with root 0"));
  CHECK_THAT(refused(2,
                     [](Rank& r) {
                       const Tensor x = r.tensor({1});
                       r.expect(api().Broadcast(x.data(), x.data(), 1, kFloat32, r.rank, r.comm, r.stream), r.comm);
                       r.wait();
                     }),
             ContainsSubstring("rank 0 calls broadcast of 1 fp32 with root 0, rank 1 broadcast of 1 fp32 with root 1"));
}

TEST_CASE("stand-in: communicators that ranks call in different orders are refused") {
  const auto both = [](bool same) {
    return refused(2, [same](Rank& rank) {
      const Comm part = rank.split(0);
      const Tensor x = rank.tensor({1});
      const bool part_first = !same && rank.rank == 1;
      try {
        rank.expect(rank.all_reduce(x, part_first ? part : rank.comm), part_first ? part : rank.comm);
        rank.expect(rank.all_reduce(x, part_first ? rank.comm : part), part_first ? rank.comm : part);
        rank.wait();
      } catch (const Error&) {
        api().CommAbort(part);
        throw;
      }
      api().CommDestroy(part);
    });
  };
  CHECK(both(true) == "");
  CHECK_THAT(both(false), ContainsSubstring("communicators are called in different orders"));
}

TEST_CASE("stand-in: two communicators at once on one device are refused without the launch order") {
  const auto both = [] {
    return refused(2, [](Rank& rank) {
      const gpu::OwnedStream beside(rank.device);
      const Comm part = rank.split(0);
      const Tensor x = rank.tensor({1}), y = rank.tensor({2});
      rank.expect(rank.all_reduce(x, rank.comm));
      const Result second = api().AllReduce(y.data(), y.data(), 1, kFloat32, kSum, part, beside.get());
      const std::string sentence = second == kSuccess ? "" : api().GetLastError(part);
      gpu::synchronize(rank.device, beside.get());  // with the launch order this waits for the first one too
      rank.wait();
      api().CommDestroy(part);
      ISOBAR_CHECK(second == kSuccess, sentence);
      ISOBAR_CHECK(x.to_vector()[0] == 2 && y.to_vector()[0] == 4, "sums");
    });
  };
  CHECK(both() == "");
  const char* const refusal = "is at work on the same device, and nothing orders the two";
  {
    const LaunchOrder none("0");
    CHECK_THAT(both(), ContainsSubstring(refusal));
  }
  ::setenv("ISOBAR_NCCL_STAND_IN_VERSION", "21805", 1);  // which does not know it
  CHECK_THAT(both(), ContainsSubstring(refusal));
  ::unsetenv("ISOBAR_NCCL_STAND_IN_VERSION");
}

TEST_CASE("stand-in: messages that do not match or are not grouped are refused") {
  const auto exchange = [](bool grouped, std::size_t sent, std::size_t expected) {
    return refused(2, [=](Rank& r) {
      const Tensor x = r.tensor(std::vector<double>(9000, r.rank)), y = r.tensor(std::vector<double>(9000, 5));
      const int other = 1 - r.rank;
      if (grouped) api().GroupStart();
      r.expect(api().Send(x.data(), sent, kFloat32, other, r.comm, r.stream), r.comm);
      r.expect(api().Recv(y.data(), expected, kFloat32, other, r.comm, r.stream), r.comm);
      if (grouped) r.expect(api().GroupEnd(), r.comm);
      r.wait();
      ISOBAR_CHECK(y.to_vector()[8999] == other, "what was received");
    });
  };
  CHECK(exchange(true, 9000, 9000) == "");
  CHECK_THAT(exchange(true, 9000, 8000),
             ContainsSubstring("makes a send of 9000 fp32, rank") && ContainsSubstring("a receive of 8000 fp32"));
  CHECK_THAT(exchange(false, 9000, 9000), ContainsSubstring("ranks 0, 1 wait for each other for ever"));
  // A rank that leaves does not answer any more.
  CHECK_THAT(refused(2,
                     [](Rank& r) {
                       const Tensor x = r.tensor({1});
                       if (r.rank == 0) r.expect(api().Send(x.data(), 1, kFloat32, 1, r.comm, r.stream));
                       r.wait();
                     }),
             ContainsSubstring("rank 0 waits for rank 1, which has destroyed its communicator"));
}

TEST_CASE("stand-in: collectives in groups that make communicators are refused") {
  CHECK_THAT(refused(1,
                     [](Rank& r) {
                       UniqueId id{};
                       api().GetUniqueId(&id);
                       Comm made = nullptr;
                       const Tensor x = r.tensor({1});
                       api().GroupStart();
                       api().CommInitRankConfig(&made, 1, id, 0, nullptr);
                       const Result called = r.all_reduce(x, r.comm);
                       const Result ended = api().GroupEnd();
                       api().CommAbort(made);
                       ISOBAR_CHECK(ended == kInvalidUsage, "the end of the group");
                       r.expect(called);
                     }),
             ContainsSubstring("in a group that makes communicators"));
}

TEST_CASE("stand-in: buffers that overlap by half or are not the device's are refused") {
  const auto gather = [](std::int64_t at) {
    return refused(1, [at](Rank& r) {
      const Tensor x = r.tensor({1, 2, 3, 4});
      r.expect(api().AllGather(x.data(), x.data_as<float>() + at, 2, kFloat32, r.comm, r.stream));
    });
  };
  CHECK(gather(0) == "");
  CHECK(gather(2) == "");
  CHECK_THAT(gather(1), ContainsSubstring("overlap, and not as in place"));
  CHECK_THAT(refused(1,
                     [](Rank& r) {
                       float on_stack = 0;
                       r.expect(api().AllReduce(&on_stack, &on_stack, 1, kFloat32, kSum, r.comm, r.stream));
                     }),
             ContainsSubstring("a buffer is not memory of this rank's device"));
  CHECK_THAT(refused(1,
                     [](Rank& r) {
                       const Tensor x = r.tensor({1});
                       r.expect(api().AllReduce(x.data(), x.data(), 1000, kFloat32, kSum, r.comm, r.stream));
                     }),
             ContainsSubstring("a buffer is not memory of this rank's device"));
  CHECK_THAT(refused(1,
                     [](Rank& r) {
                       const Tensor other = Tensor::zeros({1}, DType::fp32, emulator_of(5));
                       r.expect(api().AllReduce(other.data(), other.data(), 1, kFloat32, kSum, r.comm, r.stream));
                     }),
             ContainsSubstring("a buffer is not memory of this rank's device"));
}

TEST_CASE("stand-in: two threads in one communicator are refused") {
  std::atomic<bool> is_late = true;
  const auto call_in_two_threads = [&](Rank& r) {
    const Tensor x = r.tensor({1}), y = r.tensor({1});
    if (r.rank == 1) {
      while (is_late) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      r.expect(r.all_reduce(x, r.comm));
      return;
    }
    std::string sentence;
    std::thread second([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      if (r.all_reduce(y, r.comm) != kSuccess) sentence = api().GetLastError(nullptr);
      is_late = false;
    });
    const Result first = r.all_reduce(x, r.comm);  // on the null stream: it waits for rank 1
    is_late = false;                               // where this one was refused
    second.join();
    r.expect(first);
    ISOBAR_CHECK(sentence.empty(), sentence);
  };
  const std::string sentences = refused(2, call_in_two_threads, {.null_stream = true});
  CHECK_THAT(sentences, ContainsSubstring("two threads are in calls of one communicator") ||
                            ContainsSubstring("while the last call is in progress"));
}

TEST_CASE("stand-in: ranks that do not belong together are refused") {
  const auto nothing = [](Rank&) {};
  CHECK_THAT(refused(2, nothing, {.blocking = false, .one_device = true}),
             ContainsSubstring("ranks 0 and 1 are both on device the only"));
  CHECK_THAT(refused(2, nothing, {.blocking = false, .told_ranks = 3}), ContainsSubstring("one rank was told of"));
  CHECK_THAT(refused(2, nothing, {.blocking = false, .told_rank = 0}),
             ContainsSubstring("uses an id for the second time"));
  CHECK_THAT(refused(2, nothing, {.blocking = false, .told_rank = 7}), ContainsSubstring("rank 7 of 2 ranks"));
}

TEST_CASE("stand-in: a second use of an id is refused") {
  CHECK_THAT(refused(1,
                     [](Rank& r) {
                       UniqueId id{};
                       api().GetUniqueId(&id);
                       Comm first = nullptr, second = nullptr;
                       r.expect(api().CommInitRankConfig(&first, 1, id, 0, nullptr));
                       api().CommDestroy(first);
                       r.expect(api().CommInitRankConfig(&second, 1, id, 0, nullptr));
                     }),
             ContainsSubstring("rank 0 uses an id for the second time"));
  CHECK_THAT(refused(1,
                     [](Rank& r) {
                       Comm comm = nullptr;
                       r.expect(api().CommInitRankConfig(&comm, 1, UniqueId{}, 0, nullptr));
                     }),
             ContainsSubstring("an id that ncclGetUniqueId has not made"));
}

TEST_CASE("stand-in: a split with work outstanding is refused") {
  const auto splits = [](bool waits) {
    return refused(2, [waits](Rank& r) {
      const Tensor x = r.tensor({1});
      r.expect(r.all_reduce(x, r.comm));
      if (waits) r.wait();
      const Comm part = r.split(r.rank);
      api().CommDestroy(part);
      if (r.rank == 0) ISOBAR_CHECK(r.split(kNoColor) == nullptr, "no color");
      if (r.rank == 1) api().CommDestroy(r.split(4));
    });
  };
  CHECK(splits(true) == "");
  CHECK_THAT(splits(false), ContainsSubstring("a split while operations are outstanding"));
}

TEST_CASE("stand-in: a communicator is not used after its end") {
  CHECK_THAT(refused(1,
                     [](Rank& r) {
                       const Tensor x = r.tensor({1});
                       const Comm gone = r.comm;
                       r.destroy();
                       r.expect(r.all_reduce(x, gone));
                     }),
             ContainsSubstring("a communicator is used after it was destroyed"));
  CHECK_THAT(refused(1,
                     [](Rank& r) {
                       const Comm gone = std::exchange(r.comm, nullptr);
                       api().CommAbort(gone);
                       r.expect(api().CommAbort(gone));
                     }),
             ContainsSubstring("a communicator is used after it was aborted"));
  CHECK_THAT(refused(1,
                     [](Rank& r) {
                       const Tensor x = r.tensor({1});
                       r.expect(api().CommFinalize(r.comm));
                       r.expect(r.all_reduce(x, r.comm));
                     }),
             ContainsSubstring("after ncclCommFinalize"));
}

TEST_CASE("stand-in: a communicator that is not blocking begins when it is asked, and one call at a time") {
  const auto calls = [](bool asks) {
    return refused(2,
                   [asks](Rank& r) {
                     int in_progress = 0;
                     const Tensor x = r.tensor({1});
                     for (int i = 0; i < 9; ++i) {
                       const Result result = r.all_reduce(x, r.comm);
                       r.expect(result, nullptr);
                       in_progress += result == kInProgress ? 1 : 0;
                       if (asks) r.finish(result);
                     }
                     ISOBAR_CHECK(in_progress == 3, in_progress, " calls in progress");
                     r.wait();
                     ISOBAR_CHECK(x.to_vector()[0] == 512, "nine sums");
                   },
                   {.blocking = false});
  };
  CHECK(calls(true) == "");
  CHECK_THAT(calls(false), ContainsSubstring("while the last call is in progress"));
}

TEST_CASE("stand-in: groups of more than 2048 operations are refused") {
  const auto group = [](int operations) {
    return refused(1, [operations](Rank& r) {
      const Tensor x = r.tensor({1});
      api().GroupStart();
      for (int i = 0; i < operations; ++i) (void)r.all_reduce(x, r.comm);
      r.expect(api().GroupEnd());
    });
  };
  CHECK_THAT(group(2049), ContainsSubstring("a group has more than 2048 operations"));
  CHECK(group(2048) == "");
}

TEST_CASE("stand-in: an abort lets go of who waits, and others learn of it") {
  std::atomic<bool> is_aborted = false;
  CHECK(refused(2, [&](Rank& r) {
          const Tensor x = r.tensor({1}), all = r.tensor({5, 5});
          if (r.rank == 1) {
            while (!is_aborted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            Result error = kSuccess;
            for (int i = 0; i < 1000 && error == kSuccess; ++i) {
              std::this_thread::sleep_for(std::chrono::milliseconds(5));
              api().CommGetAsyncError(r.comm, &error);
            }
            ISOBAR_CHECK(error == kRemoteError, "what rank 1 learns");
            api().CommAbort(std::exchange(r.comm, nullptr));
            return;
          }
          r.expect(api().AllGather(x.data(), all.data(), 1, kFloat32, r.comm, r.stream));
          std::thread other([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            api().CommAbort(std::exchange(r.comm, nullptr));
          });
          r.wait();
          other.join();
          ISOBAR_CHECK(std::isnan(all.to_vector()[0]), "a result of an aborted call");
          is_aborted = true;
        }) == "");
}

TEST_CASE("stand-in: communicators that are left at the end of the program are told") {
  isobar::testing::use_stand_in();
  (void)api();
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(ends[1], 2);
    UniqueId id{};
    api().GetUniqueId(&id);
    Comm leaked = nullptr;
    api().CommInitRankConfig(&leaked, 1, id, 0, nullptr);
    std::exit(0);
  }
  ::close(ends[1]);
  std::string text(1000, '\0');
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(::read(ends[0], text.data(), text.size()), 0)));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WEXITSTATUS(status) == 1);
  CHECK_THAT(text, ContainsSubstring("these were not destroyed: comm"));
}

TEST_CASE("stand-in: the trace tells when operations were issued, begun and ended") {
  isobar::testing::use_stand_in();
  (void)api();
  void* library = ::dlopen((std::string(isobar::testing::kStandIns) + "/libnccl.so.2").c_str(), RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(library != nullptr);
  const auto tick = reinterpret_cast<stand_in::TickFunction>(::dlsym(library, stand_in::kTickName));
  const auto trace = reinterpret_cast<stand_in::TraceFunction>(::dlsym(library, stand_in::kTraceName));
  reinterpret_cast<stand_in::ClearFunction>(::dlsym(library, stand_in::kClearName))();
  std::uint64_t between = 0;
  CHECK(refused(1, [&](Rank& r) {
          const Tensor x = r.tensor({1});
          r.expect(r.all_reduce(x, r.comm));
          between = tick();
          r.wait();
        }) == "");
  std::vector<stand_in::TraceEntry> entries(5);
  REQUIRE(trace(entries.data(), entries.size()) == 1);
  CHECK(entries[0].operation == std::string("all_reduce of 1 fp32"));
  CHECK(entries[0].issued < between);
  CHECK(entries[0].begun > between);
  CHECK(entries[0].ended > entries[0].begun);
}

TEST_CASE("stand-in for NCCL: its clock charges turns of a ring, and a group of n broadcasts n rings") {
  const isobar::testing::EnvironmentVariable link("ISOBAR_NCCL_STAND_IN_LINK", "1000:1000");  // a byte is a nanosecond
  constexpr int kRanks = 4;
  constexpr std::size_t kCount = 4000;
  clear_trace();
  CHECK(refused(kRanks, [](Rank& r) {
          const Tensor x = r.tensor(std::vector<double>(kCount * kRanks));
          auto* data = static_cast<float*>(const_cast<void*>(x.data()));
          const auto part = [&](int of) { return data + static_cast<std::size_t>(of) * kCount; };
          r.expect(r.all_reduce(x, r.comm));
          r.expect(api().AllGather(part(r.rank), data, kCount, kFloat32, r.comm, r.stream));
          api().GroupStart();
          for (int of = 0; of < kRanks; ++of)
            r.expect(api().Broadcast(part(of), part(of), kCount, kFloat32, of, r.comm, r.stream));
          api().GroupEnd();
          const int next = (r.rank + 1) % kRanks, last = (r.rank + kRanks - 1) % kRanks;
          const Tensor y = r.tensor(std::vector<double>(kCount));
          auto* to = static_cast<float*>(const_cast<void*>(y.data()));
          api().GroupStart();
          r.expect(api().Send(part(0), kCount, kFloat32, next, r.comm, r.stream));
          r.expect(api().Recv(to, kCount, kFloat32, last, r.comm, r.stream));
          api().GroupEnd();
          r.wait();
        }) == "");
  constexpr std::uint64_t kTurn = 1000 + 4 * kCount;  // of one part
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::vector<stand_in::TraceEntry> entries = trace_of(rank);
    REQUIRE(entries.size() == 2 + kRanks + 2);
    const auto time_of = [&](std::size_t entry) { return entries[entry].ended_ns - entries[entry].began_ns; };
    CHECK(time_of(0) == 2 * (kRanks - 1) * kTurn);
    CHECK(time_of(1) == (kRanks - 1) * kTurn);
    for (std::size_t i = 0; i < kRanks; ++i) CHECK(time_of(2 + i) == (kRanks - 1) * 1000 + 4 * kCount);
    for (std::size_t i = 1; i < 2 + kRanks; ++i) CHECK(entries[i].began_ns == entries[i - 1].ended_ns);
    for (std::size_t i = 0; i < 2; ++i) CHECK(time_of(2 + kRanks + i) == kTurn);
    CHECK(entries[0].began_ns == trace_of(0)[0].began_ns);  // a collective begins when the last rank has come
  }
}

}  // namespace isobar::nccl
