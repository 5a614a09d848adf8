// Every verb on every backend: one list of cases. Values are whole numbers, so that results are exact in every dtype;
// what nothing has written is NaN.
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "comm/thread_ranks.h"
#include "tests/harness/findings.h"
#include "tests/harness/testing.h"

using namespace isobar;
using isobar::testing::ContainsSubstring;
using isobar::testing::Findings;

namespace {

using Body = std::function<void(const Communicator& world)>;
using CountList = std::vector<std::int64_t>;

constexpr DType kDtypes[] = {DType::fp64, DType::fp32, DType::bf16, DType::fp16, DType::i32};

Tensor host(const std::vector<double>& values, DType dtype) {
  Tensor x = Tensor::empty({static_cast<std::int64_t>(values.size())}, dtype, Device{});
  x.set_values(values);
  return x;
}

Tensor unwritten(std::int64_t n, DType dtype) {
  const double nothing = dtype == DType::i32 ? -77 : std::numeric_limits<double>::quiet_NaN();
  return host(std::vector<double>(static_cast<std::size_t>(n), nothing), dtype);
}

// Whole numbers of rank `rank`, small enough that sums of eight are exact in bf16.
double value(int rank, std::int64_t i) {
  return static_cast<double>((7 * rank + 3 * i) % 16 - 5);
}
std::vector<double> values(int rank, std::int64_t n, std::int64_t first = 0) {
  std::vector<double> x;
  for (std::int64_t i = 0; i < n; ++i) x.push_back(value(rank, first + i));
  return x;
}

// Ragged, with nothing for some: 0, 5, 3, 8, 1, ... of rank r.
std::int64_t ragged(int rank) {
  constexpr std::int64_t kCounts[] = {3, 0, 5, 1025, 1, 0, 8, 2};
  return kCounts[rank];
}
CountList ragged_counts(int ranks) {
  CountList counts;
  for (int r = 0; r < ranks; ++r) counts.push_back(ragged(r));
  return counts;
}
std::int64_t total(const CountList& counts) {
  std::int64_t sum = 0;
  for (const std::int64_t count : counts) sum += count;
  return sum;
}

void check_all_reduce(const Communicator& g, DType dtype, Findings& findings) {
  for (const std::int64_t n : {std::int64_t{0}, std::int64_t{1}, std::int64_t{7}, std::int64_t{4099}}) {
    for (const Reduce reduce : {Reduce::sum, Reduce::max}) {
      const Tensor x = host(values(g.rank(), n), dtype);
      g.all_reduce(x, reduce);
      std::vector<double> expected = values(0, n);
      for (int r = 1; r < g.size(); ++r)
        for (std::int64_t i = 0; i < n; ++i) {
          double& sum = expected[static_cast<std::size_t>(i)];
          sum = reduce == Reduce::sum ? sum + value(r, i) : std::max(sum, value(r, i));
        }
      findings.expect_values(x, expected, concat("all_reduce ", name_of(dtype)));
    }
  }
}

void check_gather_and_scatter(const Communicator& g, DType dtype, const CountList& counts, bool in_place,
                              Findings& findings) {
  std::int64_t first = 0;
  for (int r = 0; r < g.rank(); ++r) first += counts[static_cast<std::size_t>(r)];
  const std::int64_t own = counts[static_cast<std::size_t>(g.rank())];

  const Tensor all = unwritten(total(counts), dtype);
  Tensor mine = in_place ? all.slice(first, {own}) : Tensor::empty({own}, dtype, Device{});
  mine.set_values(values(g.rank(), own));
  g.all_gather(mine, all, counts);
  std::vector<double> expected;
  for (int r = 0; r < g.size(); ++r)
    for (const double x : values(r, counts[static_cast<std::size_t>(r)])) expected.push_back(x);
  findings.expect_values(all, expected, concat("all_gather ", name_of(dtype)));

  const Tensor parts = host(values(g.rank(), total(counts)), dtype);
  const Tensor sum = in_place ? parts.slice(first, {own}) : unwritten(own, dtype);
  g.reduce_scatter(parts, sum, counts);
  std::vector<double> sums = values(0, own, first);
  for (int r = 1; r < g.size(); ++r)
    for (std::int64_t i = 0; i < own; ++i) sums[static_cast<std::size_t>(i)] += value(r, first + i);
  findings.expect_values(sum, sums, concat("reduce_scatter ", name_of(dtype)));
}

void check_all_to_all(const Communicator& g, DType dtype, Findings& findings) {
  // Rank a sends (a + 2 b) % 5 elements to rank b.
  const auto count = [](int from, int to) { return static_cast<std::int64_t>((from + 2 * to) % 5); };
  CountList to, from;
  std::vector<double> sent, expected;
  for (int r = 0; r < g.size(); ++r) {
    to.push_back(count(g.rank(), r));
    from.push_back(count(r, g.rank()));
    for (const double x : values(g.rank(), to.back(), 10 * r)) sent.push_back(x);
    for (const double x : values(r, from.back(), 10 * g.rank())) expected.push_back(x);
  }
  const Tensor receive = unwritten(total(from), dtype);
  g.all_to_all(host(sent, dtype), to, receive, from);
  findings.expect_values(receive, expected, concat("all_to_all ", name_of(dtype)));
}

void check_send_receive(const Communicator& g, DType dtype, Findings& findings) {
  const int next = (g.rank() + 1) % g.size(), before = (g.rank() + g.size() - 1) % g.size();
  const Tensor receive = unwritten(ragged(before), dtype);  // round the ring, ragged
  g.send_receive(host(values(g.rank(), ragged(g.rank())), dtype), next, receive, before);
  findings.expect_values(receive, values(before, ragged(before)), concat("send_receive ", name_of(dtype)));

  if (g.size() < 2) return;  // from the last rank to the first only
  const bool sends = g.rank() == g.size() - 1, receives = g.rank() == 0;
  const Tensor got = receives ? unwritten(5, dtype) : Tensor();
  g.send_receive(sends ? host(values(3, 5), dtype) : Tensor(), sends ? 0 : Call::kNobody, got,
                 receives ? g.size() - 1 : Call::kNobody);
  if (receives) findings.expect_values(got, values(3, 5), "send_receive to one");
}

void check_broadcast(const Communicator& g, DType dtype, Findings& findings) {
  for (int root = 0; root < g.size(); ++root) {
    const Tensor x = g.rank() == root ? host(values(root, 1030), dtype) : unwritten(1030, dtype);
    g.broadcast(x, root);
    findings.expect_values(x, values(root, 1030), concat("broadcast ", name_of(dtype)));
    const std::string text =
        g.broadcast_text(g.rank() == root ? std::string(static_cast<std::size_t>(root), 'x') : "?", root);
    findings.expect(text == std::string(static_cast<std::size_t>(root), 'x'), "broadcast_text: " + text);
  }
}

void check_verbs(const Communicator& g, Findings& findings) {
  for (const DType dtype : kDtypes) {
    check_all_reduce(g, dtype, findings);
    check_broadcast(g, dtype, findings);
    check_all_to_all(g, dtype, findings);
    check_send_receive(g, dtype, findings);
    for (const bool in_place : {false, true}) {
      check_gather_and_scatter(g, dtype, ragged_counts(g.size()), in_place, findings);
      check_gather_and_scatter(g, dtype, CountList(static_cast<std::size_t>(g.size()), 9), in_place, findings);
    }
  }
  std::vector<double> numbers{static_cast<double>(g.rank()), 1};
  g.all_reduce(numbers);
  findings.expect(numbers == std::vector<double>{g.size() * (g.size() - 1) / 2.0, static_cast<double>(g.size())},
                  "all_reduce of numbers on the host");
  g.barrier();
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

}  // namespace

TEST_CASE("collectives: every verb, on 1 to 8 ranks, in every dtype") {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    Findings findings;
    run_ranks({.ranks = ranks}, [&](const Communicator& world) { check_verbs(world, findings); });
    INFO(ranks << " ranks");
    CHECK(findings.wrong() == "");
  }
}

TEST_CASE("collectives: groups are split by color and ordered by key") {
  Findings findings;
  run_ranks({.ranks = 7}, [&](const Communicator& world) {
    // Even and odd ranks, in reverse; and what is alone stays alone.
    const Communicator half = world.split(world.rank() % 2, -world.rank(), "half");
    findings.expect(half.size() == (world.rank() % 2 == 0 ? 4 : 3), "size");
    findings.expect(half.rank() == (world.rank() % 2 == 0 ? 6 - world.rank() : 5 - world.rank()) / 2, "rank");
    check_verbs(half, findings);
    const Communicator alone = half.split(half.rank(), 0, "one");
    findings.expect(alone.size() == 1, "alone");
    check_verbs(alone, findings);
    check_verbs(world, findings);
  });
  CHECK(findings.wrong() == "");
}

TEST_CASE("collectives: 16 bits are added in the accumulator's type and rounded once") {
  Findings findings;
  run_ranks({.ranks = 4}, [&](const Communicator& world) {
    // 256 + 1 + 1 + 1 is 259, which bf16 rounds to 260; added one by one in bf16 it would stay 256.
    const Tensor x = host({world.rank() == 0 ? 256.0 : 1.0}, DType::bf16);
    world.all_reduce(x);
    findings.expect_values(x, {260}, "bf16");
    const Tensor largest = host({world.rank() == 2 ? std::nan("") : 1.0}, DType::fp32);
    world.all_reduce(largest, Reduce::max);
    findings.expect(std::isnan(largest.item()), "the largest of a NaN");
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
                        w.rank() == 0 ? w.send_receive(zeros(4), 1, {}, Call::kNobody)
                                      : w.send_receive({}, Call::kNobody, zeros(3), 0);
                      }),
             ContainsSubstring("rank 0 sends 4 elements to rank 1, which expects 3"));
}

TEST_CASE("collectives: buffers and counts that do not fit are refused by this rank") {
  const Tensor x = Tensor::zeros({12}, DType::fp32, Device{});
  const auto refused = [&](const std::function<void(const Communicator&)>& call) { return error_of(2, call); };
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
  CHECK_THAT(refused([&](const Communicator& w) { w.broadcast(x, 2); }), ContainsSubstring("the root is rank 2 of 2"));
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
