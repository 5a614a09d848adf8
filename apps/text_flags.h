// The flags that choose a tokenizer, as Megatron names them.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>

#include "data/text/tokenizer.h"

namespace isobar {

// Adds --tokenizer-type, --vocab-file, --merge-file, --tokenizer-model, --eod-token and --vocab-size.
void add_tokenizer_flags(CLI::App& command, TokenizerOptions& options);

// Whether one of them was given.
bool has_tokenizer_flags(const CLI::App& command);

// isobar data preprocess, tokens, merge, index, import.
void register_text_commands(CLI::App& data);

}  // namespace isobar
