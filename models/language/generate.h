// Text that a language model writes, token by token.
//
//   p = softmax(logits / temperature) of the tokens that are kept: the top_k most likely, and of these the fewest whose
//   p add up to at least top_p. The next token is drawn from p; greedy: the most likely one.
//
// Of tokens with equal logits the one of the smaller id comes first. Probabilities are computed in fp64 on the host. A
// draw depends on (seed, number of the prompt, number of the token) alone.
//
// Several texts are written at once, a token of each in a pass, over a cache of keys and values (models/
// key_value_cache.h). A text does not depend on the others: its rows have the same bits in a pass of any number of
// texts. Once a text is longer than what the model sees, its window slides, so that every position changes and nothing
// that was kept is of use: from there on each of its tokens is a whole pass.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/language/language_model.h"

namespace isobar {

struct SamplingOptions {
  std::int64_t max_tokens = 200;
  double temperature = 1;
  std::int64_t top_k = 0;  // 0: all
  double top_p = 1;
  bool greedy = false;
  std::uint64_t seed = 0;
};

// The token that follows, of one row of logits. Error if no logit is finite, or one is NaN or +infinity.
std::int32_t next_token(std::span<const double> logits, const SamplingOptions& options, std::int64_t prompt,
                        std::int64_t position);

// The most texts that are written at once; as many caches are held.
inline constexpr std::int64_t kTextsAtOnce = 8;

// Appends up to max_tokens tokens to each prompt; a text ends behind the token `eod` (-1: none). The model sees the
// last seq_length tokens. Only ids below `tokens` are drawn: those of the tokenizer, since the rest of the vocabulary
// stands for no text (the padded rows of a table count as vocabulary in weights of other programs); 0: any. Error,
// before anything is computed, for an empty prompt and for one that is longer than seq_length.
std::vector<std::vector<std::int32_t>> continue_texts(const LanguageModel& model,
                                                      std::vector<std::vector<std::int32_t>> prompts,
                                                      const SamplingOptions& options, std::int32_t eod,
                                                      std::int64_t tokens = 0);

}  // namespace isobar
