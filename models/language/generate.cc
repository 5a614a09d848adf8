#include "models/language/generate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "engine/tape.h"
#include "kernels/common/check.h"
#include "kernels/common/rng.h"
#include "kernels/cpu/isa.h"
#include "kernels/gemm/few_rows.h"
#include "models/key_value_cache.h"

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

// The tokens of a row of logits, the most likely first. A heap, since few of a large vocabulary are asked for.
class MostLikelyFirst {
 public:
  explicit MostLikelyFirst(std::span<const double> logits) : comes_later_{logits}, ids_(logits.size()) {
    std::iota(ids_.begin(), ids_.end(), 0);
    std::ranges::make_heap(ids_, comes_later_);
  }

  std::int32_t next() {
    std::ranges::pop_heap(ids_, comes_later_);
    const std::int32_t id = ids_.back();
    ids_.pop_back();
    return id;
  }

 private:
  // Of two equal logits the smaller id comes first.
  struct ComesLater {
    std::span<const double> logits;
    bool operator()(std::int32_t a, std::int32_t b) const {
      const double x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
      return x != y ? x < y : a > b;
    }
  };

  ComesLater comes_later_;
  std::vector<std::int32_t> ids_;
};

Tensor ids_on_device(const LanguageModel& model, const Shape& shape, std::span<const std::int32_t> ids) {
  Tensor tokens = Tensor::empty(shape, DType::i32, Device{});
  std::copy(ids.begin(), ids.end(), tokens.data_as<std::int32_t>());
  return tokens.to(model.device());
}

// Of the first tokens, in one row of logits.
std::vector<double> row_of(const Tensor& logits, std::int64_t row, std::int64_t tokens) {
  return logits.slice(row * logits.size(1), {tokens}).to_vector();
}

static_assert(kTextsAtOnce <= cpu::kFewRows);

// The number of texts that are computed at once. A product of this CPU gives a row the same bits in a matrix of any
// number of few rows. Where a library multiplies, the number of rows may decide how, so it is always the same.
std::int64_t rows_of_step(const LanguageModel& model, std::int64_t prompts) {
  const bool is_on_tiles =
      model.parameters().activation_dtype() == DType::bf16 && cpu::are_on_tiles(cpu::bf16_products());
  const bool is_own_product = model.device().kind == DeviceKind::cpu && !is_on_tiles;
  return is_own_product ? std::min(prompts, kTextsAtOnce) : kTextsAtOnce;
}

// Continues prompts, kTextsAtOnce of them at a time: where a text has ended, the next prompt begins in its place.
class Writing {
 public:
  Writing(const LanguageModel& model, std::vector<std::vector<std::int32_t>> prompts, const SamplingOptions& options,
          std::int32_t eod, std::int64_t tokens)
      : model_(model),
        options_(options),
        eod_(eod),
        tokens_(tokens),
        window_(model.info().seq_length),
        texts_(std::move(prompts)),
        cache_(rows_of_step(model, std::ssize(texts_)), room_for(texts_, options.max_tokens), model.device()),
        slots_(static_cast<std::size_t>(cache_.texts()), kFree) {
    for (const auto& text : texts_) lengths_.push_back(std::ssize(text));
  }

  std::vector<std::vector<std::int32_t>> all() {
    const TapeScope off(nullptr);
    begin_in_free_slots();
    while (std::ranges::any_of(slots_, [](std::int64_t text) { return text >= 0; })) {
      step();
      slide();
      begin_in_free_slots();
    }
    return std::move(texts_);
  }

 private:
  std::int64_t room_for(const std::vector<std::vector<std::int32_t>>& prompts, std::int64_t max_tokens) const {
    std::int64_t longest = 0;
    for (const auto& prompt : prompts) longest = std::max(longest, std::ssize(prompt));
    return std::min(window_, longest + max_tokens);
  }

  std::vector<std::int32_t>& text_in(std::size_t slot) { return texts_[static_cast<std::size_t>(slots_[slot])]; }
  bool fits(std::size_t slot) { return slots_[slot] >= 0 && std::ssize(text_in(slot)) <= window_; }

  // Draws the next token of the text in a slot, which is free where the text ends with it.
  void append(std::size_t slot, const Tensor& logits, std::int64_t row) {
    const std::int64_t number = slots_[slot];
    std::vector<std::int32_t>& text = text_in(slot);
    const std::int64_t written = std::ssize(text) - lengths_[static_cast<std::size_t>(number)];
    text.push_back(next_token(row_of(logits, row, tokens_), options_, number, written));
    if (text.back() == eod_ || written + 1 == options_.max_tokens) slots_[slot] = kFree;
  }

  void begin_in_free_slots() {
    for (std::size_t slot = 0; slot < slots_.size(); ++slot)
      while (slots_[slot] == kFree && next_ < std::ssize(texts_)) {
        slots_[slot] = next_++;
        cache_.begin(static_cast<std::int64_t>(slot));
        const std::vector<std::int32_t>& text = text_in(slot);
        append(slot, model_.logits(ids_on_device(model_, {1, std::ssize(text)}, text), Pass::continuing(cache_)), 0);
      }
  }

  // One token of every text that the cache holds whole.
  void step() {
    std::vector<std::int32_t> ids(slots_.size()), positions(slots_.size(), -1);
    std::vector<std::size_t> taken;
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      if (!fits(slot)) continue;
      taken.push_back(slot);
      ids[slot] = text_in(slot).back();
      positions[slot] = static_cast<std::int32_t>(std::ssize(text_in(slot)) - 1);
    }
    for (std::size_t slot = 0; slot < slots_.size(); ++slot)
      if (slots_[slot] >= 0 && positions[slot] < 0) sliding_.push_back(slot);
    if (taken.empty()) return;
    cache_.begin_step(positions);
    const cpu::FewRowsScope few_rows;
    const Tensor logits =
        model_.logits(ids_on_device(model_, {std::ssize(ids), 1}, ids), Pass::continuing(cache_)).to(Device{});
    for (const std::size_t slot : taken) append(slot, logits, static_cast<std::int64_t>(slot));
  }

  // One token of every text that is longer than the window: a pass over its last tokens.
  void slide() {
    for (const std::size_t slot : std::exchange(sliding_, {})) {
      const auto seen = std::span<const std::int32_t>(text_in(slot)).last(static_cast<std::size_t>(window_));
      append(slot, model_.logits(ids_on_device(model_, {1, window_}, seen)), window_ - 1);
    }
  }

  static constexpr std::int64_t kFree = -1;

  const LanguageModel& model_;
  const SamplingOptions& options_;
  const std::int32_t eod_;
  const std::int64_t tokens_;  // that may be drawn
  const std::int64_t window_;
  std::vector<std::vector<std::int32_t>> texts_;
  std::vector<std::int64_t> lengths_;  // of the prompts
  KeyValueCache cache_;
  std::vector<std::int64_t> slots_ = {};  // the text in each place of the cache
  std::vector<std::size_t> sliding_;      // slots whose texts do not fit
  std::int64_t next_ = 0;                 // the next prompt to begin
};

}  // namespace

std::int32_t next_token(std::span<const double> logits, const SamplingOptions& options, std::int64_t prompt,
                        std::int64_t position) {
  for (const double logit : logits)
    ISOBAR_CHECK(logit < std::numeric_limits<double>::infinity(), "a logit of token ", position, " is ", logit);
  const auto first = std::ranges::max_element(logits);  // of equal ones that of the smallest id
  const double max = *first;
  ISOBAR_CHECK(std::isfinite(max), "no logit of token ", position, " is finite");
  if (options.greedy) return static_cast<std::int32_t>(first - logits.begin());
  MostLikelyFirst tokens(logits);
  const auto weight = [&](double logit) { return std::exp((logit - max) / options.temperature); };

  // The tokens that may be drawn, as far as they are needed: all of them weigh `all`.
  std::vector<std::int32_t> ids;
  std::vector<double> weights;
  const auto take = [&] {
    ids.push_back(tokens.next());
    weights.push_back(weight(logits[static_cast<std::size_t>(ids.back())]));
    return weights.back();
  };
  double all = 0;
  std::size_t kept = logits.size();
  if (options.top_k > 0) {
    kept = std::min(kept, static_cast<std::size_t>(options.top_k));
    while (ids.size() < kept) all += take();
  } else {
    for (const double logit : logits) all += weight(logit);
  }
  if (options.top_p < 1) {
    double sum = 0;
    std::size_t count = 0;
    while (count < kept && (count == 0 || sum < options.top_p * all)) {
      if (count == ids.size()) take();
      sum += weights[count++];
    }
    kept = count;
    all = sum;
  }

  const double drawn = draw_of_token(options.seed, prompt, position) * all;
  double passed = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    if (i == ids.size()) take();
    passed += weights[i];
    if (drawn < passed) return ids[i];
  }
  return ids[kept - 1];
}

std::vector<std::vector<std::int32_t>> continue_texts(const LanguageModel& model,
                                                      std::vector<std::vector<std::int32_t>> prompts,
                                                      const SamplingOptions& options, std::int32_t eod,
                                                      std::int64_t tokens) {
  const std::int64_t vocabulary = model.info().vocabulary;
  ISOBAR_CHECK(tokens >= 0 && tokens <= vocabulary, "the tokenizer has ", tokens, " tokens, and the model knows ",
               vocabulary);
  const std::int64_t window = model.info().seq_length;
  for (const auto& prompt : prompts) {
    ISOBAR_CHECK(!prompt.empty(), "a prompt needs at least one token");
    ISOBAR_CHECK(std::ssize(prompt) <= window, "a prompt of ", prompt.size(), " tokens is longer than the ", window,
                 " that the model was trained on");
  }
  if (prompts.empty() || options.max_tokens == 0) return prompts;
  return Writing(model, std::move(prompts), options, eod, tokens > 0 ? tokens : vocabulary).all();
}

}  // namespace isobar
