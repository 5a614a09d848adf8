#include "models/language/options.h"

#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr double kMaxTokensOfSample = 1 << 20;
constexpr double kMaxVocabulary = 1 << 24;

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
       key("tokenizer", tokenizer,
           "how text becomes tokens: characters (those of text_path, sorted), bytes, or gpt2_bpe (the byte-pair "
           "encoding of GPT-2, from vocab_file and merge_file)")
           .also_called({"tokenizertype"}),
       key("vocab_file", vocab_file, "vocab.json of gpt2_bpe").path().free_on_resume(),
       key("merge_file", merge_file, "merges.txt of gpt2_bpe").path().free_on_resume().also_called({"mergesfile"}),
       key("seq_length", seq_length, "tokens of a sample")
           .within(1, kMaxTokensOfSample)
           .also_called({"sequencelength", "contextlength", "blocksize"}),
       key("vocab_size", vocab_size, "number of tokens; null: as many as the tokenizer has").within(1, kMaxVocabulary)},
      [this](const KeyOrigins& origins) {
        const bool is_gpt2 = tokenizer == TokenizerKind::gpt2_bpe;
        ISOBAR_CHECK(!is_gpt2 || (!vocab_file.empty() && !merge_file.empty()), origins.where("tokenizer"),
                     " gpt2_bpe needs vocab_file and merge_file");
        ISOBAR_CHECK(is_gpt2 || (vocab_file.empty() && merge_file.empty()),
                     origins.where(vocab_file.empty() ? "merge_file" : "vocab_file"), " means nothing to tokenizer ",
                     name_of_enum(tokenizer));
        check_filled("vocab_size", vocab_size.has_value(), origins);
      }};
}

}  // namespace isobar
