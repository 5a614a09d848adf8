// Adam and AdamW over the flat parameter buffers, gradient clipping, an average of the weights, the loss scale of fp16.
//
// One update:
//   the sums of the gradients' squares, one a range of the buffers
//   -> their root, which is the gradient norm, and the factor that unscales and clips (0 where the norm is not finite:
//      the update is skipped)
//   -> Adam in one launch a range.
// The factor stays on the device, so that nobody waits for it. One process has one range, all of it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/add_up.h"
#include "engine/keys.h"
#include "engine/parameters.h"
#include "engine/readback.h"

namespace isobar {

enum class OptimizerKind : std::uint8_t { adam, adamw };

template <>
struct EnumNames<OptimizerKind> {
  static constexpr std::array names{"adam", "adamw"};
};

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adam;
  std::array<double, 2> betas{0.9, 0.95};
  double eps = 1e-8, weight_decay = 0;
  double grad_clip = 0;  // largest gradient norm; 0: none
  double ema = 0;        // d below; 0: no average is kept

  KeyTable keys();
};

// How the loss scale of fp16 training begins and moves; by default as PyTorch's GradScaler.
struct LossScaleOptions {
  double initial_loss_scale = 65536;
  double min_loss_scale = 0x1p-24;  // below it every gradient overflows for another reason
  std::int64_t loss_scale_window = 2000;
  double loss_scale_growth = 2, loss_scale_backoff = 0.5;
  std::int64_t hysteresis = 1;

  KeyTable keys();
};

// The loss scale of fp16 training: multiplied by `growth` after `window` clean updates in a row, by `backoff` when a
// gradient is not finite, from the `hysteresis`-th time on since it grew (as Megatron-LM counts). A scale of 1 that
// stays for every other precision.
struct LossScale {
  static constexpr double kMin = 0x1p-126, kMax = 0x1p+127;  // numbers that fp32 holds

  double scale = 1;
  bool dynamic = false;
  LossScaleOptions options = {};
  std::int64_t clean_updates = 0;
  std::int64_t overflows_left = 1;  // up to the one that lowers the scale

  static LossScale for_dtype(DType activation, const LossScaleOptions& options = {});
  void update(bool finite);
  bool is_too_small() const { return dynamic && scale < options.min_loss_scale; }
};

struct UpdateResult {
  bool applied = true;   // false: a gradient was NaN or Inf
  double grad_norm = 0;  // unscaled, before clipping
};

// What one of several processes updates of the flat buffers.
struct OwnedRange {
  FlatRange range;
  double factor = 1;  // of its sum of squares: 1/k where k processes own the same, so that it counts once
};

class Optimizer {
 public:
  Optimizer(Parameters& parameters, OptimizerOptions options);
  // Owns parts of the flat buffers only: it updates no other weights, and has moments for no others. The ranges follow
  // each other without overlap; one may be empty. `add_up` is given the sums of squares [ranges], fp64, of every
  // update, times the ranges' factors, and adds what other processes have: together they make up the whole model. The
  // gradient norm is of the whole model, so that all of them clip or skip alike.
  Optimizer(Parameters& parameters, OptimizerOptions options, std::vector<OwnedRange> ranges, AddUp add_up = {});

  // Update number updates() + 1 with this rate, from gradients that carry the factor loss_scale. launch() gives the
  // device its work; result() waits for that, and for all that the current stream was given before.
  void launch(double lr, double loss_scale);
  UpdateResult result(double loss_scale);
  UpdateResult step(double lr, double loss_scale = 1) {
    launch(lr, loss_scale);
    return result(loss_scale);
  }

  std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }
  std::vector<FlatRange> ranges() const;
  const Tensor& m() const { return m_; }  // the ranges one behind the other; [n], laid out as the parameters, if all
  const Tensor& v() const { return v_; }

  // The exponential moving average of the weights, where options.ema is not 0: laid out as m(). After update t
  //   a += (1 - d)·(w - a),   d = min(ema, (1 + t)/(10 + t)),   a = w before the first one.
  const Tensor& average() const { return average_; }
  bool has_average() const { return average_.defined() && updates_ > 0; }
  // The average becomes what the weights are: of the first update, or of weights that were read from a file.
  void begin_average() const;
  // Every weight of the owned ranges and its average change places. The 16-bit copies stay as they are.
  void swap_average() const;

 private:
  void launch_adam(FlatRange range, std::int64_t moments_at, double lr) const;
  // Calls visit(weights, average) for every owned range that is not empty.
  template <class Visit>
  void visit_average(const Visit& visit) const;

  Parameters& parameters_;
  OptimizerOptions options_;
  std::vector<OwnedRange> ranges_;
  AddUp add_up_;
  std::int64_t updates_ = 0;
  Tensor m_, v_;
  Tensor average_;     // undefined: none is kept
  Tensor sums_;        // [ranges] fp64, of squares
  Tensor norm_;        // [1] fp64
  Tensor grad_scale_;  // [1] fp64
  Tensor workspace_;   // of sum_of_squares
  Readback norm_read_;
};

}  // namespace isobar
