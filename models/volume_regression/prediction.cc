#include "models/volume_regression/prediction.h"

#include <algorithm>
#include <utility>

#include "engine/conv_ops.h"
#include "engine/tape.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

std::string text_of(const Point& point) {
  return concat(point[0], " x ", point[1], " x ", point[2]);
}

Point size_in(const Ports& ports) {
  return {ports.in[1], ports.in[2], ports.in[3]};
}

// The kept part [C, count] of what was computed of a whole crop, [C, size].
template <class T>
std::vector<double> kept_of(const T* values, std::int64_t channels, const Point& size, const GridCrop& crop) {
  std::vector<double> kept;
  for_each_line(channels, crop.count, [&](std::int64_t c, std::int64_t i, std::int64_t j) {
    const std::int64_t line = (c * size[0] + crop.offset[0] + i) * size[1] + crop.offset[1] + j;
    const T* const from = values + line * size[2] + crop.offset[2];
    kept.insert(kept.end(), from, from + crop.count[2]);
  });
  return kept;
}

// [C, count] as [1, count, C] on the host.
Tensor channels_last(const std::vector<double>& values, std::int64_t channels, const Point& count, DType dtype) {
  Tensor fields = Tensor::empty({1, channels, count[0], count[1], count[2]}, dtype, Device{});
  fields.set_values(values);
  return to_channels_last(fields, dtype);
}

// Error if a volume has other channels than the network.
void check_channels(const Volume& volume, std::int64_t channels, const char* verb) {
  ISOBAR_CHECK(volume.channels() == channels, volume.name(), " ", to_string(volume.shape()), " has ", volume.channels(),
               " channels, but the network ", verb, " ", channels);
}

const VolumePair& checked(const VolumePair& volumes, const Ports& ports) {
  check_channels(*volumes.input, ports.in[0], "takes");
  if (volumes.target) check_channels(*volumes.target, ports.out[0], "computes");
  return volumes;
}

}  // namespace

std::vector<TensorSpec> GridCrops::layout() const {
  const auto& [depth, height, width] = grid_.options().size;
  return {{.name = "input", .shape = {volume_.channels(), depth, height, width}},
          {.name = "turn", .shape = {}, .dtype = DType::i32}};
}

void GridCrops::read(const SampleKey& key, std::span<void* const> to) const {
  volume_.read_wrapped(box_of(key.sample), crop_of(key.sample).start, grid_.options().size, static_cast<float*>(to[0]));
  *static_cast<std::int32_t*>(to[1]) = 0;
}

VolumePrediction::VolumePrediction(VolumeNetwork network, VolumePair volumes)
    : network_(std::move(network)),
      volumes_(std::move(volumes)),
      crops_(*checked(volumes_, network_.ports).input, grid_options()) {}

// A network whose edges wrap needs no neighbours along an axis that a crop covers.
CropGridOptions VolumePrediction::grid_options() const {
  const std::optional<Reach> reach = network_.recipe->reach();
  CropGridOptions options{.size = size_in(network_.ports)};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const bool network_wraps = reach && reach->wraps_along(axis);
    const bool is_covered = network_wraps && options.size[axis] == volumes_.extent()[axis];
    options.wraps[axis] = (network_.wrap || network_wraps) && !is_covered;
    options.overlap[axis] = network_.overlap.value_or(options.size[axis] / 2);
  }
  return options;
}

Shape VolumePrediction::shape() const {
  const auto& [depth, height, width] = volumes_.extent();
  const Shape of_box{network_.ports.out[0], depth, height, width};
  if (volumes_.boxes() == 1) return of_box;
  return {volumes_.boxes(), of_box[0], depth, height, width};
}

std::vector<std::string> VolumePrediction::units() const {
  return volumes_.target ? volumes_.target->units() : std::vector<std::string>();
}

std::string VolumePrediction::about_seams() const {
  constexpr const char* kDiffers = "the result is not that of the network on the whole volume";
  const std::optional<Reach> reach = network_.recipe->reach();
  if (!reach) return concat("the network looks as far as a crop goes: ", kDiffers);
  const std::string far = concat("the network looks ", reach->points, " points far");
  if (!crops_.grid().covers(reach->points)) return concat(far, ", which is farther: there are seams, ", kDiffers);
  if (!crops_.grid().begins_at_multiples_of(reach->stride))
    return concat(far, ", but not every crop begins at a multiple of ", reach->stride, " points: ", kDiffers);
  return concat(far, ": no seams, the result is that of the network on the whole volume");
}

std::vector<std::string> VolumePrediction::sentences() const {
  const CropGridOptions& options = crops_.grid().options();
  std::string wraps;
  for (std::size_t axis = 0; axis < 3; ++axis)
    if (options.wraps[axis]) wraps += concat(wraps.empty() ? ", periodic along axis " : ", ", axis);
  const Point& overlap = options.overlap;
  Point margin = overlap;
  for (std::int64_t& points : margin) points /= 2;
  const bool is_whole = crops_.grid().crops() == 1 && wraps.empty();
  const std::string boxes = volumes_.boxes() == 1 ? "" : concat(volumes_.boxes(), " boxes ");
  const std::string volume = concat(volumes_.input->name(), " ", boxes, to_string(volumes_.input->shape()), wraps);
  if (is_whole) return {concat(volume, ": computed at once")};
  return {
      concat(volume, ": ", crops_.samples(), crops_.samples() == 1 ? " crop of " : " crops of ", text_of(options.size),
             " points that overlap by ", text_of(overlap)),
      concat("kept of a crop: what lies ", text_of(margin), " points or more from its inner ends; ", about_seams())};
}

Task& VolumePrediction::make_task(const ComputeOptions& compute, Device device) {
  task_ = std::make_unique<VolumeRegressor>(network_.recipe, compute, network_.ports, network_.objective, device);
  return *task_;
}

std::vector<PredictedBox> VolumePrediction::compute(std::span<const std::int64_t> parts, const Batch& batch,
                                                    Metrics* metrics) const {
  const TapeScope off(nullptr);
  const Point size = size_in(network_.ports);
  const std::int64_t channels_in = network_.ports.in[0], channels = network_.ports.out[0];
  const std::int64_t points = points_of(size);
  const Tensor fields = to_channels_first(task_->prediction(to_device(batch, task_->device())));
  const std::vector<double> values = fields.to_vector();
  const float* input = tensor_of(batch, "input").data_as<float>();
  const double* output = values.data();
  std::vector<PredictedBox> boxes;
  for (const std::int64_t part : parts) {
    const GridCrop crop = crops_.crop_of(part);
    const std::vector<double> kept = kept_of(output, channels, size, crop);
    if (metrics != nullptr) add_to(*metrics, part, kept, kept_of(input, channels_in, size, crop));
    PredictedBox& box = boxes.emplace_back();
    box.start = {0, crop.first[0], crop.first[1], crop.first[2]};
    box.count = {channels, crop.count[0], crop.count[1], crop.count[2]};
    box.values.assign(kept.begin(), kept.end());
    if (volumes_.boxes() > 1) {
      box.start.insert(box.start.begin(), crops_.box_of(part));
      box.count.insert(box.count.begin(), 1);
    }
    input += channels_in * points;
    output += channels * points;
  }
  return boxes;
}

void VolumePrediction::add_to(Metrics& metrics, std::int64_t part, const std::vector<double>& kept,
                              const std::vector<double>& input) const {
  const DType dtype = task_->parameters().dtype();
  const std::int64_t channels = network_.ports.out[0];
  const GridCrop crop = crops_.crop_of(part);
  std::vector<float> target(kept.size());
  volumes_.target->read(crops_.box_of(part), crop.first, crop.count, target.data());
  task_->add_errors({.prediction = channels_last(kept, channels, crop.count, dtype),
                     .target = channels_last({target.begin(), target.end()}, channels, crop.count, dtype),
                     .input = channels_last(input, network_.ports.in[0], crop.count, dtype)},
                    metrics);
}

}  // namespace isobar
