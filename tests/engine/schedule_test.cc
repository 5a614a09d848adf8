// The family of learning-rate schedules against numbers of PyTorch's schedulers (2.x, fp64) and of the published
// formulas of the NERSC tutorials, Megatron-LM and nanoGPT, evaluated in Python.
#include "engine/schedule.h"

#include <limits>
#include <vector>

#include "tests/harness/forecast_config.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;

struct Point {
  std::int64_t t;
  double rate;
};

void check_rates(const LearningRate& schedule, const std::vector<Point>& points) {
  for (const auto& [t, rate] : points) {
    INFO("after " << t << " updates");
    CHECK(schedule.at(t) == testing::Approx(rate).epsilon(1e-13).margin(1e-18));
  }
}

}  // namespace

TEST_CASE("schedule: PyTorch's CosineAnnealingLR, LinearLR, ExponentialLR and LambdaLR") {
  check_rates({.kind = ScheduleKind::cosine, .base = 0.3, .end = 0.02, .steps = 40}, {{0, 0.3},
                                                                                      {1, 0.2995684267226379},
                                                                                      {13, 0.2331497990602328},
                                                                                      {39, 0.020431573277362086},
                                                                                      {40, 0.02},
                                                                                      {41, 0.02}});
  check_rates({.kind = ScheduleKind::linear, .base = 0.3, .end = 0.03, .steps = 40},
              {{0, 0.3}, {1, 0.29325}, {13, 0.21225}, {39, 0.03675}, {44, 0.03}});
  check_rates({.kind = ScheduleKind::step, .base = 0.3, .gamma = 0.9},
              {{0, 0.3}, {1, 0.27}, {17, 0.05003154509899972}, {49, 0.001717925069106706}});
  check_rates({.kind = ScheduleKind::cosine, .base = 0.3, .warmup = 10, .steps = 100}, {{0, 0.03},
                                                                                        {4, 0.15},
                                                                                        {9, 0.29404405285154145},
                                                                                        {10, 0.29265847744427304},
                                                                                        {50, 0.15},
                                                                                        {99, 7.401594514025999e-05}});
  // SequentialLR of LinearLR and CosineAnnealingLR.
  check_rates({.kind = ScheduleKind::cosine,
               .base = 0.3,
               .end = 0.02,
               .rule = WarmupRule::megatron,
               .warmup = 4,
               .warmup_lr = 0.06,
               .steps = 40},
              {{0, 0.06}, {1, 0.12}, {4, 0.3}, {5, 0.2994672577328444}, {20, 0.1843107448733703}, {40, 0.02}});
  // And of StepLR, whose steps count from the warmup's end.
  check_rates({.kind = ScheduleKind::step,
               .base = 0.4,
               .rule = WarmupRule::megatron,
               .warmup = 4,
               .steps = 40,
               .gamma = 0.5,
               .every = 3},
              {{2, 0.2}, {4, 0.4}, {6, 0.4}, {7, 0.2}, {9, 0.2}, {10, 0.1}});
}

TEST_CASE("schedule: no decay falls below its end, and without a warmup it begins at once") {
  check_rates({.kind = ScheduleKind::step, .base = 0.4, .end = 0.15, .gamma = 0.5},
              {{0, 0.4}, {1, 0.2}, {2, 0.15}, {90, 0.15}});
  check_rates({.kind = ScheduleKind::inverse_square_root, .base = 0.4, .end = 0.15, .steps = 9},
              {{0, 0.4}, {1, 0.4}, {4, 0.2}, {8, 0.15}, {9, 0.15}, {10, 0.15}});
  check_rates({.kind = ScheduleKind::inverse_square_root, .base = 0.4, .steps = 9},
              {{4, 0.2}, {9, 0.4 / 3}, {10, 0}});  // its length over, it is at its end
  check_rates({.kind = ScheduleKind::constant, .base = 0.4, .end = 0.15, .steps = 9}, {{0, 0.4}, {90, 0.4}});
  // The last iterations of wsd are those before T with the rules that do not shorten the decay.
  check_rates(
      {.kind = ScheduleKind::wsd, .base = 0.4, .warmup = 5, .steps = 20, .wsd = WsdDecay::linear, .wsd_iters = 10},
      {{9, 0.4}, {10, 0.4}, {15, 0.2}, {20, 0}});
  check_rates({.kind = ScheduleKind::wsd,
               .base = 0.4,
               .rule = WarmupRule::unet,
               .warmup = 5,
               .steps = 20,
               .wsd = WsdDecay::linear,
               .wsd_iters = 10},
              {{13, 0.4}, {14, 0.4}, {19, 0.2}, {24, 0}});
}

TEST_CASE("schedule: a run of epochs is one of their iterations") {
  ScheduleOptions options{.num_iters = 5, .num_epochs = 3, .lr = 0.3};
  const ScheduleOptions schedule = options.of_run(40);
  CHECK(schedule.num_iters == 120);
  CHECK_FALSE(schedule.num_epochs);
  CHECK(schedule.learning_rate(1).at(60) == testing::Approx(0.15).epsilon(1e-13));
  CHECK(schedule.of_run(7).num_iters == 120);  // nothing is left to be said
  options.decay_epochs = 2;
  CHECK(options.of_run(40).num_iters == 120);
  CHECK(options.of_run(40).decay_iters == 80);
  CHECK(options.of_run(40).learning_rate(1).at(40) == testing::Approx(0.15).epsilon(1e-13));
  options.decay_epochs.reset();

  options.warmup_rule = WarmupRule::megatron;
  options.warmup = 120;
  CHECK_NOTHROW(options.keys().check({}));  // nobody knows yet
  CHECK_THROWS_WITH(options.of_run(40),
                    "config key warmup must be below num_iters (120) with warmup_rule megatron, not 120");
  CHECK_NOTHROW(options.of_run(41));
  options.num_epochs = std::int64_t{1} << 62;
  CHECK_THROWS_WITH(options.of_run(4), ContainsSubstring("config key num_epochs"));
}

TEST_CASE("schedule: by epochs a decay holds its rate up to an epoch's end, as StepLR does that is stepped there") {
  check_rates({.kind = ScheduleKind::step, .base = 0.3, .interval = 7, .gamma = 0.3, .every = 14},
              {{0, 0.3}, {6, 0.3}, {13, 0.3}, {14, 0.09}, {27, 0.09}, {28, 0.027}, {62, 0.00243}});
  check_rates({.kind = ScheduleKind::cosine, .base = 0.3, .steps = 42, .interval = 7},
              {{0, 0.3}, {6, 0.3}, {7, 0.27990381056766583}, {20, 0.225}, {41, 0.020096189432334197}});
  // The warmup goes on with every iteration.
  check_rates({.kind = ScheduleKind::step, .base = 0.4, .warmup = 4, .interval = 7, .gamma = 0.5, .every = 7},
              {{0, 0.1}, {2, 0.3}, {3, 0.4}, {6, 0.4}, {7, 0.2}});
  ScheduleOptions options;
  options.lr = 0.3;
  options.lr_schedule = ScheduleKind::step;
  options.lr_step = RateStep::epoch;
  options.lr_gamma = 0.3;
  CHECK(options.learning_rate(16, 375).at(374) == 0.3);
  CHECK(options.learning_rate(16, 375).at(375) == testing::Approx(0.09).epsilon(1e-13));
  options.lr_step = RateStep::iteration;
  CHECK(options.learning_rate(16, 375).interval == 1);
  CHECK(options.learning_rate(16, 375).at(1) == testing::Approx(0.09).epsilon(1e-13));
}

TEST_CASE("schedule: Megatron-LM's warmup, decays and end") {
  const auto megatron = [](ScheduleKind kind, WsdDecay wsd = WsdDecay::exponential) {
    return LearningRate{.kind = kind,
                        .base = 1.5e-4,
                        .end = 1e-5,
                        .rule = WarmupRule::megatron,
                        .warmup = 30,
                        .steps = 300,
                        .wsd = wsd,
                        .wsd_iters = 60};
  };
  check_rates(
      megatron(ScheduleKind::linear),
      {{0, 0}, {7, 3.5e-05}, {30, 1.5e-4}, {31, 1.4948148148148148e-4}, {200, 6.185185185185185e-05}, {301, 1e-5}});
  check_rates(megatron(ScheduleKind::cosine),
              {{7, 3.5e-05}, {31, 1.4999526156026335e-4}, {200, 5.2274416377259014e-05}, {300, 1e-5}, {301, 1e-5}});
  check_rates(megatron(ScheduleKind::inverse_square_root),
              {{7, 3.5e-05}, {31, 1.475608130513894e-4}, {300, 4.743416490252568e-05}, {301, 1e-5}});
  check_rates(megatron(ScheduleKind::constant), {{7, 3.5e-05}, {30, 1.5e-4}, {301, 1.5e-4}});
  check_rates(megatron(ScheduleKind::wsd, WsdDecay::linear),
              {{31, 1.5e-4}, {240, 1.5e-4}, {241, 1.4766666666666663e-4}, {270, 8e-05}, {300, 1e-5}});
  check_rates(megatron(ScheduleKind::wsd, WsdDecay::cosine),
              {{240, 1.5e-4}, {241, 1.4990406743282014e-4}, {300, 1e-5}});
  check_rates(megatron(ScheduleKind::wsd), {{241, 1.4678392569881092e-4}, {270, 6.798989873223332e-05}, {300, 1e-5}});
  check_rates(megatron(ScheduleKind::wsd, WsdDecay::minus_sqrt),
              {{241, 1.3192607771769872e-4}, {270, 5.1005050633883334e-05}});
  // A rate that the course's log prints, of 64 and 6400 samples in batches of 8.
  check_rates({.base = 6e-5, .end = 6e-6, .rule = WarmupRule::megatron, .warmup = 8, .steps = 800},
              {{100, 5.822199222715788e-05}});
  CHECK_FALSE(megatron(ScheduleKind::linear).counts_skipped());
  CHECK(LearningRate{}.counts_skipped());
}

TEST_CASE("schedule: Megatron-LM's by samples, whose warmup may be a fraction of one") {
  ScheduleOptions options;
  options.lr = 1.5e-4;
  options.end_lr = 1e-5;
  options.warmup_rule = WarmupRule::megatron;
  options.decay_samples = 1000;
  options.warmup_samples = 100.5;
  options.wsd_samples = 200;
  const auto rates = [&](ScheduleKind kind) {
    options.lr_schedule = kind;
    CHECK_NOTHROW(options.keys().check({}));
    CHECK(options.learning_rate(8).by_samples);
    return options.learning_rate(8);
  };
  const std::vector<Point> begin{{0, 0}, {7, 1.0447761194029851e-05}, {100, 0.00014925373134328358}};
  for (const ScheduleKind kind : {ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::constant,
                                  ScheduleKind::inverse_square_root, ScheduleKind::wsd})
    check_rates(rates(kind), begin);
  check_rates(rates(ScheduleKind::linear),
              {{107, 0.000148988326848249}, {800, 4.1128404669260696e-05}, {1000, 1e-05}, {1001, 1e-05}});
  options.lr_step = RateStep::epoch;  // which means nothing here
  check_rates(options.learning_rate(8, 375), {{107, 0.000148988326848249}, {800, 4.1128404669260696e-05}});
  options.lr_step = RateStep::iteration;
  check_rates(rates(ScheduleKind::cosine),
              {{107, 0.0001499819626174794}, {800, 2.6394354124275116e-05}, {1000, 1e-05}, {1001, 1e-05}});
  check_rates(rates(ScheduleKind::constant), {{107, 1.5e-4}, {1001, 1.5e-4}});
  check_rates(rates(ScheduleKind::inverse_square_root),
              {{107, 0.00014537254751187877}, {1000, 4.7552602452442074e-05}, {1001, 1e-05}});
  check_rates(rates(ScheduleKind::wsd), {{800, 1.5e-4}, {801, 0.00014903127359180296}, {1000, 1e-05}});

  const auto refusal = [&] { return options.keys().check({}); };
  options.wsd_samples = 900;
  CHECK_THROWS_WITH(
      refusal(),
      "config key wsd_samples must be at most the samples between warmup_samples and decay_samples, not 900");
  options.warmup_samples = 100;  // then 900 are all that follow
  CHECK_NOTHROW(refusal());
  options.wsd_samples = 1;
  options.warmup_samples = 1000;
  CHECK_THROWS_WITH(refusal(), "config key warmup_samples must be below decay_samples (1000), not 1000");
  options.warmup_samples = 1;
  options.warmup = 3;  // means nothing here
  options.decay_iters = 3;
  options.lr_step = RateStep::epoch;
  CHECK_NOTHROW(refusal());
  CHECK(options.learning_rate(8, 5).at(3) == rates(ScheduleKind::wsd).at(3));
  CHECK(options.learning_rate(8, 5).interval == 1);
  const LearningRate falling = rates(ScheduleKind::linear);  // no epoch's end holds it
  for (const std::int64_t samples : {400, 403, 999})
    CHECK(options.learning_rate(8, 7).at(samples) == falling.at(samples));
  options.lr_schedule = ScheduleKind::step;
  CHECK_THROWS_WITH(refusal(), "config key decay_samples does not fit lr_schedule step, which goes by iterations");
  options.lr_schedule = ScheduleKind::linear;
  options.warmup_rule = WarmupRule::nanogpt;
  CHECK_THROWS_WITH(refusal(), "config key decay_samples needs warmup_rule megatron, not nanogpt");
}

TEST_CASE("schedule: weight decay that grows over a run") {
  WeightDecay decay{.kind = WeightDecayKind::linear, .begin = 0.01, .end = 0.1, .steps = 800};
  CHECK(decay.at(0) == 0.01);
  CHECK(decay.at(8) == testing::Approx(0.0109).epsilon(1e-14));
  CHECK(decay.at(800) == testing::Approx(0.1).epsilon(1e-14));
  CHECK(decay.at(808) == 0.1);
  decay.kind = WeightDecayKind::cosine;
  CHECK(decay.at(8) == testing::Approx(0.010022204783542078).epsilon(1e-14));
  CHECK(decay.at(400) == testing::Approx(0.055).epsilon(1e-14));
  decay.kind = WeightDecayKind::constant;
  CHECK(decay.at(808) == 0.01);
}

TEST_CASE("schedule: the U-Net tutorial's and nanoGPT's") {
  // Its iterations count from 1. Without warmup; then with it, which shifts the decay and does not shorten it.
  check_rates({.base = 2e-4, .rule = WarmupRule::unet, .steps = 10240},
              {{0, 1.9999999529380594e-4}, {1023, 1.9510565162951537e-4}, {2047, 1.8090169943749476e-4}, {5119, 1e-4}});
  check_rates({.base = 4e-4, .end = 1e-6, .rule = WarmupRule::unet, .warmup = 128, .steps = 5120},
              {{0, 3.125e-06},
               {126, 3.96875e-4},
               {127, 4e-4},
               {128, 3.999999624445722e-4},
               {1999, 2.822399440543652e-4},
               {5119, 1.6149919202409713e-06}});
  check_rates({.base = 6e-4, .end = 6e-5, .rule = WarmupRule::nanogpt, .warmup = 2000, .steps = 600000},
              {{0, 2.998500749625187e-07},
               {1999, 5.997001499250374e-4},
               {2000, 6e-4},
               {100000, 5.649999182240157e-4},
               {600001, 6e-5}});
}

TEST_CASE("schedule: with the U-Net's rule only a scaled batch above the reference's has a warmup") {
  const auto first_rate = [](BatchScaling scaling, std::int64_t batch) {
    ScheduleOptions options;
    options.lr_schedule = ScheduleKind::constant;
    options.lr = 1;
    options.warmup = 10;
    options.warmup_rule = WarmupRule::unet;
    options.batch_lr_scaling = scaling;
    options.reference_batch_size = 16;
    return options.learning_rate(batch).at(0);
  };
  CHECK(first_rate(BatchScaling::sqrt, 64) == 0.2);
  CHECK(first_rate(BatchScaling::linear, 64) == 0.4);
  CHECK(first_rate(BatchScaling::none, 64) == 1);
  CHECK(first_rate(BatchScaling::sqrt, 16) == 1);
  CHECK(first_rate(BatchScaling::linear, 4) == 0.25);
}

TEST_CASE("schedule: each key has its effect on the rates") {
  ScheduleOptions options;
  options.num_iters = 1000;
  options.lr = 0.5;
  options.lr_schedule = ScheduleKind::linear;
  options.end_lr = 0.1;
  CHECK(options.learning_rate(1).at(1000) == testing::Approx(0.1));
  options.decay_iters = 300;
  CHECK(options.learning_rate(1).at(100) == testing::Approx(0.5 - 0.4 / 3));
  CHECK(options.learning_rate(1).at(300) == testing::Approx(0.1));
  CHECK(options.learning_rate(1).at(900) == testing::Approx(0.1));
  options.warmup = 10;
  options.warmup_lr = 0.2;
  const LearningRate rate = options.learning_rate(1);
  CHECK(rate.warmup == 10);
  CHECK(rate.warmup_lr == 0.2);
  options.lr_schedule = ScheduleKind::wsd;
  options.wsd_decay = WsdDecay::linear;
  options.wsd_iters = 100;
  options.warmup = 0;
  CHECK(options.learning_rate(1).at(199) == testing::Approx(0.5));
  CHECK(options.learning_rate(1).at(250) == testing::Approx(0.3));
  CHECK(options.learning_rate(1).at(300) == testing::Approx(0.1));
}

TEST_CASE("schedule: keys that contradict each other are refused") {
  const auto refused = [](std::vector<std::string> assignments) {
    return [assignments = std::move(assignments)] { testing::checked_config(testing::entries_of(assignments)); };
  };
  CHECK_NOTHROW(refused({"end_lr=5e-4"})());
  CHECK_THROWS_WITH(refused({"end_lr=1e-3"})(), ContainsSubstring("end_lr in --set must be at most lr (0.0005)"));
  CHECK_NOTHROW(refused({"num_iters=5", "warmup=9"})());  // as runs do that are cut short
  CHECK_THROWS_WITH(refused({"num_iters=5", "warmup=5", "warmup_rule=megatron"})(),
                    ContainsSubstring("warmup in --set must be below num_iters (5) with warmup_rule megatron, not 5"));
  CHECK_THROWS_WITH(refused({"decay_iters=6", "warmup=8", "warmup_rule=nanogpt"})(),
                    ContainsSubstring("must be below decay_iters (6) with warmup_rule nanogpt"));
  CHECK_THROWS_WITH(refused({"num_epochs=2", "decay_iters=6", "warmup=8", "warmup_rule=nanogpt"})(),
                    ContainsSubstring("must be below decay_iters (6) with warmup_rule nanogpt"));
  CHECK_THROWS_WITH(refused({"num_iters=5", "lr_schedule=wsd", "wsd_iters=6"})(),
                    ContainsSubstring("wsd_iters in --set must be at most the 5 iterations after the warmup, not 6"));
  CHECK_NOTHROW(refused({"num_iters=5", "lr_schedule=wsd", "wsd_iters=5", "warmup=2"})());
  CHECK_NOTHROW(refused({"num_iters=5", "lr_schedule=wsd", "wsd_iters=3", "warmup=2", "warmup_rule=megatron"})());
  CHECK_THROWS_WITH(refused({"num_iters=5", "lr_schedule=wsd", "wsd_iters=4", "warmup=2", "warmup_rule=megatron"})(),
                    ContainsSubstring("wsd_iters in --set must be at most the 3 iterations after the warmup, not 4"));
}

}  // namespace isobar
