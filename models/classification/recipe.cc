#include "models/classification/recipe.h"

#include <array>
#include <cmath>
#include <utility>

#include "kernels/common/check.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

// Mean and standard deviation of all pixels, added up in fp64 image by image.
std::pair<double, double> pixel_statistics(const LabelledImages& set) {
  const std::int64_t pixels = set.height() * set.width();
  std::vector<float> image(static_cast<std::size_t>(pixels));
  std::int32_t label = 0;
  const std::array<void*, 2> to{image.data(), &label};
  double sum = 0, squares = 0;
  for (std::int64_t i = 0; i < set.samples(); ++i) {
    set.read(i, to);
    for (const float value : image) {
      sum += value;
      squares += static_cast<double>(value) * value;
    }
  }
  const double n = static_cast<double>(set.samples() * pixels), mean = sum / n;
  return {mean, std::sqrt(squares / n - mean * mean)};
}

void check_same_size(const LabelledImages& a, const LabelledImages& b) {
  ISOBAR_CHECK(a.height() == b.height() && a.width() == b.width(), b.name(), ": its images are ", b.height(), " x ",
               b.width(), ", but those of ", a.name(), " are ", a.height(), " x ", a.width());
}

}  // namespace

std::unique_ptr<Recipe> make_classification_recipe() {
  return std::make_unique<ClassificationRecipe>();
}

std::vector<KeyTable> ClassificationRecipe::keys() {
  return {vit.keys(), images.keys()};
}

std::vector<std::pair<std::string, fs::path>> ClassificationRecipe::paths_in(const fs::path& folder) const {
  ISOBAR_CHECK(fs::is_directory(folder), "--data ", folder.string(), " is not a folder");
  for (const bool train : {true, false}) find_idx_files(folder.string(), train);
  return {{"images_path", folder}};
}

std::vector<std::string> ClassificationRecipe::complete(KeyOrigins& origins) {
  train_.emplace(find_idx_files(images.images_path, /*train=*/true));
  valid_.emplace(find_idx_files(images.images_path, /*train=*/false));
  KeyFiller filler(origins);
  filler.fill("patch_size", vit.patch_size, default_patch_size(train_->height(), train_->width()));
  filler.fill("classes", images.classes, train_->classes());
  ISOBAR_CHECK(train_->height() % *vit.patch_size == 0 && train_->width() % *vit.patch_size == 0,
               origins.where("patch_size"), " is ", *vit.patch_size, ", which does not divide the ", train_->height(),
               " x ", train_->width(), " points of ", train_->name());
  if (filler.told().empty()) return {};
  return {"from the data: " + filler.told()};
}

std::vector<std::string> ClassificationRecipe::open(const fs::path&, bool) {
  check_same_size(*train_, *valid_);
  for (const LabelledImages* set : {&*train_, &*valid_})
    ISOBAR_CHECK(set->classes() <= *images.classes, set->name(), ": its labels go up to ", set->classes() - 1,
                 ", but classes is ", *images.classes);
  const auto [mean, std] = pixel_statistics(*train_);
  ISOBAR_CHECK(std > 0, train_->name(), ": all its pixels have the value ", mean);
  info_ = {.height = train_->height(), .width = train_->width(), .classes = *images.classes, .mean = mean, .std = std};
  return {};
}

void ClassificationRecipe::check_start(const GivenWeights& weights) const {
  if (!describes_images(weights.settings)) return;
  const ImagesInfo trained = images_info_from(weights.settings);
  ISOBAR_CHECK(trained.height == info_.height && trained.width == info_.width && trained.classes == info_.classes,
               weights.file.string(), " classifies images of ", trained.height, " x ", trained.width, " into ",
               trained.classes, " classes, but ", train_->name(), " has images of ", info_.height, " x ", info_.width,
               " of ", info_.classes, " classes");
}

void ClassificationRecipe::check_resume(const GivenWeights& weights) const {
  check_start(weights);
  if (!describes_images(weights.settings)) return;
  const ImagesInfo trained = images_info_from(weights.settings);
  ISOBAR_CHECK(trained.mean == info_.mean && trained.std == info_.std, train_->name(),
               ": these are not the images that ", weights.file.string(), " was trained on: mean and deviation are ",
               info_.mean, " and ", info_.std, ", not ", trained.mean, " and ", trained.std);
}

Holding ClassificationRecipe::holding(const ComputeOptions& compute, const Parallel& parallel) const {
  ISOBAR_CHECK(info_.height > 0, "the size of the images and the classes are left to the data");
  Parameters parameters;
  const ClassifierNetwork network(vit, compute, info_, parameters, parallel);
  return {dealt_of(network.trunk.config(), parallel), parameters.held()};
}

std::unique_ptr<Task> ClassificationRecipe::make_task(const ComputeOptions& compute, Device device,
                                                      const Parallel& parallel) const {
  return std::make_unique<Classifier>(vit, compute, info_, device, parallel);
}

std::unique_ptr<Task> ClassificationRecipe::make_trained_task(const GivenWeights& weights,
                                                              const ComputeOptions& compute, Device device) const {
  const ImagesInfo info = describes_images(weights.settings) ? images_info_from(weights.settings) : info_;
  return std::make_unique<Classifier>(vit, compute, info, device);
}

}  // namespace isobar
