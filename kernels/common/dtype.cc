#include "kernels/common/dtype.h"

#include "kernels/common/check.h"

namespace isobar {

void fail_unsupported(DType dtype) {
  throw_error("no computation is defined on elements of ", name_of(dtype), " here");
}

}  // namespace isobar
