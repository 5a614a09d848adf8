#include "apps/train/loaders.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "apps/train/fit.h"
#include "data/era5/field_labels.h"
#include "data/era5/first_step.h"
#include "data/era5/latitude.h"
#include "data/sampler.h"
#include "kernels/common/check.h"
#include "kernels/cuda/runtime.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

Era5Dataset open_dataset(const Config& config, const std::string& path, const std::vector<std::string>& channels,
                         const std::optional<StepRange>& range, const char* range_key) {
  return Era5Dataset({.paths = {path},
                      .channels = channels,
                      .height = config.img_size[0],
                      .width = config.img_size[1],
                      .grid_key = "img_size",
                      .dt = config.dt,
                      .range = range,
                      .range_key = range_key});
}

HostAllocator allocator_for(Device device) {
  if (device.kind != DeviceKind::cuda) return heap_memory;
  return [](std::size_t bytes) { return std::shared_ptr<void>(gpu::allocate_pinned(bytes), gpu::free_pinned); };
}

LoaderOptions loader_options(const Config& config, Device device, bool drop_last) {
  return {.batch_size = config.global_batch_size / config.grad_accumulation,
          .workers = config.num_data_workers,
          .workers_key = "num_data_workers",
          .drop_last = drop_last,
          .allocator = allocator_for(device)};
}

PairOptions pair_options(const Config& config, const std::optional<std::int64_t>& limit) {
  return {.kind = config.sampler, .limit = limit.value_or(0), .time_features = config.time_features};
}

PairDataset training_pairs(const Config& config, const Era5Dataset& steps) {
  PairDataset pairs(steps, pair_options(config, config.limit_nsamples));
  ISOBAR_CHECK(config.global_batch_size <= pairs.samples(), "global_batch_size is ", config.global_batch_size,
               ", but the training set, ", config.train_data_path, ", has ", pairs.samples(), " samples only");
  return pairs;
}

void check_same_rows(const Era5Dataset& train, const Era5Dataset& valid) {
  const bool known = !train.latitudes().empty() && !valid.latitudes().empty();
  ISOBAR_CHECK(!known || train.latitudes() == valid.latitudes(), valid.file_name(0),
               ": its latitudes are not those of ", train.file_name(0));
}

// A segment of one set within one file, in the file's own steps.
struct FilePart {
  fs::path file;
  std::int64_t first = 0, end = 0;
};

std::vector<FilePart> parts_of(const Era5Dataset& dataset) {
  std::vector<FilePart> parts;
  for (const Segment& segment : dataset.segments()) {
    const std::size_t file = dataset.file_of(segment.first);
    const std::int64_t first = segment.first - dataset.first_step_of(file);
    parts.push_back({fs::canonical(dataset.file_name(file)), first, first + segment.count});
  }
  return parts;
}

void refuse_overlap(const Era5Dataset& train, const Era5Dataset& valid) {
  const std::vector<FilePart> trained = parts_of(train);
  for (const FilePart& v : parts_of(valid)) {
    for (const FilePart& t : trained) {
      const std::int64_t first = std::max(t.first, v.first), end = std::min(t.end, v.end);
      ISOBAR_CHECK(t.file != v.file || first >= end, "train_range and valid_range share steps ", first, " to ", end - 1,
                   " of ", v.file.string(), ": validation would look at what was trained on (config key allow_overlap",
                   " permits it)");
    }
  }
}

}  // namespace

bool statistics_are_missing(const Config& config) {
  const auto missing = [](const std::string& file) { return !fs::exists(file); };
  return missing(config.global_means_path) && missing(config.global_stds_path) && missing(config.time_means_path);
}

std::vector<std::string> channel_names_of(const Config& config, const Era5Dataset& dataset) {
  ISOBAR_CHECK(dataset.channels() == config.n_in_channels, dataset.file_name(0), ": fields has ", dataset.channels(),
               " channels, but n_in_channels is ", config.n_in_channels);
  return config.channel_names.value_or(dataset.channel_names());
}

TrainingData::TrainingData(const Config& config, Device device, StatisticsFrom statistics)
    : config_(config),
      train_(open_dataset(config, config.train_data_path, config.channel_names.value_or(std::vector<std::string>()),
                          config.train_range, "train_range")),
      channel_names_(channel_names_of(config, train_)),
      valid_(open_dataset(config, config.valid_data_path, channel_names_, config.valid_range, "valid_range")),
      made_statistics_(statistics == StatisticsFrom::training_steps ? std::optional(compute_statistics(train_))
                                                                    : std::nullopt),
      grid_{.channel_names = channel_names_,
            .statistics = made_statistics_ ? static_cast<const Statistics&>(*made_statistics_)
                                           : load_statistics(config.global_means_path, config.global_stds_path,
                                                             config.n_in_channels),
            .row_weights = latitude_weights(train_),
            .latitudes = train_.latitudes(),
            .longitudes = train_.longitudes()},
      train_pairs_(training_pairs(config, train_)),
      valid_pairs_(valid_, pair_options(config, config.limit_nsamples_val)),
      train_loader_(train_pairs_,
                    Sampler(train_pairs_.samples(), config.shuffle, static_cast<std::uint64_t>(config.seed)),
                    loader_options(config, device, /*drop_last=*/true)),
      valid_loader_(valid_pairs_, Sampler(valid_pairs_.samples(), /*shuffle=*/false),
                    loader_options(config, device, /*drop_last=*/false)) {
  check_same_rows(train_, valid_);
  if (!config.allow_overlap) refuse_overlap(train_, valid_);
  check_labels(valid_.labels(), valid_.file_name(0), train_.labels(), train_.file_name(0));
  label_from_statistics(grid_, train_, std::filesystem::path(config.global_means_path).parent_path());
  check_first_step(train_, train_pairs_.step_of(0), channel_names_, grid_.statistics);
  check_first_step(valid_, valid_pairs_.step_of(0), channel_names_, grid_.statistics);
}

void TrainingData::try_first_batches() {
  for (Loader* loader : {&train_loader_, &valid_loader_}) {
    loader->next();
    loader->seek({0, 0});
  }
}

std::vector<std::string> TrainingData::notes() const {
  std::vector<std::string> notes;
  for (const auto& [set, dataset] : {std::pair("training", &train_), std::pair("validation", &valid_)})
    if (const std::string left_out = describe_left_out(*dataset, config_.sampler); !left_out.empty())
      notes.push_back(std::string(set) + ": " + left_out);
  return notes;
}

std::shared_ptr<const LoadedBatch> TrainingData::next() {
  const Cursor cursor = train_loader_.cursor();
  if (cursor.batch >= iterations_per_epoch() * config_.grad_accumulation) train_loader_.seek({cursor.epoch + 1, 0});
  return train_loader_.next();
}

}  // namespace isobar
