// The tutorial's YAML: what its files use is read as its own reader does, the rest is refused by name.
#include "apps/train/yaml_config.h"

#include <sys/stat.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/harness/error_of.h"
#include "tests/harness/forecast_config.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using isobar::testing::ContainsSubstring;
using isobar::testing::TemporaryFolder;

namespace {

constexpr const char* kTutorial = R"(
# the tutorial's forms
base: &base
  embed_dim: 384      # a comment
  dropout: 0.0
  img_size: [360, 720]
  lr: 5E-4
  num_iters: 30000
  amp_mode: !!str none
  enable_jit: False
  expdir: '/logs'
  lr_schedule: "cosine"
  optimizer: 'Adam'
  train_data_path: /data/train
  limit_nsamples: None
  limit_nsamples_val: ~
  betas:
    - 0.9
    - .95

short: &short
  <<: *base
  limit_nsamples: 512
  num_iters: 128

short_opt:
  <<: [*short, *base]
  amp_mode: "fp16"
  enable_jit: true
)";

std::string written(const TemporaryFolder& folder, const std::string& content) {
  std::ofstream(folder / "ViT.yaml") << content;
  return (folder / "ViT.yaml").string();
}

}  // namespace

TEST_CASE("the tutorial's YAML is read with anchors, merges and its numbers") {
  const TemporaryFolder folder;
  const std::string file = written(folder, kTutorial);
  RunConfig base = testing::checked_config(load_yaml_config(file, "base").entries);
  const ForecastRecipe& recipe = testing::forecast_of(base);
  CHECK(base.schedule.lr == 5e-4);
  CHECK(recipe.forecast.img_size == std::array<std::int64_t, 2>{360, 720});
  CHECK(base.optimizer.betas == std::array<double, 2>{0.9, 0.95});
  CHECK(base.run.expdir == "/logs");
  CHECK_FALSE(recipe.split.limit_nsamples);
  CHECK_FALSE(recipe.split.limit_nsamples_val);
  CHECK_FALSE(base.tutorial.enable_jit);
  const NamedConfig named = load_yaml_config(file, "short_opt");
  CHECK(named.name == "short_opt");
  CHECK(named.entries.at("lr").origin == file + " (short_opt)");
  RunConfig config = testing::checked_config(named.entries);
  CHECK(testing::forecast_of(config).split.limit_nsamples == 512);
  CHECK(config.schedule.num_iters == 128);
  CHECK(config.compute.amp_mode == AmpMode::fp16);
  CHECK(config.tutorial.enable_jit);
  CHECK(testing::vit_of(config).embed_dim == 384);
}

TEST_CASE("quoted scalars are strings, plain ones what they read as") {
  const TemporaryFolder folder;
  const ConfigEntries entries =
      load_yaml_config(written(folder, "a: {q: '5', i: +5, j: -7, f: 1., t: TRUE, n: null, w: 1e, e: , v: 2.7}"), "a")
          .entries;
  CHECK(entries.at("q").value == "5");
  CHECK(entries.at("i").value == 5);
  CHECK(entries.at("i").value.is_number_integer());
  CHECK(entries.at("j").value == -7);
  CHECK(entries.at("f").value == 1.0);
  CHECK(entries.at("t").value == true);
  CHECK(entries.at("n").value.is_null());
  CHECK(entries.at("e").value.is_null());
  CHECK(entries.at("w").value == "1e");
  CHECK(entries.at("v").value == 2.7);
}

TEST_CASE("numbers of YAML are told from words, and may have a hundred thousand digits") {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& word) {
    return load_yaml_config(written(folder, "a: {x: [" + word + "]}"), "a").entries.at("x").value.at(0);
  };
  for (const char* word : {"0", "-7", "+5", "1.", ".5", "-.5e3", "1e+5", "1E-5", "12.5"}) {
    INFO(word);
    CHECK(read(word).is_number());
    CHECK(read(word) == std::strtod(word, nullptr));
  }
  for (const char* word : {"+", "-", ".", "1e", "1e+", "e5", ".e5", "1.5.2", "1x", "--5", "0x10", "1_000"}) {
    INFO(word);
    CHECK(read(word) == word);
  }
  const std::string ones(100000, '1');
  for (const std::string& word : {ones, "0." + ones, "1e" + ones}) CHECK(read(word).is_number());
  CHECK(read("0." + ones) == 1.0 / 9);
}

TEST_CASE("a pipe in the place of a YAML file is an error, not a wait") {
  const TemporaryFolder folder;
  const std::string pipe = folder / "pipe.yaml";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THROWS_WITH(load_yaml_config(pipe, "base"), ContainsSubstring("cannot open config file " + pipe));
}

TEST_CASE("YAML: a map within a config gives keys with a point") {
  const TemporaryFolder folder;
  const std::string file = written(folder, "base: {lr_schedule: {scaling: sqrt, start_lr: 2.E-4}, lr: 1}");
  const ConfigEntries entries = load_yaml_config(file, "base").entries;
  CHECK(entries.size() == 3);
  CHECK(entries.at("lr_schedule.scaling").value == "sqrt");
  CHECK(entries.at("lr_schedule.start_lr").value == 2e-4);
  CHECK_THROWS_WITH(testing::checked_config(load_yaml_config(written(folder, "base: {lr: {a: 1}}"), "base").entries),
                    ContainsSubstring("unknown config key lr.a"));
}

TEST_CASE("YAML: a merged map gives what the config does not set itself, key by key within maps too") {
  const TemporaryFolder folder;
  const std::string file = written(folder, R"(
a: &a {lr: 1, depth: 1, schedule: {scaling: none, start: 1}}
b: &b {lr: 2, dt: 2, schedule: {end: 2}}
first: {<<: [*a, *b], depth: 3, schedule: {scaling: sqrt}}
second: {dt: ~, <<: *b}
)");
  const ConfigEntries first = load_yaml_config(file, "first").entries;
  CHECK(first.size() == 6);
  CHECK(first.at("lr").value == 1);  // of the map that is named first
  CHECK(first.at("depth").value == 3);
  CHECK(first.at("dt").value == 2);
  CHECK(first.at("schedule.scaling").value == "sqrt");
  CHECK(first.at("schedule.start").value == 1);
  CHECK(first.at("schedule.end").value == 2);
  CHECK(load_yaml_config(file, "second").entries.at("dt").value.is_null());  // null is a value
}

TEST_CASE("YAML: items of lists are what they read as, and a whole number beyond 64 bits is a number") {
  const TemporaryFolder folder;
  const ConfigEntries entries =
      load_yaml_config(
          written(folder, "a: {l: [~, 1, 'x', true, .5], e: [], big: 9223372036854775807, more: 9223372036854775808}"),
          "a")
          .entries;
  CHECK(entries.at("l").value == nlohmann::json{nullptr, 1, "x", true, 0.5});
  CHECK(entries.at("e").value == nlohmann::json::array());
  CHECK(entries.at("big").value == INT64_MAX);
  CHECK(entries.at("more").value.is_number_float());
  CHECK(entries.at("more").value == 0x1p63);
}

TEST_CASE("YAML that cannot be a config is refused with file and key") {
  const TemporaryFolder folder;
  const auto [content, words] = GENERATE(table<std::string, std::string>({
      {"base: {lr: [1, 2", "is not valid YAML"},
      {"base: *nobody", "is not valid YAML"},
      {"- base", "must hold configs by name"},
      {"", "must hold configs by name"},
      {"bose: {lr: 1}", "holds no config 'base'; did you mean bose?"},
      {"base: 3", "(base) must be a map"},
      {"base: {lr: {a: {b: 1}}}", "config key lr.a in "},
      {"base: {lr: {a: 1, a: 2}}", "config key lr.a stands twice in "},
      {"base: {lr: [[1]]}", "config key lr in "},
      {"base: {lr: 1, lr: 2}", "config key lr stands twice in "},
      {"base: {lr: 1}\nbase: {lr: 2}", "config base stands twice in "},
      {"base: {<<: 3}", "must be a map"},
      {"base: &b {<<: [*b, *b]}", "merges itself"},
      {"base: {? [1] : 2}", "a key that is no word"},
  }));
  const std::string file = written(folder, content);
  CHECK_THROWS_WITH(load_yaml_config(file, "base"), ContainsSubstring(file) && ContainsSubstring(words));
  CHECK_THROWS_WITH(load_yaml_config(folder / "none.yaml", "base"), ContainsSubstring("none.yaml"));
  CHECK_THROWS_WITH(load_yaml_config(folder / "", "base"), ContainsSubstring("cannot open"));
  const std::string unknown = written(folder, "base: {learning_rate: 1}");
  CHECK_THROWS_WITH(testing::checked_config(load_yaml_config(unknown, "base").entries),
                    ContainsSubstring("learning_rate in " + unknown) && ContainsSubstring("did you mean lr?"));
}

TEST_CASE("YAML: each fault is one sentence with the file, the config in it and the key") {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& content) {
    const std::string file = written(folder, content);
    return testing::error_of([&] { load_yaml_config(file, "base"); });
  };
  const std::string file = written(folder, ""), origin = file + " (base)";
  CHECK(refusal("base: {lr: {a: {b: 1}}}") == "config key lr.a in " + origin + " must be a value or a list");
  CHECK(refusal("base: {lr: [1, [2]]}") == "config key lr in " + origin + " must be a list of values");
  CHECK(refusal("base: {lr: {a: 1, a: 2}}") == "config key lr.a stands twice in " + origin);
  CHECK(refusal("base: {lr: {? [1] : 2}}") == "config key lr in " + origin + " has a key that is no word");
  CHECK(refusal("base: {? [1] : 2}") == "config " + origin + " has a key that is no word");
  CHECK(refusal("base: {lr: 1, lr: 2}") == "config key lr stands twice in " + origin);
  CHECK(refusal("base: {<<: 3}") ==
        "config " + origin + " must be a map of keys and values, and so must what it merges");
  CHECK(refusal("other: {}\nbase: {lr: 1}\nbase: {lr: 2}") == "config base stands twice in " + file);
  CHECK(refusal("- base") == "config file " + file + " must hold configs by name");
  CHECK(refusal("bose: {lr: 1}") == "config file " + file + " holds no config 'base'; did you mean bose?");
  CHECK(refusal("base: {lr: {a: 1, b: 2}}\n").empty());
  const std::string none = folder / "none.yaml";
  CHECK(testing::error_of([&] { load_yaml_config(none, "base"); }) == "cannot open config file " + none);
}
