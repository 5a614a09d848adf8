#include "tests/comm/verb_cases.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace isobar::testing {

Tensor tensor_of(const std::vector<double>& values, DType dtype, Device device) {
  Tensor x = Tensor::empty({static_cast<std::int64_t>(values.size())}, dtype, device);
  x.set_values(values);
  return x;
}

Tensor unwritten(std::int64_t n, DType dtype, Device device) {
  const double nothing = dtype == DType::i32 ? -77 : std::numeric_limits<double>::quiet_NaN();
  return tensor_of(std::vector<double>(static_cast<std::size_t>(n), nothing), dtype, device);
}

// Whole numbers of rank `rank`, small enough that sums of eight are exact in bf16.
static double value(int rank, std::int64_t i) {
  return static_cast<double>((7 * rank + 3 * i) % 16 - 5);
}

std::vector<double> values(int rank, std::int64_t n, std::int64_t first) {
  std::vector<double> x;
  for (std::int64_t i = 0; i < n; ++i) x.push_back(value(rank, first + i));
  return x;
}

namespace {

constexpr DType kVerbDtypes[] = {DType::fp64, DType::fp32, DType::bf16, DType::fp16, DType::i32};

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

void check_all_reduce(const Communicator& g, Device device, DType dtype, Findings& findings) {
  for (const std::int64_t n : {std::int64_t{0}, std::int64_t{1}, std::int64_t{7}, std::int64_t{4099}}) {
    for (const Reduce reduce : {Reduce::sum, Reduce::max}) {
      const Tensor x = tensor_of(values(g.rank(), n), dtype, device);
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

void check_gather_and_scatter(const Communicator& g, Device device, DType dtype, const CountList& counts, bool in_place,
                              Findings& findings) {
  std::int64_t first = 0;
  for (int r = 0; r < g.rank(); ++r) first += counts[static_cast<std::size_t>(r)];
  const std::int64_t own = counts[static_cast<std::size_t>(g.rank())];

  const Tensor all = unwritten(total(counts), dtype, device);
  Tensor mine = in_place ? all.slice(first, {own}) : Tensor::empty({own}, dtype, device);
  mine.set_values(values(g.rank(), own));
  g.all_gather(mine, all, counts);
  std::vector<double> expected;
  for (int r = 0; r < g.size(); ++r)
    for (const double x : values(r, counts[static_cast<std::size_t>(r)])) expected.push_back(x);
  findings.expect_values(all, expected, concat("all_gather ", name_of(dtype)));

  const Tensor parts = tensor_of(values(g.rank(), total(counts)), dtype, device);
  const Tensor sum = in_place ? parts.slice(first, {own}) : unwritten(own, dtype, device);
  g.reduce_scatter(parts, sum, counts);
  std::vector<double> sums = values(0, own, first);
  for (int r = 1; r < g.size(); ++r)
    for (std::int64_t i = 0; i < own; ++i) sums[static_cast<std::size_t>(i)] += value(r, first + i);
  findings.expect_values(sum, sums, concat("reduce_scatter ", name_of(dtype)));
}

void check_all_to_all(const Communicator& g, Device device, DType dtype, Findings& findings) {
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
  const Tensor receive = unwritten(total(from), dtype, device);
  g.all_to_all(tensor_of(sent, dtype, device), to, receive, from);
  findings.expect_values(receive, expected, concat("all_to_all ", name_of(dtype)));
}

void check_send_receive(const Communicator& g, Device device, DType dtype, Findings& findings) {
  const int next = (g.rank() + 1) % g.size(), before = (g.rank() + g.size() - 1) % g.size();
  const Tensor receive = unwritten(ragged(before), dtype, device);  // round the ring, ragged
  g.send_receive(tensor_of(values(g.rank(), ragged(g.rank())), dtype, device), next, receive, before);
  findings.expect_values(receive, values(before, ragged(before)), concat("send_receive ", name_of(dtype)));

  if (g.size() < 2) return;  // from the last rank to the first only
  const bool sends = g.rank() == g.size() - 1, receives = g.rank() == 0;
  const Tensor got = receives ? unwritten(5, dtype, device) : Tensor();
  g.send_receive(sends ? tensor_of(values(3, 5), dtype, device) : Tensor(), sends ? 0 : Call::kNoRank, got,
                 receives ? g.size() - 1 : Call::kNoRank);
  if (receives) findings.expect_values(got, values(3, 5), "send_receive to one");
}

void check_broadcast(const Communicator& g, Device device, DType dtype, Findings& findings) {
  for (int root = 0; root < g.size(); ++root) {
    const Tensor x = g.rank() == root ? tensor_of(values(root, 1030), dtype, device) : unwritten(1030, dtype, device);
    g.broadcast(x, root);
    findings.expect_values(x, values(root, 1030), concat("broadcast ", name_of(dtype)));
    const std::string text =
        g.broadcast_text(g.rank() == root ? std::string(static_cast<std::size_t>(root), 'x') : "?", root);
    findings.expect(text == std::string(static_cast<std::size_t>(root), 'x'), "broadcast_text: " + text);
  }
}

}  // namespace

void check_verbs(const Communicator& g, Device device, Findings& findings) {
  for (const DType dtype : kVerbDtypes) {
    check_all_reduce(g, device, dtype, findings);
    check_broadcast(g, device, dtype, findings);
    check_all_to_all(g, device, dtype, findings);
    check_send_receive(g, device, dtype, findings);
    for (const bool in_place : {false, true}) {
      check_gather_and_scatter(g, device, dtype, ragged_counts(g.size()), in_place, findings);
      check_gather_and_scatter(g, device, dtype, CountList(static_cast<std::size_t>(g.size()), 9), in_place, findings);
    }
  }
  std::vector<double> numbers{static_cast<double>(g.rank()), 1};
  g.all_reduce(numbers);
  findings.expect(numbers == std::vector<double>{g.size() * (g.size() - 1) / 2.0, static_cast<double>(g.size())},
                  "all_reduce of numbers on the host");
  g.barrier();
}

void check_splits(const Communicator& world, Device device, Findings& findings) {
  const Communicator half = world.split(world.rank() % 2, -world.rank(), "half");
  const int evens = (world.size() + 1) / 2, odds = world.size() / 2;
  const bool is_even = world.rank() % 2 == 0;
  findings.expect(half.size() == (is_even ? evens : odds), "size");
  findings.expect(half.rank() == half.size() - 1 - world.rank() / 2, "rank");
  check_verbs(half, device, findings);
  const Communicator alone = half.split(half.rank(), 0, "one");
  findings.expect(alone.size() == 1, "alone");
  check_verbs(alone, device, findings);
  check_verbs(world, device, findings);
}

void check_rounding(const Communicator& world, Device device, Findings& findings) {
  if (world.size() != 4) return;
  // 256 + 1 + 1 + 1 is 259, which bf16 rounds to 260; added one by one in bf16 it would stay 256.
  const Tensor x = tensor_of({world.rank() == 0 ? 256.0 : 1.0}, DType::bf16, device);
  world.all_reduce(x);
  findings.expect_values(x, {260}, "bf16");
  const Tensor all = tensor_of(std::vector<double>(4, world.rank() == 0 ? 256.0 : 1.0), DType::bf16, device);
  const Tensor mine = unwritten(1, DType::bf16, device);
  world.reduce_scatter(all, mine);
  findings.expect_values(mine, {260}, "bf16, scattered");
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16, DType::fp16})
    for (int r = 0; r < world.size(); ++r) {
      const Tensor largest = tensor_of({world.rank() == r ? std::nan("") : 1.0}, dtype, device);
      world.all_reduce(largest, Reduce::max);
      findings.expect(std::isnan(largest.item()), concat("the largest of a NaN of rank ", r, " in ", name_of(dtype)));
    }
}

std::string wrong_verbs(const RunWorld& run, const DeviceOf& device_of) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    Findings findings;
    run(ranks, [&](const Communicator& world) { check_verbs(world, device_of(world.rank()), findings); });
    if (!findings.wrong().empty()) return concat(ranks, " ranks: ", findings.wrong());
  }
  return {};
}

std::string wrong_splits(const RunWorld& run, const DeviceOf& device_of) {
  Findings findings;
  run(7, [&](const Communicator& world) { check_splits(world, device_of(world.rank()), findings); });
  return findings.wrong();
}

}  // namespace isobar::testing
