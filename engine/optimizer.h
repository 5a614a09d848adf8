// Adam and AdamW over the flat parameter buffers, gradient clipping, an average of the weights, the loss scale of fp16.
//
// One update:
//   the sums of the gradients' squares, one a range of the buffers
//   -> their root, which is the gradient norm, and the factor that unscales and clips (0 if the norm is not finite:
//      the update is skipped)
//   -> Adam in one launch a range.
// The factor stays on the device, so that the host need not wait for it. A single process has one range: all elements
// that have gradients. Frozen parameters, behind these, are in no range: no moments, no decay, no average.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/keys.h"
#include "engine/parameters.h"
#include "engine/readback.h"
#include "engine/schedule.h"
#include "engine/sum_over_ranks.h"

namespace isobar {

enum class OptimizerKind : std::uint8_t { adam, adamw };

template <>
struct EnumNames<OptimizerKind> {
  static constexpr std::array names{"adam", "adamw"};
};

// What decays: the weight matrices, embeddings included, or biases, norms and everything else too.
enum class DecayedWeights : std::uint8_t { matrices, all };

template <>
struct EnumNames<DecayedWeights> {
  static constexpr std::array names{"matrices", "all"};
};

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adam;
  std::array<double, 2> betas{0.9, 0.95};
  double eps = 1e-8, weight_decay = 0;
  DecayedWeights weight_decay_on = DecayedWeights::matrices;
  WeightDecayKind weight_decay_schedule = WeightDecayKind::constant;
  double end_weight_decay = 0;
  double grad_clip = 0;  // max gradient norm; 0: no clipping
  double ema = 0;        // d below; 0: no average is kept

  KeyTable keys();

  // Of a run of so many updates, or samples.
  WeightDecay decay_over(std::int64_t steps) const {
    return {.kind = weight_decay_schedule, .begin = weight_decay, .end = end_weight_decay, .steps = steps};
  }
};

// How the loss scale of fp16 training begins and changes; the defaults are those of PyTorch's GradScaler.
struct LossScaleOptions {
  double initial_loss_scale = 65536;
  double min_loss_scale = 0x1p-24;  // below it, overflow has another reason than the scale
  std::int64_t loss_scale_window = 2000;
  double loss_scale_growth = 2, loss_scale_backoff = 0.5;
  std::int64_t hysteresis = 1;

  KeyTable keys();
};

// The loss scale of fp16 training. After `window` updates in a row without overflow it is multiplied by `growth`. When
// a gradient is not finite, it is multiplied by `backoff`: from the `hysteresis`-th time since it last grew
// (Megatron-LM's rule). For every other precision it is 1 and never changes.
struct LossScale {
  static constexpr double kMin = 0x1p-126, kMax = 0x1p+127;  // representable in fp32

  double scale = 1;
  bool dynamic = false;
  LossScaleOptions options = {};
  std::int64_t clean_updates = 0;
  std::int64_t overflows_left = 1;  // overflows until the scale shrinks

  static LossScale for_dtype(DType activation, const LossScaleOptions& options = {});
  void update(bool finite);
  bool is_too_small() const { return dynamic && scale < options.min_loss_scale; }
};

struct UpdateResult {
  bool applied = true;   // false: a gradient was NaN or Inf
  double grad_norm = 0;  // unscaled, before clipping
};

// The part of the flat buffers that one of several processes updates.
struct OwnedRange {
  FlatRange range;
  double factor = 1;  // of its sum of squares: 1/k if k processes own the same range, so that it counts once
};

class Optimizer {
 public:
  Optimizer(Parameters& parameters, OptimizerOptions options);
  // Owns only parts of the flat buffers: it updates these weights only, and has moments for these only. The ranges are
  // in order and do not overlap; a range may be empty. In every update `add_up` gets the sums of squares [ranges],
  // fp64, multiplied by the ranges' factors, and adds those of the other processes. All processes together own the
  // whole model. The gradient norm is that of the whole model, so that all processes clip or skip alike.
  Optimizer(Parameters& parameters, OptimizerOptions options, std::vector<OwnedRange> ranges, SumOverRanks add_up = {});

  // Update number updates() + 1 with rate lr, from gradients that are multiplied by loss_scale. launch() only queues
  // the work on the device. result() waits for it, and for all earlier work of the current stream.
  void launch(double lr, double loss_scale);
  // Of later updates, in the place of options.weight_decay.
  void set_weight_decay(double weight_decay) { options_.weight_decay = weight_decay; }
  UpdateResult result(double loss_scale);
  UpdateResult step(double lr, double loss_scale = 1) {
    launch(lr, loss_scale);
    return result(loss_scale);
  }

  // The root of the sum of squares of all weights that have gradients, and the number of gradients that are 0 (those of
  // the last pass). All processes together own the whole model, and all call it.
  double weights_norm();
  double gradient_zeros();

  std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }
  std::vector<FlatRange> ranges() const;
  // The ranges one after the other; if the optimizer owns everything: [n], in the layout of the parameters.
  const Tensor& m() const { return m_; }
  const Tensor& v() const { return v_; }

  // The exponential moving average of the weights, if options.ema is not 0: in the layout of m(). After update t
  //   a += (1 - d)·(w - a),   d = min(ema, (1 + t)/(10 + t)),   a = w before the first update.
  const Tensor& average() const { return average_; }
  bool has_average() const { return average_.defined() && updates_ > 0; }
  // Sets the average to the weights: before the first update, or after weights were read from a file.
  void begin_average() const;
  // Swaps every weight of the owned ranges with its average. The 16-bit copies do not change.
  void swap_average() const;

 private:
  void launch_sums_of_squares(const Tensor& values);
  double added_up(const std::vector<double>& of_ranges);
  void launch_adam(FlatRange range, std::int64_t moments_at, double lr) const;
  // Calls visit(weights, average) for every owned range that is not empty.
  template <class Visit>
  void visit_average(const Visit& visit) const;

  Parameters& parameters_;
  OptimizerOptions options_;
  std::vector<OwnedRange> ranges_;
  SumOverRanks add_up_;
  std::int64_t updates_ = 0;
  Tensor m_, v_;
  Tensor average_;     // undefined: no average is kept
  Tensor sums_;        // [ranges] fp64, of squares
  Tensor norm_;        // [1] fp64
  Tensor grad_scale_;  // [1] fp64
  Tensor workspace_;   // for sum_of_squares
  Readback norm_read_;
};

}  // namespace isobar
