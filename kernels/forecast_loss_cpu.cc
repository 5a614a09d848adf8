// forecast_loss on the CPU, one latitude row of all variables after the other. Sums within a line of the grid are in
// the arithmetic's type, sums of lines and blocks of rows in fp64. If the forecast is rows of patches, the pixels of a
// piece of a line are gathered first.
#include "kernels/forecast_loss.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

// Pixels of a line; those of all variables stay in the first-level cache.
constexpr std::int64_t kPiece = 128;

// `count` pixels of a line, from pixel (b, c, h, first) on, and the line's weight. In rows of patches, pixel 0 of
// latitude row h begins at `row`, and the first pixel lies in this patch of the row.
struct Piece {
  std::int64_t b, c, h, first, count;
  double weight;
  std::int64_t row = 0, patch = 0;
};

template <class Acc, class Arguments>
double line_weight(const Arguments& a, std::int64_t c, std::int64_t h) {
  if (a.kind == LossKind::relative_l2) return 1;
  const auto* rows = static_cast<const Acc*>(a.row_weights);
  const auto* channels = static_cast<const Acc*>(a.channel_weights);
  return (rows != nullptr ? static_cast<double>(rows[h]) : 1.0) *
         (channels != nullptr ? static_cast<double>(channels[c]) : 1.0);
}

// Calls f(piece) for all pixels of latitude row h of sample b; for images a piece is a whole line.
template <class Acc, class Arguments, class F>
ISOBAR_INLINE void for_each_piece(const Arguments& a, std::int64_t b, std::int64_t h, const F& f) {
  const std::int64_t p = a.patch, max_count = p == 0 ? a.width : kPiece;
  const std::int64_t row = p == 0 ? 0 : ((b * (a.height / p) + h / p) * a.width + h % p) * p * a.channels;
  for (std::int64_t first = 0; first < a.width; first += max_count) {
    const std::int64_t count = a.width - first < max_count ? a.width - first : max_count,
                       patch = p == 0 ? 0 : first / p;
    for (std::int64_t c = 0; c < a.channels; ++c)
      f(Piece{b, c, h, first, count, line_weight<Acc>(a, c, h), row, patch});
  }
}

// The beginning of a piece in an image.
template <class Arguments>
ISOBAR_INLINE std::int64_t in_image(const Arguments& a, const Piece& at) {
  return ((at.b * a.channels + at.c) * a.height + at.h) * a.width + at.first;
}

// Calls f(pixel, element) for every pixel of a piece, counted from its beginning, and its element in the rows of
// patches.
template <class Arguments, class F>
ISOBAR_INLINE void for_each_in_patches(const Arguments& a, const Piece& at, const F& f) {
  const std::int64_t p = a.patch, end = at.first + at.count;
  std::int64_t patch = at.patch;
  for (std::int64_t begin = at.first, next; begin < end; begin = next, ++patch) {
    next = (patch + 1) * p < end ? (patch + 1) * p : end;
    const std::int64_t first = at.row + (patch * (p - 1) * p + begin) * a.channels + at.c;
    for (std::int64_t s = 0; s < next - begin; ++s) f(begin - at.first + s, first + s * a.channels);
  }
}

struct Sums {
  double error = 0, target = 0;
};

template <class T, class Acc>
Sums sum_line(const T* pred, const Acc* target, std::int64_t width) {
  Acc error = 0, square = 0;
#pragma omp simd reduction(+ : error, square)
  for (std::int64_t i = 0; i < width; ++i) {
    const Acc e = convert<Acc>(pred[i]) - target[i];
    error += e * e;
    square += target[i] * target[i];
  }
  return {static_cast<double>(error), static_cast<double>(square)};
}

template <class T>
Sums sum_piece(const ForecastLossSumsArgs& a, const Piece& at) {
  using Acc = accumulator_t<T>;
  const T* pred = static_cast<const T*>(a.pred);
  const Acc* target = static_cast<const Acc*>(a.target) + in_image(a, at);
  if (a.patch == 0) return sum_line(pred + in_image(a, at), target, at.count);
  Acc line[kPiece];
  for_each_in_patches(a, at,
                      [&](std::int64_t pixel, std::int64_t element) { line[pixel] = convert<Acc>(pred[element]); });
  return sum_line(line, target, at.count);
}

template <class T>
void add_up(const ForecastLossSumsArgs& a) {
  auto* partial = static_cast<Sums*>(a.workspace);  // [batch, blocks]
  const std::int64_t blocks = a.height < kForecastLossBlocks ? a.height : kForecastLossBlocks;

  parallel_for(a.batch * blocks, kGrain * blocks / (a.channels * a.height * a.width + 1) + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t part = begin; part < end; ++part) {
                   const std::int64_t b = part / blocks, block = part % blocks;
                   Sums sums;
                   for (std::int64_t h = a.height * block / blocks; h < a.height * (block + 1) / blocks; ++h)
                     for_each_piece<accumulator_t<T>>(a, b, h, [&](const Piece& piece) {
                       const Sums s = sum_piece<T>(a, piece);
                       sums.error += piece.weight * s.error;
                       sums.target += piece.weight * s.target;
                     });
                   partial[part] = sums;
                 }
               });

  for (std::int64_t b = 0; b < a.batch; ++b) {
    Sums sums;
    for (std::int64_t block = 0; block < blocks; ++block) {
      sums.error += partial[b * blocks + block].error;
      sums.target += partial[b * blocks + block].target;
    }
    a.sums[2 * b] = sums.error;
    a.sums[2 * b + 1] = sums.target;
  }
}

template <class Acc>
void finish(const ForecastLossFinishArgs& a) {
  double loss = 0;
  for (std::int64_t b = 0; b < a.batch; ++b) {
    const double error = a.sums[2 * b], target = a.sums[2 * b + 1];
    loss += a.kind == LossKind::weighted_mse ? error / static_cast<double>(a.sample_size)
                                             : std::sqrt(error) / std::sqrt(target);
  }
  *static_cast<Acc*>(a.loss) = static_cast<Acc>(loss / static_cast<double>(a.batch));
}

// dL/dpred = coefficient · weight · (pred - target) in sample b.
template <class Acc>
double coefficient(const ForecastLossBwdArgs& a, std::int64_t b) {
  const double upstream = a.upstream != nullptr ? static_cast<double>(*static_cast<const Acc*>(a.upstream)) : 1.0;
  const auto batch = static_cast<double>(a.batch);
  if (a.kind == LossKind::weighted_mse) return upstream * 2 / (batch * static_cast<double>(a.sample_size));
  const double error = a.sums[2 * b], target = a.sums[2 * b + 1];
  return error == 0 ? 0 : upstream / (batch * std::sqrt(error) * std::sqrt(target));
}

// G: the gradient's type.
template <class T, class G>
void differentiate_piece(const ForecastLossBwdArgs& a, const Piece& at, accumulator_t<T> factor) {
  using Acc = accumulator_t<T>;
  const T* pred = static_cast<const T*>(a.pred);
  const Acc* target = static_cast<const Acc*>(a.target) + in_image(a, at);
  G* dpred = static_cast<G*>(a.dpred);
  if (a.patch == 0) {
    pred += in_image(a, at);
    dpred += in_image(a, at);
#pragma omp simd
    for (std::int64_t i = 0; i < at.count; ++i) dpred[i] = convert<G>(factor * (convert<Acc>(pred[i]) - target[i]));
  } else {
    for_each_in_patches(a, at, [&](std::int64_t pixel, std::int64_t element) {
      dpred[element] = convert<G>(factor * (convert<Acc>(pred[element]) - target[pixel]));
    });
  }
}

template <class T, class G>
void backward(const ForecastLossBwdArgs& a) {
  using Acc = accumulator_t<T>;
  parallel_for(a.batch * a.height, kGrain / (a.channels * a.width + 1) + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const double factor = coefficient<Acc>(a, row / a.height);
      for_each_piece<Acc>(a, row / a.height, row % a.height, [&](const Piece& piece) {
        differentiate_piece<T, G>(a, piece, static_cast<Acc>(factor * piece.weight));
      });
    }
  });
}

}  // namespace

void forecast_loss_sums(const ForecastLossSumsArgs& a) {
  visit_floating(a.dtype, [&]<class T>(Type<T>) { add_up<T>(a); });
}

void forecast_loss_finish(const ForecastLossFinishArgs& a) {
  visit_accumulator(accumulator_of(a.dtype), [&]<class Acc>(Type<Acc>) { finish<Acc>(a); });
}

void forecast_loss_bwd(const ForecastLossBwdArgs& a) {
  if (a.dpred_dtype == a.dtype)
    visit_floating(a.dtype, [&]<class T>(Type<T>) { backward<T, T>(a); });
  else if (a.dtype == DType::fp32 && a.dpred_dtype == DType::bf16)
    backward<float, bf16>(a);
  else if (a.dtype == DType::fp32 && a.dpred_dtype == DType::fp16)
    backward<float, fp16>(a);
  else
    fail_unsupported(a.dpred_dtype);
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(forecast_loss_sums, ForecastLossSumsArgs)
ISOBAR_CPU_KERNEL(forecast_loss_finish, ForecastLossFinishArgs)
ISOBAR_CPU_KERNEL(forecast_loss_bwd, ForecastLossBwdArgs)
