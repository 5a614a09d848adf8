// The sets of a language model, from files of text or from token files, and the tokenizer of both.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/text/tokenizer.h"
#include "models/language/options.h"

namespace isobar {

struct LanguageSets {
  std::array<std::unique_ptr<const Dataset>, 3> sets =
      {};                               // by DataSplit; null: there is none, or it was not asked for
  std::string trained_on = {};          // checksum of the tokens of the training set
  std::string trained_on_counted = {};  // of documents: TextData::trained_on_counted
  std::string order = {};               // of documents: TextData::order, and most_samples
  std::int64_t most_samples = 0;
  std::vector<std::string> notes = {};  // lines for the log

  const Dataset* of(DataSplit split) const { return sets[static_cast<std::size_t>(split)].get(); }
};

// The file of text that is trained on. Error naming the place where it is not UTF-8.
std::string read_training_text(const TextOptions& options);

// The tokenizer that the options name. text: of read_training_text, whose characters are those of the tokenizer
// `characters`; not used with token files.
std::unique_ptr<Tokenizer> tokenizer_for(const TextOptions& options, const std::string& text);

// The files of the tokenizer that the options name; of a kind.
TokenizerOptions tokenizer_options(const TextOptions& options);

// All sets that the config names, of text; of those that judge the first `judged` samples, all (kAllSamples), or none
// (0: they are not opened).
LanguageSets open_texts(const TextOptions& options, const std::string& text, const Tokenizer& tokenizer,
                        std::int64_t judged);
// One set. Error if the config names no such set.
std::unique_ptr<const Dataset> open_text(const TextOptions& options, DataSplit split, const Tokenizer& tokenizer);

// The sets of token files of which samples are asked for (TextDataOptions::samples). A test set is lacking where split
// gives it no whole sample. Error with the numbers for other sets without documents, for a blend that is too small, and
// for files of another tokenizer.
LanguageSets open_token_files(const TextOptions& options, const Tokenizer& tokenizer,
                              const std::array<std::int64_t, 3>& samples);

}  // namespace isobar
