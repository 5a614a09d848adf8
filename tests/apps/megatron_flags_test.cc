// Megatron-LM's flags: the table, how a command line is read, and the config that follows from it.
#include "apps/megatron_flags.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "apps/megatron_run.h"
#include "apps/train/config.h"
#include "apps/train/megatron_lines.h"
#include "engine/files/reader.h"
#include "tests/harness/error_of.h"
#include "tests/harness/places.h"
#include "tests/harness/temporary_folder.h"
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
  CHECK(with("--lr-warmup-iters 8") == "--lr-warmup-fraction and --lr-warmup-iters exclude each other");
  CHECK_THAT(with("--fp16 --bf16"), ContainsSubstring("--fp16 and --bf16 exclude each other"));
  CHECK(with("--end-weight-decay 1") ==
        "--weight-decay-incr-style constant takes no --start-weight-decay and no --end-weight-decay");
  CHECK(with("--rampup-batch-size 2 2 8") == "--rampup-batch-size needs --train-samples, not --train-iters");
  CHECK(with("--mock-data") == "--mock-data takes the place of --data-path: give one of them");
  CHECK_THAT(with("--load ELSEWHERE"), ContainsSubstring("--load ELSEWHERE does not exist"));
  CHECK(
      with("--load .") ==
      "--load .: a run goes on in its own folder, and --save is CKPT; give both the same, or --finetune to start a new "
      "run from its weights");
  CHECK_THAT(refusal_of("--num-layers 2"), ContainsSubstring("--hidden-size is missing"));
  CHECK_THAT(with("--tokenizer-type BertWordPieceCase"), ContainsSubstring("BertWordPieceCase"));
}

TEST_CASE("Megatron's flags: the list of arguments has every switch as Megatron-LM's, off where it is off there") {
  std::set<std::string> on;
  std::map<std::string, std::string> listed;
  for (const auto& [name, value] : MegatronArguments(std::vector<std::string>()).listed()) {
    listed[name] = value;
    if (value == "True") on.insert(name);
  }
  CHECK(on == std::set<std::string>{"add_bias_linear", "apply_query_key_layer_scaling", "apply_rope_fusion",
                                    "async_tensor_model_parallel_allreduce", "bias_dropout_fusion", "bias_gelu_fusion",
                                    "check_for_nan_in_loss_and_grad", "create_attention_mask_in_dataloader",
                                    "gradient_accumulation_fusion", "log_learning_rate_to_tensorboard",
                                    "log_loss_scale_to_tensorboard", "masked_softmax_fusion", "mmap_bin_files",
                                    "overlap_p2p_comm", "perform_initialization", "scatter_gather_tensors_in_pipeline",
                                    "use_contiguous_buffers_in_local_ddp"});
  CHECK(listed.at("micro_batch_size") == "None");
  CHECK(listed.at("fp16") == "False");
  CHECK(listed.at("adam_eps") == "1e-08");
  CHECK_FALSE(listed.contains("ranks"));  // isobar's own
  CHECK_FALSE(listed.contains("set"));
  for (const auto& [name, value] : listed) CHECK(name.find('*') == std::string::npos);

  const MegatronArguments given({"--no-bias-gelu-fusion", "--fp16", "--no_query_key_layer_scaling", "--lr=1",
                                 "--train-iters", "007", "--data-path", "1", "a b", "2", "c", "--split", "90,5,5"});
  listed.clear();
  for (const auto& [name, value] : given.listed()) CHECK(listed.emplace(name, value).second);
  CHECK(listed.at("bias_gelu_fusion") == "False");
  CHECK(listed.at("apply_query_key_layer_scaling") == "False");
  CHECK(listed.at("fp16") == "True");
  CHECK(listed.at("lr") == "1.0");
  CHECK(listed.at("train_iters") == "7");
  CHECK(listed.at("data_path") == "['1', 'a b', '2', 'c']");
  CHECK(listed.at("split") == "90,5,5");
}

TEST_CASE("Megatron's flags: words of a command line") {
  using Words = std::vector<std::string>;
  const MegatronArguments given({"--data-path", "0.5", "A", "-1", "B", "--seed", "-7", "--lr", "-0.5", "--set", "a=1",
                                 "--set=b=2", "--data_path=C", "--ranks", "2"});
  CHECK(given.words("data-path") == Words{"C"});  // the last one counts, as a whole
  CHECK(given.words("set") == Words{"a=1", "b=2"});
  CHECK(given.words("test-data-path").empty());
  CHECK(given.integer("seed") == -7);
  CHECK(given.number("lr") == -0.5);
  CHECK(given.integer("ranks") == 2);
  CHECK(given.integer("log-interval") == 100);  // as where it is not given
  CHECK_FALSE(given.has("log-interval"));
  CHECK_FALSE(given.integer("train-iters"));
  CHECK(given.text("optimizer") == "adam");
  CHECK_FALSE(given.is_on("fp16"));
  const auto refusal = [](const Words& words) {
    try {
      MegatronArguments{words};
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refusal({"--fp16=yes"}) == "--fp16 takes no value, and is given yes");
  CHECK(refusal({"--fp16", "yes"}) == "there is no use for the argument yes (see isobar pretrain-gpt --list-flags)");
  CHECK(refusal({"--lr", "--fp16"}) == "--lr needs a value");
  CHECK(refusal({"--data-path", "--fp16"}) == "--data-path needs a value");
  CHECK(refusal({"--lr", "nan"}) == "--lr nan: a number is needed");
  CHECK(refusal({"--lr", "1e999"}) == "--lr 1e999: a number is needed");
  CHECK(refusal({"--seed", "99999999999999999999"}) == "--seed 99999999999999999999: a whole number is needed");
  CHECK(refusal({"--seed", "7x"}) == "--seed 7x: a whole number is needed");
  CHECK(refusal({"--"}) == "there is no use for the argument -- (see isobar pretrain-gpt --list-flags)");
  CHECK_THAT(refusal({"--encoder-num-layers", "3"}), ContainsSubstring("it is of another model than GPT"));
  CHECK(refusal({"--encoder-seq-length", "3"}).empty());  // a row of its own comes before encoder-*
  CHECK_THAT(refusal({"--wandb-project", "x"}), ContainsSubstring("--wandb-project is refused: metrics.jsonl and "));
}

TEST_CASE("Megatron's flags: lengths, rates and scales in samples, as the flags have them in iterations or samples") {
  const auto entry = [](const std::string& line, const char* key) {
    return flags_of(line).own_config->entries.at(key).value;
  };
  const auto with = [&](const std::string& more, const char* key) { return entry(kCourse + " " + more, key); };
  const std::string plain = without(kCourse, {"--lr-warmup-fraction .01"});
  CHECK(entry(plain, "warmup_samples") == 0);
  CHECK(entry(plain + " --lr-warmup-iters 5", "warmup_samples") == 40);
  CHECK(entry(without(plain, {"--lr-decay-iters 800"}), "decay_samples") == 800);  // the run's own
  CHECK(with("", "decay_samples") == 6400);
  CHECK(with("--min-lr 1e-7", "end_lr") == 1e-7);
  CHECK(with("--lr-warmup-init 1e-8", "warmup_lr") == 1e-8);
  CHECK(with("", "warmup_rule") == "megatron");
  CHECK(with("--lr-decay-style WSD --lr-wsd-decay-iters 3 --lr-wsd-decay-style cosine", "wsd_decay") == "cosine");
  CHECK(with("--lr-decay-style WSD --lr-wsd-decay-iters 3", "wsd_decay") == "exponential");
  CHECK(with("--weight-decay-incr-style linear --start-weight-decay .01 --end-weight-decay .2", "weight_decay") ==
        0.01);
  CHECK(with("--fp16 --loss-scale 1024", "min_loss_scale") == 1024);
  CHECK(with("--fp16 --min-loss-scale 4", "min_loss_scale") == 4);
  CHECK(with("--fp16 --loss-scale-window 500", "loss_scale_window") == 500);
  CHECK(with("--hidden-dropout .25", "embedding_dropout") == 0.25);
  CHECK(with("--hidden-dropout .25", "hidden_dropout") == 0.25);
  CHECK(with("--attention-dropout .5", "attention_dropout") == 0.5);
  CHECK(with("--tokenizer-type NullTokenizer --vocab-size 100", "vocab_size") == 101);  // and the end of a document
  CHECK(with("--vocab-size 100", "vocab_size") == 100);
  CHECK_THAT(refusal_of(kCourse + " --tokenizer-type NullTokenizer"),
             ContainsSubstring("--tokenizer-type NullTokenizer needs --vocab-size"));

  const std::string by_samples =
      without(plain, {"--train-iters 100", "--lr-decay-iters 800"}) + " --train-samples 101 ";
  CHECK(entry(by_samples, "num_iters") == 12);
  CHECK(entry(by_samples, "train_samples") == 104);  // whole batches
  CHECK(entry(by_samples, "decay_samples") == 101);
  CHECK(entry(by_samples + "--lr-warmup-samples 5", "warmup_samples") == 5);
  CHECK(entry(by_samples + "--lr-decay-style WSD --lr-wsd-decay-samples 7", "wsd_samples") == 7);
  CHECK(entry(by_samples + "--lr-decay-samples 50 --lr-warmup-fraction .5", "warmup_samples") == 25);
  CHECK_THAT(refusal_of(by_samples + "--lr-decay-iters 8"),
             ContainsSubstring("--lr-decay-iters does not fit --train-samples; give --lr-decay-samples"));
  CHECK_THAT(refusal_of(kCourse + " --lr-decay-samples 8"),
             ContainsSubstring("--lr-decay-samples does not fit --train-iters; give --lr-decay-iters"));
  CHECK_FALSE(flags_of(kCourse).own_config->entries.contains("train_samples"));
  CHECK(entry(by_samples + "--rampup-batch-size 8 8 40", "batch_rampup") == nlohmann::json{8, 8, 40});
  CHECK(refusal_of(by_samples + "--lr-warmup-fraction .1 --lr-warmup-samples 5") ==
        "--lr-warmup-fraction and --lr-warmup-samples exclude each other");
  CHECK(refusal_of(by_samples + "--rampup-batch-size 4 4") ==
        "--rampup-batch-size needs three numbers: START INCREMENT SAMPLES");
  CHECK(refusal_of(by_samples + "--rampup-batch-size 4 4 many") == "--rampup-batch-size many: a number is needed");
  CHECK_THAT(refusal_of(by_samples + "--rampup-batch-size 4 3 40"),
             ContainsSubstring("--rampup-batch-size: from 4 by 3 the batch does not reach 8"));
}

TEST_CASE("Megatron's flags: every row of a key sets that key, under its own name, whatever other row sets it too") {
  for (const MegatronFlag& flag : megatron_flags()) {
    if (flag.key == nullptr) continue;
    INFO(flag.name);
    const TrainFlags flags = flags_of(concat(kCourse, " --", flag.name, " 3"));
    const ConfigEntry& entry = flags.own_config->entries.at(flag.key);
    CHECK(entry.value == (flag.takes == MegatronFlag::Takes::text ? nlohmann::json("3") : nlohmann::json(3)));
    CHECK(entry.origin == concat("--", flag.name));
  }
  const ConfigEntries entries = flags_of(kCourse).own_config->entries;
  CHECK(entries.at("test_weights").value == "last");
  CHECK(entries.at("expdir").value == "runs");
  CHECK(entries.at("vocab_padding").value == "live");
  CHECK(entries.at("validate_at_start").value == false);
  for (const char* unsaid :
       {"recompute", "mock_data", "bias", "tie_head", "eod_mask_loss", "reset_position_ids", "reset_attention_mask",
        "batch_rampup", "vocab_size", "loss_scale_growth", "wsd_samples"}) {
    INFO(unsaid);
    CHECK_FALSE(entries.contains(unsaid));
  }
}

TEST_CASE("Megatron's flags: one token file is split, of several each is by itself") {
  const std::string unnamed = without(kCourse, {"--data-path my-gpt2_text_document"});
  CHECK(flags_of(kCourse).megatron->split);
  CHECK_FALSE(flags_of(unnamed + " --data-path 0.5 A 0.5 B").megatron->split);
  CHECK_FALSE(flags_of(unnamed + " --train-data-path A --valid-data-path B").megatron->split);
  CHECK_FALSE(flags_of(unnamed + " --mock-data").megatron->split);
  CHECK(flags_of(unnamed + " --mock-data").own_config->entries.at("mock_data").value == true);
}

TEST_CASE("Megatron's flags: the rates of a run that goes on fall over as many samples as they did, and no others") {
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "run_id") << "";
  std::ofstream(folder / "config.json") << R"({"decay_samples": 800, "split_rule": "core"})";
  const std::string here = " --save " + folder.path().string() + " --load " + folder.path().string();
  const std::string line = without(kCourse, {"--save CKPT", "--lr-decay-iters 800"}) + here;
  CHECK(refusal_of(line) == "");  // 100 iterations of 8
  CHECK(flags_of(line).own_config->entries.at("split_rule").value == "core");
  CHECK(refusal_of(line + " --train-iters 50 --global-batch-size 16") == "");
  CHECK(refusal_of(line + " --train-iters 101 --lr-decay-iters 100") == "");
  CHECK(refusal_of(line + " --train-iters 101") ==
        "--train-iters 101: rates fall over as many without --lr-decay-iters, and those of the run to go on with over "
        "100; give --lr-decay-iters 100 (a rate that falls is --min-lr from there on)");
  CHECK(
      refusal_of(line + " --train-iters 50 --global-batch-size 24") ==
      "--global-batch-size 24: rates of the run to go on with fall over 800 samples, no whole number of such batches");
  const std::string by_samples = without(line, {"--train-iters 100"}) + " --train-samples ";
  CHECK(refusal_of(by_samples + "800") == "");
  CHECK(refusal_of(by_samples + "808") ==
        "--train-samples 808: rates fall over as many without --lr-decay-samples, and those of the run to go on with "
        "over 800; give --lr-decay-samples 800 (a rate that falls is --min-lr from there on)");
  std::ofstream(folder / "config.json") << R"({"decay_samples": null, "split_rule": "legacy"})";
  CHECK(flags_of(line + " --train-iters 7 --log-format core").own_config->entries.at("split_rule").value == "legacy");
}

TEST_CASE("Megatron's flags: what they say to the launch, and how errors name them") {
  const auto flags = [](const std::string& more) { return flags_of(kCourse + " " + more); };
  CHECK(flags("--device cpu").config.device == "cpu");
  CHECK(flags("").config.device == "auto");
  CHECK(flags("--backend mpi").backend == "mpi");
  CHECK(flags("--comm-report").comm_report);
  CHECK_FALSE(flags("").comm_report);
  CHECK(flags("").comm_timeout == 600);
  CHECK(flags("").shard_optimizer.empty());
  CHECK(flags("").bucket_cap_mb == 25);
  CHECK(flags("--set a=1 --set b=2").config.assignments == std::vector<std::string>{"a=1", "b=2"});
  CHECK(flags("--context-parallel-size 2 --tensor-model-parallel-size 2").context_parallel == 2);
  CHECK(flags("--cp-comm-type a2a").context_form == name_of_enum(ContextForm::automatic));  // of one rank: any
  CHECK(megatron_launch(MegatronArguments({"--ranks", "3"})).ranks == 3);
  CHECK(flags("").own_config->name == "pretrain_gpt");
  CHECK(flags("").own_config->entries.at("depth").origin == "--num-layers");
  RunConfig config = config_of_flags(kCourse + " --clip-grad -1");
  CHECK_THROWS_WITH(config.check_before_data(),
                    ContainsSubstring("config key grad_clip in --clip-grad must be at least 0, not -1"));
  CHECK(refusal_of(kCourse + " --device tpu").starts_with("--device tpu is refused: isobar takes auto, cpu, cuda"));
  CHECK_THAT(refusal_of(kCourse + " --backend gloo"),
             ContainsSubstring("--backend gloo is refused: isobar takes auto, thread, mpi, nccl"));
  CHECK_THAT(refusal_of(kCourse + " --normalization RMSNorm"), ContainsSubstring("isobar takes LayerNorm"));
  CHECK_THAT(refusal_of(kCourse + " --threads -1"), ContainsSubstring("--threads -1: a number of threads is needed"));

  const MegatronVoice voice = *flags("--tensor-model-parallel-size 2 --fp16").megatron;
  std::map<std::string, std::string> told(voice.arguments.begin(), voice.arguments.end());
  CHECK(told.at("world_size") == "4");
  CHECK(told.at("data_parallel_size") == "2");
  CHECK(told.at("params_dtype") == "torch.float16");
  CHECK(told.at("rank") == "0");
}

TEST_CASE("Megatron's flags: what --load names is a run to go on with, weights, or another program's release") {
  const testing::TemporaryFolder folder;
  const auto put = [&](const std::string& name, const std::string& content) {
    std::filesystem::create_directories((folder / name).parent_path());
    std::ofstream(folder / name) << content;
  };
  const auto loaded = [&](const std::string& from, const std::string& more = "") {
    return flags_of(without(kCourse, {"--save CKPT"}) + " --save " + (folder / "new").string() + " --load " +
                    (folder / from).string() + more);
  };
  put("weights.safetensors", "");
  put("theirs/latest_checkpointed_iteration.txt", "release\n");
  put("theirs/release/model_optim_rng.pt", "");
  put("huggingface/config.json", "{}");
  put("checkpoint/model.safetensors", "");
  put("new/run_id", "");
  put("new/config.json", "{}");
  for (const char* weights : {"weights.safetensors", "huggingface", "checkpoint"}) {
    INFO(weights);
    const TrainFlags flags = loaded(weights);
    CHECK(flags.init == (folder / weights).string());
    CHECK(flags.run_dir == (folder / "new").string());
    CHECK_FALSE(flags.resume);
    CHECK(flags.megatron->accepted.back() ==
          concat("--load ", (folder / weights).string(), ": its weights are taken; Adam's moments begin at 0"));
  }
  CHECK(loaded("theirs").init == (folder / "theirs/release").string());
  const TrainFlags resumed = loaded("new");
  CHECK(resumed.resume);
  CHECK(resumed.init.empty());
  CHECK(resumed.run_dir == (folder / "new").string());
  CHECK(loaded("new", " --exit-on-missing-checkpoint").resume);
  CHECK(loaded("../" + folder.path().filename().string() + "/new").resume);  // spelled otherwise
  put("old/run_id", "");
  CHECK_THAT(testing::error_of([&] { loaded("old"); }),
             ContainsSubstring(": a run goes on in its own folder, and --save is "));
  CHECK(loaded("old", " --finetune").init == (folder / "old").string());
  CHECK_THAT(testing::error_of([&] { loaded("new", " --overwrite"); }),
             ContainsSubstring("--overwrite replaces the run that --load wants to go on with"));
  CHECK(loaded("weights.safetensors", " --overwrite").overwrite);
}
