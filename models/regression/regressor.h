// The task of computing pictures from pictures: a network from fields to fields on one grid, the mean squared error.
// Values are those of the files, input and target alike.
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

class Regressor : public Task {
 public:
  // Weights are initialised from compute.seed. ports: [C, H, W] -> [C', H, W]. Error for fp64 on a GPU, and if ranks
  // share an image.
  Regressor(const std::shared_ptr<const NetworkRecipe>& network, const ComputeOptions& compute, const Ports& ports,
            Device device, const Parallel& parallel = Parallel::alone());

  // A batch has "input" [B, C, H, W] and "target" [B, C', H, W], fp32. Returns [B, C', H, W] in the parameters' dtype.
  // Error if the pictures have another size.
  Tensor prediction(const Batch& batch, const Pass& pass = {}) const;

  std::string network() const override { return network_->name(); }
  Parameters& parameters() override { return *parameters_; }
  const Parameters& parameters() const override { return *parameters_; }
  Tensor loss(const Batch& batch, const Pass& pass) const override;
  std::unique_ptr<Metrics> metrics() const override;
  void score(const Batch& batch, Metrics& metrics) const override;
  LogStyle log_style() const override { return LogStyle::course; }
  std::int64_t picture_samples() const override { return 4; }
  // Input, prediction and target of the first images, first channels only.
  std::vector<Picture> pictures(const Batch& batch, std::int64_t iteration) const override;
  Settings settings() const override;

 private:
  Tensor values_of(const Batch& batch, const char* name, const Shape& sample) const;

  Ports ports_;
  std::unique_ptr<Parameters> parameters_;  // the network refers to it
  std::unique_ptr<Network> network_;
};

// What is kept beside the weights of a network with these ports.
Settings regression_settings(const Ports& ports);
// Ports of the network that these settings are of; Error for any other settings.
Ports regression_ports_from(const Settings& settings);
bool describes_regression(const Settings& settings);

}  // namespace isobar
