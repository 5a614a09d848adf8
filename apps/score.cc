// isobar score: forecast files, ours or anyone's, against any data: a table, JSON, curves, an animation.
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/config_options.h"
#include "apps/outputs.h"
#include "apps/step_range.h"
#include "engine/files/atomic_file.h"
#include "kernels/common/check.h"
#include "models/forecast/score_pictures.h"
#include "models/forecast/scoring.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

struct ScoreFlags {
  ScoringOptions scoring;
  std::vector<std::string> range, train_range;
  std::string weights = "cos", region = "global", json, png, animate, animate_channel;
};

// Error if an output would replace an input, or another output.
void check_outputs(const ScoreFlags& o) {
  CommandInputs inputs{.weights = {}, .data = {}, .statistics = {}};
  for (const auto* paths : {&o.scoring.forecasts, &o.scoring.truth})
    for (const std::string& path : *paths) inputs.data.emplace_back(path);
  if (!o.scoring.climatology.empty()) inputs.data.emplace_back(o.scoring.climatology);
  for (const auto& [flag, path] : {std::pair("--json", o.json), std::pair("--animate", o.animate)})
    if (!path.empty()) check_output(flag, path, inputs);
  check_differ("--json", o.json, "--animate", o.animate);
  ISOBAR_CHECK(o.png.empty() || !fs::exists(o.png) || fs::is_directory(o.png), "--png ", o.png, " is no folder");
}

void score(ScoreFlags& o) {
  ScoringOptions& scoring = o.scoring;
  scoring.weights = *enum_named<LatitudeWeights>(o.weights);
  if (!o.range.empty()) scoring.range = range_of("--range", o.range);
  if (!o.train_range.empty()) {
    ISOBAR_CHECK(!scoring.climatology.empty(),
                 "--train-range needs --climatology: damped persistence is the climatology and a share of the start's "
                 "anomaly");
    scoring.train_range = range_of("--train-range", o.train_range);
  }
  check_outputs(o);
  ForecastScoring scores(scoring);
  static_cast<void>(scores.table(o.region));  // an unknown region is refused before the work
  scores.run();
  std::cout << scores.starts().size() << (scores.starts().size() == 1 ? " start, " : " starts, ")
            << time_at(scores.starts().front().hours).iso() << " to " << time_at(scores.starts().back().hours).iso()
            << "; " << o.region << ", weights " << o.weights << '\n'
            << scores.table(o.region);
  for (const std::string& note : scores.notes()) std::cout << note << '\n';
  std::cout << std::flush;
  if (!o.json.empty()) write_file_atomically(o.json, scores.json().dump(2) + "\n");
  if (!o.png.empty()) std::cout << write_score_curves(scores, o.png) << " pictures written to " << o.png << std::endl;
  if (o.animate.empty()) return;
  animate_forecast(scores, o.animate, o.animate_channel);
  std::cout << "written to " << o.animate << ": the forecast from " << time_at(scores.starts().front().hours).iso()
            << std::endl;
}

}  // namespace

void register_score(CLI::App& app) {
  auto o = std::make_shared<ScoreFlags>();
  CLI::App* command = app.add_subcommand("score", "Score forecast files against data, beside simple forecasts");
  command
      ->add_option("FILE", o->scoring.forecasts,
                   "forecasts of one model: NetCDF, HDF5 or Zarr, with time and prediction_timedelta")
      ->required();
  command->add_option("--truth", o->scoring.truth, "what came true: files, or folders of files")
      ->required()
      ->expected(1, -1);
  command
      ->add_option("--truth-channels", o->scoring.truth_channels,
                   "A,B,...: the names of the truth's channels, in order, if its files name none")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--climatology", o->scoring.climatology,
                      "FILE of isobar data climatology, or of WeatherBench: adds ACC, activity and a baseline");
  command->add_option("--weights", o->weights, "of rows: cos, cells (area; right for regions too), tutorial")
      ->check(CLI::IsMember({"cos", "cells", "tutorial"}))
      ->capture_default_str();
  command->add_option("--channels", o->scoring.channels, "A,B,...: of these channels only")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--range", o->range, "starts from DATE to DATE, or truth steps FIRST END")->expected(2);
  command
      ->add_option("--train-range", o->train_range,
                   "DATE DATE, or FIRST END: the truth that damped persistence is fitted to")
      ->expected(2);
  command->add_option("--region", o->region, "of the table; --json has all of them")->capture_default_str();
  command->add_option("--json", o->json, "FILE.json for every score");
  command->add_option("--png", o->png, "FOLDER for curves by lead time, and spectra");
  command->add_option("--animate", o->animate, "FILE.gif: the first start, truth and forecast by lead time");
  command->add_option("--animate-channel", o->animate_channel, "the channel of the animation; default: the first one");
  command->add_option("--threads", o->scoring.threads, "0: as many as there are")->capture_default_str();
  command->callback([o] { score(*o); });
}

}  // namespace isobar
