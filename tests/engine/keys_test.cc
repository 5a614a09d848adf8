// Config keys as a component declares them: bounds of every number of every kind of value, who set what, and which
// values are paths. apps/train reads and writes configs with them (tests/train/config_test.cc).
#include "engine/keys.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/optimizer.h"
#include "engine/schedule.h"
#include "models/compute_options.h"
#include "tests/harness/error_of.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using KeyTexts = std::vector<std::string>;

std::string refusal_of(const Key& key, const KeyOrigins& origins = {}) {
  return testing::error_of([&] { check_bounds(key, origins); });
}

}  // namespace

TEST_CASE("keys: a number on its bound is taken, one beyond it is refused with the bound in the key's own type") {
  std::int64_t n = 3;
  const Key positive = key("n", n, "").at_least(3), few = key("n", n, "").within(1, 1048576);
  CHECK(refusal_of(positive) == "");
  n = 2;
  CHECK(refusal_of(positive) == "config key n must be at least 3, not 2");
  CHECK(refusal_of(few) == "");
  n = 1048576;
  CHECK(refusal_of(few) == "");
  n = 1048577;
  CHECK(refusal_of(few) == "config key n must be at most 1048576, not 1048577");
  n = 0;
  CHECK(refusal_of(few) == "config key n must be at least 1, not 0");
  double x = 0;
  const Key above = key("x", x, "").greater_than(0), part = key("x", x, "").fraction();
  CHECK(refusal_of(above) == "config key x must be above 0, not 0");
  CHECK(refusal_of(part) == "");
  x = 1e-300;
  CHECK(refusal_of(above) == "");
  x = 1;
  CHECK(refusal_of(part) == "config key x must be at least 0 and below 1, not 1");
  x = -0.5;
  CHECK(refusal_of(part) == "config key x must be at least 0 and below 1, not -0.5");
  x = std::numeric_limits<double>::quiet_NaN();
  for (const Key& bounded : {above, part, key("x", x, "").at_least(0), key("x", x, "").within(0, 1)})
    CHECK(refusal_of(bounded) != "");
  CHECK(refusal_of(key("x", x, "")) == "");  // without bounds
}

TEST_CASE("keys: bounds are those of every number that a value holds, and of none where it is null or a word") {
  std::array<double, 2> betas{0.9, 1};
  CHECK(refusal_of(key("betas", betas, "").fraction()) == "config key betas must be at least 0 and below 1, not 1");
  std::array<std::int64_t, 2> size{0, 5};
  CHECK(refusal_of(key("size", size, "").at_least(1)) == "config key size must be at least 1, not 0");
  std::optional<std::int64_t> maybe;
  const Key optional = key("maybe", maybe, "").at_least(1);
  CHECK(refusal_of(optional) == "");
  maybe = 0;
  CHECK(refusal_of(optional) == "config key maybe must be at least 1, not 0");
  std::optional<std::vector<double>> list = std::vector<double>{1, 2, -3};
  CHECK(refusal_of(key("list", list, "").at_least(0)) == "config key list must be at least 0, not -3");
  PerAxis axes = std::int64_t{0};
  const Key per_axis = key("axes", axes, "").at_least(1);
  CHECK(refusal_of(per_axis) == "config key axes must be at least 1, not 0");
  axes = std::array<std::int64_t, 3>{1, 2, 0};
  CHECK(refusal_of(per_axis) == "config key axes must be at least 1, not 0");
  StagedNumber staged = std::vector<std::array<std::int64_t, 2>>{{0, 4}, {10, -1}};
  CHECK(refusal_of(key("staged", staged, "").at_least(0)) == "config key staged must be at least 0, not -1");
  WordOrNumbers words = std::string("area");
  const Key word = key("words", words, "").at_least(0);
  CHECK(refusal_of(word) == "");
  words = std::vector<double>{1, -1};
  CHECK(refusal_of(word) == "config key words must be at least 0, not -1");
  std::optional<WeightsByName> weights = std::map<std::string, double>{{"t2m", 1}, {"u10", -2}};
  const Key by_name = key("weights", weights, "").at_least(0);
  CHECK(refusal_of(by_name) == "config key weights must be at least 0, not -2");
  weights = KeyTexts{"pressure"};
  CHECK(refusal_of(by_name) == "");
}

TEST_CASE("keys: a message says who has set the key, and bounds are listed as people read them") {
  std::int64_t n = 0;
  KeyOrigins origins;
  origins.set("m", "elsewhere");
  CHECK(origins.where("n") == "config key n");
  origins.set("n", "a.json");
  origins.set("n", "--set");  // the last one counts
  CHECK(origins.where("n") == "config key n in --set");
  CHECK(refusal_of(key("n", n, "").at_least(1), origins) == "config key n in --set must be at least 1, not 0");
  CHECK(testing::error_of([&] { check_filled("n", true, origins); }) == "");
  CHECK(testing::error_of([&] { check_filled("n", false, origins); }) ==
        "config key n in --set is null where no data can fill it");
  CHECK(bounds_text(key("n", n, "")) == "");
  CHECK(bounds_text(key("n", n, "").at_least(1)) == "at least 1");
  CHECK(bounds_text(key("n", n, "").within(0.5, 1048576)) == "at least 0.5, at most 1048576");
  CHECK(bounds_text(key("n", n, "").greater_than(0)) == "above 0");
  CHECK(bounds_text(key("n", n, "").fraction()) == "at least 0, below 1");
  const Key full =
      key("n", n, "a sentence").free_on_resume().in_older_runs("3").path().also_called({"m"}).in_yaml({"k.n"});
  CHECK(full.sentence == "a sentence");
  CHECK(full.may_change_on_resume);
  CHECK(full.older_value == "3");
  CHECK(full.is_path);
  CHECK(full.other_names == KeyTexts{"m"});
  CHECK(full.yaml_names == KeyTexts{"k.n"});
  const Key bare = key("n", n, "");
  CHECK_FALSE((bare.may_change_on_resume || bare.is_path));
}

TEST_CASE("keys: tables have all their keys in order, each name once, and are checked whole") {
  std::int64_t a = 1, b = 1, c = 1;
  bool is_checked = false;
  const auto table = [](const char* heading, std::vector<Key> keys, bool& checked) {
    return KeyTable{heading, std::move(keys), [&checked](const KeyOrigins&) { checked = true; }};
  };
  bool is_second_checked = false;
  const std::vector<KeyTable> tables{table("One", {key("a", a, ""), key("b", b, "").at_least(1)}, is_checked),
                                     table("Two", {key("c", c, "")}, is_second_checked),
                                     {.heading = "Three", .keys = {}}};
  KeyTexts names;
  for (const Key* each : all_keys(tables)) names.push_back(each->name);
  CHECK(names == KeyTexts{"a", "b", "c"});
  check_keys(tables, {});
  CHECK(is_checked);
  CHECK(is_second_checked);
  is_checked = false;
  b = 0;
  CHECK(testing::error_of([&] { check_keys(tables, {}); }) == "config key b must be at least 1, not 0");
  CHECK_FALSE(is_checked);  // what keys say of each other is looked at when each is right by itself
  std::vector<KeyTable> twice = tables;
  twice[2].keys.push_back(key("a", c, ""));
  CHECK(testing::error_of([&] { all_keys(twice); }) == R"(the config key a is claimed by "One" and by "Three")");
}

TEST_CASE("keys: what PyTorch, Megatron-LM and others call those of the schedule and of the optimizer") {
  ScheduleOptions schedule;
  OptimizerOptions optimizer;
  LossScaleOptions loss_scale;
  std::map<std::string, std::string> keys;
  ComputeOptions compute;
  const std::vector<KeyTable> tables{schedule.keys(), optimizer.keys(), loss_scale.keys(), compute.keys(),
                                     compute.freezing_keys()};
  for (const Key* each : all_keys(tables))
    for (const std::string& name : each->other_names) CHECK(keys.emplace(name, each->name).second);
  const std::map<std::string, KeyTexts> others{
      {"num_iters", {"iterations", "maxsteps", "steps", "trainiters"}},
      {"num_epochs", {"epochs", "maxepochs"}},
      {"lr", {"learningrate", "maxlr", "startlr"}},
      {"end_lr", {"etamin", "minlr"}},
      {"decay_iters", {"lrdecayiters", "lrdecaysteps", "tmax"}},
      {"warmup", {"lrwarmupiters", "warmupiters", "warmupsteps"}},
      {"warmup_lr", {"lrwarmupinit"}},
      {"lr_gamma", {"gamma"}},
      {"lr_decay_every", {"lrstepsize", "stepsize"}},
      {"wsd_iters", {"lrwsddecayiters"}},
      {"weight_decay", {"wd"}},
      {"end_weight_decay", {"endweightdecay"}},
      {"grad_clip", {"clip", "gradientclipval", "maxgradnorm"}},
      {"ema", {"emadecay", "useema"}},
      {"initial_loss_scale", {"initscale", "lossscale"}},
      {"min_loss_scale", {"minlossscale"}},
      {"loss_scale_window", {"growthinterval"}},
      {"loss_scale_growth", {"growthfactor"}},
      {"loss_scale_backoff", {"backofffactor"}},
      {"lr_schedule", {"lrdecaystyle", "lrscheduler", "scheduler"}},
      {"decay_epochs", {"lrdecayepochs"}},
      {"warmup_rule", {"lrwarmuprule"}},
      {"wsd_decay", {"lrwsddecaystyle"}},
      {"decay_samples", {"lrdecaysamples"}},
      {"warmup_samples", {"lrwarmupsamples"}},
      {"wsd_samples", {"lrwsddecaysamples"}},
      {"optimizer", {"opt"}},
      {"weight_decay_schedule", {"weightdecayincrstyle"}},
      {"amp_mode", {"amp", "bf16", "fp16", "mixedprecision", "precision"}},
      {"recompute", {"activationcheckpointing", "checkpointing", "gradientcheckpointing"}},
      {"seed", {"randomseed"}},
      {"freeze", {"freezelayers", "frozen", "submodulestofreeze"}}};
  for (const auto& [name, called] : others)
    for (const std::string& other : called) CHECK(keys[other] == name);
}

TEST_CASE("keys: the tutorial's YAML has names of its own for those of the schedule") {
  ScheduleOptions schedule;
  const KeyTable table = schedule.keys();
  std::map<std::string, std::string> keys;
  for (const Key& each : table.keys)
    for (const std::string& name : each.yaml_names) CHECK(keys.emplace(name, each.name).second);
  CHECK(keys == std::map<std::string, std::string>{{"lr_schedule.start_lr", "lr"},
                                                   {"lr_schedule.end_lr", "end_lr"},
                                                   {"min_lr", "end_lr"},
                                                   {"max_epochs", "num_epochs"},
                                                   {"max_cosine_lr_epochs", "decay_epochs"},
                                                   {"lr_schedule.warmup_steps", "warmup"},
                                                   {"lr_schedule.scaling", "batch_lr_scaling"},
                                                   {"base_batch_size", "reference_batch_size"}});
}

// What decides the numbers of a run may not change within it; how long it is, and how they are computed, may.
TEST_CASE("keys: of the arithmetic, the schedule and the optimizer these may change where a run goes on") {
  ScheduleOptions schedule;
  OptimizerOptions optimizer;
  LossScaleOptions loss_scale;
  ComputeOptions compute;
  KeyTexts free, older;
  const std::vector<KeyTable> tables{schedule.keys(), optimizer.keys(), loss_scale.keys(), compute.keys(),
                                     compute.freezing_keys()};
  for (const Key* each : all_keys(tables)) {
    if (each->may_change_on_resume) free.push_back(each->name);
    if (!each->older_value.empty()) older.push_back(each->name + "=" + each->older_value);
    CHECK_FALSE(each->is_path);
  }
  std::ranges::sort(free);
  CHECK(free == KeyTexts{"autotune", "cuda_graph", "num_epochs", "num_iters", "recompute", "tf32"});
  CHECK(older == KeyTexts{"autotune=false"});
}

TEST_CASE("keys: bounds of the schedule's, the optimizer's and the arithmetic's keys") {
  ScheduleOptions schedule;
  OptimizerOptions optimizer;
  LossScaleOptions loss_scale;
  ComputeOptions compute;
  std::map<std::string, std::string> bounds;
  const std::vector<KeyTable> tables{schedule.keys(), optimizer.keys(), loss_scale.keys(), compute.keys()};
  for (const Key* each : all_keys(tables))
    if (const std::string text = bounds_text(*each); !text.empty()) bounds[each->name] = text;
  std::map<std::string, std::string> expected{{"betas", "at least 0, below 1"},
                                              {"ema", "at least 0, below 1"},
                                              {"eps", "above 0"},
                                              {"lr_gamma", "at least 0, at most 1"},
                                              {"loss_scale_backoff", "above 0"},
                                              {"loss_scale_growth", "at least 1, at most 65536"}};
  for (const char* name : {"lr", "end_lr", "warmup", "warmup_lr", "warmup_samples", "weight_decay", "end_weight_decay",
                           "grad_clip", "seed"})
    expected[name] = "at least 0";
  for (const char* name : {"num_iters", "num_epochs", "decay_iters", "decay_epochs", "lr_decay_every", "wsd_iters",
                           "decay_samples", "wsd_samples", "reference_batch_size", "loss_scale_window", "hysteresis"})
    expected[name] = "at least 1";
  for (const char* name : {"initial_loss_scale", "min_loss_scale"}) {
    CHECK_THAT(bounds[name], testing::ContainsSubstring("at least ") && testing::ContainsSubstring(", at most "));
    bounds.erase(name);
  }
  CHECK(bounds == expected);
}

TEST_CASE("keys: paths are texts, texts by name and lists of them, but not the weights of a blend") {
  std::string path = "data", text = "name";
  PathList blend{{"0.3", "wiki", "7e-1", "books", "2x"}};
  std::optional<TextMap> files = TextMap{{"z", "z.npy"}, {"t", "t.npy"}}, none;
  const std::vector<KeyTable> tables{
      {"Paths",
       {key("path", path, "").path(), key("text", text, ""), key("blend", blend, "").path(),
        key("files", files, "").path(), key("none", none, "").path(), key("named", files, "")}}};
  const std::vector<std::string*> found = paths_of(tables);
  CHECK(found == std::vector<std::string*>{&path, &blend.words[1], &blend.words[3], &blend.words[4], &files->at("t"),
                                           &files->at("z")});
  for (const char* number : {"1", "0.5", "-2", "1e3", ".5"}) CHECK(is_number(number));
  for (const char* word : {"", "x", "1x", "0.5 ", " 1", "1,2", "+"}) CHECK_FALSE(is_number(word));
}

TEST_CASE("keys: what the data give is noted, and what is given is left") {
  KeyOrigins origins;
  KeyFiller filler(origins);
  CHECK(filler.summary() == "");
  std::optional<std::int64_t> patch, channels = 4;
  std::optional<std::array<std::int64_t, 2>> size;
  std::optional<bool> has_times;
  std::optional<RangeValue> steps, dates;
  filler.fill("patch_size", patch, std::int64_t{2});
  filler.fill("n_in_channels", channels, std::int64_t{9});
  filler.fill("img_size", size, std::array<std::int64_t, 2>{30, 44});
  filler.fill("time_features", has_times, true);
  filler.fill("train_range", steps, RangeValue(std::array<std::int64_t, 2>{0, 7}));
  filler.fill("valid_range", dates, RangeValue(std::array<std::string, 2>{"2017-01-01", "2018-01-01"}));
  CHECK(patch == 2);
  CHECK(channels == 4);
  CHECK(size == std::array<std::int64_t, 2>{30, 44});
  CHECK(filler.summary() ==
        "patch_size 2, img_size [30,44], time_features true, train_range [0,7], valid_range [2017-01-01,2018-01-01]");
  CHECK(origins.where("patch_size") == "config key patch_size in the data");
  CHECK(origins.where("n_in_channels") == "config key n_in_channels");
}

}  // namespace isobar
