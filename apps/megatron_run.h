// A command line of Megatron-LM (apps/megatron_flags.h) as that of a run of isobar: the layout of its ranks, its
// config, its folder, and the voice in which it tells.
#pragma once

#include "apps/megatron_flags.h"
#include "apps/train_flags.h"

namespace isobar {

// Flags that do not depend on the number of ranks; find_ranks() comes next.
TrainFlags megatron_launch(const MegatronArguments& arguments);

// The config and the voice, for so many ranks. Error naming the flags that are missing or do not fit each other.
void add_megatron_config(TrainFlags& flags, const MegatronArguments& arguments);

}  // namespace isobar
