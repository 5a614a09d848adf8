// Weights of rows by the area of their cells.
#include "data/fields/latitude.h"

#include <cmath>
#include <numbers>
#include <vector>

#include "kernels/common/check.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::Approx;
using testing::ContainsSubstring;

namespace {

double sine(double degrees) {
  return std::sin(degrees * std::numbers::pi / 180);
}

}  // namespace

TEST_CASE("latitude: weights of cells by hand, for a region, a globe with poles and one without, in both directions") {
  // Borders 90, 60, 30, 0, ...: no border is beyond a pole.
  const std::vector<double> with_poles{90, 45, 0, -45, -90};
  const double cap = 1 - sine(67.5), belt = sine(67.5) - sine(22.5), equator = 2 * sine(22.5);
  const std::vector<double> w = cell_weights(with_poles);
  REQUIRE(w.size() == 5);
  for (const auto& [row, area] : {std::pair(0, cap), {1, belt}, {2, equator}, {3, belt}, {4, cap}})
    CHECK(w[static_cast<std::size_t>(row)] == Approx(5 * area / 2).epsilon(1e-14));  // the areas' sum is 2

  const std::vector<double> without = cell_weights(std::vector<double>{60, 0, -60});
  CHECK(without[0] == Approx(3 * (1 - 0.5) / 2).epsilon(1e-14));
  CHECK(without[1] == Approx(3 * 1.0 / 2).epsilon(1e-14));

  // A region: the outer borders are half a spacing beyond, 80 and 20.
  const std::vector<double> region = cell_weights(std::vector<double>{70, 50, 30});
  const double sum = sine(80) - sine(20);
  CHECK(region[0] == Approx(3 * (sine(80) - sine(60)) / sum).epsilon(1e-14));
  CHECK(region[2] == Approx(3 * (sine(40) - sine(20)) / sum).epsilon(1e-14));

  const std::vector<double> upwards = cell_weights(std::vector<double>{30, 50, 70});
  CHECK(upwards[0] == Approx(region[2]).epsilon(1e-14));
  CHECK(cell_weights(std::vector<double>{12}) == std::vector<double>{1});
  CHECK_THROWS_WITH(cell_weights(std::vector<double>{10, 20, 15}), ContainsSubstring("neither rise nor fall: 20, 15"));
  CHECK_THROWS_WITH(latitude_weights(LatitudeWeights::cells, {}, 4, "X.h5"),
                    ContainsSubstring("X.h5 has no latitudes"));
  CHECK(latitude_weights(LatitudeWeights::tutorial, std::vector<double>{10, 20, 30}, 3, "") ==
        tutorial_latitude_weights(3));
  CHECK(latitude_weights(LatitudeWeights::cos, {}, 3, "") == tutorial_latitude_weights(3));
}
