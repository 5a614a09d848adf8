// Where the sun is, seen from the middle of the earth.
//
// Source: U.S. Naval Observatory, "Computing Approximate Solar Coordinates" (aa.usno.navy.mil/faq/sun_approx), whose
// error is about 1' from 1800 to 2200. With d the days since 2000-01-01 12:00, fraction included:
//
//   g = 357.529° + 0.98560028° d                    mean anomaly
//   q = 280.459° + 0.98564736° d                    mean longitude
//   L = q + 1.915° sin g + 0.020° sin 2g            ecliptic longitude
//   ε = 23.439° - 0.00000036° d                     obliquity of the ecliptic
//   sin δ = sin ε sin L                             δ: declination
//   tan α = cos ε sin L / cos L                     α: right ascension, in the quadrant of L
//   E = q - α                                       equation of time: apparent minus mean solar time
//   r = 1.00014 - 0.01671 cos g - 0.00014 cos 2g    distance, astronomical units
//   h = 15°·(hour of the day, UTC - 12) + E + λ     hour angle at the longitude λ: 0 at noon, 90° six hours later
#pragma once

namespace isobar {

struct Sun {
  double sin_declination = 0, cos_declination = 1;
  double equation_of_time = 0;  // degrees, in [-180, 180]
  double distance = 1;          // astronomical units
  double hour_angle = 0;        // at the longitude 0: degrees

  // At a longitude in degrees: radians in [-π, π].
  double hour_angle_at(double longitude) const;
};

// hours: since 1970-01-01T00 UTC. Error outside the years 1800 to 2199.
Sun sun_at(double hours);

}  // namespace isobar
