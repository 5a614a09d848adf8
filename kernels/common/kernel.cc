#include "kernels/common/kernel.h"

#include "kernels/common/check.h"

namespace isobar {

void fail_not_built(DeviceKind kind) {
  throw_error("this build has no kernels for the device ", name_of(kind));
}

}  // namespace isobar
