// Megatron-LM's flags: the table, how a command line is read, and the config that follows from it.
#include "apps/megatron_flags.h"

#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "apps/megatron_run.h"
#include "apps/train/config.h"
#include "apps/train/megatron_lines.h"
#include "engine/files/reader.h"
#include "tests/harness/places.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;

namespace {

std::vector<std::string> split_words(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// The command of NVIDIA's course, as its notebook has it, behind the program's name.
const std::string kCourse =
    "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --num-layers 12 --hidden-size 768 "
    "--num-attention-heads 32 --seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 2 "
    "--global-batch-size 8 --train-iters 100 --vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt "
    "--init-method-std 0.006 --optimizer adam --adam-beta1 .9 --adam-beta2 .95 --adam-eps 1e-8 --lr 6e-5 --min-lr 6e-6 "
    "--lr-decay-style cosine --lr-decay-iters 800 --lr-warmup-fraction .01 --clip-grad 1.0 --weight-decay 1e-1 "
    "--exit-duration-in-mins 1190 --log-interval 10 --save-interval 300 --eval-interval 1000 --eval-iters 10 "
    "--tensorboard-dir TB --tensorboard-queue-size 1 --log-timers-to-tensorboard --log-batch-size-to-tensorboard "
    "--log-validation-ppl-to-tensorboard --save CKPT --data-path my-gpt2_text_document --data-impl mmap "
    "--split 949,50,1 --distributed-backend nccl";

TrainFlags flags_of(const std::string& line, int ranks = 4) {
  const MegatronArguments arguments(split_words(line));
  TrainFlags flags = megatron_launch(arguments);
  flags.ranks = ranks;
  add_megatron_config(flags, arguments);
  return flags;
}

RunConfig config_of_flags(const std::string& line, int ranks = 4) {
  return read_config(named_config(flags_of(line, ranks)).entries);
}

std::string refusal_of(const std::string& line) {
  try {
    config_of_flags(line);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("Megatron's flags: docs/megatron.md is what --list-flags prints") {
  CHECK(read_file(testing::source_path("docs/megatron.md")) == describe_megatron_flags());
}

TEST_CASE("Megatron's flags: a row a flag, and every key of the table is one of a GPT's run") {
  std::set<std::string> names;
  RunConfig config("language_model", "gpt");
  std::set<std::string> keys;
  const std::vector<KeyTable> tables = config.tables();
  for (const Key* key : all_keys(tables)) keys.insert(key->name);
  for (const MegatronFlag& flag : megatron_flags()) {
    INFO(flag.name);
    CHECK(names.insert(flag.name).second);
    if (flag.key != nullptr) CHECK(keys.contains(flag.key));
    CHECK((flag.key != nullptr || std::string(flag.means) != ""));
    CHECK(find_megatron_flag(flag.name)->name == std::string(flag.name));
  }
  CHECK(find_megatron_flag("moe_router_topk")->fate == MegatronFlag::Fate::refused);
  CHECK(find_megatron_flag("num_layers") == find_megatron_flag("num-layers"));
  CHECK(find_megatron_flag("no-such-flag") == nullptr);
}

TEST_CASE("Megatron's flags: the course's command is a config whose rates are those of its log") {
  const TrainFlags flags = flags_of(kCourse);
  RunConfig config = config_of_flags(kCourse);
  config.check_before_data();
  CHECK(config.task == "language_model");
  CHECK(config.model == "gpt");
  CHECK(config.batch.global_batch_size == 8);
  CHECK(config.batch.grad_accumulation == 1);
  CHECK(config.batch.loss_mean == LossMean::micro_batches);
  CHECK(config.schedule.num_iters == 100);
  CHECK(config.optimizer.kind == OptimizerKind::adamw);
  CHECK(config.optimizer.betas == std::array{0.9, 0.95});
  CHECK(config.optimizer.weight_decay == 0.1);
  CHECK(config.optimizer.grad_clip == 1);
  CHECK(config.run.checkpoint_every == 300);
  CHECK(config.run.validate_every == 1000);
  CHECK(config.run.exit_duration_mins == 1190);
  CHECK(config.run.log_every == 10);
  CHECK_FALSE(config.run.validate_at_start);
  CHECK(config.compute.seed == 1234);
  const LearningRate rate = config.schedule.learning_rate(8);
  CHECK(rate.at(0) == 0);                                                        // the first update
  CHECK(rate.at(800) == testing::Approx(5.822199222715788e-05).epsilon(1e-13));  // printed as 5.822E-05
  CHECK(rate.at(64) == 6e-5);

  CHECK(flags.run_dir == "CKPT");
  CHECK_FALSE(flags.resume);
  REQUIRE(flags.megatron);
  CHECK(flags.megatron->layout.dp == 4);
  CHECK(flags.megatron->tensorboard_folder == "TB");
  CHECK(flags.megatron->timers);
  CHECK(flags.megatron->batch_size);
  CHECK(flags.megatron->perplexity);
  CHECK_FALSE(flags.megatron->world_size);
  std::map<std::string, std::string> listed;
  for (const auto& [name, value] : flags.megatron->arguments) CHECK(listed.emplace(name, value).second);
  CHECK(listed.at("lr") == "6e-05");
  CHECK(listed.at("adam_beta1") == "0.9");
  CHECK(listed.at("data_path") == "['my-gpt2_text_document']");
  CHECK(listed.at("bias_gelu_fusion") == "True");
  CHECK(listed.at("tensorboard_queue_size") == "1");
  CHECK(listed.at("log_learning_rate_to_tensorboard") == "True");
  CHECK(listed.at("ffn_hidden_size") == "None");
  CHECK(listed.at("world_size") == "4");
  const auto has = [&](const std::string& part) {
    return std::ranges::any_of(flags.megatron->accepted,
                               [&](const std::string& line) { return line.starts_with(part); });
  };
  CHECK(has("--tensorboard-queue-size: "));
  CHECK_FALSE(has("--lr"));
}

TEST_CASE("Megatron's flags: what they set") {
  const auto with = [](const std::string& more, int ranks = 4) { return config_of_flags(kCourse + " " + more, ranks); };
  CHECK(with("", 2).batch.grad_accumulation == 2);
  CHECK(with("--calculate-per-token-loss").batch.loss_mean == LossMean::targets);
  CHECK(with("--fp16").compute.amp_mode == AmpMode::fp16);
  CHECK(with("--fp16").loss_scale.initial_loss_scale == 4294967296.0);
  CHECK(with("--fp16").loss_scale.loss_scale_window == 1000);
  CHECK(with("--fp16").loss_scale.hysteresis == 2);
  CHECK(with("--fp16").loss_scale.min_loss_scale == 1);
  CHECK(with("--fp16 --loss-scale 1024").loss_scale.initial_loss_scale == 1024);
  CHECK(with("--fp16 --loss-scale 1024").loss_scale.loss_scale_growth == 1);
  CHECK(with("--bf16").compute.amp_mode == AmpMode::bf16);
  CHECK(with("--recompute-granularity selective").compute.recompute);
  CHECK(with("--weight-decay-incr-style cosine --start-weight-decay .01 --end-weight-decay .2")
            .optimizer.end_weight_decay == 0.2);
  CHECK(with("--lr-decay-style WSD --lr-wsd-decay-iters 20").schedule.wsd_samples == 160);
  CHECK(with("--lr 1e-3 --lr 2e-3").schedule.lr == 2e-3);  // the last one counts
  CHECK(with("--num_layers=3").run.log_every == 10);
  CHECK(with("--set log_every=7").run.log_every == 7);
  const TrainFlags flags = flags_of(kCourse +
                                    " --tensor-model-parallel-size 2 --sequence-parallel "
                                    "--use-distributed-optimizer --distributed-timeout-minutes 2");
  CHECK(flags.tensor_parallel == 2);
  CHECK(flags.sequence_parallel);
  CHECK(flags.shard_optimizer == "all");
  CHECK(flags.comm_timeout == 120);

  std::string by_samples = kCourse;
  const auto replace = [&](const std::string& one, const std::string& other) {
    by_samples.replace(by_samples.find(one), one.size(), other);
  };
  replace("--train-iters 100", "--train-samples 100 --rampup-batch-size 2 2 20 --micro-batch-size 1");
  replace("--lr-decay-iters 800", "--lr-decay-samples 6400");
  RunConfig ramped = config_of_flags(by_samples, 2);
  ramped.check_before_data();
  CHECK(ramped.schedule.decay_samples == 6400);
  CHECK(ramped.batch.after(0).global_batch_size == 2);
  CHECK(ramped.schedule.num_iters == ramped.batch.ramp().iterations_for(100));
}

namespace {

std::string without(std::string line, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) line.replace(line.find(part), part.size(), "");
  return line;
}

}  // namespace

TEST_CASE("Megatron's flags: each switch of the log turns its own entry, and no other") {
  const std::string plain = without(kCourse, {"--log-timers-to-tensorboard", "--log-batch-size-to-tensorboard",
                                              "--log-validation-ppl-to-tensorboard"});
  const std::vector<std::pair<std::string, bool MegatronVoice::*>> switches{
      {"--log-timers-to-tensorboard", &MegatronVoice::timers},
      {"--log-batch-size-to-tensorboard", &MegatronVoice::batch_size},
      {"--log-validation-ppl-to-tensorboard", &MegatronVoice::perplexity},
      {"--log-memory-to-tensorboard", &MegatronVoice::memory},
      {"--log-world-size-to-tensorboard", &MegatronVoice::world_size},
      {"--no-log-learnig-rate-to-tensorboard", &MegatronVoice::learning_rate},
      {"--no-log-loss-scale-to-tensorboard", &MegatronVoice::loss_scale},
      {"--log-params-norm", &MegatronVoice::params_norm},
      {"--log-num-zeros-in-grad", &MegatronVoice::zeros},
      {"--log-throughput", &MegatronVoice::throughput}};
  for (const auto& [flag, own] : switches) {
    INFO(flag);
    const MegatronVoice voice = *flags_of(plain + " " + flag).megatron;
    for (const auto& [other, field] : switches) CHECK(voice.*field == (other.starts_with("--no-") != (other == flag)));
  }
  const MegatronVoice voice = *flags_of(plain + " --bf16 --tensorboard-log-interval 5 --timing-log-level 2").megatron;
  CHECK(voice.dtype == "bfloat16");
  CHECK(voice.tensorboard_folder == "TB");
  CHECK(voice.tensorboard_every == 5);
  CHECK(voice.timing_level == 2);
  CHECK(voice.log_every == 10);
  CHECK(flags_of(plain + " --fp16").megatron->dtype == "float16");
  CHECK(flags_of(plain).megatron->dtype == "float32");
  const MegatronLayout layout =
      flags_of(plain + " --tensor-model-parallel-size 2 --context-parallel-size 2 --log-format core", 8)
          .megatron->layout;
  CHECK(std::array{layout.world, layout.dp, layout.tp, layout.pp, layout.cp} ==
        std::array<std::int64_t, 5>{8, 2, 2, 1, 2});
}

TEST_CASE("Megatron's flags: which iterations a trace is of, and where it goes") {
  const auto trace = [](const std::string& more) { return flags_of(kCourse + " " + more).trace; };
  CHECK(!trace(""));
  CHECK(!trace("--profile-execution False"));
  for (const char* yes : {"--profile-execution True", "--profile-execution true"}) {
    CHECK(trace(yes)->first == 2);
    CHECK(trace(yes)->end == 4);
    CHECK(trace(yes)->folder == "TB");
  }
  CHECK(trace("--profile-execution True --train-iters 3")->first == 1);  // a short run has fewer cold ones
  CHECK(trace("--profile-execution True --train-iters 1")->first == 0);
  const auto steps = trace("--profile --profile-step-start 3 --profile-step-end 7 --profile-name mine");
  CHECK(steps->first == 3);
  CHECK(steps->end == 7);
  CHECK(steps->folder == "TB/mine");
  const std::string nowhere = without(kCourse, {"--tensorboard-dir TB"});
  CHECK(flags_of(nowhere + " --profile").trace->folder == "CKPT/logs");
  CHECK(flags_of(nowhere + " --profile").trace->first == 10);
}

TEST_CASE("Megatron's flags: which folder is begun, gone on with, or started from") {
  const std::string unsaved = without(kCourse, {"--save CKPT"});
  const TrainFlags begun = flags_of(kCourse);
  CHECK(begun.run_dir == "CKPT");
  CHECK(!begun.resume);
  CHECK(!begun.overwrite);
  CHECK(flags_of(unsaved).overwrite);  // who keeps nothing starts again
  const TrainFlags same = flags_of(kCourse + " --load CKPT");
  CHECK(same.resume);
  CHECK(same.run_dir == "CKPT");
  CHECK(same.init.empty());
  const TrainFlags loaded = flags_of(unsaved + " --load OLD");
  CHECK(loaded.resume);
  CHECK(loaded.run_dir == "OLD");
  CHECK(!loaded.overwrite);
  const TrainFlags tuned = flags_of(kCourse + " --load OLD --finetune");
  CHECK(tuned.init == "OLD");
  CHECK(tuned.run_dir == "CKPT");
  CHECK(!tuned.resume);
  const auto refused = [&](const std::string& more) { return refusal_of(kCourse + " " + more); };
  CHECK(refused("--finetune") == "--finetune needs --load, the weights to start from");
  CHECK(refused("--load ./CKPT --finetune") ==
        "--load ./CKPT starts a new run from weights: give --save another folder");
  CHECK(refused("--load CKPT --overwrite") == "--overwrite replaces the run that --load wants to go on with");
  CHECK(refused("--load CKPT --exit-on-missing-checkpoint") == "--load CKPT holds no run");
  CHECK(tuned.init_moments.empty());
  CHECK(tuned.megatron->accepted.back() == "--load OLD: its weights are taken; Adam's moments begin at 0");
  const TrainFlags warm = flags_of(kCourse + " --load OLD --finetune --load-moments M");
  CHECK(warm.init_moments == "M");
  CHECK(warm.megatron->accepted.back() == "--load OLD: its weights are taken; Adam's moments are those of M");
  CHECK(refused("--load-moments M") == "--load-moments needs --load, the weights that the moments are of");
  CHECK(refused("--load CKPT --load-moments M") ==
        "--load-moments goes with weights that start a run, and --load CKPT goes on with one, which has its own");
}

TEST_CASE("Megatron's flags: what they set of the network, the data and the ranks") {
  const auto entry = [](const std::string& line, const char* key) {
    return flags_of(line).own_config->entries.at(key).value;
  };
  const auto with = [&](const std::string& more, const char* key) { return entry(kCourse + " " + more, key); };
  CHECK(with("--eod-mask-loss", "eod_mask_loss") == true);
  CHECK(with("--reset-position-ids", "reset_position_ids") == true);
  CHECK(with("--reset-attention-mask", "reset_attention_mask") == true);
  CHECK(with("--seed 7", "data_seed") == 7);
  CHECK(with("--untie-embeddings-and-output-weights", "tie_head") == false);
  CHECK(with("--disable-bias-linear", "bias") == false);
  CHECK(with("", "gelu") == "tanh");
  CHECK(with("--no-bias-gelu-fusion", "gelu") == "erf");
  CHECK(with("--no-bias-gelu-fusion --openai-gelu", "gelu") == "tanh");
  for (const char* flag : {"--recompute-activations", "--checkpoint-activations", "--recompute-granularity full",
                           "--checkpoint-granularity selective"})
    CHECK(with(flag, "recompute") == true);
  CHECK(with("", "split_rule") == "legacy");
  CHECK(with("--log-format core", "split_rule") == "core");
  CHECK(with("--train-data-path A", "train_token_path") == nlohmann::json{"A"});
  CHECK(with("--valid-data-path 0.5 B 0.5 C", "valid_token_path") == nlohmann::json{0.5, "B", 0.5, "C"});
  CHECK(with("--test-data-path D", "test_token_path") == nlohmann::json{"D"});
  CHECK(with("", "betas") == nlohmann::json{0.9, 0.95});
  CHECK(with("", "keep_checkpoints") == 0);
  const std::string unsaved = without(kCourse, {"--save CKPT", "--save-interval 300"});
  CHECK(entry(unsaved, "keep_checkpoints") == 1);
  CHECK(entry(unsaved, "checkpoint_every") == 100);
  for (const auto& [style, schedule] : {std::pair("linear", "linear"), std::pair("constant", "constant"),
                                        std::pair("inverse-square-root", "inverse_square_root")})
    CHECK(with(concat("--lr-decay-style ", style), "lr_schedule") == schedule);
  CHECK(with("", "warmup_samples") == 64);  // a hundredth of the 6400 samples of the decay

  const auto flags = [](const std::string& more) { return flags_of(kCourse + " " + more); };
  CHECK(flags("--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 3").pipeline_chunks == 2);
  CHECK(flags("--pipeline-model-parallel-size 2").pipeline_chunks == 1);
  CHECK(flags("--use-tp-pp-dp-mapping").parallel_order == "tp-cp-pp-dp");
  CHECK(flags("").parallel_order == "tp-cp-dp");
  CHECK(flags("--ddp-bucket-size 1048576").bucket_cap_mb == 4);
  CHECK(flags("--threads 3").config.threads == 3);
  CHECK_FALSE(flags("--sequence-parallel").sequence_parallel);  // of one rank there is nothing to split
  const std::string context = "--context-parallel-size 2 ";
  CHECK(flags(context).context_form == name_of_enum(ContextForm::ring));
  CHECK(flags(context + "--cp-comm-type p2p").context_form == name_of_enum(ContextForm::ring));
  CHECK(flags(context + "--cp-comm-type a2a").context_form == name_of_enum(ContextForm::all_to_all));
  CHECK(flags(context + "--cp-comm-type allgather").context_form == name_of_enum(ContextForm::gather));
}

TEST_CASE("Megatron's flags: numbers that are none, and flags that need others, are refused") {
  const auto with = [](const std::string& more) { return refusal_of(kCourse + " " + more); };
  CHECK(with("--micro-batch-size 0") == "--micro-batch-size 0: at least one sample is needed");
  CHECK(with("--train-iters 0") == "--train-iters 0: at least one is needed");
  CHECK(with("--tensor-model-parallel-size 0") == "--tensor-model-parallel-size 0: at least one rank is needed");
  CHECK(with("--loss-scale-window 0.5") == "--loss-scale-window 0.5: a whole number of updates is needed");
  CHECK(with("--loss-scale-window 0") == "--loss-scale-window 0: a whole number of updates is needed");
  CHECK(with("--tensorboard-log-interval 0") == "--tensorboard-log-interval 0: at least 1 is needed");
  CHECK(with("--ddp-bucket-size 0") == "--ddp-bucket-size 0: at least 1 is needed");
  CHECK(with("--threads 65536") == "--threads 65536: a number of threads is needed");
  CHECK(with("--distributed-timeout-minutes 0") == "--distributed-timeout-minutes must be above 0");
  CHECK(with("--lr-decay-iters 0") == "--lr-decay-iters must be at least 1");
  CHECK(with("--profile --profile-step-start 5 --profile-step-end 5") ==
        "--profile-step-start 5 must be before --profile-step-end 5");
  CHECK(with("--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 5") ==
        "--num-layers-per-virtual-pipeline-stage 5: 12 blocks are not dealt to 2 stages in chunks of 5");
  CHECK_THAT(with("--num-layers-per-virtual-pipeline-stage 3"), ContainsSubstring("are not dealt to 1 stages"));
  CHECK(with("--lr-decay-style WSD") == "--lr-wsd-decay-iters is missing, which --lr-decay-style WSD needs");
  CHECK(with("--weight-decay-incr-style linear --start-weight-decay 0.1") ==
        "--weight-decay-incr-style linear needs --start-weight-decay and --end-weight-decay");
  CHECK(with("--recompute-granularity half") ==
        "--recompute-granularity half is refused: isobar takes full, selective");
  CHECK(with("--context-parallel-size 2 --cp-comm-type ring") ==
        "--cp-comm-type ring is refused: isobar takes p2p, a2a, allgather");
  const std::string line = kCourse;
  CHECK(refusal_of(without(line, {"--save-interval 300"})) == "--save needs --save-interval");
  CHECK(refusal_of(without(line, {"--seq-length 1024"})) == "--seq-length is missing");
  CHECK(refusal_of(without(line, {"--data-path my-gpt2_text_document"})) ==
        "--data-path is missing: a token file of isobar data preprocess, without its ending; or --mock-data");
  CHECK(refusal_of(without(line, {"--train-iters 100", "--lr-decay-iters 800"}) + " --train-samples 7") ==
        "--train-samples 7 are not enough for a batch of 8");
}

TEST_CASE("Megatron's flags: what is refused, each by its name") {
  const auto with = [](const std::string& more) { return refusal_of(kCourse + " " + more); };
  CHECK_THAT(with("--num-laysers 3"), ContainsSubstring("there is no flag --num-laysers; did you mean --num-layers?"));
  CHECK_THAT(with("--optimizer sgd"), ContainsSubstring("--optimizer sgd is refused: isobar takes adam"));
  CHECK_THAT(with("--data-impl lazy"), ContainsSubstring("--data-impl lazy is refused: isobar takes mmap, infer"));
  CHECK_THAT(with("--group-query-attention"), ContainsSubstring("--group-query-attention is refused: "));
  CHECK_THAT(with("--moe-router-topk 2"), ContainsSubstring("--moe-router-topk is refused: experts"));
  CHECK_THAT(with("--rotary-base 10000"), ContainsSubstring("--rotary-base is refused: "));
  CHECK_THAT(with("--position-embedding-type rope"), ContainsSubstring("isobar takes learned_absolute"));
  CHECK_THAT(with("--lr fast"), ContainsSubstring("--lr fast: a number is needed"));
  CHECK_THAT(with("--num-layers 1.5"), ContainsSubstring("--num-layers 1.5: a whole number is needed"));
  CHECK_THAT(with("--lr"), ContainsSubstring("--lr needs a value"));
  CHECK_THAT(with("stray"), ContainsSubstring("there is no use for the argument stray"));  // one value only
  CHECK_THAT(with("--global-batch-size 12"),
             ContainsSubstring("--global-batch-size 12 is no multiple of --micro-batch-size 2 times 4 data-parallel"));
  CHECK_THAT(with("--train-samples 800"), ContainsSubstring("one of --train-iters and --train-samples is needed"));
  CHECK_THAT(with("--lr-decay-samples 80"), ContainsSubstring("--lr-decay-samples does not fit --train-iters"));
  CHECK_THAT(with("--lr-warmup-iters 8"), ContainsSubstring("exclude each other"));
  CHECK_THAT(with("--fp16 --bf16"), ContainsSubstring("--fp16 and --bf16 exclude each other"));
  CHECK_THAT(with("--end-weight-decay 1"), ContainsSubstring("--weight-decay-incr-style constant takes no"));
  CHECK_THAT(with("--rampup-batch-size 2 2 8"), ContainsSubstring("--rampup-batch-size needs --train-samples"));
  CHECK_THAT(with("--load ELSEWHERE"), ContainsSubstring("a run goes on in its own folder"));
  CHECK_THAT(refusal_of("--num-layers 2"), ContainsSubstring("--hidden-size is missing"));
  CHECK_THAT(with("--tokenizer-type BertWordPieceCase"), ContainsSubstring("BertWordPieceCase"));
}
