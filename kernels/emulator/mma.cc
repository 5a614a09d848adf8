// The tensor-core products of the emulator. Fragments have the layout of the PTX manual for m16n8k16: with g = lane / 4
// and t = lane % 4, word i of A holds row g + 8·(i % 2), columns 2t + 8·(i / 2) and the next; word i of B holds rows 2t
// + 8·i and the next of column g; the product's words are rows g, g, g + 8, g + 8 and columns 2t, 2t + 1. For m16n8k8
// of TF32 word i of A holds row g + 8·(i % 2), column t + 4·(i / 2); word i of B row t + 4·i, column g.
#include <bit>

#include "kernels/common/dtype.h"
#include "kernels/emulator/emulator.h"

namespace isobar::emulator {

namespace {

constexpr int kRows = 16, kColumns = 8, kLanes = 32;

struct Fragments {
  std::uint32_t a[4], b[2];
};

template <class T>
float element(std::uint32_t word, int half) {
  T value;
  value.bits = static_cast<std::uint16_t>(word >> (16 * half));
  return static_cast<float>(value);
}

template <int kDepth>
void multiply(const float (&a)[kRows][kDepth], const float (&b)[kDepth][kColumns], void* result) {
  auto* product = static_cast<float(*)[kColumns]>(result);
  for (int row = 0; row < kRows; ++row) {
    float sum[kColumns] = {};
    for (int k = 0; k < kDepth; ++k)
      for (int column = 0; column < kColumns; ++column) sum[column] += a[row][k] * b[k][column];
    for (int column = 0; column < kColumns; ++column) product[row][column] = sum[column];
  }
}

template <class T>
void combine_mma(const void* deposits, void* result) {
  const auto* lanes = static_cast<const Fragments*>(deposits);
  float a[kRows][16], b[16][kColumns];
  for (int lane = 0; lane < kLanes; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 4; ++i) a[g + 8 * (i % 2)][2 * t + 8 * (i / 2) + half] = element<T>(lanes[lane].a[i], half);
      for (int i = 0; i < 2; ++i) b[2 * t + 8 * i + half][g] = element<T>(lanes[lane].b[i], half);
    }
  }
  multiply(a, b, result);
}

}  // namespace

void combine_mma_tf32(const void* deposits, void* result) {
  const auto* lanes = static_cast<const Fragments*>(deposits);
  float a[kRows][8], b[8][kColumns];
  for (int lane = 0; lane < kLanes; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) a[g + 8 * (i % 2)][t + 4 * (i / 2)] = std::bit_cast<float>(lanes[lane].a[i]);
    for (int i = 0; i < 2; ++i) b[t + 4 * i][g] = std::bit_cast<float>(lanes[lane].b[i]);
  }
  multiply(a, b, result);
}

void combine_mma_bf16(const void* deposits, void* result) {
  combine_mma<bf16>(deposits, result);
}

void combine_mma_fp16(const void* deposits, void* result) {
  combine_mma<fp16>(deposits, result);
}

}  // namespace isobar::emulator
