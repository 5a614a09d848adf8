#include "data/fields/pairs.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "data/fields/spread_steps.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

// Whether `holds` is true of every pair of a window.
template <class F>
bool of_every_pair(const FieldSeries& dataset, std::int64_t first, std::int64_t steps, const F& holds) {
  for (std::int64_t k = 0; k < steps; ++k)
    if (!holds(first + k * dataset.dt())) return false;
  return true;
}

// Windows within a file, over holes too, and those over the end of a file that have no hole.
std::vector<std::int64_t> every_window(const FieldSeries& dataset, std::int64_t steps) {
  const auto has_pair = [&](std::int64_t step) { return dataset.has_pair(step); };
  std::vector<std::int64_t> samples;
  for (const Segment& segment : dataset.segments()) {
    for (std::int64_t i = 0; i < segment.count; ++i) {
      const bool in_one_file = i + steps * dataset.dt() < segment.count;
      if (in_one_file || of_every_pair(dataset, segment.first + i, steps, has_pair))
        samples.push_back(segment.first + i);
    }
  }
  return samples;
}

std::vector<std::int64_t> by_the_tutorials_rule(const FieldSeries& dataset, std::int64_t steps) {
  const std::int64_t dt = dataset.dt(), needed = steps + 2;
  std::vector<std::int64_t> samples;
  for (const Segment& segment : dataset.segments()) {
    ISOBAR_CHECK(segment.count >= needed * dt, "sampler tutorial: ", dataset.file_name_of(segment.first), " has ",
                 segment.count, " steps in range, fewer than the ", needed, " dt = ", needed * dt,
                 " that its rule needs");
    for (std::int64_t i = 0; i < segment.count; ++i) {
      const std::int64_t local = i % (segment.count - steps * dt);
      samples.push_back(segment.first + (local < dt ? local + dt : local));
    }
  }
  return samples;
}

std::vector<std::int64_t> with_holes(const FieldSeries& dataset, SamplerKind kind, std::int64_t steps) {
  return kind == SamplerKind::tutorial ? by_the_tutorials_rule(dataset, steps) : every_window(dataset, steps);
}

bool spans_a_hole(const FieldSeries& dataset, std::int64_t first, std::int64_t steps) {
  return !of_every_pair(dataset, first, steps,
                        [&](std::int64_t step) { return dataset.regular(step, step + dataset.dt()); });
}

// The largest number of steps of the range that follow each other without a hole in time, in files that windows may
// span.
std::int64_t longest_stretch(const FieldSeries& dataset) {
  std::int64_t longest = 0;
  for (std::int64_t first = dataset.range()[0], step = first; step < dataset.range()[1]; ++step) {
    longest = std::max(longest, step - first + 1);
    if (step + 1 < dataset.range()[1] && !dataset.regular(step, step + 1)) first = step + 1;
  }
  return longest;
}

[[noreturn]] void refuse_long_windows(const Windows& windows, std::int64_t steps) {
  const FieldSeries& dataset = windows.series();
  const std::int64_t history = windows.options().history;
  throw_error(dataset.file_name(0), ": a forecast of ", steps, " steps of dt = ", dataset.dt(),
              history > 0 ? concat(" with ", history, " earlier states") : "", " needs ",
              (history + steps) * dataset.dt() + 1, " steps in a row, and the longest stretch without a hole in time ",
              "in the range asked for has ", longest_stretch(dataset));
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

std::vector<std::int64_t> list_samples(const Windows& windows, SamplerKind kind, std::int64_t limit,
                                       std::int64_t steps) {
  const FieldSeries& dataset = windows.series();
  std::vector<std::int64_t> samples = with_holes(dataset, kind, steps);
  std::erase_if(samples,
                [&](std::int64_t step) { return !windows.has_inputs(step) || spans_a_hole(dataset, step, steps); });
  if (samples.empty() && steps > 1) refuse_long_windows(windows, steps);
  ISOBAR_CHECK(
      !samples.empty(), dataset.file_name(0), ": no two steps dt = ", dataset.dt(),
      " apart lie in the range asked for, in one file or in files that follow each other, without a hole in time "
      "between them");
  if (limit > 0 && limit < static_cast<std::int64_t>(samples.size())) samples.resize(static_cast<std::size_t>(limit));
  return samples;
}

std::string describe_left_out(const FieldSeries& dataset, SamplerKind kind, std::int64_t steps) {
  const std::vector<std::int64_t> samples = with_holes(dataset, kind, steps);
  const auto left_out =
      std::ranges::count_if(samples, [&](std::int64_t step) { return spans_a_hole(dataset, step, steps); });
  if (left_out == 0) return "";
  constexpr int kFilesNamed = 3;
  std::string text = concat(left_out, steps == 1 ? " pair" : " window", left_out == 1 ? "" : "s",
                            steps == 1 ? "" : concat(" of ", steps, " steps"), " left out: ");
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
      window_steps_(options.steps),
      rows_(options.rows.value_or(steps.all_rows())),
      first_steps_(list_samples(windows_, options.kind, options.limit, options.steps)) {
  steps.check_band(rows_);
}

std::string PairDataset::name() const {
  return steps().file_name(0) + (steps().file_count() > 1 ? " and the files beside it" : "");
}

std::string at_step(const std::string& name, std::int64_t k) {
  return k == 0 ? name : concat(name, ".", k + 1);
}

std::vector<TensorSpec> pair_layout(const PairLayout& of) {
  std::vector<TensorSpec> layout{{"input", of.input, DType::fp32}};
  for (std::int64_t k = 0; k < of.steps; ++k) {
    layout.push_back({at_step("target", k), of.target, DType::fp32});
    if (k > 0 && of.given_planes > 0)
      layout.push_back({at_step("given", k), {of.given_planes, of.input[1], of.input[2]}, DType::fp32});
    if (of.time_features) layout.push_back({at_step("time", k), {kTimeFeatures}, DType::fp64});
    if (of.counts_points) layout.push_back({at_step("points", k), {of.target[0]}, DType::i32});
  }
  return layout;
}

std::vector<TensorSpec> PairDataset::layout() const {
  const std::int64_t width = steps().width();
  std::vector<TensorSpec> layout = pair_layout({.input = {windows_.input_planes(), rows_.count, width},
                                                .target = {windows_.target_planes(), rows_.count, width},
                                                .time_features = time_features_,
                                                .counts_points = counts_points_,
                                                .steps = window_steps_,
                                                .given_planes = windows_.given_planes()});
  if (diagnostics_before_) layout.push_back({"before", {windows_.diagnostics(), rows_.count, width}, DType::fp32});
  return layout;
}

void PairDataset::read(const SampleKey& key, std::span<void* const> to) const {
  const std::int64_t first = step_of(key.sample), pixels = rows_.count * steps().width();
  std::size_t tensor = 0;  // in the order of the layout
  const auto fields = [&] { return static_cast<float*>(to[tensor++]); };
  windows_.read_input(first, rows_, fields());
  for (std::int64_t k = 0; k < window_steps_; ++k) {
    const std::int64_t step = first + k * steps().dt();
    float* const target = fields();
    windows_.read_target(step + steps().dt(), rows_, target);
    if (k > 0 && windows_.given_planes() > 0) windows_.read_given(step, rows_, fields());
    if (time_features_) std::ranges::copy(steps().time_of(step).features(), static_cast<double*>(to[tensor++]));
    if (counts_points_)
      count_points({target, static_cast<std::size_t>(windows_.target_planes() * pixels)}, pixels,
                   static_cast<std::int32_t*>(to[tensor++]));
  }
  if (diagnostics_before_) windows_.read_diagnostics(first, rows_, fields());
}

PairDataset PairDataset::shortened(std::int64_t steps) const {
  ISOBAR_CHECK(steps >= 1 && steps <= window_steps_, name(), ": windows of ", window_steps_, " steps have no ", steps);
  PairDataset view = *this;
  view.window_steps_ = steps;
  return view;
}

PairDataset PairDataset::spread(std::int64_t count) const {
  PairDataset view = *this;
  view.first_steps_.clear();
  for (const std::int64_t sample : spread_steps(0, samples(), count, steps_per_day(steps())))
    view.first_steps_.push_back(step_of(sample));
  return view;
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
