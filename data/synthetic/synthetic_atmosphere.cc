#include "data/synthetic/synthetic_atmosphere.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numbers>

#include "data/fields/channels.h"
#include "data/fields/units.h"
#include "kernels/common/rng.h"

namespace isobar {
namespace {

constexpr double kPi = std::numbers::pi;
constexpr double kDegree = kPi / 180;
constexpr double kRadius = 6.371e6;     // of the Earth, m
constexpr double kRotation = 7.292e-5;  // of the Earth, 1/s
constexpr double kDay = 24, kYear = 365.2425 * kDay;

constexpr int kFirstWave = 3, kLastWave = 7;  // zonal wave numbers
constexpr std::array<double, 3> kBands = {-46 * kDegree, 4 * kDegree, 46 * kDegree};
constexpr int kWavesPerBand = 7, kCyclones = 10;
constexpr double kCycloneLife = 9 * kDay;
// Speed of advection by the westerlies, radians per hour
constexpr double kJetSpeed = 12.5 * kDegree / 6;

// The zonal index is 1 plus two slow oscillations.
struct Oscillation {
  double size, period;
};
constexpr std::array<Oscillation, 2> kIndex = {{{0.10, 19 * kDay}, {0.06, 47 * kDay}}};

// Independent streams of random numbers for each use.
enum class Draw : std::uint64_t { index = 1, wave, cyclone, land };

double uniform(std::uint64_t seed, Draw stream, std::uint64_t index) {
  return static_cast<double>(to_uniform(random_bits(seed, static_cast<std::uint64_t>(stream), index)));
}

double square(double x) {
  return x * x;
}

// The zonal flow: westerlies at 45 degrees, trades at the equator. 1 is the westerlies' speed.
double jet_at(double latitude) {
  return square(std::sin(2 * latitude)) - 0.45 * std::exp(-square(latitude / (16 * kDegree)));
}

// The levels of the tutorial's variables: strength of the eddies and of the jet (m/s), westward tilt of the pattern
// relative to the surface, mean geopotential (m²/s²), its excess at the equator, mean temperature (K).
struct Level {
  double eddies, jet, tilt, geopotential, contrast, temperature;
};
const std::map<std::string, Level>& levels() {
  static const std::map<std::string, Level> table = {
      {"10", {0.7, 4, 0, 0, 0, 0}},
      {"1000", {0.8, 5, 0, 750, 1200, 288}},
      {"850", {1.0, 9, 6 * kDegree, 14200, 2600, 281}},
      {"500", {1.7, 18, 16 * kDegree, 55400, 6200, 260}},
      {"50", {1.3, 12, 30 * kDegree, 200000, 9000, 212}},
  };
  return table;
}

enum class Kind : std::uint8_t { u, v, z, t, r, t2m, sp, msl, tcwv, tracer };

// The channel "u500" is the variable "u" at the level "500".
struct Variable {
  Kind kind;
  std::string level;
};
Variable variable(const std::string& name) {
  static const std::map<std::string, Variable> whole = {{"t2m", {Kind::t2m, "1000"}},
                                                        {"sp", {Kind::sp, "1000"}},
                                                        {"msl", {Kind::msl, "1000"}},
                                                        {"tcwv", {Kind::tcwv, "850"}}};
  static const std::map<char, Kind> letters = {
      {'u', Kind::u}, {'v', Kind::v}, {'z', Kind::z}, {'t', Kind::t}, {'r', Kind::r}};
  if (const auto found = whole.find(name); found != whole.end()) return found->second;
  const auto letter = letters.find(name[0]);
  if (const std::string level = name.substr(1); letter != letters.end() && levels().contains(level))
    return {letter->second, level};
  return {Kind::tracer, "850"};
}

// The quantities that determine the values at one point of one level.
struct GridPoint {
  double sine, cosine;  // of the latitude
  double jet;           // the zonal flow; 1 in the westerlies at zonal index 1
  double psi, u, v;     // eddies
  double season;        // 1 in late July, -1 in late January
  double sun;           // of the local time: 1 at 14 h, -1 at 2 h
  double land;          // 0 to 1

  double geopotential() const { return 2 * kRotation * sine * kRadius * psi; }  // geostrophic: f ψ, m²/s²
  // Warm in the tropics, in summer, in highs, and in wind from the equator.
  double warmth() const {
    return 14 * (cosine * cosine - 2.0 / 3) + 5 * sine * season + 1.2 * sine * psi + sine * cosine * v;
  }
  double daily_round() const { return (1 + 2.5 * land) * cosine * sun; }
  double humidity() const {
    const double tropics = std::exp(-square(sine / 0.26));
    const double moisture = 0.16 + 0.8 * tropics + 0.16 * sine * cosine * v - 0.25 * sine * psi;
    return 100 / (1 + std::exp(-moisture));
  }
  double pressure() const {
    const double highs_of_the_subtropics = 900 * cosine * (1 - 2 * square(4 * cosine * cosine - 3) * cosine * cosine);
    return 101100 + highs_of_the_subtropics + 1.2 * geopotential();
  }
};

double value_of(Kind kind, const Level& level, const GridPoint& p, double mixture) {
  switch (kind) {
    case Kind::u:
      return level.jet * p.jet + p.u;
    case Kind::v:
      return p.v;
    case Kind::z:
      return level.geopotential + level.contrast * (p.cosine * p.cosine - 2.0 / 3) + 700 * p.sine * p.season +
             p.geopotential();
    case Kind::t:
      return level.temperature + p.warmth() + 0.25 * p.daily_round();
    case Kind::t2m:
      return level.temperature + p.warmth() + p.daily_round();
    case Kind::msl:
      return p.pressure();
    case Kind::sp:
      return p.pressure() * std::exp(-0.012 * p.land);
    case Kind::r:
      return p.humidity();
    case Kind::tcwv:
      return 0.4 * p.humidity() * std::exp(0.05 * p.warmth());
    default:
      return 50 + 8 * std::cos(mixture) * p.psi + std::sin(mixture) * p.v;
  }
}

}  // namespace

SyntheticAtmosphere::SyntheticAtmosphere(std::int64_t height, std::int64_t width, std::int64_t channels,
                                         std::uint64_t seed)
    : height_(height), width_(width), seed_(seed) {
  const auto& known = tutorial_channel_names();
  for (std::int64_t c = 0; c < channels; ++c)
    names_.push_back(c < static_cast<std::int64_t>(known.size()) ? known[static_cast<std::size_t>(c)]
                                                                 : "c" + std::to_string(c));
  for (std::int64_t j = 0; j < height; ++j)
    latitude_.push_back((90 - 180 * static_cast<double>(j) / static_cast<double>(height - 1)) * kDegree);
  for (std::int64_t i = 0; i < width; ++i)
    longitude_.push_back(360 * static_cast<double>(i) / static_cast<double>(width) * kDegree);
  for (double latitude : latitude_) jet_.push_back(jet_at(latitude));

  for (std::size_t n = 0; n < kBands.size() * kWavesPerBand; ++n) {
    const auto draw = [&](std::uint64_t which) { return uniform(seed, Draw::wave, 8 * n + which); };
    Wave wave;
    wave.zonal_number = kFirstWave + static_cast<int>(n % (kLastWave - kFirstWave + 1));
    const double centre = kBands[n / kWavesPerBand] + (draw(0) - 0.5) * 24 * kDegree;
    const double width_of_band = (11 + 7 * draw(1)) * kDegree;
    wave.amplitude = (4.2 + 5.2 * draw(2)) / wave.zonal_number;
    wave.phase = 2 * kPi * draw(3);
    wave.advection = wave.zonal_number * kJetSpeed * (0.25 + 0.75 * jet_at(centre));
    wave.retrogression = 0.35 * kJetSpeed / wave.zonal_number;
    wave.swell_period = (12 + 25 * draw(4)) * kDay;
    wave.swell_phase = 2 * kPi * draw(5);
    for (double latitude : latitude_) {
      const double offset = (latitude - centre) / width_of_band, bell = std::exp(-0.5 * square(offset));
      wave.band.push_back(bell * square(std::cos(latitude)));
      wave.slope.push_back(bell * (-offset / width_of_band * square(std::cos(latitude)) - std::sin(2 * latitude)));
    }
    waves_.push_back(std::move(wave));
  }

  for (double latitude : latitude_)
    for (double longitude : longitude_) {
      double relief = 0;
      for (int k = 1; k <= 3; ++k) {
        const auto at = static_cast<std::uint64_t>(3 * k);
        relief += std::cos(k * longitude + 2 * kPi * uniform(seed, Draw::land, at)) *
                  std::cos((k + 1) * latitude + 2 * kPi * uniform(seed, Draw::land, at + 1));
      }
      land_.push_back(std::cos(latitude) / (1 + std::exp(-4 * relief)));
    }
}

std::vector<std::string> SyntheticAtmosphere::units() const {
  std::vector<std::string> units;
  for (const std::string& name : names_) units.push_back(known_unit(name).empty() ? "m/s" : known_unit(name));
  return units;
}

std::vector<double> SyntheticAtmosphere::latitudes() const {
  std::vector<double> degrees;
  for (double latitude : latitude_) degrees.push_back(latitude / kDegree);
  return degrees;
}

std::vector<double> SyntheticAtmosphere::longitudes() const {
  std::vector<double> degrees;
  for (double longitude : longitude_) degrees.push_back(longitude / kDegree);
  return degrees;
}

double SyntheticAtmosphere::zonal_index(double hours) const {
  double index = 1;
  for (std::size_t k = 0; k < kIndex.size(); ++k)
    index += kIndex[k].size * std::sin(2 * kPi * (hours / kIndex[k].period + uniform(seed_, Draw::index, k)));
  return index;
}

double SyntheticAtmosphere::carried_hours(double hours) const {
  double carried = hours;
  for (std::size_t k = 0; k < kIndex.size(); ++k) {
    const double start = 2 * kPi * uniform(seed_, Draw::index, k), frequency = 2 * kPi / kIndex[k].period;
    carried -= kIndex[k].size / frequency * (std::cos(frequency * hours + start) - std::cos(start));
  }
  return carried;
}

std::vector<SyntheticAtmosphere::Cyclone> SyntheticAtmosphere::cyclones(double hours) const {
  std::vector<Cyclone> alive;
  for (std::uint64_t slot = 0; slot < kCyclones; ++slot) {
    // Each slot produces one cyclone after another. The slots are staggered, so that some are always at full strength.
    const double lives = hours / kCycloneLife + static_cast<double>(slot) / kCyclones;
    const double life = std::floor(lives), age = lives - life;
    const double born = hours - age * kCycloneLife;
    const auto draw = [&](std::uint64_t which) {
      return uniform(seed_, Draw::cyclone, (static_cast<std::uint64_t>(life) * kCyclones + slot) * 4 + which);
    };
    Cyclone cyclone;
    const double hemisphere = slot % 2 ? 1 : -1;
    // A cyclone drifts poleward as it ages; it stays away from the poles.
    cyclone.latitude = hemisphere * (30 + 18 * draw(0) + 10 * age) * kDegree;
    const double speed = kJetSpeed * (0.2 + 0.8 * jet_at(cyclone.latitude - hemisphere * 5 * age * kDegree));
    cyclone.longitude = 2 * kPi * draw(1) + speed * (carried_hours(hours) - carried_hours(born));
    cyclone.strength = -hemisphere * (1.8 + 1.8 * draw(2)) * square(std::sin(kPi * age));  // f ψ < 0: low pressure
    alive.push_back(cyclone);
  }
  return alive;
}

void SyntheticAtmosphere::add_waves(double hours, double tilt, Flow& flow) const {
  const double carried = carried_hours(hours);
  const auto width = static_cast<std::size_t>(width_);
  for (std::size_t j = 0; j < latitude_.size(); ++j)
    for (int m = kFirstWave; m <= kLastWave; ++m) {
      // All waves of one zonal number sum to one cosine and one sine per row, for ψ and for its slope.
      double even = 0, odd = 0, slope_even = 0, slope_odd = 0;
      for (const Wave& wave : waves_) {
        if (wave.zonal_number != m) continue;
        const double swell = 1 + 0.4 * std::sin(2 * kPi * hours / wave.swell_period + wave.swell_phase);
        const double phase = wave.phase + wave.advection * carried - wave.retrogression * hours - m * tilt;
        const double c = wave.amplitude * swell * std::cos(phase), s = wave.amplitude * swell * std::sin(phase);
        even += c * wave.band[j];
        odd += s * wave.band[j];
        slope_even += c * wave.slope[j];
        slope_odd += s * wave.slope[j];
      }
      const double cosine = std::max(std::cos(latitude_[j]), 1e-9);
      for (std::size_t i = 0; i < width; ++i) {
        const double along = m * longitude_[i], c = std::cos(along), s = std::sin(along);
        const std::size_t at = j * width + i;
        flow.psi[at] += even * c + odd * s;
        flow.u[at] -= slope_even * c + slope_odd * s;
        flow.v[at] += m / cosine * (odd * c - even * s);
      }
    }
}

void SyntheticAtmosphere::add_cyclones(double hours, double tilt, Flow& flow) const {
  constexpr double kSize = 0.035;  // exp(-(1 - cos γ) / size): about 11 degrees
  const auto width = static_cast<std::size_t>(width_);
  for (const Cyclone& cyclone : cyclones(hours)) {
    const double sine = std::sin(cyclone.latitude), cosine = std::cos(cyclone.latitude);
    for (std::size_t j = 0; j < latitude_.size(); ++j) {
      const double s = std::sin(latitude_[j]), c = std::cos(latitude_[j]);
      for (std::size_t i = 0; i < width; ++i) {
        const double east = longitude_[i] + tilt - cyclone.longitude;
        const double near = s * sine + c * cosine * std::cos(east);  // the cosine of the distance
        const double psi = cyclone.strength * std::exp((near - 1) / kSize);
        flow.psi[j * width + i] += psi;
        flow.u[j * width + i] -= psi / kSize * (c * sine - s * cosine * std::cos(east));
        flow.v[j * width + i] -= psi / kSize * cosine * std::sin(east);
      }
    }
  }
}

SyntheticAtmosphere::Flow SyntheticAtmosphere::flow(double hours, double tilt) const {
  const auto points = static_cast<std::size_t>(height_ * width_);
  Flow flow{std::vector<double>(points), std::vector<double>(points), std::vector<double>(points)};
  add_waves(hours, tilt, flow);
  add_cyclones(hours, tilt, flow);
  return flow;
}

void SyntheticAtmosphere::fields(double hours, float* out) const {
  const double index = zonal_index(hours), season = std::cos(2 * kPi * (hours / kYear - 0.55));
  std::map<double, Flow> flows;  // by tilt; several levels may share one
  for (std::size_t channel = 0; channel < names_.size(); ++channel) {
    const Variable what = variable(names_[channel]);
    const Level& level = levels().at(what.level);
    if (!flows.contains(level.tilt)) flows.emplace(level.tilt, flow(hours, level.tilt));
    const Flow& eddies = flows.at(level.tilt);
    for (std::size_t j = 0, at = 0; j < latitude_.size(); ++j)
      for (std::size_t i = 0; i < longitude_.size(); ++i, ++at) {
        const double local_hour = hours + 12 / kPi * longitude_[i];
        const GridPoint point{.sine = std::sin(latitude_[j]),
                              .cosine = std::cos(latitude_[j]),
                              .jet = index * jet_[j],
                              .psi = level.eddies * eddies.psi[at],
                              .u = level.eddies * eddies.u[at],
                              .v = level.eddies * eddies.v[at],
                              .season = season,
                              .sun = std::cos(2 * kPi * (local_hour - 14) / 24),
                              .land = land_[at]};
        // Channels beyond the named variables differ in their mixture.
        *out++ = static_cast<float>(value_of(what.kind, level, point, static_cast<double>(channel)));
      }
  }
}

}  // namespace isobar
