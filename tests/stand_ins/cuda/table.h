// How a library that works on the emulator's streams (kernels/emulator/stand_in.h) finds the virtual GPU, where the
// program has one: by the symbol kTableName. Of streams, events and memory of the virtual GPU its table takes care
// itself, all others it leaves to the one that it is given.
#pragma once

#include "kernels/emulator/stand_in.h"

namespace isobar::virtual_gpu {

inline constexpr const char* kTableName = "isobar_virtual_gpu_table";
using TableFunction = const emulator::StandInTable* (*)(const emulator::StandInTable* of_emulator);

}  // namespace isobar::virtual_gpu
