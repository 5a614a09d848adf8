// The verbs of ranks that are threads: the list of all backends (verb_cases.h), and what is this backend's own.
// tests/comm/mpi_collectives.cc has the list among processes.
#include <omp.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/async_sum.h"
#include "comm/backend.h"
#include "comm/communicator.h"
#include "comm/fault.h"
#include "comm/mpi_backend.h"
#include "comm/thread_ranks.h"
#include "engine/storage.h"
#include "engine/stream.h"
#include "kernels/cuda/runtime.h"
#include "tests/comm/verb_cases.h"
#include "tests/harness/environment_variable.h"
#include "tests/harness/testing.h"

using namespace isobar;
using isobar::testing::Body;
using isobar::testing::ContainsSubstring;
using isobar::testing::CountList;
using isobar::testing::Findings;

namespace {

void run_threads(int ranks, const Body& body) {
  run_ranks({.ranks = ranks}, body);
}
Device on_host(int) {
  return {};
}

// The sentence that a run of ranks ends with.
std::string error_of(int ranks, const Body& body, double timeout = 60) {
  try {
    run_ranks({.ranks = ranks, .timeout_seconds = timeout}, body);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// Rank 1 of 3, who writes down the counts of each call, as "sends -> receives", and what sentences call it.
class Written : public Backend {
 public:
  explicit Written(std::vector<std::string>& calls, std::vector<std::string>& names) : calls_(calls), names_(names) {}
  int rank() const override { return 1; }
  int size() const override { return 3; }
  void run(const Call& call, const std::string& what) override {
    calls_.push_back(name_of(call.verb) + text_of(call.sends) + " ->" + text_of(call.receives));
    names_.push_back(what);
  }
  std::unique_ptr<Backend> split(int, int) override { return std::make_unique<Written>(calls_, names_); }
  bool has_failed() const override { return false; }

 private:
  static std::string text_of(Counts counts) {
    std::string text;
    for (const std::int64_t count : counts) text += " " + std::to_string(count);
    return text;
  }
  std::vector<std::string>&calls_, &names_;
};

}  // namespace

TEST_CASE("collectives: a backend is handed what the rank sends and what it receives, and no more") {
  std::vector<std::string> calls, names;
  const Communicator ranks(std::make_unique<Written>(calls, names));
  const auto tensor = [](std::int64_t n) { return Tensor::zeros({n}, DType::fp32, Device{}); };
  const std::vector<std::int64_t> parts{2, 3, 1};
  std::vector<std::byte> own(5), all(15);
  ranks.all_reduce(tensor(7));
  ranks.all_gather(tensor(3), tensor(6), parts);
  ranks.reduce_scatter(tensor(6), tensor(3), parts);
  ranks.broadcast(tensor(4), 2);
  ranks.all_to_all(tensor(6), parts, tensor(9), std::vector<std::int64_t>{3, 3, 3});
  ranks.all_gather_bytes(own, all);
  ranks.broadcast_bytes(own, 0);
  CHECK(calls == std::vector<std::string>{"all_reduce 7 -> 7", "all_gather 3 -> 2 3 1", "reduce_scatter 2 3 1 -> 3",
                                          "broadcast 4 -> 4", "all_to_all 2 3 1 -> 3 3 3", "all_gather 5 -> 5 5 5",
                                          "broadcast 5 -> 5"});
}

TEST_CASE("collectives: every group counts its own calls, whoever it was split from") {
  std::vector<std::string> calls, names;
  const Communicator world(std::make_unique<Written>(calls, names));
  world.barrier();
  world.barrier();
  const Communicator pair = world.split(0, 0, "pair"), other = world.split(0, 0, "other");
  pair.barrier();
  const Communicator part = pair.split(0, 0, "part");
  part.barrier();
  other.barrier();
  pair.barrier();
  world.barrier();
  pair.named("same").barrier();
  CHECK(Communicator().split(0, 0, "one").name() == "one");  // of one rank too
  CHECK(world.split(0, 0, "two").name() == "two");
  const std::vector<std::string> expected{"call 1 of group world", "call 2 of group world", "call 1 of group pair",
                                          "call 1 of group part",  "call 1 of group other", "call 2 of group pair",
                                          "call 3 of group world", "call 3 of group same"};
  CHECK(names == expected);
}

TEST_CASE("collectives: who waits hears of another rank's error at once, not when its time is over") {
  const auto begin = std::chrono::steady_clock::now();
  const std::string error = error_of(3, [](const Communicator& world) {
    if (world.rank() > 0) return world.barrier();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the others wait by then
    throw Error("out of luck");
  });
  CHECK_THAT(error, ContainsSubstring("out of luck"));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));  // of 60
}

TEST_CASE("collectives: every verb, on 1 to 8 ranks, in every dtype") {
  CHECK(testing::wrong_verbs(run_threads, on_host) == "");
}

TEST_CASE("collectives: groups are split by color and ordered by key") {
  CHECK(testing::wrong_splits(run_threads, on_host) == "");
}

TEST_CASE("collectives: 16 bits are added in the accumulator's type and rounded once") {
  Findings findings;
  run_ranks({.ranks = 4}, [&](const Communicator& world) { testing::check_rounding(world, Device{}, findings); });
  CHECK(findings.wrong() == "");
}

TEST_CASE("collectives: a sum of another number of numbers than was said is refused") {
  AsyncSum sum(Communicator(), 2, Device{});
  CHECK_THROWS_WITH(sum.begin(std::array<double, 3>{}), "a sum of 2 numbers is given 3");
}

// Their order is that of ranks, whichever comes first: bits are compared.
TEST_CASE("collectives: a sum that was begun is the sum that is waited for") {
  Findings findings;
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::emulator}) {
    if (kind == DeviceKind::emulator && !ISOBAR_HAS_EMULATOR) continue;
    const Device device{kind};
    run_ranks({.ranks = 3}, [&](const Communicator& world) {
      const StreamScope stream(std::make_shared<gpu::OwnedStream>(device));
      AsyncSum begun(world, 2, device);
      for (int turn = 1; turn <= 3; ++turn) {
        const std::array<double, 2> mine{0.1 * turn / (1 + 3 * world.rank()), world.rank() == turn ? 1.0 : 0.0};
        std::array<double, 2> sums = mine;
        world.all_reduce(sums);
        begun.begin(mine);
        gpu::synchronize(device, current_stream());
        const std::vector<double> values = begun.values();
        findings.expect(values == std::vector<double>(sums.begin(), sums.end()), concat("turn ", turn));
      }
    });
  }
  CHECK(findings.wrong() == "");
}

TEST_CASE("collectives: what has come to a ledger since are its calls and its bytes") {
  CommLedger before;
  before.add("dp", Verb::all_reduce, 2, 80);
  before.add("tp", Verb::broadcast, 1, 8);
  CommLedger after = before;
  CHECK(after.since(before).is_empty());
  after.add("dp", Verb::all_reduce, 3, 40);
  after.add("cp", Verb::barrier, 1, 0);
  const CommLedger since = after.since(before);
  CHECK(since.of("dp", Verb::all_reduce) == Traffic{3, 40});
  CHECK(since.of("tp", Verb::broadcast) == Traffic{0, 0});
  CHECK(since.of("cp", Verb::barrier) == Traffic{1, 0});
  CHECK_FALSE(after == before);
  CommLedger fewer_calls = before;
  fewer_calls.add("tp", Verb::broadcast, -1, 0);  // the same bytes
  CHECK_FALSE(fewer_calls == before);
}

TEST_CASE("collectives: a prediction differs from the count by its calls or by its bytes") {
  CommLedger predicted, counted;
  for (CommLedger* ledger : {&predicted, &counted}) ledger->add("dp", Verb::all_reduce, 2, 80);
  CHECK(compare(predicted, counted).find("differs") == std::string::npos);
  counted.add("dp", Verb::all_reduce, 0, 8);
  CHECK_THAT(compare(predicted, counted), ContainsSubstring("differs"));
  predicted.add("dp", Verb::all_reduce, -1, 8);
  CHECK_THAT(compare(predicted, counted), ContainsSubstring("differs"));
  predicted.add("dp", Verb::all_reduce, 1, 0);
  predicted.add("tp", Verb::broadcast, 1, 0);  // a call that never came
  CHECK_THAT(compare(predicted, counted), ContainsSubstring("differs"));
}

TEST_CASE("collectives: a ledger as people read it") {
  CommLedger ledger;
  CHECK(to_text(ledger).empty());
  ledger.add("dp", Verb::all_reduce, 2, 80);
  ledger.add("tp", Verb::barrier, 1, 0);
  ledger.add("tp", Verb::broadcast, 0, 0);
  CHECK(to_text(ledger) ==
        "group     verb                 calls             bytes\n"
        "dp        all_reduce               2                80\n"
        "tp        barrier                  1                 0\n");
  ledger.add("tp", Verb::all_gather, 3, 4);
  CHECK(ledger.total() == Traffic{6, 84});
  CommLedger counted;
  counted.add("tp", Verb::barrier, 1, 0);
  CHECK(compare(counted, counted) ==
        "group     verb                 calls   bytes predicted     calls     bytes counted\n"
        "tp        barrier                  1                 0         1                 0\n");
  CHECK_THAT(compare(CommLedger(), counted),  // a call that nobody has predicted
             ContainsSubstring(
                 "tp        barrier                  0                 0         1                 0   differs\n"));
}

TEST_CASE("collectives: each rank counts its own memory") {
  Findings findings;
  run_ranks({.ranks = 4}, [&](const Communicator& world) {
    const std::size_t before = memory_bytes();
    const auto own = static_cast<std::size_t>(world.rank() + 1) << 20;
    const Storage held(own, Device{});
    world.barrier();  // all hold theirs
    findings.expect(memory_bytes() - before == own, concat(memory_bytes() - before, " bytes"));
    findings.expect(peak_memory_bytes() < before + 2 * own + (1 << 16), "the peak");
    world.barrier();
  });
  CHECK(findings.wrong() == "");
}

TEST_CASE("collectives: the ledger counts calls and bytes of every group") {
  Findings findings;
  run_ranks({.ranks = 4}, [&](const Communicator& world) {
    const Communicator pair = world.split(world.rank() / 2, world.rank(), "pair");
    world.all_reduce(Tensor::zeros({10}, DType::bf16, Device{}));
    pair.all_gather(Tensor::zeros({3}, DType::fp32, Device{}), Tensor::zeros({6}, DType::fp32, Device{}));
    pair.all_gather(Tensor::zeros({3}, DType::fp32, Device{}), Tensor::zeros({6}, DType::fp32, Device{}));
    pair.reduce_scatter(Tensor::zeros({6}, DType::fp64, Device{}), Tensor::zeros({3}, DType::fp64, Device{}));
    pair.split(0, pair.rank(), "alone again").barrier();
    findings.expect(world.ledger().of("world", Verb::all_reduce) == Traffic{1, 20}, "all_reduce");
    findings.expect(pair.ledger().of("pair", Verb::all_gather) == Traffic{2, 48}, "all_gather");
    findings.expect(pair.ledger().of("pair", Verb::reduce_scatter) == Traffic{1, 48}, "reduce_scatter");
    findings.expect(pair.ledger().of("world", Verb::all_gather) == Traffic{}, "nothing");
  });
  CHECK(findings.wrong() == "");
}

TEST_CASE("collectives: calls that do not fit together are an error that names both ranks") {
  const auto zeros = [](std::int64_t n, DType dtype = DType::fp32) { return Tensor::zeros({n}, dtype, Device{}); };
  CHECK_THAT(
      error_of(3, [&](const Communicator& w) { w.all_reduce(zeros(w.rank() == 2 ? 5 : 4)); }),
      ContainsSubstring("call 1 of group world: rank 0 comes to all_reduce of 4 fp32, rank 2 to all_reduce of 5"));
  CHECK_THAT(
      error_of(2, [&](const Communicator& w) { w.all_reduce(zeros(4, w.rank() == 0 ? DType::fp32 : DType::bf16)); }),
      ContainsSubstring("rank 1 to all_reduce of 4 bf16"));
  CHECK_THAT(error_of(2, [&](const Communicator& w) { w.rank() == 0 ? w.barrier() : w.all_reduce(zeros(1)); }),
             ContainsSubstring("rank 0 comes to barrier, rank 1 to all_reduce"));
  CHECK_THAT(
      error_of(2, [&](const Communicator& w) { w.all_reduce(zeros(1), w.rank() == 0 ? Reduce::sum : Reduce::max); }),
      ContainsSubstring("rank 1 to all_reduce (max) of 1 fp32"));
  CHECK_THAT(error_of(2, [&](const Communicator& w) { w.broadcast(zeros(1), w.rank()); }),
             ContainsSubstring("broadcast"));
  CHECK_THAT(error_of(2,
                      [&](const Communicator& w) {
                        const CountList counts = w.rank() == 0 ? CountList{1, 2} : CountList{2, 1};
                        w.all_gather(zeros(1), zeros(3), counts);
                      }),
             ContainsSubstring("comes to all_gather of 3"));
  CHECK_THAT(error_of(2,
                      [&](const Communicator& w) {
                        const CountList to{1, 1}, from{1, w.rank() == 0 ? 2 : 1};
                        w.all_to_all(zeros(2), to, zeros(w.rank() == 0 ? 3 : 2), from);
                      }),
             ContainsSubstring("rank 1 sends 1 elements to rank 0, which expects 2"));
  CHECK_THAT(error_of(2,
                      [&](const Communicator& w) {
                        w.rank() == 0 ? w.send_receive(zeros(4), 1, {}, Call::kNoRank)
                                      : w.send_receive({}, Call::kNoRank, zeros(3), 0);
                      }),
             ContainsSubstring("rank 0 sends 4 elements to rank 1, which expects 3"));
  CHECK_THAT(error_of(2,
                      [&](const Communicator& w) {
                        w.rank() == 0 ? w.send_receive(zeros(4), 1, {}, Call::kNoRank)
                                      : w.send_receive({}, Call::kNoRank, zeros(4, DType::bf16), 0);
                      }),
             ContainsSubstring("rank 0 sends 4 elements to rank 1, which expects 4 of another dtype"));
}

TEST_CASE("collectives: what holds on one rank is true on any") {
  for (const int holder : {-1, 0, 2}) {
    testing::Findings findings;
    run_ranks({.ranks = 3}, [&](const Communicator& world) {
      findings.expect(is_true_on_any(world, world.rank() == holder) == (holder >= 0),
                      concat("rank ", world.rank(), " where it holds on ", holder));
    });
    CHECK(findings.wrong() == "");
  }
}

TEST_CASE("collectives: buffers and counts that do not fit are refused by this rank") {
  const Tensor x = Tensor::zeros({12}, DType::fp32, Device{});
  const auto refused = [&](const std::function<void(const Communicator&)>& call) { return error_of(2, call); };
  for (const int nobody : {-2, 2}) {
    // Either of the two ranks may be the first to say so.
    CHECK_THAT(refused([&](const Communicator& w) { w.send_receive(x, nobody, {}, Call::kNoRank); }),
               ContainsSubstring(concat(": send_receive: to rank ", nobody, " and from rank -1 of 2")));
    CHECK_THAT(refused([&](const Communicator& w) { w.send_receive({}, Call::kNoRank, x, nobody); }),
               ContainsSubstring(concat(": send_receive: to rank -1 and from rank ", nobody, " of 2")));
  }
  CHECK_THAT(refused([&](const Communicator& w) { w.all_gather(x.slice(1, {4}), x.slice(0, {8})); }),
             ContainsSubstring("overlap"));
  CHECK_THAT(refused([&](const Communicator& w) { w.reduce_scatter(x.slice(0, {8}), x.slice(6, {4})); }),
             ContainsSubstring("overlap"));
  const CountList four{4, 4}, odd{4, 3}, negative{9, -1};
  CHECK_THAT(refused([&](const Communicator& w) { w.all_to_all(x.slice(0, {8}), four, x.slice(0, {8}), four); }),
             ContainsSubstring("overlap"));
  CHECK_THAT(refused([&](const Communicator& w) { w.all_gather(x.slice(0, {3}), x.slice(0, {7})); }),
             ContainsSubstring("7 elements are not equal parts for 2 ranks"));
  CHECK_THAT(refused([&](const Communicator& w) { w.all_gather(x.slice(8, {4}), x.slice(0, {8}), odd); }),
             ContainsSubstring("the counts add up to 7, and the tensor has 8"));
  CHECK_THAT(refused([&](const Communicator& w) { w.all_gather(x.slice(8, {4}), x.slice(0, {8}), negative); }),
             ContainsSubstring("a count is -1"));
  CHECK_THAT(refused([&](const Communicator& w) { w.all_gather(x.slice(8, {3}), x.slice(0, {8})); }),
             ContainsSubstring("this rank's part has 3 elements, not 4"));
  for (const int nobody : {-1, 2})
    CHECK_THAT(refused([&](const Communicator& w) { w.broadcast(x, nobody); }),
               ContainsSubstring(concat(": broadcast: the root is rank ", nobody, " of 2")));
  const CountList three{4, 4, 0};
  CHECK_THAT(refused([&](const Communicator& w) { w.all_gather(x.slice(8, {4}), x.slice(0, {8}), three); }),
             ContainsSubstring(": all_gather: 3 counts for 2 ranks"));
  CHECK_THAT(refused([&](const Communicator& w) { w.reduce_scatter(x.slice(0, {8}), x.slice(8, {3})); }),
             ContainsSubstring(": reduce_scatter: this rank's part has 3 elements, not 4"));
  CHECK_THAT(refused([&](const Communicator& w) { w.all_to_all(x.slice(0, {8}), four, x.slice(8, {4}), four); }),
             ContainsSubstring(": all_to_all: the counts add up to 8, and the tensor has 4 elements"));
  std::vector<std::byte> own(3), all(8);
  CHECK_THAT(refused([&](const Communicator& w) { w.all_gather_bytes(own, all); }),
             ContainsSubstring(": all_gather: this rank's part has 3 bytes, not 4"));
}

TEST_CASE("collectives: what is sent and what is received may touch each other") {
  Findings findings;
  run_ranks({.ranks = 2}, [&](const Communicator& world) {
    for (const bool part_is_behind : {true, false}) {
      Tensor x = Tensor::zeros({12}, DType::fp32, Device{});
      const Tensor all = x.slice(part_is_behind ? 0 : 4, {8});
      Tensor mine = x.slice(part_is_behind ? 8 : 0, {4});
      mine.set_values(std::vector<double>(4, world.rank() + 1.0));
      world.all_gather(mine, all);
      findings.expect_values(all, {1, 1, 1, 1, 2, 2, 2, 2}, "all");
    }
  });
  CHECK(findings.wrong() == "");
}

TEST_CASE("collectives: both tensors of a call have one dtype") {
  const auto zeros = [](std::int64_t n, DType dtype) { return Tensor::zeros({n}, dtype, Device{}); };
  const Tensor narrow = zeros(4, DType::bf16), wide = zeros(4, DType::fp32), whole = zeros(8, DType::fp32);
  const CountList two{2, 2};
  const auto refused = [](const Body& call, const std::string& sentence) {
    CHECK_THAT(error_of(2, call), ContainsSubstring(sentence));
  };
  refused([&](const Communicator& w) { w.all_gather(narrow, whole); },
          ": all_gather: a tensor of bf16 on cpu and one of fp32 on cpu");
  refused([&](const Communicator& w) { w.reduce_scatter(whole, narrow); },
          ": reduce_scatter: a tensor of bf16 on cpu and one of fp32 on cpu");
  refused([&](const Communicator& w) { w.all_to_all(wide, two, narrow, two); },
          ": all_to_all: a tensor of fp32 on cpu and one of bf16 on cpu");
  refused([&](const Communicator& w) { w.send_receive(wide, 1 - w.rank(), narrow, 1 - w.rank()); },
          ": send_receive: a tensor of fp32 on cpu and one of bf16 on cpu");
}

TEST_CASE("collectives: one rank gets what it sends to itself, all of it") {
  const Communicator alone;
  Tensor x = Tensor::zeros({4}, DType::fp32, Device{}), y = Tensor::zeros({4}, DType::fp32, Device{});
  x.set_values({1, 2, 3, 4});
  alone.send_receive(x, 0, y, 0);
  CHECK(y.to_vector() == x.to_vector());
  CHECK_THROWS_WITH(alone.send_receive(x, 0, y.slice(0, {3}), 0),
                    "send_receive of 4 fp32: one rank sends 4 elements to itself, and receives 3");
  CHECK(alone.ledger().is_empty());
}

TEST_CASE("collectives: a call is told by its verb, its elements and their type, and counts the bytes of the whole") {
  const CountList four{4}, parts{1, 2, 3};
  const auto check_call = [](const Call& call, const std::string& text, std::int64_t bytes) {
    CHECK(to_text(call) == text);
    CHECK(call.payload() == bytes);
  };
  check_call({.verb = Verb::all_reduce, .dtype = DType::bf16, .sends = four, .receives = four}, "all_reduce of 4 bf16",
             8);
  check_call({.verb = Verb::all_gather, .dtype = DType::fp32, .sends = four, .receives = parts}, "all_gather of 6 fp32",
             24);
  check_call({.verb = Verb::reduce_scatter, .dtype = DType::fp64, .sends = parts, .receives = four},
             "reduce_scatter of 6 fp64", 48);
  check_call({.verb = Verb::broadcast, .sends = four, .receives = four}, "broadcast of 4 bytes", 4);
  check_call({.verb = Verb::all_to_all, .dtype = DType::fp32, .sends = parts, .receives = four}, "all_to_all of 6 fp32",
             24);
  check_call({.verb = Verb::send_receive, .dtype = DType::i32, .sends = four, .receives = parts},
             "send_receive of 4 i32", 16);
  check_call({}, "barrier", 0);
}

TEST_CASE("collectives: a message needs a tensor for each rank that it names") {
  const Tensor x = Tensor::zeros({4}, DType::fp32, Device{});
  for (const bool sends : {true, false})
    CHECK_THAT(error_of(2,
                        [&](const Communicator& w) {
                          if (w.rank() == 1) return;
                          sends ? w.send_receive({}, 1, x, 1) : w.send_receive(x, 1, {}, 1);
                        }),
               ContainsSubstring("send_receive: a tensor without a rank, or a rank without a tensor"));
}

TEST_CASE("collectives: each rank's kernels have the threads asked for, and the caller's thread is rank 0") {
  const int before = omp_get_max_threads();
  std::vector<int> threads(3);
  const auto caller = std::this_thread::get_id();
  run_ranks({.ranks = 3, .threads_per_rank = 2}, [&](const Communicator& world) {
    threads[static_cast<std::size_t>(world.rank())] = omp_get_max_threads();
    if ((std::this_thread::get_id() == caller) != (world.rank() == 0)) throw_error("another thread");
  });
  omp_set_num_threads(before);
  CHECK(threads == std::vector<int>{2, 2, 2});
  CHECK_THROWS_WITH(run_ranks({.ranks = 0}, [](const Communicator&) {}), "ranks must be at least 1, not 0");
}

TEST_CASE("collectives: an error of one rank wakes all and is told once, with its rank") {
  std::atomic<int> woken = 0;
  const std::string error = error_of(4, [&](const Communicator& world) {
    if (world.rank() == 2) throw_error("the disk is full");
    try {
      world.barrier();
    } catch (const Error&) {
      ++woken;
      throw;
    }
  });
  CHECK(error == "rank 2: the disk is full");
  CHECK(woken == 3);
  CHECK_THROWS_AS(run_ranks({.ranks = 2}, [](const Communicator&) { throw std::bad_alloc(); }), std::bad_alloc);
}

TEST_CASE("collectives: calls are compared where ISOBAR_COMM_CHECK is 1, and nowhere else") {
  for (const auto& [value, compares] : {std::pair("1", true), std::pair("0", false), std::pair("", false)}) {
    const testing::EnvironmentVariable variable("ISOBAR_COMM_CHECK", value);
    CHECK(compares_calls() == compares);
  }
  const testing::EnvironmentVariable none("ISOBAR_COMM_CHECK", nullptr);
  CHECK_FALSE(compares_calls());
}

TEST_CASE("collectives: a rank that does not come is named when the time is over") {
  const std::string error = error_of(
      3,
      [](const Communicator& world) {
        const Tensor x = Tensor::zeros({4}, DType::fp32, Device{});
        world.all_reduce(x);
        if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(4));
        world.all_reduce(x);
      },
      2);
  CHECK_THAT(error,
             ContainsSubstring(": rank 1 has not come to all_reduce of 4 fp32, call 2 of group world, within 2 s"));
}

TEST_CASE("collectives: who does not come to a call of some ranks is named by its number among all") {
  const std::string error = error_of(
      3,
      [](const Communicator& world) {
        const Communicator pair = world.split(world.rank() == 0 ? 0 : 1, world.rank(), "pair");
        const Tensor x = Tensor::zeros({4}, DType::fp32, Device{});
        if (world.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        if (world.rank() > 0) pair.all_reduce(x);
      },
      0.5);
  CHECK_THAT(error, ContainsSubstring(": rank 2 has not come to all_reduce of 4 fp32, call 1 of group pair"));
}

TEST_CASE("collectives: what is no plugin for MPI of this program is refused by name") {
  const testing::EnvironmentVariable absent("ISOBAR_MPI_PLUGIN", "/nowhere/none.so");
  CHECK_THROWS_WITH(load_mpi(), ContainsSubstring("ISOBAR_MPI_PLUGIN: /nowhere/none.so: "));
  const testing::EnvironmentVariable other("ISOBAR_MPI_PLUGIN", "libz.so.1");
  CHECK_THROWS_WITH(load_mpi(), "isobar_mpi.so is of another isobar than this program");
  const testing::EnvironmentVariable none("ISOBAR_MPI_PLUGIN", nullptr);
  CHECK_THROWS_WITH(
      load_mpi(), "the backend mpi: this isobar was built without MPI (there is no isobar_mpi.so beside the program)");
}

TEST_CASE("a planted fault that is slow has a number of seconds that a clock can count") {
  CHECK(Fault::parse("rank=1 call=2 do=slow:0.5").seconds == 0.5);
  CHECK(Fault::parse("rank=1 call=2 do=slow:1e6").seconds == 1e6);
  for (const char* seconds : {"1e300", "1e7", "nan", "inf", "-1"})
    CHECK_THROWS_WITH(Fault::parse("rank=1 call=2 do=slow:" + std::string(seconds)), ContainsSubstring("ISOBAR_FAULT"));
  CHECK_THROWS_WITH(Fault::parse("rank=1 call=2 do=slow:1000001"),
                    "ISOBAR_FAULT=\"rank=1 call=2 do=slow:1000001\": at most slow:1e+06");
  CHECK_THROWS_WITH(Fault::parse("rank=1 call=2x do=die"),
                    "ISOBAR_FAULT=\"rank=1 call=2x do=die\": '2x' is not a number");
}

TEST_CASE("a planted fault is of one rank and one call, in whole numbers") {
  for (const char* wrong :
       {"rank=1,2 call=3 do=die", "rank=1x call=2 do=die", "rank=1 call=2.5 do=die", "rank=-1 call=2 do=die",
        "rank=1 call=0 do=die", "rank= call=1 do=die", "call=1 do=die", "rank=1 do=die", "rank=1 call=2", ""})
    CHECK_THROWS_WITH(Fault::parse(wrong), ContainsSubstring("ISOBAR_FAULT"));
  const Fault fault = Fault::parse("do=slow:2.5 call=7 rank=3");
  CHECK(fault.rank == 3);
  CHECK(fault.call == 7);
  using Kind = Fault::Kind;
  CHECK(fault.kind == Kind::slow);
  CHECK(fault.seconds == 2.5);
  for (const auto& [name, kind] :
       {std::pair("die", Kind::die), std::pair("throw", Kind::fail), std::pair("hang", Kind::hang),
        std::pair("slow", Kind::slow), std::pair("garble", Kind::wrong_count), std::pair("skew", Kind::skew)})
    CHECK(Fault::parse(concat("rank=1 call=1 do=", name)).kind == kind);
  CHECK_THROWS_WITH(Fault::parse("rank=1 call=1 do=explode"),
                    ContainsSubstring("'explode' is not one of die, throw, hang, slow:SECONDS, garble, skew"));
  CHECK_THROWS_WITH(Fault::parse("rank=1 calls=1 do=die"), ContainsSubstring("'calls' is not one of rank, call, do"));
  const testing::EnvironmentVariable empty("ISOBAR_FAULT", "");
  CHECK(!Fault::from_environment());
  const testing::EnvironmentVariable none("ISOBAR_FAULT", nullptr);
  CHECK(!Fault::from_environment());
}

TEST_CASE("a planted fault of numbers changes the first one of its rank's call by a hundredth") {
  const testing::EnvironmentVariable fault("ISOBAR_FAULT", "rank=1 call=2 do=skew");
  Findings findings;
  run_ranks({.ranks = 2}, [&](const Communicator& world) {
    Tensor x = Tensor::zeros({3}, DType::fp64, Device{});
    const auto sum = [&](const std::vector<double>& values) {
      x.set_values(values);
      world.all_reduce(x);
      return x.to_vector();
    };
    findings.expect(sum({100, 200, 300}) == std::vector<double>{200, 400, 600}, "the first call");
    findings.expect(sum({100, 200, 300}) == std::vector<double>{201, 400, 600}, "the second call");
    findings.expect(sum({100, 200, 300}) == std::vector<double>{200, 400, 600}, "the third call");
  });
  CHECK(findings.wrong() == "");
}

TEST_CASE("a planted fault of a count hands in one element less, and one that is slow comes late") {
  {
    const testing::EnvironmentVariable fault("ISOBAR_FAULT", "rank=1 call=1 do=garble");
    CHECK_THAT(error_of(2,
                        [](const Communicator& world) {
                          const Tensor mine = Tensor::zeros({4}, DType::fp32, Device{});
                          world.all_gather(mine, Tensor::zeros({8}, DType::fp32, Device{}));
                        }),
               ContainsSubstring("call 1 of group world: rank 1 hands in 3 elements, the others expect 4"));
  }
  const testing::EnvironmentVariable fault("ISOBAR_FAULT", "rank=1 call=1 do=slow:0.3");
  const auto begin = std::chrono::steady_clock::now();
  run_ranks({.ranks = 2}, [](const Communicator& world) { world.barrier(); });
  CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(300));
}

TEST_CASE("a planted fault counts the calls of all groups of its rank") {
  const testing::EnvironmentVariable fault("ISOBAR_FAULT", "rank=1 call=4 do=throw");
  const std::string error = error_of(
      2,
      [](const Communicator& world) {
        const Communicator other = world.split(0, world.rank(), "other");
        for (std::int64_t n = 1; n < 9; ++n)
          (n % 2 == 0 ? world : other).all_reduce(Tensor::zeros({n}, DType::fp32, Device{}));
      },
      5);
  CHECK_THAT(error, ContainsSubstring(
                        "rank 1: ISOBAR_FAULT: an error was asked for at all_reduce of 4 fp32, call 4 of this rank"));
}
