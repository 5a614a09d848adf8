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

// `count` pixels of a line, from pixel (b, c, h, first) on, and the line's weight: in E and T, and in W and M. In rows
// of patches, pixel 0 of latitude row h begins at `row`, and the first pixel lies in this patch of the row.
struct Piece {
  std::int64_t b, c, h, first, count;
  double weight, share_weight;
  std::int64_t row = 0, patch = 0;
};

template <class Acc, class Arguments>
double row_weight(const Arguments& a, std::int64_t h) {
  const auto* rows = static_cast<const Acc*>(a.row_weights);
  return rows != nullptr && a.kind != LossKind::relative_l2 ? static_cast<double>(rows[h]) : 1.0;
}
template <class Acc, class Arguments>
double channel_weight(const Arguments& a, std::int64_t c) {
  const auto* channels = static_cast<const Acc*>(a.channel_weights);
  return channels != nullptr && a.kind != LossKind::relative_l2 ? static_cast<double>(channels[c]) : 1.0;
}

// Calls f(piece) for all pixels of latitude row h of sample b; for images a piece is a whole line.
template <class Acc, class Arguments, class F>
ISOBAR_INLINE void for_each_piece(const Arguments& a, std::int64_t b, std::int64_t h, const F& f) {
  const std::int64_t p = a.patch, max_count = p == 0 ? a.width : kPiece;
  const std::int64_t row = p == 0 ? 0 : ((b * (a.height / p) + h / p) * a.width + h % p) * p * a.channels;
  for (std::int64_t first = 0; first < a.width; first += max_count) {
    const std::int64_t count = a.width - first < max_count ? a.width - first : max_count,
                       patch = p == 0 ? 0 : first / p;
    const double of_row = row_weight<Acc>(a, h);
    for (std::int64_t c = 0; c < a.channels; ++c) {
      const double weight = of_row * channel_weight<Acc>(a, c);
      f(Piece{b, c, h, first, count, weight, a.kind == LossKind::weighted_mse ? of_row : weight, row, patch});
    }
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

// Whether a point of the target counts. Without a mask every point does.
template <bool kMasked, class Acc>
ISOBAR_INLINE bool is_present(Acc target) {
  return !kMasked || target == target;
}

// Of a line; of the points that are present.
struct LineSums {
  double error = 0, target = 0;
  std::int64_t missing = 0;
};

// Never inlined: the compiler must not order the additions of one line in one way here and in another there.
template <bool kMasked, class T, class Acc>
[[gnu::noinline]] LineSums sum_line(const T* pred, const Acc* target, std::int64_t width) {
  Acc error = 0, square = 0;
#pragma omp simd reduction(+ : error, square)
  for (std::int64_t i = 0; i < width; ++i) {
    const bool present = is_present<kMasked>(target[i]);
    const Acc e = present ? convert<Acc>(pred[i]) - target[i] : Acc(0), t = present ? target[i] : Acc(0);
    error += e * e;
    square += t * t;
  }
  return {static_cast<double>(error), static_cast<double>(square)};
}

template <class Acc>
std::int64_t count_missing(const Acc* target, std::int64_t width) {
  int missing = 0;  // as wide as fp32, for vectors of both
#pragma omp simd reduction(+ : missing)
  for (std::int64_t i = 0; i < width; ++i) missing += is_present<true>(target[i]) ? 0 : 1;
  return missing;
}

// A line without missing points is added up by the loop of the kernel without a mask, for the same bits.
template <bool kMasked, class T, class Acc>
LineSums sum_present(const T* pred, const Acc* target, std::int64_t width) {
  const std::int64_t missing = kMasked ? count_missing(target, width) : 0;
  LineSums sums = missing == 0 ? sum_line<false>(pred, target, width) : sum_line<kMasked>(pred, target, width);
  sums.missing = missing;
  return sums;
}

template <bool kMasked, class T>
LineSums sum_piece(const ForecastLossSumsArgs& a, const Piece& at) {
  using Acc = accumulator_t<T>;
  const T* pred = static_cast<const T*>(a.pred);
  const Acc* target = static_cast<const Acc*>(a.target) + in_image(a, at);
  if (a.patch == 0) return sum_present<kMasked>(pred + in_image(a, at), target, at.count);
  Acc line[kPiece];
  for_each_in_patches(a, at,
                      [&](std::int64_t pixel, std::int64_t element) { line[pixel] = convert<Acc>(pred[element]); });
  return sum_present<kMasked>(line, target, at.count);
}

// A sample's numbers in `sums`, or a part of them.
template <bool kMasked>
struct Sums {
  double error = 0, target = 0;

  void add(const Piece& piece, const LineSums& line) {
    error += piece.weight * line.error;
    target += piece.weight * line.target;
  }
  void add(const Sums& part) {
    error += part.error;
    target += part.target;
  }
  bool is_left_out() const { return false; }
  double share() const { return 1; }  // of the weight: present
};
template <>
struct Sums<true> : Sums<false> {
  double present = 0, missing = 0;

  void add(const Piece& piece, const LineSums& line) {
    Sums<false>::add(piece, line);
    present += piece.share_weight * static_cast<double>(piece.count - line.missing);
    missing += piece.share_weight * static_cast<double>(line.missing);
  }
  void add(const Sums& part) {
    Sums<false>::add(part);
    present += part.present;
    missing += part.missing;
  }
  bool is_left_out() const { return present == 0; }
  double share() const { return present / (present + missing); }
};

static_assert(sizeof(Sums<false>) == forecast_loss_sums_of(false) * sizeof(double) &&
              sizeof(Sums<true>) == forecast_loss_sums_of(true) * sizeof(double));

template <class T, bool kMasked>
void add_up(const ForecastLossSumsArgs& a) {
  auto* partial = static_cast<Sums<kMasked>*>(a.workspace);  // [batch, blocks]
  const std::int64_t blocks = a.height < kForecastLossBlocks ? a.height : kForecastLossBlocks;

  parallel_for(a.batch * blocks, kGrain * blocks / (a.channels * a.height * a.width + 1) + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t part = begin; part < end; ++part) {
                   const std::int64_t b = part / blocks, block = part % blocks;
                   Sums<kMasked> sums;
                   for (std::int64_t h = a.height * block / blocks; h < a.height * (block + 1) / blocks; ++h)
                     for_each_piece<accumulator_t<T>>(
                         a, b, h, [&](const Piece& piece) { sums.add(piece, sum_piece<kMasked, T>(a, piece)); });
                   partial[part] = sums;
                 }
               });

  auto* whole = reinterpret_cast<Sums<kMasked>*>(a.sums);
  for (std::int64_t b = 0; b < a.batch; ++b) {
    Sums<kMasked> sums;
    for (std::int64_t block = 0; block < blocks; ++block) sums.add(partial[b * blocks + block]);
    whole[b] = sums;
  }
}

template <bool kMasked, class Arguments>
const Sums<kMasked>* sums_of(const Arguments& a) {
  return reinterpret_cast<const Sums<kMasked>*>(a.sums);
}

// The samples over which the loss is a mean.
template <bool kMasked, class Arguments>
std::int64_t samples_of(const Arguments& a) {
  std::int64_t samples = a.batch;
  for (std::int64_t b = 0; kMasked && b < a.batch; ++b) samples -= sums_of<kMasked>(a)[b].is_left_out() ? 1 : 0;
  return samples;
}

template <class Acc, bool kMasked>
void finish(const ForecastLossFinishArgs& a) {
  double loss = 0;
  for (std::int64_t b = 0; b < a.batch; ++b) {
    const Sums<kMasked> sums = sums_of<kMasked>(a)[b];
    if (sums.is_left_out()) continue;
    loss += a.kind == LossKind::weighted_mse ? sums.error / (static_cast<double>(a.sample_size) * sums.share())
                                             : std::sqrt(sums.error) / std::sqrt(sums.target);
  }
  const std::int64_t samples = samples_of<kMasked>(a);
  *static_cast<Acc*>(a.loss) = kMasked && samples == 0 ? Acc(0) : static_cast<Acc>(loss / static_cast<double>(samples));
}

// dL/dpred = coefficient · weight · (pred - target) in sample b, where the target is present.
template <class Acc, bool kMasked>
double coefficient(const ForecastLossBwdArgs& a, std::int64_t b, std::int64_t samples) {
  const Sums<kMasked> sums = sums_of<kMasked>(a)[b];
  if (sums.is_left_out()) return 0;
  const double upstream = a.upstream != nullptr ? static_cast<double>(*static_cast<const Acc*>(a.upstream)) : 1.0;
  const auto batch = static_cast<double>(samples);
  if (a.kind == LossKind::weighted_mse)
    return upstream * 2 / (batch * (static_cast<double>(a.sample_size) * sums.share()));
  return sums.error == 0 ? 0 : upstream / (batch * std::sqrt(sums.error) * std::sqrt(sums.target));
}

template <bool kMasked, class Acc>
ISOBAR_INLINE Acc derivative(Acc factor, Acc pred, Acc target) {
  return is_present<kMasked>(target) ? factor * (pred - target) : Acc(0);
}

// G: the gradient's type.
template <bool kMasked, class T, class G>
void differentiate_piece(const ForecastLossBwdArgs& a, const Piece& at, accumulator_t<T> factor) {
  using Acc = accumulator_t<T>;
  const T* pred = static_cast<const T*>(a.pred);
  const Acc* target = static_cast<const Acc*>(a.target) + in_image(a, at);
  G* dpred = static_cast<G*>(a.dpred);
  if (a.patch == 0) {
    pred += in_image(a, at);
    dpred += in_image(a, at);
#pragma omp simd
    for (std::int64_t i = 0; i < at.count; ++i)
      dpred[i] = convert<G>(derivative<kMasked>(factor, convert<Acc>(pred[i]), target[i]));
  } else {
    for_each_in_patches(a, at, [&](std::int64_t pixel, std::int64_t element) {
      dpred[element] = convert<G>(derivative<kMasked>(factor, convert<Acc>(pred[element]), target[pixel]));
    });
  }
}

template <class T, class G, bool kMasked>
void backward(const ForecastLossBwdArgs& a) {
  using Acc = accumulator_t<T>;
  const std::int64_t samples = samples_of<kMasked>(a);
  parallel_for(a.batch * a.height, kGrain / (a.channels * a.width + 1) + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const double factor = coefficient<Acc, kMasked>(a, row / a.height, samples);
      for_each_piece<Acc>(a, row / a.height, row % a.height, [&](const Piece& piece) {
        differentiate_piece<kMasked, T, G>(a, piece, static_cast<Acc>(factor * piece.weight));
      });
    }
  });
}

template <bool kMasked>
void backward(const ForecastLossBwdArgs& a) {
  if (a.dpred_dtype == a.dtype)
    visit_floating(a.dtype, [&]<class T>(Type<T>) { backward<T, T, kMasked>(a); });
  else if (a.dtype == DType::fp32 && a.dpred_dtype == DType::bf16)
    backward<float, bf16, kMasked>(a);
  else if (a.dtype == DType::fp32 && a.dpred_dtype == DType::fp16)
    backward<float, fp16, kMasked>(a);
  else
    fail_unsupported(a.dpred_dtype);
}

}  // namespace

void forecast_loss_sums(const ForecastLossSumsArgs& a) {
  visit_floating(a.dtype, [&]<class T>(Type<T>) { a.masked ? add_up<T, true>(a) : add_up<T, false>(a); });
}

void forecast_loss_finish(const ForecastLossFinishArgs& a) {
  visit_accumulator(accumulator_of(a.dtype),
                    [&]<class Acc>(Type<Acc>) { a.masked ? finish<Acc, true>(a) : finish<Acc, false>(a); });
}

void forecast_loss_bwd(const ForecastLossBwdArgs& a) {
  a.masked ? backward<true>(a) : backward<false>(a);
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(forecast_loss_sums, ForecastLossSumsArgs)
ISOBAR_CPU_KERNEL(forecast_loss_finish, ForecastLossFinishArgs)
ISOBAR_CPU_KERNEL(forecast_loss_bwd, ForecastLossBwdArgs)
