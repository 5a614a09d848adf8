// The zonal spectrum of fields on a global grid: how much of a field's variance has which wavenumber round a circle of
// latitude. A forecast that is too smooth has less than the truth at high wavenumbers.
//
//   F_k = 1/W sum_j x_j exp(-2 pi i j k / W), k = 0 ... W/2      C = 2 pi R cos(latitude), R = 6,371,000 m
//   S_0 = C |F_0|^2,  S_k = 2 C |F_k|^2
//
// S is averaged over the rows at 30 to 60 degrees of both hemispheres, by area weight, and then over starts. Rows with
// a missing point are left out. Definition: WeatherBench 2 (Rasp et al. 2024), which counts k = W/2 twice, too.
#pragma once

#include <complex>
#include <cstdint>
#include <span>
#include <vector>

namespace isobar {

// Discrete Fourier transforms of W real numbers, in fp64; W may be any number, and is fast if its prime factors are
// small.
class RowTransform {
 public:
  explicit RowTransform(std::int64_t width);
  // row: [W]; out: [W/2 + 1], sum_j x_j exp(-2 pi i j k / W).
  void transform(std::span<const double> row, std::span<std::complex<double>> out) const;

 private:
  using Complex = std::complex<double>;
  void transform_part(const Complex* in, std::size_t stride, std::size_t count, Complex* out) const;

  std::size_t width_;
  std::vector<Complex> roots_;  // [W] exp(-2 pi i j / W)
};

class ZonalSpectrum {
 public:
  // latitudes, row_weights: [LAT].
  ZonalSpectrum(std::span<const double> latitudes, std::span<const double> row_weights, std::int64_t width);

  // Whether the grid has rows at 30 to 60 degrees.
  bool has_rows() const { return !rows_.empty(); }
  std::int64_t wavenumbers() const { return width_ / 2 + 1; }
  // [wavenumbers()] of a field [LAT, LON]; empty if each row misses a point. Thread-safe.
  std::vector<double> of(std::span<const float> field) const;

 private:
  struct Row {
    std::size_t number;
    double weight, circumference;
  };
  std::int64_t width_;
  std::vector<Row> rows_;
  RowTransform transform_;
};

}  // namespace isobar
