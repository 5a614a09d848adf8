// The third ladder: attention forward (kernels/attention/attention.h) in fp32, with heads of 48 channels as the `base`
// model has them, no mask and no dropout. docs/learn/4_attention.md derives it, docs/learn/ladders.md walks through its
// rungs.
//
//   S = Q·Kᵀ / √48,   P = softmax(S),   O = P·V,   lse_i = log Σ_j exp(S_ij)          for each head
//
// bench/ladder/attention_cpu.cc holds the rungs for a CPU, bench/ladder/attention.cu those for a GPU (and the
// emulator).
#pragma once

#include <cstdint>

#include "kernels/common/stream.h"

namespace isobar {

inline constexpr int kRungHead = 48;                           // channels of a head
inline constexpr float kRungScale = 0.14433756729740646f;      // 1/√48
inline constexpr float kRungLog2Scale = 0.20823509255394532f;  // the same times log₂ e: exp(s) = 2^(s·log₂ e)

struct AttentionRungArgs {
  std::int64_t heads = 0, tokens = 0;
  const float* q = nullptr;  // [heads, tokens, 48]; k and v too
  const float* k = nullptr;
  const float* v = nullptr;
  float* o = nullptr;       // [heads, tokens, 48]
  float* lse = nullptr;     // [heads, tokens]
  float* scores = nullptr;  // [heads, tokens, tokens], for those that store them; contents undefined afterwards
};

namespace cpu {
void attention_stored(const AttentionRungArgs& a, Stream stream = {});
void attention_online(const AttentionRungArgs& a, Stream stream = {});
void attention_blocks(const AttentionRungArgs& a, Stream stream = {});
void attention_tiled(const AttentionRungArgs& a, Stream stream = {});
void attention_threaded(const AttentionRungArgs& a, Stream stream = {});
}  // namespace cpu

namespace cuda {
void attention_stored(const AttentionRungArgs& a, Stream stream = {});
void attention_online(const AttentionRungArgs& a, Stream stream = {});
void attention_shared(const AttentionRungArgs& a, Stream stream = {});
void attention_tensor(const AttentionRungArgs& a, Stream stream = {});
}  // namespace cuda

namespace emulator {
void attention_stored(const AttentionRungArgs& a, Stream stream = {});
void attention_online(const AttentionRungArgs& a, Stream stream = {});
void attention_shared(const AttentionRungArgs& a, Stream stream = {});
void attention_tensor(const AttentionRungArgs& a, Stream stream = {});
}  // namespace emulator

}  // namespace isobar
