// What `isobar train` does once its flags are read; front ends with other flags do the same.
#pragma once

#include "apps/train_flags.h"

namespace isobar {

// Trains, after find_ranks. A run that a signal has stopped is a CLI::RuntimeError with its status.
void train_on_ranks(TrainFlags flags);

}  // namespace isobar
