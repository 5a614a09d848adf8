#include "models/language/generate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/tape.h"
#include "kernels/common/check.h"
#include "kernels/common/rng.h"

namespace isobar {
namespace {

// Uniform in [0, 1) with 53 bits.
double draw_of_token(std::uint64_t seed, std::int64_t prompt, std::int64_t position) {
  const auto bits = [&](std::uint64_t which) {
    return std::uint64_t{
        random_bits(seed, static_cast<std::uint64_t>(prompt), 2 * static_cast<std::uint64_t>(position) + which)};
  };
  return static_cast<double>((bits(0) << 32 | bits(1)) >> 11) * 0x1p-53;
}

// The ids of the `count` largest logits, the largest first.
std::vector<std::int32_t> most_likely(std::span<const double> logits, std::int64_t count) {
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto comes_first = [&](std::int32_t a, std::int32_t b) {
    const double x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), comes_first);
  ids.resize(static_cast<std::size_t>(count));
  return ids;
}

// Of the last token of a sample.
std::vector<double> last_logits(const LanguageModel& model, std::span<const std::int32_t> ids) {
  const TapeScope off(nullptr);
  const auto count = static_cast<std::int64_t>(ids.size());
  Tensor tokens = Tensor::empty({1, count}, DType::i32, Device{});
  std::copy(ids.begin(), ids.end(), tokens.data_as<std::int32_t>());
  const Tensor logits = model.logits(tokens.to(model.device()));
  const std::int64_t columns = logits.size(1);
  return logits.slice((count - 1) * columns, {model.info().vocabulary}).to_vector();
}

}  // namespace

std::int32_t next_token(std::span<const double> logits, const SamplingOptions& options, std::int64_t prompt,
                        std::int64_t position) {
  for (const double logit : logits)
    ISOBAR_CHECK(logit < std::numeric_limits<double>::infinity(), "a logit of token ", position, " is ", logit);
  const auto tokens = static_cast<std::int64_t>(logits.size());
  const std::int64_t kept = options.greedy ? 1 : options.top_k > 0 ? std::min(options.top_k, tokens) : tokens;
  const std::vector<std::int32_t> ids = most_likely(logits, kept);
  const double max = logits[static_cast<std::size_t>(ids[0])];
  ISOBAR_CHECK(std::isfinite(max), "no logit of token ", position, " is finite");
  if (options.greedy) return ids[0];

  std::vector<double> p;
  for (const std::int32_t id : ids)
    p.push_back(std::exp((logits[static_cast<std::size_t>(id)] - max) / options.temperature));
  const double all = std::accumulate(p.begin(), p.end(), 0.0);
  double sum = 0;
  std::size_t count = 0;
  while (count < p.size() && (count == 0 || sum < options.top_p * all)) sum += p[count++];

  const double drawn = draw_of_token(options.seed, prompt, position) * sum;
  double passed = 0;
  for (std::size_t i = 0; i + 1 < count; ++i) {
    passed += p[i];
    if (drawn < passed) return ids[i];
  }
  return ids[count - 1];
}

std::vector<std::int32_t> continue_text(const LanguageModel& model, std::vector<std::int32_t> prompt,
                                        std::int64_t number, const SamplingOptions& options, std::int32_t eod) {
  const auto window = static_cast<std::size_t>(model.info().seq_length);
  ISOBAR_CHECK(!prompt.empty(), "a prompt needs at least one token");
  ISOBAR_CHECK(prompt.size() <= window, "a prompt of ", prompt.size(), " tokens is longer than the ", window,
               " that the model was trained on");
  std::vector<std::int32_t> text = std::move(prompt);
  for (std::int64_t position = 0; position < options.max_tokens; ++position) {
    const std::span<const std::int32_t> seen = std::span(text).last(std::min(window, text.size()));
    text.push_back(next_token(last_logits(model, seen), options, number, position));
    if (text.back() == eod) break;
  }
  return text;
}

}  // namespace isobar
