// The folder in which the libraries that stand in for NVIDIA's were built.
#pragma once

namespace isobar::testing {

extern const char* const kStandIns;  // a folder, for ISOBAR_CUDA_LIBS

}  // namespace isobar::testing
