// Whole runs of isobar pretrain-gpt on a small text: the log beside a golden one, files, resuming, and what is refused.
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "engine/files/reader.h"
#include "tests/harness/safetensors_copy.h"
#include "tests/harness/small_runs.h"
#include "tests/harness/tensorboard_events.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

using nlohmann::json;

// A scaled-down course: the flags of its command, on a small model and bytes.
class SmallCourse : public SmallRuns {
 public:
  SmallCourse() : SmallRuns("") {
    std::ofstream text(path("text.jsonl"));
    unsigned state = 5;
    for (int document = 0; document < 60; ++document) {
      std::string words;
      for (int i = 0; i < 12; ++i) {
        state = state * 1664525u + 1013904223u;  // the generator of Numerical Recipes
        words += std::vector<std::string>{"alpha ", "beta ", "gamma ", "delta "}[(state >> 16) % 4];
      }
      text << json{{"text", words}} << '\n';
    }
    text.close();
    done(command("data preprocess --input " + path("text.jsonl").string() + " --output-prefix " +
                 path("small").string() + " --tokenizer-type bytes --append-eod --workers 1"));
  }

  std::string flags() const {
    return "--num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --max-position-embeddings 16 "
           "--micro-batch-size 2 --global-batch-size 8 --train-iters 12 --init-method-std 0.02 --optimizer adam "
           "--adam-beta1 .9 --adam-beta2 .95 --adam-eps 1e-8 --lr 6e-3 --min-lr 6e-4 --lr-decay-style cosine "
           "--lr-decay-iters 100 --lr-warmup-fraction .01 --clip-grad 1.0 --weight-decay 1e-1 "
           "--exit-duration-in-mins 1190 --log-interval 4 --save-interval 6 --eval-interval 8 --eval-iters 2 "
           "--tokenizer-type bytes --data-impl mmap --split 90,5,5 --distributed-backend nccl --device cpu --threads 1 "
           "--make-vocab-size-divisible-by 64 --data-path " +
           path("small_text_document").string() + " ";
  }
  Outcome pretrain(const std::string& run, const std::string& more = "") const {
    return command("pretrain-gpt " + flags() + "--save " + path(run).string() + " " + more);
  }
};

// What differs from run to run in such a log: times and figures.
std::string without_figures(std::string text) {
  text = std::regex_replace(text, std::regex(R"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)"), "TIME");
  text = std::regex_replace(text, std::regex(R"(\(ms\): +[0-9.]+)"), "(ms): MS");
  text = std::regex_replace(text, std::regex(R"((lm loss|value|PPL|norm): [0-9.E+-]+)"), "$1: X");
  return std::regex_replace(text, std::regex(R"(reserved: [0-9.]+|allocated: [0-9.]+)"), "M");
}

// The lines that Megatron-LM prints; isobar's own have a time in front.
std::vector<std::string> megatron_lines(const std::string& out) {
  std::istringstream in(out);
  std::vector<std::string> lines;
  bool in_arguments = false;
  const std::regex own(
      "from the data: .*|  rank +tp .*|( +[0-9]+)+|.. groups: .*|ranks 0-3: .*|    (loss|perplexity|bits per byte) .*");
  for (std::string line; std::getline(in, line);) {
    if (line.find(" - root - INFO - ") != std::string::npos || std::regex_match(line, own)) continue;
    if (line.starts_with("------------------------ arguments")) in_arguments = true;
    if (!in_arguments) lines.push_back(without_figures(line));
    if (line.starts_with("-------------------- end of arguments")) in_arguments = false;
  }
  return lines;
}

// Flags of a run on made-up data, but for its length.
std::string mock_flags(const std::string& more) {
  return "--num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 16 "
         "--micro-batch-size 4 --lr 1e-2 --lr-decay-style constant --log-interval 4 --eval-interval 8 --device cpu "
         "--threads 1 --mock-data --tokenizer-type NullTokenizer --vocab-size 4095 --save-interval 4 " +
         more;
}

struct Span {
  std::string name;
  std::int64_t begin = 0, end = 0;  // nanoseconds
};

// The complete events of a trace, in their order; checks what viewers need of each.
std::vector<Span> spans_in(const json& trace) {
  std::vector<Span> spans;
  for (const json& event : trace.at("traceEvents")) {
    CHECK(event.at("name").is_string());
    CHECK(event.at("pid").is_number_integer());
    CHECK(event.at("tid").is_number_integer());
    if (event.at("ph") == "M") continue;
    CHECK(event.at("ph") == "X");
    const double begin = event.at("ts"), length = event.at("dur");
    CHECK(begin >= 0);
    CHECK(length >= 0);
    spans.push_back({event.at("name"), std::llround(begin * 1e3), std::llround((begin + length) * 1e3)});
  }
  return spans;
}

// Kernels have operands, and a product does the operations that the shapes of its first two and its result say:
// m·k, n·k and m·n numbers, in any order, whose product is (m·n·k)².
void check_operands_in(const json& trace) {
  int products = 0, messages = 0;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M" || event.at("cat") == "user_annotation") continue;
    const json& arguments = event.at("args");
    const json& shapes = arguments.at("Input Dims");
    INFO(event.dump());
    CHECK(!shapes.empty());
    CHECK(shapes.size() == arguments.at("Input type").size());
    messages += event.at("name").get<std::string>().find(" over ") != std::string::npos ? 1 : 0;
    if (event.at("name") != "gemm") continue;
    ++products;
    std::vector<double> numbers;
    for (const json& shape : shapes) {
      numbers.push_back(1);
      for (const double size : shape) numbers.back() *= size;
    }
    const double mnk = arguments.at("flops").get<double>() / 2;
    bool fits = false;
    for (std::size_t i = 2; i < numbers.size(); ++i)
      fits = fits || numbers[0] * numbers[1] * numbers[i] == Approx(mnk * mnk).epsilon(1e-9);
    CHECK(fits);
  }
  CHECK(products > 20);
  CHECK(messages > 0);
}

// How many parameters the log tells of which rank, "tensor, pipeline".
std::map<std::string, std::int64_t> parameters_told(const std::string& log) {
  std::map<std::string, std::int64_t> parameters;
  const std::regex line(R"( > number of parameters on \(tensor, pipeline\) model parallel rank \((.*)\): (\d+)\n)");
  for (std::sregex_iterator at(log.begin(), log.end(), line); at != std::sregex_iterator(); ++at)
    CHECK(parameters.emplace((*at)[1].str(), std::stoll((*at)[2])).second);
  return parameters;
}

std::vector<double> losses_in(const std::filesystem::path& run) {
  std::vector<double> losses;
  for (const json& line : metrics_of(run))
    if (line.at("event") == "train") losses.push_back(line.at("loss"));
  return losses;
}

}  // namespace

TEST_CASE("pretrain-gpt: the whole log of a scaled-down course, beside the golden one") {
  const SmallCourse here;
  const Outcome run = here.pretrain("run", "--ranks 4 --log-format legacy");
  here.done(run);
  const std::string folder = here.path("run").string();
  const std::vector<std::string> expected{
      "using world size: 4, data-parallel-size: 4, tensor-model-parallel size: 1, pipeline-model-parallel size: 1 ",
      "using torch.float32 for parameters ...",
      " > padded vocab (size: 258) with 62 dummy tokens (new size: 320)",
      "building GPT model ...",
      " > number of parameters on (tensor, pipeline) model parallel rank (0, 0): 36224",
      "[after model, optimizer, and learning rate scheduler are built] datetime: TIME ",
      "> building train, validation, and test datasets ...",
      " > datasets target sizes (minimum size):",
      "    train:      96",
      "    validation: 16",
      "    test:       16",
      " > dataset split:",
      "    train:",
      "     document indices in [0, 54) total of 54 documents",
      "    validation:",
      "     document indices in [54, 57) total of 3 documents",
      "    test:",
      "     document indices in [57, 60) total of 3 documents",
      "> finished creating GPT datasets ...",
      "[after dataloaders are built] datetime: TIME ",
      "done with setup ...",
      "training ...",
      "[before the start of training step] datetime: TIME ",
      " iteration        4/      12 | consumed samples:           32 | elapsed time per iteration (ms): MS | learning "
      "rate: 5.988E-03 | global batch size:     8 | lm loss: X | loss scale: 1.0 | grad norm: X | number of skipped "
      "iterations:   0 | number of nan iterations:   0 |",
      "[Rank 0] (after 4 iterations) memory (MB) | M | max M | M | max M",
      "saving checkpoint at iteration       6 to " + folder,
      "  successfully saved checkpoint at iteration       6 to " + folder,
      " iteration        8/      12 | consumed samples:           64 | elapsed time per iteration (ms): MS | learning "
      "rate: 5.934E-03 | global batch size:     8 | lm loss: X | loss scale: 1.0 | grad norm: X | number of skipped "
      "iterations:   0 | number of nan iterations:   0 |",
      std::string(93, '-'),
      " validation loss at iteration 8 | lm loss value: X | lm loss PPL: X | ",
      std::string(93, '-'),
      " iteration       12/      12 | consumed samples:           96 | elapsed time per iteration (ms): MS | learning "
      "rate: 5.837E-03 | global batch size:     8 | lm loss: X | loss scale: 1.0 | grad norm: X | number of skipped "
      "iterations:   0 | number of nan iterations:   0 |",
      "[after training is done] datetime: TIME ",
      std::string(114, '-'),
      " validation loss at the end of training for val data | lm loss value: X | lm loss PPL: X | ",
      std::string(114, '-'),
      "saving checkpoint at iteration      12 to " + folder,
      "  successfully saved checkpoint at iteration      12 to " + folder,
      std::string(115, '-'),
      " validation loss at the end of training for test data | lm loss value: X | lm loss PPL: X | ",
      std::string(115, '-')};
  std::vector<std::string> told;
  for (const std::string& line : megatron_lines(run.out))
    if (!line.starts_with("--") || line.starts_with("-----")) told.push_back(line);
  CHECK(told == expected);
  CHECK(here.file("run/latest_checkpointed_iteration.txt") == "12");
  CHECK(std::filesystem::exists(here.path("run/iter_0000006/model.safetensors")));
  CHECK(std::filesystem::exists(here.path("run/iter_0000012/state.json")));
}

// Its rates, batch and length, on a small model.
TEST_CASE("pretrain-gpt: the last line of the course, field by field") {
  const SmallCourse here;
  const Outcome run =
      here.pretrain("run",
                    "--ranks 4 --train-iters 100 --lr 6e-5 --min-lr 6e-6 --lr-decay-iters 800 --log-interval 10 "
                    "--save-interval 300 --eval-interval 1000");
  here.done(run);
  CHECK_THAT(run.out,
             ContainsSubstring(" iteration      100/     100 | consumed samples:          800 | elapsed time per "));
  const std::regex last(
      R"( iteration +100/ +100 \| consumed samples:          800 \| elapsed time per iteration \(ms\): )"
      R"([0-9]+\.[0-9] \| learning rate: 5\.822E-05 \| global batch size:     8 \| lm loss: )"
      R"([0-9]\.[0-9]{6}E\+00 \| loss scale: 1\.0 \| grad norm: [0-9]+\.[0-9]{3} \| number of )"
      R"(skipped iterations:   0 \| number of nan iterations:   0 \|)");
  CHECK(std::regex_search(run.out, last));
  CHECK_THAT(run.out, !ContainsSubstring("validation loss at iteration"));
  CHECK(here.file("run/latest_checkpointed_iteration.txt") == "100");
}

TEST_CASE("pretrain-gpt: a run that pauses, is stopped or goes back ends with the bits of one that does not") {
  const SmallCourse here;
  here.done(here.pretrain("whole"));
  const std::string weights = here.file("whole/iter_0000012/model.safetensors");
  const auto again = [&](const std::string& run, const std::string& more) {
    return here.pretrain(run, "--load " + here.path(run).string() + " " + more);
  };
  const Outcome paused = here.pretrain("paused", "--exit-interval 5");
  CHECK(paused.status == 0);
  CHECK_THAT(paused.out, ContainsSubstring("[exiting program at iteration 5] datetime: "));
  CHECK(here.file("paused/latest_checkpointed_iteration.txt") == "5");
  const auto refusal = [&](const Outcome& outcome) {
    CHECK(outcome.status == 1);
    return outcome.err;
  };
  CHECK_THAT(refusal(here.pretrain("paused")),
             ContainsSubstring("holds a run already: give --load " + here.path("paused").string() +
                               " to go on with it, --overwrite to start it again, or another --save\n"));
  CHECK_THAT(refusal(here.pretrain("other", "--load " + here.path("nowhere").string())),
             ContainsSubstring("--load " + here.path("nowhere").string() + " does not exist"));
  CHECK_THAT(refusal(again("paused", "--micro-batch-size 4")),
             ContainsSubstring("config key grad_accumulation in --global-batch-size, --micro-batch-size and the number "
                               "of ranks is 2, but 4 in the run to resume"));
  const std::string split = refusal(again("paused", "--split 80,10,10"));
  CHECK_THAT(split, ContainsSubstring("this is not the text that"));
  CHECK_THAT(split, ContainsSubstring("config key split in --split is \"80,10,10\", and \"90,5,5\" in the run"));
  CHECK_THAT(refusal(again("paused", "--set split_rule=core")), ContainsSubstring("this is not the text that"));
  CHECK_THAT(refusal(again("paused", "--lr 1")), ContainsSubstring("config key lr in --lr is 1"));
  CHECK_THAT(refusal(here.pretrain("other", "--load " + here.path("paused").string())),
             ContainsSubstring("a run goes on in its own folder"));
  // The format of the log is no part of a run: with another one it goes on on the same text.
  const Outcome resumed = again("paused", "--log-format core");
  here.done(resumed);
  CHECK_THAT(resumed.out, ContainsSubstring("  successfully loaded checkpoint from "));
  CHECK(losses_in(here.path("paused")) == losses_in(here.path("whole")));
  const auto tensors_of = [](const std::string& file) { return file.substr(file.find("}}")); };
  CHECK(tensors_of(here.file("paused/iter_0000012/model.safetensors")) == tensors_of(weights));

  // Back to an earlier iteration, by the file that names it.
  std::ofstream(here.path("paused/latest_checkpointed_iteration.txt")) << "6";
  here.done(again("paused", ""));
  CHECK(tensors_of(here.file("paused/iter_0000012/model.safetensors")) == tensors_of(weights));
}

TEST_CASE("pretrain-gpt: a signal ends a run behind an iteration, with Megatron-LM's line and a checkpoint") {
  const SmallCourse here;
  const std::filesystem::path metrics = here.path("run/metrics.jsonl");
  const Outcome stopped = isobar_command(
      here.path(), "pretrain-gpt " + here.flags() + "--train-iters 100000 --save " + here.path("run").string(),
      [&](pid_t child) {
        for (int i = 0; i < 2000 && !std::filesystem::exists(metrics); ++i) ::usleep(10'000);
        ::kill(child, SIGTERM);
      });
  CHECK(stopped.status == 75);
  CHECK_THAT(stopped.out, ContainsSubstring("\n[exiting program after receiving SIGTERM.] datetime: "));
  const std::string iteration = here.file("run/latest_checkpointed_iteration.txt");
  CHECK(here.file("run/stopped") == "stopped by SIGTERM after iteration " + iteration + " of 100000\n");
  CHECK_THAT(stopped.out, ContainsSubstring("stopped by SIGTERM after iteration " + iteration +
                                            " of 100000; a checkpoint is written to " + here.path("run").string() +
                                            ": run again with --resume\n"));
  CHECK(stopped.out.find(concat("saving checkpoint at iteration ", std::string(7 - iteration.size(), ' '), iteration)) <
        stopped.out.find("[exiting program"));
}

TEST_CASE("pretrain-gpt: a run that is made longer is the longer one, where the order of samples is the same") {
  const SmallCourse here;
  // 54 documents of 3,500 to 4,000 tokens in all: more than 96 samples of 16, and fewer than 320.
  const std::string longer = "--train-iters 20 ";
  here.done(here.pretrain("whole", longer));
  here.done(here.pretrain("grown"));
  const std::string load = "--load " + here.path("grown").string() + " ";
  const Outcome refused = here.pretrain("grown", load + "--train-iters 4000");
  CHECK(refused.status == 1);
  CHECK_THAT(refused.err, ContainsSubstring("32000 training samples would come in another order than those that"));
  CHECK_THAT(refused.err, ContainsSubstring("not of 1 epoch; that order has at most "));
  // Rates fall over --train-iters where --lr-decay-iters says nothing else: the flag that keeps them is named.
  const std::string decay = "--lr-decay-iters 100 ";
  std::string line = "pretrain-gpt " + here.flags() + "--save " + here.path("grown").string() + " " + load + longer;
  line.erase(line.find(decay), decay.size());
  const Outcome faster = here.command(line);
  CHECK(faster.status == 1);
  CHECK_THAT(faster.err,
             ContainsSubstring("--train-iters 20: rates fall over as many without --lr-decay-iters, and those of the "
                               "run to go on with over 100; give --lr-decay-iters 100"));
  here.done(here.pretrain("grown", load + longer));
  CHECK(losses_in(here.path("grown")) == losses_in(here.path("whole")));
  const auto tensors_of = [](const std::string& file) { return file.substr(file.find("}}")); };
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    CHECK(tensors_of(here.file(concat("grown/iter_0000020/", file))) ==
          tensors_of(here.file(concat("whole/iter_0000020/", file))));
  const json state = json::parse(here.file("grown/iter_0000020/state.json")),
             expected = json::parse(here.file("whole/iter_0000020/state.json"));
  CHECK(state.at("cursor") == expected.at("cursor"));
  CHECK(state.at("samples") == 160);
  CHECK(here.pretrain("grown", load + "--train-iters 16").status == 0);  // it is longer already
}

TEST_CASE("pretrain-gpt: weights start a run, with Adam's moments where a file has them") {
  const SmallCourse here;
  here.done(here.pretrain("first"));
  const std::filesystem::path old = here.path("first/iter_0000012"), moments = here.path("moments.safetensors");
  const auto begun = [&](const std::filesystem::path& given) {
    return here.pretrain("second", "--load " + (old / "model.safetensors").string() + " --load-moments " +
                                       given.string() + " --train-iters 6");
  };
  const Outcome untold = begun(old / "optimizer.safetensors");
  CHECK(untold.status == 1);
  CHECK_THAT(untold.err, ContainsSubstring("does not say how many updates its moments are of"));
  CHECK(!std::filesystem::exists(here.path("second")));
  copy_safetensors(old / "optimizer.safetensors", moments, {{"isobar.updates", "12"}});
  const Outcome second = begun(moments);
  here.done(second);
  CHECK_THAT(second.out, ContainsSubstring("its weights are taken; Adam's moments are those of " + moments.string()));
  CHECK_THAT(second.out, ContainsSubstring("Adam goes on with the moments of " + moments.string()));
  const json trainer = json::parse(here.file("second/iter_0000006/state.json")).at("trainer");
  CHECK(trainer.at("earlier_updates") == 12);
  CHECK(trainer.at("updates") == 18);
  CHECK(trainer.at("iteration") == 6);
  here.done(here.pretrain("second", "--load " + here.path("second").string()));  // a checkpoint as any other
  CHECK(json::parse(here.file("second/iter_0000012/state.json")).at("trainer").at("updates") == 24);
}

TEST_CASE("pretrain-gpt: a token that the vocabulary does not have is told by its file and its place") {
  const SmallCourse here;
  constexpr std::int64_t kSequence = 2, kPlace = 3;
  std::int64_t token = kPlace;
  {
    std::ifstream index(here.path("small_text_document.idx"), std::ios::binary);
    index.seekg(34);  // behind the header
    std::int32_t length = 0;
    for (int sequence = 0; sequence < kSequence; ++sequence) {
      index.read(reinterpret_cast<char*>(&length), sizeof length);
      token += length;
    }
  }
  for (const std::uint16_t wrong : {std::uint16_t{258}, std::uint16_t{65535}}) {
    std::fstream tokens(here.path("small_text_document.bin"), std::ios::binary | std::ios::in | std::ios::out);
    tokens.seekp(2 * token);
    tokens.write(reinterpret_cast<const char*>(&wrong), sizeof wrong);
    tokens.close();
    const Outcome run = here.pretrain("run", "--ranks 2");
    CHECK(run.status == 1);
    CHECK(run.err == concat("isobar: ", here.path("small_text_document").string(), ".bin: token ", wrong,
                            " is outside the vocabulary of 258 (sequence 2, place 3)\n"));
    CHECK(!std::filesystem::exists(here.path("run")));
  }
}

TEST_CASE("pretrain-gpt: without validation there is none, and the last weights are those of the run") {
  const SmallCourse here;
  for (const std::string format : {"legacy", "core"}) {
    const Outcome run = here.pretrain("run", "--eval-iters 0 --overwrite --log-format " + format);
    here.done(run);
    CHECK_THAT(run.out, !ContainsSubstring("validation loss"));
    CHECK_THAT(run.out, ContainsSubstring("    validation: 0\n    test:       0\n"));
    const std::size_t ends = run.out.find("[after training is done] datetime: ");
    REQUIRE(ends != std::string::npos);
    CHECK(ends > run.out.find(" iteration       12/      12 |"));
    CHECK(ends < run.out.find("saving checkpoint at iteration      12 to "));
    for (const json& line : metrics_of(here.path("run"))) CHECK(line.at("event") == "train");
    const json summary = json::parse(here.file("run/summary.json"));
    CHECK(summary.at("val_loss").is_null());
    CHECK(summary.at("iterations") == 12);
    CHECK(!std::filesystem::exists(here.path("run/best")));
  }
  const auto text_of = [&](const std::string& weights) {
    const Outcome text =
        here.command("generate --weights " + here.path(weights).string() + " --prompt alpha --max-tokens 12 --seed 3");
    here.done(text);
    return text.out;
  };
  CHECK(text_of("run") == text_of("run/iter_0000012"));
  CHECK(text_of("run") != text_of("run/iter_0000006"));
  // The same updates as with validations; and a validation that is owed can be left out.
  here.done(here.pretrain("judged"));
  CHECK(losses_in(here.path("run")) == losses_in(here.path("judged")));
  here.done(here.pretrain("paused", "--exit-interval 5 --eval-iters 0"));
  here.done(here.pretrain("paused", "--eval-iters 1 --load " + here.path("paused").string()));
  CHECK(losses_in(here.path("paused")) == losses_in(here.path("judged")));
  CHECK(std::filesystem::exists(here.path("paused/best")));
}

TEST_CASE("pretrain-gpt: made-up data take no file") {
  const SmallRuns here("");
  const auto pretrain = [&](const std::string& run, const std::string& more) {
    return here.command("pretrain-gpt " + mock_flags("--save " + here.path(run).string() + " " + more));
  };
  const Outcome run = pretrain("run", "--train-iters 60 --eval-iters 1");
  here.done(run);
  CHECK_THAT(run.out, ContainsSubstring(" > padded vocab (size: 4096) with 0 dummy tokens (new size: 4096)\n"));
  CHECK_THAT(run.out, ContainsSubstring("    train:      240\n    validation: 4\n    test:       4\n"));
  const std::vector<double> losses = losses_in(here.path("run"));
  CHECK(losses.front() == Approx(std::log(4096.0)).margin(0.3));
  CHECK(losses.back() < losses.front() - 0.08);
  here.done(pretrain("two",
                     "--train-iters 12 --eval-iters 1 --ranks 2 --global-batch-size 8 --micro-batch-size 4 "
                     "--exit-interval 4"));
  here.done(here.command("generate --weights " + here.path("run").string() + " --prompt \"5 6 7\" --max-tokens 2"));
  CHECK_THAT(pretrain("both", "--train-iters 2 --data-path x").err,
             ContainsSubstring("--mock-data takes the place of"));
  CHECK_THAT(pretrain("small", "--train-iters 2 --vocab-size 4000").err,
             ContainsSubstring("mock data has tokens up to 4094, but the vocabulary has only 4001"));
  CHECK_THAT(pretrain("none", "--train-iters 2 --tokenizer-type bytes").err,
             ContainsSubstring("mock data has tokens up to 4094, but the vocabulary has only 258"));
}

TEST_CASE("pretrain-gpt: the trace of a run is one that viewers open, its events one within another") {
  const SmallCourse here;
  const Outcome run = here.pretrain(
      "run", "--ranks 2 --profile-execution True --profile-name P --tensorboard-dir " + here.path("tb").string());
  here.done(run);
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(here.path("tb/P"))) files.push_back(entry.path());
  REQUIRE(files.size() == 1);
  const json trace = json::parse(read_file(files[0]));
  const std::vector<Span> spans = spans_in(trace);
  std::vector<Span> around;  // the innermost one last
  int steps = 0, inner = 0, messages = 0;
  for (const Span& span : spans) {
    while (!around.empty() && around.back().end <= span.begin) around.pop_back();
    INFO(span.name << " from " << span.begin << " to " << span.end);
    if (!around.empty()) CHECK(span.end <= around.back().end);
    const bool is_step = span.name.starts_with("ProfilerStep#");
    CHECK((!is_step || around.empty()));
    steps += is_step ? 1 : 0;
    inner += around.empty() ? 0 : 1;  // ranks agree on a loss between two steps
    messages += span.name.find("all_reduce over dp") != std::string::npos ? 1 : 0;
    around.push_back(span);
  }
  CHECK(steps == 2);
  check_operands_in(trace);
  CHECK(inner > 100);
  CHECK(messages >= 2);
}

TEST_CASE("pretrain-gpt: the memory of a step, predicted before it and counted after it") {
  const SmallCourse here;
  const Outcome run = here.pretrain("run",
                                    "--log-format core --eval-iters 0 --train-iters 1 --lr-warmup-fraction 0 "
                                    "--log-interval 1");
  here.done(run);
  std::smatch told, counted;
  REQUIRE(std::regex_search(run.out, told,
                            std::regex(R"(Theoretical memory footprints: weight and optimizer=([0-9.]+) MB, )"
                                       R"(activation=([0-9.]+) MB, total=([0-9.]+) MB\n)")));
  REQUIRE(std::regex_search(run.out, counted,
                            std::regex(R"(memory \(MB\) \| allocated: ([0-9.]+) \| max allocated: ([0-9.]+) )")));
  CHECK(std::stod(told[3]) == Approx(std::stod(counted[2])).margin(0.006));
  CHECK(std::stod(told[1]) == Approx(std::stod(counted[1])).margin(0.006));
  CHECK(std::stod(told[2]) > 0.05);
  CHECK(run.out.find("Theoretical memory") < run.out.find("[before the start of training step]"));
  CHECK_THAT(run.out, ContainsSubstring("memory of a step, predicted: "));
  const Outcome legacy = here.pretrain("legacy", "--train-iters 1 --ranks 2 --micro-batch-size 4");
  here.done(legacy);
  CHECK_THAT(legacy.out, !ContainsSubstring("Theoretical"));
  CHECK_THAT(legacy.out, ContainsSubstring("memory of a step, predicted for rank 0: "));
}

TEST_CASE("pretrain-gpt: which evaluations the log tells of, where the last iteration is one of the interval") {
  const SmallCourse here;
  const auto evaluations = [&](const std::string& format) {
    const Outcome run = here.pretrain("run", "--overwrite --eval-interval 6 --log-format " + format);
    here.done(run);
    std::vector<std::string> told;
    const std::regex line(R"( validation loss at (.*) \| lm loss value: .*)");
    std::istringstream in(run.out);
    std::smatch match;
    for (std::string text; std::getline(in, text);)
      if (std::regex_match(text, match, line)) told.push_back(match[1].str());
    return told;
  };
  using Told = std::vector<std::string>;
  CHECK(evaluations("legacy") ==
        Told{"iteration 6", "iteration 12", "the end of training for val data", "the end of training for test data"});
  CHECK(evaluations("core") ==
        Told{"iteration 6", "iteration 12", "iteration 12 on validation set", "iteration 12 on test set"});
}

TEST_CASE("pretrain-gpt: parameters of every rank that shares the first one's samples, and timers of all ranks") {
  const SmallCourse here;
  const Outcome run = here.pretrain("run",
                                    "--ranks 4 --tensor-model-parallel-size 2 --train-iters 4 --eval-iters 0 "
                                    "--timing-log-level 2");
  here.done(run);
  const std::map<std::string, std::int64_t> parameters = parameters_told(run.out);
  const std::regex timer(R"(    ([a-z-]+) \.+: \(([0-9.]+), ([0-9.]+)\))");
  std::vector<std::string> timers;
  std::istringstream in(run.out);
  std::smatch match;
  for (std::string text; std::getline(in, text);) {
    if (!std::regex_match(text, match, timer)) continue;
    timers.push_back(match[1].str());
    CHECK(std::stod(match[2]) <= std::stod(match[3]));
  }
  REQUIRE(parameters.size() == 2);
  CHECK(parameters.at("0, 0") + parameters.at("1, 0") > 36224);  // of the whole network: some are held by both
  CHECK(parameters.at("0, 0") < 36224);
  CHECK(timers == std::vector<std::string>{"forward-backward", "batch-generator", "all-grads-sync", "optimizer"});
}

// Of a table of 320 x 32, positions of 16 x 32, two blocks of 12 · 32² + 13 · 32 and a norm of 2 · 32 parameters.
TEST_CASE("pretrain-gpt: parameters of each stage of a pipeline and of each tensor-parallel rank, by hand") {
  const SmallCourse here;
  const auto told = [&](const std::string& layout) {
    const Outcome run = here.pretrain("run", "--overwrite --train-iters 1 --eval-iters 0 " + layout);
    here.done(run);
    return parameters_told(run.out);
  };
  using Told = std::map<std::string, std::int64_t>;
  CHECK(told("--ranks 4") == Told{{"0, 0", 36224}});
  // The table is held at both ends.
  CHECK(told("--ranks 4 --pipeline-model-parallel-size 2") ==
        Told{{"0, 0", 10240 + 512 + 12704}, {"0, 1", 12704 + 64 + 10240}});
  // Of five groups of 64 rows three and two, and of each block's matrices and the biases of what is split a half.
  CHECK(told("--ranks 4 --tensor-model-parallel-size 2") ==
        Told{{"0, 0", 6144 + 512 + 2 * 6448 + 64}, {"1, 0", 4096 + 512 + 2 * 6448 + 64}});
}

TEST_CASE("pretrain-gpt: tags of TensorBoard, by iterations and by samples") {
  const SmallCourse here;
  here.done(
      here.pretrain("run", "--tensorboard-dir " + here.path("tb").string() +
                               " --log-timers-to-tensorboard --log-batch-size-to-tensorboard --timing-log-level 1 "
                               "--log-validation-ppl-to-tensorboard --log-world-size-to-tensorboard --log-params-norm "
                               "--log-num-zeros-in-grad --log-throughput --log-memory-to-tensorboard"));
  const std::filesystem::directory_iterator files(here.path("tb"));
  const TensorBoardEvents events(files->path());
  const auto steps_of = [&](const std::string& tag) {
    std::vector<std::int64_t> steps;
    for (const auto& [key, value] : events.scalars)
      if (key.first == tag) steps.push_back(key.second);
    return steps;
  };
  std::vector<std::int64_t> iterations, samples;
  for (std::int64_t i = 1; i <= 12; ++i) iterations.push_back(i), samples.push_back(8 * i);
  for (const char* tag : {"learning-rate", "batch-size", "lm loss", "loss-scale", "world-size", "grad-norm",
                          "num-zeros", "params-norm"}) {
    INFO(tag);
    CHECK(steps_of(tag) == iterations);
    CHECK(steps_of(concat(tag, " vs samples")) == samples);
    CHECK(events.scalars.at({tag, 7}) == events.scalars.at({concat(tag, " vs samples"), 56}));
  }
  for (const char* tag : {"iteration-time", "throughput", "forward-backward-time", "optimizer-time"})
    CHECK(steps_of(tag) == std::vector<std::int64_t>{4, 8, 12});
  for (const std::int64_t iteration : {4, 8, 12}) {  // seconds of one iteration, in the mean over four
    const float all = events.scalars.at({"iteration-time", iteration}),
                passes = events.scalars.at({"forward-backward-time", iteration}),
                update = events.scalars.at({"optimizer-time", iteration});
    CHECK((passes > 0 && update > 0));
    CHECK(passes + update <= all);
    CHECK(passes + update > all / 20);
  }
  // The one of every 8 iterations, and that of the end.
  CHECK(steps_of("lm loss validation") == std::vector<std::int64_t>{8, 12});
  CHECK(steps_of("lm loss validation vs samples") == std::vector<std::int64_t>{64, 96});
  for (const std::int64_t iteration : {8, 12})
    CHECK(events.scalars.at({"lm loss validation ppl", iteration}) ==
          Approx(std::exp(events.scalars.at({"lm loss validation", iteration}))).epsilon(1e-5));
  CHECK(events.scalars.at({"batch-size", 1}) == 8);
  CHECK(steps_of("mem-allocated-bytes") == iterations);
}

}  // namespace isobar::testing
