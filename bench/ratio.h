// How the times of two programs that took turns compare, and what may be said of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace isobar::bench {

// Of times of a new program over those of an old one; below 1 the new one is quicker.
struct Ratio {
  double median;
  double low, high;  // the median of endlessly many rounds lies between them, but for 5 of 100 comparisons
};

enum class Verdict { faster, slower, within_noise };

// Two programs of the same sources lie elsewhere in memory, and differ by as much.
constexpr double kLeastDifference = 0.02;

// The k for which the median of endlessly many rounds lies between the k-th smallest and the k-th largest of n rounds
// but in 5 of 100 cases; 0 where n is below six, too few for any. A round is as often above that median as below it: k
// is the largest number of heads that n coins fall short of in no more than 2.5 of 100 cases.
inline std::size_t rank_of_bound(std::size_t n) {
  double exactly = 1;  // the probability of `heads` heads
  for (std::size_t i = 0; i < n; ++i) exactly /= 2;
  double at_most = exactly;
  std::size_t heads = 0;
  while (heads < n && 2 * at_most <= 0.05) {
    exactly *= static_cast<double>(n - heads) / static_cast<double>(heads + 1);
    at_most += exactly;
    ++heads;
  }
  return heads;
}

// Of pairs of times, one pair a round, of which there are six or more. A round in which the machine did something else
// counts as a round, however long it took.
inline Ratio ratio_of(const std::vector<double>& now, const std::vector<double>& old) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < now.size(); ++i) ratios.push_back(now[i] / old[i]);
  std::sort(ratios.begin(), ratios.end());
  const std::size_t n = ratios.size(), k = rank_of_bound(n);
  return {.median = (ratios[(n - 1) / 2] + ratios[n / 2]) / 2, .low = ratios[k - 1], .high = ratios[n - k]};
}

inline Verdict verdict_of(const Ratio& ratio) {
  if (ratio.high < 1 && ratio.median < 1 - kLeastDifference) return Verdict::faster;
  if (ratio.low > 1 && ratio.median > 1 + kLeastDifference) return Verdict::slower;
  return Verdict::within_noise;
}

inline const char* name_of(Verdict verdict) {
  return verdict == Verdict::faster ? "faster" : verdict == Verdict::slower ? "slower" : "within the noise";
}

}  // namespace isobar::bench
