// Adam and AdamW over the flat parameter buffers, gradient clipping and dynamic loss scaling.
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

  KeyTable keys();
};

// The loss scale of fp16 training: halved when a gradient is not finite, doubled after `interval` clean updates
// (PyTorch's GradScaler: 65536, 2, 0.5, 2000). A scale of 1 with growing off for every other precision.
struct LossScale {
  // Below the least one every gradient overflows for another reason; the largest is a power of two that fp32 holds.
  static constexpr double kMin = 0x1p-24, kMax = 0x1p+127;

  double scale = 1;
  bool dynamic = false;
  std::int64_t interval = 2000;
  std::int64_t clean_updates = 0;

  static LossScale for_dtype(DType activation);
  void update(bool finite);
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

 private:
  void launch_adam(FlatRange range, std::int64_t moments_at, double lr) const;

  Parameters& parameters_;
  OptimizerOptions options_;
  std::vector<OwnedRange> ranges_;
  AddUp add_up_;
  std::int64_t updates_ = 0;
  Tensor m_, v_;
  Tensor sums_;        // [ranges] fp64, of squares
  Tensor norm_;        // [1] fp64
  Tensor grad_scale_;  // [1] fp64
  Tensor workspace_;   // of sum_of_squares
  Readback norm_read_;
};

}  // namespace isobar
