// The recipe of language models: files of text or token files, perplexity, bits per byte.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/language/language_model.h"
#include "models/language/options.h"
#include "models/language/sets.h"
#include "models/recipe.h"

namespace isobar {

class LanguageRecipe : public Recipe {
 public:
  explicit LanguageRecipe(std::shared_ptr<NetworkRecipe> network) : network_(std::move(network)) {}

  TextOptions text;

  std::vector<KeyTable> keys() override;
  // --data is a file of text, or a token file without its ending.
  std::vector<std::pair<std::string, std::filesystem::path>> paths_in(const std::filesystem::path& file) const override;
  // Of a text: those of token files, and of token files: the paths of each set. To be judged, data has neither files of
  // other sets beside it nor, if it is a text, documents.
  std::vector<std::string> keys_replaced_by(const std::string& key, bool judged) const override;
  std::unique_ptr<OpenedRecipe> open(KeyOrigins& origins, const OpenRequest& request) override;
  // vocab_size where the tokenizer has always as many, and the network's keys that follow from it and seq_length.
  void fill_without_data(KeyOrigins& origins) override;
  std::unique_ptr<OpenedSplit> open_split(DataSplit split, const GivenWeights& weights) const override;
  // Error if vocab_size is left to the data. With reset_attention_mask token files are read, if they are there: they
  // tell how much attention has to do.
  std::unique_ptr<TaskSource> on_shapes() const override;
  // The model that given weights are to be read into; no text is opened. Every key has a value.
  std::unique_ptr<LanguageModel> trained_model(const GivenWeights& weights, const ComputeOptions& compute,
                                               Device device) const;

 private:
  std::string fill(const Tokenizer& tokenizer, KeyOrigins& origins);
  std::int64_t judged_samples(std::int64_t global_batch_size) const;
  std::array<std::int64_t, 3> samples_of_sets(KeyOrigins& origins, const OpenRequest& request);

  std::shared_ptr<NetworkRecipe> network_;
};

class OpenedLanguage : public OpenedRecipe {
 public:
  OpenedLanguage(std::shared_ptr<const NetworkRecipe> network, LanguageSets sets, TextInfo info,
                 std::vector<std::string> sentences);

  const Dataset& train() const override { return *sets_.of(DataSplit::train); }
  const Dataset& valid() const override { return *sets_.of(DataSplit::valid); }
  const Dataset* test() const override { return sets_.of(DataSplit::test); }
  std::vector<std::string> sentences() const override { return sentences_; }
  std::vector<std::string> notes() const override { return sets_.notes; }
  // Writes the table of characters, characters.json, of a tokenizer that has one.
  void keep(const std::filesystem::path& kept) const override;
  void check_start(const GivenWeights& weights) const override;
  void check_resume(const GivenWeights& weights) const override;
  std::unique_ptr<Task> make_task(const ComputeOptions& compute, Device device,
                                  const Parallel& parallel) const override;
  std::unique_ptr<Task> make_trained_task(const GivenWeights& weights, const ComputeOptions& compute, Device device,
                                          const Parallel& parallel) const override;

 private:
  const std::shared_ptr<const NetworkRecipe> network_;
  const LanguageSets sets_;
  const TextInfo info_;
  const std::vector<std::string> sentences_;
};

class OpenedLanguageSplit : public OpenedSplit {
 public:
  OpenedLanguageSplit(std::shared_ptr<const NetworkRecipe> network, const TextOptions& options, DataSplit split,
                      const GivenWeights& weights);

  const Dataset& samples() const override { return *samples_; }
  std::string note() const override { return note_; }
  std::unique_ptr<Task> make_task(const ComputeOptions& compute, Device device) const override;

 private:
  const std::shared_ptr<const NetworkRecipe> network_;
  TextInfo info_;
  std::string note_;
  std::unique_ptr<const Dataset> samples_;
};

std::unique_ptr<Recipe> make_language_recipe(std::shared_ptr<NetworkRecipe> network);

// The tokenizer that weights were trained with; the config names the files of gpt2_bpe. Error if these are others.
std::unique_ptr<Tokenizer> tokenizer_of(const TextOptions& options, const TextInfo& trained);

}  // namespace isobar
