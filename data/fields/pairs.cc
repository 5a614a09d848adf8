#include "data/fields/pairs.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/common/check.h"

namespace isobar {
namespace {

// Pairs within a file, over holes too, and those over the end of a file that have no hole.
std::vector<std::int64_t> every_pair(const FieldSeries& dataset) {
  std::vector<std::int64_t> samples;
  for (const Segment& segment : dataset.segments()) {
    for (std::int64_t i = 0; i < segment.count; ++i) {
      const bool in_one_file = i + dataset.dt() < segment.count;
      if (in_one_file || dataset.has_pair(segment.first + i)) samples.push_back(segment.first + i);
    }
  }
  return samples;
}

std::vector<std::int64_t> by_the_tutorials_rule(const FieldSeries& dataset) {
  const std::int64_t dt = dataset.dt();
  std::vector<std::int64_t> samples;
  for (const Segment& segment : dataset.segments()) {
    ISOBAR_CHECK(segment.count >= 3 * dt, "sampler tutorial: ", dataset.file_name_of(segment.first), " has ",
                 segment.count, " steps in range, fewer than the 3 dt = ", 3 * dt, " that its rule needs");
    for (std::int64_t i = 0; i < segment.count; ++i) {
      const std::int64_t local = i % (segment.count - dt);
      samples.push_back(segment.first + (local < dt ? local + dt : local));
    }
  }
  return samples;
}

std::vector<std::int64_t> with_holes(const FieldSeries& dataset, SamplerKind kind) {
  return kind == SamplerKind::tutorial ? by_the_tutorials_rule(dataset) : every_pair(dataset);
}

bool spans_a_hole(const FieldSeries& dataset, std::int64_t step) {
  return !dataset.regular(step, step + dataset.dt());
}

// Of every plane of `pixels` points.
void count_points(std::span<const float> fields, std::int64_t pixels, std::int32_t* counts) {
  for (; !fields.empty(); fields = fields.subspan(static_cast<std::size_t>(pixels))) {
    std::int32_t points = 0;
    for (const float value : fields.first(static_cast<std::size_t>(pixels))) points += std::isnan(value) ? 0 : 1;
    *counts++ = points;
  }
}

}  // namespace

std::vector<std::int64_t> list_samples(const Windows& windows, SamplerKind kind, std::int64_t limit) {
  const FieldSeries& dataset = windows.series();
  std::vector<std::int64_t> samples = with_holes(dataset, kind);
  std::erase_if(samples, [&](std::int64_t step) { return !windows.has_inputs(step) || spans_a_hole(dataset, step); });
  ISOBAR_CHECK(
      !samples.empty(), dataset.file_name(0), ": no two steps dt = ", dataset.dt(),
      " apart lie in the range asked for, in one file or in files that follow each other, without a hole in time "
      "between them");
  if (limit > 0 && limit < static_cast<std::int64_t>(samples.size())) samples.resize(static_cast<std::size_t>(limit));
  return samples;
}

std::string describe_left_out(const FieldSeries& dataset, SamplerKind kind) {
  const std::vector<std::int64_t> samples = with_holes(dataset, kind);
  const auto left_out = std::ranges::count_if(samples, [&](std::int64_t step) { return spans_a_hole(dataset, step); });
  if (left_out == 0) return "";
  constexpr int kFilesNamed = 3;
  std::string text = std::to_string(left_out) + (left_out == 1 ? " pair left out: " : " pairs left out: ");
  int files = 0;
  for (const Segment& segment : dataset.segments()) {
    const std::size_t holes = dataset.holes(segment).size();
    if (holes == 0 || ++files > kFilesNamed) continue;
    if (files > 1) text += ", ";
    text += std::to_string(holes) + (holes == 1 ? " hole" : " holes") + " in time in " +
            dataset.file_name_of(segment.first);
  }
  return files > kFilesNamed ? text + ", and more in " + std::to_string(files - kFilesNamed) + " other files" : text;
}

PairDataset::PairDataset(const FieldSeries& steps, const PairOptions& options)
    : windows_(steps, options.windows),
      time_features_(options.time_features),
      counts_points_(options.counts_points),
      diagnostics_before_(options.diagnostics_before && windows_.diagnostics() > 0),
      rows_(options.rows.value_or(steps.all_rows())),
      first_steps_(list_samples(windows_, options.kind, options.limit)) {
  steps.check_band(rows_);
}

std::string PairDataset::name() const {
  return steps().file_name(0) + (steps().file_count() > 1 ? " and the files beside it" : "");
}

std::vector<TensorSpec> pair_layout(const Shape& input, const Shape& target, bool time_features, bool counts_points) {
  std::vector<TensorSpec> layout{{"input", input, DType::fp32}, {"target", target, DType::fp32}};
  if (time_features) layout.push_back({"time", {kTimeFeatures}, DType::fp64});
  if (counts_points) layout.push_back({"points", {target[0]}, DType::i32});
  return layout;
}

std::vector<TensorSpec> PairDataset::layout() const {
  const std::int64_t width = steps().width();
  std::vector<TensorSpec> layout =
      pair_layout({windows_.input_planes(), rows_.count, width}, {windows_.target_planes(), rows_.count, width},
                  time_features_, counts_points_);
  if (diagnostics_before_) layout.push_back({"before", {windows_.diagnostics(), rows_.count, width}, DType::fp32});
  return layout;
}

void PairDataset::read(const SampleKey& key, std::span<void* const> to) const {
  const std::int64_t step = step_of(key.sample);
  windows_.read_input(step, rows_, static_cast<float*>(to[0]));
  auto* const target = static_cast<float*>(to[1]);
  windows_.read_target(step + steps().dt(), rows_, target);
  if (time_features_) std::ranges::copy(steps().time_of(step).features(), static_cast<double*>(to[2]));
  const std::int64_t pixels = rows_.count * steps().width();
  if (counts_points_)
    count_points({target, static_cast<std::size_t>(windows_.target_planes() * pixels)}, pixels,
                 static_cast<std::int32_t*>(to[time_features_ ? 3 : 2]));
  if (diagnostics_before_) windows_.read_diagnostics(step, rows_, static_cast<float*>(to.back()));
}

std::unique_ptr<Dataset> PairDataset::band(RowBand rows) const {
  ISOBAR_CHECK(rows.first >= 0 && rows.count >= 1 && rows.first <= rows_.count - rows.count, name(), ": rows [",
               rows.first, ", ", rows.first + rows.count, ") are no band of ", rows_.count, " rows");
  auto part = std::make_unique<PairDataset>(*this);
  part->rows_ = {rows_.first + rows.first, rows.count};
  return part;
}

std::int64_t PairDataset::step_of(std::int64_t sample) const {
  ISOBAR_CHECK(sample >= 0 && sample < samples(), "sample ", sample, " is not one of the ", samples(), " of ", name());
  return first_steps_[static_cast<std::size_t>(sample)];
}

}  // namespace isobar
