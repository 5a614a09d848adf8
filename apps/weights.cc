// isobar weights convert: the weights of a GPT under the names of other programs.
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/commands.h"
#include "apps/config_options.h"
#include "apps/given_weights.h"
#include "apps/outputs.h"
#include "apps/train/model_file.h"
#include "apps/train/run_folder.h"
#include "engine/files/atomic_file.h"
#include "engine/files/huggingface_folder.h"
#include "kernels/common/check.h"
#include "models/gpt/foreign_weights.h"
#include "models/gpt/huggingface.h"
#include "models/gpt/recipe.h"
#include "models/language/recipe.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

const std::map<std::string, GptNames> kNamesOfGpt{{"isobar", GptNames::isobar},
                                                  {"nanogpt", GptNames::nanogpt},
                                                  {"hf", GptNames::huggingface},
                                                  {"megatron-core", GptNames::megatron}};

struct ConvertFlags {
  std::string in, out, to;
  std::optional<std::int64_t> rows, heads;
  ConfigOptions config;
};

const char* name_of_names(GptNames names) {
  switch (names) {
    case GptNames::isobar:
      return "isobar";
    case GptNames::nanogpt:
      return "nanoGPT";
    case GptNames::huggingface:
      return "Hugging Face";
    case GptNames::megatron:
      return "Megatron-LM's core";
  }
  throw_error("no such names");
}

// Those of the flag, or of the config that isobar's file has; 0: not known.
std::int64_t heads_of(const ConvertFlags& o, const fs::path& file) {
  if (o.heads) return *o.heads;
  if (fs::is_directory(file)) return 0;
  const nlohmann::ordered_json heads = stored_config(file).value("num_heads", nlohmann::ordered_json());
  return heads.is_number_integer() ? heads.get<std::int64_t>() : 0;
}

// The rows that the table of tokens is to have: those of the flag; for other programs, as many as there are tokens.
// None: as they are.
std::optional<std::int64_t> rows_of(const ConvertFlags& o, const Metadata& metadata, GptNames to) {
  if (o.rows || to == GptNames::isobar || !describes_text(metadata)) return o.rows;
  return text_info_from(metadata).vocabulary;
}

void write_tensors(const fs::path& path, const OwnedTensors& weights) {
  std::vector<TensorBytes> tensors;
  for (const auto& [name, tensor] : weights) tensors.push_back({tensor.info, tensor.bytes});
  write_safetensors(path, tensors, {{"format", "pt"}});
}

void convert_to_file(const ConvertFlags& o, ForeignWeights foreign, GptNames to) {
  const std::int64_t heads = heads_of(o, foreign.path);
  const GptNames from = names_of_gpt(foreign);
  const std::optional<std::int64_t> rows = rows_of(o, foreign.metadata, to);
  OwnedTensors weights = gpt_to_isobar(std::move(foreign), heads);
  if (rows) set_vocabulary_rows(weights, *rows);
  const OwnedTensors converted = gpt_from_isobar(weights, to, heads);
  write_tensors(o.out, converted);
  std::cout << o.in << ": names of " << name_of_names(from) << "; " << o.out << ": " << converted.size()
            << " tensors with the names of " << name_of_names(to)
            << (to == GptNames::isobar ? ", for isobar train --init; without a config and a tokenizer" : "")
            << std::endl;
}

// The tokenizer's files, if transformers has such a tokenizer. Returns what there is, for people.
std::string write_tokenizer(const fs::path& folder, const TextOptions& text, const Tokenizer& tokenizer,
                            std::int64_t positions) {
  if (tokenizer.type() != "gpt2_bpe")
    return "no tokenizer, since transformers has none for the tokenizer " + tokenizer.type();
  const std::vector<std::int32_t> eod{tokenizer.specials().eod};
  write_huggingface_tokenizer(folder, text.vocab_file, text.merge_file, tokenizer.decode(eod), positions);
  return "the tokenizer's files";
}

// A whole folder for transformers: of weights that isobar has trained, since their config says what they are.
void convert_to_folder(const ConvertFlags& o, const fs::path& file) {
  ISOBAR_CHECK(!o.rows, "--rows is for a file; in a folder of Hugging Face the table has as many rows as tokens");
  ISOBAR_CHECK(!fs::exists(o.out) || (fs::is_directory(o.out) && fs::is_empty(o.out)), "--out ", o.out,
               " exists already; a folder of Hugging Face is written to a new place");
  ModelDescription description = describe_model(file);
  RunConfig config = config_of_weights(o.in, description, "", o.config.assignments);
  const auto* recipe = dynamic_cast<const LanguageRecipe*>(config.recipe.get());
  const auto* network = dynamic_cast<const GptRecipe*>(config.network.get());
  ISOBAR_CHECK(recipe != nullptr && network != nullptr, o.in, " is of the task ", config.task, " and the network ",
               config.model, "; a folder of Hugging Face is written of a language_model that is a gpt");
  const TextInfo info = text_info_from(description.weights.settings);
  const GptConfig gpt = network->gpt.config(language_ports(info));
  ForeignWeights foreign = read_foreign_weights(file);
  const DType dtype = foreign.tensors.begin()->second.info.dtype;
  OwnedTensors weights = gpt_to_isobar(std::move(foreign));
  set_vocabulary_rows(weights, gpt.pads_count ? gpt.columns : gpt.vocabulary);
  add_zero_biases(weights);

  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(recipe->text, info);
  const std::string described = huggingface_config(gpt, dtype, tokenizer->specials().eod).dump(2) + "\n";
  fs::create_directories(o.out);
  const std::string about_tokenizer = write_tokenizer(o.out, recipe->text, *tokenizer, gpt.positions);
  write_file_atomically(fs::path(o.out) / kHuggingFaceConfig, described);
  const OwnedTensors converted = gpt_from_isobar(weights, GptNames::huggingface);
  write_tensors(fs::path(o.out) / kHuggingFaceWeights, converted);
  std::cout << o.out << ": a folder for GPT2LMHeadModel.from_pretrained, with " << converted.size() << " tensors and "
            << about_tokenizer << std::endl;
}

void convert(const ConvertFlags& o) {
  const fs::path file = weights_at(o.in);
  const GptNames to = kNamesOfGpt.at(o.to);
  if (to == GptNames::huggingface && fs::path(o.out).extension() != ".safetensors") return convert_to_folder(o, file);
  check_output("--out", o.out, {.weights = file, .data = {}, .statistics = {}});
  ISOBAR_CHECK(o.config.assignments.empty(), "--set is for a folder of Hugging Face (--to hf --out FOLDER)");
  convert_to_file(o, read_foreign_weights(file), to);
}

}  // namespace

void register_weights(CLI::App& app) {
  CLI::App* weights = app.add_subcommand("weights", "Weights of other programs");
  weights->require_subcommand(1);
  auto options = std::make_shared<ConvertFlags>();
  CLI::App* command = weights->add_subcommand("convert", "Give the weights of a GPT other names");
  command
      ->add_option("--in", options->in,
                   "FILE.safetensors, a run's folder (its best weights), or a folder of Hugging Face")
      ->required();
  command
      ->add_option("--out", options->out,
                   "FILE.safetensors to write; with --to hf also a new FOLDER, with config.json and the tokenizer")
      ->required();
  command
      ->add_option("--to", options->to,
                   "whose names: isobar (for train --init), nanogpt, hf (Hugging Face), megatron-core")
      ->required()
      ->check(CLI::IsMember({"isobar", "nanogpt", "hf", "megatron-core"}));
  command
      ->add_option("--rows", options->rows,
                   "rows that the table of tokens is to have: fewer cut the last ones, more add zeros; default: to "
                   "other programs as many as there are tokens, where isobar's file says so")
      ->check(whole_number_from(1));
  command
      ->add_option("--heads", options->heads,
                   "attention heads, by which Megatron-LM orders rows; default: those that isobar's file says")
      ->check(whole_number_from(1));
  add_set_option(*command, options->config);
  command->callback([options] { convert(*options); });
}

}  // namespace isobar
