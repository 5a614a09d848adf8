// Samples of volumes: the same crop of both volumes of a pair, somewhere, to be turned by a symmetry of the cube. If
// the crop is no cube, then by one of those that keep its extents.
//
// Where the crop begins and how it is turned are functions of the sample's key, so that they are the same on all ranks
// and after every resume, and other ones in every epoch. Nobody turns it here: the sample says by which turn
// (kernels/turn.h).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "data/volumes/volume.h"
#include "engine/keys.h"

namespace isobar {

// random: uniform over all places. tutorial: as the loader of NERSC's tutorial with DALI draws them (TutorialCrops).
enum class CropRule : std::uint8_t { random, tutorial };
// physical: one of the 48 symmetries. tutorial: one of 24, as the tutorial has them. none: as it lies.
enum class Augmentation : std::uint8_t { physical, tutorial, none };

template <>
struct EnumNames<CropRule> {
  static constexpr std::array names{"random", "tutorial"};
};
template <>
struct EnumNames<Augmentation> {
  static constexpr std::array names{"physical", "tutorial", "none"};
};

struct Crop {
  Point start = {};
  std::int32_t turn = 0;
  std::int64_t box = 0;

  friend bool operator==(const Crop&, const Crop&) = default;
};

// The number of the turn of row `index` of the tutorial's table of 24, of its loader of PyTorch: an order of the axes,
// and flips. 8 of them are reflections, and most rotations are missing.
int tutorial_turn(int index);
// The same of its loader with DALI: the 24 rotations of the cube, in the tutorial's order.
int tutorial_rotation(int index);

// The crops of the tutorial's loader with DALI. NumPy's RandomState(12345) draws for batch after batch: first
// randint(0, L - S, (B, 3)), the starts, which leaves out the last one; then randint(0, 24, B), the rotations. Samples
// are in their order, and the last batch of an epoch is whole even if it has fewer samples. Unlike there, the batch is
// the one of all ranks, so that ranks have other crops. The tutorial's flips come from a generator of DALI's and are
// left out.
class TutorialCrops {
 public:
  // extent: L, of each axis; size: S; batch: B; samples: of an epoch.
  TutorialCrops(std::int64_t extent, std::int64_t size, std::int64_t batch, std::int64_t samples);

  // Thread-safe. Fast if epochs are asked for in their order.
  Crop crop(std::int64_t epoch, std::int64_t sample) const;

 private:
  std::vector<Crop> next_epoch() const;

  std::int64_t starts_, batch_, samples_;  // starts_: L - S
  mutable std::mutex mutex_;
  mutable std::mt19937 generator_;
  mutable std::int64_t epochs_drawn_ = 0;
  mutable std::map<std::int64_t, std::vector<Crop>> epochs_;  // the latest two
};

struct CropOptions {
  Point size{64, 64, 64};
  std::int64_t samples = 0;
  bool wrap = false;  // the volumes are periodic: a crop may begin at every point
  CropRule rule = CropRule::random;
  Augmentation augmentation = Augmentation::physical;
  DataSplit split = DataSplit::train;
  std::int64_t batch = 1;  // of all ranks, for CropRule::tutorial
};

// "input" [C, size] and "target" [C', size], fp32; "turn" [] i32.
class CropDataset : public Dataset {
 public:
  // Error, with the volume's name and both sizes, where the crop is larger than the volumes; and for the tutorial's
  // crops if crop or volumes are no cube, if there are several boxes, and if crops wrap.
  CropDataset(VolumePair volumes, const CropOptions& options);

  std::string name() const override { return volumes_.input->name(); }
  std::int64_t samples() const override { return options_.samples; }
  std::vector<TensorSpec> layout() const override;
  void read(const SampleKey& key, std::span<void* const> to) const override;

  const VolumePair& volumes() const { return volumes_; }
  Crop crop(const SampleKey& key) const;

 private:
  VolumePair volumes_;
  CropOptions options_;
  std::vector<std::int32_t> turns_;  // of which each crop has one
  TutorialCrops tutorial_;
};

}  // namespace isobar
