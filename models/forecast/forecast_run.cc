#include "models/forecast/forecast_run.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "data/fields/first_step.h"
#include "data/fields/pairs.h"
#include "kernels/common/check.h"
#include "kernels/common/comma_list.h"

namespace isobar {
namespace {

constexpr std::int64_t kMostLeads = 100'000;

// [B, planes, LAT, LON] fp32 on the host; read(b, to) fills sample b.
template <class Read>
Tensor read_samples(std::size_t samples, std::int64_t planes, const FieldSeries& series, const Read& read) {
  const std::int64_t height = series.height(), width = series.width();
  const Tensor fields =
      Tensor::empty({static_cast<std::int64_t>(samples), planes, height, width}, DType::fp32, Device{});
  for (std::size_t b = 0; b < samples; ++b)
    read(b, fields.data_as<float>() + static_cast<std::int64_t>(b) * planes * height * width);
  return fields;
}

}  // namespace

ForecastRun::ForecastRun(const Forecaster& forecaster, const ForecastSources& sources, std::int64_t steps,
                         Tensor climatology)
    : forecaster_(forecaster),
      sources_(sources),
      series_(sources.windows.series()),
      steps_(steps),
      climatology_(std::move(climatology)) {
  const ForecastOptions& options = forecaster.options();
  ISOBAR_CHECK(steps <= kMostLeads, "a forecast of ", steps, " steps is longer than the ", kMostLeads,
               " that isobar makes");
  ISOBAR_CHECK(steps == 1 || options.channels || *options.n_out_channels == *options.n_in_channels,
               "n_out_channels: a forecast of ", *options.n_out_channels,
               " channels cannot be continued by a model that reads ", *options.n_in_channels,
               ", unless config keys channels and forcing_channels name them");
}

std::vector<std::int64_t> ForecastRun::leads() const {
  std::vector<std::int64_t> leads(static_cast<std::size_t>(steps_));
  for (std::int64_t k = 0; k < steps_; ++k) leads[static_cast<std::size_t>(k)] = lead(k);
  return leads;
}

// "2018-12-20T06:00", or "step 12" if the times are unknown.
std::string ForecastRun::when(std::int64_t start, std::int64_t steps) const {
  return sources_.times.are_known() ? time_at(sources_.times.hours_after(start, steps)).iso()
                                    : concat("step ", start + steps);
}

// "a forecast of 4 steps from 2018-12-20T00:00 (step 8)"
std::string ForecastRun::from(std::int64_t start) const {
  return concat("a forecast of ", steps_, steps_ == 1 ? " step from " : " steps from ",
                sources_.times.are_known() ? concat(when(start, 0), " (step ", start, ")") : when(start, 0));
}

// The step of the series of forcings that lies `steps` steps after a start.
std::optional<std::int64_t> ForecastRun::forcing_step(std::int64_t start, std::int64_t steps) const {
  const StepTimes &own = sources_.times, &theirs = *sources_.forcing_times;
  const bool by_time = own.are_known() && theirs.are_known();
  const std::optional<std::int64_t> first = by_time ? theirs.at(own.hours(start)) : std::optional(start);
  const std::optional<std::int64_t> found = first ? theirs.after(*first, steps) : std::nullopt;
  return found && sources_.forcings->has_sums(*found) ? found : std::nullopt;
}

void ForecastRun::check_start(std::int64_t start) const {
  const ForecastOptions& options = forecaster_.options();
  const std::int64_t dt = series_.dt();
  ISOBAR_CHECK(start >= 0 && start < series_.steps(), "start step ", start, " is not in the data, which has ",
               series_.steps(), " steps");
  ISOBAR_CHECK(sources_.windows.has_inputs(start) || options.history > 0, from(start), ": the data have not the ",
               dt - 1, " steps before it that its sums need (config key accumulate)");
  ISOBAR_CHECK(sources_.windows.has_inputs(start), from(start), ": the data have no ", options.history,
               " earlier states before it, which the model reads: no ", series_.channel_names().front(), " from ",
               when(start, -options.history * dt), " on without a hole");
  for (std::int64_t k = 1; k < steps_; ++k) check_given(start, k);
}

// Error if the data lack what they give of the input of step k.
void ForecastRun::check_given(std::int64_t start, std::int64_t k) const {
  const ForecastOptions& options = forecaster_.options();
  const std::int64_t steps = k * series_.dt();
  ISOBAR_CHECK(sources_.forcings == nullptr || forcing_step(start, steps), from(start), ": the data have no ",
               sources_.forcings == nullptr ? "" : comma_list(sources_.forcings->channel_names()), " at ",
               when(start, steps), ", which the model reads as forcings");
  const bool is_there = sources_.times.after(start, steps).has_value();
  const bool needs_edges = options.rollout.boundary_width > 0 && options.rollout.continues();
  ISOBAR_CHECK(!needs_edges || is_there, from(start), ": the data have no ", series_.channel_names().front(), " at ",
               when(start, steps), ", whose edges the model reads (config key boundary_width)");
  ISOBAR_CHECK(!*options.time_features || sources_.times.are_known() || is_there, from(start), ": ",
               series_.file_name_of(start), " does not tell the times after its end, which the model reads");
}

void ForecastRun::check_no_hole(std::int64_t start) const {
  const std::int64_t end = std::min(start + lead(steps_ - 1) + 1, series_.steps());
  const std::vector<std::int64_t> holes = series_.holes({start, end - start});
  ISOBAR_CHECK(holes.empty(), "a forecast of ", steps_, steps_ == 1 ? " step" : " steps", " from step ", start,
               " crosses a hole in time of ", series_.file_name_of(holes.front()), ": step ", holes.front(), " is ",
               series_.time_of(holes.front()).iso(), ", step ", holes.front() + 1, " is ",
               series_.time_of(holes.front() + 1).iso(), "; give the start as a date");
}

bool ForecastRun::Truth::is_any() const {
  return std::ranges::find(is_there, true) != is_there.end();
}

// The inputs of the starts, on the host.
Batch ForecastRun::read_starts(std::span<const std::int64_t> starts) const {
  const Windows& windows = sources_.windows;
  Batch batch;
  batch["input"] = read_samples(starts.size(), windows.input_planes(), series_, [&](std::size_t b, float* to) {
    windows.read_input(starts[b], series_.all_rows(), to);
  });
  if (*forecaster_.options().time_features) batch["time"] = time_features(starts, 0);
  return batch;
}

// Times after the start are those of the data, or the start's and so many steps.
Tensor ForecastRun::time_features(std::span<const std::int64_t> starts, std::int64_t k) const {
  std::vector<double> values;
  for (const std::int64_t start : starts) {
    const std::int64_t steps = k * series_.dt();
    const std::optional<std::int64_t> step = sources_.times.after(start, steps);
    const StepTime time = step ? series_.time_of(*step) : time_at(sources_.times.hours_after(start, steps));
    const auto features = time.features();
    values.insert(values.end(), features.begin(), features.end());
  }
  Tensor planes = Tensor::empty({std::ssize(starts), kTimeFeatures}, DType::fp64, Device{});
  planes.set_values(values);
  return planes;
}

ForecastRun::Truth ForecastRun::read_truth(std::span<const std::int64_t> starts, std::int64_t k,
                                           const Batch& first) const {
  const Windows& windows = sources_.windows;
  const RowBand rows = series_.all_rows();
  const std::int64_t pixels = series_.height() * series_.width();
  const std::int64_t states = forecaster_.options().prognostics() * pixels;
  const float* inputs = first.at("input").data_as<float>();
  Truth truth;
  const Tensor fields = read_samples(starts.size(), windows.target_planes(), series_, [&](std::size_t b, float* to) {
    const std::optional<std::int64_t> step = sources_.times.after(starts[b], lead(k));
    const bool is_there = step && series_.has_sums(*step);
    truth.is_there.push_back(is_there);
    if (is_there) return windows.read_target(*step, rows, to);
    std::copy_n(inputs + static_cast<std::int64_t>(b) * windows.input_planes() * pixels, states, to);
    std::fill_n(to + states, windows.target_planes() * pixels - states, 0.0F);
  });
  truth.batch[at_step("target", k)] = fields;
  truth.batch = to_device(truth.batch, forecaster_.device());
  return truth;
}

// Persistence of a diagnostic, which no input has, is its own field at the start.
Tensor ForecastRun::persistence_of(std::span<const std::int64_t> starts, const Batch& begin) const {
  const Windows& windows = sources_.windows;
  Batch batch;
  if (windows.diagnostics() > 0)
    batch["before"] = read_samples(starts.size(), windows.diagnostics(), series_, [&](std::size_t b, float* to) {
      windows.read_diagnostics(starts[b], series_.all_rows(), to);
    });
  return forecaster_.input().persistence_of(forecaster_.input().input_of(begin),
                                            to_device(batch, forecaster_.device()));
}

// Forcings and computed planes at the time of step k, [B, planes, LAT, LON].
Tensor ForecastRun::read_given(std::span<const std::int64_t> starts, std::int64_t k) const {
  const Windows& windows = sources_.windows;
  const RowBand rows = series_.all_rows();
  const std::int64_t pixels = series_.height() * series_.width(), steps = k * series_.dt();
  return read_samples(starts.size(), windows.given_planes(), series_, [&](std::size_t b, float* to) {
    if (sources_.forcings != nullptr) sources_.forcings->read_step(*forcing_step(starts[b], steps), rows, to);
    if (!windows.options().computed) return;
    const std::optional<std::int64_t> step = sources_.times.after(starts[b], steps);
    const std::optional<double> stored = step ? series_.hours_since_1970(*step) : std::nullopt;
    windows.options().computed->write(stored.value_or(sources_.times.hours_after(starts[b], steps)), rows.first,
                                      rows.count, to + std::ssize(windows.options().forcings) * pixels);
  });
}

// The input of step k, from the forecast of step k - 1 and what the data give.
Tensor ForecastRun::next_input(std::span<const std::int64_t> starts, std::int64_t k, const Tensor& input,
                               const Tensor& forecast, const Batch& first, const Truth& truth) const {
  Batch batch;
  if (sources_.windows.given_planes() > 0) batch[at_step("given", k)] = read_given(starts, k);
  if (*forecaster_.options().time_features) batch[at_step("time", k)] = time_features(starts, k);
  batch = to_device(batch, forecaster_.device());
  batch["input"] = first.at("input");
  batch[at_step("target", k - 1)] = truth.batch.at(at_step("target", k - 1));
  const FieldInput& fields_of = forecaster_.input();
  return fields_of.continued(input, fields_of.with_never_there_filled(forecast), batch, k);
}

// Only here are a batch's fields held in physical units.
void ForecastRun::give(const Tensor& forecast, std::size_t starts, std::int64_t first, std::int64_t k,
                       const Sink& sink) const {
  const FieldInput& fields_of = forecaster_.input();
  const std::vector<float> physical = fields_of.to_physical(fields_of.without_never_there(forecast));
  const std::size_t values = physical.size() / starts;
  for (std::size_t b = 0; b < starts; ++b)
    sink(first + static_cast<std::int64_t>(b), k, std::span(physical).subspan(b * values, values));
}

void ForecastRun::run_batch(std::span<const std::int64_t> starts, std::int64_t first, LeadScores& scores,
                            const Sink& sink) const {
  const FieldInput& fields_of = forecaster_.input();
  const Batch on_host = read_starts(starts), begin = to_device(on_host, forecaster_.device());
  Tensor input = fields_of.input_of(begin);
  for (std::int64_t k = 0; k < steps_; ++k) {
    const Tensor forecast = forecaster_.forecast(input);
    const Truth truth = read_truth(starts, k, on_host);
    if (truth.is_any()) {
      // Computed for each lead: kept, it would take the memory of a state while the network runs.
      const Tensor persistence = persistence_of(starts, begin), target = fields_of.target_of(truth.batch, k);
      const std::vector<double> own = forecaster_.scores(forecast, target, climatology_),
                                theirs = forecaster_.scores(persistence, target, climatology_);
      const std::size_t sums = own.size() / starts.size();
      for (std::size_t b = 0; b < starts.size(); ++b)
        if (truth.is_there[b])
          scores.add(k, std::span(own).subspan(b * sums, sums), std::span(theirs).subspan(b * sums, sums));
    }
    give(forecast, starts.size(), first, k, sink);
    if (k + 1 < steps_) input = next_input(starts, k + 1, input, forecast, begin, truth);
  }
}

void ForecastRun::run(std::span<const std::int64_t> starts, std::int64_t batch, LeadScores& scores,
                      const Sink& sink) const {
  check_first_step(series_, starts.front(), forecaster_.info().channel_names, forecaster_.info().statistics);
  for (std::size_t first = 0; first < starts.size(); first += static_cast<std::size_t>(batch)) {
    const auto count = std::min(static_cast<std::size_t>(batch), starts.size() - first);
    run_batch(starts.subspan(first, count), static_cast<std::int64_t>(first), scores, sink);
    for (std::size_t b = 0; b < count; ++b) scores.count_start();
  }
}

}  // namespace isobar
