// What a regression computes of a volume: the dataset `Hydro` [C', D, H, W], put together from the inner parts of crops
// that overlap (data/volumes/crop_grid.h). In memory are only the crops of a batch.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/volumes/crop_grid.h"
#include "data/volumes/volume.h"
#include "models/network.h"
#include "models/prediction.h"
#include "models/regression/volume_regressor.h"

namespace isobar {

// The crops of a grid: "input" [C, size] fp32, and "turn" [] i32, which is 0: as they lie.
class GridCrops : public Dataset {
 public:
  // The volume must outlive this object.
  GridCrops(const Volume& volume, const CropGridOptions& options) : volume_(volume), grid_(volume, options) {}

  std::string name() const override { return volume_.name(); }
  std::int64_t samples() const override { return grid_.crops(); }
  std::vector<TensorSpec> layout() const override;
  void read(const SampleKey& key, std::span<void* const> to) const override;
  const CropGrid& grid() const { return grid_; }

 private:
  const Volume& volume_;
  const CropGrid grid_;
};

// How a network is applied to volumes.
struct VolumeNetwork {
  std::shared_ptr<const NetworkRecipe> recipe;
  Ports ports;  // of a crop
  VolumeObjective objective;
};

class VolumePrediction : public OpenedPrediction {
 public:
  // volumes.target may be null. Crops wrap along an axis if the request or the network's edges say so. Error, with the
  // volume's name and numbers, if the volumes have other channels than the ports, and if crops do not fit into them.
  VolumePrediction(VolumeNetwork network, VolumePair volumes, const PredictionRequest& request);

  std::string dataset() const override { return "Hydro"; }
  Shape shape() const override;
  std::vector<std::string> units() const override;
  std::vector<std::string> sentences() const override;
  std::string missing_target() const override { return volumes_.target ? "" : "'Hydro'"; }
  const Dataset& parts() const override { return crops_; }
  Task& make_task(const ComputeOptions& compute, Device device) override;
  std::vector<PredictedBox> compute(std::span<const std::int64_t> parts, const Batch& batch,
                                    Metrics* metrics) const override;

 private:
  CropGridOptions grid_options(const PredictionRequest& request) const;
  std::string about_seams() const;
  // kept: the prediction, [C', count]; input: [C, count].
  void add_to(Metrics& metrics, const GridCrop& crop, const std::vector<double>& kept,
              const std::vector<double>& input) const;

  const VolumeNetwork network_;
  const VolumePair volumes_;
  const GridCrops crops_;
  std::unique_ptr<VolumeRegressor> task_;
};

}  // namespace isobar
