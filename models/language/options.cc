#include "models/language/options.h"

#include <utility>

#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr double kMaxTokensOfSample = 1 << 20;
constexpr double kMaxVocabulary = 1 << 24;
constexpr double kMaxTextSamples = 4294967293;  // data/text/sample_index.h
constexpr double kMaxDataSeed = 4294967295;     // of numpy.random.RandomState
constexpr double kMaxEvaluation = 1 << 30;

}  // namespace

KeyTable TextOptions::keys() {
  return {
      "The text",
      {key("text_path", text_path, "file of text to train on, UTF-8").path().free_on_resume(),
       key("valid_text_path", valid_text_path,
           "file of text for the validation set; empty: the end of text_path, which is not trained on")
           .path()
           .free_on_resume(),
       key("test_text_path", test_text_path,
           "file of text that is scored once at the end of a run, with the best weights; empty: none")
           .path()
           .free_on_resume(),
       key("valid_fraction", valid_fraction,
           "how much of the characters of text_path is the validation set, where it has no file of its own")
           .fraction(),
       key("data_path", data_path,
           "token files (isobar data preprocess) to train on instead of text, without their endings: one, several, or "
           "several with a weight before each, as in [0.3, \"A\", 0.7, \"B\"]; split divides their documents")
           .path()
           .free_on_resume()
           .also_called({"dataprefix"}),
       key("split", split, "shares of the documents of data_path for training, validation and test"),
       key("split_rule", split_rule,
           "how the shares are rounded: legacy (Megatron-LM of 2022) or core (Megatron-LM since 2023)"),
       key("train_token_path", train_token_path, "token files to train on, where each set has its own; as data_path")
           .path()
           .free_on_resume(),
       key("valid_token_path", valid_token_path, "token files of the validation set; as data_path")
           .path()
           .free_on_resume(),
       key("test_token_path", test_token_path, "token files of the test set; as data_path; empty: no test set")
           .path()
           .free_on_resume(),
       key("mock_data", mock_data,
           "trains on documents that are made up, instead of files: each counts 1, 2, 3, ..., as Megatron-LM's mock "
           "data; a third of them is each set; the tokenizer needs at least 4,095 tokens and one that ends a document"),
       key("train_samples", train_samples,
           "samples of token files that are put in order for training; null: num_iters batches. A run that takes more "
           "begins again with the first one; a run that goes on may have another number if that leaves the order as "
           "it is")
           .within(1, kMaxTextSamples)
           .free_on_resume(),
       key("eval_iters", eval_iters,
           "batches that a validation and the test take, always the same (of a text the first ones, at most all); "
           "null: every sample; 0: there is neither. isobar evaluate judges every sample")
           .within(0, kMaxEvaluation)
           .free_on_resume(),
       key("data_seed", data_seed, "decides the order of token files; the same in Megatron-LM (its seed)")
           .within(0, kMaxDataSeed),
       key("eod_mask_loss", eod_mask_loss, "of token files: the token behind the end of a document is no target"),
       key("reset_position_ids", reset_position_ids,
           "of token files: positions begin at 0 behind the end of a document"),
       key("reset_attention_mask", reset_attention_mask, "of token files: a token sees those of its own document only"),
       key("tokenizer", tokenizer,
           "how text becomes tokens: characters (those of text_path, sorted; of token files, those of "
           "tokenizer_model), "
           "bytes, gpt2_bpe (the byte-pair encoding of GPT-2, from vocab_file and merge_file), or numbers (a text is "
           "numbers below vocab_size - 1; the last token ends a document)")
           .also_called({"tokenizertype"}),
       key("vocab_file", vocab_file, "vocab.json of gpt2_bpe").path().free_on_resume(),
       key("merge_file", merge_file, "merges.txt of gpt2_bpe").path().free_on_resume().also_called({"mergesfile"}),
       key("tokenizer_model", tokenizer_model,
           "of token files with the tokenizer characters: the table that isobar data preprocess made")
           .path()
           .free_on_resume(),
       key("seq_length", seq_length, "tokens of a sample")
           .within(1, kMaxTokensOfSample)
           .also_called({"sequencelength", "contextlength", "blocksize"}),
       key("vocab_size", vocab_size, "number of tokens; null: as many as the tokenizer has").within(1, kMaxVocabulary),
       key("loss_rows", loss_rows,
           "tokens whose logits a training pass makes at a time; 0: all at once, and keeps them; null: as many as take "
           "the memory of two blocks, and on a CPU at most 256")
           .within(0, kMaxTextSamples)
           .free_on_resume()},
      [this](const KeyOrigins& origins) {
        const bool is_gpt2 = tokenizer == TokenizerKind::gpt2_bpe;
        ISOBAR_CHECK(!is_gpt2 || (!vocab_file.empty() && !merge_file.empty()), origins.where("tokenizer"),
                     " gpt2_bpe needs vocab_file and merge_file");
        ISOBAR_CHECK(is_gpt2 || (vocab_file.empty() && merge_file.empty()),
                     origins.where(vocab_file.empty() ? "merge_file" : "vocab_file"), " means nothing to tokenizer ",
                     name_of_enum(tokenizer));
        check_sources(origins);
        check_filled("vocab_size", vocab_size.has_value(), origins);
      }};
}

void TextOptions::check_sources(const KeyOrigins& origins) const {
  ISOBAR_CHECK(tokenizer != TokenizerKind::numbers || vocab_size.value_or(0) >= 2, origins.where("tokenizer"),
               " numbers needs vocab_size: how many numbers there are, and one more, which ends a document");
  ISOBAR_CHECK(data_path.empty() || !has_paths_of_sets(), origins.where("data_path"),
               " and the paths of each set exclude each other");
  ISOBAR_CHECK(!mock_data || (data_path.empty() && !has_paths_of_sets()), origins.where("mock_data"),
               " takes the place of token files, but ", data_path.empty() ? "train_token_path" : "data_path",
               " names some");
  ISOBAR_CHECK(!has_paths_of_sets() || (!train_token_path.empty() && !valid_token_path.empty()),
               origins.where(train_token_path.empty() ? "train_token_path" : "valid_token_path"),
               " is empty; where sets have paths of their own, training and validation need one each");
  ISOBAR_CHECK(!reads_documents() || (valid_text_path.empty() && test_text_path.empty()),
               origins.where(valid_text_path.empty() ? "test_text_path" : "valid_text_path"),
               " means nothing to token files, which have their own sets");
  for (const auto& [name, is_set] :
       {std::pair("eod_mask_loss", eod_mask_loss), std::pair("reset_position_ids", reset_position_ids),
        std::pair("reset_attention_mask", reset_attention_mask)})
    ISOBAR_CHECK(reads_documents() || !is_set, origins.where(name), " needs token files; a text has no documents");
  const bool needs_table = reads_documents() && tokenizer == TokenizerKind::characters;
  ISOBAR_CHECK(
      !needs_table || !tokenizer_model.empty(), origins.where("tokenizer"),
      " characters needs tokenizer_model to read token files, the table that data preprocess made beside them; "
      "files of another tokenizer need its name");
  ISOBAR_CHECK(needs_table || tokenizer_model.empty(), origins.where("tokenizer_model"),
               " means nothing here; it is for token files of the tokenizer characters");
}

}  // namespace isobar
