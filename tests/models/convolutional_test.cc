// What networks of convolutions have in common: the words for edges, and the fields that they take.
#include "models/convolutional.h"

#include <string>
#include <vector>

#include "tests/harness/error_of.h"
#include "tests/harness/testing.h"

namespace isobar {

TEST_CASE("convolutional: words for edges, one for all axes or one for each, and zeros where there is none") {
  using Wraps = std::vector<bool>;
  CHECK(edges_of(std::nullopt) == std::vector<Edge>{Edge::zeros});
  CHECK(edges_of(EdgeWords({"zeros", "wrap"})) == std::vector<Edge>{Edge::zeros, Edge::wrap});
  CHECK(wraps_of(std::nullopt) == Wraps{false});
  CHECK(wraps_of(EdgeWords({"wrap"})) == Wraps{true});
  CHECK(wraps_of(EdgeWords({"wrap", "zeros", "wrap"})) == Wraps{true, false, true});
  KeyOrigins origins;
  origins.set("edge", "--set");
  const auto refusal = [&](const EdgeWords& edge) { return testing::error_of([&] { check_edge(edge, origins); }); };
  CHECK(refusal(std::nullopt) == "");
  CHECK(refusal(EdgeWords({"wrap", "zeros"})) == "");
  CHECK(refusal(EdgeWords({"zeros", "circular"})) ==
        "config key edge in --set must be a list of zeros and wrap, not circular");
}

TEST_CASE("convolutional: fields of one to three axes, on the grid of the input, with as many words for edges") {
  const auto refusal = [](const Shape& in, const Shape& out, const EdgeWords& edge = std::nullopt) {
    return testing::error_of([&] { check_field_ports("a net", {.in = in, .out = out}, edge); });
  };
  CHECK(refusal({2, 7}, {5, 7}) == "");
  CHECK(refusal({2, 7, 8}, {5, 7, 8}) == "");
  CHECK(refusal({2, 7, 8, 9}, {5, 7, 8, 9}) == "");
  CHECK(refusal({2}, {5}) == "config key model: a net has one to three axes, and the samples [2] have 0");
  CHECK(refusal({2, 3, 3, 3, 3}, {5, 3, 3, 3, 3}) ==
        "config key model: a net has one to three axes, and the samples [2, 3, 3, 3, 3] have 4");
  CHECK(refusal({2, 7, 8}, {5, 7}) ==
        "config key model: a net computes fields on the grid of its input, and cannot make [5, 7] of [2, 7, 8]");
  CHECK(refusal({2, 7, 8}, {5, 8, 7}) ==
        "config key model: a net computes fields on the grid of its input, and cannot make [5, 8, 7] of [2, 7, 8]");
  for (const EdgeWords& edge : {EdgeWords({"wrap"}), EdgeWords({"wrap", "zeros"})})
    CHECK(refusal({2, 7, 8}, {5, 7, 8}, edge) == "");
  CHECK(refusal({2, 7, 8, 9}, {5, 7, 8, 9}, EdgeWords({"wrap", "zeros"})) ==
        "config key edge: there are 2 words for the 3 axes of [2, 7, 8, 9]");
}

TEST_CASE("convolutional: a network of convolutions takes no tokens") {
  CHECK(testing::error_of([] {
          check_field_ports("a net", {.in = {8}, .out = {8, 30}, .vocabulary = 30}, {});
        }) == "config key model: a net takes fields, and the samples are tokens of text");
}

}  // namespace isobar
