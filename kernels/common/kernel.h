// How a kernel is declared, one implementation for each kind of device; kernels/common/run.h calls one of them.
#pragma once

#include "kernels/common/cost.h"
#include "kernels/common/device.h"
#include "kernels/common/stream.h"

namespace isobar {

// Throws an Error: this build has no kernels for that device.
[[noreturn]] void fail_not_built(DeviceKind kind);

// Adds a call of a kernel on the device meta to the account of this thread (kernels/common/cost_account.h).
void account_for(const char* kernel, const Cost& cost);

}  // namespace isobar

// Declares `void name(const Arguments&, Stream)` in namespaces cpu, cuda and emulator, and defines the one of meta,
// which adds name_cost(arguments) to the account. The arguments of kernel x_y are the struct XYArgs, so that they share
// no name with an op.
#define ISOBAR_KERNEL(name, Arguments)                              \
  namespace cpu {                                                   \
  void name(const Arguments& arguments, Stream stream = {});        \
  }                                                                 \
  namespace cuda {                                                  \
  void name(const Arguments& arguments, Stream stream = {});        \
  }                                                                 \
  namespace emulator {                                              \
  void name(const Arguments& arguments, Stream stream = {});        \
  }                                                                 \
  namespace meta {                                                  \
  inline void name(const Arguments& arguments, Stream = {}) {       \
    ::isobar::account_for(#name, ::isobar::name##_cost(arguments)); \
  }                                                                 \
  }
