#include "models/forecast/score_pictures.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "data/fields/channels.h"
#include "data/fields/units.h"
#include "data/maps/curves.h"
#include "data/maps/gif.h"
#include "data/maps/map_image.h"
#include "kernels/common/check.h"
#include "kernels/common/comma_list.h"
#include "kernels/common/suggestions.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kGlobe = 0;

std::string name_of(Forecasts kind) {
  std::string name = kForecastsNames[static_cast<std::size_t>(kind)];
  std::ranges::replace(name, '_', ' ');
  return name;
}

// A curve a kind of forecast, over the lead times. value(kind, lead).
template <class Value>
std::vector<Curve> curves_by_lead(const ForecastScoring& scoring, const Value& value) {
  std::vector<Curve> curves;
  for (const Forecasts kind : scoring.scorecard().scored()) {
    Curve curve{.name = name_of(kind), .x = scoring.lead_hours(), .y = {}, .color = curve_color(curves.size())};
    for (std::int64_t lead = 0; lead < std::ssize(curve.x); ++lead) curve.y.push_back(value(kind, lead));
    if (std::ranges::any_of(curve.y, [](double y) { return std::isfinite(y); })) curves.push_back(std::move(curve));
  }
  return curves;
}

std::string with_unit(const std::string& what, const std::string& name, const std::string& unit) {
  const std::string shown = shown_unit(name, unit);
  return what + (shown.empty() ? "" : " (" + shown + ")");
}

// Both axes are decimal logarithms; wavenumber 0, the mean, has none.
Curve spectrum_curve(const std::string& name, const std::vector<double>& spectrum, std::size_t number) {
  Curve curve{.name = name, .x = {}, .y = {}, .color = curve_color(number)};
  for (std::size_t k = 1; k < spectrum.size(); ++k) {
    curve.x.push_back(std::log10(static_cast<double>(k)));
    curve.y.push_back(std::log10(spectrum[k]));
  }
  return curve;
}

std::string lead_text(double hours) {
  return concat('+', hours, " h");
}

}  // namespace

int write_score_curves(const ForecastScoring& scoring, const fs::path& folder) {
  fs::create_directories(folder);
  const Scorecard& card = scoring.scorecard();
  int files = 0;
  const auto write = [&](const std::string& name, const CurveLabels& labels, const std::vector<Curve>& curves) {
    write_png(folder / (name + ".png"), draw_curves(labels, curves));
    ++files;
  };
  const auto write_rmse = [&](const std::string& name, const std::string& unit, const auto& value) {
    write("rmse_" + name,
          {.title = "RMSE of " + name, .x = "lead time (h)", .y = with_unit("RMSE", name, unit), .from_zero = true},
          curves_by_lead(scoring, value));
  };
  for (std::size_t c = 0; c < scoring.channels().size(); ++c) {
    const std::string& name = scoring.channels()[c];
    write_rmse(name, scoring.units()[c],
               [&](Forecasts kind, std::int64_t lead) { return card.score(kind, kGlobe, lead, c).rmse(); });
    if (card.options().has_climatology)
      write("acc_" + name, {.title = "ACC of " + name, .x = "lead time (h)", .y = "ACC", .from_zero = true},
            curves_by_lead(scoring,
                           [&](Forecasts kind, std::int64_t lead) { return card.score(kind, kGlobe, lead, c).acc(); }));
    if (!scoring.has_spectra()) continue;
    std::vector<Curve> spectra{spectrum_curve("truth", scoring.truth_spectrum(0, c), 0)};
    const std::size_t last = scoring.lead_hours().size() - 1;
    const auto add = [&](std::size_t lead) {
      spectra.push_back(spectrum_curve("forecast " + lead_text(scoring.lead_hours()[lead]), scoring.spectrum(lead, c),
                                       spectra.size()));
    };
    add(0);
    if (last > 0) add(last);
    write("spectrum_" + name,
          {.title = "zonal spectrum of " + name + ", 30 to 60 degrees",
           .x = "log10 of the wavenumber",
           .y = "log10 of S"},
          spectra);
  }
  for (std::size_t wind = 0; wind < card.winds().size(); ++wind)
    write_rmse(card.winds()[wind].name, scoring.units()[card.winds()[wind].u],
               [&](Forecasts kind, std::int64_t lead) { return card.wind_rmse(kind, kGlobe, lead, wind); });
  return files;
}

void animate_forecast(const ForecastScoring& scoring, const fs::path& path, const std::string& channel) {
  const std::vector<std::string>& names = scoring.channels();
  const auto found = channel.empty() ? names.begin() : std::ranges::find_if(names, [&](const std::string& name) {
    return same_channel(name, channel);
  });
  ISOBAR_CHECK(found != names.end(), "--animate-channel ", channel, " is not scored",
               did_you_mean(suggestion(channel, names)), "; there are ", comma_list(names));
  const auto c = static_cast<std::size_t>(found - names.begin());
  const FieldGrid& grid = scoring.grid();
  const auto points = static_cast<std::size_t>(grid.points());
  const std::vector<float> lat(grid.latitudes.begin(), grid.latitudes.end()),
      lon(grid.longitudes.begin(), grid.longitudes.end());
  const ForecastStart& start = scoring.starts().front();
  GifWriter animation(path);
  for (std::size_t lead = 0; lead < scoring.lead_hours().size(); ++lead) {
    const double valid = start.hours + scoring.lead_hours()[lead];
    const auto step = scoring.truth().step_at(valid);
    if (!step) continue;
    const std::vector<float> truth = scoring.truth().read(*step), forecast = scoring.forecast(start, lead);
    const auto field = [&](const std::vector<float>& fields) {
      return Field{static_cast<int>(grid.height), static_cast<int>(grid.width),
                   std::span(fields).subspan(c * points, points)};
    };
    animation.add(target_forecast_error(field(truth), field(forecast),
                                        {.variable = names[c],
                                         .unit = shown_unit(names[c], scoring.units()[c]),
                                         .lead_time = lead_text(scoring.lead_hours()[lead]),
                                         .valid_time = time_at(valid).iso(),
                                         .lat = lat,
                                         .lon = lon}));
  }
  animation.close();
}

}  // namespace isobar
