// Attention over a cache on the CPU: a head of a sample is the work of one thread. It reads the keys once for the
// scores, and the values once for the sum; both are bound by memory.
#include "kernels/attention/cached.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/vector_math.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

// A head of a sample.
template <class T>
struct Head {
  const T *q, *k, *v;
  T *keys, *values, *o;               // of token 0
  std::int64_t size, stride, tokens;  // elements between the tokens of the cache; tokens that are seen
};

template <class T>
void keep_newest(const Head<T>& h) {
  T* key = h.keys + (h.tokens - 1) * h.stride;
  T* value = h.values + (h.tokens - 1) * h.stride;
  for (std::int64_t c = 0; c < h.size; ++c) key[c] = h.k[c], value[c] = h.v[c];
}

// Writes the scores, and returns their max.
template <class T, class Acc>
Acc scores_of(const Head<T>& h, Acc scale, const Acc* q, Acc* scores) {
  Acc max = -__builtin_inf();
  for (std::int64_t j = 0; j < h.tokens; ++j) {
    const T* key = h.keys + j * h.stride;
    Acc sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t c = 0; c < h.size; ++c) sum += q[c] * convert<Acc>(key[c]);
    scores[j] = scale * sum;
    max = scores[j] > max ? scores[j] : max;
  }
  return max;
}

template <class T, class Acc>
void attend(const Head<T>& h, Acc scale, Acc* scores) {
  constexpr std::int64_t kMostChannels = 128;
  Acc q[kMostChannels], o[kMostChannels];
  keep_newest(h);
  for (std::int64_t c = 0; c < h.size; ++c) q[c] = convert<Acc>(h.q[c]), o[c] = 0;
  const Acc max = scores_of(h, scale, q, scores);
#pragma omp simd
  for (std::int64_t j = 0; j < h.tokens; ++j) scores[j] = exp(scores[j] - max);
  Acc all = 0;
  for (std::int64_t j = 0; j < h.tokens; ++j) {
    const T* value = h.values + j * h.stride;
    all += scores[j];
#pragma omp simd
    for (std::int64_t c = 0; c < h.size; ++c) o[c] += scores[j] * convert<Acc>(value[c]);
  }
  for (std::int64_t c = 0; c < h.size; ++c) h.o[c] = convert<T>(o[c] / all);
}

template <class T>
void run(const AttentionCachedArgs& a) {
  using Acc = accumulator_t<T>;
  const std::int64_t stride = a.heads * a.head_size;
  const auto head_of = [&](const void* rows, std::int64_t at) { return static_cast<const T*>(rows) + at; };
  const std::int64_t grain = ceil_div(kGrain, 4 * a.capacity * a.head_size);
  parallel_for(a.batch * a.heads, grain, [&](std::int64_t begin, std::int64_t end) {
    Acc* scores = static_cast<Acc*>(scratch(Scratch::attention, static_cast<std::size_t>(a.capacity) * sizeof(Acc)));
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t b = i / a.heads, channel = i % a.heads * a.head_size;
      T* o = static_cast<T*>(a.o) + b * a.o_stride + channel;
      const std::int64_t position = a.position[b];
      if (position < 0) {
        for (std::int64_t c = 0; c < a.head_size; ++c) o[c] = convert<T>(0.0f);
        continue;
      }
      const std::int64_t kept = b * a.capacity * stride + channel;
      attend<T, Acc>({.q = head_of(a.q, b * a.q_stride + channel),
                      .k = head_of(a.k, b * a.k_stride + channel),
                      .v = head_of(a.v, b * a.v_stride + channel),
                      .keys = static_cast<T*>(a.keys) + kept,
                      .values = static_cast<T*>(a.values) + kept,
                      .o = o,
                      .size = a.head_size,
                      .stride = stride,
                      .tokens = position + 1},
                     static_cast<Acc>(a.scale), scores);
    }
  });
}

}  // namespace

void attention_cached(const AttentionCachedArgs& a) {
  check_attention_cached(a);
  check_cached_positions(a);
  visit_floating(a.dtype, [&]<class T>(Type<T>) { run<T>(a); });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(attention_cached, AttentionCachedArgs)
