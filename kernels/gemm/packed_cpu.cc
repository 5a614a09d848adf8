#include "kernels/gemm/packed.h"

#include <cstdint>

#include "kernels/cpu/gelu_gate.h"
#include "kernels/gemm/dots.h"
#include "kernels/gemm/few_rows.h"
#include "kernels/gemm/packed_product.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

// The operations on the sums of a row of a tile. Sums over earlier terms are in `partial`, which is C itself if C has
// the accumulator's type.
template <class Out, class T>
struct Epilogue {
  const GemmArgs& g;
  T* partial;
  bool first = true, last = true;  // whether these are the first or the last terms of the sums

  ISOBAR_INLINE void row(T* __restrict__ sums, int64_t row, int64_t column, int64_t width) const {
    const int64_t at = row * g.n + column;
    auto* c = static_cast<Out*>(g.c) + at;
    if (!first) {
      for (int64_t j = 0; j < width; ++j) sums[j] += partial[at + j];
    } else if (g.mode == Grad::accumulate) {
      for (int64_t j = 0; j < width; ++j) sums[j] += static_cast<T>(c[j]);
    }
    if (!last) {
      for (int64_t j = 0; j < width; ++j) partial[at + j] = sums[j];
      return;
    }
    if (g.bias != nullptr) {
      const T* bias = static_cast<const T*>(g.bias) + column;
      for (int64_t j = 0; j < width; ++j) sums[j] += bias[j];
    }
    if (g.pre != nullptr) {
      auto* pre = static_cast<Out*>(g.pre) + at;
      for (int64_t j = 0; j < width; ++j) pre[j] = static_cast<Out>(sums[j]);
    }
    if (g.activation == Activation::gelu_erf) {
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) sums[j] *= GeluErf::gate(sums[j]).value;
    } else if (g.activation == Activation::gelu_tanh) {
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) sums[j] *= GeluTanh::gate(sums[j]).value;
    }
    if (width == kPanel<T>)
      convert_fixed<kPanel<T>>(sums, c);
    else
      convert_run(sums, c, width);
  }

  ISOBAR_INLINE void prefetch(int64_t row_begin, int64_t column) const {
    const auto* c = static_cast<const char*>(g.c);
    const int64_t rows = min(kTileRows, g.m - row_begin);
    for (int64_t i = 0; i < rows; ++i) {
      const char* at = c + ((row_begin + i) * g.n + column) * sizeof(Out);
      for (int byte = 0; byte < kPanel<T> * static_cast<int>(sizeof(Out)); byte += 64) __builtin_prefetch(at + byte, 1);
    }
  }
};

enum class Form : std::uint8_t { packed, dots };

template <class Format, class Out>
void multiply_matrices(const GemmArgs& g, Form form) {
  using T = typename Format::Sum;
  using In = typename Format::In;
  T* partial = nullptr;
  if constexpr (sizeof(Out) == sizeof(T))
    partial = static_cast<T*>(g.c);
  else if (passes_of<Format>(g.k) > 1)
    partial = static_cast<T*>(scratch(Scratch::gemm_partial, g.m * g.n * sizeof(T)));
  const auto* a = static_cast<const In*>(g.a);
  const Epilogue<Out, T> epilogue{g, partial};
  if (form == Form::dots) return multiply_dots<Format>(a, static_cast<const In*>(g.b), epilogue, {g.m, g.n, g.k});
  const MatrixB<Format> b{static_cast<const In*>(g.b), g.n, g.transpose_b ? g.k : g.n, g.transpose_b};
  if (g.transpose_a)
    multiply<Format>(MatrixA<Format, true>{a, g.m}, b, epilogue, {g.m, g.n, g.k});
  else
    multiply<Format>(MatrixA<Format, false>{a, g.k}, b, epilogue, {g.m, g.n, g.k});
}

#if defined(ISOBAR_ISA_IS_avx512)
template <class Products>
void multiply_pairs_into(const GemmArgs& g, Form form) {
  if (g.out_dtype == DType::bf16)
    multiply_matrices<InPairs<Products>, bf16>(g, form);
  else
    multiply_matrices<InPairs<Products>, float>(g, form);
}
#endif

void multiply_formats(const GemmArgs& g, Form form) {
  if (g.m == 0 || g.n == 0) return;
#if defined(ISOBAR_ISA_IS_avx512)
  if (g.in_dtype == DType::bf16 && bf16_products() == Bf16Products::pairs) return multiply_pairs_into<Pairs>(g, form);
  if (g.in_dtype == DType::bf16 && bf16_products() == Bf16Products::emulated_pairs)
    return multiply_pairs_into<EmulatedPairs>(g, form);
#endif
  visit_floating(g.in_dtype, [&]<class In>(Type<In>) {
    if (g.out_dtype == g.in_dtype)
      multiply_matrices<Single<In>, In>(g, form);
    else
      multiply_matrices<Single<In>, float>(g, form);
  });
}

}  // namespace

void gemm_packed(const GemmArgs& g) {
  multiply_formats(g, Form::packed);
}

void gemm_dots(const GemmArgs& g) {
  multiply_formats(g, Form::dots);
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(gemm_packed, GemmArgs)
ISOBAR_CPU_KERNEL(gemm_dots, GemmArgs)
