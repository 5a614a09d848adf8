// NVTX's ranges: the virtual GPU uses them to name the place of a call in the program.
#pragma once

extern "C" int nvtxRangePushA(const char* name);
extern "C" int nvtxRangePop();
