// The equations of `isobar data synth`: a synthetic atmosphere in closed form, so that any instant can be evaluated on
// its own. docs/data.md explains the terms.
//
//   ψ(λ, φ, t)   waves on latitude bands and cyclones, all advected by a zonal flow that depends on latitude
//   u, v         from the stream function ψ and the zonal flow itself        z, pressure   geostrophic: f ψ
//   t            a meridional profile, the seasons, warm air ahead of troughs, and the diurnal cycle
//   r, tcwv      moist where air comes from the tropics, and with temperature
//
// The strength of the zonal flow (the zonal index) varies over weeks, and with it the speed of everything it advects: a
// model that infers it from the wind knows how far the patterns will move.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace isobar {

class SyntheticAtmosphere {
 public:
  // Rows run from 90 to -90 degrees, both poles included; columns from 0 eastwards.
  SyntheticAtmosphere(std::int64_t height, std::int64_t width, std::int64_t channels, std::uint64_t seed);

  std::vector<double> latitudes() const;   // degrees
  std::vector<double> longitudes() const;  // degrees
  // The tutorial's names in its order; beyond 20 channels c20, c21, ...
  const std::vector<std::string>& channel_names() const { return names_; }
  std::vector<std::string> units() const;  // of the channels, in ERA5's units; mixtures are in m/s

  // The strength of the zonal flow, about 1, and its integral since 1979-01-01T00: how far the patterns have moved.
  double zonal_index(double hours) const;
  double carried_hours(double hours) const;

  // All fields [V, LAT, LON] at `hours` after 1979-01-01T00, in the units of ERA5. Thread-safe.
  void fields(double hours, float* out) const;

 private:
  // A wave on a latitude band: ψ = amplitude · band(φ) · cos(m λ - phase(t)).
  struct Wave {
    int zonal_number = 1;
    double amplitude = 0, phase = 0;  // of ψ in m/s (divided by the Earth's radius); radians
    // Phase speeds in radians per hour: advection is multiplied by the zonal index; retrogression is against the flow.
    double advection = 0, retrogression = 0;
    double swell_period = 1, swell_phase = 0;  // hours, radians: slow oscillation of the amplitude
    std::vector<double> band, slope;           // [LAT]: band(φ) and its derivative
  };
  // Each slot produces one cyclone after another.
  struct Cyclone {
    double strength = 0, latitude = 0, longitude = 0;
  };
  // The eddy flow at one level: [LAT, LON] each, in m/s.
  struct Flow {
    std::vector<double> psi, u, v;
  };

  std::vector<Cyclone> cyclones(double hours) const;
  Flow flow(double hours, double tilt) const;
  void add_waves(double hours, double tilt, Flow& flow) const;
  void add_cyclones(double hours, double tilt, Flow& flow) const;

  std::int64_t height_, width_;
  std::uint64_t seed_;
  std::vector<std::string> names_;
  std::vector<double> latitude_, longitude_;  // radians
  std::vector<double> jet_;                   // [LAT] the zonal flow, about 1 in the westerlies
  std::vector<double> land_;                  // [LAT, LON] 0 sea to 1 land
  std::vector<Wave> waves_;
};

}  // namespace isobar
