// kernels/cpu/vector_math.h: exp, the normal distribution, the sigmoid and tanh against libm over their whole range.
#define ISOBAR_ISA of_the_test  // the header belongs to files compiled once an instruction set

#include "kernels/cpu/vector_math.h"

#include <limits>

#include "tests/harness/kernel_testing.h"

namespace isobar::testing {
namespace {

namespace math = cpu::of_the_test;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kHalfUlp = 0x1p-24;

// The greatest |value / exact - 1| in half ulps over [low, high], which must hold normal results only.
template <class F, class Exact>
double worst_error(double low, double high, const F& f, const Exact& exact) {
  double worst = 0;
  for (double point = low; point < high; point += (high - low) / 200000) {
    const auto x = static_cast<float>(point);
    const double error = std::fabs(static_cast<double>(f(x)) / exact(static_cast<double>(x)) - 1) / kHalfUlp;
    if (!(error <= worst)) worst = error;
    if (std::isnan(error)) break;
  }
  return worst;
}

}  // namespace

TEST_CASE("vector_math: exp errs by less than an ulp and keeps its special values") {
  const auto exact = [](double x) { return std::exp(x); };
  const auto fast = [](float x) { return math::exp(x); };
  CHECK(worst_error(-87.3, 88.7, fast, exact) <= 2);
  CHECK(worst_error(-1, 1, fast, exact) <= 2);
  CHECK(math::exp(0.0f) == 1.0f);
  CHECK(math::exp(-0.0f) == 1.0f);
  CHECK(math::exp(88.8f) == kInfinity);
  CHECK(math::exp(kInfinity) == kInfinity);
  CHECK(math::exp(-105.0f) == 0.0f);
  CHECK(math::exp(-kInfinity) == 0.0f);
  CHECK(std::isnan(math::exp(std::numeric_limits<float>::quiet_NaN())));
  for (float x = -104; x < -87; x += 0.01f)  // denormal results: off by at most one place
    REQUIRE(std::fabs(static_cast<double>(math::exp(x)) - std::exp(static_cast<double>(x))) <= 0x1p-149 + 1e-45);
}

TEST_CASE("vector_math: the normal distribution keeps the relative accuracy of its tails") {
  const auto exact = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  const auto cdf = [](float x) { return math::normal(x).cdf; };
  // Half ulps: 2 of exp, 6 of the polynomial and its argument, and x²/2 for rounding the exponent x²/2.
  CHECK(worst_error(-1, 6, cdf, exact) <= 8);
  CHECK(worst_error(-3, -1, cdf, exact) <= 8 + 4.5);
  CHECK(worst_error(-12, -3, cdf, exact) <= 8 + 72);
  const auto density = [](float x) { return math::normal(x).density; };
  const auto exact_density = [](double x) { return std::exp(-x * x / 2) / std::sqrt(2 * 3.14159265358979323846); };
  CHECK(worst_error(-3, 3, density, exact_density) <= 3 + 4.5);
  CHECK(math::normal(kInfinity).cdf == 1.0f);
  CHECK(math::normal(-kInfinity).cdf == 0.0f);
  CHECK(std::isnan(math::normal(std::numeric_limits<float>::quiet_NaN()).cdf));
}

TEST_CASE("vector_math: the sigmoid and its complement are accurate at both ends") {
  const auto value = [](float x) { return math::sigmoid(x).value; };
  const auto complement = [](float x) { return math::sigmoid(x).complement; };
  CHECK(worst_error(-80, 80, value, [](double x) { return 1 / (1 + std::exp(-x)); }) <= 5);
  CHECK(worst_error(-80, 80, complement, [](double x) { return 1 / (1 + std::exp(x)); }) <= 5);
  CHECK(math::sigmoid(kInfinity).value == 1.0f);
  CHECK(math::sigmoid(kInfinity).complement == 0.0f);
  CHECK(math::sigmoid(-kInfinity).value == 0.0f);
}

TEST_CASE("vector_math: convert widens every fp16 as its definition says") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    fp16 half;
    half.bits = static_cast<std::uint16_t>(bits);
    const auto fast = math::convert<float>(half), plain = static_cast<float>(half);
    wrong += std::isnan(plain) ? !std::isnan(fast) : fast != plain || std::signbit(fast) != std::signbit(plain);
  }
  CHECK(wrong == 0);
}

TEST_CASE("vector_math: tanh errs by less than three ulp and keeps its special values") {
  const auto exact = [](double x) { return std::tanh(x); };
  const auto fast = [](float x) { return math::tanh(x); };
  CHECK(worst_error(1e-30, 0.7, fast, exact) <= 6);
  CHECK(worst_error(-10, -1e-4, fast, exact) <= 6);
  CHECK(worst_error(0.5, 100, fast, exact) <= 6);
  CHECK(math::tanh(0.0f) == 0.0f);
  CHECK(std::signbit(math::tanh(-0.0f)));
  CHECK(math::tanh(kInfinity) == 1.0f);
  CHECK(math::tanh(-kInfinity) == -1.0f);
  CHECK(std::isnan(math::tanh(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace isobar::testing
