// isobar generate: text that a trained language model writes, from prompts.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/config_options.h"
#include "apps/given_weights.h"
#include "apps/outputs.h"
#include "apps/train/config.h"
#include "apps/train/model_file.h"
#include "apps/train/run_folder.h"
#include "data/text/json_text.h"
#include "data/text/text_files.h"
#include "engine/files/atomic_file.h"
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
  std::string weights, in, out;
  std::vector<std::string> prompts;
  SamplingOptions sampling;
};

using Ids = std::vector<std::int32_t>;

// The texts of a file of JSON lines, {"text": "..."}.
std::vector<std::string> prompts_in(const std::string& path) {
  const std::vector<std::string> keys{"text"};
  TextFiles files({.paths = {path}, .format = TextFormat::json_lines});
  std::vector<std::string> prompts;
  while (const std::optional<RawBlock> block = files.next())
    for (const RawDocument& document : block->documents) try {
        prompts.push_back(json_texts(block->of(document), keys)[0]);
      } catch (const Error& error) {
        throw_error(path, ", line ", document.line, ": ", error.what());
      }
  ISOBAR_CHECK(!prompts.empty(), path, " has no prompts");
  return prompts;
}

std::vector<std::string> prompts_of(const GenerateFlags& o) {
  ISOBAR_CHECK(o.in.empty() || o.prompts.empty(), "--in and --prompt both name prompts; give one of them");
  if (!o.in.empty()) return prompts_in(o.in);
  return o.prompts.empty() ? std::vector<std::string>{"\n"} : o.prompts;
}

std::vector<Ids> tokens_of(const std::vector<std::string>& prompts, const Tokenizer& tokenizer) {
  std::vector<Ids> tokens;
  for (const std::string& prompt : prompts) tokens.push_back(tokenizer.encode(prompt));
  return tokens;
}

// A line for each prompt: {"text": prompt, "continuation": what follows it, "tokens": the ids of both}.
void write_texts(const std::string& path, const std::vector<std::string>& prompts, const std::vector<Ids>& before,
                 const std::vector<Ids>& texts, const Tokenizer& tokenizer) {
  std::string lines;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto added = std::span(texts[i]).subspan(before[i].size());
    lines +=
        nlohmann::ordered_json{{"text", prompts[i]}, {"continuation", tokenizer.decode(added)}, {"tokens", texts[i]}}
            .dump() +
        "\n";
  }
  write_file_atomically(path, lines);
}

// "100 prompts, 3200 tokens in 1.50 s: 2133 tokens/s".
std::string speed_of(const std::vector<Ids>& before, const std::vector<Ids>& texts, double seconds) {
  std::size_t tokens = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) tokens += texts[i].size() - before[i].size();
  std::ostringstream line;
  line << std::fixed << std::setprecision(2) << texts.size() << " prompts, " << tokens << " tokens in " << seconds
       << " s: " << std::setprecision(1) << static_cast<double>(tokens) / seconds << " tokens/s";
  return line.str();
}

const LanguageRecipe& language_recipe_of(const RunConfig& config, const std::string& weights) {
  const auto* recipe = dynamic_cast<const LanguageRecipe*>(config.recipe.get());
  ISOBAR_CHECK(recipe, weights, " is of the task ", config.task, "; text is written by a language_model");
  return *recipe;
}

void generate(const GenerateFlags& o) {
  check_differ("--in", o.in, "--out", o.out);
  const Device device = o.config.use_device();
  const StreamScope stream(std::make_shared<gpu::OwnedStream>(device));
  const fs::path file = weights_at(o.weights);
  ModelDescription description = describe_given(file);
  const RunConfig config = config_of_weights(o.weights, description, "", o.config.assignments);
  const LanguageRecipe& recipe = language_recipe_of(config, o.weights);
  if (!o.out.empty()) check_output("--out", o.out, {.weights = file, .data = data_of(config), .statistics = {}});
  const std::unique_ptr<LanguageModel> model = recipe.trained_model(description.weights, config.compute, device);
  read_model(file, *model);
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(recipe.text, model->info());
  const std::vector<std::string> prompts = prompts_of(o);
  const std::vector<Ids> before = tokens_of(prompts, *tokenizer);
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Ids> texts =
      continue_texts(*model, before, o.sampling, tokenizer->specials().eod, tokenizer->size());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (o.out.empty()) {
    for (const Ids& text : texts) std::cout << tokenizer->decode(text) << std::endl;
    return;
  }
  write_texts(o.out, prompts, before, texts, *tokenizer);
  std::cout << o.out << ": " << speed_of(before, texts, seconds.count()) << std::endl;
}

}  // namespace

void register_generate(CLI::App& app) {
  auto options = std::make_shared<GenerateFlags>();
  CLI::App* command = app.add_subcommand("generate", "Write text with a trained language model");
  command
      ->add_option("--weights", options->weights,
                   "FILE.safetensors, a run's folder (its best weights), or a folder of Hugging Face")
      ->required();
  command
      ->add_option("--prompt", options->prompts,
                   "text to continue; given several times, each is continued by itself; default: an empty line")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--in", options->in, "FILE of JSON lines with prompts, {\"text\": \"...\"}, instead of --prompt");
  command->add_option("--out", options->out,
                      "FILE of JSON lines for the texts, with text, continuation and tokens, instead of printing them");
  SamplingOptions& sampling = options->sampling;
  command->add_option("--max-tokens", sampling.max_tokens, "tokens to write for each prompt")
      ->check(whole_number_from(1))
      ->capture_default_str();
  command
      ->add_option("--temperature", sampling.temperature,
                   "divides the logits: below 1 likely tokens become likelier, above 1 less so")
      ->check(number_above(0))
      ->capture_default_str();
  command->add_option("--top-k", sampling.top_k, "draw from the K most likely tokens only; 0: from all")
      ->check(whole_number_from(0))
      ->capture_default_str();
  command
      ->add_option("--top-p", sampling.top_p,
                   "draw from the fewest most likely tokens whose probabilities add up to this")
      ->check(number_between(0, 1))
      ->capture_default_str();
  command->add_flag("--greedy", sampling.greedy, "take the most likely token, always");
  command->add_option("--seed", sampling.seed, "of the draws: the same seed writes the same text")
      ->capture_default_str();
  add_set_option(*command, options->config);
  add_device_options(*command, options->config);
  command->callback([options] { generate(*options); });
}

}  // namespace isobar
