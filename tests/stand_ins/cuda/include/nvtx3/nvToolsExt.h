// NVTX's ranges: the virtual GPU tells by them where in the program a call was made.
#pragma once

extern "C" int nvtxRangePushA(const char* name);
extern "C" int nvtxRangePop();
