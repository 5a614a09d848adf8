// The judgement of isobar-bench --against PROGRAM, on times that are made up.
#include "bench/ratio.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/common/rng.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

using bench::Ratio;
using bench::ratio_of;
using bench::Verdict;
using bench::verdict_of;

// n times that vary by up to `spread` of themselves, evenly.
std::vector<double> times(std::size_t n, double seconds, double spread, std::uint64_t seed) {
  std::vector<double> found;
  for (std::size_t i = 0; i < n; ++i) {
    const double unit = static_cast<double>(philox4x32(seed, 0, i).word[0]) * 0x1p-32;
    found.push_back(seconds * (1 + spread * (unit - 0.5)));
  }
  return found;
}

}  // namespace

TEST_CASE("isobar-bench's ratio: its bounds are those of coins") {
  // 2·(1 + 9)/2^9 = 0.039, and with the third smallest 2·(1 + 9 + 36)/2^9 = 0.18.
  CHECK(bench::rank_of_bound(9) == 2);
  CHECK(bench::rank_of_bound(5) == 0);  // 2/2^5 = 0.0625
  CHECK(bench::rank_of_bound(6) == 1);  // 2/2^6 = 0.031
  CHECK(bench::rank_of_bound(20) == 6);
  const std::vector<double> ones(9, 1.0);
  const Ratio ratio = ratio_of({9, 1, 2, 8, 3, 7, 4, 6, 5}, ones);
  CHECK(ratio.median == 5);
  CHECK(ratio.low == 2);
  CHECK(ratio.high == 8);
  CHECK(ratio_of({1, 2, 3, 4, 5, 6}, std::vector<double>(6, 2.0)).median == 1.75);
}

TEST_CASE("isobar-bench's ratio: faster, slower, and neither") {
  const std::vector<double> old = times(9, 1e-3, 0.1, 1);
  CHECK(verdict_of(ratio_of(times(9, 0.7e-3, 0.1, 2), old)) == Verdict::faster);
  CHECK(verdict_of(ratio_of(times(9, 1.4e-3, 0.1, 2), old)) == Verdict::slower);
  CHECK(verdict_of(ratio_of(old, old)) == Verdict::within_noise);
  // Without any noise, too, less than two programs differ by that lie elsewhere in memory.
  std::vector<double> a_little_more = old, more = old;
  for (double& time : a_little_more) time *= 1.01;
  for (double& time : more) time *= 1.03;
  CHECK(verdict_of(ratio_of(a_little_more, old)) == Verdict::within_noise);
  CHECK(verdict_of(ratio_of(more, old)) == Verdict::slower);
  CHECK(verdict_of(ratio_of(old, more)) == Verdict::faster);
  // One round in which the machine did something else changes nothing; three of nine are no knowledge.
  std::vector<double> disturbed = more;
  disturbed[4] /= 10;
  CHECK(verdict_of(ratio_of(disturbed, old)) == Verdict::slower);
  disturbed[1] /= 10, disturbed[8] /= 10;
  CHECK(verdict_of(ratio_of(disturbed, old)) == Verdict::within_noise);
}

TEST_CASE("isobar-bench's ratio: of equal programs on a busy machine few are called different") {
  int called_different = 0;
  constexpr int kComparisons = 2000;
  for (std::uint64_t i = 0; i < kComparisons; ++i) {
    const Verdict verdict = verdict_of(ratio_of(times(9, 1, 0.5, 2 * i), times(9, 1, 0.5, 2 * i + 1)));
    called_different += verdict == Verdict::within_noise ? 0 : 1;
  }
  CHECK(called_different < kComparisons * 5 / 100);
  CHECK(called_different > kComparisons / 100);  // else the judgement would see less than it could
}

}  // namespace isobar::testing
