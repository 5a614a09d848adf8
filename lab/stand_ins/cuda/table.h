// How a library that uses the emulator's streams (kernels/emulator/stand_in.h) finds the virtual GPU, if the program
// has one: by the symbol kTableName. The table handles streams, events and memory of the virtual GPU itself, and passes
// all others to the emulator's table.
#pragma once

#include "kernels/emulator/stand_in.h"

namespace isobar::virtual_gpu {

inline constexpr const char* kTableName = "isobar_virtual_gpu_table";
using TableFunction = const emulator::StandInTable* (*)(const emulator::StandInTable* of_emulator);

}  // namespace isobar::virtual_gpu
