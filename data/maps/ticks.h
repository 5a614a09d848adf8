// Round numbers on the axes of pictures.
#pragma once

#include <string>
#include <vector>

namespace isobar {

struct NumberRange {
  double low, high;
};

std::string number_text(double value, int decimals);

// The number of decimals that distinguishes values `step` apart.
int decimals_for_step(double step);

// Multiples of 1, 2, 2.5 or 5 times a power of ten within a range, with at most `count` steps between them.
struct Ticks {
  std::vector<double> values;
  int decimals;
};
Ticks round_ticks(NumberRange range, int count);

}  // namespace isobar
