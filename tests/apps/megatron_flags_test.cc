// Megatron-LM's flags: the table, how a command line is read, and the config that follows from it.
#include "apps/megatron_flags.h"

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
