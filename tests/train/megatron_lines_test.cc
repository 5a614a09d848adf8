// Megatron-LM's lines to the character: beside those of NVIDIA's course, and of logs of its version core_v0.12.
#include "apps/train/megatron_lines.h"

#include <nlohmann/json.hpp>

#include "apps/train/megatron_journal.h"
#include "tests/harness/temporary_folder.h"
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
}

TEST_CASE("Megatron's lines: of the beginning") {
  CHECK(megatron_world_line({.world = 4, .dp = 1, .tp = 2, .pp = 2}, MegatronFormat::legacy) ==
        "using world size: 4, data-parallel-size: 1, tensor-model-parallel size: 2, pipeline-model-parallel size: 2 ");
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
  CHECK(megatron_split_lines({0, 6854, 7215, 7222})[6] == "     document indices in [7215, 7222) total of 7 documents");
  CHECK(megatron_datetime_line("after training is done", "2022-11-30 14:05:09") ==
        "[after training is done] datetime: 2022-11-30 14:05:09 ");
}

TEST_CASE("Megatron's lines: of checkpoints, timers and memory") {
  CHECK(megatron_saving_line(MegatronFormat::legacy, 100, "CKPT") == "saving checkpoint at iteration     100 to CKPT");
  CHECK(megatron_saved_line(MegatronFormat::legacy, 100, "CKPT") ==
        "  successfully saved checkpoint at iteration     100 to CKPT");
  CHECK(megatron_saved_line(MegatronFormat::core, 100, "CKPT") ==
        "  successfully saved checkpoint from iteration     100 to CKPT");
  CHECK(megatron_timer_lines({}).empty());
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
                                                                               {0, "0.0"}})
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
