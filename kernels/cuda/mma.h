// The tensor-core product of a warp and the loads for it (sm_80 and later). With g = lane / 4, t = lane % 4:
//
//   D[16, 8] = A[16, 16] · B[16, 8] + C[16, 8]; without c, D += A · B; d and c may be the same
//   a[i]  rows g + 8·(i % 2), columns 2t + 8·(i / 2) and the next     b[i]  rows 2t + 8·i and the next, column g
//   d[0], d[1]  row g, columns 2t and 2t + 1                          d[2], d[3]  row g + 8, the same columns; c as d
//
// mma_1688 is the same in tf32, D[16, 8] = A[16, 8] · B[8, 8] + C[16, 8]; to_tf32 makes a and b:
//   a[i]  row g + 8·(i % 2), column t + 4·(i / 2)                     b[i]  row t + 4·i, column g
#pragma once

#include "kernels/cuda/convert.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE {

// A number in fp32; a product uses 10 of the 23 bits of its fraction.
struct Tf32 {
  float value;
};

#if defined(ISOBAR_EMULATE)

inline void combine_fragments(Combine combine, float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                              const float (&c)[4], const std::source_location& site) {
  const std::uint32_t fragments[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  const Exchange met = exchange_bytes(kAllLanes, fragments, sizeof fragments, combine, site);
  const auto* product = static_cast<const float(*)[8]>(met.result);
  const int g = self->lane / 4, t = self->lane % 4;
  for (int i = 0; i < 4; ++i) d[i] = c[i] + product[g + 8 * (i / 2)][2 * t + i % 2];
}

template <class T>
void mma_16816(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], const float (&c)[4],
               ISOBAR_SITE) {
  combine_fragments(std::is_same_v<T, bf16> ? combine_mma_bf16 : combine_mma_fp16, d, a, b, c, site);
}

// Rounds away 13 of the 32 bits of x: ties away from zero; NaN becomes the NaN that CUDA makes.
inline std::uint32_t to_tf32(float x) {
  constexpr std::uint32_t kNan = 0x7fffffffu, kHalf = 0x1000u, kLost = 0x1fffu;
  if (std::isnan(x)) return kNan;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return (std::isinf(x) ? bits : bits + kHalf) & ~kLost;
}

// Operands that to_tf32 has not made are an error. A GPU would accept them, and round them towards zero.
inline void mma_1688(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], const float (&c)[4],
                     ISOBAR_SITE) {
  for (const std::uint32_t word : {a[0], a[1], a[2], a[3], b[0], b[1]})
    if (to_tf32(std::bit_cast<float>(word)) != word) fail_in_kernel("an operand that is not in tf32", site);
  combine_fragments(combine_mma_tf32, d, a, b, c, site);
}

template <class T>
void mma_16816(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], ISOBAR_SITE) {
  mma_16816<T>(d, a, b, d, site);
}

struct MatrixRow {
  std::uint16_t element[8];
};

// Every lane reads the row whose address it passes, so that the sanitizers see the access at its place.
inline const MatrixRow* exchange_rows(const void* row, const std::source_location& site) {
  check_aligned(row, 16, site);
  return exchange(kAllLanes, std::bit_cast<MatrixRow>(load_bytes(row)), site);
}

inline void ldmatrix_x4(std::uint32_t (&r)[4], const void* row, ISOBAR_SITE) {
  const MatrixRow* rows = exchange_rows(row, site);
  const int g = self->lane / 4, t = self->lane % 4;
  for (int i = 0; i < 4; ++i) {
    const MatrixRow& from = rows[8 * i + g];
    r[i] = from.element[2 * t] | static_cast<std::uint32_t>(from.element[2 * t + 1]) << 16;
  }
}

inline void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* row, ISOBAR_SITE) {
  const MatrixRow* rows = exchange_rows(row, site);
  const int g = self->lane / 4, t = self->lane % 4;
  for (int i = 0; i < 4; ++i) {
    const MatrixRow* from = rows + 8 * i + 2 * t;
    r[i] = from[0].element[g] | static_cast<std::uint32_t>(from[1].element[g]) << 16;
  }
}

#else

template <class T>
__device__ __forceinline__ void mma_16816(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                          const float (&c)[4]);

template <>
__device__ __forceinline__ void mma_16816<bf16>(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                                const float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

template <>
__device__ __forceinline__ void mma_16816<fp16>(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                                const float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

template <class T>
__device__ __forceinline__ void mma_16816(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  mma_16816<T>(d, a, b, d);
}

__device__ __forceinline__ void mma_1688(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                         const float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

// x with 10 bits of its fraction, rounded to nearest, ties away from zero.
__device__ __forceinline__ std::uint32_t to_tf32(float x) {
  std::uint32_t y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
}

// Four 8x8 matrices of 16-bit elements from shared memory: lane l passes the address of row l % 8 of matrix l / 8,
// 16-byte aligned; r[i] becomes row g, columns 2t and 2t + 1 of matrix i. With 32-bit elements the matrices are 8x4,
// and r[i] becomes row g, column t.
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&r)[4], const void* row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// The same with each matrix transposed: r[i] becomes rows 2t and 2t + 1, column g of matrix i.
__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t (&r)[4], const void* row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

#endif

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
