// Frozen parameters in every network: those that are trained have the gradients that they have without.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/ops.h"
#include "engine/tape.h"
#include "models/cnn/recipe.h"
#include "models/gpt/recipe.h"
#include "models/network.h"
#include "models/unet/recipe.h"
#include "models/vit/recipe.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

using Values = std::vector<double>;
using Gradients = std::map<std::string, Values>;

struct Subject {
  std::string name;
  std::shared_ptr<NetworkRecipe> recipe;
  Ports ports;
};

std::vector<Subject> subjects() {
  const Ports fields{.in = {3, 8, 8}, .out = {2, 8, 8}};
  return {{"vit", std::make_shared<VitRecipe>(VitOptions{.embed_dim = 16, .depth = 2, .num_heads = 2, .patch_size = 4}),
           fields},
          {"cnn", std::make_shared<CnnRecipe>(CnnOptions{.width = 6, .depth = 3}), fields},
          {"unet", std::make_shared<UnetRecipe>(UnetOptions{.width = 4, .levels = 2, .bounded = false}), fields},
          {"gpt",
           std::make_shared<GptRecipe>(
               GptOptions{.embed_dim = 16, .depth = 2, .num_heads = 2, .positions = 6, .vocab_multiple = 1}),
           {.in = {6}, .out = {6, 11}, .vocabulary = 11}}};
}

Tensor input_of(const Ports& ports) {
  Shape shape{2};
  shape.insert(shape.end(), ports.in.begin(), ports.in.end());
  Tensor x = Tensor::empty(shape, ports.are_tokens() ? DType::i32 : DType::fp64, Device{});
  Values values(static_cast<std::size_t>(x.numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = ports.are_tokens() ? static_cast<double>((7 * i + 3) % 11) : std::sin(0.7 * static_cast<double>(i));
  x.set_values(values);
  return x;
}

struct Trained {
  Gradients gradients = {};
  std::size_t nodes = 0;  // on the tape
};

// dL/dw of every parameter that is not frozen, for an upstream gradient of other numbers everywhere.
Trained trained(const Subject& subject, const std::vector<std::string>& patterns, bool recompute = false) {
  Parameters parameters;
  ComputeOptions compute{.dtype = ArithmeticType::fp64, .recompute = recompute, .seed = 5};
  compute.freeze = patterns;
  const std::unique_ptr<Network> network = make_network(*subject.recipe, subject.ports, {parameters, compute});
  compute.allocate(parameters, Device{});
  parameters.begin_step();
  Tape tape;
  Tensor y;
  {
    const TapeScope recording(tape);
    y = (*network)(input_of(subject.ports), Pass::training({.seed = 1, .stream = 0}));
  }
  Trained result{.nodes = tape.size()};
  Tensor upstream = Tensor::empty(y.shape(), y.dtype(), Device{});
  Values values(static_cast<std::size_t>(y.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::cos(0.3 * static_cast<double>(i));
  upstream.set_values(values);
  tape.backward(y, upstream);
  parameters.finish_gradients();
  for (const NamedParameter& p : parameters.named())
    if (!p.frozen) result.gradients[p.name] = parameters.grad(p).to_vector();
  return result;
}

std::vector<std::string> names_of(const Gradients& gradients) {
  std::vector<std::string> names;
  for (const auto& [name, values] : gradients) names.push_back(name);
  return names;
}

}  // namespace

TEST_CASE("freeze: the gradients of what is trained are those without, whatever is frozen, in every network") {
  for (const Subject& subject : subjects()) {
    const Gradients all = trained(subject, {}).gradients;
    const auto check = [&](const std::vector<std::string>& patterns, bool recompute) {
      const Gradients some = trained(subject, patterns, recompute).gradients;
      CHECK(some.size() < all.size());
      for (const auto& [name, values] : some) {
        INFO(subject.name << ": " << name << " with " << patterns.front() << " frozen");
        CHECK(values == all.at(name));
      }
    };
    for (const std::string& name : names_of(all)) {
      // Queries, keys and values are computed as one.
      std::string pattern = name;
      for (const char* part : {".q.", ".k.", ".v."})
        if (const std::size_t at = pattern.find(part); at != std::string::npos) pattern.replace(at + 1, 1, "?");
      check({pattern}, false);
    }
    check({"*.bias"}, false);
    if (subject.name == "vit") check({"blocks.0.*", "patch_embed.*", "pos_embed"}, true);
  }
}

TEST_CASE("freeze: what lies before all that is trained is not recorded") {
  const Subject vit = subjects().front();
  const std::size_t all = trained(vit, {}).nodes,
                    late = trained(vit, {"patch_embed.*", "pos_embed", "blocks.0.*"}).nodes,
                    head = trained(vit, {"patch_embed.*", "pos_embed", "blocks.*", "norm.*"}).nodes;
  CHECK(late < all);
  CHECK(head <= 2);
  // In the middle gradients pass through.
  CHECK(trained(vit, {"blocks.1.*"}).nodes == all);
}

}  // namespace isobar::testing
