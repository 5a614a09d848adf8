// Whether the columns of a grid go round the globe.
#include "data/fields/longitude.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tests/harness/testing.h"

namespace isobar {
namespace {

std::vector<double> every(double step, int count, double first = 0) {
  std::vector<double> degrees;
  for (int i = 0; i < count; ++i) degrees.push_back(first + step * i);
  return degrees;
}

// As a file has them that prints two digits.
std::vector<double> with_two_digits(std::vector<double> degrees) {
  for (double& value : degrees) value = std::round(value * 100) / 100;
  return degrees;
}

}  // namespace

TEST_CASE("longitudes go round where they are even, and the last step would lead to the first") {
  CHECK(go_round(every(2.5, 144)));
  CHECK(go_round(every(2.5, 144, -180)));
  CHECK(go_round(every(-2.5, 144, 357.5)));
  CHECK(go_round(every(360.0 / 7, 7)));
  CHECK(go_round(std::vector<double>{0, 180}));
  CHECK(go_round(std::vector<double>{90, 180, -90, 0}));  // over the date line
  std::vector<double> rounded = every(360.0 / 1001, 1001);
  for (double& degrees : rounded) degrees = static_cast<float>(degrees);
  CHECK(go_round(rounded));
}

TEST_CASE("longitudes that are rounded to two digits go round if the whole globe's do") {
  for (const int count : {7, 128, 192, 320, 512, 1280, 1440}) {
    INFO(count);
    const double step = 360.0 / count;
    CHECK(go_round(with_two_digits(every(step, count))));
    CHECK(go_round(with_two_digits(every(step, count, step / 3 - 180))));
    CHECK_FALSE(go_round(with_two_digits(every(step, count - 1))));
    CHECK_FALSE(go_round(with_two_digits(every(step, count + 1))));
    CHECK_FALSE(go_round(with_two_digits(every(step, count / 2, 100))));
  }
}

TEST_CASE("longitudes of a part, with the first one again, uneven or unknown ones do not go round") {
  CHECK_FALSE(go_round({}));
  CHECK_FALSE(go_round(std::vector<double>{0}));
  CHECK_FALSE(go_round(every(2.5, 143)));
  CHECK_FALSE(go_round(every(2.5, 145)));  // 0 to 360
  CHECK_FALSE(go_round(every(2.5, 53, 200)));
  CHECK_FALSE(go_round(every(5, 144)));  // twice round
  std::vector<double> uneven = every(2.5, 144);
  uneven[70] += 0.1;
  CHECK_FALSE(go_round(uneven));
  uneven[70] = std::numeric_limits<double>::quiet_NaN();
  CHECK_FALSE(go_round(uneven));
}

}  // namespace isobar
