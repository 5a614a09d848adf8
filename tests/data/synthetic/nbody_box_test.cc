// The synthetic universe and the Fourier transform behind it.
#include "data/synthetic/nbody_box.h"

#include <cmath>
#include <complex>
#include <filesystem>
#include <numbers>
#include <set>
#include <string>
#include <vector>

#include "data/synthetic/box_transform.h"
#include "data/volumes/volume.h"
#include "engine/files/reader.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;

namespace {

ComplexBox numbers(std::int64_t n) {
  ComplexBox box;
  for (std::int64_t i = 0; i < n * n * n; ++i)
    box.emplace_back(std::sin(1.3 * static_cast<double>(i)), std::cos(0.7 * static_cast<double>(i * i)));
  return box;
}

double largest_difference(const ComplexBox& a, const ComplexBox& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

}  // namespace

TEST_CASE("box transform: equals the sum of its formula, and goes back, with any number of threads") {
  for (const std::int64_t n : {2, 4, 8}) {
    const ComplexBox box = numbers(n);
    ComplexBox direct(box.size());
    for (std::int64_t q = 0; q < n * n * n; ++q)
      for (std::int64_t x = 0; x < n * n * n; ++x) {
        const std::int64_t phase = (q / n / n) * (x / n / n) + (q / n % n) * (x / n % n) + (q % n) * (x % n);
        direct[static_cast<std::size_t>(q)] +=
            box[static_cast<std::size_t>(x)] *
            std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(phase % n) / static_cast<double>(n));
      }
    ComplexBox fast = box;
    const BoxTransform transform(n, 1);
    transform.forward(fast);
    CHECK(largest_difference(fast, direct) < 1e-11);
    ComplexBox with_threads = box;
    BoxTransform(n, 3).forward(with_threads);
    CHECK(with_threads == fast);
    transform.inverse(fast);
    CHECK(largest_difference(fast, box) < 1e-13);
  }
  CHECK(BoxTransform(8, 1).wave_number(3) == 2 * std::numbers::pi * 3 / 8);
  CHECK(BoxTransform(8, 1).wave_number(7) == -2 * std::numbers::pi / 8);
  CHECK_THROWS_WITH(BoxTransform(12, 1), ContainsSubstring("12 points along each axis is no power of two"));
}

TEST_CASE("nbody box: mass is kept, numbers fit a tanh, and it is a function of the seed alone") {
  constexpr std::int64_t kLength = 32, kPoints = kLength * kLength * kLength;
  const NbodyBox box = make_nbody_box(kLength, 1, 1), threads = make_nbody_box(kLength, 1, 3);
  REQUIRE(box.nbody.size() == 4 * kPoints);
  REQUIRE(box.hydro.size() == 5 * kPoints);
  CHECK(box.nbody == threads.nbody);
  CHECK(box.hydro == threads.hydro);
  CHECK(make_nbody_box(kLength, 2, 1).nbody != box.nbody);
  double gas = 0;
  for (std::int64_t i = 0; i < kPoints; ++i)
    gas += std::exp(14.0 * static_cast<double>(box.hydro[static_cast<std::size_t>(i)]));
  CHECK(std::abs(gas / kPoints - 1) < 0.2);  // the smoothing that depends on density keeps it roughly
  double matter = 0;
  for (std::int64_t i = 0; i < kPoints; ++i)
    matter += std::exp(14.0 * static_cast<double>(box.nbody[static_cast<std::size_t>(i)]));
  CHECK(std::abs(matter / kPoints - 1) < 0.01);  // empty points count 0.01
  for (const std::vector<float>* values : {&box.nbody, &box.hydro})
    for (const float value : *values) REQUIRE(std::abs(value) < 1.5f);
}

TEST_CASE("nbody box: the gas does not follow from the matter at a point, but from that around it") {
  constexpr std::size_t kLength = 32, kPoints = kLength * kLength * kLength;
  const NbodyBox box = make_nbody_box(kLength, 1, 0);
  // Correlation of the temperature with the density here, and with the compression seen in the velocities around.
  const auto at = [&](std::size_t channel, std::size_t i, std::size_t j, std::size_t k) {
    return static_cast<double>(
        box.nbody[channel * kPoints + (i % kLength * kLength + j % kLength) * kLength + k % kLength]);
  };
  double unexplained = 0, total = 0, mean = 0;
  std::vector<std::vector<double>> by_density(40);
  for (std::size_t i = 0; i < kPoints; ++i) {
    const double t = static_cast<double>(box.hydro[4 * kPoints + i]);
    mean += t / kPoints;
    const double x = at(0, i / kLength / kLength, i / kLength, i);
    by_density[static_cast<std::size_t>(std::clamp((x + 0.4) * 50, 0.0, 39.0))].push_back(t);
  }
  for (const auto& bin : by_density) {
    double of_bin = 0;
    for (const double t : bin) of_bin += t / static_cast<double>(bin.size());
    for (const double t : bin) {
      unexplained += (t - of_bin) * (t - of_bin);
      total += (t - mean) * (t - mean);
    }
  }
  CHECK(unexplained > 0.2 * total);
  CHECK(unexplained < 0.95 * total);
}

TEST_CASE("nbody boxes: two files that are read as volumes, the same bytes again, what cannot be made is refused") {
  const testing::TemporaryFolder folder;
  const auto make = [&](const char* name, int threads) {
    write_nbody_boxes({.out = (folder / name).string(), .box = 16, .seed = 3, .threads = threads});
    return read_file(folder / name / "train/box.h5");
  };
  const std::string once = make("a", 1);
  CHECK((once == make("b", 2)));
  CHECK((once != read_file(folder / "a/valid/box.h5")));
  // Another seed is two more universes: nobody trains on what another one validates on.
  write_nbody_boxes({.out = (folder / "next").string(), .box = 16, .seed = 4});
  std::set<std::string> universes;
  for (const char* run : {"a", "next"})
    for (const char* set : {"train/box.h5", "valid/box.h5"}) universes.insert(read_file(folder / run / set));
  CHECK(universes.size() == 4);
  const VolumePair pair = open_volumes((folder / "a/valid").string());
  CHECK(pair.input->shape() == Shape{4, 16, 16, 16});
  CHECK(pair.target->shape() == Shape{5, 16, 16, 16});
  for (const std::int64_t box : {0, 4, 100, 1024})
    CHECK_THROWS_WITH(write_nbody_boxes({.out = (folder / "c").string(), .box = box}),
                      ContainsSubstring("is no power of two from 8 to 512"));
  CHECK_FALSE(std::filesystem::exists(folder / "c"));
}
