// isobar generate: text that a trained language model writes, from prompts.
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/config_options.h"
#include "apps/given_weights.h"
#include "apps/train/config.h"
#include "apps/train/model_file.h"
#include "apps/train/run_folder.h"
#include "engine/storage.h"
#include "kernels/common/check.h"
#include "kernels/cuda/runtime.h"
#include "models/language/generate.h"
#include "models/language/recipe.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

struct GenerateFlags {
  ConfigOptions config;
  std::string weights;
  std::vector<std::string> prompts{"\n"};
  SamplingOptions sampling;
};

const LanguageRecipe& language_recipe_of(const RunConfig& config, const std::string& weights) {
  const auto* recipe = dynamic_cast<const LanguageRecipe*>(config.recipe.get());
  ISOBAR_CHECK(recipe, weights, " is of the task ", config.task, "; text is written by a language_model");
  return *recipe;
}

void generate(const GenerateFlags& o) {
  const Device device = o.config.use_device();
  const StreamScope stream(std::make_shared<gpu::OwnedStream>(device));
  const fs::path file = weights_at(o.weights);
  ModelDescription description = describe_model(file);
  const RunConfig config = config_of_weights(o.weights, description, "", o.config.assignments);
  const LanguageRecipe& recipe = language_recipe_of(config, o.weights);
  const std::unique_ptr<LanguageModel> model = recipe.trained_model(description.weights, config.compute, device);
  read_model(file, *model);
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(recipe.text, model->info());
  for (std::size_t i = 0; i < o.prompts.size(); ++i) {
    const std::vector<std::int32_t> text = continue_text(
        *model, tokenizer->encode(o.prompts[i]), static_cast<std::int64_t>(i), o.sampling, tokenizer->specials().eod);
    std::cout << tokenizer->decode(text) << std::endl;
  }
}

}  // namespace

void register_generate(CLI::App& app) {
  auto options = std::make_shared<GenerateFlags>();
  CLI::App* command = app.add_subcommand("generate", "Write text with a trained language model");
  command->add_option("--weights", options->weights, "FILE.safetensors, or a run's folder (its best weights)")
      ->required();
  command
      ->add_option("--prompt", options->prompts,
                   "text to continue; given several times, each is continued by itself; default: an empty line")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  SamplingOptions& sampling = options->sampling;
  command->add_option("--max-tokens", sampling.max_tokens, "tokens to write for each prompt")
      ->check(whole_number_from(1))
      ->capture_default_str();
  command
      ->add_option("--temperature", sampling.temperature,
                   "divides the logits: below 1 likely tokens become likelier, above 1 less so")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--top-k", sampling.top_k, "draw from the K most likely tokens only; 0: from all")
      ->check(whole_number_from(0))
      ->capture_default_str();
  command
      ->add_option("--top-p", sampling.top_p,
                   "draw from the fewest most likely tokens whose probabilities add up to this")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_flag("--greedy", sampling.greedy, "take the most likely token, always");
  command->add_option("--seed", sampling.seed, "of the draws: the same seed writes the same text")
      ->capture_default_str();
  add_set_option(*command, options->config);
  add_device_options(*command, options->config);
  command->callback([options] { generate(*options); });
}

}  // namespace isobar
