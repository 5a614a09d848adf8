// Moments against NumPy's in fp64, of parts merged in any way.
#include "data/moments.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

TEST_CASE("moments: parts of any length, merged, give NumPy's mean and deviation, however large the mean is") {
  std::vector<float> values;
  for (int i = 0; i < 37; ++i) values.push_back(1e7F + static_cast<float>(i * i % 11));
  for (const std::size_t length : {1, 5, 36, 37}) {
    Moments all;
    for (std::size_t first = 0; first < values.size(); first += length)
      all.merge(Moments::of(std::span(values).subspan(first, std::min(length, values.size() - first))));
    CHECK(all.count == 37);
    CHECK(all.mean == Approx(10000003.945945946).epsilon(1e-15));
    CHECK(all.deviation() == Approx(2.9126559435894257).epsilon(1e-9));
  }
}

}  // namespace
}  // namespace isobar::testing
