// Frozen parameters: patterns of names, where they lie, and what the optimizer does not have of them.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/optimizer.h"
#include "engine/parameters.h"
#include "kernels/common/name_pattern.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

using Values = std::vector<double>;

// norm decays not, the others do; q and k are stacked.
Parameters listed() {
  Parameters parameters;
  const Init normal{.kind = Init::Kind::normal, .value = 1};
  parameters.add({.names = {"norm"}, .shape = {5}, .init = {.value = 1}});
  parameters.add(
      {.names = {"blocks.0.q", "blocks.0.k"}, .shape = {6, 4}, .init = normal, .decay = true, .compute_copy = true});
  parameters.add({.names = {"blocks.1.w"}, .shape = {70, 2}, .init = normal, .decay = true, .compute_copy = true});
  parameters.add({.names = {"head"}, .shape = {3, 2}, .init = normal, .decay = true});
  return parameters;
}

Parameters frozen(const std::vector<std::string>& patterns, DType activation = DType::fp64) {
  Parameters parameters = listed();
  parameters.freeze(patterns);
  parameters.allocate(activation, Device{}, 3);
  return parameters;
}

Values values_of(const Parameters& parameters, const std::string& name) {
  for (const NamedParameter& p : parameters.named())
    if (p.name == name) return parameters.weight(p).to_vector();
  return {};
}

void set_gradients(const Parameters& parameters, double phase) {
  Tensor grads = parameters.grads().slice(0, parameters.grads().shape());
  Values values(static_cast<std::size_t>(grads.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(0.3 * static_cast<double>(i) + phase);
  grads.set_values(values);
}

}  // namespace

TEST_CASE("freeze: a pattern stands for the whole name, * for any characters, ? for one") {
  struct Case {
    const char *pattern, *name;
    bool fits;
  };
  for (const auto& [pattern, name, fits] :
       {Case{"head", "head", true}, Case{"head", "head.weight", false}, Case{"head.*", "head.weight", true},
        Case{"head.*", "head", false}, Case{"*", "", true}, Case{"", "a", false}, Case{"", "", true},
        Case{"*.bias", "blocks.0.attn.q.bias", true}, Case{"blocks.?.norm*", "blocks.0.norm1.weight", true},
        Case{"blocks.?.norm*", "blocks.10.norm1.weight", false}, Case{"*a*ab", "aaab", true},
        Case{"*a*ab", "aab", true}, Case{"*ab*ab", "ab", false}, Case{"a**b", "ab", true}, Case{"?", "", false},
        Case{"a.b", "axb", false}, Case{"*x", "axb", false}}) {
    INFO(pattern << " and " << name);
    CHECK(fits_pattern(pattern, name) == fits);
  }
}

TEST_CASE("freeze: frozen parameters lie behind all others, have no gradients, and begin with the same values") {
  const Parameters all = frozen({}), some = frozen({"blocks.0.*", "norm"});
  for (const NamedParameter& p : some.named()) {
    CHECK(p.frozen == (p.name != "blocks.1.w" && p.name != "head"));
    CHECK(p.frozen == (p.offset >= some.grads().numel()));
    CHECK(values_of(all, p.name) == values_of(some, p.name));
  }
  CHECK(all.grads().numel() == all.weights().numel());
  CHECK(some.grads().numel() == 192 + 64);  // blocks.1.w and head
  CHECK(some.decay_end() == some.grads().numel());
  CHECK(some.weights().numel() == 192 + 64 + 64 + 64);
  CHECK(some.count() == all.count());
  CHECK(some.frozen_count() == 2 * 24 + 5);
  CHECK(some.held() - some.held_trained() == some.frozen_count());
  CHECK(all.frozen_count() == 0);
  for (const Parameters::Bucket& bucket : some.buckets()) CHECK(bucket.range.end <= some.grads().numel());
  CHECK_FALSE(some.get(0).tracked());
  CHECK_FALSE(some.get(1).tracked());
  CHECK(some.get(2).tracked());
  // Sections of both kinds have all of the buffer.
  std::int64_t end = 0;
  for (const auto& [sharing, range, is_frozen, is_tied] : some.sections()) {
    CHECK(range.first == end);
    CHECK(is_frozen == (range.first >= some.grads().numel()));
    end = range.end;
  }
  CHECK(end == some.weights().numel());
}

TEST_CASE("freeze: of a part of a frozen parameter the whole one is counted") {
  Parameters parameters;
  parameters.add({.names = {"q", "k"},
                  .shape = {6, 4},
                  .init = {},
                  .sharing = Sharing::shard,
                  .shard = {.axis = 0, .begin = 2, .end = 5}});
  parameters.add({.names = {"head"}, .shape = {5}, .init = {}});
  parameters.freeze({"q", "k"});
  parameters.allocate(DType::fp64, Device{}, 3);
  CHECK(parameters.frozen_count() == 2 * 24);
  CHECK(parameters.held() == 2 * 12 + 5);
  CHECK(parameters.held_trained() == 5);
}

TEST_CASE("freeze: what is trained, and by whom, is said before the buffers are made") {
  Parameters parameters = frozen({});
  CHECK_THROWS_WITH(parameters.freeze({"head"}), "parameters are frozen after allocate()");
  CHECK_THROWS_WITH(parameters.freeze_all(), "parameters are frozen after allocate()");
  CHECK_THROWS_WITH(parameters.hold_only({0}, {}), "parameters are dealt out after allocate()");
}

TEST_CASE("freeze: parameters that another rank holds have no numbers here, and those tied to it lie apart") {
  Parameters parameters = listed();
  parameters.hold_only({0, 2, 3}, {3});
  CHECK(parameters.name_of(1) == "blocks.0.q");
  parameters.allocate(DType::fp64, Device{}, 3);
  CHECK(parameters.held() == 5 + 140 + 6);
  CHECK(parameters.count() == 5 + 48 + 140 + 6);
  CHECK(values_of(parameters, "blocks.0.q").empty());
  CHECK(values_of(parameters, "head") == values_of(frozen({}), "head"));
  std::vector<bool> tied;
  for (const Parameters::Section& section : parameters.sections()) tied.push_back(section.tied);
  CHECK(tied == std::vector<bool>{false, true, false});  // of those that decay the head is the last; then the norm
}

TEST_CASE("freeze: in 16 bits a frozen parameter has its rounded values") {
  const Parameters all = frozen({}, DType::bf16), some = frozen({"blocks.*", "norm"}, DType::bf16);
  CHECK(some.get(1).dtype() == DType::bf16);
  CHECK(some.get(1).to_vector() == all.get(1).to_vector());
  CHECK(some.get(0).leaf()->rounded.to_vector() == all.get(0).leaf()->rounded.to_vector());
}

TEST_CASE("freeze: the optimizer changes and knows the others alone, as if there were no frozen ones") {
  const OptimizerOptions options{.kind = OptimizerKind::adamw, .weight_decay = 0.1, .grad_clip = 0.5, .ema = 0.5};
  Parameters parameters = frozen({"blocks.0.*", "norm"});
  Parameters alone;  // with the trained ones only
  const Init normal{.kind = Init::Kind::normal, .value = 1};
  alone.add({.names = {"blocks.1.w"}, .shape = {70, 2}, .init = normal, .decay = true});
  alone.add({.names = {"head"}, .shape = {3, 2}, .init = normal, .decay = true});
  alone.allocate(DType::fp64, Device{}, 3);
  Optimizer optimizer(parameters, options), other(alone, options);
  CHECK(optimizer.m().numel() == parameters.grads().numel());
  CHECK(optimizer.average().numel() == parameters.grads().numel());
  const Values q = values_of(parameters, "blocks.0.q"), norm = values_of(parameters, "norm");
  for (int step = 0; step < 3; ++step) {
    set_gradients(parameters, step);
    set_gradients(alone, step);
    CHECK(optimizer.step(0.01).grad_norm == other.step(0.01).grad_norm);
    optimizer.swap_average();
    CHECK(values_of(parameters, "blocks.0.q") == q);
    optimizer.swap_average();
  }
  CHECK(values_of(parameters, "blocks.0.q") == q);
  CHECK(values_of(parameters, "norm") == norm);
  for (const char* name : {"blocks.1.w", "head"}) CHECK(values_of(parameters, name) == values_of(alone, name));
  CHECK(values_of(parameters, "head") != values_of(frozen({}), "head"));
  Tensor grads = parameters.grads().slice(0, parameters.grads().shape());
  grads.set_values(Values(static_cast<std::size_t>(grads.numel()), 0.0));
  CHECK(optimizer.gradient_zeros() == 70 * 2 + 3 * 2);
}

TEST_CASE("freeze: refused are patterns that nothing fits, parts of what is computed as one, and all") {
  const auto refused = [](const std::vector<std::string>& patterns) {
    try {
      listed().freeze(patterns);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refused({}).empty());
  CHECK(refused({"blocks.*", "norm"}).empty());
  CHECK(refused({"bloks.*"}) ==
        "config key freeze: no parameter of this network is called bloks.*; the nearest are blocks.*, blocks.0.*, "
        "blocks.1.*");
  CHECK(refused({"blocks.0.q"}) ==
        "config key freeze: of blocks.0.q, blocks.0.k, which are computed as one, some are frozen and some are not");
  CHECK(refused({"blocks.0.q", "*.k"}).empty());
  CHECK(refused({"*"}) == "config key freeze: all parameters of the network are frozen, and nothing is left to train");
}

}  // namespace isobar::testing
