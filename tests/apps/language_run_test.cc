// Whole runs of the command on a text: what a run leaves behind, that it learns, resuming bit for bit, ranks, and the
// text that is written with its weights.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/files/reader.h"
#include "tests/harness/small_runs.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

using nlohmann::json;

// A language of three words, of which none follows itself: its next letter is known, but for the first of a word.
std::string words(int count) {
  const std::vector<std::string> all{"alpha ", "beta ", "gämma "};
  std::string text;
  unsigned state = 7, word = 0;
  for (int i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;  // the generator of Numerical Recipes
    word = (word + 1 + (state >> 16) % 2) % 3;
    text += all[word];
  }
  return text;
}

class Texts : public SmallRuns {
 public:
  Texts()
      : SmallRuns(
            " --set task=language_model --set seq_length=16 --set embed_dim=32 --set depth=1 --set num_heads=2"
            " --set vocab_multiple=8 --set hidden_dropout=0.05 --set global_batch_size=8 --set num_iters=60"
            " --set lr=1e-2 --set lr_schedule=constant --set optimizer=adamw --set log_every=20 --set validate_every=20"
            " --set checkpoint_every=20 --set keep_checkpoints=0 --threads 1 --device cpu ") {
    std::ofstream(path("words.txt")) << words(600);
  }
  Outcome train(const std::string& run, const std::string& more = "") const {
    return SmallRuns::train(run, "--data " + path("words.txt").string() + " " + more);
  }
  std::string written(const std::string& run, const std::string& more) const {
    const Outcome outcome = command("generate --weights " + path(run).string() + " --device cpu --threads 1 " + more);
    done(outcome);
    return outcome.out;
  }
};

}  // namespace

TEST_CASE("a run on a text leaves its files, learns, and writes words") {
  const Texts here;
  const Outcome run = here.train("run");
  here.done(run);
  CHECK_THAT(run.out, ContainsSubstring("from the data: vocab_size 11, positions 16"));
  std::vector<double> losses;
  for (const json& line : metrics_of(here.path("run"))) {
    if (line.at("event") != "valid") continue;
    losses.push_back(line.at("loss"));
    CHECK(line.at("perplexity") == Approx(std::exp(losses.back())));
    CHECK(line.at("bits_per_byte") < losses.back() / std::log(2.0));  // ä is two bytes
    CHECK(line.contains("token_accuracy"));
  }
  REQUIRE(losses.size() == 4);
  CHECK(losses.front() == Approx(std::log(11.0)).epsilon(0.05));  // chance among the 11 characters
  CHECK(losses.back() < 0.4);  // in the limit ln 2 for each word of five or six characters: 0.13
  const json summary = json::parse(here.file("run/summary.json"));
  CHECK(summary.at("val_loss") == losses.back());
  CHECK(summary.at("val_perplexity") == Approx(std::exp(losses.back())));
  CHECK(json::parse(here.file("run/stats/characters.json")).at("characters") == " abeghlmptä");
  CHECK_THAT(here.file("run/out.log"), ContainsSubstring("GPT language model"));

  const Outcome judged = here.command("evaluate --device cpu --threads 1 --weights " + here.path("run").string());
  here.done(judged);
  CHECK_THAT(judged.out, ContainsSubstring("bits per byte"));

  // Other programs' names and back: the same tensors, which start a run.
  const std::string there = here.path("hf.safetensors").string(), back = here.path("back.safetensors").string();
  here.done(here.command("weights convert --in " + here.path("run").string() + " --to hf --out " + there));
  here.done(here.command("weights convert --in " + there + " --to isobar --rows 16 --out " + back));
  here.done(here.train("again", "--init " + back + " --set num_iters=1 --set validate_every=1 --set lr=0"));
  CHECK(json::parse(here.file("again/summary.json")).at("val_loss") == losses.back());

  const std::string text = here.written("run", "--prompt 'alpha ' --max-tokens 60 --greedy");
  CHECK(text.starts_with("alpha "));
  std::istringstream stream(text);
  int known = 0, all = 0;
  for (std::string word; stream >> word && !stream.eof(); ++all)
    known += word == "alpha" || word == "beta" || word == "gämma" ? 1 : 0;
  CHECK(known + 1 >= all);  // the last one may be cut
  CHECK(all > 5);
}

TEST_CASE("generate: a prompt's text depends on its number and the seed, and what cannot be continued is refused") {
  const Texts here;
  here.done(here.train("run", "--set num_iters=20"));
  const std::string one = here.written("run", "--prompt 'beta ' --max-tokens 40 --seed 3");
  CHECK(here.written("run", "--prompt 'beta ' --prompt 'alpha ' --max-tokens 40 --seed 3").starts_with(one));
  CHECK(here.written("run", "--prompt 'beta ' --max-tokens 40 --seed 4") != one);
  const auto refusal = [&](const std::string& more) {
    return here.command("generate --device cpu --weights " + here.path("run").string() + " " + more).err;
  };
  CHECK_THAT(refusal("--prompt Q"), ContainsSubstring("character U+0051 at byte 1 is not in the table of characters"));
  CHECK_THAT(refusal("--prompt ''"), ContainsSubstring("a prompt needs at least one token"));
  CHECK_THAT(refusal("--prompt 'alpha beta alpha beta'"),
             ContainsSubstring("a prompt of 21 tokens is longer than the 16 that the model was trained on"));
}

TEST_CASE("a run on a text that is stopped and resumed ends with the same bits, and not on another text") {
  const Texts here;
  here.done(here.train("whole", "--set num_iters=40"));
  here.done(here.train("parts", "--set num_iters=20"));
  here.done(here.command("train --resume --set num_iters=40 --threads 1 --device cpu --run-dir " +
                         here.path("parts").string()));
  CHECK(here.file("parts/best/model.safetensors") == here.file("whole/best/model.safetensors"));
  CHECK(metrics_of(here.path("parts")) == metrics_of(here.path("whole")));

  std::ofstream(here.path("words.txt")) << "beta " + words(599) + "alpha";
  const Outcome other = here.command("train --resume --set num_iters=60 --threads 1 --device cpu --run-dir " +
                                     here.path("parts").string());
  CHECK(other.status != 0);
  CHECK_THAT(other.err, ContainsSubstring("words.txt"));
}

TEST_CASE("ranks train on a text as one does") {
  const Texts here;
  const std::string exact =
      "--set dtype=fp64 --set num_iters=3 --set validate_every=3 --set log_every=1 --set hidden_dropout=0.1 ";
  here.done(here.train("serial", exact));
  for (const char* ranks :
       {"--ranks 2", "--ranks 2 --tensor-parallel 2", "--ranks 4 --tensor-parallel 2 --sequence-parallel"}) {
    here.done(here.train("ranks", exact + ranks + " --overwrite"));
    const std::vector<json> serial = metrics_of(here.path("serial")), other = metrics_of(here.path("ranks"));
    REQUIRE(serial.size() == other.size());
    for (std::size_t i = 0; i < serial.size(); ++i)
      CHECK(other[i].at("loss").get<double>() == Approx(serial[i].at("loss").get<double>()).epsilon(1e-12));
  }
}

}  // namespace isobar::testing
