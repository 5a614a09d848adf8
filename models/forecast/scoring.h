// Scores forecast files against any data: isobar score. docs/forecasting.md describes the command.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/fields/latitude.h"
#include "data/forecasts/forecast_reader.h"
#include "data/forecasts/verification.h"
#include "engine/keys.h"
#include "models/forecast/scorecard.h"
#include "models/forecast/zonal_spectrum.h"

namespace isobar {

struct ScoringOptions {
  std::vector<std::string> forecasts = {};       // files and stores of one model, with different starts
  std::vector<std::string> truth = {};           // files or folders
  std::vector<std::string> truth_channels = {};  // the names of their channels, in order; empty: the files have names
  std::string climatology = {};                  // file or store; empty: none
  std::vector<std::string> channels = {};        // empty: those that forecasts and truth have
  LatitudeWeights weights = LatitudeWeights::cos;
  std::optional<RangeValue> range = {};        // of the starts: steps of the truth, or dates
  std::optional<RangeValue> train_range = {};  // for damped persistence; none: it is left out
  int threads = 0;
};

// A start of a file.
struct ForecastStart {
  std::size_t file = 0, number = 0;
  double hours = 0;  // since 1970-01-01T00
};

class ForecastScoring {
 public:
  // Opens and compares everything: Error, with both, for files whose leads, grids, channels or units differ from each
  // other's, the truth's or the climatology's; for a start that two files have; for leads between the truth's steps;
  // and if no forecast has a truth.
  explicit ForecastScoring(ScoringOptions options);

  // Reads every forecast that has a truth, start by start.
  void run();

  const std::vector<double>& lead_hours() const { return lead_hours_; }  // ascending
  const std::vector<std::string>& channels() const { return channels_.names; }
  const std::vector<std::string>& units() const { return channels_.units; }
  const std::vector<ForecastStart>& starts() const { return starts_; }
  const FieldGrid& grid() const { return readers_.front().grid(); }
  const TruthFields& truth() const { return *truth_; }
  const Scorecard& scorecard() const { return *card_; }
  // [channels, LAT, LON] of a start.
  std::vector<float> forecast(const ForecastStart& start, std::size_t lead) const;

  // What should be known of the scores, a line each: what is not scored, and why.
  std::vector<std::string> notes() const;
  // Every score of every region; docs/forecasting.md has the keys. A score without any case is null.
  nlohmann::ordered_json json() const;
  // The scores of a region as text. Error naming the regions that exist if it is none of them.
  std::string table(const std::string& region) const;

  bool has_spectra() const { return spectrum_.has_value(); }
  // [wavenumbers], mean over the starts: of the forecast, and of the truth of the same times. Empty without any.
  std::vector<double> spectrum(std::size_t lead, std::size_t channel) const { return mean_of(spectra_, lead, channel); }
  std::vector<double> truth_spectrum(std::size_t lead, std::size_t channel) const {
    return mean_of(truth_spectra_, lead, channel);
  }

 private:
  struct SpectrumSum {
    std::vector<double> sum;
    std::int64_t cases = 0;
  };
  using SpectrumSums = std::vector<SpectrumSum>;  // [leads, channels]

  void open_forecasts();
  void choose_channels();
  void find_starts();
  void check_leads() const;
  void prepare_scores();
  void add_start(const ForecastStart& start);
  void add_spectra(std::size_t lead, std::span<const float> forecast, std::span<const float> truth);
  std::vector<double> mean_of(const SpectrumSums& sums, std::size_t lead, std::size_t channel) const;
  void write_region(nlohmann::ordered_json& json, std::size_t region) const;

  ScoringOptions options_;
  std::unique_ptr<TruthFields> truth_;
  std::vector<ForecastReader> readers_;
  std::vector<GridMatch> matches_;                     // of each reader: the first one's grid in its own
  std::vector<std::vector<std::size_t>> lead_places_;  // [readers, leads], among the reader's leads
  std::vector<std::vector<std::size_t>> channel_places_;
  std::vector<double> lead_hours_;
  ScoredChannels channels_;
  std::vector<std::string> left_out_;  // channels
  std::vector<ForecastStart> starts_;
  std::unique_ptr<ClimatologyFields> climatology_;
  std::unique_ptr<Scorecard> card_;
  std::optional<ZonalSpectrum> spectrum_;
  SpectrumSums spectra_, truth_spectra_;
  std::int64_t starts_without_truth_ = 0;
};

}  // namespace isobar
