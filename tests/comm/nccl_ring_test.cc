// Attention in a ring by NCCL: what overlaps.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "comm/context_attention.h"
#include "tests/harness/findings.h"
#include "tests/harness/nccl_world.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::Findings;

constexpr std::int64_t kTokens = 6, kHeads = 2, kEmbed = 16;

}  // namespace

TEST_CASE("nccl ring: keys and values travel before the block is computed that they hide behind") {
  Findings findings;
  testing::run_nccl({.ranks = 2}, [&](const Communicator& world) {
    const ShardedAxis axis{kTokens, world.size(), 1};
    Tensor qkv = Tensor::empty({axis.count(world.rank()), 3 * kEmbed}, DType::fp32, testing::emulator_of(world.rank()));
    std::vector<double> values(static_cast<std::size_t>(qkv.numel()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(0.7 * static_cast<double>(i));
    qkv.set_values(values);
    std::optional<Communicator> spare = world.split(0, world.rank(), "spare");
    const Tensor o =
        context_attention(qkv, {.batch = 1, .heads = kHeads, .scale = 0.4}, axis, world, ContextForm::ring);
    // Nothing has run yet. The end of a group waits for all that its rank has asked NCCL for, and only what leads to
    // that runs: the first block, which is computed into o, is no part of it.
    std::vector<float> untouched(static_cast<std::size_t>(o.numel())), then(untouched);
    std::memcpy(untouched.data(), o.data(), untouched.size() * sizeof untouched[0]);
    spare.reset();
    std::memcpy(then.data(), o.data(), then.size() * sizeof then[0]);
    const auto are_same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
    };
    findings.expect(are_same(untouched, then), "a block was computed first");
    const std::vector<double> computed = o.to_vector();
    std::ranges::copy(computed, then.begin());
    findings.expect(!are_same(untouched, then), "nothing was computed");
  });
  CHECK(findings.wrong() == "");
}

}  // namespace isobar
