// conv on tensor cores (sm_80 and later): an implicit product [m, k] · [k, n], as in conv.cu, by mma.sync.
//
// A block of four warps makes a tile of the result, 128 rows by 128 or 64 columns, or fewer where there are no more; a
// warp a quarter of it. It streams the terms through three stages of shared memory, 64 bytes of a row and of a column
// at a time. cp.async gathers them from where they lie, in chunks of 16 bytes; zeros stand for what lies outside. If
// the elements that lie side by side are no multiple of a chunk, or the pointer is not aligned, the elements of that
// operand are loaded one by one. None of this changes a bit.
//
// The rows of A and the columns of B are both called lines here: an operand is a matrix of lines by terms. Its source
// (FwdOperands and its neighbours below) says where element (line, term) lies in its tensor, in two halves: what a
// thread finds out once about a line, and once about a term of a step.
#pragma once

#include <type_traits>
#include <utility>

#include "kernels/conv/parts.cuh"
#include "kernels/conv/tensor_core.h"
#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/pack.h"

namespace isobar::ISOBAR_CUDA_NAMESPACE::tensor_core {

inline constexpr int kWarps = 4, kThreads = kWarps * kWarpSize, kStages = 3;

template <class T>
inline constexpr int kChunk = Pack<T>::kSize;  // elements of 16 bytes
template <class T>
inline constexpr int kStep = 4 * kChunk<T>;  // terms: 32 in 16 bits, 16 in tf32
// A step is two products of tensor cores deep.
inline constexpr int kDepths = 2;

// ---- Where elements lie ---------------------------------------------------------------------------------------------

// A tap of a window, in shared memory: its distance from the window's place in the source, and the element of the
// kernel that it is.
struct __align__(16) Tap {
  int by[3], kernel;
};

// Half of an element's place, of a line or of a term: what it adds to its index, and whether there is none.
struct Half {
  std::uint32_t index, absent;
};

// An element (line, term) that lies at line·line_step + term·term_step.
template <class T>
struct Matrix {
  using Line = Half;
  using Term = Half;

  const T* from;
  std::uint32_t line_step, term_step;

  __device__ __forceinline__ Line line(int j, bool exists, const Tap*) const { return {j * line_step, !exists}; }
  __device__ __forceinline__ Term term(int k, bool exists, const Tap*) const { return {k * term_step, !exists}; }
  __device__ __forceinline__ bool find(const Line& line, const Term& term, std::uint32_t& at) const {
    at = line.index + term.index;
    return (line.absent | term.absent) == 0;
  }
  __device__ __forceinline__ const T* data() const { return from; }
};

// The weight as bwd_data reads it: a line is an input channel; terms are taps of the window and output channels.
template <class T>
struct WeightOfTaps {
  using Line = Half;
  using Term = Half;

  const T* from;
  Divisor of_channels;           // out
  std::uint32_t taps, channels;  // of the kernel; in
  std::int32_t kernel[3];        // extents

  __device__ __forceinline__ Line line(int j, bool exists, const Tap*) const {
    return {static_cast<std::uint32_t>(j), !exists};
  }
  __device__ __forceinline__ Term term(int k, bool exists, const Tap* window) const {
    const Quotient q = of_channels.divide(exists ? k : 0);
    return {(q.remainder * taps + window[q.quotient].kernel) * channels, !exists};
  }
  __device__ __forceinline__ bool find(const Line& line, const Term& term, std::uint32_t& at) const {
    at = line.index + term.index;
    return (line.absent | term.absent) == 0;
  }
  __device__ __forceinline__ const T* data() const { return from; }
};

// A tensor [samples, points, channels] seen through a window. Positions on a wrapped axis are counted from one length
// before its first element, where the first one that is read may be. So one unsigned comparison an axis says whether
// there is an element; what does not exist is far beyond all of them.
template <class T>
class Window {
 public:
  struct Place {  // of a window in the source
    std::uint32_t at[3], index;
  };
  struct Shift {  // from there to a tap and channel
    std::uint32_t by[3], index;
  };

  Window(const void* tensor, const ConvWindow& window, std::int64_t channels)
      : data_(static_cast<const T*>(tensor)), index_(window, channels) {
    auto span = static_cast<std::uint32_t>(channels);
    for (int a = 2; a >= 0; --a) {
      const ConvWindowAxis& axis = window.axes[a];
      const auto extent = static_cast<std::uint32_t>(axis.extent);
      const bool wraps = axis.edge == Edge::wrap;
      first_[a] = wraps ? extent : 0;
      beyond_[a] = wraps ? 2 * extent : ~0u;
      last_[a] = wraps ? 3 * extent - 1 : extent - 1;
      step_[a] = static_cast<std::uint32_t>(axis.step);
      stride_[a] = span;
      span *= extent;
      span_[a] = span;
      wraps_ |= wraps ? 1u : 0u;
    }
    sample_ = span;
  }

  __device__ __forceinline__ Place place(int row, bool exists) const {
    if (!exists) return {{kNowhere, 0, 0}, 0};
    const WindowIndex::Row found = index_.row(row);
    Place place;
    place.index = found.sample * sample_;
    for (int a = 0; a < 3; ++a) {
      const std::uint32_t at = found.at[a] * step_[a];
      place.at[a] = first_[a] + at;
      place.index += at * stride_[a];
    }
    return place;
  }
  __device__ __forceinline__ Shift shift(int term, bool exists, const Tap* taps) const {
    if (!exists) return {{kNowhere, 0, 0}, 0};
    const Quotient q = index_.term(term);
    const Tap tap = taps[q.quotient];
    Shift shift;
    shift.index = static_cast<std::uint32_t>(q.remainder);
    for (int a = 0; a < 3; ++a) {
      shift.by[a] = static_cast<std::uint32_t>(tap.by[a]);
      shift.index += shift.by[a] * stride_[a];
    }
    return shift;
  }
  __device__ __forceinline__ bool find(const Place& place, const Shift& shift, std::uint32_t& at) const {
    at = place.index + shift.index;
    bool found = true;
    for (int a = 0; a < 3; ++a) found = found && place.at[a] + shift.by[a] <= last_[a];
    if (wraps_ != 0) {
      for (int a = 0; a < 3; ++a) {
        const std::uint32_t position = place.at[a] + shift.by[a];
        if (position < first_[a])
          at += span_[a];
        else if (position >= beyond_[a])
          at -= span_[a];
      }
    }
    return found;
  }

  __device__ __forceinline__ Tap tap(int number) const {
    const WindowIndex::Tap found = index_.tap(number);
    Tap tap = {.by = {}, .kernel = number};
    for (int a = 0; a < 3; ++a) {
      const ConvRun& run = index_.axis(a).run_of(found.at[a]);
      tap.by[a] = static_cast<int>(run.offset + found.at[a] - run.first);
    }
    return tap;
  }
  // The element of the kernel, of these extents, that a tap is.
  __device__ __forceinline__ int kernel_of(int number, const std::int32_t (&extents)[3]) const {
    const WindowIndex::Tap found = index_.tap(number);
    int element = 0;
    for (int a = 0; a < 3; ++a)
      element = element * extents[a] + static_cast<int>(index_.axis(a).kernel_of(found.at[a]));
    return element;
  }

  __device__ __forceinline__ const T* data() const { return data_; }

 private:
  static constexpr std::uint32_t kNowhere = 1u << 30;

  const T* data_;
  WindowIndex index_;
  std::uint32_t first_[3], beyond_[3], last_[3];  // positions: of the first element, beyond the last one, max
  std::uint32_t step_[3];                         // between windows
  std::uint32_t stride_[3], span_[3], sample_;    // elements between neighbours; of an axis; of a sample
  std::uint32_t wraps_ = 0;                       // whether any axis does
};

// A line is a window, a term a tap and channel: x of fwd, dy of bwd_data.
template <class T>
struct LinesOfWindow {
  using Line = typename Window<T>::Place;
  using Term = typename Window<T>::Shift;

  Window<T> window;

  __device__ __forceinline__ Line line(int j, bool exists, const Tap*) const { return window.place(j, exists); }
  __device__ __forceinline__ Term term(int k, bool exists, const Tap* taps) const {
    return window.shift(k, exists, taps);
  }
  __device__ __forceinline__ bool find(const Line& line, const Term& term, std::uint32_t& at) const {
    return window.find(line, term, at);
  }
  __device__ __forceinline__ const T* data() const { return window.data(); }
};

// The other way round: x of bwd_weight.
template <class T>
struct TermsOfWindow {
  using Line = typename Window<T>::Shift;
  using Term = typename Window<T>::Place;

  Window<T> window;

  __device__ __forceinline__ Line line(int j, bool exists, const Tap* taps) const {
    return window.shift(j, exists, taps);
  }
  __device__ __forceinline__ Term term(int k, bool exists, const Tap*) const { return window.place(k, exists); }
  __device__ __forceinline__ bool find(const Line& line, const Term& term, std::uint32_t& at) const {
    return window.find(term, line, at);
  }
  __device__ __forceinline__ const T* data() const { return window.data(); }
};

// ---- Tiles ----------------------------------------------------------------------------------------------------------

__device__ __forceinline__ int lane_id() {
  return static_cast<int>(threadIdx.x) % kWarpSize;
}
__device__ __forceinline__ int warp_id() {
  return static_cast<int>(threadIdx.x) / kWarpSize;
}

// Rounds a fragment for a product in tf32.
template <class T, int N>
__device__ __forceinline__ void round_fragment([[maybe_unused]] std::uint32_t (&words)[N]) {
  if constexpr (std::is_same_v<T, Tf32>) {
#pragma unroll
    for (int i = 0; i < N; ++i) words[i] = to_tf32(std::bit_cast<float>(words[i]));
  }
}

// kAligned below: that the operand can be copied in chunks is known to the compiler, and is not asked.

// A stage's part of an operand, a tile [lines, terms] in shared memory, for sources whose terms lie side by side. The
// four chunks of a line change places by its number, so that eight that ldmatrix reads together, and eight that lanes
// copy together, lie in different banks.
template <class T, int kLines>
struct TermsSideBySide {
  static constexpr int kElements = kLines * kStep<T>, kPasses = kLines * 4 / kThreads;

  static __device__ __forceinline__ T* chunk(T* tile, int line, int number) {
    return tile + line * kStep<T> + (number ^ (line / 2 % 4)) * kChunk<T>;
  }

  // This thread's part in copying: one chunk of terms of kPasses lines.
  template <class Source, bool kAligned>
  struct Copy {
    typename Source::Line lines[kPasses];
    bool in_chunks;

    __device__ __forceinline__ Copy(const Source& source, int first, int count, bool is_aligned, const Tap* taps)
        : in_chunks(is_aligned) {
#pragma unroll
      for (int i = 0; i < kPasses; ++i) {
        const int j = first + line_of(i);
        lines[i] = source.line(j, j < count, taps);
      }
    }
    static __device__ __forceinline__ int line_of(int pass) {
      return static_cast<int>(threadIdx.x) / 4 + pass * (kThreads / 4);
    }

    // Terms from k on, of which those before `end` are wanted.
    __device__ __forceinline__ void start(const Source& source, T* tile, int k, int end, const Tap* taps) const {
      const int number = static_cast<int>(threadIdx.x) % 4;
      k += number * kChunk<T>;
      if (kAligned || in_chunks) {
        const auto term = source.term(k, k < end, taps);
#pragma unroll
        for (int i = 0; i < kPasses; ++i) {
          std::uint32_t at;
          const bool exists = source.find(lines[i], term, at);
          cp_async_16(chunk(tile, line_of(i), number), source.data() + at, exists);
        }
      } else {
        Pack<T> packs[kPasses];
#pragma unroll
        for (int e = 0; e < kChunk<T>; ++e) {
          const auto term = source.term(k + e, k + e < end, taps);
#pragma unroll
          for (int i = 0; i < kPasses; ++i) {
            std::uint32_t at;
            packs[i][e] = source.find(lines[i], term, at) ? source.data()[at] : T{};
          }
        }
#pragma unroll
        for (int i = 0; i < kPasses; ++i) store_pack(chunk(tile, line_of(i), number), packs[i]);
      }
    }
  };

  // The fragment of 16 rows from `line` on, for one of the products of a step. Its quarters go down, then right.
  static __device__ __forceinline__ void load_a(std::uint32_t (&a)[4], T* tile, int line, int depth) {
    const int lane = lane_id();
    ldmatrix_x4(a, chunk(tile, line + lane % 16, 2 * depth + lane / 16));
    round_fragment<T>(a);
  }
  // The fragments of two times 8 columns; the quarters go along the terms first.
  static __device__ __forceinline__ void load_b(std::uint32_t (&b)[4], T* tile, int line, int depth) {
    const int lane = lane_id();
    ldmatrix_x4(b, chunk(tile, line + lane / 16 * 8 + lane % 8, 2 * depth + lane / 8 % 2));
    round_fragment<T>(b);
  }
};

// The same as [terms, lines], for sources whose lines lie side by side. In 16 bits the chunks of a term change places,
// so that the rows that ldmatrix reads together lie in different banks; in tf32 terms lie 8 elements further apart, so
// that the elements that the lanes of a warp read together do.
template <class T, int kLines>
struct LinesSideBySide {
  static constexpr int kPitch = kLines + (sizeof(T) == 2 ? 0 : 8), kElements = kPitch * kStep<T>;
  static constexpr int kLanes = kThreads / kStep<T>;  // that copy a term
  static constexpr int kPasses = kLines / kChunk<T> / kLanes;

  static __device__ __forceinline__ T* chunk(T* tile, int term, int number) {
    // A term of 32 lines takes half of the banks, of 64 or more all of them.
    const int change = sizeof(T) != 2 ? 0 : kLines == 32 ? term / 2 % 4 : term % 8;
    return tile + term * kPitch + (number ^ change) * kChunk<T>;
  }

  // This thread's part in copying: kPasses chunks of lines of one term.
  template <class Source, bool kAligned>
  struct Copy {
    typename Source::Line lines[kPasses];
    int first, count;
    bool in_chunks;

    __device__ __forceinline__ Copy(const Source& source, int first_line, int line_count, bool is_aligned,
                                    const Tap* taps)
        : first(first_line), count(line_count), in_chunks(is_aligned) {
      if (kAligned || in_chunks) {
#pragma unroll
        for (int i = 0; i < kPasses; ++i) {
          const int j = first + number_of(i) * kChunk<T>;
          lines[i] = source.line(j, j < count, taps);
        }
      }
    }
    static __device__ __forceinline__ int term_of() {
      return static_cast<int>(threadIdx.x) / kLanes;
    }
    // Where four lanes copy a term, two terms that are copied together begin at different chunks.
    static __device__ __forceinline__ int number_of(int pass) {
      return static_cast<int>(threadIdx.x) % kLanes +
             (pass ^ (kLanes == 4 && kPasses > 1 ? term_of() % 2 : 0)) * kLanes;
    }

    __device__ __forceinline__ void start(const Source& source, T* tile, int k, int end, const Tap* taps) const {
      k += term_of();
      const auto term = source.term(k, k < end, taps);
#pragma unroll
      for (int i = 0; i < kPasses; ++i) {
        T* const to = chunk(tile, term_of(), number_of(i));
        std::uint32_t at;
        if (kAligned || in_chunks) {
          const bool exists = source.find(lines[i], term, at);
          cp_async_16(to, source.data() + at, exists);
        } else {
          Pack<T> pack;
#pragma unroll
          for (int e = 0; e < kChunk<T>; ++e) {
            const int j = first + number_of(i) * kChunk<T> + e;
            pack[e] = source.find(source.line(j, j < count, taps), term, at) ? source.data()[at] : T{};
          }
          store_pack(to, pack);
        }
      }
    }
  };

  // As above. In 16 bits the quarters are transposed as they are loaded; in tf32 each lane finds its elements.
  static __device__ __forceinline__ void load_a(std::uint32_t (&a)[4], T* tile, int line, int depth) {
    const int lane = lane_id();
    if constexpr (sizeof(T) == 2) {
      ldmatrix_x4_trans(a, chunk(tile, 16 * depth + lane / 16 * 8 + lane % 8, line / 8 + lane / 8 % 2));
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = element(tile, 8 * depth + 4 * (i / 2), line + 8 * (i % 2));
    }
  }
  static __device__ __forceinline__ void load_b(std::uint32_t (&b)[4], T* tile, int line, int depth) {
    const int lane = lane_id();
    if constexpr (sizeof(T) == 2) {
      ldmatrix_x4_trans(b, chunk(tile, 16 * depth + lane % 16, line / 8 + lane / 16));
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) b[i] = element(tile, 8 * depth + 4 * (i % 2), line + 8 * (i / 2));
    }
  }

 private:
  // This lane's element of four terms and eight lines, in tf32.
  static __device__ __forceinline__ std::uint32_t element(const T* tile, int term, int line) {
    return to_tf32(tile[(term + lane_id() % 4) * kPitch + line + lane_id() / 4].value);
  }
};

// ---- The product ----------------------------------------------------------------------------------------------------

struct Sizes {
  int first_row, end_row;  // of the result, that are computed
  int n, k;
  int taps;                               // of the window
  int terms;                              // of a part
  float* parts;                           // [parts, rows, n], where there are several; else null
  std::int32_t a_in_chunks, b_in_chunks;  // whether the operands can be copied so
};

template <class T>
__device__ __forceinline__ void multiply_tile(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                              std::uint32_t b1) {
  if constexpr (sizeof(T) == 2)
    mma_16816<T>(d, a, {b0, b1});
  else
    mma_1688(d, a, {b0, b1}, d);
}

// Stores a warp's tile through shared memory of its own, 16 rows at a time, so that neighbouring lanes write
// neighbouring elements.
template <int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void store_tile(const float (&sums)[kRowTiles][kColumnTiles][4], float* room, int row0,
                                           int column0, const Sizes& sizes, const ResultRows& rows,
                                           const ConvResult& result) {
  constexpr int kColumns = 8 * kColumnTiles, kPitch = kColumns + 8, kLanes = kColumns / 4;
  const int lane = lane_id(), left = lane % kLanes * 4, column = column0 + left;
  room += warp_id() * 16 * kPitch;
  const int count = min(4, sizes.n - column);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        store_two(room + (lane / 4 + 8 * half) * kPitch + 8 * n + 2 * (lane % 4), sums[m][n][2 * half],
                  sums[m][n][2 * half + 1]);
    __syncwarp();
#pragma unroll 1
    for (int i = lane / kLanes; i < 16; i += kWarpSize / kLanes) {
      const int row = row0 + 16 * m + i;
      if (row >= sizes.end_row || count <= 0) continue;
      const Pack<float> pack = load_pack(room + i * kPitch + left);
      float sum[4] = {pack[0], pack[1], pack[2], pack[3]};
      if (sizes.parts != nullptr) {
        const std::int64_t rows_of_part = sizes.end_row - sizes.first_row;
        float* const to = sizes.parts + (blockIdx.y * rows_of_part + row - sizes.first_row) * sizes.n + column;
        for (int c = 0; c < count; ++c) to[c] = sum[c];
      } else {
        result.put(rows[row] * sizes.n + column, column, count, sum);
      }
    }
    __syncwarp();
  }
}

// The grid's x runs over the tiles, its y over the parts.
template <class T, class Operands, int kRows, int kColumns, bool kAligned>
__global__ void __launch_bounds__(kThreads, 2)
    product_kernel(Operands operands, Sizes sizes, ResultRows rows, ConvResult result) {
  using A = typename Operands::template ATile<kRows>;
  using B = typename Operands::template BTile<kColumns>;
  constexpr int kRowTiles = kRows / 2 / 16, kColumnTiles = kColumns / 2 / 8;  // of a warp
  constexpr int kStage = A::kElements + B::kElements;
  ISOBAR_DYNAMIC_SHARED(T, stages);
  Tap* const taps = reinterpret_cast<Tap*>(stages + kStages * kStage);
  for (int t = static_cast<int>(threadIdx.x); t < sizes.taps; t += kThreads) taps[t] = operands.tap(t);
  __syncthreads();

  const int column_tiles = (sizes.n + kColumns - 1) / kColumns;
  const int first_row = sizes.first_row + static_cast<int>(blockIdx.x) / column_tiles * kRows;
  const int first_column = static_cast<int>(blockIdx.x) % column_tiles * kColumns;
  const int begin = static_cast<int>(blockIdx.y) * sizes.terms, end = min(sizes.k - begin, sizes.terms) + begin;
  const int steps = (end - begin + kStep<T> - 1) / kStep<T>;
  const typename A::template Copy<typename Operands::A, kAligned> a_copy(operands.a, first_row, sizes.end_row,
                                                                         sizes.a_in_chunks != 0, taps);
  const typename B::template Copy<typename Operands::B, kAligned> b_copy(operands.b, first_column, sizes.n,
                                                                         sizes.b_in_chunks != 0, taps);
  // A stage is as good as any other for what follows the last step.
  const auto load = [&](int step, int slot) {
    if (step < steps) {
      T* const stage = stages + slot * kStage;
      a_copy.start(operands.a, stage, begin + step * kStep<T>, end, taps);
      b_copy.start(operands.b, stage + A::kElements, begin + step * kStep<T>, end, taps);
    }
    cp_async_commit();
  };
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) load(step, step);

  const int warp_row = warp_id() % 2 * (kRows / 2), warp_column = warp_id() / 2 * (kColumns / 2);
  float sums[kRowTiles][kColumnTiles][4] = {};
  int slot = 0;
  for (int step = 0; step < steps; ++step) {
    cp_async_wait<kStages - 2>();
    __syncthreads();  // this stage is loaded, and no thread reads the one before any more
    T* const a_tile = stages + slot * kStage;
    T* const b_tile = a_tile + A::kElements;
    load(step + kStages - 1, slot == 0 ? kStages - 1 : slot - 1);
#pragma unroll
    for (int depth = 0; depth < kDepths; ++depth) {
      std::uint32_t a[kRowTiles][4];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) A::load_a(a[m], a_tile, warp_row + 16 * m, depth);
#pragma unroll
      for (int n = 0; n < kColumnTiles; n += 2) {
        std::uint32_t b[4];
        B::load_b(b, b_tile, warp_column + 8 * n, depth);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          multiply_tile<T>(sums[m][n], a[m], b[0], b[1]);
          multiply_tile<T>(sums[m][n + 1], a[m], b[2], b[3]);
        }
      }
    }
    slot = slot == kStages - 1 ? 0 : slot + 1;
  }
  cp_async_wait<0>();
  __syncthreads();  // the stages are free
  store_tile(sums, reinterpret_cast<float*>(stages), first_row + warp_row, first_column + warp_column, sizes, rows,
             result);
}

// ---- The three operations -------------------------------------------------------------------------------------------

template <class T>
struct FwdOperands {
  static constexpr bool kHasManyRows = true;  // points, not channels
  using A = LinesOfWindow<T>;
  using B = Matrix<T>;
  template <int kLines>
  using ATile = TermsSideBySide<T, kLines>;
  template <int kLines>
  using BTile = TermsSideBySide<T, kLines>;

  A a;
  B b;

  __device__ __forceinline__ Tap tap(int number) const { return a.window.tap(number); }
};

template <class T>
struct BwdDataOperands {
  static constexpr bool kHasManyRows = true;
  using A = LinesOfWindow<T>;
  using B = WeightOfTaps<T>;
  template <int kLines>
  using ATile = TermsSideBySide<T, kLines>;
  template <int kLines>
  using BTile = LinesSideBySide<T, kLines>;

  A a;
  B b;

  __device__ __forceinline__ Tap tap(int number) const {
    Tap tap = a.window.tap(number);
    tap.kernel = a.window.kernel_of(number, b.kernel);
    return tap;
  }
};

template <class T>
struct BwdWeightOperands {
  static constexpr bool kHasManyRows = false;
  using A = Matrix<T>;
  using B = TermsOfWindow<T>;
  template <int kLines>
  using ATile = LinesSideBySide<T, kLines>;
  template <int kLines>
  using BTile = LinesSideBySide<T, kLines>;

  A a;
  B b;

  __device__ __forceinline__ Tap tap(int number) const { return b.window.tap(number); }
};

// Whether 16 bytes of neighbours can be copied at a time.
template <class T>
bool is_aligned(const void* data, std::int64_t neighbours) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && neighbours % kChunk<T> == 0;
}
struct Alignment {
  bool a, b;
};

// Rows whose sums of parts are kept at a time; few in the emulator, so that small tests have several.
inline std::int64_t rows_at_a_time(const ConvProduct& p, const ConvSplit& split) {
#if defined(ISOBAR_EMULATE)
  if (split.parts > 1 && p.m > kTensorCoreTile) return kTensorCoreTile;
#endif
  return tensor_core_rows(p, split);
}

template <class T, int kRows, int kColumns, bool kAligned, class Operands>
void launch_rows(const char* name, const Operands& operands, const Sizes& sizes, int parts, const ResultRows& rows,
                 const ConvResult& result, Stream stream) {
  using A = typename Operands::template ATile<kRows>;
  using B = typename Operands::template BTile<kColumns>;
  const std::size_t shared =
      kStages * (A::kElements + B::kElements) * sizeof(T) + static_cast<std::size_t>(sizes.taps) * sizeof(Tap);
  const std::int64_t tiles =
      ceil_div<std::int64_t>(sizes.end_row - sizes.first_row, kRows) * ceil_div(sizes.n, kColumns);
  launch(name, product_kernel<T, Operands, kRows, kColumns, kAligned>,
         dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(parts)), dim3(kThreads), shared, stream, operands,
         sizes, rows, result);
}

// The tile that wastes least. Few blocks keep few multiprocessors busy: then they are narrow.
template <class T, class Operands>
void launch_tiles(const char* name, const Operands& operands, const Sizes& sizes, int parts, const ResultRows& rows,
                  const ConvResult& result, Stream stream) {
  const int m = sizes.end_row - sizes.first_row, n = sizes.n;
  const auto start = [&]<int kRows, int kColumns, bool kAligned>(std::integer_sequence<int, kRows, kColumns>,
                                                                 std::bool_constant<kAligned>) {
    launch_rows<T, kRows, kColumns, kAligned>(name, operands, sizes, parts, rows, result, stream);
  };
  using Wide = std::integer_sequence<int, 128, 128>;
  using Narrow = std::integer_sequence<int, 128, 64>;
  const bool in_chunks = sizes.a_in_chunks != 0 && sizes.b_in_chunks != 0;
  if constexpr (Operands::kHasManyRows) {
    using FewColumns = std::integer_sequence<int, 128, 32>;
    if (n <= 32) return in_chunks ? start(FewColumns(), std::true_type()) : start(FewColumns(), std::false_type());
  } else {
    using FewRows = std::integer_sequence<int, 32, 128>;
    if (m <= 32) return in_chunks ? start(FewRows(), std::true_type()) : start(FewRows(), std::false_type());
    if (m <= 64 && in_chunks) return start(std::integer_sequence<int, 64, 128>(), std::true_type());
    if (m <= 64) return start(std::integer_sequence<int, 64, 32>(), std::false_type());
  }
  if (!in_chunks) return start(Narrow(), std::false_type());
  const bool is_wide = n > 64 && ceil_div(m, 128) * ceil_div(n, 128) * parts >= multiprocessors();
  return is_wide ? start(Wide(), std::true_type()) : start(Narrow(), std::true_type());
}

// `split` is that of the whole batch, for which the workspace is large enough.
template <class T, class Operands>
void multiply(const char* name, const Operands& operands, const ConvProduct& p, std::int64_t taps,
              const ConvSplit& split, const Alignment& aligned, const ResultRows& rows, const ConvResult& result,
              void* workspace, Stream stream) {
  static_assert(std::has_unique_object_representations_v<Operands>);  // as in operands.cuh
  const int parts = parts_of(p.k, split);
  const std::int64_t at_a_time = parts > 1 ? rows_at_a_time(p, split) : p.m;
  for (std::int64_t first = 0; first < p.m; first += at_a_time) {
    const Sizes sizes = {.first_row = static_cast<int>(first),
                         .end_row = static_cast<int>(std::min(first + at_a_time, p.m)),
                         .n = static_cast<int>(p.n),
                         .k = static_cast<int>(p.k),
                         .taps = static_cast<int>(taps),
                         .terms = static_cast<int>(parts > 1 ? split.terms : p.k),
                         .parts = parts > 1 ? static_cast<float*>(workspace) : nullptr,
                         .a_in_chunks = aligned.a,
                         .b_in_chunks = aligned.b};
    launch_tiles<T>(name, operands, sizes, parts, rows, result, stream);
    if (parts > 1)
      add_parts({sizes.parts, parts, sizes.first_row, sizes.end_row - sizes.first_row, sizes.n}, rows, result, stream);
  }
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE::tensor_core

namespace isobar::ISOBAR_CUDA_NAMESPACE {

template <class T>
void TensorCoreConv<T>::run(const ConvFwdArgs& a, Stream stream) {
  using namespace tensor_core;
  const ConvSplit split = tensor_core_split(conv_fwd_product(a.shape));
  const Alignment aligned{is_aligned<T>(a.x, a.shape.in_channels),
                          is_aligned<T>(a.weight, a.shape.taps() * a.shape.in_channels)};
  for_each_part(a.shape, [&](const ConvShape& s, std::int64_t first) {
    const ConvProduct product = conv_fwd_product(s);
    const ConvWindow window = conv_fwd_window(s);
    const void* const x = from_element(a.x, a.dtype, first * s.in_points() * s.in_channels);
    const tensor_core::FwdOperands<T> operands{
        {Window<T>(x, window, s.in_channels)},
        {static_cast<const T*>(a.weight), static_cast<std::uint32_t>(product.k), 1}};
    void* const y = from_element(a.y, a.out_dtype, first * s.out_points() * s.out_channels);
    const ConvResult result{
        .out = output<4>(y, a.out_dtype, product.n), .bias = input<4>(a.bias, DType::fp32), .activation = a.activation};
    multiply<T>("conv_fwd", operands, product, window.taps(), split, aligned, {}, result, a.workspace, stream);
  });
}

template <class T>
void TensorCoreConv<T>::run(const ConvBwdDataArgs& a, Stream stream) {
  using namespace tensor_core;
  const ConvSplit split = tensor_core_split(conv_bwd_data_product(a.shape));
  const Alignment aligned{is_aligned<T>(a.dy, a.shape.out_channels), is_aligned<T>(a.weight, a.shape.in_channels)};
  for_each_part(a.shape, [&](const ConvShape& s, std::int64_t first) {
    const void* const dy = from_element(a.dy, a.dtype, first * s.out_points() * s.out_channels);
    void* const dx = from_element(a.dx, a.out_dtype, first * s.in_points() * s.in_channels);
    const ConvResult result{.out = output<4>(dx, a.out_dtype, s.in_channels),
                            .bias = input<4>(a.bias, DType::fp32),
                            .activation = a.activation,
                            .accumulates = a.mode == Grad::accumulate};
    for_each_class(s, [&](const ConvWindow& window, const ConvProduct& product) {
      const auto extent = [&](int axis) { return static_cast<std::int32_t>(s.axes[axis].kernel); };
      const tensor_core::BwdDataOperands<T> operands{{Window<T>(dy, window, s.out_channels)},
                                                     {static_cast<const T*>(a.weight),
                                                      Divisor(s.out_channels),
                                                      static_cast<std::uint32_t>(s.taps()),
                                                      static_cast<std::uint32_t>(s.in_channels),
                                                      {extent(0), extent(1), extent(2)}}};
      multiply<T>("conv_bwd_data", operands, product, window.taps(), split, aligned, ResultRows(window, s), result,
                  a.workspace, stream);
    });
  });
}

template <class T>
void TensorCoreConv<T>::run(const ConvBwdWeightArgs& a, Stream stream) {
  using namespace tensor_core;
  const ConvSplit split = tensor_core_bwd_weight_split(conv_bwd_weight_product(a.shape));
  const Alignment aligned{is_aligned<T>(a.dy, a.shape.out_channels), is_aligned<T>(a.x, a.shape.in_channels)};
  const auto add = [&](const ConvShape& s, std::int64_t first) {
    const ConvProduct product = conv_bwd_weight_product(s);
    const ConvWindow window = conv_fwd_window(s);
    const void* const x = from_element(a.x, a.dtype, first * s.in_points() * s.in_channels);
    const void* const dy = from_element(a.dy, a.dtype, first * s.out_points() * s.out_channels);
    const tensor_core::BwdWeightOperands<T> operands{
        {static_cast<const T*>(dy), 1, static_cast<std::uint32_t>(s.out_channels)},
        {Window<T>(x, window, s.in_channels)}};
    const ConvResult result{.out = output<4>(a.dweight, DType::fp32, product.n),
                            .accumulates = first > 0 || a.mode == Grad::accumulate};
    multiply<T>("conv_bwd_weight", operands, product, window.taps(), split, aligned, {}, result, a.workspace, stream);
  };
  if (a.shape.batch == 0) return add(a.shape, 0);  // zeros, unless it accumulates
  for_each_part(a.shape, add);
}

}  // namespace isobar::ISOBAR_CUDA_NAMESPACE
