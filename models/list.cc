// Every recipe, one line each.
#include "kernels/common/check.h"
#include "models/classification/recipe.h"
#include "models/forecast/recipe.h"
#include "models/recipe.h"

namespace isobar {

const std::vector<RecipeEntry>& recipe_list() {
  static const std::vector<RecipeEntry> list{
      {"forecast", make_forecast_recipe},
      {"classification", make_classification_recipe},
  };
  return list;
}

std::unique_ptr<Recipe> make_recipe(const std::string& name) {
  std::string names;
  for (const RecipeEntry& entry : recipe_list()) {
    if (entry.name == name) return entry.make();
    names += (names.empty() ? "" : ", ") + std::string(entry.name);
  }
  throw_error("config key task must be one of ", names, ", not ", name);
}

}  // namespace isobar
