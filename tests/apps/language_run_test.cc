// Whole runs of the command on a text: what a run leaves behind, that it learns, resuming bit for bit, ranks, and the
// text that is written with its weights.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "engine/files/reader.h"
#include "engine/files/safetensors.h"
#include "tests/data/text/small_tokenizer.h"
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

  // Megatron-LM orders rows by heads: isobar's file says how many, others need to be told.
  const std::string core = here.path("core.safetensors").string();
  const Outcome to_core =
      here.command("weights convert --in " + here.path("run").string() + " --to megatron-core --out " + core);
  here.done(to_core);
  CHECK_THAT(to_core.out, ContainsSubstring(" tensors with the names of Megatron-LM's core\n"));
  const auto from_core = [&](const std::string& heads) {
    here.done(here.command("weights convert --in " + core + " --to isobar --rows 11 --out " + back + heads));
    return here.file("back.safetensors");
  };
  here.done(
      here.command("weights convert --in " + here.path("run").string() + " --to isobar --rows 11 --out " + there));
  CHECK((from_core(" --heads 2") == here.file("hf.safetensors")));
  CHECK(here.command("weights convert --in " + core + " --to isobar --out " + back).err ==
        "isobar: Megatron-LM's rows of queries, keys and values lie by heads, and how many there are is not known; "
        "--heads says it\n");
  CHECK((from_core(" --heads 1") != here.file("hf.safetensors")));
  const std::string padded = here.path("padded.safetensors").string();
  here.done(
      here.command("weights convert --in " + here.path("run").string() + " --to nanogpt --rows 16 --out " + padded));
  CHECK(SafetensorsFile(padded).find("transformer.wte.weight")->info.shape == std::vector<std::int64_t>{16, 32});

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

TEST_CASE("generate: each flag of drawing narrows it down to the likeliest token, and its default changes nothing") {
  const Texts here;
  here.done(here.train("run", "--set num_iters=20"));
  const std::string prompt = "--prompt 'beta ' --max-tokens 40 --seed 3 ";
  const std::string drawn = here.written("run", prompt), likeliest = here.written("run", prompt + "--greedy");
  CHECK(drawn != likeliest);
  for (const char* flag : {"--top-k 1", "--top-p 0", "--temperature 1e-4"}) {
    INFO(flag);
    CHECK(here.written("run", prompt + flag) == likeliest);
  }
  for (const char* flag : {"--top-k 0", "--top-k 99", "--top-p 1", "--temperature 1"}) {
    INFO(flag);
    CHECK(here.written("run", prompt + flag) == drawn);
  }
  CHECK(here.written("run", prompt + "--temperature 100") != drawn);
  // Without a number it is 200 tokens, here characters, and the seed is 0.
  const std::string usual = here.written("run", "--prompt 'beta '");
  CHECK(std::ranges::count_if(usual, [](char byte) { return (byte & 0xc0) != 0x80; }) == 5 + 200 + 1);
  CHECK(here.written("run", "--prompt 'beta ' --max-tokens 200 --seed 0") == usual);
  // Without a prompt it is an empty line, which this text has none of.
  CHECK_THAT(here.command("generate --device cpu --weights " + here.path("run").string()).err,
             ContainsSubstring("character U+000A at byte 1 is not in the table of characters"));
}

TEST_CASE("generate: many prompts from a file are continued as each alone, and the texts go to a file") {
  const Texts here;
  here.done(here.train("run", "--set num_iters=20"));
  std::ofstream prompts(here.path("prompts.jsonl"));
  for (int i = 0; i < 11; ++i) prompts << json{{"text", i % 2 == 0 ? "beta " : "gämma alpha "}} << "\n\n";
  prompts.close();
  const std::string flags = "--max-tokens 30 --seed 3 ";
  const std::string said = here.written(
      "run", flags + "--in " + here.path("prompts.jsonl").string() + " --out " + here.path("texts.jsonl").string());
  std::smatch speed;
  REQUIRE(std::regex_search(
      said, speed, std::regex(R"(texts\.jsonl: 11 prompts, 330 tokens in (\d+\.\d\d) s: (\d+\.\d) tokens/s\n)")));
  const double seconds = std::stod(speed[1]), rate = std::stod(speed[2]);
  CHECK(std::abs(330 / rate - seconds) < 0.006);  // as far as its two decimals tell
  std::istringstream lines(here.file("texts.jsonl"));
  std::vector<std::string> texts;
  for (std::string line; std::getline(lines, line);) {
    const json text = json::parse(line);
    texts.push_back(text.at("text").get<std::string>() + text.at("continuation").get<std::string>());
    CHECK(text.at("tokens").size() == (texts.size() % 2 == 1 ? 35 : 42));
  }
  REQUIRE(texts.size() == 11);
  CHECK(texts[0] != texts[2]);
  std::string both = here.written("run", flags + "--prompt 'beta ' --prompt 'gämma alpha '");
  CHECK(both == texts[0] + "\n" + texts[1] + "\n");

  const auto refusal = [&](const std::string& more) {
    return here.command("generate --device cpu --weights " + here.path("run").string() + " " + more).err;
  };
  std::ofstream(here.path("prompts.jsonl")) << "{\"text\": \"beta\"}\n{\"txt\": \"beta\"}\n";
  const std::string in = "--in " + here.path("prompts.jsonl").string();
  CHECK_THAT(refusal(in),
             ContainsSubstring("prompts.jsonl, line 2: key \"text\" is missing; keys that exist: \"txt\"\n"));
  CHECK_THAT(refusal(in + " --prompt a"), ContainsSubstring("--in and --prompt both name prompts; give one of them\n"));
  CHECK_THAT(refusal(in + " --out " + here.path("prompts.jsonl").string()),
             ContainsSubstring("--in and --out are both"));
  CHECK_THAT(refusal(in + " --out " + here.path("run/../prompts.jsonl").string()),  // spelled otherwise
             ContainsSubstring("--in and --out are both"));
  const std::string weights = here.file("run/best/model.safetensors"), text = here.file("words.txt");
  const auto replaced = [&](const std::string& out) { return refusal("--prompt a --out " + here.path(out).string()); };
  CHECK_THAT(replaced("run/best/model.safetensors"), ContainsSubstring(" would replace the weights"));
  CHECK_THAT(replaced("run/config.json"), ContainsSubstring(" would replace a file of the run"));
  CHECK_THAT(replaced("words.txt"), ContainsSubstring(" would replace the data"));
  CHECK((here.file("run/best/model.safetensors") == weights));
  CHECK((here.file("words.txt") == text));
  std::ofstream(here.path("prompts.jsonl")) << "\n";
  CHECK_THAT(refusal(in), ContainsSubstring("prompts.jsonl has no prompts"));
}

TEST_CASE("a folder of Hugging Face is written, starts a run with the same loss, and is refused for another network") {
  const Texts here;
  here.done(here.train("run", "--set num_iters=20"));
  const std::string folder = here.path("hf").string(), run = here.path("run").string();
  const Outcome converted = here.command("weights convert --in " + run + " --to hf --out " + folder);
  here.done(converted);
  CHECK_THAT(converted.out,
             ContainsSubstring("no tokenizer, since transformers has none for the tokenizer characters"));
  const json config = json::parse(here.file("hf/config.json"));
  CHECK(config.at("vocab_size") == 11);
  CHECK(config.at("n_positions") == 16);
  CHECK_THAT(here.command("weights convert --in " + run + " --to hf --out " + folder).err,
             ContainsSubstring("exists already; a folder of Hugging Face is written to a new place"));
  const auto refusal = [&](const std::string& arguments) {
    return here.command("weights convert --in " + run + " --to " + arguments).err;
  };
  CHECK_THAT(refusal("hf --rows 12 --out " + folder + "3"),
             ContainsSubstring("--rows is for a file; in a folder of Hugging Face the table has as many rows as "));
  CHECK_THAT(refusal("nanogpt --set seed=2 --out " + folder + ".safetensors"),
             ContainsSubstring("--set is for a folder of Hugging Face (--to hf --out FOLDER)"));
  CHECK_THAT(refusal("nanogpt --out " + run + "/config.json"), ContainsSubstring("would replace a file of the run"));
  const Outcome renamed =
      here.command("weights convert --in " + run + " --to nanogpt --out " + folder + ".safetensors");
  CHECK_THAT(renamed.out, ContainsSubstring(run + ": names of isobar; " + folder + ".safetensors: ") &&
                              ContainsSubstring(" tensors with the names of nanoGPT\n"));
  here.done(here.train("again", "--init " + folder + " --set num_iters=1 --set validate_every=1 --set lr=0"));
  CHECK(json::parse(here.file("again/summary.json")).at("val_loss") ==
        json::parse(here.file("run/summary.json")).at("val_loss"));
  here.done(here.train("ranks", "--init " + folder + " --set num_iters=1 --set lr=0 --ranks 2 --tensor-parallel 2"));
  CHECK(json::parse(here.file("ranks/summary.json")).at("val_loss").get<double>() ==
        Approx(json::parse(here.file("run/summary.json")).at("val_loss").get<double>()).epsilon(1e-5));
  CHECK_THAT(here.train("other", "--init " + folder + " --set num_heads=4").err,
             ContainsSubstring("hf/config.json: n_head is 2, but num_heads is 4"));
  CHECK_THAT(here.command("weights convert --in " + folder + " --to hf --out " + folder + "2").err,
             ContainsSubstring("does not say what model it is of"));
  here.done(here.command("weights convert --in " + folder + " --to isobar --out " +
                         here.path("isobar.safetensors").string()));
}

TEST_CASE("a folder of Hugging Face writes text and is judged as it lies, and is refused if it is no GPT-2") {
  const Texts here;
  const SmallTokenizerFiles files;
  const std::string folder = here.path("hf").string(), data = " --data " + here.path("words.txt").string();
  here.done(here.train("run", "--set num_iters=20 --set tokenizer=gpt2_bpe --set vocab_file=" + files.vocab() +
                                  " --set merge_file=" + files.merges()));
  here.done(here.command("weights convert --in " + here.path("run").string() + " --to hf --out " + folder));
  const std::string text = here.written("run", "--prompt 'alpha ' --max-tokens 12 --greedy");
  CHECK(here.written("hf", "--prompt 'alpha ' --max-tokens 12 --greedy") == text);
  const auto judged = [&](const std::string& weights) {
    return here.command("evaluate --device cpu --threads 1 --weights " + weights + data);
  };
  const Outcome ours = judged(here.path("run").string()), theirs = judged(folder);
  here.done(theirs);
  CHECK(theirs.out.substr(theirs.out.find('\n')) == ours.out.substr(ours.out.find('\n')));

  // Where padding counts, its rows are tokens there; none of them is drawn, and the draws are the same.
  here.done(here.train("live", "--set num_iters=1 --set vocab_padding=live --set tokenizer=gpt2_bpe --set vocab_file=" +
                                   files.vocab() + " --set merge_file=" + files.merges()));
  here.done(here.command("weights convert --in " + here.path("live").string() + " --to hf --out " +
                         here.path("hf_live").string()));
  CHECK(json::parse(here.file("hf_live/config.json")).at("vocab_size") > files.open().size());
  const std::string drawn = "--prompt 'alpha ' --prompt beta --max-tokens 60 --temperature 3 --seed 5";
  CHECK(here.written("hf_live", drawn) == here.written("live", drawn));

  const auto refusal = [&] { return here.command("generate --device cpu --weights " + folder).err; };
  const json config = json::parse(here.file("hf/config.json"));
  const auto write = [&](const char* key, const json& value) {
    json other = config;
    other[key] = value;
    std::ofstream(here.path("hf/config.json")) << other.dump();
  };
  write("model_type", "bert");
  CHECK_THAT(refusal(), ContainsSubstring(R"(hf/config.json: model_type is "bert")"));
  write("n_layer", "two");
  CHECK_THAT(refusal(), ContainsSubstring(R"(hf/config.json: n_layer is "two", no whole number above 0)"));
  write("activation_function", "relu");
  CHECK_THAT(refusal(), ContainsSubstring(R"(hf/config.json: activation_function is "relu")"));
  write("vocab_size", 8);
  CHECK_THAT(refusal(), ContainsSubstring("but vocab_size of its config.json is 8"));
  write("model_type", "gpt2");
  std::filesystem::remove(here.path("hf/merges.txt"));
  CHECK_THAT(refusal(), ContainsSubstring("hf has no merges.txt, of GPT-2's tokenizer"));
}

TEST_CASE("a run on a text that is stopped and resumed ends with the same bits, and not on another text") {
  const Texts here;
  here.done(here.train("whole", "--set num_iters=40"));
  here.done(here.train("parts", "--set num_iters=20"));
  here.done(here.command("train --resume --set num_iters=40 --threads 1 --device cpu --run-dir " +
                         here.path("parts").string()));
  CHECK(here.file("parts/best/model.safetensors") == here.file("whole/best/model.safetensors"));
  CHECK(metrics_of(here.path("parts")) == metrics_of(here.path("whole")));
  const auto state_of = [&](const char* run) {
    return json::parse(here.file(concat(run, "/checkpoints/step_00000040/state.json")));
  };
  const json state = state_of("parts"), expected = state_of("whole");
  for (const char* key : {"trainer", "samples", "cursor", "best_loss", "best_iteration", "validation_is_owed"}) {
    INFO(key);
    CHECK(state.at(key) == expected.at(key));
  }
  for (const char* key : {"iterations", "loss"}) CHECK(state.at("epoch").at(key) == expected.at("epoch").at(key));
  CHECK(state.at("epoch").at("iterations") < 40);  // the first checkpoint was within an epoch

  std::ofstream(here.path("words.txt")) << "beta " + words(599) + "alpha";
  const Outcome other = here.command("train --resume --set num_iters=60 --threads 1 --device cpu --run-dir " +
                                     here.path("parts").string());
  CHECK(other.status != 0);
  CHECK_THAT(other.err, ContainsSubstring("words.txt"));
}

// Documents of the same words, of one to seven of them, as a token file of bytes.
std::string write_documents(const Texts& here) {
  std::ofstream file(here.path("documents.txt"));
  std::istringstream all(words(500));
  int left = 1, document = 0;
  for (std::string word; all >> word; file << word << (--left > 0 ? " " : "\n\n"))
    if (left == 0) left = 1 + ++document % 7;
  file.close();
  here.done(here.command("data preprocess --text --separator '' --tokenizer-type bytes --append-eod --input " +
                         here.path("documents.txt").string() + " --output-prefix " + here.path("some").string()));
  return here.path("some_text_document").string();
}

TEST_CASE("a run on token files learns, and resumes with the same bits, by the samples that it has consumed") {
  const Texts here;
  const std::string prefix = write_documents(here);
  const auto train = [&](const std::string& run, const std::string& more) {
    return here.SmallRuns::train(run, "--data " + prefix +
                                          " --set tokenizer=bytes --set split=\"8,1,1\" --set eval_iters=2"
                                          " --set eod_mask_loss=true " +
                                          more);
  };
  here.done(train("whole", "--set num_iters=40"));
  const json summary = json::parse(here.file("whole/summary.json"));
  CHECK(summary.at("val_loss") < 2.5);
  CHECK(summary.contains("test_loss"));
  CHECK_THAT(here.file("whole/out.log"),
             ContainsSubstring("320 training samples, 40 iterations an epoch, 16 validation"));

  here.done(train("parts", "--set num_iters=20 --set train_samples=320"));
  here.done(here.command("train --resume --set num_iters=40 --threads 1 --device cpu --run-dir " +
                         here.path("parts").string()));
  CHECK(here.file("parts/checkpoints/step_00000040/model.safetensors") ==
        here.file("whole/checkpoints/step_00000040/model.safetensors"));
  CHECK(metrics_of(here.path("parts")) == metrics_of(here.path("whole")));

  // What no output may replace.
  for (const char* ending : {".bin", ".idx", ".json"}) {
    const std::string file = prefix + ending, before = read_file(file);
    const std::string weights = " --device cpu --threads 1 --weights " + here.path("whole").string();
    for (const std::string& command : {"generate --max-tokens 1 --out " + file, "evaluate --scores " + file})
      CHECK_THAT(here.command(command + weights).err, ContainsSubstring(file + " would replace the data"));
    CHECK((read_file(file) == before));
  }

  // More iterations than samples are in order.
  const Outcome short_order = train("repeats", "--set num_iters=20");
  here.done(short_order);
  const Outcome longer = here.command("train --resume --set num_iters=45 --threads 1 --device cpu --run-dir " +
                                      here.path("repeats").string());
  here.done(longer);
  const std::string warning =
      "warning: the 160 training samples (train_samples) are enough for 20 of the 45 iterations: from iteration 21 on ";
  CHECK_THAT(longer.out, ContainsSubstring(warning));
  CHECK_THAT(here.file("repeats/out.log"), ContainsSubstring(warning));
  CHECK_THAT(short_order.out, !ContainsSubstring("warning: "));
  CHECK_THAT(here.file("parts/out.log"), !ContainsSubstring("warning: "));

  // Two ranks see the same samples, whose targets count alike.
  here.done(train("exact", "--set num_iters=3 --set dtype=fp64 --set log_every=1"));
  here.done(train("ranks", "--set num_iters=3 --set dtype=fp64 --set log_every=1 --ranks 2"));
  const std::vector<json> serial = metrics_of(here.path("exact")), other = metrics_of(here.path("ranks"));
  REQUIRE(serial.size() == other.size());
  for (std::size_t i = 0; i < serial.size(); ++i)
    CHECK(other[i].at("loss").get<double>() == Approx(serial[i].at("loss").get<double>()).epsilon(1e-12));

  const Outcome another = here.command(
      "train --resume --set num_iters=60 --set data_seed=5 --threads 1 --device cpu "
      "--run-dir " +
      here.path("parts").string());
  CHECK(another.status != 0);
  CHECK_THAT(another.err, ContainsSubstring("this is not the text that"));
  CHECK_THAT(another.err, ContainsSubstring("config key data_seed in --set is 5, and 1234 in the run to resume"));
  const std::string config = here.file("parts/config.json");
  const Outcome elsewhere = here.command("train --resume --set num_iters=60 --threads 1 --device cpu --run-dir " +
                                         here.path("parts").string() + " --data " + here.path("words.txt").string());
  CHECK(elsewhere.status == 1);
  CHECK_THAT(elsewhere.err, ContainsSubstring("eod_mask_loss"));  // which a text cannot have, and the run has
  CHECK_THAT(elsewhere.err, ContainsSubstring("needs token files; a text has no documents"));
  CHECK(here.file("parts/config.json") == config);
  const Outcome judged =
      here.command("evaluate --split test --device cpu --threads 1 --weights " + here.path("whole").string());
  here.done(judged);
  CHECK_THAT(judged.out, ContainsSubstring("bits per byte"));
  CHECK_THAT(judged.out,
             ContainsSubstring("every sample of the test set is judged; the run's eval_iters took 2 batches\n"));
}

// How many targets an evaluation has.
std::string said_targets(std::size_t tokens) {
  return ", " + std::to_string(tokens - 1) + " targets\n";
}

TEST_CASE("evaluate: --data takes the place of all data of the run, of whatever kind both are, and a line says it") {
  const Texts here;
  const std::string prefix = write_documents(here), text = here.path("words.txt").string();
  const auto evaluate = [&](const std::string& run, const std::string& more) {
    return here.command("evaluate --device cpu --threads 1 --weights " + here.path(run).string() + " " + more);
  };
  const auto judged = [&](const std::string& run, const std::string& more) {
    const Outcome outcome = evaluate(run, more);
    here.done(outcome);
    return outcome.out;
  };
  const std::string more = " --set tokenizer=bytes --set num_iters=1 --set validate_every=1 ";
  const std::string bytes = here.file("words.txt");

  // Of token files, with all that a text cannot have.
  here.done(here.SmallRuns::train("files", "--data " + prefix + more +
                                               "--set split=\"8,1,1\" --set eod_mask_loss=true"
                                               " --set reset_position_ids=true --set reset_attention_mask=true"));
  CHECK_THAT(judged("files", ""),
             ContainsSubstring("judged: what split 8,1,1 gives the validation set, of " + prefix + "\n"));
  const std::string last = judged("files", "--data " + text);
  CHECK_THAT(last, ContainsSubstring("judged: the last 10 % of " + text +
                                     " (valid_fraction); all of it: --set valid_text_path=FILE\n"));
  std::size_t characters = 0, rest = 0;
  for (const char byte : bytes) characters += (byte & 0xc0) != 0x80 ? 1 : 0;
  for (std::size_t i = bytes.size(), left = characters - characters * 9 / 10; left > 0; ++rest)
    left -= (bytes[--i] & 0xc0) != 0x80 ? 1 : 0;
  CHECK_THAT(last, ContainsSubstring(said_targets(rest)));
  const std::string whole = judged("files", "--data " + text + " --set valid_text_path=" + text);
  CHECK_THAT(whole, ContainsSubstring("judged: all of " + text + "\n"));
  CHECK_THAT(whole, ContainsSubstring(said_targets(bytes.size())));

  // Of a text, with a validation set of its own.
  here.done(here.SmallRuns::train(
      "text", "--data " + text + more + "--set valid_text_path=" + here.path("documents.txt").string()));
  CHECK_THAT(judged("text", ""), ContainsSubstring("judged: all of " + here.path("documents.txt").string() + "\n"));
  CHECK_THAT(judged("text", "--split train"), ContainsSubstring("judged: the first 100 % of " + text + "\n"));
  CHECK(judged("text", "--data " + text).find(said_targets(rest)) != std::string::npos);
  CHECK_THAT(judged("text", "--data " + prefix + " --set split=0,1,0"),
             ContainsSubstring("judged: what split 0,1,0 gives the validation set, of " + prefix + "\n"));

  // Of characters: a file of other tokens is refused, and so is a character that the run did not have.
  here.done(here.train("characters", "--set num_iters=1 --set validate_every=1"));
  const Outcome other = evaluate("characters", "--data " + prefix);
  CHECK(other.status == 1);
  CHECK_THAT(other.err, ContainsSubstring("characters needs tokenizer_model to read token files"));
  std::ofstream(here.path("late.txt")) << std::string(95, 'a') + "\nb" + "QQQ";
  CHECK_THAT(evaluate("characters", "--data " + here.path("late.txt").string()).err,
             ContainsSubstring("late.txt: character U+000A at byte 96 (in line 1) is not in the table of characters"));
}

TEST_CASE("the test of a text is that of the averaged weights, of the last ones or the best, as its validation is") {
  const Texts here;
  const std::string words = here.path("words.txt").string();
  const std::string short_run =
      "--set num_iters=4 --set validate_every=2 --set checkpoint_every=0 --set valid_text_path=" + words +
      " --set test_text_path=" + words + " --set eval_iters=4 ";
  const auto summary_of = [&](const std::string& run, const std::string& more) {
    here.done(here.train(run, short_run + more));
    return json::parse(here.file(run + "/summary.json"));
  };
  const json last = summary_of("last", "--set ema=0.5 --set test_weights=last");
  CHECK(last.at("test_loss") == last.at("val_loss"));
  CHECK(last.at("test_perplexity") == last.at("val_perplexity"));
  CHECK(last.at("test_iteration") == 4);
  CHECK_THAT(here.file("last/out.log"), ContainsSubstring(concat("test loss ", last.at("test_loss").get<double>(),
                                                                 ", with the last weights, of iteration 4\n")));
  const json best = summary_of("best", "--set ema=0.5");
  CHECK(best.at("test_loss") == last.at("test_loss"));  // it is the last one that is best
  CHECK_THAT(here.file("best/out.log"), ContainsSubstring(", with the best weights, of iteration 4\n"));
  const json plain = summary_of("plain", "--set test_weights=last");
  CHECK(plain.at("test_loss") == plain.at("val_loss"));
  CHECK(plain.at("test_loss") != last.at("test_loss"));
}

TEST_CASE("a text that is not there, or is given to another task, is told with the flag that is meant") {
  const Texts here;
  const Outcome none = here.SmallRuns::train("none");
  CHECK(none.status == 1);
  CHECK_THAT(none.err, ContainsSubstring("does not exist: name a file of text, or a token file, with --data"));
  const Outcome task = here.command("train --device cpu --data " + here.path("words.txt").string());
  CHECK(task.status == 1);
  CHECK_THAT(task.err, ContainsSubstring("words.txt is not a folder, which the task forecast takes; a language model "
                                         "is trained on a text: --config shakespeare, or another of its configs"));
  std::ofstream(here.path("binary")) << std::string("GRIB\0\0", 6);
  CHECK_THAT(here.command("train --device cpu --data " + here.path("binary").string()).err,
             !ContainsSubstring("shakespeare"));
  const auto refusal = [&](const std::string& flag) { return here.command("generate --weights x " + flag).err; };
  CHECK_THAT(refusal("--temperature -1"), ContainsSubstring("--temperature: must be a number above 0, not -1"));
  CHECK_THAT(refusal("--temperature 0"), ContainsSubstring("must be a number above 0, not 0"));
  CHECK_THAT(refusal("--top-p 1.5"), ContainsSubstring("--top-p: must be a number from 0 to 1, not 1.5"));
}

TEST_CASE("mesh: the cost of attention over packed documents follows from their files") {
  const Texts here;
  const std::string prefix = write_documents(here);
  const auto mesh = [&](const std::string& more) {
    const Outcome outcome = here.command(
        "mesh --config wikitext --set tokenizer=bytes --set vocab_file= --set merge_file= --set seq_length=512 --set "
        "positions=512 "
        "--device cpu --set data_path=" +
        prefix + more);
    here.done(outcome);
    return outcome.out;
  };
  const auto flops = [](const std::string& text) {
    const std::string before = "kernels: ";
    return std::stod(text.substr(text.find(before) + before.size()));
  };
  const std::string plain = mesh(""), packed = mesh(" --set reset_attention_mask=true");
  CHECK_THAT(plain, !ContainsSubstring("causal pairs"));
  CHECK_THAT(packed, ContainsSubstring(" % of the causal pairs, those within one document\n"));
  CHECK(flops(packed) < flops(plain));
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
