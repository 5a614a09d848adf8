#include "models/classification/recipe.h"

#include <array>
#include <cmath>
#include <utility>

#include "data/moments.h"
#include "kernels/common/check.h"
#include "models/classification/prediction.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

Moments pixel_moments(const LabelledImages& set) {
  std::vector<float> image(static_cast<std::size_t>(set.height() * set.width()));
  std::int32_t label = 0;
  const std::array<void*, 2> to{image.data(), &label};
  Moments all;
  for (std::int64_t i = 0; i < set.samples(); ++i) {
    set.read({.sample = i}, to);
    all.merge(Moments::of(image));
  }
  return all;
}

// Whether both may describe the same pixels. Earlier versions summed pixels in another order and computed the variance
// as the mean square minus the squared mean. Such a run can be resumed although the last digits differ.
bool same_pixels(const ImagesInfo& a, const ImagesInfo& b) {
  // Relative to the root mean square of the pixels; changing one pixel of MNIST exceeds it.
  constexpr double kRounding = 1e-9;
  const double square = a.mean * a.mean + a.std * a.std;
  return std::abs(a.mean - b.mean) <= kRounding * std::sqrt(square) &&
         std::abs(a.std * a.std - b.std * b.std) <= kRounding * square;
}

LabelledImages images_of(DataSplit split, const ClassificationOptions& options) {
  const bool is_test = split == DataSplit::test;
  ISOBAR_CHECK(!is_test || options.has_test(), "there is no test set: name one by the config key test_images_path");
  const std::string& folder = is_test ? options.test_images_path : options.images_path;
  return LabelledImages(find_idx_files(folder, split == DataSplit::train), options.ignored_label);
}

void check_labels(const LabelledImages& set, const ClassificationOptions& options, std::int64_t classes) {
  ISOBAR_CHECK(set.classes() > 0, set.name(), ": all its labels are ignored_label, ", *options.ignored_label);
  ISOBAR_CHECK(set.classes() <= classes, set.name(), ": its labels go up to ", set.classes() - 1, ", but classes is ",
               classes);
}

ImagesInfo trained_info_of(const GivenWeights& weights) {
  ISOBAR_CHECK(describes_images(weights.settings), weights.file.string(),
               " does not say what images it was trained on");
  return images_info_from(weights.settings);
}

// Error if the weights were trained for images of another kind.
template <class Images>
void check_kind(const GivenWeights& weights, const ImagesInfo& trained, const Images& set, std::int64_t classes) {
  ISOBAR_CHECK(trained.height == set.height() && trained.width == set.width() && trained.classes == classes,
               weights.file.string(), " classifies images of ", trained.height, " x ", trained.width, " into ",
               trained.classes, " classes, but ", set.name(), " has images of ", set.height(), " x ", set.width(),
               " of ", classes, " classes");
}

ImagesInfo info_of(const LabelledImages& train, const ClassificationOptions& options) {
  const Moments pixels = pixel_moments(train);
  ISOBAR_CHECK(pixels.deviation() > 0, train.name(), ": all its pixels have the value ", pixels.mean);
  return {.height = train.height(),
          .width = train.width(),
          .classes = *options.classes,
          .mean = pixels.mean,
          .std = pixels.deviation(),
          .ignores_labels = options.ignored_label.has_value()};
}

void check_same_size(const LabelledImages& a, const LabelledImages& b) {
  ISOBAR_CHECK(a.height() == b.height() && a.width() == b.width(), b.name(), ": its images are ", b.height(), " x ",
               b.width(), ", but those of ", a.name(), " are ", a.height(), " x ", a.width());
}

}  // namespace

std::unique_ptr<Recipe> make_classification_recipe(std::shared_ptr<NetworkRecipe> network) {
  return std::make_unique<ClassificationRecipe>(std::move(network));
}

std::vector<KeyTable> ClassificationRecipe::keys() {
  return {images.keys()};
}

std::vector<std::pair<std::string, fs::path>> ClassificationRecipe::paths_in(const fs::path& folder) const {
  ISOBAR_CHECK(fs::is_directory(folder), "--data ", folder.string(), " is not a folder");
  for (const bool train : {true, false}) find_idx_files(folder.string(), train);
  return {{"images_path", folder}};
}

// Returns "KEY VALUE, KEY VALUE" of the keys that it set, checked; empty if no key was left to the data.
std::string ClassificationRecipe::fill(const LabelledImages& train, KeyOrigins& origins) {
  KeyFiller filler(origins);
  filler.fill("classes", images.classes, train.classes());
  const Ports ports = classifier_ports({train.height(), train.width(), *images.classes});
  network_->fill(ports, filler);
  network_->check(ports, train.name() + ": the sides of its images");
  check_keys({images.keys(), network_->keys()}, origins);
  return filler.summary();
}

std::unique_ptr<OpenedRecipe> ClassificationRecipe::open(KeyOrigins& origins, const OpenRequest&) {
  LabelledImages train = images_of(DataSplit::train, images);
  std::vector<std::string> sentences;
  if (const std::string filled = fill(train, origins); !filled.empty()) sentences.push_back("from the data: " + filled);
  return std::make_unique<OpenedClassification>(network_, images, std::move(train), std::move(sentences));
}

std::unique_ptr<OpenedSplit> ClassificationRecipe::open_split(DataSplit split, const GivenWeights& weights) const {
  return std::make_unique<OpenedClassificationSplit>(network_, images, split, weights);
}

std::unique_ptr<OpenedPrediction> ClassificationRecipe::open_prediction(const PredictionRequest& request,
                                                                        const GivenWeights& weights) const {
  const std::string& input = request.input;
  const ImagesInfo trained = trained_info_of(weights);
  if (!input.empty() && !fs::is_directory(input)) {
    ISOBAR_CHECK(fs::exists(input), input, " does not exist");
    auto alone = std::make_unique<UnlabelledImages>(input);
    check_kind(weights, trained, *alone, *images.classes);
    return std::make_unique<ClassPrediction>(network_, trained, std::move(alone), /*has_labels=*/false);
  }
  auto set = std::make_unique<LabelledImages>(
      input.empty() ? images_of(DataSplit::valid, images)
                    : LabelledImages(find_idx_files(input, /*train=*/false), images.ignored_label));
  check_kind(weights, trained, *set, *images.classes);
  check_labels(*set, images, trained.classes);
  return std::make_unique<ClassPrediction>(network_, trained, std::move(set), /*has_labels=*/true);
}

std::unique_ptr<TaskSource> ClassificationRecipe::on_shapes() const {
  throw_error("the size of the images and the classes are left to the data");
}

OpenedClassification::OpenedClassification(std::shared_ptr<const NetworkRecipe> network,
                                           const ClassificationOptions& options, LabelledImages train,
                                           std::vector<std::string> sentences)
    : network_(std::move(network)),
      train_(std::move(train)),
      valid_(images_of(DataSplit::valid, options)),
      test_(options.has_test() ? std::optional(images_of(DataSplit::test, options)) : std::nullopt),
      info_(info_of(train_, options)),
      sentences_(std::move(sentences)) {
  std::vector<const LabelledImages*> sets{&train_, &valid_};
  if (test_) sets.push_back(&*test_);
  for (const LabelledImages* set : sets) {
    check_labels(*set, options, *options.classes);
    check_same_size(train_, *set);
  }
}

void OpenedClassification::check_start(const GivenWeights& weights) const {
  if (!describes_images(weights.settings)) return;
  check_kind(weights, images_info_from(weights.settings), train_, info_.classes);
}

void OpenedClassification::check_resume(const GivenWeights& weights) const {
  check_start(weights);
  if (!describes_images(weights.settings)) return;
  const ImagesInfo trained = images_info_from(weights.settings);
  ISOBAR_CHECK(same_pixels(trained, info_), train_.name(), ": these are not the images that ", weights.file.string(),
               " was trained on: mean and deviation are ", info_.mean, " and ", info_.std, ", not ", trained.mean,
               " and ", trained.std);
}

std::unique_ptr<Task> OpenedClassification::make_task(const ComputeOptions& compute, Device device,
                                                      const Parallel& parallel) const {
  return std::make_unique<Classifier>(network_, compute, info_, device, parallel);
}

std::unique_ptr<Task> OpenedClassification::make_trained_task(const GivenWeights& weights,
                                                              const ComputeOptions& compute, Device device,
                                                              const Parallel& parallel) const {
  const ImagesInfo info = describes_images(weights.settings) ? images_info_from(weights.settings) : info_;
  return std::make_unique<Classifier>(network_, compute, info, device, parallel);
}

OpenedClassificationSplit::OpenedClassificationSplit(std::shared_ptr<const NetworkRecipe> network,
                                                     const ClassificationOptions& options, DataSplit split,
                                                     const GivenWeights& weights)
    : network_(std::move(network)), images_(images_of(split, options)), info_(trained_info_of(weights)) {
  check_labels(images_, options, info_.classes);
  check_kind(weights, info_, images_, *options.classes);
}

std::unique_ptr<Task> OpenedClassificationSplit::make_task(const ComputeOptions& compute, Device device) const {
  return std::make_unique<Classifier>(network_, compute, info_, device);
}

}  // namespace isobar
