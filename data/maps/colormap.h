// Colour maps: colours for numbers.
#pragma once

#include "data/maps/png.h"

namespace isobar {

// Turbo (Mikhailov, 2019), from dark blue through green to dark red: for fields. `share` is clamped to [0, 1].
Rgb turbo(double share);

// ColorBrewer's red-blue, from dark blue (0) through white (0.5) to dark red (1): for errors.
Rgb blue_white_red(double share);

}  // namespace isobar
