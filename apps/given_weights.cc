#include "apps/given_weights.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/train/run_folder.h"
#include "engine/files/huggingface_folder.h"
#include "engine/files/json.h"
#include "engine/files/reader.h"
#include "engine/keys.h"
#include "kernels/common/check.h"
#include "kernels/common/printable.h"
#include "models/gpt/huggingface.h"
#include "models/language/recipe.h"

namespace isobar {

namespace fs = std::filesystem;

ModelDescription describe_given(const fs::path& path) {
  if (!is_huggingface_folder(path)) return describe_model(path);
  ModelDescription description{{path, {}}, read_config(entries_from(keys_of_huggingface(path), path.string()))};
  const auto& recipe = dynamic_cast<const LanguageRecipe&>(*description.config->recipe);
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(tokenizer_options(recipe.text));
  ISOBAR_CHECK(*recipe.text.vocab_size >= tokenizer->size(), path.string(), ": its tokenizer has ", tokenizer->size(),
               " tokens, but vocab_size of its config.json is ", *recipe.text.vocab_size);
  description.weights.settings = text_settings(text_info(*tokenizer, *recipe.text.vocab_size, recipe.text.seq_length));
  return description;
}

RunConfig config_of_weights(const std::string& weights, ModelDescription& description, const std::string& data,
                            const std::vector<std::string>& assignments) {
  ISOBAR_CHECK(description.config, weights,
               " does not say what model it is of: isobar train writes that into its files, and for other weights it "
               "starts from them (--init); a folder of Hugging Face says it in config.json");
  ConfigEntries entries = entries_from(to_json(*description.config), weights);
  if (!data.empty()) set_data(entries, *description.config->recipe, data, DataUse::judging);
  for (const std::string& assignment : assignments) set_from_assignment(entries, assignment);
  RunConfig config = read_config(entries);
  print_left_out(config);
  config.check();
  config.compute.trains = false;
  return config;
}

std::vector<fs::path> data_of(const RunConfig& config) {
  std::vector<fs::path> data;
  for (const std::string* path : paths_of(config.recipe->keys()))
    if (!path->empty()) data.emplace_back(*path);
  return data;
}

std::int64_t samples_at_once(const BatchOptions& batch, const fs::path& weights) {
  const fs::path run = run_of(weights);
  return batch.at_once(run.empty() ? 1 : layout_of_run(run).dp);
}

namespace {

// The state.json beside the weights; null if there is none.
nlohmann::json state_of_weights(const fs::path& file) {
  const fs::path state_file = file.parent_path() / "state.json";
  nlohmann::json state;
  if (fs::is_regular_file(state_file))
    state = parse_json_if_valid<nlohmann::json>(read_file(state_file), state_file.string()).value_or(state);
  return state;
}

}  // namespace

std::optional<std::int64_t> iteration_of_weights(const fs::path& file) {
  const nlohmann::json state = state_of_weights(file);
  const nlohmann::json trainer = state.is_object() ? state.value("trainer", nlohmann::json()) : nlohmann::json();
  const nlohmann::json iteration =
      trainer.is_object() ? trainer.value("iteration", nlohmann::json()) : nlohmann::json();
  return iteration.is_number_integer() ? std::optional(iteration.get<std::int64_t>()) : std::nullopt;
}

void print_weights_origin(const fs::path& file) {
  std::cout << "weights: " << file.string();
  const std::optional<std::int64_t> iteration = iteration_of_weights(file);
  if (iteration) std::cout << ", of iteration " << *iteration;
  const nlohmann::json state = state_of_weights(file);
  const nlohmann::json loss = state.is_object() ? state.value("best_loss", nlohmann::json()) : nlohmann::json();
  const bool is_best = !file.parent_path().filename().string().starts_with("step_");
  if (loss.is_number() && is_best) std::cout << ", validation loss " << loss.get<double>();
  std::cout << std::endl;
  if (iteration == 0)
    print_line("warning: " + file.string() + " is of iteration 0: these are the weights that its run began with");
}

}  // namespace isobar
