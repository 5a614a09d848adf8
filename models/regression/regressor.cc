#include "models/regression/regressor.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "engine/field_ops.h"
#include "engine/files/json.h"
#include "engine/tape.h"
#include "kernels/common/check.h"
#include "models/metrics_of.h"
#include "models/regression/metrics.h"
#include "models/regression/pictures.h"

namespace isobar {
namespace {

constexpr const char* kPorts = "isobar.regression";

}  // namespace

Regressor::Regressor(const std::shared_ptr<const NetworkRecipe>& network, const ComputeOptions& compute,
                     const Ports& ports, Device device, const Parallel& parallel)
    : ports_(ports), parameters_(std::make_unique<Parameters>()) {
  ISOBAR_CHECK(parallel.cp.size() == 1, "context parallel: images are read whole, and cannot be dealt over ",
               parallel.cp.size(), " ranks");
  network_ = make_network(*network, ports, {*parameters_, compute, parallel});
  compute.allocate(*parameters_, device, parallel.bucket_plan());
}

// In the parameters' dtype.
Tensor Regressor::values_of(const Batch& batch, const char* name, const Shape& sample) const {
  return samples_of(batch, name, sample).to(parameters_->dtype());
}

Tensor Regressor::prediction(const Batch& batch, const Pass& pass) const {
  return (*network_)(values_of(batch, "input", ports_.in), pass);
}

// A network that gives rows of patches is compared patch by patch.
Tensor Regressor::loss(const Batch& batch, const Pass& pass) const {
  const Tensor output = network_->in_patches(values_of(batch, "input", ports_.in), pass);
  return forecast_loss(output, values_of(batch, "target", ports_.out),
                       {.kind = LossKind::weighted_mse, .patch = network_->patch()});
}

std::unique_ptr<Metrics> Regressor::metrics() const {
  return std::make_unique<RegressionMetrics>(ports_.in[0], ports_.out[0]);
}

void Regressor::score(const Batch& batch, Metrics& metrics) const {
  const TapeScope off(nullptr);
  metrics_of<RegressionMetrics>(metrics).add(prediction(batch).to_vector(), tensor_of(batch, "target").to_vector(),
                                             tensor_of(batch, "input").to_vector(), batch_size(batch));
}

std::vector<Picture> Regressor::pictures(const Batch& batch, std::int64_t) const {
  const TapeScope off(nullptr);
  return {draw_regression({tensor_of(batch, "input"), prediction(batch), tensor_of(batch, "target")})};
}

Settings Regressor::settings() const {
  return regression_settings(ports_);
}

Settings regression_settings(const Ports& ports) {
  return {{kPorts, nlohmann::ordered_json{{"in", ports.in}, {"out", ports.out}}.dump()}};
}

bool describes_regression(const Settings& settings) {
  return settings.contains(kPorts);
}

Ports regression_ports_from(const Settings& settings) {
  try {
    const auto json = parse_json<nlohmann::json>(settings.at(kPorts), kPorts);
    return {.in = json.at("in"), .out = json.at("out")};
  } catch (const nlohmann::json::exception&) {
    throw_error("the description of the pictures in the metadata is damaged");
  }
}

}  // namespace isobar
