#include "models/image_regression/recipe.h"

#include <array>

#include "data/files/hdf5.h"
#include "data/images/labelled_images.h"
#include "kernels/common/check.h"
#include "models/image_regression/prediction.h"
#include "models/regression/opened.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

// Of random images, where the config does not say.
constexpr std::array<std::int64_t, 2> kRandomSize{128, 128};
constexpr std::int64_t kRandomChannels = 1, kRandomSamples = 128;

PairSizes random_sizes(const ImageRegressionOptions& o) {
  const auto [height, width] = o.img_size.value_or(kRandomSize);
  return {o.n_in_channels.value_or(kRandomChannels), o.n_out_channels.value_or(kRandomChannels), height, width};
}

std::unique_ptr<ImagePairs> open_pairs(const ImageRegressionOptions& o, DataSplit split) {
  ISOBAR_CHECK(split != DataSplit::test, "there is no test set of pairs of images");
  const bool is_train = split == DataSplit::train;
  const std::string& path = is_train ? o.train_path : o.val_path;
  const std::optional<std::int64_t> samples = is_train ? o.nsamples : o.nsamples_val;
  switch (o.images) {
    case ImageSource::random:
      return std::make_unique<RandomPairs>(random_sizes(o), samples.value_or(kRandomSamples), split);
    case ImageSource::pairs:
      return std::make_unique<StoredPairs>(path, samples);
    case ImageSource::noisy:
      return std::make_unique<NoisyPairs>(find_idx_images(path, is_train), o.sigma, split, samples);
  }
  throw_error("no such source of images");
}

// To predict from: of `input`, else of the validation set. Whatever the network was trained on, it takes HDF5 files.
std::unique_ptr<ImagePairs> open_images(const ImageRegressionOptions& o, const std::string& input) {
  if (input.empty()) return open_pairs(o, DataSplit::valid);
  ISOBAR_CHECK(fs::exists(input), input, " does not exist");
  const std::string extension = fs::path(input).extension().string();
  const bool is_hdf5 = extension == ".h5" || extension == ".hdf5";
  if (o.images != ImageSource::noisy || is_hdf5)
    return std::make_unique<StoredPairs>(input, std::nullopt, StoredTargets::optional);
  const std::string file = fs::is_directory(input) ? find_idx_images(input, /*train=*/false) : input;
  return std::make_unique<NoisyPairs>(file, o.sigma, DataSplit::valid);
}

Ports ports_of(const PairSizes& sizes) {
  return {.in = sizes.input(), .out = sizes.target()};
}

std::string text_of(const PairSizes& sizes) {
  return concat(to_string(sizes.input()), " to ", to_string(sizes.target()));
}

// Error if the pairs have other sizes than the config says.
void check_sizes(const ImagePairs& set, const ImageRegressionOptions& o) {
  const PairSizes& s = set.sizes();
  const PairSizes wanted{*o.n_in_channels, *o.n_out_channels, o.img_size->at(0), o.img_size->at(1)};
  ISOBAR_CHECK(s.input() == wanted.input() && s.target() == wanted.target(), set.name(), ": its pairs are ", text_of(s),
               ", but img_size, n_in_channels and n_out_channels are those of ", text_of(wanted));
}

void check_kind(const GivenWeights& weights, const ImagePairs& set) {
  if (!describes_regression(weights.settings)) return;
  const Ports trained = regression_ports_from(weights.settings), ports = ports_of(set.sizes());
  ISOBAR_CHECK(trained.in == ports.in && trained.out == ports.out, weights.file.string(), " computes ",
               to_string(trained.out), " from ", to_string(trained.in), ", but the pairs of ", set.name(), " are ",
               text_of(set.sizes()));
}

// The task, of which the sizes of the pairs tell all.
class PairsSource : public TaskSource {
 public:
  PairsSource(std::shared_ptr<const NetworkRecipe> network, const PairSizes& sizes)
      : network_(std::move(network)), sizes_(sizes) {}

  std::unique_ptr<Task> make_task(const ComputeOptions& compute, Device device,
                                  const Parallel& parallel) const override {
    return std::make_unique<Regressor>(network_, compute, ports_of(sizes_), device, parallel);
  }
  std::vector<TensorSpec> sample_layout(const std::optional<RowBand>&) const override { return sizes_.layout(); }

 private:
  const std::shared_ptr<const NetworkRecipe> network_;
  const PairSizes sizes_;
};

}  // namespace

std::unique_ptr<Recipe> make_image_regression_recipe(std::shared_ptr<NetworkRecipe> network) {
  return std::make_unique<ImageRegressionRecipe>(std::move(network));
}

std::vector<KeyTable> ImageRegressionRecipe::keys() {
  KeyTable table = pairs.keys();
  table.check = [this, own = std::move(table.check)](const KeyOrigins& origins) {
    own(origins);
    network_->check(ports_of(random_sizes(pairs)), origins.where("img_size"));
  };
  return {std::move(table)};
}

std::vector<std::pair<std::string, fs::path>> ImageRegressionRecipe::paths_in(const fs::path& folder) const {
  ISOBAR_CHECK(fs::is_directory(folder), "--data ", folder.string(), " is not a folder");
  if (fs::is_directory(folder / "train") && fs::is_directory(folder / "valid"))
    return {{"train_path", folder / "train"}, {"val_path", folder / "valid"}};
  for (const bool train : {true, false}) find_idx_images(folder.string(), train);
  return {{"train_path", folder}, {"val_path", folder}};
}

std::string ImageRegressionRecipe::fill(const PairSizes& sizes, std::int64_t train_samples, std::int64_t valid_samples,
                                        KeyOrigins& origins) {
  KeyFiller filler(origins);
  filler.fill("img_size", pairs.img_size, {sizes.height, sizes.width});
  filler.fill("n_in_channels", pairs.n_in_channels, sizes.in_channels);
  filler.fill("n_out_channels", pairs.n_out_channels, sizes.out_channels);
  filler.fill("nsamples", pairs.nsamples, train_samples);
  filler.fill("nsamples_val", pairs.nsamples_val, valid_samples);
  network_->fill(ports_of(sizes), filler);
  return filler.summary();
}

std::unique_ptr<OpenedRecipe> ImageRegressionRecipe::open(KeyOrigins& origins, const OpenRequest& request) {
  if (!request.process.trial.empty()) hdf5::File::try_by(request.process.trial);
  pairs.check_paths(origins);
  std::unique_ptr<const ImagePairs> train = open_pairs(pairs, DataSplit::train);
  std::unique_ptr<const ImagePairs> valid = open_pairs(pairs, DataSplit::valid);
  std::vector<std::string> sentences;
  if (const std::string filled = fill(train->sizes(), train->samples(), valid->samples(), origins); !filled.empty())
    sentences.push_back((pairs.reads_files() ? "from the data: " : "of random images: ") + filled);
  for (const ImagePairs* set : {train.get(), valid.get()}) check_sizes(*set, pairs);
  std::vector<KeyTable> tables = keys();
  tables.push_back(network_->keys());
  check_keys(tables, origins);
  auto task = std::make_unique<PairsSource>(network_, train->sizes());
  const auto check = [set = train.get()](const GivenWeights& weights) { check_kind(weights, *set); };
  return std::make_unique<OpenedRegression>(std::move(task), std::move(train), std::move(valid), std::move(sentences),
                                            check);
}

std::unique_ptr<OpenedSplit> ImageRegressionRecipe::open_split(DataSplit split, const GivenWeights& weights) const {
  std::unique_ptr<const ImagePairs> set = open_pairs(pairs, split);
  check_kind(weights, *set);
  auto task = std::make_unique<PairsSource>(network_, set->sizes());
  return std::make_unique<OpenedRegressionSplit>(std::move(task), std::move(set));
}

std::unique_ptr<OpenedPrediction> ImageRegressionRecipe::open_prediction(const PredictionRequest& request,
                                                                         const GivenWeights&) const {
  return std::make_unique<ImagePrediction>(network_, random_sizes(pairs), open_images(pairs, request.input));
}

std::unique_ptr<TaskSource> ImageRegressionRecipe::on_shapes() const {
  const bool are_known = pairs.img_size && pairs.n_in_channels && pairs.n_out_channels;
  ISOBAR_CHECK(!pairs.reads_files() || are_known,
               "the size or the channels of the images are left to the data: set img_size, n_in_channels and "
               "n_out_channels");
  return std::make_unique<PairsSource>(network_, random_sizes(pairs));
}

}  // namespace isobar
