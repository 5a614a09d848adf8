// What the planes and the grid of a forecast's network are, for weights that begin with those of another one
// (models/partial_start.h).
#pragma once

#include "models/forecast/fields_info.h"
#include "models/forecast/options.h"
#include "models/network.h"

namespace isobar {

// Names are short ones (data/fields/channels.h), so that two spellings of a channel are one. Older states, masks and
// time planes have names that no channel has. Every key has a value. The coordinates of rows and columns that pad_grid
// adds go on as those of the data end.
FieldsMeaning meaning_of(const ForecastOptions& options, const FieldsInfo& info, const NetworkRecipe& network);

}  // namespace isobar
