// Texts into token files, as Megatron's preprocess_data.py makes them, in memory that does not grow with the corpus.
//
// One thread reads, several encode blocks of documents, one writes them in their order: so the files do not depend on
// the number of workers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/text/text_files.h"
#include "data/text/token_facts.h"
#include "data/text/token_writer.h"
#include "data/text/tokenizer.h"

namespace isobar {

enum class InvalidText : bool { refused, replaced };  // what is not UTF-8: an error, or U+FFFD

struct PreprocessOptions {
  TextFilesOptions input = {};
  std::vector<std::string> keys = {"text"};  // of JSON lines: a token file each
  std::string output_prefix = {};            // token files are PREFIX_KEY_document
  TokenizerOptions tokenizer = {};           // characters without a model: the table is made, PREFIX_characters.json
  bool append_eod = false;
  InvalidText invalid = InvalidText::refused;
  ExistingFile existing = ExistingFile::refused;
  int workers = 1;
  std::int64_t log_interval = 0;  // documents between two lines of progress; 0: none
};

struct PreprocessedFile {
  std::string prefix = {};
  TokenFacts facts = {};
};

struct PreprocessReport {
  std::vector<PreprocessedFile> files = {};          // one for each key
  std::int64_t replaced = 0;                         // U+FFFD in place of what was not UTF-8
  std::int64_t special_texts = 0;                    // texts that look like special tokens, and stayed text
  std::vector<std::string> files_without_text = {};  // of the inputs: no document of theirs has any
  std::vector<std::string> like_json = {};           // of plain inputs: those that look like JSON lines
  bool is_separated = true;                          // false: the separator divides none of the files
};

// Prints lines of progress by `say`. Error naming file and line of a document at fault, and the key under which no
// document has a text; then nothing is left under the names of the token files.
PreprocessReport preprocess(const PreprocessOptions& options, const std::function<void(const std::string&)>& say);

}  // namespace isobar
