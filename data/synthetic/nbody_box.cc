#include "data/synthetic/nbody_box.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <filesystem>
#include <numbers>

#include "data/files/hdf5.h"
#include "data/parallel_tasks.h"
#include "data/synthetic/box_transform.h"
#include "kernels/common/check.h"
#include "kernels/common/rng.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

using Field = std::vector<double>;     // [N, N, N]
using Vectors = std::array<Field, 3>;  // components along D, H, W

constexpr double kDisplacement = 1.6, kPeak = 24;  // points; the wavelength at which the spectrum turns
constexpr double kVelocityScale = 4 * kDisplacement, kDensityScale = 14, kTemperatureScale = 7;
constexpr double kMinDensity = 0.01, kMinTemperature = 0.02;
constexpr std::int64_t kMinBox = 8, kMaxBox = 512;

class Universe {
 public:
  Universe(std::int64_t n, std::uint64_t seed, int threads) : transform_(n, threads), n_(n), threads_(threads) {
    displace(displacement(seed));
  }

  // Appended to `to`.
  void put_matter(std::vector<float>& to) const {
    put_logarithm(density_, kMinDensity, kDensityScale, to);
    for (const Field& v : velocity_) put_scaled(v, to);
  }
  void put_gas(std::vector<float>& to) const;

 private:
  std::size_t points() const { return density_.size(); }
  // Calls f(place) for all points, in planes.
  template <class F>
  void for_each_point(const F& f) const {
    parallel_tasks(n_, threads_, [&](std::int64_t plane) {
      for (std::int64_t i = plane * n_ * n_; i < (plane + 1) * n_ * n_; ++i) f(static_cast<std::size_t>(i));
    });
  }
  std::array<std::int64_t, 3> coordinates(std::size_t place) const {
    const auto i = static_cast<std::int64_t>(place);
    return {i / (n_ * n_), i / n_ % n_, i % n_};
  }
  // Wraps around.
  std::size_t place_of(std::int64_t i, std::int64_t j, std::int64_t k) const {
    const std::int64_t mask = n_ - 1;
    return static_cast<std::size_t>(((i & mask) * n_ + (j & mask)) * n_ + (k & mask));
  }

  Vectors displacement(std::uint64_t seed) const;
  void displace(const Vectors& psi);
  Field smoothed(const Field& field, double points) const;
  Field divergence(const Vectors& v) const;
  void put_logarithm(const Field& field, double min, double scale, std::vector<float>& to) const {
    for (const double value : field) to.push_back(static_cast<float>(std::log(std::max(value, min)) / scale));
  }
  void put_scaled(const Field& velocity, std::vector<float>& to) const {
    for (const double value : velocity) to.push_back(static_cast<float>(value / kVelocityScale));
  }

  BoxTransform transform_;
  std::int64_t n_;
  int threads_;
  Field density_;
  Vectors momentum_, velocity_;
};

Vectors Universe::displacement(std::uint64_t seed) const {
  constexpr std::uint64_t kStream = 0;
  ComplexBox modes(static_cast<std::size_t>(n_ * n_ * n_));
  for_each_point([&](std::size_t i) {
    modes[i] = to_normal(random_bits(seed, kStream, 2 * i), random_bits(seed, kStream, 2 * i + 1));
  });
  transform_.forward(modes);
  const auto wave = [&](std::size_t place) {
    const auto q = coordinates(place);
    return std::array{transform_.wave_number(q[0]), transform_.wave_number(q[1]), transform_.wave_number(q[2])};
  };
  const auto square = [](const std::array<double, 3>& k) { return k[0] * k[0] + k[1] * k[1] + k[2] * k[2]; };
  for_each_point([&](std::size_t i) {
    const double k2 = square(wave(i)), q = std::sqrt(k2) / (2 * std::numbers::pi / kPeak);
    modes[i] *= std::sqrt(q / std::pow(1 + q * q, 1.7) * std::exp(-k2));
  });
  Vectors psi;
  double squares = 0;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    ComplexBox component(modes.size());
    for_each_point([&](std::size_t i) {
      const auto k = wave(i);
      const double k2 = square(k);
      component[i] = k2 == 0 ? 0 : std::complex(0.0, k[axis] / k2) * modes[i];
    });
    transform_.inverse(component);
    for (const std::complex<double>& value : component) {
      psi[axis].push_back(value.real());
      squares += value.real() * value.real();
    }
  }
  const double scale = kDisplacement / std::sqrt(squares / static_cast<double>(3 * modes.size()));
  for (Field& component : psi)
    for (double& value : component) value *= scale;
  return psi;
}

// One particle after the other, so that sums have one order.
void Universe::displace(const Vectors& psi) {
  const std::size_t count = psi[0].size();
  density_.assign(count, 0);
  for (Field& component : momentum_) component.assign(count, 0);
  for (std::size_t particle = 0; particle < count; ++particle) {
    const auto from = coordinates(particle);
    std::array<std::int64_t, 3> first{};
    std::array<double, 3> beyond{};
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const double at = static_cast<double>(from[axis]) + psi[axis][particle];
      first[axis] = static_cast<std::int64_t>(std::floor(at));
      beyond[axis] = at - std::floor(at);
    }
    for (int corner = 0; corner < 8; ++corner) {
      const int i = corner >> 2, j = corner >> 1 & 1, k = corner & 1;
      const double part = (i != 0 ? beyond[0] : 1 - beyond[0]) * (j != 0 ? beyond[1] : 1 - beyond[1]) *
                          (k != 0 ? beyond[2] : 1 - beyond[2]);
      const std::size_t to = place_of(first[0] + i, first[1] + j, first[2] + k);
      density_[to] += part;
      for (std::size_t axis = 0; axis < 3; ++axis) momentum_[axis][to] += part * psi[axis][particle];
    }
  }
  constexpr double kEmpty = 1e-3;  // there the velocity is that of the particle which has left
  for (std::size_t axis = 0; axis < 3; ++axis)
    for (std::size_t i = 0; i < count; ++i)
      velocity_[axis].push_back(density_[i] > kEmpty ? momentum_[axis][i] / density_[i] : psi[axis][i]);
}

Field Universe::smoothed(const Field& field, double points) const {
  ComplexBox modes(field.begin(), field.end());
  transform_.forward(modes);
  for_each_point([&](std::size_t i) {
    double k2 = 0;
    for (const std::int64_t q : coordinates(i)) k2 += transform_.wave_number(q) * transform_.wave_number(q);
    modes[i] *= std::exp(-0.5 * k2 * points * points);
  });
  transform_.inverse(modes);
  Field result;
  for (const std::complex<double>& mode : modes) result.push_back(mode.real());
  return result;
}

Field Universe::divergence(const Vectors& v) const {
  Field result(points());
  for_each_point([&](std::size_t i) {
    const auto [x, y, z] = coordinates(i);
    result[i] = (v[0][place_of(x + 1, y, z)] - v[0][place_of(x - 1, y, z)] + v[1][place_of(x, y + 1, z)] -
                 v[1][place_of(x, y - 1, z)] + v[2][place_of(x, y, z + 1)] - v[2][place_of(x, y, z - 1)]) /
                2;
  });
  return result;
}

void Universe::put_gas(std::vector<float>& to) const {
  constexpr double kNarrow = 1, kMiddle = 1.5, kWide = 2.5, kLeast = 1e-3;
  const Field narrow = smoothed(density_, kNarrow), middle = smoothed(density_, kMiddle),
              wide = smoothed(density_, kWide);
  Field gas(points());
  for_each_point([&](std::size_t i) {
    const double dense = std::max(narrow[i], kLeast), mixed = dense / (1 + dense);
    gas[i] = (1 - mixed) * dense + mixed * std::max(wide[i], kLeast);
  });
  Vectors velocity;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    velocity[axis] = smoothed(momentum_[axis], kMiddle);
    for_each_point([&](std::size_t i) { velocity[axis][i] /= std::max(middle[i], kLeast); });
  }
  const Field expansion = divergence(velocity);
  Field temperature(points());
  for_each_point(
      [&](std::size_t i) { temperature[i] = std::pow(gas[i], 0.6) * (1 + 4 * std::max(0.0, -expansion[i])); });
  put_logarithm(gas, kMinDensity, kDensityScale, to);
  for (const Field& component : velocity) put_scaled(component, to);
  put_logarithm(temperature, kMinTemperature, kTemperatureScale, to);
}

void check(const NbodyOptions& o) {
  ISOBAR_CHECK(!o.out.empty(), "data synth needs a folder: --out");
  ISOBAR_CHECK(o.box >= kMinBox && o.box <= kMaxBox && std::has_single_bit(static_cast<std::uint64_t>(o.box)), "--box ",
               o.box, " is no power of two from ", kMinBox, " to ", kMaxBox);
}

// The folder exists.
void check_room(const NbodyOptions& o) {
  constexpr std::int64_t kFiles = 2, kChannels = 4 + 5;
  const auto needed = static_cast<std::uintmax_t>(kFiles * kChannels * o.box * o.box * o.box) * sizeof(float);
  const std::uintmax_t free = fs::space(o.out).available;
  ISOBAR_CHECK(needed <= free, "--out ", o.out, ": two boxes of ", o.box, "^3 points need ", needed,
               " bytes, and the disk has ", free);
}

}  // namespace

NbodyBox make_nbody_box(std::int64_t n, std::uint64_t seed, int threads) {
  const Universe universe(n, seed, threads);
  NbodyBox box;
  universe.put_matter(box.nbody);
  universe.put_gas(box.hydro);
  return box;
}

void write_nbody_boxes(const NbodyOptions& options) {
  check(options);
  fs::create_directories(options.out);
  check_room(options);
  std::uint64_t universe = 2 * options.seed;
  for (const char* set : {"train", "valid"}) {
    const NbodyBox box = make_nbody_box(options.box, universe++, options.threads);
    const fs::path folder = fs::path(options.out) / set;
    fs::create_directories(folder);
    hdf5::File file = hdf5::File::create((folder / "box.h5").string());
    const auto write = [&](const char* name, std::int64_t channels, const std::vector<float>& values) {
      file.write(name, std::vector<std::int64_t>{channels, options.box, options.box, options.box}, values);
    };
    write("Nbody", 4, box.nbody);
    write("Hydro", 5, box.hydro);
    file.close();
  }
}

}  // namespace isobar
