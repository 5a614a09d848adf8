// The task of forecasting fields: a network from normalised fields to normalised fields some steps later, optionally
// predicting the change; the loss and the scores. The loss of a rollout, of K steps each of which continues the one
// before (models/forecast/rollout_options.h), with F the network, theta its weights, m_k the masks of step k:
//
//   y_k = F(x_k; theta, m_k) [+ the channels of x_k],  x_(k+1) = FieldInput::continued(x_k, y_k)
//   L = sum_k w_k l(y_k, t_k),  k = 0 ... K - 1,  sum_k w_k = 1
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/parallel.h"
#include "models/compute_options.h"
#include "models/forecast/fields_info.h"
#include "models/forecast/input.h"
#include "models/forecast/metrics.h"
#include "models/forecast/options.h"
#include "models/forecast/padding.h"
#include "models/network.h"
#include "models/task.h"

namespace isobar {

// All options of a forecaster. Sizes that a config left to the data are filled in.
struct ForecasterOptions {
  std::shared_ptr<const NetworkRecipe> network;
  ForecastOptions forecast;
  std::int64_t dt = 1;                       // steps of the data from input to target
  std::string lead_time = {};                // for pictures, "+6 h"; empty: not shown
  std::string valid_time = {};               // of the target, for pictures, "2013-01-01 06:00"; empty: not shown
  std::vector<ScoredLead> valid_leads = {};  // of the longer forecasts that validations score too
};

// A batch's windows say how many steps a rollout has. Each context-parallel rank has a band of rows of every field:
// there LAT counts the rows of the band. Losses and scores are those of the whole grid, on all ranks.
class Forecaster : public Task {
 public:
  // Weights are initialised from compute.seed. Error for fp64 on a GPU. loss, score, scores and pictures are collective
  // over `parallel`.
  Forecaster(const ForecasterOptions& options, const ComputeOptions& compute, FieldsInfo info, Device device,
             const Parallel& parallel = Parallel::alone());

  const ForecastOptions& options() const { return options_.forecast; }
  // Whether points of a target may be missing (NaN): they have no weight in loss and scores, and a sample without any
  // other point has none either. Those of an input are filled.
  bool masked() const { return masked_; }
  const FieldsInfo& info() const { return info_; }
  const FieldInput& input() const { return *input_; }
  std::vector<std::string> output_names() const;

  // [B, V + planes, LAT, LON] -> [B, n_out, LAT, LON], normalised (models/forecast/input.h). The grid is the data's,
  // whatever the network's is.
  Tensor forecast(const Tensor& input, const Pass& pass = {}) const;
  Tensor loss(const Tensor& forecast, const Tensor& target) const;  // [1], of the whole grid
  // score_sums of the whole grid on the host, [B, n_out, 4], masked [B, n_out, 6]. climatology: [n_out, LAT, LON]
  // normalised, or undefined.
  std::vector<double> scores(const Tensor& forecast, const Tensor& target, const Tensor& climatology = {}) const;

  std::string network() const override { return network_->name(); }
  Parameters& parameters() override { return *parameters_; }
  const Parameters& parameters() const override { return *parameters_; }
  Tensor loss(const Batch& batch, const Pass& pass) const override;
  // If points may be missing: the samples that have a point with weight in the target of a step whose loss has one, by
  // the tensors "points" (PairDataset).
  // Collective over the ranks that hold bands.
  double weight(const Batch& batch) const override;
  bool counts_samples() const override { return !masked_; }
  std::string describe_uncounted() const override { return "all points of their targets are missing"; }
  std::unique_ptr<Metrics> metrics() const override;
  std::unique_ptr<Metrics> also_metrics() const override;
  void score(const Batch& batch, Metrics& metrics) const override;
  std::optional<RowBand> band() const override;
  // The maps of ForecastOptions::picture_channels: target, forecast and error of the first sample. Only on the first of
  // the ranks that share a batch; the others compute their bands and return none.
  std::vector<Picture> pictures(const Batch& batch, std::int64_t iteration) const override;
  Settings settings() const override;

 private:
  Tensor loss_of(const Tensor& forecast, const Tensor& target, std::int64_t patch) const;  // for `patch` see LossInputs
  // Of the samples of a batch that may miss points: how many have a point with weight at each step, and at any of the
  // steps whose loss counts, over all bands.
  struct Counted {
    std::vector<double> by_step;  // [steps]
    double at_any = 0;
  };
  Counted counted(const Batch& batch) const;
  std::vector<double> weights_of_channels(Device device) const;
  bool has_weight(std::span<const std::int32_t> points) const;
  std::vector<double> weights_of_steps(const Batch& batch) const;
  Tensor rollout_loss(const Batch& batch, const Pass& pass, std::int64_t steps) const;
  Tensor mean_loss_of_steps(const std::vector<Tensor>& losses, std::vector<double> weights) const;
  Tensor weights_on_device(std::vector<double> weights) const;
  void score_leads(const Batch& batch, ForecastMetrics& totals) const;
  Tensor whole_grid(const Tensor& band) const;

  ForecasterOptions options_;
  FieldsInfo info_;
  bool masked_;
  const Parallel& parallel_;
  std::unique_ptr<Parameters> parameters_;  // the network refers to it
  std::unique_ptr<Network> network_;
  std::unique_ptr<GridPadding> padding_;
  std::unique_ptr<FieldInput> input_;
  Tensor row_weights_;                       // [LAT], of this rank's rows
  std::vector<double> weights_of_channels_;  // [n_out]; empty: 1 each
  Tensor channel_weights_;                   // the same, or undefined
  // By the steps of a rollout: [1, K] of its K losses whose weight is above 0. They lie on the device before a step is
  // captured.
  std::map<std::int64_t, Tensor> weights_of_losses_;
};

}  // namespace isobar
