// isobar data: makes synthetic data, computes statistics, converts and describes data. Text is in apps/data_text.cc.
#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "apps/commands.h"
#include "apps/config_options.h"
#include "apps/outputs.h"
#include "apps/step_range.h"
#include "apps/text_flags.h"
#include "apps/train/run_folder.h"
#include "data/fields/convert.h"
#include "data/fields/describe.h"
#include "data/fields/field_series.h"
#include "data/fields/statistics.h"
#include "data/files/hdf5.h"
#include "data/forecasts/climatology.h"
#include "data/images/labelled_images.h"
#include "data/synthetic/nbody_box.h"
#include "data/synthetic/synth.h"
#include "data/text/describe_text.h"
#include "data/text/token_file.h"
#include "data/text/token_tools.h"
#include "engine/files/huggingface_folder.h"
#include "kernels/common/check.h"
#include "kernels/common/comma_list.h"

namespace isobar {

namespace fs = std::filesystem;

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
    SynthOptions planet;
    NbodyOptions nbody;
    std::string kind = "planet", out, grid = "32x64";
    std::uint64_t seed = 0;
    int threads = 0;
  };
  auto settings = std::make_shared<Settings>();
  SynthOptions& planet = settings->planet;
  CLI::App* synth = data.add_subcommand("synth", "Make synthetic data: a planet's weather, or a universe");
  synth->add_option("--kind", settings->kind, "planet: a global data set with statistics; nbody: volumes")
      ->check(CLI::IsMember({"planet", "nbody"}))
      ->capture_default_str();
  synth->add_option("--out", settings->out, "folder; gets train, valid, and of a planet test and stats")->required();
  synth->add_option("--seed", settings->seed, "another seed, other weather")->capture_default_str();
  synth->add_option("--threads", settings->threads, "0: as many as there are")->capture_default_str();
  std::vector<CLI::Option*> of_planet, of_nbody;
  const auto option = [&](std::vector<CLI::Option*>& kind, const char* name, auto& value, const char* help) {
    kind.push_back(synth->add_option(name, value, help)->capture_default_str());
  };
  option(of_planet, "--train-years", planet.train_years, "of a planet: files in train");
  option(of_planet, "--valid-years", planet.valid_years, "of a planet: files in valid, and in test");
  option(of_planet, "--steps-per-year", planet.steps_per_year, "of a planet: six-hourly steps in a file");
  option(of_planet, "--grid", settings->grid, "of a planet: rows x columns");
  option(of_planet, "--channels", planet.channels, "of a planet: variables; the tutorial's first ones");
  option(of_nbody, "--box", settings->nbody.box, "of nbody: points along each axis, a power of two");
  synth->callback([settings, of_planet, of_nbody] {
    const bool is_planet = settings->kind == "planet";
    for (const CLI::Option* other : is_planet ? of_nbody : of_planet)
      ISOBAR_CHECK(other->count() == 0, other->get_name(), " is no option of --kind ", settings->kind);
    settings->planet.out = settings->nbody.out = settings->out;
    settings->planet.seed = settings->nbody.seed = settings->seed;
    settings->planet.threads = settings->nbody.threads = settings->threads;
    if (!is_planet) return write_nbody_boxes(settings->nbody);
    parse_grid(settings->grid, settings->planet);
    write_synthetic_data(settings->planet);
    std::cout << describe_data(settings->out);
  });
}

// "1 step", "3 steps".
std::string counted(std::int64_t count, const std::string& what) {
  return concat(count, ' ', what, count == 1 ? "" : "s");
}

// "6 hours", or "1 step" of data whose time step is unknown.
std::string time_apart(const FieldSeries& dataset) {
  const double hours = dataset.labels().step_hours * static_cast<double>(dataset.dt());
  return hours > 0 ? hours_text(hours) : counted(dataset.dt(), "step");
}

// The numbers of the files that hold steps of the range.
std::set<std::size_t> files_in_range(const FieldSeries& dataset) {
  std::set<std::size_t> files;
  for (const Segment& segment : dataset.segments())
    for (std::size_t track = 0; track < dataset.timeline().tracks(); ++track)
      files.insert(dataset.timeline().place(segment.first, track).file);
  return files;
}

void register_stats(CLI::App& data) {
  struct Settings {
    std::vector<std::string> paths, channels, range;
    std::string out;
    std::int64_t dt = 1;
    bool allow_missing = false;
    int threads = 0;
  };
  auto settings = std::make_shared<Settings>();
  CLI::App* stats = data.add_subcommand("stats", "Compute means and standard deviations over time and grid");
  stats->add_option("PATH", settings->paths, "folders of .h5 files, or files")->required();
  stats->add_option("--out", settings->out, "folder for global_means, global_stds, time_means and time_diff_stds.npy")
      ->required();
  stats->add_option("--channels", settings->channels, "A,B,...: of these channels, in this order")
      ->delimiter(',')
      ->allow_extra_args(false);
  stats->add_option("--range", settings->range, "FIRST END: of these steps; or DATE DATE: both belong to it")
      ->expected(2);
  stats->add_option("--dt", settings->dt, "steps between the two of a difference")->capture_default_str();
  stats->add_flag("--allow-missing", settings->allow_missing, "leave missing values out instead of refusing them");
  stats->add_option("--threads", settings->threads, "0: as many as there are")->capture_default_str();
  stats->callback([settings] {
    ISOBAR_CHECK(settings->dt >= 1, "--dt ", settings->dt, " is not at least one step");
    FieldSeriesOptions options{.paths = settings->paths,
                               .channels = settings->channels,
                               .choose = !settings->channels.empty(),
                               .dt = settings->dt,
                               .range_key = "--range"};
    if (settings->allow_missing)
      options.missing = options.choose ? options.channels : FieldSeries(options).channel_names();
    if (!settings->range.empty()) options.range = range_of("--range", settings->range);
    const FieldSeries dataset(options);
    const ComputedStatistics statistics =
        compute_statistics(dataset, settings->threads, kStatisticsWindow, TimeDifferences::computed);
    write_statistics(statistics, dataset.height(), dataset.width(), settings->out);
    std::cout << describe_statistics(statistics, dataset.channel_names())
              << counted(dataset.range()[1] - dataset.range()[0], "step") << " of "
              << counted(std::ssize(files_in_range(dataset)), "file") << ", " << counted(statistics.pairs, "pair")
              << " of them " << time_apart(dataset) << " apart; written to " << settings->out << '\n';
  });
}

void register_climatology(CLI::App& data) {
  struct Settings {
    std::vector<std::string> paths, channels, range;
    std::string out, days = "calendar";
    ClimatologyOptions climatology;
    bool allow_missing = false;
  };
  auto settings = std::make_shared<Settings>();
  CLI::App* command =
      data.add_subcommand("climatology", "Compute the mean field of each day of the year and hour of the day");
  command->add_option("PATH", settings->paths, "folders of files of fields, or files")->required();
  command->add_option("--out", settings->out, "FILE.nc or FILE.h5 for the means")->required();
  command->add_option("--channels", settings->channels, "A,B,...: of these channels, in this order")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--range", settings->range, "FIRST END: of these steps; or DATE DATE: both belong to it")
      ->expected(2);
  command
      ->add_option("--days", settings->days,
                   "calendar: 29 February has its own number; dayofyear: as WeatherBench numbers days")
      ->check(CLI::IsMember({"calendar", "dayofyear"}))
      ->capture_default_str();
  command->add_option("--window", settings->climatology.window, "odd number of days that are averaged, triangular")
      ->capture_default_str();
  command->add_flag("--allow-missing", settings->allow_missing, "leave missing values out instead of refusing them");
  command->add_option("--threads", settings->climatology.threads, "0: as many as there are")->capture_default_str();
  command->callback([settings] {
    settings->climatology.days = *enum_named<DayNumbers>(settings->days);
    FieldSeriesOptions options{.paths = settings->paths,
                               .channels = settings->channels,
                               .choose = !settings->channels.empty(),
                               .range_key = "--range"};
    if (settings->allow_missing)
      options.missing = options.choose ? options.channels : FieldSeries(options).channel_names();
    if (!settings->range.empty()) options.range = range_of("--range", settings->range);
    const FieldSeries dataset(options);
    CommandInputs inputs{.weights = {}, .data = {}, .statistics = {}};
    for (std::size_t file = 0; file < dataset.file_count(); ++file) inputs.data.emplace_back(dataset.file_name(file));
    check_output("--out", settings->out, inputs);
    check_disk("--out", settings->out, climatology_bytes(dataset));
    const std::string lack = write_climatology(dataset, settings->out, settings->climatology);
    std::cout << counted(dataset.range()[1] - dataset.range()[0], "step") << " of "
              << counted(std::ssize(files_in_range(dataset)), "file") << ", "
              << dataset.time_of(dataset.range()[0]).iso() << " to " << dataset.time_of(dataset.range()[1] - 1).iso()
              << "; written to " << settings->out << '\n'
              << (lack.empty() ? "" : lack + '\n');
  });
}

void register_convert(CLI::App& data) {
  auto options = std::make_shared<ConvertOptions>();
  CLI::App* convert = data.add_subcommand("convert", "Copy fields to yearly files of the layout that is read fastest");
  convert->add_option("SOURCE", options->sources, "folders of files of fields, or files")->required();
  convert->add_option("--out", options->out, "folder for the files, or for train, valid and test")->required();
  convert
      ->add_option("--channels", options->channels,
                   "A,B,...: names of the sources' channels, of computed ones, and constants: NAME=FILE:VARIABLE")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->required();
  convert->add_option("--split", options->split, "DATE [DATE]: where valid begins, and test")->expected(1, 2);
  convert->add_flag("--allow-missing", options->allow_missing, "write missing values as NaN instead of refusing them");
  convert->add_option("--threads", options->threads, "0: as many as there are")->capture_default_str();
  convert->callback(
      [options] { convert_fields(*options, [](const std::string& line) { std::cout << line << std::endl; }); });
}

// Error naming the command for what `data info` does not describe; nothing for what may be fields.
void refuse_other_data(const std::string& path) {
  if (fs::is_directory(path)) {
    ISOBAR_CHECK(!holds_run(path), path, " is the folder of a run: isobar evaluate --weights ", path,
                 " judges its weights, and its config.json names its data");
    ISOBAR_CHECK(!is_huggingface_folder(path), path,
                 " is a model's folder, of Hugging Face: isobar evaluate and generate take it as --weights");
    return;
  }
  const fs::path file(path);
  ISOBAR_CHECK(file.extension() != ".safetensors", path, " is a file of weights: isobar evaluate --weights ", path,
               " judges them");
  const bool exists = fs::exists(file);
  const std::string made = exists ? "" : comma_list(token_files_of(path));
  ISOBAR_CHECK(made.empty(), path, " does not exist; token files of this prefix: ", made);
  ISOBAR_CHECK(!exists || file.extension() != ".bin", path, " is no token file: there is no ", token_prefix(path),
               ".idx; tokens of nanoGPT or llm.c are taken over by isobar data import");
  ISOBAR_CHECK(!exists || file.extension() != ".json" || !is_token_file(fs::path(file).replace_extension().string()),
               path, " belongs to the token file ", fs::path(file).replace_extension().string());
}

// What is no token file: a text, labelled images, or fields.
std::string describe_others(const std::string& path, bool checks_values) {
  if (const auto text = fs::is_regular_file(path) ? describe_text(path) : std::nullopt) {
    ISOBAR_CHECK(!checks_values, "--check is for fields, and ", path, " is a text");
    return *text;
  }
  if (const auto images = fs::is_directory(path) ? describe_idx_files(path) : std::nullopt) {
    ISOBAR_CHECK(!checks_values, "--check is for fields, and ", path, " holds images");
    return *images;
  }
  return describe_data(path, checks_values) +
         (checks_values ? "" : "not read: the values of the fields; --check reads them all, and finds holes\n");
}

void register_data_info(CLI::App& data) {
  struct Settings {
    std::string path;
    ShownSequence show;
    TokenizerOptions tokenizer;
    bool check = false;
  };
  auto settings = std::make_shared<Settings>();
  CLI::App* info = data.add_subcommand("info", "Say what is in a folder or file, and whether it fits together");
  info->add_option("PATH", settings->path, "a data set's folder, a file, or the prefix of a token file")->required();
  CLI::Option* check =
      info->add_flag("--check", settings->check, "read every value of the fields, and refuse holes (NaN, fill values)");
  CLI::Option* show = info->add_option("--show", settings->show.sequence,
                                       "I: of a token file, print sequence I, and its text if a tokenizer is given");
  info->add_option("--max-tokens", settings->show.max_tokens, "of --show: print so many tokens at most; 0: all")
      ->check(whole_number_from(0))
      ->needs(show)
      ->capture_default_str();
  add_tokenizer_flags(*info, settings->tokenizer);
  info->callback([settings, info, check, show] {
    if (is_token_file(settings->path)) {
      ISOBAR_CHECK(check->count() == 0, "--check is for fields, and ", settings->path, " is a token file");
      const auto tokenizer = has_tokenizer_flags(*info) ? open_tokenizer(settings->tokenizer) : nullptr;
      const auto shown = show->count() > 0 ? std::optional(settings->show) : std::nullopt;
      std::cout << describe_tokens(settings->path, shown, tokenizer.get());
      return;
    }
    refuse_other_data(settings->path);
    ISOBAR_CHECK(show->count() == 0 && !has_tokenizer_flags(*info), settings->path, " is no token file: there is no ",
                 settings->path, ".idx");
    std::cout << describe_others(settings->path, settings->check);
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
  CLI::App* data = app.add_subcommand(
      "data",
      "Make synthetic data, compute statistics and climatologies, convert and look at data, make tokens of text");
  data->require_subcommand(1);
  register_synth(*data);
  register_stats(*data);
  register_climatology(*data);
  register_convert(*data);
  register_data_info(*data);
  register_text_commands(*data);
  register_trial(*data);
}

}  // namespace isobar
