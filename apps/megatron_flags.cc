#include "apps/megatron_flags.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "apps/train/megatron_lines.h"
#include "kernels/common/check.h"
#include "kernels/common/number_text.h"
#include "kernels/common/suggestions.h"

namespace isobar {
namespace {

using Fate = MegatronFlag::Fate;
using Takes = MegatronFlag::Takes;

constexpr const char* kNone = "None";

// Rows, by what becomes of a flag.
constexpr MegatronFlag key(const char* name, Takes takes, const char* config_key, const char* usual = kNone,
                           const char* means = "") {
  return {name, takes, Fate::mapped, config_key, means, usual, nullptr};
}
constexpr MegatronFlag mapped(const char* name, Takes takes, const char* means, const char* usual = kNone) {
  return {name, takes, Fate::mapped, nullptr, means, usual, nullptr};
}
constexpr MegatronFlag turns_on(const char* name, const char* means) {
  return mapped(name, Takes::nothing, means, "False");
}
// A switch that makes `argument` False.
constexpr MegatronFlag turns_off(const char* name, const char* argument, const char* means) {
  return {name, Takes::nothing, Fate::mapped, nullptr, means, "True", argument};
}
constexpr MegatronFlag accepted(const char* name, Takes takes, const char* means, const char* usual = kNone,
                                const char* argument = nullptr) {
  return {name, takes, Fate::accepted, nullptr, means, usual, argument};
}
constexpr MegatronFlag no_switch(const char* name, const char* argument, const char* means) {
  return accepted(name, Takes::nothing, means, "True", argument);
}
constexpr MegatronFlag refused(const char* name, const char* why, const char* usual = kNone) {
  return {name, Takes::words, Fate::refused, nullptr, why, usual, nullptr};
}
constexpr MegatronFlag own(const char* name, Takes takes, const char* means) {
  return {name, takes, Fate::own, nullptr, means, kNone, nullptr};
}

constexpr const char* kOneKernel = "isobar's kernels are fused by hand, always";
constexpr const char* kFp32Stream = "the residual stream, softmax and losses are fp32 in every precision";
constexpr const char* kFp32Gradients = "gradients are added and exchanged in fp32, always";
constexpr const char* kOverlap = "gradients are exchanged in buckets while the backward pass runs, always";
constexpr const char* kNotRotary = "isobar's GPT has learned positions; others are not built";
constexpr const char* kOtherModel = "it is of another model than GPT";
constexpr const char* kNoExperts = "experts (MoE) are not built";
constexpr const char* kNoFp8 = "fp8 is not built; use --bf16";
constexpr const char* kNoExchangeOfTensors = "each tensor that ranks exchange goes over once, whole";
constexpr const char* kFilesKnowNoLayout = "isobar's checkpoints know no layout: they are read under any";
constexpr const char* kPhilox =
    "random numbers are functions of (seed, iteration, position): there is no state to keep";

constexpr std::array kFlags{
    // The model
    key("num-layers", Takes::integer, "depth"),
    key("hidden-size", Takes::integer, "embed_dim"),
    key("ffn-hidden-size", Takes::integer, "mlp_hidden"),
    key("num-attention-heads", Takes::integer, "num_heads"),
    key("kv-channels", Takes::integer, "head_size"),
    key("seq-length", Takes::integer, "seq_length"),
    key("encoder-seq-length", Takes::integer, "seq_length", kNone, "the same as --seq-length"),
    key("max-position-embeddings", Takes::integer, "positions"),
    key("make-vocab-size-divisible-by", Takes::integer, "vocab_multiple", "128",
        "never times the tensor-parallel ranks: the model does not depend on the layout"),
    key("layernorm-epsilon", Takes::number, "norm_eps", "1e-05"),
    key("norm-epsilon", Takes::number, "norm_eps", kNone, "the same as --layernorm-epsilon"),
    turns_on("openai-gelu", "gelu tanh, which is the default"),
    turns_off("no-bias-gelu-fusion", "bias_gelu_fusion",
              "gelu erf: without the fusion Megatron-LM computes the exact form"),
    turns_on("untie-embeddings-and-output-weights", "tie_head false"),
    turns_off("disable-bias-linear", "add_bias_linear", "bias false; isobar leaves out the biases of norms too"),
    mapped("position-embedding-type", Takes::text, "learned_absolute; others are refused", "learned_absolute"),
    mapped("normalization", Takes::text, "LayerNorm; others are refused", "LayerNorm"),
    mapped(
        "vocab-size", Takes::integer,
        "vocab_size: at least the tokens of the tokenizer; of numbers it counts those, and the end of a document comes "
        "behind them"),
    // Regularisation
    key("attention-dropout", Takes::number, "attention_dropout", "0.1"),
    key("hidden-dropout", Takes::number, "hidden_dropout", "0.1", "and embedding_dropout"),
    key("weight-decay", Takes::number, "weight_decay", "0.01"),
    mapped("start-weight-decay", Takes::number, "weight_decay"),
    mapped("end-weight-decay", Takes::number, "end_weight_decay"),
    mapped("weight-decay-incr-style", Takes::text, "weight_decay_schedule: constant, linear, cosine", "constant"),
    key("clip-grad", Takes::number, "grad_clip", "1.0"),
    mapped("adam-beta1", Takes::number, "betas", "0.9"),
    mapped("adam-beta2", Takes::number, "betas", "0.999"),
    key("adam-eps", Takes::number, "eps", "1e-08"),
    accepted("sgd-momentum", Takes::number, "there is no SGD", "0.9"),
    // Batch and length
    mapped("micro-batch-size", Takes::integer, "grad_accumulation: global / (micro x data-parallel ranks)"),
    mapped("global-batch-size", Takes::integer, "global_batch_size; default: micro x data-parallel ranks"),
    mapped("rampup-batch-size", Takes::words, "batch_rampup: START INCREMENT SAMPLES, with --train-samples"),
    mapped("train-iters", Takes::integer, "num_iters"),
    mapped("train-samples", Takes::integer, "num_iters: as many batches as there are samples for"),
    key("log-interval", Takes::integer, "log_every", "100"),
    key("exit-interval", Takes::integer, "exit_interval"),
    key("exit-duration-in-mins", Takes::number, "exit_duration_mins"),
    accepted("exit-signal-handler", Takes::nothing, "SIGTERM, SIGINT and SIGUSR1 always write a checkpoint; status 75",
             "False"),
    mapped("optimizer", Takes::text, "adam: optimizer adamw, which is what it computes; sgd is refused", "adam"),
    mapped("dataloader-type", Takes::text, "single; others are refused", "single"),
    turns_on("calculate-per-token-loss", "loss_mean targets; without it micro_batches, as in Megatron-LM"),
    turns_on("recompute-activations", "recompute true"),
    mapped("recompute-granularity", Takes::text, "recompute true: whole blocks, since no kernel keeps scores"),
    accepted("recompute-method", Takes::text, "all blocks are recomputed"),
    accepted("recompute-num-layers", Takes::integer, "all blocks are recomputed, one by one"),
    turns_on("checkpoint-activations", "recompute true"),
    mapped("checkpoint-granularity", Takes::text, "recompute true"),
    accepted("checkpoint-method", Takes::text, "all blocks are recomputed"),
    accepted("checkpoint-num-layers", Takes::integer, "all blocks are recomputed, one by one", "1"),
    accepted("distribute-checkpointed-activations", Takes::nothing,
             "with --sequence-parallel ranks hold parts of them anyway", "False"),
    accepted("distribute-saved-activations", Takes::nothing, "with --sequence-parallel ranks hold parts of them anyway",
             "False"),
    // Initialisation
    key("seed", Takes::integer, "seed", "1234", "and data_seed, which decides the order of samples as there"),
    key("init-method-std", Takes::number, "init_std", "0.02"),
    refused("init-method-xavier-uniform", "initial weights are normal, of --init-method-std", "False"),
    refused("data-parallel-random-init", "all ranks begin with the same weights", "False"),
    // The learning rate
    key("lr", Takes::number, "lr"),
    key("min-lr", Takes::number, "end_lr", "0.0"),
    key("lr-warmup-init", Takes::number, "warmup_lr", "0.0"),
    mapped("lr-decay-style", Takes::text, "lr_schedule: linear, cosine, constant, inverse-square-root, WSD", "linear"),
    mapped("lr-decay-iters", Takes::integer, "decay_samples"),
    mapped("lr-decay-samples", Takes::integer, "decay_samples"),
    mapped("lr-warmup-fraction", Takes::number, "warmup_samples: a part of decay_samples"),
    mapped("lr-warmup-iters", Takes::integer, "warmup_samples", "0"),
    mapped("lr-warmup-samples", Takes::integer, "warmup_samples", "0"),
    mapped("lr-wsd-decay-style", Takes::text, "wsd_decay: exponential, linear, cosine, minus_sqrt", "exponential"),
    mapped("lr-wsd-decay-iters", Takes::integer, "wsd_samples"),
    mapped("lr-wsd-decay-samples", Takes::integer, "wsd_samples"),
    refused("decoupled-lr", "all parameters have one rate"),
    refused("decoupled-min-lr", "all parameters have one rate"),
    refused("override-opt-param-scheduler", "a run that goes on keeps its rates; --finetune begins new ones", "False"),
    accepted("use-checkpoint-opt-param-scheduler", Takes::nothing, "a run that goes on keeps its rates, always",
             "False"),
    // Checkpoints
    mapped("save", Takes::text,
           "--run-dir, with checkpoints as DIR/iter_0000100 and latest_checkpointed_iteration.txt"),
    key("save-interval", Takes::integer, "checkpoint_every"),
    mapped("load", Takes::text, "--resume, where it is the folder of --save; or weights to start from, as --init"),
    turns_on("finetune", "starts from the weights of --load, at iteration 0"),
    refused("no-save-optim", "a checkpoint from which a run cannot go on is none"),
    accepted("no-save-rng", Takes::nothing, kPhilox),
    refused("no-load-optim", "a run goes on with its optimizer; --finetune starts from weights alone"),
    accepted("no-load-rng", Takes::nothing, kPhilox),
    accepted("ckpt-format", Takes::text, kFilesKnowNoLayout),
    accepted("use-dist-ckpt", Takes::nothing, kFilesKnowNoLayout, "False"),
    accepted("async-save", Takes::nothing, "a checkpoint is written before the run goes on", "False"),
    accepted("auto-detect-ckpt-format", Takes::nothing, kFilesKnowNoLayout, "False"),
    accepted("no-initialization", Takes::nothing, "weights are drawn in a moment", "True", "perform_initialization"),
    refused("use-checkpoint-args", "the run's config.json is compared with the flags, which must agree", "False"),
    refused("ckpt-step", "write the iteration to latest_checkpointed_iteration.txt"),
    turns_on("exit-on-missing-checkpoint", "an Error where --load holds no run"),
    // Precision
    turns_on("fp16", "amp_mode fp16"),
    turns_on("bf16", "amp_mode bf16"),
    mapped("loss-scale", Takes::number, "a constant loss scale of fp16: initial_loss_scale with loss_scale_growth 1"),
    mapped("initial-loss-scale", Takes::number, "initial_loss_scale", "4294967296.0"),
    mapped("min-loss-scale", Takes::number, "min_loss_scale", "1.0"),
    mapped("loss-scale-window", Takes::number, "loss_scale_window", "1000.0"),
    key("hysteresis", Takes::integer, "hysteresis", "2"),
    accepted("fp32-residual-connection", Takes::nothing, kFp32Stream, "False"),
    no_switch("no-query-key-layer-scaling", "apply_query_key_layer_scaling",
              "scores are fp32: the scaling and its inverse would change nothing"),
    accepted("apply-query-key-layer-scaling", Takes::nothing,
             "scores are fp32: the scaling and its inverse would change nothing", "False"),
    accepted("attention-softmax-in-fp32", Takes::nothing, kFp32Stream, "False"),
    accepted("accumulate-allreduce-grads-in-fp32", Takes::nothing, kFp32Gradients, "False"),
    accepted("fp16-lm-cross-entropy", Takes::nothing, kFp32Stream, "False"),
    // Ranks
    mapped("tensor-model-parallel-size", Takes::integer, "--tensor-parallel", "1"),
    mapped("pipeline-model-parallel-size", Takes::integer, "--pipeline-parallel", "1"),
    mapped("num-layers-per-virtual-pipeline-stage", Takes::integer, "--pipeline-chunks: blocks of a stage / this"),
    mapped("context-parallel-size", Takes::integer, "--context-parallel", "1"),
    mapped("cp-comm-type", Takes::words, "--context-form: p2p is ring, a2a all-to-all, allgather gather"),
    turns_on("sequence-parallel", "--sequence-parallel"),
    turns_on("use-distributed-optimizer", "--shard-optimizer"),
    mapped("distributed-timeout-minutes", Takes::number, "--comm-timeout, in seconds", "10"),
    mapped("distributed-backend", Takes::text, "--backend auto: nccl on GPUs, else MPI or threads", "nccl"),
    accepted("DDP-impl", Takes::text, kOverlap, "local"),
    accepted("local-rank", Takes::integer, "the launcher says it in the environment"),
    accepted("lazy-mpu-init", Takes::text, "ranks meet before the model is made"),
    accepted("use-cpu-initialization", Takes::nothing, "initial weights are the same on every device and layout"),
    no_switch("no-contiguous-buffers-in-local-ddp", "use_contiguous_buffers_in_local_ddp", kOverlap),
    no_switch("no-scatter-gather-tensors-in-pipeline", "scatter_gather_tensors_in_pipeline", kNoExchangeOfTensors),
    no_switch("no-async-tensor-model-parallel-allreduce", "async_tensor_model_parallel_allreduce",
              "ranks exchange in order"),
    accepted("empty-unused-memory-level", Takes::integer, "memory is given back before and after validations", "0"),
    accepted("overlap-grad-reduce", Takes::nothing, kOverlap, "False"),
    accepted("overlap-param-gather", Takes::nothing, "weights are shared at the end of an update", "False"),
    accepted("no-overlap-p2p-communication", Takes::nothing, kNoExchangeOfTensors, "True", "overlap_p2p_comm"),
    mapped("ddp-bucket-size", Takes::integer, "--bucket-cap-mb: so many numbers of fp32"),
    mapped("use-tp-pp-dp-mapping", Takes::nothing, "--parallel-order", "False"),
    accepted("tp-comm-overlap", Takes::nothing, "ranks exchange in order", "False"),
    accepted("deterministic-mode", Takes::nothing, "the same seed and layout give the same bits, always", "False"),
    refused("standalone-embedding-stage", "stages are dealt by their work: see isobar mesh", "False"),
    refused("use-ring-exchange-p2p", "stages send to their neighbours directly", "False"),
    refused("use-torch-fsdp2", "parameters that ranks hold in parts are not built; use --use-distributed-optimizer",
            "False"),
    refused("use-custom-fsdp", "parameters that ranks hold in parts are not built; use --use-distributed-optimizer",
            "False"),
    // Data
    mapped("data-path", Takes::words, "data_path: PREFIX, PREFIX ..., or WEIGHT PREFIX ..."),
    mapped("train-data-path", Takes::words, "train_token_path"),
    mapped("valid-data-path", Takes::words, "valid_token_path"),
    mapped("test-data-path", Takes::words, "test_token_path"),
    key("split", Takes::text, "split", "969, 30, 1"),
    key("vocab-file", Takes::text, "vocab_file"),
    key("merge-file", Takes::text, "merge_file"),
    key("tokenizer-model", Takes::text, "tokenizer_model", kNone, "the table of the tokenizer characters"),
    mapped("tokenizer-type", Takes::text,
           "tokenizer: GPT2BPETokenizer is gpt2_bpe, NullTokenizer is numbers; also characters, bytes"),
    turns_on("eod-mask-loss", "eod_mask_loss"),
    turns_on("reset-position-ids", "reset_position_ids"),
    turns_on("reset-attention-mask", "reset_attention_mask"),
    key("num-workers", Takes::integer, "num_data_workers", "2"),
    mapped("data-impl", Takes::text, "mmap or infer; lazy and cached are refused: run isobar data preprocess again",
           "infer"),
    accepted("data-cache-path", Takes::text, "the order of samples is made in memory, in a moment"),
    accepted("mmap-warmup", Takes::nothing, "token files are read where samples lie", "False"),
    accepted("no-mmap-bin-files", Takes::nothing, "token files are read where samples lie", "True", "mmap_bin_files"),
    accepted("no-create-attention-mask-in-dataloader", Takes::nothing, "no mask is made: kernels know the triangle",
             "True", "create_attention_mask_in_dataloader"),
    accepted("vocab-extra-ids", Takes::integer, "they are of T5", "0"),
    turns_on("mock-data", "mock_data: made-up documents of up to 4,094 tokens, instead of --data-path"),
    refused("data-args-path", "name the files by --data-path"),
    // Validation
    key("eval-iters", Takes::integer, "eval_iters", "100", "always the same samples; 0: no validation, no test"),
    key("eval-interval", Takes::integer, "validate_every", "1000"),
    refused("skip-train", "isobar evaluate judges weights without training", "False"),
    refused("test-mode", "it is of Megatron-LM's own tests", "False"),
    // Logs
    turns_on("log-params-norm", "the norm of all parameters in the line and TensorBoard"),
    turns_on("log-num-zeros-in-grad", "the number of gradients that are 0"),
    turns_on("log-throughput", "TFLOP/s of a rank in the line"),
    accepted("log-progress", Takes::nothing, "metrics.jsonl has every figure", "False"),
    mapped("timing-log-level", Takes::integer, "which timers there are: 0, 1 or 2", "0"),
    accepted("timing-log-option", Takes::text, "timers tell least and largest of all ranks", "minmax"),
    mapped("tensorboard-dir", Takes::text, "Megatron-LM's tags go there; isobar's own to logs/ of the run"),
    mapped("tensorboard-log-interval", Takes::integer, "iterations between its points", "1"),
    accepted("tensorboard-queue-size", Takes::integer, "every point is written at once", "1000"),
    turns_on("log-timers-to-tensorboard", "timers in TensorBoard"),
    turns_on("log-batch-size-to-tensorboard", "batch-size in TensorBoard"),
    turns_on("log-validation-ppl-to-tensorboard", "lm loss validation ppl in TensorBoard"),
    turns_on("log-memory-to-tensorboard", "mem-allocated-bytes and others in TensorBoard"),
    turns_on("log-world-size-to-tensorboard", "world-size in TensorBoard"),
    turns_off("no-log-learnig-rate-to-tensorboard", "log_learning_rate_to_tensorboard",
              "no learning-rate in TensorBoard"),
    turns_off("no-log-loss-scale-to-tensorboard", "log_loss_scale_to_tensorboard", "no loss-scale in TensorBoard"),
    mapped("profile-execution", Takes::text, "True: a trace of two iterations (Chrome's format), and a table by kernel",
           "False"),
    mapped("profile-name", Takes::text, "the trace's folder under --tensorboard-dir"),
    turns_on("profile", "the same trace, of the iterations from --profile-step-start to -end"),
    mapped("profile-step-start", Takes::integer, "the first iteration of the trace, from 0", "10"),
    mapped("profile-step-end", Takes::integer, "the iteration behind its last one", "12"),
    accepted("profile-ranks", Takes::words, "the trace is of the first rank"),
    accepted("use-pytorch-profiler", Takes::nothing, "the trace has PyTorch's format", "False"),
    refused("record-memory-history", "isobar train prints what memory holds, by kind", "False"),
    refused("wandb-*", "metrics.jsonl and TensorBoard have every figure"),
    refused("adlr-autoresume*", "it is of NVIDIA's own cluster; status 75 asks for the run to go on", "False"),
    // Kernels
    no_switch("no-masked-softmax-fusion", "masked_softmax_fusion", kOneKernel),
    no_switch("no-bias-dropout-fusion", "bias_dropout_fusion", kOneKernel),
    no_switch("no-gradient-accumulation-fusion", "gradient_accumulation_fusion", kOneKernel),
    no_switch("no-rope-fusion", "apply_rope_fusion", "there are no rotary positions"),
    accepted("no-persist-layer-norm", Takes::nothing, kOneKernel, "False"),
    accepted("use-flash-attn", Takes::nothing, "attention never keeps the scores, always", "False"),
    accepted("attention-backend", Takes::text, "attention never keeps the scores, always", "auto"),
    accepted("transformer-impl", Takes::text, "isobar's own", "transformer_engine"),
    accepted("use-mcore-models", Takes::nothing, "there is one GPT", "False"),
    accepted("use-legacy-models", Takes::nothing, "there is one GPT", "False"),
    accepted("cross-entropy-loss-fusion", Takes::nothing, kOneKernel, "False"),
    accepted("manual-gc", Takes::nothing, "there is no garbage to collect", "False"),
    accepted("manual-gc-interval", Takes::integer, "there is no garbage to collect", "0"),
    accepted("no-check-for-nan-in-loss-and-grad", Takes::nothing,
             "a loss or gradient that is not finite is an Error, always", "True", "check_for_nan_in_loss_and_grad"),
    accepted("onnx-safe", Takes::text, "there is no ONNX"),
    // Other models, and what GPT has elsewhere
    refused("apply-residual-connection-post-layernorm", kOtherModel, "False"),
    refused("rotary-*", kNotRotary),
    refused("use-rotary-position-embeddings", kNotRotary, "False"),
    refused("use-rope-scaling", kNotRotary, "False"),
    refused("no-position-embedding", kNotRotary),
    refused("group-query-attention", "queries, keys and values have as many heads", "False"),
    refused("num-query-groups", "queries, keys and values have as many heads", "1"),
    refused("swiglu", "the MLP has one input product and a GELU", "False"),
    refused("squared-relu", "the MLP has a GELU", "False"),
    refused("add-qkv-bias", "all products have biases, or none has", "False"),
    refused("qk-layernorm", "queries and keys are not normalised", "False"),
    refused("multi-latent-attention", "it is not built", "False"),
    refused("spec", "models are isobar's own"),
    refused("num-experts", kNoExperts),
    refused("moe-*", kNoExperts),
    refused("expert-*", kNoExperts),
    refused("fp8-*", kNoFp8),
    refused("fp4-*", kNoFp8),
    refused("mtp-*", "it is not built"),
    refused("hybrid-*", kOtherModel),
    refused("mamba-*", kOtherModel),
    refused("heterogeneous-*", kOtherModel),
    refused("encoder-*", kOtherModel),
    refused("decoder-*", kOtherModel),
    refused("retro-*", kOtherModel),
    refused("retriever-*", kOtherModel),
    refused("bert-*", kOtherModel),
    refused("ict-*", kOtherModel),
    refused("biencoder-*", kOtherModel),
    refused("vision-*", kOtherModel),
    refused("rl-*", kOtherModel),
    refused("inference-*", "isobar generate writes text"),
    refused("titles-data-path", kOtherModel),
    refused("query-in-block-prob", kOtherModel, "0.1"),
    refused("use-one-sent-docs", kOtherModel, "False"),
    refused("evidence-data-path", kOtherModel),
    refused("block-data-path", kOtherModel),
    refused("embedding-path", kOtherModel),
    refused("indexer-batch-size", kOtherModel, "128"),
    refused("indexer-log-interval", kOtherModel, "1000"),
    refused("num-classes", kOtherModel, "1000"),
    refused("img-h", kOtherModel, "224"),
    refused("img-w", kOtherModel, "224"),
    refused("num-channels", kOtherModel, "3"),
    refused("patch-dim", kOtherModel, "16"),
    refused("classes-fraction", kOtherModel, "1.0"),
    refused("data-per-class-fraction", kOtherModel, "1.0"),
    refused("no-data-sharding", kOtherModel),
    refused("head-lr-mult", kOtherModel, "1.0"),
    refused("sample-rate", kOtherModel, "1.0"),
    refused("mask-prob", kOtherModel, "0.15"),
    refused("short-seq-prob", kOtherModel, "0.1"),
    refused("pipeline-model-parallel-split-rank", kOtherModel),
    refused("batch-size", "Megatron-LM dropped it for --micro-batch-size"),
    refused("warmup", "Megatron-LM dropped it for --lr-warmup-fraction"),
    refused("model-parallel-size", "Megatron-LM dropped it for --tensor-model-parallel-size"),
    // isobar's own
    own("ranks", Takes::integer, "ranks, as threads of this process; a launcher starts processes instead"),
    own("threads", Takes::integer, "threads of a rank on the CPU; 0: all cores"),
    own("device", Takes::text, "auto, cpu or cuda"),
    own("backend", Takes::text, "how ranks exchange data: auto (NCCL on GPUs, else MPI or threads), thread, mpi, nccl"),
    own("load-moments", Takes::text,
        "with weights of --load: Adam's moments too, a file of tools/megatron_checkpoint.py"),
    own("overwrite", Takes::nothing, "replaces the run that --save holds"),
    own("log-format", Takes::text, "legacy (default): the lines of 2022; core: those of core_v0.12"),
    own("comm-report", Takes::nothing, "at the end: what ranks told each other, predicted beside counted"),
    own("set", Takes::text,
        "KEY=VALUE: any config key of isobar, for what Megatron-LM has no flag for; again for each"),
};

bool matches(const MegatronFlag& row, std::string_view name) {
  const std::string_view pattern = row.name;
  return pattern.ends_with('*') ? name.starts_with(pattern.substr(0, pattern.size() - 1)) : name == pattern;
}

std::string dashed(std::string_view name) {
  std::string text(name);
  std::ranges::replace(text, '_', '-');
  return text;
}

std::string underscored(std::string_view name) {
  std::string text(name);
  std::ranges::replace(text, '-', '_');
  return text;
}

std::string argument_of(const MegatronFlag& flag) {
  return flag.argument != nullptr ? flag.argument : underscored(flag.name);
}

std::string about_unknown(const std::string& name) {
  std::vector<std::string> names;
  for (const MegatronFlag& flag : kFlags)
    if (!std::string_view(flag.name).ends_with('*')) names.push_back(concat("--", flag.name));
  return concat("there is no flag --", name, did_you_mean(suggestion("--" + name, names)),
                " (isobar pretrain-gpt --list-flags names all)");
}

template <class Number>
Number number_of_flag(const char* flag, const std::string& word, const char* kind) {
  const std::optional<Number> value = number_from<Number>(word);
  bool fits = value.has_value();
  if constexpr (std::is_floating_point_v<Number>) fits = fits && std::isfinite(*value);
  ISOBAR_CHECK(fits, "--", flag, ' ', word, ": ", kind, " is needed");
  return *value;
}

std::int64_t integer_from(const char* flag, const std::string& word) {
  return number_of_flag<std::int64_t>(flag, word, "a whole number");
}

double float_from(const char* flag, const std::string& word) {
  return number_of_flag<double>(flag, word, "a number");
}

// Whether a word is the next flag, and no value: "-1" is a value.
bool is_flag(const std::string& word) {
  return word.starts_with("--") && word.size() > 2;
}

// As Python prints a list of words.
std::string python_list(const std::vector<std::string>& words) {
  std::string text = "[";
  for (const std::string& word : words) text += (text.size() > 1 ? ", '" : "'") + word + "'";
  return text + "]";
}

std::string python_value(const MegatronFlag& flag, const std::vector<std::string>& words) {
  switch (flag.takes) {
    case Takes::nothing:
      return std::string_view(flag.usual) == "True" ? "False" : "True";
    case Takes::integer:
      return std::to_string(integer_from(flag.name, words.back()));
    case Takes::number:
      return python_float(float_from(flag.name, words.back()));
    case Takes::text:
      return words.back();
    case Takes::words:
      return python_list(words);
  }
  throw_error("no such value");
}

const char* value_text(Takes takes) {
  switch (takes) {
    case Takes::nothing:
      return "";
    case Takes::integer:
      return " N";
    case Takes::number:
      return " X";
    case Takes::text:
      return " TEXT";
    case Takes::words:
      return " WORDS";
  }
  throw_error("no such value");
}

}  // namespace

const std::vector<MegatronFlag>& megatron_flags() {
  static const std::vector<MegatronFlag> flags(kFlags.begin(), kFlags.end());
  return flags;
}

// A row with the whole name comes before one with its beginning.
const MegatronFlag* find_megatron_flag(std::string_view name) {
  const std::string plain = dashed(name);
  const auto whole = std::ranges::find_if(kFlags, [&](const MegatronFlag& row) { return plain == row.name; });
  if (whole != kFlags.end()) return &*whole;
  const auto found = std::ranges::find_if(kFlags, [&](const MegatronFlag& row) { return matches(row, plain); });
  return found == kFlags.end() ? nullptr : &*found;
}

MegatronArguments::MegatronArguments(const std::vector<std::string>& all) {
  for (std::size_t at = 0; at < all.size();) {
    ISOBAR_CHECK(is_flag(all[at]), "there is no use for the argument ", all[at],
                 " (see isobar pretrain-gpt --list-flags)");
    const std::size_t equals = std::min(all[at].find('='), all[at].size());
    const std::string name = dashed(all[at].substr(2, equals - 2));
    const MegatronFlag* flag = find_megatron_flag(name);
    ISOBAR_CHECK(flag != nullptr, about_unknown(name));
    ISOBAR_CHECK(flag->fate != Fate::refused, "--", name, " is refused: ", flag->means);
    std::vector<std::string> values;
    if (equals < all[at].size()) values.push_back(all[at].substr(equals + 1));
    ++at;
    const std::size_t most = flag->takes == Takes::nothing ? 0 : flag->takes == Takes::words ? all.size() : 1;
    while (at < all.size() && values.size() < most && !is_flag(all[at])) values.push_back(all[at++]);
    ISOBAR_CHECK(flag->takes != Takes::nothing || values.empty(), "--", name, " takes no value, and is given ",
                 values.front());
    ISOBAR_CHECK(flag->takes == Takes::nothing || !values.empty(), "--", name, " needs a value");
    if (flag->takes == Takes::integer) integer_from(flag->name, values.back());
    if (flag->takes == Takes::number) float_from(flag->name, values.back());
    if (name == "set")
      given_["set"].push_back(values.back());
    else
      given_[flag->name] = std::move(values);
  }
}

std::optional<std::string> MegatronArguments::one(const char* flag) const {
  if (const auto found = given_.find(flag); found != given_.end()) return found->second.back();
  const MegatronFlag* row = find_megatron_flag(flag);
  ISOBAR_CHECK(row != nullptr, "--", flag, " is in no row of the table");
  return std::string_view(row->usual) == kNone ? std::nullopt : std::optional<std::string>(row->usual);
}

std::optional<std::int64_t> MegatronArguments::integer(const char* flag) const {
  const std::optional<std::string> word = one(flag);
  return word ? std::optional(integer_from(flag, *word)) : std::nullopt;
}

std::optional<double> MegatronArguments::number(const char* flag) const {
  const std::optional<std::string> word = one(flag);
  return word ? std::optional(float_from(flag, *word)) : std::nullopt;
}

std::optional<std::string> MegatronArguments::text(const char* flag) const {
  return one(flag);
}

std::vector<std::string> MegatronArguments::words(const char* flag) const {
  const auto found = given_.find(flag);
  return found == given_.end() ? std::vector<std::string>() : found->second;
}

void MegatronArguments::require(const char* flag) const {
  ISOBAR_CHECK(has(flag), "--", flag, " is missing");
}

std::vector<std::string> MegatronArguments::accepted() const {
  std::vector<std::string> lines;
  for (const MegatronFlag& flag : kFlags)
    if (flag.fate == Fate::accepted && has(flag.name)) lines.push_back(concat("--", flag.name, ": ", flag.means));
  return lines;
}

// Two flags may set one argument: the one that is given decides.
std::vector<std::pair<std::string, std::string>> MegatronArguments::listed() const {
  std::map<std::string, std::string> values;
  for (const MegatronFlag& flag : kFlags) {
    if (flag.fate == Fate::own || std::string_view(flag.name).ends_with('*')) continue;
    const auto given = given_.find(flag.name);
    if (given == given_.end())
      values.try_emplace(argument_of(flag), flag.usual);
    else
      values[argument_of(flag)] = python_value(flag, given->second);
  }
  return {values.begin(), values.end()};
}

std::string describe_megatron_flags() {
  std::string page = R"(# Megatron-LM's flags

`isobar pretrain-gpt ARGS` takes the arguments of Megatron-LM's script for GPT, so that a command begins with
`isobar pretrain-gpt` in the place of Python and that script, also under `srun`, `mpirun` and
`torchrun --no-python`, or with `--ranks N` on one machine. `isobar pretrain-gpt --list-flags` prints this page.
)";
  const auto section = [&](const char* heading, const char* about, Fate fate, auto row) {
    page += concat("\n## ", heading, "\n\n", about, "\n\n");
    for (const MegatronFlag& flag : kFlags)
      if (flag.fate == fate) page += concat("- `--", flag.name, value_text(flag.takes), "`", row(flag), "\n");
  };
  const auto usual = [](const MegatronFlag& flag) {
    const bool is_told = std::string_view(flag.usual) != kNone && flag.takes != Takes::nothing;
    return is_told ? concat(" (", flag.usual, ")") : std::string();
  };
  section("Flags that set something", "The value where a flag is not given stands in brackets.", Fate::mapped,
          [&](const MegatronFlag& flag) {
            const std::string_view means = flag.means;
            const std::string name = flag.key == nullptr ? "" : concat('`', flag.key, '`', means.empty() ? "" : "; ");
            return concat(usual(flag), ": ", name, means);
          });
  section("Flags that change nothing", "They are accepted with a line that says what happens instead.", Fate::accepted,
          [](const MegatronFlag& flag) { return concat(": ", flag.means); });
  section("isobar's own", "Megatron-LM does not have these.", Fate::own,
          [](const MegatronFlag& flag) { return concat(": ", flag.means); });
  page += "\n## Flags that are refused\n\nA `*` stands for the rest of a name.\n\n";
  for (const MegatronFlag& flag : kFlags)
    if (flag.fate == Fate::refused) page += concat("- `--", flag.name, "`: ", flag.means, "\n");
  return page;
}

}  // namespace isobar
