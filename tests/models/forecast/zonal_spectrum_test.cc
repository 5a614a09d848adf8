// Zonal spectra: transforms of any width against their definition, a wave by hand, missing points.
#include "models/forecast/zonal_spectrum.h"

#include <cmath>
#include <complex>
#include <limits>
#include <numbers>
#include <vector>

#include "tests/harness/hashed_numbers.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::Approx;

TEST_CASE("zonal spectrum: transforms equal their definition, for powers of two, odd, prime and mixed widths") {
  for (const std::int64_t width : {1, 2, 3, 4, 7, 8, 9, 12, 13, 30, 49, 64, 77, 144}) {
    const std::vector<double> row = testing::hashed_values(width, 1);
    std::vector<std::complex<double>> waves(static_cast<std::size_t>(width / 2 + 1));
    RowTransform(width).transform(row, waves);
    for (std::size_t k = 0; k < waves.size(); ++k) {
      std::complex<double> sum = 0;
      for (std::size_t j = 0; j < row.size(); ++j)
        sum +=
            row[j] * std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(j * k) / static_cast<double>(width));
      INFO("width " << width << " k " << k);
      CHECK(std::abs(waves[k] - sum) < 1e-12 * static_cast<double>(width));
    }
  }
}

TEST_CASE("zonal spectrum: a mean of 3 and a wave of amplitude 2, averaged over the rows at 30 to 60 degrees") {
  const std::vector<double> latitudes{75, 60, 0, -30, -60.5}, weights{5, 1, 7, 3, 9};
  const ZonalSpectrum spectrum(latitudes, weights, 8);
  REQUIRE(spectrum.has_rows());
  std::vector<float> field;
  for (std::size_t row = 0; row < latitudes.size(); ++row)
    for (int j = 0; j < 8; ++j) {
      const double wave = std::cos(2 * std::numbers::pi * 3 * j / 8);
      field.push_back(static_cast<float>(row == 1 ? 3 + 2 * wave : row == 3 ? wave : 100.0 * j));
    }
  const double earth = 2 * std::numbers::pi * 6.371e6, at_60 = earth * 0.5, at_30 = earth * std::sqrt(0.75);
  const std::vector<double> s = spectrum.of(field);
  REQUIRE(s.size() == 5);
  CHECK(s[0] == Approx(at_60 * 9 / 4).epsilon(1e-7));
  CHECK(s[3] == Approx((2 * at_60 * 1 + 3 * 2 * at_30 * 0.25) / 4).epsilon(1e-6));  // |F| is half the amplitude
  CHECK(s[1] < 1e-6 * s[3]);
  field[8] = std::numeric_limits<float>::quiet_NaN();
  CHECK(spectrum.of(field)[3] == Approx(2 * at_30 * 0.25).epsilon(1e-6));
  field[24] = std::numeric_limits<float>::quiet_NaN();
  CHECK(spectrum.of(field).empty());
  CHECK_FALSE(ZonalSpectrum(std::vector<double>{10, 0}, std::vector<double>{1, 1}, 8).has_rows());
}
