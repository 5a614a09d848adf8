// Orders equal PyTorch's and NumPy's; samplers visit what they promise.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include "data/era5/era5.h"
#include "data/random_order.h"
#include "data/sampler.h"
#include "kernels/common/check.h"
#include "tests/harness/data_files.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;
using Order = std::vector<std::int64_t>;

namespace {

Order head(const Order& order, std::size_t n) {
  return {order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n)};
}

Order sorted(Order order) {
  std::ranges::sort(order);
  return order;
}

Order iota(std::int64_t n) {
  Order order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace

TEST_CASE("random order: torch.randperm, number by number") {
  CHECK(torch_randperm(10, 0) == Order{4, 1, 7, 5, 3, 9, 0, 8, 6, 2});
  CHECK(head(torch_randperm(10, 1), 8) == Order{5, 6, 1, 2, 0, 8, 9, 3});
  CHECK(head(torch_randperm(512, 0), 8) == Order{172, 137, 235, 159, 195, 269, 373, 115});
  CHECK(head(torch_randperm(37960, 0), 8) == Order{9844, 34438, 1743, 23596, 22031, 25164, 11793, 22823});
  CHECK(head(torch_randperm(37960, 1), 4) == Order{29165, 129, 3336, 4817});
  CHECK(sorted(torch_randperm(1000, 7)) == iota(1000));
  CHECK(torch_randperm(1, 3) == Order{0});
  CHECK(torch_randperm(0, 3).empty());
}

TEST_CASE("random order: numpy.random.default_rng().permutation, number by number") {
  CHECK(head(numpy_permutation(10, 333), 8) == Order{5, 8, 2, 1, 4, 9, 7, 6});
  CHECK(head(numpy_permutation(10, 333, 1), 8) == Order{7, 3, 8, 1, 9, 2, 6, 4});
  CHECK(head(numpy_permutation(512, 333), 8) == Order{42, 111, 58, 499, 119, 488, 428, 373});
  CHECK(head(numpy_permutation(512, 333, 1), 8) == Order{143, 482, 118, 16, 259, 327, 498, 476});
  CHECK(head(numpy_permutation(37960, 333), 8) == Order{21762, 22726, 17094, 27186, 37790, 9410, 19036, 34533});
  CHECK(head(numpy_permutation(37960, 333, 1), 8) == Order{12706, 27159, 36849, 6907, 37583, 5405, 6451, 1104});
}

TEST_CASE("random order: what is too long is refused before memory is taken") {
  constexpr std::int64_t kMostTorch = 214748364, kMostNumpy = std::int64_t{1} << 32;
  for (const std::int64_t n : {std::int64_t{-1}, kMostTorch, kMostNumpy})
    CHECK_THROWS_WITH(torch_randperm(n, 0), "a random order of " + std::to_string(n) + " samples is out of reach");
  for (const std::int64_t n : {std::int64_t{-1}, kMostNumpy})
    CHECK_THROWS_WITH(numpy_permutation(n, 0), ContainsSubstring("samples is out of reach"));
  CHECK(numpy_permutation(0, 1).empty());
  CHECK(numpy_permutation(1, 1) == Order{0});
  CHECK(sorted(numpy_permutation(1000, 7)) == iota(1000));
}

TEST_CASE("sampler: files with holes are named, three at most") {
  const testing::TemporaryFolder folder;
  for (int year = 2001; year <= 2005; ++year) {
    const double start = 8760.0 * (year - 2001);
    std::vector<double> hours = {start, start + 6, start + 12, start + 18, start + 48};
    if (year == 2002) hours = {start, start + 6, start + 48, start + 54, start + 96};
    testing::write_labelled_fields(folder / (std::to_string(year) + ".h5"), {5, 1, 2, 2}, {.hours = hours});
  }
  const auto name = [&](int year) { return std::string(folder / (std::to_string(year) + ".h5")); };
  CHECK(describe_left_out(Era5Dataset({.paths = {folder.path()}}), SamplerKind::all_pairs) ==
        "6 pairs left out: 1 hole in time in " + name(2001) + ", 2 holes in time in " + name(2002) +
            ", 1 hole in time in " + name(2003) + ", and more in 2 other files");
}

TEST_CASE("sampler: ragged years, ranges, and pairs that never span two files") {
  const testing::TemporaryFolder folder;
  testing::write_fields(folder / "2001.h5", {5, 1, 2, 2});
  testing::write_fields(folder / "2002.h5", {3, 1, 2, 2});
  testing::write_fields(folder / "2003.h5", {1, 1, 2, 2});  // too short for a pair
  testing::write_fields(folder / "2004.h5", {4, 1, 2, 2});
  const Era5Dataset all({.paths = {folder.path()}});
  CHECK(list_samples(all, SamplerKind::all_pairs) == Order{0, 1, 2, 3, 5, 6, 9, 10, 11});
  CHECK(list_samples(all, SamplerKind::all_pairs, 4) == Order{0, 1, 2, 3});
  CHECK(list_samples(all, SamplerKind::all_pairs, 100).size() == 9);

  const Era5Dataset wide({.paths = {folder.path()}, .dt = 2});
  CHECK(list_samples(wide, SamplerKind::all_pairs) == Order{0, 1, 2, 5, 9, 10});

  const Era5Dataset part({.paths = {folder.path()}, .range = StepRange{2, 7}});
  CHECK(list_samples(part, SamplerKind::all_pairs) == Order{2, 3, 5});  // 4 and 6 have no partner within the range

  const Era5Dataset too_wide({.paths = {folder.path()}, .dt = 5});
  CHECK_THROWS_WITH(list_samples(too_wide, SamplerKind::all_pairs), testing::ContainsSubstring("no two steps dt = 5"));
}

TEST_CASE("sampler: the tutorial's index rule, quirks and all") {
  const testing::TemporaryFolder folder;
  testing::write_fields(folder / "2001.h5", {6, 1, 2, 2});
  testing::write_fields(folder / "2002.h5", {4, 1, 2, 2});
  const Era5Dataset one({.paths = {folder.path()}});
  CHECK(list_samples(one, SamplerKind::tutorial) == Order{1, 1, 2, 3, 4, 1, 7, 7, 8, 7});
  CHECK(list_samples(one, SamplerKind::tutorial, 3) == Order{1, 1, 2});
  const Era5Dataset two({.paths = {folder / "2001.h5"}, .dt = 2});
  CHECK(list_samples(two, SamplerKind::tutorial) == Order{2, 3, 2, 3, 2, 3});
  const Era5Dataset short_year({.paths = {folder / "2002.h5"}, .dt = 2});
  CHECK_THROWS_WITH(list_samples(short_year, SamplerKind::tutorial), testing::ContainsSubstring("2002.h5 has 4 steps"));
  CHECK(parse_sampler("tutorial") == SamplerKind::tutorial);
  CHECK_THROWS_AS(parse_sampler("random"), Error);
}

TEST_CASE("sampler: pairs over a hole in time are left out and counted, with every rule") {
  const testing::TemporaryFolder folder;
  // Steps 0 to 3, then a day is missing, steps 4 to 6; a clock that was an hour early at step 8.
  testing::write_labelled_fields(folder / "2001.h5", {10, 1, 2, 2}, {.hours = {0, 6, 12, 18, 48, 54, 60, 66, 71, 78}});
  testing::write_labelled_fields(folder / "2002.h5", {4, 1, 2, 2}, {.hours = {8760, 8766, 8772, 8778}});
  const std::string path = folder / "2001.h5";
  const Era5Dataset one({.paths = {folder.path()}});
  CHECK(list_samples(one, SamplerKind::all_pairs) == Order{0, 1, 2, 4, 5, 6, 10, 11, 12});
  CHECK(describe_left_out(one, SamplerKind::all_pairs) == "3 pairs left out: 3 holes in time in " + path);
  CHECK(list_samples(one, SamplerKind::all_pairs, 4) == Order{0, 1, 2, 4});
  const Era5Dataset two({.paths = {path}, .dt = 2});
  CHECK(list_samples(two, SamplerKind::all_pairs) == Order{0, 1, 4, 5, 7});  // 66 to 78 are two regular steps

  const Era5Dataset part({.paths = {folder.path()}, .range = StepRange{1, 6}});
  CHECK(list_samples(part, SamplerKind::all_pairs) == Order{1, 2, 4});
  CHECK(describe_left_out(part, SamplerKind::all_pairs) == "1 pair left out: 1 hole in time in " + path);

  CHECK(list_samples(one, SamplerKind::tutorial) == Order{1, 1, 2, 4, 5, 6, 1, 11, 11, 12, 11});
  CHECK(describe_left_out(one, SamplerKind::tutorial) == "3 pairs left out: 3 holes in time in " + path);

  const Era5Dataset whole({.paths = {folder / "2002.h5"}});
  CHECK(describe_left_out(whole, SamplerKind::all_pairs) == "");
  const Era5Dataset none({.paths = {path}, .range = StepRange{7, 9}});
  CHECK_THROWS_WITH(list_samples(none, SamplerKind::all_pairs), testing::ContainsSubstring("without a hole in time"));
}

TEST_CASE("sampler: the order is a function of seed and epoch, and ranks share it without overlap") {
  const Order samples = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
  const Sampler alone(samples, true, 5);
  Order expected;
  for (std::int64_t i : torch_randperm(11, 5 + 3)) expected.push_back(samples[static_cast<std::size_t>(i)]);
  CHECK(alone.order(3) == expected);
  CHECK(alone.order(3) != alone.order(4));
  CHECK(Sampler(samples, false).order(7) == samples);

  Order joined;
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    const Sampler sampler(samples, true, 5, rank, 3);
    const Order mine = sampler.order(3);
    CHECK(static_cast<std::int64_t>(mine.size()) == sampler.share());
    CHECK(sampler.smallest_share() == 3);
    for (std::size_t i = 0; i < mine.size(); ++i) CHECK(mine[i] == expected[3 * i + static_cast<std::size_t>(rank)]);
    joined.insert(joined.end(), mine.begin(), mine.end());
  }
  CHECK(sorted(joined) == samples);
}
