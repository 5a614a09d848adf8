// The discrete Fourier transform of a periodic box of N^3 points, N a power of two.
#pragma once

#include <complex>
#include <cstdint>
#include <vector>

namespace isobar {

// [N, N, N], row-major.
using ComplexBox = std::vector<std::complex<double>>;

class BoxTransform {
 public:
  // Error unless N is a power of two. threads: 0: as many as there are cores; the numbers do not depend on it.
  BoxTransform(std::int64_t n, int threads);

  std::int64_t length() const { return n_; }
  // In place: F[q] = Σ_x f[x]·exp(-2πi q·x/N); and back, f[x] = Σ_q F[q]·exp(2πi q·x/N) / N^3.
  void forward(ComplexBox& box) const { transform(box, false); }
  void inverse(ComplexBox& box) const { transform(box, true); }
  // The wave number 2πq/N of place q of an axis, q from -N/2 on.
  double wave_number(std::int64_t place) const;

 private:
  void transform(ComplexBox& box, bool is_inverse) const;
  void transform_line(std::complex<double>* line, bool is_inverse) const;

  std::int64_t n_;
  int threads_;
  std::vector<std::complex<double>> roots_;    // exp(-2πi j/N), j < N/2
  std::vector<std::int64_t> reversed_places_;  // by the bits of the place
};

}  // namespace isobar
