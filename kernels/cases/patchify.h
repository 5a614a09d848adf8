// The cases of patchify and unpatchify. See kernels/cases/operands.h.
#pragma once

#include "kernels/cases/operands.h"
#include "kernels/patchify.h"

namespace isobar::cases {

inline PatchifyArgs patchify(PatchifyArgs a, Operands&& operands) {
  const std::int64_t n = a.batch * a.channels * a.height * a.width;
  a.image = operands.input("image", n, a.image_dtype);
  a.tokens = operands.output("tokens", n, a.token_dtype);
  return operands.complete(a);
}

inline UnpatchifyArgs unpatchify(UnpatchifyArgs a, Operands&& operands) {
  const std::int64_t n = a.batch * a.channels * a.height * a.width;
  a.tokens = operands.input("tokens", n, a.token_dtype);
  a.image = operands.output("image", n, a.image_dtype);
  return operands.complete(a);
}

}  // namespace isobar::cases
