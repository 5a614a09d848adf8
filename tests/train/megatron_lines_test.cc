// Megatron-LM's lines to the character: beside those of NVIDIA's course, and of logs of its version core_v0.12.
#include "apps/train/megatron_lines.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/train/megatron_journal.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensorboard_events.h"
#include "tests/harness/testing.h"

using namespace isobar;

namespace {

// The last one of the course's notebook.
const MegatronTraining kCourseLine{.iteration = 100,
                                   .iterations = 100,
                                   .consumed_samples = 800,
                                   .seconds_per_iteration = 0.5373,
                                   .lr = 5.822199222715788e-05,
                                   .global_batch_size = 8,
                                   .loss = 7.44895,
                                   .loss_scale = 1,
                                   .grad_norm = 1.303};

}  // namespace

TEST_CASE("Megatron's lines: of training") {
  CHECK(megatron_training_line(kCourseLine, MegatronFormat::legacy, "") ==
        " iteration      100/     100 | consumed samples:          800 | elapsed time per iteration (ms): 537.3 | "
        "learning rate: 5.822E-05 | global batch size:     8 | lm loss: 7.448950E+00 | loss scale: 1.0 | grad norm: "
        "1.303 | number of skipped iterations:   0 | number of nan iterations:   0 |");
  MegatronTraining all = kCourseLine;
  all.zeros = 12;
  all.params_norm = 98.7654;
  all.tflops = 12.345;
  CHECK(megatron_training_line(all, MegatronFormat::core, "2025-05-01 12:00:00") ==
        " [2025-05-01 12:00:00] iteration      100/     100 | consumed samples:          800 | elapsed time per "
        "iteration (ms): 537.3 | throughput per GPU (TFLOP/s/GPU): 12.3 | learning rate: 5.822199E-05 | global batch "
        "size:     8 | lm loss: 7.448950E+00 | loss scale: 1.0 | grad norm: 1.303 | num zeros: 12.0 | params norm: "
        "98.765 | number of skipped iterations:   0 | number of nan iterations:   0 |");
  MegatronTraining skipped = kCourseLine;
  skipped.loss = 0;
  skipped.grad_norm.reset();
  skipped.loss_scale = 4294967296;
  skipped.skipped = 10;
  CHECK_THAT(megatron_training_line(skipped, MegatronFormat::legacy, ""),
             testing::ContainsSubstring("global batch size:     8 | loss scale: 4294967296.0 | number of skipped "
                                        "iterations:  10 | number of nan iterations:   0 |"));
}

TEST_CASE("Megatron's lines: of evaluations") {
  const Lines lines = megatron_validation_lines("iteration 1000", 2);
  REQUIRE(lines.size() == 3);
  CHECK(lines[1] == " validation loss at iteration 1000 | lm loss value: 2.000000E+00 | lm loss PPL: 7.389056E+00 | ");
  CHECK(lines[0] == std::string(lines[1].size() + 1, '-'));
  CHECK(lines[2] == lines[0]);
  CHECK_THAT(megatron_validation_lines("x", 30)[1], testing::ContainsSubstring("PPL: 4.851652E+08"));  // e^20
  CHECK(megatron_evaluation(MegatronFormat::legacy, 100, "valid") == "the end of training for val data");
  CHECK(megatron_evaluation(MegatronFormat::legacy, 100, "test") == "the end of training for test data");
  CHECK(megatron_evaluation(MegatronFormat::core, 100, "test") == "iteration 100 on test set");
  CHECK(megatron_evaluation(MegatronFormat::core, 7, "valid") == "iteration 7 on validation set");
}

TEST_CASE("Megatron's lines: of the beginning") {
  CHECK(megatron_world_line({.world = 4, .dp = 1, .tp = 2, .pp = 2}, MegatronFormat::legacy) ==
        "using world size: 4, data-parallel-size: 1, tensor-model-parallel size: 2, pipeline-model-parallel size: 2 ");
  CHECK(megatron_world_line({.world = 24, .dp = 1, .tp = 2, .pp = 3, .cp = 4}, MegatronFormat::core) ==
        "using world size: 24, data-parallel size: 1, context-parallel size: 4, hierarchical context-parallel sizes: "
        "Nonetensor-model-parallel size: 2, encoder-tensor-model-parallel size: 0, pipeline-model-parallel size: 3, "
        "encoder-pipeline-model-parallel size: 0");
  CHECK(megatron_vocabulary_line(50257, 50304) ==
        " > padded vocab (size: 50257) with 47 dummy tokens (new size: 50304)");
  CHECK(megatron_parameters_line(0, 1, 124475904) ==
        " > number of parameters on (tensor, pipeline) model parallel rank (0, 1): 124475904");
  const Lines arguments = megatron_argument_lines({{"lr", "6e-05"}, {"DDP_impl", "local"}, {"adam_eps", "1e-08"}});
  CHECK(arguments == Lines{"------------------------ arguments ------------------------",
                           "  adam_eps ........................................ 1e-08",
                           "  DDP_impl ........................................ local",
                           "  lr .............................................. 6e-05",
                           "-------------------- end of arguments ---------------------"});
  CHECK(megatron_target_lines({800, 80, 80}) == Lines{" > datasets target sizes (minimum size):", "    train:      800",
                                                      "    validation: 80", "    test:       80"});
  CHECK(megatron_split_lines({0, 6854, 7215, 7222}) ==
        Lines{" > dataset split:", "    train:", "     document indices in [0, 6854) total of 6854 documents",
              "    validation:", "     document indices in [6854, 7215) total of 361 documents",
              "    test:", "     document indices in [7215, 7222) total of 7 documents"});
  const std::string longer(48, 'x');  // as long as the dots reach
  CHECK(megatron_argument_lines({{longer, "1"}, {longer.substr(1), "2"}}) ==
        Lines{"------------------------ arguments ------------------------", "  " + longer.substr(1) + " . 2",
              "  " + longer + "  1", "-------------------- end of arguments ---------------------"});
  CHECK(megatron_datetime_line("after training is done", "2022-11-30 14:05:09") ==
        "[after training is done] datetime: 2022-11-30 14:05:09 ");
}

TEST_CASE("Megatron's lines: of checkpoints, timers and memory") {
  CHECK(megatron_saving_line(MegatronFormat::legacy, 100, "CKPT") == "saving checkpoint at iteration     100 to CKPT");
  CHECK(megatron_saved_line(MegatronFormat::legacy, 100, "CKPT") ==
        "  successfully saved checkpoint at iteration     100 to CKPT");
  CHECK(megatron_saved_line(MegatronFormat::core, 100, "CKPT") ==
        "  successfully saved checkpoint from iteration     100 to CKPT");
  CHECK(megatron_saving_line(MegatronFormat::core, 100, "CKPT") ==
        "saving checkpoint at iteration     100 to CKPT in isobar format");
  CHECK(megatron_loading_line(7, "CKPT") == " loading checkpoint from CKPT at iteration 7");
  CHECK(megatron_loaded_line(7, "CKPT") == "  successfully loaded checkpoint from CKPT at iteration 7");
  CHECK(megatron_footprint_line(3.0 * 1024 * 1024, 4.5 * 1024 * 1024) ==
        "Theoretical memory footprints: weight and optimizer=3.00 MB, activation=1.50 MB, total=4.50 MB");
  CHECK(megatron_timer_lines({}).empty());
  CHECK(megatron_timer_lines({{"a", 1, 2}, {std::string(60, 'x'), 3, 4}}) ==
        Lines{"(min, max) time across ranks (ms):", "    a " + std::string(46, '.') + ": (1.00, 2.00)",
              "    " + std::string(60, 'x') + " : (3.00, 4.00)"});
  CHECK(megatron_timer_lines({{"save-checkpoint", 24895.07, 24895.13}}) ==
        Lines{"(min, max) time across ranks (ms):",
              "    save-checkpoint ................................: (24895.07, 24895.13)"});
  CHECK(megatron_memory_line(0, 1, {1024.0 * 1024, 1.5 * 1024 * 1024, 0, 3 * 1024 * 1024}) ==
        "[Rank 0] (after 1 iterations) memory (MB) | allocated: 1.0 | max allocated: 1.5 | reserved: 0.0 | max "
        "reserved: 3.0");
}

TEST_CASE("Megatron's lines: numbers as Python prints them") {
  for (const auto& [value, text] : std::vector<std::pair<double, std::string>>{{6e-5, "6e-05"},
                                                                               {1e-8, "1e-08"},
                                                                               {0.1, "0.1"},
                                                                               {1, "1.0"},
                                                                               {4294967296, "4294967296.0"},
                                                                               {1e16, "1e+16"},
                                                                               {0.0001, "0.0001"},
                                                                               {-2.5, "-2.5"},
                                                                               {0, "0.0"},
                                                                               {9.99e-5, "9.99e-05"},
                                                                               {1e15, "1000000000000000.0"},
                                                                               {123456.75, "123456.75"},
                                                                               {-1e300, "-1e+300"},
                                                                               {INFINITY, "inf"},
                                                                               {-INFINITY, "-inf"},
                                                                               {NAN, "nan"}})
    CHECK(python_float(value) == text);
}

TEST_CASE("Megatron's lines: operations of the course's model") {
  CHECK(megatron_flops_of_sample({.layers = 12,
                                  .width = 768,
                                  .hidden = 3072,
                                  .heads = 32,
                                  .head_size = 24,
                                  .seq_length = 1024,
                                  .rows = 50304}) == 817184636928.0);
  // Heads that are wider together than the model: 2 (12·4·8 + 12·4·4 (2 + 2/8) 8/4 + 6·4·10).
  CHECK(megatron_flops_of_sample(
            {.layers = 1, .width = 4, .hidden = 8, .heads = 2, .head_size = 4, .seq_length = 2, .rows = 10}) == 2976.0);
}

TEST_CASE("Megatron's journal: a line tells the mean of what was not skipped, and begins again behind it") {
  std::vector<std::string> told;
  MegatronJournal journal(
      {.log_every = 2}, nlohmann::ordered_json::object(), [&](const std::string& line) { told.push_back(line); },
      std::nullopt, 0);
  journal.begin({.iterations = 4});
  told.clear();
  const auto step = [&](std::int64_t iteration, double loss, bool applied) {
    journal.iteration({.iteration = iteration,
                       .samples = 8,
                       .consumed_samples = 8 * iteration,
                       .result = {.loss = loss, .grad_norm = 1, .applied = applied, .next_lr = 0, .next_loss_scale = 2},
                       .seconds = 0.25 * static_cast<double>(iteration)},
                      {});
  };
  step(1, 100, false);
  CHECK(told.empty());
  step(2, 3, true);
  REQUIRE(told.size() == 1);
  CHECK_THAT(told[0], testing::ContainsSubstring("(ms): 375.0 |"));
  CHECK_THAT(told[0], testing::ContainsSubstring("lm loss: 3.000000E+00 | loss scale: 2.0 | grad norm: 1.000 |"));
  CHECK_THAT(told[0], testing::ContainsSubstring("skipped iterations:   1 |"));
  step(3, 1, true);
  step(4, 2, false);
  REQUIRE(told.size() == 2);
  CHECK_THAT(told[1], testing::ContainsSubstring("lm loss: 1.000000E+00 | loss scale: 2.0 | number of skipped"));
  CHECK_THAT(told[1], testing::ContainsSubstring("consumed samples:           32 |"));
}

namespace {

// What a journal of one voice and one config says.
struct Heard {
  explicit Heard(MegatronVoice voice, const nlohmann::ordered_json& config = nlohmann::ordered_json::object(),
                 std::optional<std::int64_t> purge_step = {}, std::int64_t first_iteration = 0)
      : journal(
            std::move(voice), config, [this](const std::string& line) { told.push_back(line); }, purge_step,
            first_iteration) {}

  void step(std::int64_t iteration, double next_lr, const std::vector<MegatronTimer>& timers = {}) {
    journal.iteration({.iteration = iteration,
                       .samples = 8,
                       .consumed_samples = 8 * iteration,
                       .result = {.loss = 2, .lr = 9, .grad_norm = 3, .next_lr = next_lr, .next_loss_scale = 16},
                       .seconds = 0.5,
                       .zeros = 12,
                       .params_norm = 5},
                      timers);
  }

  std::vector<std::string> told;
  MegatronJournal journal;
};

const nlohmann::ordered_json kCourseConfig{{"depth", 12},          {"embed_dim", 768},    {"num_heads", 32},
                                           {"seq_length", 1024},   {"vocab_size", 50257}, {"vocab_multiple", 128},
                                           {"mlp_hidden", nullptr}};

}  // namespace

TEST_CASE("Megatron's journal: sizes come from the config, and the throughput is that of a GPU") {
  Heard heard({.layout = {.world = 4}, .log_every = 1, .throughput = true}, kCourseConfig);
  heard.journal.begin({.iterations = 10, .samples = {80, 8, 0}, .parameters = {{0, 0, 5}, {1, 0, 6}}});
  const auto has = [&](const std::string& line) { return std::ranges::find(heard.told, line) != heard.told.end(); };
  CHECK(has(" > padded vocab (size: 50257) with 47 dummy tokens (new size: 50304)"));
  CHECK(has(" > number of parameters on (tensor, pipeline) model parallel rank (0, 0): 5"));
  CHECK(has(" > number of parameters on (tensor, pipeline) model parallel rank (1, 0): 6"));
  CHECK(has("    test:       0"));
  heard.told.clear();
  heard.step(1, 1e-3);
  // 8 samples of 817184636928 operations in half a second on 4 GPUs.
  CHECK_THAT(heard.told.at(0), testing::ContainsSubstring(" iteration        1/      10 |"));
  CHECK_THAT(heard.told.at(0), testing::ContainsSubstring("(ms): 500.0 | throughput per GPU (TFLOP/s/GPU): 3.3 |"));
  CHECK_THAT(heard.told.at(0), testing::ContainsSubstring("| num zeros: 12.0 | params norm: 5.000 |"));
}

TEST_CASE("Megatron's journal: memory is told once, behind the first interval whose next rate is above 0") {
  Heard heard({.log_every = 2});
  heard.journal.begin({.iterations = 8});
  heard.told.clear();
  for (const std::int64_t iteration : {1, 2}) heard.step(iteration, 0);
  CHECK(heard.told.size() == 1);
  for (const std::int64_t iteration : {3, 4, 5, 6}) heard.step(iteration, 1e-3);
  REQUIRE(heard.told.size() == 4);
  CHECK_THAT(heard.told[2], testing::ContainsSubstring("[Rank 0] (after 4 iterations) memory (MB) | allocated: "));
  CHECK_THAT(heard.told[3], testing::ContainsSubstring(" iteration        6/"));
}

TEST_CASE("Megatron's journal: which timers a level has, and their seconds in the same order") {
  PhaseSeconds seconds;
  seconds.add({.data_seconds = 2, .pass_seconds = 1, .reduce_seconds = 3, .update_seconds = 4});
  seconds.add({.data_seconds = 20, .pass_seconds = 10, .reduce_seconds = 30, .update_seconds = 40});
  using Names = std::vector<std::string>;
  using Values = std::vector<double>;
  CHECK(megatron_timer_names(0).empty());
  CHECK(of_level(seconds, 0).empty());
  CHECK(megatron_timer_names(1) == Names{"forward-backward", "all-grads-sync", "optimizer"});
  CHECK(of_level(seconds, 1) == Values{11, 33, 44});
  CHECK(megatron_timer_names(2) == Names{"forward-backward", "batch-generator", "all-grads-sync", "optimizer"});
  CHECK(of_level(seconds, 2) == Values{11, 22, 33, 44});
}

TEST_CASE("Megatron's journal: TensorBoard gets what the voice has, with these values, at these steps") {
  const testing::TemporaryFolder folder;
  int runs = 0;
  const auto events_of = [&](MegatronVoice voice) {
    const std::filesystem::path place = folder / std::to_string(++runs);
    voice.tensorboard_folder = place.string();
    voice.log_every = 4;
    voice.layout.world = 6;
    {
      Heard heard(voice);
      heard.journal.begin({.iterations = 8});
      for (std::int64_t i = 1; i < 4; ++i) heard.step(i, 0.25);
      heard.step(4, 0.25, {{"optimizer", 500, 1500}});
      heard.journal.validated(4, 32, 1);
      heard.journal.validated_at_end(4, 32, 2);
      heard.journal.validated_at_end(5, 40, 3);
      heard.journal.tested(6, 4);
    }
    return testing::TensorBoardEvents(*std::filesystem::directory_iterator(place)).scalars;
  };
  const auto all =
      events_of({.tensorboard_every = 2, .timers = true, .batch_size = true, .perplexity = true, .world_size = true});
  for (const auto& [tag, value] :
       {std::pair("learning-rate", 0.25f), std::pair("batch-size", 8.f), std::pair("lm loss", 2.f),
        std::pair("loss-scale", 16.f), std::pair("world-size", 6.f), std::pair("grad-norm", 3.f),
        std::pair("num-zeros", 12.f), std::pair("params-norm", 5.f)}) {
    INFO(tag);
    CHECK(all.at({tag, 2}) == value);
    CHECK(all.at({tag, 4}) == value);
    CHECK_FALSE(all.contains({tag, 1}));
    CHECK(all.at({concat(tag, " vs samples"), 16}) == value);
    CHECK(all.at({concat(tag, " vs samples"), 32}) == value);
  }
  CHECK(all.at({"iteration-time", 4}) == 0.5f);
  CHECK(all.at({"optimizer-time", 4}) == 1.5f);     // of the slowest rank, in seconds
  CHECK(all.at({"lm loss validation", 4}) == 1.f);  // and not 2: it is there already
  CHECK(all.at({"lm loss validation", 5}) == 3.f);
  CHECK(all.at({"lm loss validation vs samples", 40}) == 3.f);
  CHECK_FALSE(all.contains({"lm loss validation", 6}));
  CHECK(all.at({"lm loss validation vs samples", 32}) == 1.f);
  CHECK(all.at({"lm loss validation ppl", 4}) == testing::Approx(std::exp(1.f)));
  CHECK_FALSE(all.contains({"mem-allocated-bytes", 4}));
  CHECK_FALSE(all.contains({"throughput", 4}));

  const auto least = events_of({.learning_rate = false, .loss_scale = false});
  for (const char* tag :
       {"learning-rate", "loss-scale", "batch-size", "world-size", "iteration-time", "optimizer-time"})
    CHECK_FALSE(least.contains({tag, 4}));
  CHECK(least.contains({"lm loss", 1}));
  CHECK_FALSE(least.contains({"lm loss validation ppl", 4}));
  const auto memory = events_of({.memory = true});
  for (const std::int64_t step : {1, 2, 3, 4}) {
    const float allocated = memory.at({"mem-allocated-bytes", step});
    CHECK(memory.at({"mem-reserved-bytes", step}) >= allocated);
    CHECK(memory.at({"mem-max-allocated-bytes", step}) >= allocated);
    CHECK_FALSE(memory.contains({"mem-allocated-bytes vs samples", 8 * step}));
  }
}

TEST_CASE("Megatron's voice: the lines before a run has its data") {
  const MegatronVoice voice{.arguments = {{"lr", "1.0"}},
                            .accepted = {"--a: nothing", "--b: nothing"},
                            .layout = {.world = 2, .dp = 2},
                            .dtype = "bfloat16"};
  const Lines lines = voice.start_lines();
  REQUIRE(lines.size() == 7);
  CHECK(lines[0] == megatron_world_line(voice.layout, MegatronFormat::legacy));
  CHECK(lines[1] == "using torch.bfloat16 for parameters ...");
  CHECK(lines[3] == "  lr .............................................. 1.0");
  CHECK(lines[5] == "--a: nothing");
  CHECK(lines[6] == "--b: nothing");
}
