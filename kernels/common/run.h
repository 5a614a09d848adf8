// How the implementation of a kernel (kernels/common/kernel.h) for a device is called.
#pragma once

#include "kernels/common/cost_account.h"
#include "kernels/common/kernel.h"
#include "kernels/common/operands.h"
#include "kernels/common/trace.h"

// Calls the implementation of `name` for a device. Without CUDA (or the emulator) that branch is discarded, so the
// missing symbols are never needed, and such a device is an Error. ISOBAR_HAS_CUDA and ISOBAR_HAS_EMULATOR, 0 or 1,
// come from the command line and stay macros: a source that does not ask is the same text in every build, and compiled
// once by a compiler cache.
// Where this thread is traced, the call is an event of it, and its arguments are evaluated a second time, for its cost
// and its operands. So they are written in the call, where a tensor's address is taken.
#define ISOBAR_RUN(device, name, ...)                                                    \
  do {                                                                                   \
    const ::isobar::TracedCall isobar_traced(::isobar::TraceEvent::Kind::kernel, #name); \
    if (isobar_traced.is_on()) {                                                         \
      const ::isobar::CostAccount isobar_account;                                        \
      const ::isobar::OperandScope isobar_operands;                                      \
      ::isobar::meta::name(__VA_ARGS__);                                                 \
      isobar_traced.describe(isobar_account.total(), isobar_operands.operands());        \
    }                                                                                    \
    switch ((device).kind) {                                                             \
      case ::isobar::DeviceKind::cuda:                                                   \
        if constexpr (ISOBAR_HAS_CUDA)                                                   \
          ::isobar::cuda::name(__VA_ARGS__);                                             \
        else                                                                             \
          ::isobar::fail_not_built((device).kind);                                       \
        break;                                                                           \
      case ::isobar::DeviceKind::emulator:                                               \
        if constexpr (ISOBAR_HAS_EMULATOR)                                               \
          ::isobar::emulator::name(__VA_ARGS__);                                         \
        else                                                                             \
          ::isobar::fail_not_built((device).kind);                                       \
        break;                                                                           \
      case ::isobar::DeviceKind::meta:                                                   \
        ::isobar::meta::name(__VA_ARGS__);                                               \
        break;                                                                           \
      default:                                                                           \
        ::isobar::cpu::name(__VA_ARGS__);                                                \
    }                                                                                    \
  } while (0)
