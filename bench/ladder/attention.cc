// The list of attention's rungs, and their bounds. A score errs by the rounding of a sum of 48 products (in tf32 of its
// operands besides) and by that of the argument of its exponential; an error e of scores makes a relative one of e in P
// and in its sum. P·V is a sum of as many terms as there are tokens, whose P and V tf32 rounds once more.
#include "bench/ladder/attention.h"

#include <algorithm>
#include <cmath>

#include "bench/ladder/ladder.h"
#include "kernels/attention/attention.h"
#include "kernels/common/check.h"
#include "kernels/common/run.h"

namespace isobar {
namespace {

std::vector<RungOf<AttentionRungArgs>> attention_rungs() {
  std::vector<RungOf<AttentionRungArgs>> rungs = {{"stored", DeviceKind::cpu, cpu::attention_stored},
                                                  {"online", DeviceKind::cpu, cpu::attention_online},
                                                  {"blocks", DeviceKind::cpu, cpu::attention_blocks},
                                                  {"tiled", DeviceKind::cpu, cpu::attention_tiled},
                                                  {"threaded", DeviceKind::cpu, cpu::attention_threaded}};
  if constexpr (ISOBAR_HAS_EMULATOR) {
    rungs.push_back({"stored", DeviceKind::emulator, emulator::attention_stored});
    rungs.push_back({"online", DeviceKind::emulator, emulator::attention_online});
    rungs.push_back({"shared", DeviceKind::emulator, emulator::attention_shared});
    rungs.push_back({"tensor", DeviceKind::emulator, emulator::attention_tensor, Accuracy::tf32});
  }
  if constexpr (ISOBAR_HAS_CUDA) {
    rungs.push_back({"stored", DeviceKind::cuda, cuda::attention_stored});
    rungs.push_back({"online", DeviceKind::cuda, cuda::attention_online});
    rungs.push_back({"shared", DeviceKind::cuda, cuda::attention_shared});
    rungs.push_back({"tensor", DeviceKind::cuda, cuda::attention_tensor, Accuracy::tf32});
  }
  return rungs;
}

class AttentionLadder : public Ladder {
 public:
  AttentionLadder(std::int64_t heads, std::int64_t tokens) : heads_(heads), tokens_(tokens) {}

  std::string title() const override {
    return concat("attention forward, ", heads_, heads_ == 1 ? " head" : " heads", " of 48 channels, ", tokens_,
                  " tokens, fp32");
  }
  Cost cost() const override {
    return attention_fwd_cost(AttentionFwdArgs{.shape = {1, heads_, tokens_, tokens_, kRungHead}, .dropout = {}});
  }
  double exponentials() const override { return static_cast<double>(heads_ * tokens_) * tokens_; }
  // Numbers within 3 make scores whose softmax has large and small parts.
  std::vector<LadderArray> arrays() const override {
    const std::int64_t rows = heads_ * tokens_;
    return {{rows * kRungHead, -3, 3},         {rows * kRungHead, -3, 3},
            {rows * kRungHead, -1, 1},         {.size = rows * kRungHead, .is_output = true},
            {.size = rows, .is_output = true}, {rows * tokens_}};  // room for the scores
  }
  std::vector<Rung> rungs() const override {
    return bound_rungs(attention_rungs(),
                       [ladder = *this](const LadderPointers& arrays) { return ladder.bind(arrays); });
  }

  std::string kernel_name() const override { return "kernels/attention"; }
  // Each head as a sample of its own, since here heads lie one behind the other.
  void run_kernel(Device device, const LadderPointers& arrays) const override {
    const AttentionFwdArgs kernel = {.shape = {heads_, 1, tokens_, tokens_, kRungHead},
                                     .scale = 1 / std::sqrt(static_cast<double>(kRungHead)),
                                     .dropout = {},
                                     .q = arrays[0],
                                     .k = arrays[1],
                                     .v = arrays[2],
                                     .o = arrays[3],
                                     .lse = arrays[4],
                                     .q_stride = kRungHead,
                                     .k_stride = kRungHead,
                                     .v_stride = kRungHead,
                                     .o_stride = kRungHead};
    ISOBAR_RUN(device, attention_fwd, kernel);
  }

  std::vector<std::vector<Expected>> expected(const LadderPointers& arrays, Accuracy accuracy) const override {
    const AttentionRungArgs a = bind(arrays);
    std::vector<Expected> o, lse;
    for (std::int64_t row = 0; row < heads_ * tokens_; ++row) {
      const std::int64_t first = row / tokens_ * tokens_;
      expect_row(a.q + row * kRungHead, a.k + first * kRungHead, a.v + first * kRungHead, accuracy, o, lse);
    }
    return {o, lse};
  }

 private:
  AttentionRungArgs bind(const LadderPointers& arrays) const {
    return {.heads = heads_,
            .tokens = tokens_,
            .q = arrays[0],
            .k = arrays[1],
            .v = arrays[2],
            .o = arrays[3],
            .lse = arrays[4],
            .scores = arrays[5]};
  }

  // One query, with all keys of its head.
  void expect_row(const float* q, const float* k, const float* v, Accuracy accuracy, std::vector<Expected>& o,
                  std::vector<Expected>& lse) const {
    const double scale = 1 / std::sqrt(static_cast<double>(kRungHead));
    const double rounding = accuracy == Accuracy::tf32 ? 2.01 * kRoundingTf32 : 0;
    std::vector<double> scores;
    double largest = -INFINITY, of_scores = 0, sum = 0;
    for (std::int64_t j = 0; j < tokens_; ++j) {
      double score = 0, size = 0;
      for (int c = 0; c < kRungHead; ++c) {
        const double term = static_cast<double>(q[c]) * k[j * kRungHead + c];
        score += term, size += std::abs(term);
      }
      scores.push_back(score * scale);
      largest = std::max(largest, score * scale);
      of_scores = std::max(
          of_scores, scale * size * (sum_rounding(kRungHead) + rounding) + 8 * kRoundingFp32 * std::abs(score * scale));
    }
    for (const double score : scores) sum += std::exp(score - largest);
    const double of_p = of_scores + 8 * kRoundingFp32 + 4 * kRoundingFp32 * std::abs(largest);
    for (int c = 0; c < kRungHead; ++c) {
      double value = 0, size = 0;
      for (std::int64_t j = 0; j < tokens_; ++j) {
        const double term = std::exp(scores[static_cast<std::size_t>(j)] - largest) / sum * v[j * kRungHead + c];
        value += term, size += std::abs(term);
      }
      o.push_back({value, size * (2 * of_p + 2 * sum_rounding(tokens_) + rounding)});
    }
    const double exact = largest + std::log(sum);
    lse.push_back({exact, of_p + sum_rounding(tokens_) + 4 * kRoundingFp32 * (std::abs(exact) + std::log(sum))});
  }

  std::int64_t heads_, tokens_;
};

}  // namespace

std::unique_ptr<Ladder> attention_ladder(std::int64_t heads, std::int64_t tokens) {
  return std::make_unique<AttentionLadder>(heads, tokens);
}

}  // namespace isobar
