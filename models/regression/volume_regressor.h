// The task of computing volumes from volumes: a network from fields to fields on one box, with the mean absolute error,
// to which that of the densities may be added. Each sample is turned by a symmetry of the cube on its way to the
// network. Values are those of the files, which are normalised.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/parallel.h"
#include "models/compute_options.h"
#include "models/network.h"
#include "models/task.h"

namespace isobar {

struct VolumeObjective {
  double density_weight = 0;  // lambda_rho
  bool vectors_turn = true;   // channels 1 to 3 are the components of a vector, if there are that many
};

// What is scored, channels last: [B, S, C'] twice and [B, S, C], in the parameters' dtype.
struct ScoredVolumes {
  Tensor prediction, target;
  Tensor input;  // may be undefined where metrics know its errors
};

class VolumeRegressor : public Task {
 public:
  // Weights are initialised from compute.seed. ports: [C, D, H, W] -> [C', D, H, W]. Error for fp64 on a GPU, and if
  // ranks share a volume.
  VolumeRegressor(const std::shared_ptr<const NetworkRecipe>& network, const ComputeOptions& compute,
                  const Ports& ports, const VolumeObjective& objective, Device device,
                  const Parallel& parallel = Parallel::alone());

  // A batch has "input" [B, C, D, H, W] and "target" [B, C', D, H, W], fp32, and "turn" [B] i32 (kernels/turn.h).
  // Returns the turned prediction [B, D, H, W, C'] in the parameters' dtype. Error if the volumes have another size.
  Tensor prediction(const Batch& batch, const Pass& pass = {}) const;

  std::string network() const override { return network_->name(); }
  Parameters& parameters() override { return *parameters_; }
  const Parameters& parameters() const override { return *parameters_; }
  Tensor loss(const Batch& batch, const Pass& pass) const override;
  std::unique_ptr<Metrics> metrics() const override;
  void score(const Batch& batch, Metrics& metrics) const override;
  // Adds these to metrics that this task made. The tensors may be on the host, and volumes of any size.
  void add_errors(const ScoredVolumes& volumes, Metrics& metrics) const;
  // The middle slice of the first sample: input, prediction and target, of the first channel and of the last one.
  std::vector<Picture> pictures(const Batch& batch, std::int64_t iteration) const override;
  Settings settings() const override;

 private:
  // Turned, channels last, in this dtype.
  Tensor turned(const Batch& batch, const char* name, const Shape& sample, DType dtype) const;
  Tensor target_of(const Batch& batch) const { return turned(batch, "target", ports_.out, parameters_->dtype()); }

  Ports ports_;
  VolumeObjective objective_;
  DType activation_;                        // of products
  std::unique_ptr<Parameters> parameters_;  // the network refers to it
  std::unique_ptr<Network> network_;
};

}  // namespace isobar
