// FewRowsScope - where the product of few rows may have other bits than among many (kernels/gemm/gemm.h has products)
#pragma once

#include "kernels/gemm/gemm.h"

namespace isobar::cpu {

inline constexpr int kFewRows = 8;

// While one lives, cpu::gemm makes products of its thread that have at most kFewRows rows and a transposed B of scalar
// products (kernels/gemm/dots.h): B is read once, in the order of memory, which takes half the time where it lies
// there and not in a cache. A row has the same bits among 1 to kFewRows rows then, but not those that it has among
// more. So it is for who always computes few rows, as whoever writes a text token by token. Without it, what is
// computed in batches has the same bits in batches of any size.
class FewRowsScope {
 public:
  FewRowsScope();
  ~FewRowsScope();
  FewRowsScope(const FewRowsScope&) = delete;
  FewRowsScope& operator=(const FewRowsScope&) = delete;

 private:
  bool before_;
};

// C of at most kFewRows rows; B transposed, A not.
void gemm_dots(const GemmArgs& arguments, Stream stream = {});

}  // namespace isobar::cpu
