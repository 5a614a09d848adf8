// Causal attention beside PyTorch's scaled_dot_product_attention (tests/golden/README.md), whole and in blocks.
#include <algorithm>
#include <cmath>

#include "engine/ops.h"
#include "engine/tape.h"
#include "tests/harness/golden_file.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::Golden;
using Values = std::vector<double>;

constexpr std::int64_t kHeads = 2, kHeadSize = 8, kEmbed = kHeads * kHeadSize;

Tensor tokens_of(const Values& values, DType dtype) {
  Tensor x = Tensor::empty({std::ssize(values) / kEmbed, kEmbed}, dtype, Device{});
  x.set_values(values);
  return x;
}

// The largest difference, of the largest element; not finite where one of the values is not.
double distance(const Values& x, const Values& right) {
  double most = 0, size = 0;
  for (std::size_t i = 0; i < right.size(); ++i) {
    const double difference = std::abs(x.at(i) - right[i]);
    most = difference <= most ? most : difference;
    size = std::max(size, std::abs(right[i]));
  }
  return most / size;
}

}  // namespace

TEST_CASE("causal attention gives PyTorch's outputs and gradients") {
  const Golden golden("attention");
  // Per dtype: the most that differs, of the largest element. In 16 bits that is an element's own rounding and those of
  // operands and P; other tests compare these with their own precision's best.
  for (const auto& [dtype, tolerance] : {std::pair(DType::fp64, 1e-14), std::pair(DType::fp32, 2e-6),
                                         std::pair(DType::bf16, 2e-2), std::pair(DType::fp16, 3e-3)})
    for (const std::string name : {"square", "fewer_queries", "more_queries"}) {
      INFO(name << " in " << name_of(dtype));
      const auto values = [&](const char* of) { return golden.values(name + "." + of); };
      std::vector<Tensor> leaves, gradients;
      for (const char* of : {"q", "k", "v"}) {
        const Tensor x = tokens_of(values(of), dtype);
        gradients.push_back(Tensor::zeros(x.shape(), dtype, Device{}));
        leaves.push_back(make_leaf(x, gradients.back()));
      }
      Tape tape;
      Tensor o;
      {
        const TapeScope recording(tape);
        o = attention(leaves[0], leaves[1], leaves[2],
                      {.batch = 1, .heads = kHeads, .scale = 1 / std::sqrt(double{kHeadSize}), .causal = true});
      }
      tape.backward(o, tokens_of(values("d_o"), dtype));
      CHECK(distance(o.to_vector(), values("o")) < tolerance);
      CHECK(distance(gradients[0].to_vector(), values("dq")) < tolerance);
      CHECK(distance(gradients[1].to_vector(), values("dk")) < tolerance);
      CHECK(distance(gradients[2].to_vector(), values("dv")) < tolerance);
    }
}

TEST_CASE("causal attention of a part of the queries is that part of the whole, by the window") {
  const Golden golden("attention");
  const auto rows = [&](const char* of, std::int64_t first, std::int64_t count) {
    const Values all = golden.values(std::string("square.") + of);
    return Values(all.begin() + first * kEmbed, all.begin() + (first + count) * kEmbed);
  };
  const Tensor k = tokens_of(rows("k", 0, 37), DType::fp64), v = tokens_of(rows("v", 0, 37), DType::fp64);
  for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 5}, {5, 20}, {36, 1}}) {
    AttentionOptions options{.batch = 1, .heads = kHeads, .scale = 1 / std::sqrt(double{kHeadSize}), .causal = true};
    options.window.queries = {first, 37};
    const Tensor o = attention(tokens_of(rows("q", first, count), DType::fp64), k, v, options);
    CHECK(distance(o.to_vector(), rows("o", first, count)) < 1e-14);
  }
}

}  // namespace isobar
