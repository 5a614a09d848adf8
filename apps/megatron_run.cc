#include "apps/megatron_run.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "data/text/sample_index.h"
#include "data/text/token_file.h"
#include "data/text/tokenizer.h"
#include "engine/files/checkpoint.h"
#include "engine/files/folders.h"
#include "engine/files/json.h"
#include "engine/files/reader.h"
#include "engine/schedule.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"
#include "kernels/common/math.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

constexpr const char* kConfigName = "pretrain_gpt";
constexpr double kMostWhole = 9007199254740992;  // 2^53

// One of a flag's words; Error that names them.
std::string one_of(const MegatronArguments& a, const char* flag, const std::vector<std::string>& words) {
  const std::string given = *a.text(flag);
  std::string list;
  for (const std::string& word : words) {
    if (word == given) return given;
    list += (list.empty() ? "" : ", ") + word;
  }
  throw_error("--", flag, ' ', given, " is refused: isobar takes ", list);
}

int ranks_from(const MegatronArguments& a, const char* flag) {
  constexpr std::int64_t kMostRanks = 1 << 20;
  const std::int64_t ranks = *a.integer(flag);
  ISOBAR_CHECK(ranks >= 1 && ranks <= kMostRanks, "--", flag, ' ', ranks, ": at least one rank is needed");
  return static_cast<int>(ranks);
}

std::string context_form_of(const std::vector<std::string>& words) {
  if (words.empty() || words.back() == "p2p") return name_of_enum(ContextForm::ring);
  if (words.back() == "a2a") return name_of_enum(ContextForm::all_to_all);
  if (words.back() == "allgather") return name_of_enum(ContextForm::gather);
  throw_error("--cp-comm-type ", words.back(), " is refused: isobar takes p2p, a2a, allgather");
}

bool is_weights_file(const fs::path& path) {
  return fs::is_regular_file(path) || fs::exists(path / "config.json") || fs::exists(path / kModelFile);
}

bool is_run(const fs::path& folder) {
  return fs::exists(folder / "run_id");
}

// Whether a folder holds a checkpoint of another program under Megatron-LM's names: "release", weights to start from.
bool holds_release(const fs::path& folder) {
  const fs::path tracker = folder / kTrackerFile;
  return fs::is_regular_file(tracker) && read_file(tracker).starts_with("release");
}

void set_folder(TrainFlags& o, const MegatronArguments& a) {
  const std::optional<std::string> save = a.text("save"), load = a.text("load");
  o.overwrite = a.is_on("overwrite");
  if (save) {
    o.run_dir = *save;
  } else {
    o.overwrite = o.overwrite || !load;  // who keeps nothing, starts again
  }
  if (!load) {
    ISOBAR_CHECK(!a.is_on("finetune"), "--finetune needs --load, the weights to start from");
    ISOBAR_CHECK(!a.has("load-moments"), "--load-moments needs --load, the weights that the moments are of");
    return;
  }
  o.init_moments = a.text("load-moments").value_or("");
  const bool is_same = save && resolved_path(*save) == resolved_path(*load);
  ISOBAR_CHECK(!o.overwrite || !is_same || a.is_on("finetune"),
               "--overwrite replaces the run that --load wants to go on with");
  if (a.is_on("finetune") || holds_release(*load) || (is_weights_file(*load) && !is_run(*load))) {
    ISOBAR_CHECK(!is_same, "--load ", *load, " starts a new run from weights: give --save another folder");
    o.init = holds_release(*load) ? (fs::path(*load) / "release").string() : *load;
    return;
  }
  ISOBAR_CHECK(o.init_moments.empty(), "--load-moments goes with weights that start a run, and --load ", *load,
               " goes on with one, which has its own");
  if (!save) o.run_dir = *load;
  ISOBAR_CHECK(!save || is_same || fs::exists(*load), "--load ", *load, " does not exist");
  ISOBAR_CHECK(!save || is_same, "--load ", *load, ": a run goes on in its own folder, and --save is ", *save,
               "; give both the same, or --finetune to start a new run from its weights");
  ISOBAR_CHECK(!a.is_on("exit-on-missing-checkpoint") || is_run(*load), "--load ", *load, " holds no run");
  o.resume = true;
}

// The config of the run that --load goes on with; null where it goes on with none.
nlohmann::json config_to_go_on_with(const TrainFlags& o) {
  const fs::path file = fs::path(o.run_dir) / "config.json";
  return o.resume && fs::is_regular_file(file) ? read_json<nlohmann::json>(file) : nlohmann::json();
}

// Of a config that may be null, or another program's.
template <class T>
std::optional<T> value_in(const nlohmann::json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end()) return std::nullopt;
  const bool fits = std::is_same_v<T, std::string> ? found->is_string() : found->is_number_integer();
  return fits ? std::optional(found->get<T>()) : std::nullopt;
}

// Entries of a config; each names its flag.
class Entries {
 public:
  template <class T>
  void set(const char* key, const char* flag, const T& value) {
    entries_[key] = {.value = value, .origin = concat("--", flag), .layer = kLayerOfFlags};
  }
  template <class T>
  void set_if(const char* key, const char* flag, const std::optional<T>& value) {
    if (value) set(key, flag, *value);
  }
  const ConfigEntries& all() const { return entries_; }
  ConfigEntries& all() { return entries_; }

 private:
  ConfigEntries entries_;
};

// The rows that name a key.
void set_rows(Entries& entries, const MegatronArguments& a) {
  using Takes = MegatronFlag::Takes;
  for (const MegatronFlag& flag : megatron_flags()) {
    if (flag.key == nullptr) continue;
    if (flag.takes == Takes::integer) entries.set_if(flag.key, flag.name, a.integer(flag.name));
    if (flag.takes == Takes::number) entries.set_if(flag.key, flag.name, a.number(flag.name));
    if (flag.takes == Takes::text) entries.set_if(flag.key, flag.name, a.text(flag.name));
  }
}

void set_network(Entries& entries, const MegatronArguments& a) {
  for (const char* flag : {"num-layers", "hidden-size", "num-attention-heads", "max-position-embeddings"})
    a.require(flag);
  ISOBAR_CHECK(a.has("seq-length") || a.has("encoder-seq-length"), "--seq-length is missing");
  one_of(a, "position-embedding-type", {"learned_absolute"});
  one_of(a, "normalization", {"LayerNorm"});
  entries.set("embedding_dropout", "hidden-dropout", *a.number("hidden-dropout"));
  entries.set("vocab_padding", "make-vocab-size-divisible-by", "live");
  const bool is_exact = a.is_on("no-bias-gelu-fusion") && !a.is_on("openai-gelu");
  entries.set("gelu", is_exact ? "no-bias-gelu-fusion" : "openai-gelu", is_exact ? "erf" : "tanh");
  if (a.is_on("untie-embeddings-and-output-weights"))
    entries.set("tie_head", "untie-embeddings-and-output-weights", false);
  if (a.is_on("disable-bias-linear")) entries.set("bias", "disable-bias-linear", false);
  entries.set_if("vocab_size", "vocab-size", a.integer("vocab-size"));
  const bool recomputes = a.is_on("recompute-activations") || a.is_on("checkpoint-activations") ||
                          a.has("recompute-granularity") || a.has("checkpoint-granularity");
  for (const char* flag : {"recompute-granularity", "checkpoint-granularity"})
    if (a.has(flag)) one_of(a, flag, {"full", "selective"});
  if (recomputes) entries.set("recompute", "recompute-activations", true);
}

void set_precision(Entries& entries, const MegatronArguments& a) {
  const bool fp16 = a.is_on("fp16"), bf16 = a.is_on("bf16");
  ISOBAR_CHECK(!fp16 || !bf16, "--fp16 and --bf16 exclude each other");
  entries.set("amp_mode", fp16 ? "fp16" : "bf16", fp16 ? "fp16" : bf16 ? "bf16" : "none");
  const double window = *a.number("loss-scale-window");
  ISOBAR_CHECK(window == std::floor(window) && window >= 1 && window < kMostWhole, "--loss-scale-window ", window,
               ": a whole number of updates is needed");
  entries.set("loss_scale_window", "loss-scale-window", static_cast<std::int64_t>(window));
  const std::optional<double> constant = a.number("loss-scale");
  entries.set("initial_loss_scale", constant ? "loss-scale" : "initial-loss-scale",
              constant ? *constant : *a.number("initial-loss-scale"));
  entries.set("min_loss_scale", "min-loss-scale", constant ? *constant : *a.number("min-loss-scale"));
  if (constant) entries.set("loss_scale_growth", "loss-scale", 1.0);
}

struct Length {
  std::int64_t batch = 0, iterations = 0, samples = 0;
  bool by_samples = false;  // --train-samples
};

void set_ramp(Entries& entries, const MegatronArguments& a) {
  std::vector<double> numbers;
  for (const std::string& word : a.words("rampup-batch-size")) {
    double number = 0;
    ISOBAR_CHECK(CLI::detail::lexical_cast(word, number) && std::isfinite(number), "--rampup-batch-size ", word,
                 ": a number is needed");
    numbers.push_back(number);
  }
  ISOBAR_CHECK(numbers.size() == 3, "--rampup-batch-size needs three numbers: START INCREMENT SAMPLES");
  entries.set("batch_rampup", "rampup-batch-size", numbers);
}

Length set_batch(Entries& entries, const MegatronArguments& a, std::int64_t dp) {
  a.require("micro-batch-size");
  const std::int64_t micro = *a.integer("micro-batch-size");
  ISOBAR_CHECK(micro >= 1, "--micro-batch-size ", micro, ": at least one sample is needed");
  const std::int64_t at_once = checked_product({micro, dp}, "--micro-batch-size");
  Length length{.batch = a.integer("global-batch-size").value_or(at_once)};
  ISOBAR_CHECK(length.batch >= 1 && length.batch % at_once == 0, "--global-batch-size ", length.batch,
               " is no multiple of --micro-batch-size ", micro, " times ", dp, " data-parallel ranks");
  entries.set("global_batch_size", "global-batch-size", length.batch);
  entries.set("grad_accumulation", "global-batch-size, --micro-batch-size and the number of ranks",
              length.batch / at_once);
  entries.set("loss_mean", "calculate-per-token-loss",
              a.is_on("calculate-per-token-loss") ? "targets" : "micro_batches");
  const std::optional<std::int64_t> iterations = a.integer("train-iters"), samples = a.integer("train-samples");
  ISOBAR_CHECK(iterations.has_value() != samples.has_value(), "one of --train-iters and --train-samples is needed");
  const char* const flag = iterations ? "train-iters" : "train-samples";
  ISOBAR_CHECK(iterations.value_or(1) >= 1 && samples.value_or(1) >= 1, "--", flag, ' ',
               iterations ? *iterations : *samples, ": at least one is needed");
  ISOBAR_CHECK(samples || !a.has("rampup-batch-size"), "--rampup-batch-size needs --train-samples, not --train-iters");
  if (a.has("rampup-batch-size")) set_ramp(entries, a);
  length.by_samples = samples.has_value();
  if (iterations) {
    length.iterations = *iterations;
    length.samples = checked_product({length.batch, *iterations}, "--train-iters");
    return length;
  }
  length.samples = *samples;
  BatchOptions batch{.global_batch_size = length.batch, .grad_accumulation = length.batch / at_once};
  if (const auto ramp = entries.all().find("batch_rampup"); ramp != entries.all().end())
    batch.batch_rampup = ramp->second.value.get<std::vector<double>>();
  KeyOrigins origins;
  origins.set("batch_rampup", "--rampup-batch-size");
  origins.set("global_batch_size", "--global-batch-size");
  check_keys({batch.keys()}, origins);
  length.iterations = batch.ramp().iterations_for(*samples);
  ISOBAR_CHECK(length.iterations >= 1, "--train-samples ", *samples, " are not enough for a batch of ", length.batch);
  entries.set("num_iters", flag, length.iterations);
  // The order of samples is cut into whole batches of the final size.
  entries.set("train_samples", flag, ceil_div(*samples, length.batch) * length.batch);
  return length;
}

// "train-iters" or "train-samples" decides whether a number of steps is told in iterations or in samples.
double steps_in_samples(const MegatronArguments& a, const Length& length, const std::string& stem, double otherwise) {
  const std::string iterations = stem + "-iters", samples = stem + "-samples";
  const std::string& wrong = length.by_samples ? iterations : samples;
  const std::string& right = length.by_samples ? samples : iterations;
  ISOBAR_CHECK(!a.has(wrong.c_str()), "--", wrong, " does not fit --",
               length.by_samples ? "train-samples" : "train-iters", "; give --", right);
  const std::optional<std::int64_t> given = a.integer(right.c_str());
  if (!given) return otherwise;
  const double unit = length.by_samples ? 1 : static_cast<double>(length.batch);
  return static_cast<double>(*given) * unit;
}

std::string schedule_of(const std::string& style) {
  if (style == "inverse-square-root") return name_of_enum(ScheduleKind::inverse_square_root);
  return style == "WSD" ? name_of_enum(ScheduleKind::wsd) : style;
}

// Without --lr-decay-iters rates fall over --train-iters. A run that is made longer would get others, which Megatron-LM
// refuses too: its schedule is the checkpoint's.
void check_decay(const MegatronArguments& a, const Length& length, const nlohmann::json& earlier) {
  const char* const flag = length.by_samples ? "lr-decay-samples" : "lr-decay-iters";
  const std::optional<std::int64_t> decay = value_in<std::int64_t>(earlier, "decay_samples");
  if (!decay || a.has(flag) || *decay == length.samples) return;
  const char* const total = length.by_samples ? "train-samples" : "train-iters";
  const std::int64_t unit = length.by_samples ? 1 : length.batch;
  ISOBAR_CHECK(*decay % unit == 0, "--global-batch-size ", length.batch, ": rates of the run to go on with fall over ",
               *decay, " samples, no whole number of such batches");
  throw_error("--", total, ' ', length.samples / unit, ": rates fall over as many without --", flag,
              ", and those of the run to go on with over ", *decay / unit, "; give --", flag, ' ', *decay / unit,
              " (a rate that falls is --min-lr from there on)");
}

void set_rates(Entries& entries, const MegatronArguments& a, const Length& length, const nlohmann::json& earlier) {
  a.require("lr");
  const std::string style = one_of(a, "lr-decay-style", {"linear", "cosine", "constant", "inverse-square-root", "WSD"});
  entries.set("lr_schedule", "lr-decay-style", schedule_of(style));
  entries.set("warmup_rule", "lr-decay-style", "megatron");
  check_decay(a, length, earlier);
  const double decay = steps_in_samples(a, length, "lr-decay", static_cast<double>(length.samples));
  ISOBAR_CHECK(decay >= 1 && decay < kMostWhole, "--lr-decay-", length.by_samples ? "samples" : "iters",
               " must be at least 1");
  entries.set("decay_samples", length.by_samples ? "lr-decay-samples" : "lr-decay-iters",
              static_cast<std::int64_t>(decay));
  const double warmup = steps_in_samples(a, length, "lr-warmup", 0);
  const std::optional<double> fraction = a.number("lr-warmup-fraction");
  ISOBAR_CHECK(!fraction || warmup == 0, "--lr-warmup-fraction and --lr-warmup-",
               length.by_samples ? "samples" : "iters", " exclude each other");
  entries.set("warmup_samples", fraction ? "lr-warmup-fraction" : "lr-warmup-iters",
              fraction ? *fraction * decay : warmup);
  if (style != "WSD") return;
  entries.set("wsd_decay", "lr-wsd-decay-style",
              one_of(a, "lr-wsd-decay-style", {"exponential", "linear", "cosine", "minus_sqrt"}));
  const double falling = steps_in_samples(a, length, "lr-wsd-decay", 0);
  ISOBAR_CHECK(falling >= 1, "--lr-wsd-decay-", length.by_samples ? "samples" : "iters",
               " is missing, which --lr-decay-style WSD needs");
  entries.set("wsd_samples", "lr-wsd-decay-iters", static_cast<std::int64_t>(falling));
}

void set_optimizer(Entries& entries, const MegatronArguments& a) {
  one_of(a, "optimizer", {"adam"});
  entries.set("optimizer", "optimizer", "adamw");
  entries.set("betas", "adam-beta1", std::vector<double>{*a.number("adam-beta1"), *a.number("adam-beta2")});
  const std::string style = one_of(a, "weight-decay-incr-style", {"constant", "linear", "cosine"});
  const std::optional<double> start = a.number("start-weight-decay"), end = a.number("end-weight-decay");
  ISOBAR_CHECK(start.has_value() == (style != "constant") && end.has_value() == (style != "constant"),
               "--weight-decay-incr-style ", style,
               style == "constant" ? " takes no --start-weight-decay and no --end-weight-decay"
                                   : " needs --start-weight-decay and --end-weight-decay");
  entries.set("weight_decay_schedule", "weight-decay-incr-style", style);
  entries.set_if("weight_decay", "start-weight-decay", start);
  entries.set_if("end_weight_decay", "end-weight-decay", end);
}

// As Megatron-LM of the log's vintage rounds. The format of a log is no part of a run: one that goes on keeps its own.
std::string split_rule_of(const MegatronArguments& a, const nlohmann::json& earlier) {
  const bool is_core = a.text("log-format").value_or("legacy") == "core";
  return value_in<std::string>(earlier, "split_rule").value_or(is_core ? "core" : "legacy");
}

void set_data(Entries& entries, const MegatronArguments& a, const std::string& split_rule) {
  one_of(a, "data-impl", {"mmap", "infer"});
  one_of(a, "dataloader-type", {"single"});
  const std::vector<std::pair<const char*, const char*>> paths{{"data_path", "data-path"},
                                                               {"train_token_path", "train-data-path"},
                                                               {"valid_token_path", "valid-data-path"},
                                                               {"test_token_path", "test-data-path"}};
  bool is_named = false;
  for (const auto& [key, flag] : paths) {
    if (!a.has(flag)) continue;
    is_named = true;
    nlohmann::json words = nlohmann::json::array();
    for (const std::string& word : a.words(flag))
      words.push_back(is_number(word) ? nlohmann::json(std::stod(word)) : nlohmann::json(word));
    entries.set(key, flag, words);
  }
  const bool is_mock = a.is_on("mock-data");
  ISOBAR_CHECK(is_named || is_mock,
               "--data-path is missing: a token file of isobar data preprocess, without its ending; or --mock-data");
  ISOBAR_CHECK(!is_named || !is_mock, "--mock-data takes the place of --data-path: give one of them");
  if (is_mock) entries.set("mock_data", "mock-data", true);
  const std::string kind = tokenizer_kind(a.text("tokenizer-type").value_or("GPT2BPETokenizer"));
  entries.set("tokenizer", "tokenizer-type", kind);
  if (kind == "numbers") {
    ISOBAR_CHECK(a.has("vocab-size"), "--tokenizer-type ", *a.text("tokenizer-type"), " needs --vocab-size");
    entries.set("vocab_size", "vocab-size", *a.integer("vocab-size") + 1);  // and the end of a document
  }
  entries.set("split_rule", "log-format", split_rule);
  if (a.is_on("eod-mask-loss")) entries.set("eod_mask_loss", "eod-mask-loss", true);
  if (a.is_on("reset-position-ids")) entries.set("reset_position_ids", "reset-position-ids", true);
  if (a.is_on("reset-attention-mask")) entries.set("reset_attention_mask", "reset-attention-mask", true);
  entries.set("data_seed", "seed", *a.integer("seed"));
}

void set_run(Entries& entries, const MegatronArguments& a) {
  entries.set("expdir", "save", "runs");
  entries.set("keep_checkpoints", "save", a.has("save") ? 0 : 1);
  entries.set("validate_at_start", "eval-interval", false);
  entries.set("test_weights", "eval-iters", "last");
  if (!a.has("save-interval")) {
    ISOBAR_CHECK(!a.has("save"), "--save needs --save-interval");
    entries.set("checkpoint_every", "save-interval", entries.all().at("num_iters").value);
  }
}

// Where one token file is split into the three sets.
std::function<std::vector<std::int64_t>()> split_of(const MegatronArguments& a, const std::string& rule) {
  const std::vector<std::string> paths = a.words("data-path");
  if (paths.size() != 1) return {};
  return [path = paths.front(), split = *a.text("split"), rule = split_rule(rule)] {
    return split_documents(split, TokenFile(path).sequences(), rule);
  };
}

MegatronVoice voice_of(const TrainFlags& o, const MegatronArguments& a, const std::string& split_rule) {
  const MeshSizes sizes = sizes_of(o);
  MegatronVoice voice{.format = *enum_named<MegatronFormat>(
                          a.has("log-format") ? one_of(a, "log-format", {"legacy", "core"}) : "legacy"),
                      .arguments = a.listed(),
                      .accepted = a.accepted(),
                      .split = split_of(a, split_rule),
                      .layout = {.world = o.ranks,
                                 .dp = sizes.dp,
                                 .tp = sizes.tp,
                                 .pp = *a.integer("pipeline-model-parallel-size"),
                                 .cp = sizes.cp},
                      .dtype = a.is_on("fp16")   ? "float16"
                               : a.is_on("bf16") ? "bfloat16"
                                                 : "float32",
                      .log_every = *a.integer("log-interval"),
                      .tensorboard_folder = a.text("tensorboard-dir").value_or(""),
                      .tensorboard_every = *a.integer("tensorboard-log-interval"),
                      .timing_level = *a.integer("timing-log-level"),
                      .timers = a.is_on("log-timers-to-tensorboard"),
                      .batch_size = a.is_on("log-batch-size-to-tensorboard"),
                      .perplexity = a.is_on("log-validation-ppl-to-tensorboard"),
                      .memory = a.is_on("log-memory-to-tensorboard"),
                      .world_size = a.is_on("log-world-size-to-tensorboard"),
                      .learning_rate = !a.is_on("no-log-learnig-rate-to-tensorboard"),
                      .loss_scale = !a.is_on("no-log-loss-scale-to-tensorboard"),
                      .params_norm = a.is_on("log-params-norm"),
                      .zeros = a.is_on("log-num-zeros-in-grad"),
                      .throughput = a.is_on("log-throughput")};
  ISOBAR_CHECK(voice.tensorboard_every >= 1, "--tensorboard-log-interval ", voice.tensorboard_every,
               ": at least 1 is needed");
  const auto add = [&](const char* name, const std::string& value) { voice.arguments.emplace_back(name, value); };
  add("world_size", std::to_string(o.ranks));
  add("rank", "0");
  add("data_parallel_size", std::to_string(sizes.dp));
  add("consumed_train_samples", "0");
  add("consumed_valid_samples", "0");
  add("params_dtype", "torch." + voice.dtype);
  return voice;
}

// Two iterations behind the first ones, in which memory and caches are still cold; or those of --profile-step-*.
std::optional<TraceOptions> trace_of(const TrainFlags& o, const MegatronArguments& a, std::int64_t iterations) {
  const bool by_name = one_of(a, "profile-execution", {"True", "False", "true", "false"}).starts_with('T') ||
                       *a.text("profile-execution") == "true";
  if (!by_name && !a.is_on("profile")) return std::nullopt;
  TraceOptions trace{.folder = a.text("tensorboard-dir").value_or((fs::path(o.run_dir) / "logs").string())};
  if (const auto name = a.text("profile-name")) trace.folder /= *name;
  constexpr std::int64_t kCold = 2, kTraced = 2;
  trace.first =
      by_name ? std::max<std::int64_t>(std::min(kCold, iterations - kTraced), 0) : *a.integer("profile-step-start");
  trace.end = by_name ? trace.first + kTraced : *a.integer("profile-step-end");
  ISOBAR_CHECK(trace.first >= 0 && trace.end > trace.first, "--profile-step-start ", trace.first,
               " must be before --profile-step-end ", trace.end);
  return trace;
}

}  // namespace

namespace {

// Blocks of one of the chunks that a stage has, as Megatron-LM counts: the number of chunks.
std::int64_t chunks_of(const MegatronArguments& a, int stages) {
  const std::optional<std::int64_t> blocks = a.integer("num-layers-per-virtual-pipeline-stage");
  if (!blocks) return 1;
  a.require("num-layers");
  const std::int64_t layers = *a.integer("num-layers");
  ISOBAR_CHECK(stages > 1 && *blocks >= 1 && layers % (stages * *blocks) == 0,
               "--num-layers-per-virtual-pipeline-stage ", *blocks, ": ", layers, " blocks are not dealt to ", stages,
               " stages in chunks of ", *blocks);
  return layers / (stages * *blocks);
}

void set_pipeline(TrainFlags& o, const MegatronArguments& a) {
  o.pipeline_parallel = ranks_from(a, "pipeline-model-parallel-size");
  o.pipeline_chunks = chunks_of(a, o.pipeline_parallel);
  if (a.is_on("use-tp-pp-dp-mapping")) o.parallel_order = "tp-cp-pp-dp";
}

}  // namespace

TrainFlags megatron_launch(const MegatronArguments& a) {
  TrainFlags o;
  if (a.has("ranks")) o.ranks = ranks_from(a, "ranks");
  if (const auto threads = a.integer("threads")) {
    constexpr std::int64_t kMostThreads = 1 << 16;
    ISOBAR_CHECK(*threads >= 0 && *threads < kMostThreads, "--threads ", *threads, ": a number of threads is needed");
    o.config.threads = static_cast<int>(*threads);
  }
  if (a.has("device")) {
    std::vector<std::string> devices{"auto", "cpu", "cuda"};
    if (ISOBAR_HAS_EMULATOR) devices.emplace_back("emulator");
    o.config.device = one_of(a, "device", devices);
  }
  if (a.has("backend")) o.backend = one_of(a, "backend", {"auto", "thread", "mpi", "nccl"});
  o.comm_report = a.is_on("comm-report");
  o.config.assignments = a.words("set");
  o.tensor_parallel = ranks_from(a, "tensor-model-parallel-size");
  o.context_parallel = ranks_from(a, "context-parallel-size");
  o.sequence_parallel = a.is_on("sequence-parallel") && o.tensor_parallel > 1;
  if (o.context_parallel > 1) o.context_form = context_form_of(a.words("cp-comm-type"));
  set_pipeline(o, a);
  if (a.is_on("use-distributed-optimizer")) o.shard_optimizer = "all";
  if (a.has("ddp-bucket-size")) {
    constexpr double kBytesOfNumber = 4, kMega = 1 << 20;
    o.bucket_cap_mb = static_cast<double>(*a.integer("ddp-bucket-size")) * kBytesOfNumber / kMega;
    ISOBAR_CHECK(o.bucket_cap_mb > 0, "--ddp-bucket-size ", *a.integer("ddp-bucket-size"), ": at least 1 is needed");
  }
  constexpr double kSecondsPerMinute = 60;
  o.comm_timeout = *a.number("distributed-timeout-minutes") * kSecondsPerMinute;
  ISOBAR_CHECK(o.comm_timeout > 0, "--distributed-timeout-minutes must be above 0");
  set_folder(o, a);
  return o;
}

void add_megatron_config(TrainFlags& o, const MegatronArguments& a) {
  Entries entries;
  entries.set("task", "pretrain-gpt", "language_model");
  entries.set("model", "pretrain-gpt", "gpt");
  set_rows(entries, a);
  set_network(entries, a);
  set_precision(entries, a);
  const Length length = set_batch(entries, a, sizes_of(o).dp);
  if (!length.by_samples) entries.set("num_iters", "train-iters", length.iterations);
  const nlohmann::json earlier = config_to_go_on_with(o);
  const std::string rule = split_rule_of(a, earlier);
  set_rates(entries, a, length, earlier);
  set_optimizer(entries, a);
  set_data(entries, a, rule);
  set_run(entries, a);
  o.own_config = NamedConfig{.name = kConfigName, .entries = entries.all()};
  o.megatron = voice_of(o, a, rule);
  if (!o.init.empty())
    o.megatron->accepted.push_back(concat("--load ", *a.text("load"), ": its weights are taken; Adam's moments ",
                                          o.init_moments.empty() ? "begin at 0" : "are those of " + o.init_moments));
  o.trace = trace_of(o, a, length.iterations);
}

}  // namespace isobar
