#include "models/volume_regression/recipe.h"

#include "data/files/hdf5.h"
#include "kernels/common/check.h"
#include "models/regression/opened.h"
#include "models/regression/regressor.h"
#include "models/regression/volume_regressor.h"
#include "models/volume_regression/prediction.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

// Of synthetic volumes, where the config does not say: those of N-body and hydrodynamic simulations.
constexpr std::int64_t kSyntheticIn = 4, kSyntheticOut = 5;
constexpr std::uint64_t kSyntheticSeed = 1;

using Options = VolumeRegressionOptions;

struct Channels {
  std::int64_t in = 0, out = 0;
};

Channels channels_of(const Options& o) {
  return {o.n_in_channels.value_or(kSyntheticIn), o.n_out_channels.value_or(kSyntheticOut)};
}

// Of a sample.
Ports ports_of(const Options& o, const Channels& channels) {
  const auto [depth, height, width] = o.size_of_crop();
  return {.in = {channels.in, depth, height, width}, .out = {channels.out, depth, height, width}};
}

VolumeObjective objective_of(const Options& o) {
  return {.density_weight = o.lambda_rho, .vectors_turn = o.augment == Augmentation::physical};
}

VolumePair volumes_of(const Options& o, DataSplit split) {
  if (!o.reads_files()) {
    Point extent = o.size_of_crop();
    for (std::int64_t& length : extent) length *= 2;
    const auto seed = kSyntheticSeed + static_cast<std::uint64_t>(split);
    return synthetic_volumes(extent, channels_of(o).in, channels_of(o).out, seed);
  }
  VolumePair stored = open_volumes(split == DataSplit::train ? o.train_path : o.val_path);
  return o.volumes == VolumeSource::memory ? in_memory(stored) : std::move(stored);
}

// batch: of the samples whose places the tutorial draws together.
std::unique_ptr<CropDataset> open_crops(const Options& o, DataSplit split, std::int64_t batch) {
  ISOBAR_CHECK(split != DataSplit::test, "there is no test set of volumes");
  return std::make_unique<CropDataset>(volumes_of(o, split),
                                       CropOptions{.size = o.size_of_crop(),
                                                   .samples = split == DataSplit::train ? o.nsamples : o.nsamples_val,
                                                   .wrap = o.wrap,
                                                   .rule = o.crops,
                                                   .augmentation = o.augment,
                                                   .split = split,
                                                   .batch = batch});
}

// A validation has the same samples whatever the batch is.
std::unique_ptr<CropDataset> open_valid(const Options& o) {
  return open_crops(o, DataSplit::valid, 1);
}

Channels channels_in(const CropDataset& set) {
  return {set.volumes().input->channels(), set.volumes().target->channels()};
}

// Error if the volumes have other channels than the config says.
void check_channels(const CropDataset& set, const Options& o) {
  const auto check = [](const Volume& volume, const char* key, std::int64_t wanted) {
    ISOBAR_CHECK(volume.channels() == wanted, volume.name(), " ", to_string(volume.shape()), " has ", volume.channels(),
                 " channels, but ", key, " is ", wanted);
  };
  check(*set.volumes().input, "n_in_channels", *o.n_in_channels);
  check(*set.volumes().target, "n_out_channels", *o.n_out_channels);
}

void check_kind(const GivenWeights& weights, const CropDataset& set) {
  if (!describes_regression(weights.settings)) return;
  const Ports trained = regression_ports_from(weights.settings);
  const Channels channels = channels_in(set);
  ISOBAR_CHECK(trained.in.size() == 4 && trained.in[0] == channels.in && trained.out[0] == channels.out,
               weights.file.string(), " computes ", to_string(trained.out), " from ", to_string(trained.in), ", but ",
               set.name(), " has ", channels.in, " channels in and ", channels.out, " out");
}

// The task, of which the options tell all.
class CropsSource : public TaskSource {
 public:
  CropsSource(std::shared_ptr<const NetworkRecipe> network, const Options& options)
      : network_(std::move(network)),
        ports_(ports_of(options, channels_of(options))),
        objective_(objective_of(options)) {}

  std::unique_ptr<Task> make_task(const ComputeOptions& compute, Device device,
                                  const Parallel& parallel) const override {
    return std::make_unique<VolumeRegressor>(network_, compute, ports_, objective_, device, parallel);
  }
  std::vector<TensorSpec> sample_layout(const std::optional<RowBand>&) const override {
    return {{.name = "input", .shape = ports_.in},
            {.name = "target", .shape = ports_.out},
            {.name = "turn", .shape = {}, .dtype = DType::i32}};
  }

 private:
  const std::shared_ptr<const NetworkRecipe> network_;
  const Ports ports_;
  const VolumeObjective objective_;
};

}  // namespace

std::unique_ptr<Recipe> make_volume_regression_recipe(std::shared_ptr<NetworkRecipe> network) {
  return std::make_unique<VolumeRegressionRecipe>(std::move(network));
}

std::vector<KeyTable> VolumeRegressionRecipe::keys() {
  KeyTable table = volumes.keys();
  table.check = [this, own = std::move(table.check)](const KeyOrigins& origins) {
    own(origins);
    network_->check(ports_of(volumes, channels_of(volumes)), origins.where("data_size"));
  };
  return {std::move(table)};
}

std::vector<std::pair<std::string, fs::path>> VolumeRegressionRecipe::paths_in(const fs::path& folder) const {
  ISOBAR_CHECK(fs::is_directory(folder / "train") && fs::is_directory(folder / "valid"), "--data ", folder.string(),
               " has no folders train and valid");
  return {{"train_path", folder / "train"}, {"val_path", folder / "valid"}};
}

std::unique_ptr<OpenedRecipe> VolumeRegressionRecipe::open(KeyOrigins& origins, const OpenRequest& request) {
  if (!request.process.trial.empty()) hdf5::File::try_by(request.process.trial);
  volumes.check_paths(origins);
  std::unique_ptr<const CropDataset> train = open_crops(volumes, DataSplit::train, request.global_batch_size);
  std::unique_ptr<const CropDataset> valid = open_valid(volumes);
  const Channels channels = channels_in(*train);
  KeyFiller filler(origins);
  filler.fill("n_in_channels", volumes.n_in_channels, channels.in);
  filler.fill("n_out_channels", volumes.n_out_channels, channels.out);
  network_->fill(ports_of(volumes, channels), filler);
  std::vector<std::string> sentences;
  if (!filler.summary().empty())
    sentences.push_back((volumes.reads_files() ? "from the data: " : "of synthetic volumes: ") + filler.summary());
  for (const CropDataset* set : {train.get(), valid.get()}) check_channels(*set, volumes);
  std::vector<KeyTable> tables = keys();
  tables.push_back(network_->keys());
  check_keys(tables, origins);
  const auto check = [set = train.get()](const GivenWeights& weights) { check_kind(weights, *set); };
  return std::make_unique<OpenedRegression>(std::make_unique<CropsSource>(network_, volumes), std::move(train),
                                            std::move(valid), std::move(sentences), check);
}

std::unique_ptr<OpenedSplit> VolumeRegressionRecipe::open_split(DataSplit split, const GivenWeights& weights) const {
  std::unique_ptr<const CropDataset> set =
      split == DataSplit::valid ? open_valid(volumes) : open_crops(volumes, split, 1);
  check_kind(weights, *set);
  return std::make_unique<OpenedRegressionSplit>(std::make_unique<CropsSource>(network_, volumes), std::move(set));
}

std::unique_ptr<OpenedPrediction> VolumeRegressionRecipe::open_prediction(const PredictionRequest& request,
                                                                          const GivenWeights&) const {
  const bool is_synthetic = request.input.empty() && !volumes.reads_files();
  const std::string& path = request.input.empty() ? volumes.val_path : request.input;
  ISOBAR_CHECK(is_synthetic || fs::exists(path), path, " does not exist");
  VolumePair pair = is_synthetic ? volumes_of(volumes, DataSplit::valid) : open_volumes_to_predict(path);
  return std::make_unique<VolumePrediction>(VolumeNetwork{.recipe = network_,
                                                          .ports = ports_of(volumes, channels_of(volumes)),
                                                          .objective = objective_of(volumes),
                                                          .wrap = volumes.wrap,
                                                          .overlap = request.overlap},
                                            std::move(pair));
}

std::unique_ptr<TaskSource> VolumeRegressionRecipe::on_shapes() const {
  ISOBAR_CHECK(!volumes.reads_files() || (volumes.n_in_channels && volumes.n_out_channels),
               "the channels of the volumes are left to the data: set n_in_channels and n_out_channels");
  return std::make_unique<CropsSource>(network_, volumes);
}

}  // namespace isobar
