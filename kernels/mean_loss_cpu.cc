// mean_loss on the CPU: each block of points has sums of its own, which are then added in their order.
#include "kernels/mean_loss.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

constexpr std::int64_t kBlocks = 128;  // of points
static_assert(kBlocks <= kMeanLossBlocks);

template <class Acc>
ISOBAR_INLINE Acc density(Acc x) {
  return exp(static_cast<Acc>(kDensityScale) * x);
}

template <class Acc>
ISOBAR_INLINE Acc sign(Acc x) {
  return x > 0 ? Acc(1) : x < 0 ? Acc(-1) : x;  // 0 of 0, and NaN of NaN
}

template <class T>
void add_points(const MeanLossSumsArgs& a, std::int64_t first, std::int64_t end, double* sums) {
  using Acc = accumulator_t<T>;
  for (std::int64_t c = 0; c <= a.channels; ++c) sums[c] = 0;
  for (std::int64_t point = first; point < end; ++point) {
    const T* pred = static_cast<const T*>(a.pred) + point * a.pred_stride;
    const Acc* target = static_cast<const Acc*>(a.target) + point * a.target_stride;
    for (std::int64_t c = 0; c < a.channels; ++c) {
      const Acc error = convert<Acc>(pred[c]) - target[c];
      sums[c] += static_cast<double>(a.kind == ErrorKind::squared ? error * error : error < 0 ? -error : error);
    }
    if (!a.with_density) continue;
    const Acc difference = density(convert<Acc>(pred[0])) - density(target[0]);
    sums[a.channels] += static_cast<double>(difference < 0 ? -difference : difference);
  }
}

template <class T>
void add_up(const MeanLossSumsArgs& a) {
  const std::int64_t blocks = a.points < kBlocks ? a.points : kBlocks, sums = a.channels + 1;
  auto* partial = static_cast<double*>(a.workspace);  // [blocks, sums]
  parallel_for(blocks, kGrain * blocks / (a.points * a.channels + 1) + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block)
      add_points<T>(a, a.points * block / blocks, a.points * (block + 1) / blocks, partial + block * sums);
  });
  for (std::int64_t c = 0; c < sums; ++c) {
    a.sums[c] = 0;
    for (std::int64_t block = 0; block < blocks; ++block) a.sums[c] += partial[block * sums + c];
  }
}

// G: the gradient's type.
template <class T, class G>
void backward(const MeanLossBwdArgs& a) {
  using Acc = accumulator_t<T>;
  const double upstream = a.upstream != nullptr ? static_cast<double>(*static_cast<const Acc*>(a.upstream)) : 1.0;
  const auto points = static_cast<double>(a.points);
  const Acc slope =
      static_cast<Acc>(upstream * (a.kind == ErrorKind::squared ? 2 : 1) / (points * static_cast<double>(a.channels)));
  const Acc density_slope = static_cast<Acc>(upstream * a.density_weight * kDensityScale / points);
  parallel_for(a.points, kGrain / a.channels + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t point = begin; point < end; ++point) {
      const T* pred = static_cast<const T*>(a.pred) + point * a.channels;
      const Acc* target = static_cast<const Acc*>(a.target) + point * a.channels;
      G* dpred = static_cast<G*>(a.dpred) + point * a.channels;
      for (std::int64_t c = 0; c < a.channels; ++c) {
        const Acc x = convert<Acc>(pred[c]), error = x - target[c];
        Acc gradient = slope * (a.kind == ErrorKind::squared ? error : sign(error));
        if (c == 0 && a.density_weight != 0) gradient += density_slope * density(x) * sign(error);
        dpred[c] = convert<G>(gradient);
      }
    }
  });
}

template <class Acc>
void finish(const MeanLossFinishArgs& a) {
  double errors = 0;
  for (std::int64_t c = 0; c < a.channels; ++c) errors += a.sums[c];
  const auto points = static_cast<double>(a.points);
  double loss = errors / (points * static_cast<double>(a.channels));
  if (a.density_weight != 0) loss += a.density_weight * a.sums[a.channels] / points;
  *static_cast<Acc*>(a.loss) = static_cast<Acc>(loss);
}

}  // namespace

void mean_loss_sums(const MeanLossSumsArgs& a) {
  check_mean_loss(a);
  visit_floating(a.dtype, [&]<class T>(Type<T>) { add_up<T>(a); });
}

void mean_loss_finish(const MeanLossFinishArgs& a) {
  visit_accumulator(accumulator_of(a.dtype), [&]<class Acc>(Type<Acc>) { finish<Acc>(a); });
}

void mean_loss_bwd(const MeanLossBwdArgs& a) {
  check_mean_loss(a);
  if (a.dpred_dtype == a.dtype)
    visit_floating(a.dtype, [&]<class T>(Type<T>) { backward<T, T>(a); });
  else if (a.dpred_dtype == DType::bf16)
    backward<float, bf16>(a);
  else
    backward<float, fp16>(a);
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(mean_loss_sums, MeanLossSumsArgs)
ISOBAR_CPU_KERNEL(mean_loss_finish, MeanLossFinishArgs)
ISOBAR_CPU_KERNEL(mean_loss_bwd, MeanLossBwdArgs)
