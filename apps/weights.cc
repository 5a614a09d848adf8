// isobar weights convert: the weights of a GPT under the names of other programs.
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/config_options.h"
#include "apps/outputs.h"
#include "apps/train/model_file.h"
#include "apps/train/run_folder.h"
#include "kernels/common/check.h"
#include "models/gpt/foreign_weights.h"
#include "models/language/language_model.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

const std::map<std::string, GptNames> kNamesOfGpt{
    {"isobar", GptNames::isobar}, {"nanogpt", GptNames::nanogpt}, {"hf", GptNames::huggingface}};

struct ConvertFlags {
  std::string in, out, to;
  std::optional<std::int64_t> rows;
};

const char* name_of_names(GptNames names) {
  return names == GptNames::isobar ? "isobar" : names == GptNames::nanogpt ? "nanoGPT" : "Hugging Face";
}

// The rows that the table of tokens is to have: those of the flag; for other programs, as many as there are tokens.
// None: as they are.
std::optional<std::int64_t> rows_of(const ConvertFlags& o, const SafetensorsFile& file, GptNames to) {
  if (o.rows || to == GptNames::isobar || !describes_text(file.metadata())) return o.rows;
  return text_info_from(file.metadata()).vocabulary;
}

void convert(const ConvertFlags& o) {
  const SafetensorsFile file(weights_at(o.in));
  const GptNames from = names_of_gpt(file), to = kNamesOfGpt.at(o.to);
  check_output("--out", o.out, {.weights = file.path(), .data = {}, .statistics = {}});
  OwnedTensors weights = gpt_to_isobar(file);
  if (const auto rows = rows_of(o, file, to)) set_vocabulary_rows(weights, *rows);
  const OwnedTensors converted = gpt_from_isobar(weights, to);
  std::vector<TensorBytes> tensors;
  for (const auto& [name, tensor] : converted) tensors.push_back({tensor.info, tensor.bytes});
  write_safetensors(o.out, tensors, {{"format", "pt"}});
  std::cout << o.in << ": names of " << name_of_names(from) << "; " << o.out << ": " << tensors.size()
            << " tensors with the names of " << name_of_names(to) << std::endl;
}

}  // namespace

void register_weights(CLI::App& app) {
  CLI::App* weights = app.add_subcommand("weights", "Weights of other programs");
  weights->require_subcommand(1);
  auto options = std::make_shared<ConvertFlags>();
  CLI::App* command = weights->add_subcommand("convert", "Give the weights of a GPT other names");
  command->add_option("--in", options->in, "FILE.safetensors, or a run's folder (its best weights)")->required();
  command->add_option("--out", options->out, "FILE.safetensors to write")->required();
  command->add_option("--to", options->to, "whose names: isobar (for train --init), nanogpt, hf (Hugging Face)")
      ->required()
      ->check(CLI::IsMember({"isobar", "nanogpt", "hf"}));
  command
      ->add_option("--rows", options->rows,
                   "rows that the table of tokens is to have: fewer cut the last ones, more add zeros; default: to "
                   "other programs as many as there are tokens, where isobar's file says so")
      ->check(whole_number_from(1));
  command->callback([options] { convert(*options); });
}

}  // namespace isobar
