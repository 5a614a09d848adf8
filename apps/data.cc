// isobar data: makes synthetic data, computes statistics, describes data.
#include <charconv>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "apps/commands.h"
#include "data/era5/describe.h"
#include "data/era5/era5.h"
#include "data/era5/statistics.h"
#include "data/files/hdf5.h"
#include "data/synthetic/synth.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

// "32x64" -> 32 and 64.
void parse_grid(const std::string& grid, SynthOptions& options) {
  const char* end = grid.data() + grid.size();
  const auto [cross, no_height] = std::from_chars(grid.data(), end, options.height);
  const bool has_cross = no_height == std::errc() && cross != end && *cross == 'x';
  const auto [rest, no_width] = std::from_chars(has_cross ? cross + 1 : end, end, options.width);
  ISOBAR_CHECK(has_cross && no_width == std::errc() && rest == end, "--grid ", grid,
               " is not HEIGHTxWIDTH, as in 32x64");
}

void register_synth(CLI::App& data) {
  struct Settings {
    SynthOptions options;
    std::string grid = "32x64";
  };
  auto settings = std::make_shared<Settings>();
  SynthOptions& options = settings->options;
  CLI::App* synth = data.add_subcommand("synth", "Make a synthetic global data set, with statistics");
  synth->add_option("--out", options.out, "folder; gets train, valid, test and stats")->required();
  synth->add_option("--train-years", options.train_years, "files in train")->capture_default_str();
  synth->add_option("--valid-years", options.valid_years, "files in valid, and in test")->capture_default_str();
  synth->add_option("--steps-per-year", options.steps_per_year, "six-hourly steps in a file")->capture_default_str();
  synth->add_option("--grid", settings->grid, "rows x columns")->capture_default_str();
  synth->add_option("--channels", options.channels, "variables; the tutorial's first ones")->capture_default_str();
  synth->add_option("--seed", options.seed, "another seed, other weather")->capture_default_str();
  synth->add_option("--threads", options.threads, "0: as many as there are")->capture_default_str();
  synth->callback([settings] {
    parse_grid(settings->grid, settings->options);
    write_synthetic_data(settings->options);
    std::cout << describe_data(settings->options.out);
  });
}

void register_stats(CLI::App& data) {
  struct Settings {
    std::vector<std::string> paths;
    std::string out;
    int threads = 0;
  };
  auto settings = std::make_shared<Settings>();
  CLI::App* stats = data.add_subcommand("stats", "Compute means and standard deviations over time and grid");
  stats->add_option("PATH", settings->paths, "folders of .h5 files, or files")->required();
  stats->add_option("--out", settings->out, "folder for global_means, global_stds and time_means.npy")->required();
  stats->add_option("--threads", settings->threads, "0: as many as there are")->capture_default_str();
  stats->callback([settings] {
    const Era5Dataset dataset({.paths = settings->paths});
    const ComputedStatistics statistics = compute_statistics(dataset, settings->threads);
    write_statistics(statistics, dataset.height(), dataset.width(), settings->out);
    std::cout << describe_statistics(statistics, dataset.channel_names()) << dataset.steps() << " steps of "
              << dataset.file_count() << (dataset.file_count() == 1 ? " file" : " files") << "; written to "
              << settings->out << '\n';
  });
}

void register_data_info(CLI::App& data) {
  struct Settings {
    std::string path;
    bool check = false;
  };
  auto settings = std::make_shared<Settings>();
  CLI::App* info = data.add_subcommand("info", "Say what is in a folder or file, and whether it fits together");
  info->add_option("PATH", settings->path, "a data set's folder, or a file")->required();
  info->add_flag("--check", settings->check, "read every value of the fields, and refuse holes (NaN, fill values)");
  info->callback([settings] {
    std::cout << describe_data(settings->path, settings->check);
    if (!settings->check) std::cout << "not read: the values of the fields; --check reads them all, and finds holes\n";
  });
}

// Internal, hidden from the help: a process that must not fork starts it to test whether HDF5 crashes on a file.
void register_trial(CLI::App& data) {
  auto file = std::make_shared<std::string>();
  CLI::App* trial = data.add_subcommand("trial", "")->group("");
  trial->add_option("FILE", *file)->required();
  trial->callback([file] { hdf5::File::run_trial(*file); });
}

}  // namespace

void register_data(CLI::App& app) {
  CLI::App* data = app.add_subcommand("data", "Make synthetic data, compute statistics, look at data");
  data->require_subcommand(1);
  register_synth(*data);
  register_stats(*data);
  register_data_info(*data);
  register_trial(*data);
}

}  // namespace isobar
