// What a regression computes of volumes: the dataset `Hydro` [C', D, H, W], or [boxes, C', D, H, W] of several boxes.
// It is put together from the inner parts of crops that overlap (data/volumes/crop_grid.h). In memory are only the
// crops of a batch.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/volumes/crop_grid.h"
#include "data/volumes/volume.h"
#include "models/network.h"
#include "models/prediction.h"
#include "models/regression/volume_regressor.h"

namespace isobar {

// The crops of a grid in every box: "input" [C, size] fp32, and "turn" [] i32, which is 0: as they lie.
class GridCrops : public Dataset {
 public:
  // The volume must outlive this object.
  GridCrops(const Volume& volume, const CropGridOptions& options) : volume_(volume), grid_(volume, options) {}

  std::string name() const override { return volume_.name(); }
  std::int64_t samples() const override { return volume_.boxes() * grid_.crops(); }
  std::vector<TensorSpec> layout() const override;
  void read(const SampleKey& key, std::span<void* const> to) const override;
  const CropGrid& grid() const { return grid_; }
  std::int64_t box_of(std::int64_t sample) const { return sample / grid_.crops(); }
  GridCrop crop_of(std::int64_t sample) const { return grid_.crop(sample % grid_.crops()); }

 private:
  const Volume& volume_;
  const CropGrid grid_;
};

// A network, and how it is applied to volumes.
struct VolumeNetwork {
  std::shared_ptr<const NetworkRecipe> recipe;
  Ports ports;  // of a crop
  VolumeObjective objective;
  bool wrap = false;                         // volumes are periodic along every axis
  std::optional<std::int64_t> overlap = {};  // of neighbouring crops, in points; none: half of a crop
};

class VolumePrediction : public OpenedPrediction {
 public:
  // volumes.target may be null. Crops wrap along an axis if `wrap` or the network's edges say so. Error, with the
  // volume's name and numbers, if the volumes have other channels than the ports, and if crops do not fit into them.
  VolumePrediction(VolumeNetwork network, VolumePair volumes);

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
  CropGridOptions grid_options() const;
  std::string about_seams() const;
  // Of a part: the prediction that is kept of it, [C', count], and its input, [C, count].
  void add_to(Metrics& metrics, std::int64_t part, const std::vector<double>& kept,
              const std::vector<double>& input) const;

  const VolumeNetwork network_;
  const VolumePair volumes_;
  const GridCrops crops_;
  std::unique_ptr<VolumeRegressor> task_;
};

}  // namespace isobar
