// Text that a language model writes, token by token.
//
//   p = softmax(logits / temperature) of the tokens that are kept: the top_k most likely, and of these the fewest whose
//   p add up to at least top_p. The next token is drawn from p; greedy: the most likely one.
//
// Of tokens with equal logits the one of the smaller id comes first. Probabilities are computed in fp64 on the host. A
// draw depends on (seed, number of the prompt, number of the token) alone. Each prompt is continued by itself: its text
// does not depend on the other prompts.
#pragma once

#include <cstdint>
#include <functional>
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

// Appends up to max_tokens tokens to a prompt; ends behind the token `eod` (-1: none). The model sees the last
// seq_length tokens. Error for an empty prompt, and for one that is longer than seq_length.
std::vector<std::int32_t> continue_text(const LanguageModel& model, std::vector<std::int32_t> prompt,
                                        std::int64_t number, const SamplingOptions& options, std::int32_t eod);

}  // namespace isobar
