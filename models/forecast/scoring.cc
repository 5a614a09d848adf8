#include "models/forecast/scoring.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <utility>

#include "data/fields/channels.h"
#include "data/fields/longitude.h"
#include "data/fields/units.h"
#include "data/parallel_tasks.h"
#include "kernels/common/check.h"
#include "kernels/common/comma_list.h"
#include "kernels/common/suggestions.h"
#include "models/forecast/damping.h"
#include "models/forecast/scores.h"

namespace isobar {

using nlohmann::ordered_json;

namespace {

constexpr double kSameHours = 1.0 / 60;

std::string leads_text(const std::vector<double>& hours) {
  return concat(hours.size(), hours.size() == 1 ? " lead time (" : " lead times (", hours.front(),
                hours.size() == 1 ? "" : concat(" ... ", hours.back()), " h)");
}

// The places of values in ascending order.
std::vector<std::size_t> ascending(const std::vector<double>& values) {
  std::vector<std::size_t> places(values.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  std::ranges::sort(places, {}, [&](std::size_t place) { return values[place]; });
  return places;
}

ordered_json number_or_null(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json();
}

}  // namespace

ForecastScoring::ForecastScoring(ScoringOptions options)
    : options_(std::move(options)), truth_(std::make_unique<TruthFields>(options_.truth, options_.truth_channels)) {
  open_forecasts();
  choose_channels();
  check_leads();
  find_starts();
  prepare_scores();
}

void ForecastScoring::open_forecasts() {
  ISOBAR_CHECK(!options_.forecasts.empty(), "no forecast files are named");
  for (const std::string& path : options_.forecasts) {
    readers_.emplace_back(path, truth_->series().labels().step_hours);
    const ForecastReader &reader = readers_.back(), &first = readers_.front();
    std::vector<double> hours;
    lead_places_.push_back(ascending(reader.lead_hours()));
    for (const std::size_t place : lead_places_.back()) hours.push_back(reader.lead_hours()[place]);
    if (lead_hours_.empty()) lead_hours_ = hours;
    ISOBAR_CHECK(
        std::ranges::equal(hours, lead_hours_, [](double a, double b) { return std::abs(a - b) <= kSameHours; }), path,
        " has ", leads_text(hours), ", but ", first.path(), " has ", leads_text(lead_hours_));
    for (std::size_t lead = 1; lead < hours.size(); ++lead)
      ISOBAR_CHECK(hours[lead] > hours[lead - 1], path, " has the lead time of ", hours[lead], " hours twice");
    const FieldGrid &grid = reader.grid(), &wanted = first.grid();
    ISOBAR_CHECK(grid.height == wanted.height && grid.width == wanted.width, path, " has a grid of ", grid.height,
                 " x ", grid.width, " points, but ", first.path(), " has ", wanted.height, " x ", wanted.width);
    matches_.emplace_back(wanted, grid);
  }
}

void ForecastScoring::choose_channels() {
  const ForecastReader& first = readers_.front();
  channels_.source = first.path();
  for (const std::string& name : options_.channels) {
    const bool is_there =
        std::ranges::any_of(first.channels(), [&](const std::string& other) { return same_channel(name, other); });
    ISOBAR_CHECK(is_there, first.path(), " has no channel ", name, did_you_mean(suggestion(name, first.channels())),
                 "; it has ", comma_list(first.channels()));
  }
  for (std::size_t c = 0; c < first.channels().size(); ++c) {
    const std::string& name = first.channels()[c];
    const bool is_chosen =
        options_.channels.empty()
            ? truth_->has(name)
            : std::ranges::any_of(options_.channels, [&](const auto& other) { return same_channel(name, other); });
    if (!is_chosen && options_.channels.empty()) left_out_.push_back(name);
    if (!is_chosen) continue;
    channels_.names.push_back(name);
    channels_.units.push_back(first.units()[c]);
  }
  ISOBAR_CHECK(!channels_.names.empty(), first.path(), " and ", truth_->series().file_name(0),
               " have no channel in common: ", comma_list(first.channels()), " and ",
               comma_list(truth_->series().channel_names()));
  for (const ForecastReader& reader : readers_) {
    const std::vector<std::string>& names = reader.channels();
    std::vector<std::size_t>& places = channel_places_.emplace_back();
    for (std::size_t c = 0; c < channels_.names.size(); ++c) {
      const auto found =
          std::ranges::find_if(names, [&](const std::string& name) { return same_channel(name, channels_.names[c]); });
      ISOBAR_CHECK(found != names.end(), reader.path(), " has no channel ", channels_.names[c], ", which ",
                   first.path(), " has");
      places.push_back(static_cast<std::size_t>(found - names.begin()));
      const std::string &unit = reader.units()[places.back()], &wanted = channels_.units[c];
      ISOBAR_CHECK(unit.empty() || wanted.empty() || same_unit(unit, wanted), reader.path(), ": channel ",
                   channels_.names[c], " is in ", unit, ", but in ", wanted, " in ", first.path());
    }
  }
  truth_->choose(channels_, grid());
}

void ForecastScoring::check_leads() const {
  const double step = truth_->series().labels().step_hours;
  for (const double hours : lead_hours_) {
    const double steps = hours / step;
    ISOBAR_CHECK(step <= 0 || std::abs(steps - std::round(steps)) * step <= kSameHours, readers_.front().path(),
                 " has a lead time of ", hours_text(hours), ", but the steps of ", truth_->series().file_name(0),
                 " are ", hours_text(step), " apart");
  }
}

void ForecastScoring::find_starts() {
  double first = -HUGE_VAL, last = HUGE_VAL;
  if (options_.range) {
    const StepRange steps = truth_->series().steps_of(*options_.range, "--range");
    first = truth_->hours(steps[0]) - kSameHours;
    last = truth_->hours(steps[1] - 1) + kSameHours;
  }
  for (std::size_t file = 0; file < readers_.size(); ++file)
    for (std::size_t start = 0; start < readers_[file].starts().size(); ++start)
      if (const double hours = readers_[file].starts()[start]; hours >= first && hours <= last)
        starts_.push_back({file, start, hours});
  std::ranges::stable_sort(starts_, {}, &ForecastStart::hours);
  for (std::size_t i = 1; i < starts_.size(); ++i)
    ISOBAR_CHECK(starts_[i].hours - starts_[i - 1].hours > kSameHours, readers_[starts_[i - 1].file].path(), " and ",
                 readers_[starts_[i].file].path(), " both have the forecast from ", time_at(starts_[i].hours).iso());
  ISOBAR_CHECK(!starts_.empty(), "no forecast starts within --range");
  const std::size_t all = starts_.size();
  const ForecastStart first_start = starts_.front(), last_start = starts_.back();
  std::erase_if(starts_, [&](const ForecastStart& start) {
    return std::ranges::none_of(lead_hours_,
                                [&](double lead) { return truth_->step_at(start.hours + lead).has_value(); });
  });
  starts_without_truth_ = static_cast<std::int64_t>(all - starts_.size());
  const FieldSeries& series = truth_->series();
  ISOBAR_CHECK(!starts_.empty(), "no forecast has a truth: they start from ", time_at(first_start.hours).iso(), " to ",
               time_at(last_start.hours).iso(), ", and the truth of ", series.file_name(0), " is from ",
               series.time_of(0).iso(), " to ", series.time_of(series.steps() - 1).iso());
}

void ForecastScoring::prepare_scores() {
  const FieldGrid& grid = this->grid();
  // Files without latitudes are cut from the truth's first row.
  std::vector<double> latitudes = grid.latitudes;
  if (latitudes.empty() && !truth_->series().latitudes().empty())
    latitudes.assign(truth_->series().latitudes().begin(), truth_->series().latitudes().begin() + grid.height);
  const std::vector<double> row_weights =
      latitude_weights(options_.weights, latitudes, grid.height, readers_.front().path());
  ScorecardOptions card{.channels = channels_.names,
                        .regions = scored_regions(latitudes, row_weights),
                        .leads = std::ssize(lead_hours_),
                        .width = grid.width,
                        .has_climatology = !options_.climatology.empty(),
                        .threads = options_.threads};
  if (card.has_climatology) {
    climatology_ = std::make_unique<ClimatologyFields>(options_.climatology, channels_, grid);
    if (options_.train_range)
      card.damping =
          damping_of(*truth_, *climatology_, truth_->series().steps_of(*options_.train_range, "--train-range"),
                     lead_hours_, row_weights);
  }
  card_ = std::make_unique<Scorecard>(std::move(card));
  if (!go_round(grid.longitudes)) return;
  spectrum_.emplace(latitudes, row_weights, grid.width);
  if (!spectrum_->has_rows()) spectrum_.reset();
  spectra_.resize(lead_hours_.size() * channels_.names.size());
  truth_spectra_ = spectra_;
}

std::vector<float> ForecastScoring::forecast(const ForecastStart& start, std::size_t lead) const {
  const ForecastReader& reader = readers_[start.file];
  const GridMatch& match = matches_[start.file];
  const FieldGrid& held = reader.grid();
  std::vector<float> plane(static_cast<std::size_t>(held.points())),
      fields(channels_.names.size() * static_cast<std::size_t>(grid().points()));
  for (std::size_t c = 0; c < channels_.names.size(); ++c) {
    reader.read(start.number, lead_places_[start.file][lead], channel_places_[start.file][c], plane.data());
    match.take(plane.data() + match.rows().first * held.width,
               fields.data() + static_cast<std::int64_t>(c) * grid().points());
  }
  return fields;
}

void ForecastScoring::run() {
  for (const ForecastStart& start : starts_) add_start(start);
}

void ForecastScoring::add_start(const ForecastStart& start) {
  const auto climatology_at = [&](double hours) {
    return climatology_ ? climatology_->read(time_at(hours)) : std::vector<float>();
  };
  std::vector<float> initial, climatology_then;
  if (const std::optional<std::int64_t> step = truth_->step_at(start.hours)) {
    initial = truth_->read(*step);
    climatology_then = climatology_at(start.hours);
  }
  for (std::size_t lead = 0; lead < lead_hours_.size(); ++lead) {
    const std::optional<std::int64_t> step = truth_->step_at(start.hours + lead_hours_[lead]);
    if (!step) continue;
    const std::vector<float> fields = forecast(start, lead), truth = truth_->read(*step),
                             climatology = climatology_at(start.hours + lead_hours_[lead]);
    card_->add(static_cast<std::int64_t>(lead), {.forecast = fields,
                                                 .truth = truth,
                                                 .climatology = climatology,
                                                 .start = initial,
                                                 .climatology_at_start = climatology_then});
    if (spectrum_) add_spectra(lead, fields, truth);
  }
}

void ForecastScoring::add_spectra(std::size_t lead, std::span<const float> forecast, std::span<const float> truth) {
  const std::size_t channels = channels_.names.size(), points = truth.size() / channels;
  parallel_tasks(static_cast<std::int64_t>(channels), options_.threads, [&](std::int64_t task) {
    const auto channel = static_cast<std::size_t>(task);
    const auto add = [&](SpectrumSums& sums, std::span<const float> fields) {
      const std::vector<double> spectrum = spectrum_->of(fields.subspan(channel * points, points));
      if (spectrum.empty()) return;
      SpectrumSum& total = sums[lead * channels + channel];
      total.sum.resize(spectrum.size(), 0.0);
      for (std::size_t k = 0; k < spectrum.size(); ++k) total.sum[k] += spectrum[k];
      ++total.cases;
    };
    add(spectra_, forecast);
    add(truth_spectra_, truth);
  });
}

std::vector<double> ForecastScoring::mean_of(const SpectrumSums& sums, std::size_t lead, std::size_t channel) const {
  if (!spectrum_) return {};
  const SpectrumSum& total = sums[lead * channels_.names.size() + channel];
  std::vector<double> mean = total.sum;
  for (double& value : mean) value /= static_cast<double>(total.cases);
  return mean;
}

std::vector<std::string> ForecastScoring::notes() const {
  std::vector<std::string> notes;
  if (!left_out_.empty()) notes.push_back("not scored, since the truth has no such channel: " + comma_list(left_out_));
  if (starts_without_truth_ > 0)
    notes.push_back(concat("not scored, since the truth has none of their times: ", starts_without_truth_,
                           starts_without_truth_ == 1 ? " start" : " starts"));
  if (options_.climatology.empty())
    notes.push_back("no ACC, no activity and no climatology beside the scores: --climatology names one");
  else if (!options_.train_range)
    notes.push_back("no damped persistence beside the scores: --train-range says where its damping is taken from");
  if (climatology_ && climatology_->holds(starts_.back().hours))
    notes.push_back(climatology_->path() + " is a mean of times that are scored too: it flatters itself, and ACC");
  for (std::size_t c = 0; c < channels_.names.size(); ++c) {
    double most = 0;
    for (std::int64_t lead = 0; lead < std::ssize(lead_hours_); ++lead) {
      const Score& score = card_->score(Forecasts::forecast, 0, lead, c);
      if (score.cases() > 0) most = std::max(most, score.lost_share());
    }
    if (most > 0)
      notes.push_back(concat("the forecast of ", channels_.names[c], " lacks up to ", std::setprecision(3), 100 * most,
                             " % of the points that the truth has; they are not scored"));
  }
  return notes;
}

void ForecastScoring::write_region(ordered_json& json, std::size_t region) const {
  using Figure = double (*)(const Score&);
  struct Named {
    const char* name;
    Figure figure;
    bool is_of_anomalies;
  };
  static constexpr std::array<Named, 6> kFigures{{{"rmse", [](const Score& s) { return s.rmse(); }, false},
                                                  {"mae", [](const Score& s) { return s.mae(); }, false},
                                                  {"bias", [](const Score& s) { return s.bias(); }, false},
                                                  {"acc", [](const Score& s) { return s.acc(); }, true},
                                                  {"acc_pooled", [](const Score& s) { return s.acc_pooled(); }, true},
                                                  {"activity", [](const Score& s) { return s.activity(); }, true}}};
  for (const Forecasts of : card_->scored()) {
    ordered_json& own = json[kForecastsNames[static_cast<std::size_t>(of)]];
    for (std::int64_t lead = 0; lead < std::ssize(lead_hours_); ++lead) {
      for (std::size_t c = 0; c < channels_.names.size(); ++c) {
        const Score& score = card_->score(of, region, lead, c);
        own["starts"][channels_.names[c]].push_back(score.cases());
        for (const Named& named : kFigures)
          if (!named.is_of_anomalies || climatology_)
            own[named.name][channels_.names[c]].push_back(number_or_null(named.figure(score)));
      }
      for (std::size_t wind = 0; wind < card_->winds().size(); ++wind)
        own["wind_vector_rmse"][card_->winds()[wind].name].push_back(
            number_or_null(card_->wind_rmse(of, region, lead, wind)));
    }
  }
}

ordered_json ForecastScoring::json() const {
  ordered_json json;
  json["forecasts"] = options_.forecasts;
  json["truth"] = options_.truth;
  json["climatology"] = options_.climatology.empty() ? ordered_json() : ordered_json(options_.climatology);
  json["weights"] = EnumNames<LatitudeWeights>::names[static_cast<std::size_t>(options_.weights)];
  json["first_start"] = time_at(starts_.front().hours).iso();
  json["last_start"] = time_at(starts_.back().hours).iso();
  json["starts"] = starts_.size();
  json["lead_hours"] = lead_hours_;
  for (std::size_t c = 0; c < channels_.names.size(); ++c)
    json["units"][channels_.names[c]] = shown_unit(channels_.names[c], channels_.units[c]);
  const std::vector<ScoredRegion>& regions = card_->options().regions;
  for (std::size_t region = 0; region < regions.size(); ++region)
    write_region(json["regions"][regions[region].name], region);
  const std::vector<double>& damping = card_->options().damping;
  for (std::size_t i = 0; i < damping.size(); ++i)
    json["damping"][channels_.names[i % channels_.names.size()]].push_back(damping[i]);
  if (!spectrum_) return json;
  for (std::size_t c = 0; c < channels_.names.size(); ++c)
    for (std::size_t lead = 0; lead < lead_hours_.size(); ++lead) {
      json["spectrum"]["forecast"][channels_.names[c]].push_back(spectrum(lead, c));
      json["spectrum"]["truth"][channels_.names[c]].push_back(truth_spectrum(lead, c));
    }
  return json;
}

std::string ForecastScoring::table(const std::string& name) const {
  const std::vector<ScoredRegion>& regions = card_->options().regions;
  const auto found = std::ranges::find(regions, name, &ScoredRegion::name);
  ISOBAR_CHECK(found != regions.end(), "there is no region ", name, " on the forecasts' grid; there are ",
               comma_list(regions, &ScoredRegion::name));
  const auto region = static_cast<std::size_t>(found - regions.begin());
  const std::vector<Forecasts> kinds = card_->scored();
  std::ostringstream out;
  const auto cell = [&](double value, int decimals, int width) {
    if (std::isfinite(value))
      out << std::fixed << std::setprecision(decimals) << std::setw(width) << value;
    else
      out << std::setw(width) << '-';
  };
  std::size_t name_width = 8, unit_width = 4;
  std::vector<std::string> units;
  for (std::size_t c = 0; c < channels_.names.size(); ++c) {
    units.push_back(shown_unit(channels_.names[c], channels_.units[c]));
    name_width = std::max(name_width, channels_.names[c].size());
    unit_width = std::max(unit_width, units.back().size());
  }
  const auto begin = [&](const std::string& variable, const std::string& unit, const std::string& lead) {
    out << std::left << std::setw(static_cast<int>(name_width)) << variable << "  "
        << std::setw(static_cast<int>(unit_width)) << unit << std::right << std::setw(9) << lead;
  };
  const auto lead_text = [&](std::int64_t lead) {
    return concat('+', lead_hours_[static_cast<std::size_t>(lead)], " h");
  };
  begin("variable", "unit", "lead");
  out << std::setw(8) << "starts" << std::setw(12) << "RMSE";
  for (std::size_t k = 1; k < kinds.size(); ++k)
    out << std::setw(13) << std::array{"", "persistence", "climatology", "damped"}[static_cast<std::size_t>(kinds[k])];
  out << std::setw(12) << "MAE" << std::setw(12) << "bias";
  if (climatology_) out << std::setw(9) << "ACC" << std::setw(9) << "pooled" << std::setw(10) << "activity";
  out << '\n';
  for (std::size_t c = 0; c < channels_.names.size(); ++c) {
    double largest = 0;
    for (const Forecasts of : kinds)
      for (std::int64_t lead = 0; lead < std::ssize(lead_hours_); ++lead)
        if (const double rmse = card_->score(of, region, lead, c).rmse(); rmse > largest) largest = rmse;
    const int decimals = decimals_for(largest);
    for (std::int64_t lead = 0; lead < std::ssize(lead_hours_); ++lead) {
      const Score& own = card_->score(Forecasts::forecast, region, lead, c);
      begin(channels_.names[c], units[c], lead_text(lead));
      out << std::setw(8) << own.cases();
      for (std::size_t k = 0; k < kinds.size(); ++k)
        cell(card_->score(kinds[k], region, lead, c).rmse(), decimals, k == 0 ? 12 : 13);
      cell(own.mae(), decimals, 12);
      cell(own.bias(), decimals, 12);
      if (climatology_) {
        cell(own.acc(), 4, 9);
        cell(own.acc_pooled(), 4, 9);
        cell(own.activity(), 4, 10);
      }
      out << '\n';
    }
  }
  for (std::size_t wind = 0; wind < card_->winds().size(); ++wind)
    for (std::int64_t lead = 0; lead < std::ssize(lead_hours_); ++lead) {
      const WindVector& vector = card_->winds()[wind];
      begin(vector.name, units[vector.u], lead_text(lead));
      out << std::setw(8) << card_->score(Forecasts::forecast, region, lead, vector.u).cases();
      for (std::size_t k = 0; k < kinds.size(); ++k) {
        const double rmse = card_->wind_rmse(kinds[k], region, lead, wind);
        cell(rmse, decimals_for(rmse), k == 0 ? 12 : 13);
      }
      out << '\n';
    }
  return out.str();
}

}  // namespace isobar
