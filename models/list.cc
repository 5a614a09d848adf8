// Every task and every network, one line each.
#include <algorithm>

#include "kernels/common/check.h"
#include "models/classification/recipe.h"
#include "models/cnn/recipe.h"
#include "models/forecast/recipe.h"
#include "models/gpt/recipe.h"
#include "models/image_regression/recipe.h"
#include "models/language/recipe.h"
#include "models/recipe.h"
#include "models/unet/recipe.h"
#include "models/vit/recipe.h"
#include "models/volume_regression/recipe.h"

namespace isobar {

const std::vector<RecipeEntry>& recipe_list() {
  static const std::vector<RecipeEntry> list{
      {kForecastTask, make_forecast_recipe},
      {"classification", make_classification_recipe},
      {"image_regression", make_image_regression_recipe, "cnn"},
      {"volume_regression", make_volume_regression_recipe, "unet"},
      {"language_model", make_language_recipe, "gpt"},
  };
  return list;
}

const std::vector<NetworkEntry>& network_list() {
  static const std::vector<NetworkEntry> list{
      {"vit", make_vit_recipe},
      {"cnn", make_cnn_recipe},
      {"unet", make_unet_recipe},
      {"gpt", make_gpt_recipe},
  };
  return list;
}

namespace {

template <class Entry>
const Entry& entry_of(const std::vector<Entry>& list, const char* key, const std::string& name) {
  const auto found = std::ranges::find(list, name, &Entry::name);
  ISOBAR_CHECK(found != list.end(), "config key ", key, " must be one of ", names_of(list), ", not ", name);
  return *found;
}

}  // namespace

const TrainingStage& stage_after(const std::vector<TrainingStage>& stages, std::int64_t iterations) {
  ISOBAR_CHECK(!stages.empty() && stages.front().from_iteration == 0, "no stage of the training begins at iteration 0");
  const auto later = std::ranges::upper_bound(stages, iterations, {}, &TrainingStage::from_iteration);
  return *std::prev(later);
}

std::unique_ptr<OpenedPrediction> Recipe::open_prediction(const PredictionRequest&, const GivenWeights& weights) const {
  throw_error(weights.file.string(), " is a model of a task whose predictions isobar predict does not write");
}

std::unique_ptr<Recipe> make_recipe(const std::string& name, std::shared_ptr<NetworkRecipe> network) {
  return entry_of(recipe_list(), "task", name).make(std::move(network));
}

const char* network_of_task(const std::string& task) {
  return entry_of(recipe_list(), "task", task).network;
}

std::shared_ptr<NetworkRecipe> make_network_recipe(const std::string& name) {
  return entry_of(network_list(), "model", name).make();
}

}  // namespace isobar
