// Pictures of scores: curves by lead time, spectra, and an animation of a forecast beside its truth.
#pragma once

#include <filesystem>
#include <string>

#include "models/forecast/scoring.h"

namespace isobar {

// FOLDER/rmse_NAME.png of every variable and wind vector, with a climatology acc_NAME.png, and on global grids
// spectrum_NAME.png; of the globe. The folder is created if needed. Returns the number of files.
int write_score_curves(const ForecastScoring& scoring, const std::filesystem::path& folder);

// A picture a lead time of the first start whose truth is there: truth, forecast and error. channel: one of those
// that are scored; empty: the first one. Error naming them for another one.
void animate_forecast(const ForecastScoring& scoring, const std::filesystem::path& path, const std::string& channel);

}  // namespace isobar
