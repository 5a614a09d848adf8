// Every key of a training config: the tutorial's YAML (same names, defaults and meaning) and isobar's own.
//
// The member's name is the key, its initialiser the default. for_each_key lists them once, each with a sentence; reading,
// writing, the names an unknown key is compared with and docs/config.md all come from that list.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/era5/era5.h"
#include "data/era5/pairs.h"
#include "engine/json_config.h"
#include "engine/schedule.h"
#include "kernels/forecast_loss.h"

namespace isobar {

enum class AmpMode { none, bf16, fp16 };
enum class OptimizerKind { adam, adamw };
enum class ArithmeticType { fp32, fp64 };
enum class LoaderKind { pytorch, dali };

template <>
struct EnumNames<AmpMode> {
  static constexpr std::array names{"none", "bf16", "fp16"};
};
template <>
struct EnumNames<ScheduleKind> {
  static constexpr std::array names{"cosine", "constant"};
};
template <>
struct EnumNames<BatchScaling> {
  static constexpr std::array names{"none", "sqrt", "linear"};
};
template <>
struct EnumNames<OptimizerKind> {
  static constexpr std::array names{"adam", "adamw"};
};
template <>
struct EnumNames<LossKind> {
  static constexpr std::array names{"relative_l2", "weighted_mse", "relative_l2_weighted"};
};
template <>
struct EnumNames<SamplerKind> {
  static constexpr std::array names{"all_pairs", "tutorial"};
};
template <>
struct EnumNames<ArithmeticType> {
  static constexpr std::array names{"fp32", "fp64"};
};
template <>
struct EnumNames<LoaderKind> {
  static constexpr std::array names{"pytorch", "dali"};
};

struct Config {
  // The model.
  std::int64_t embed_dim = 384;
  std::int64_t depth = 12;
  std::int64_t num_heads = 8;
  std::int64_t patch_size = 8;
  std::array<std::int64_t, 2> img_size{360, 720};
  std::int64_t n_in_channels = 20;
  std::int64_t n_out_channels = 20;
  double dropout = 0.0;
  bool predict_change = false;
  bool time_features = false;
  std::optional<std::vector<std::string>> channel_names;

  // The data.
  std::string train_data_path = "/data/train";
  std::string valid_data_path = "/data/valid";
  std::string inf_data_path = "/data/test";
  std::string global_means_path = "/data/stats/global_means.npy";
  std::string global_stds_path = "/data/stats/global_stds.npy";
  std::string time_means_path = "/data/stats/time_means.npy";
  std::int64_t dt = 1;
  std::optional<StepRange> train_range;
  std::optional<StepRange> valid_range;
  bool allow_overlap = false;
  std::optional<std::int64_t> limit_nsamples;
  std::optional<std::int64_t> limit_nsamples_val;
  SamplerKind sampler = SamplerKind::all_pairs;
  bool shuffle = true;
  std::int64_t num_data_workers = 0;

  // The arithmetic.
  AmpMode amp_mode = AmpMode::none;
  ArithmeticType dtype = ArithmeticType::fp32;
  bool tf32 = true;
  bool recompute = false;
  bool cuda_graph = false;
  std::int64_t seed = 0;

  // The loss and the optimizer.
  LossKind loss = LossKind::relative_l2;
  std::optional<std::vector<double>> channel_weights;
  OptimizerKind optimizer = OptimizerKind::adam;
  std::array<double, 2> betas{0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.0;
  double grad_clip = 0.0;
  std::int64_t global_batch_size = 16;
  std::int64_t grad_accumulation = 1;
  std::int64_t num_iters = 30000;
  double lr = 5e-4;
  ScheduleKind lr_schedule = ScheduleKind::cosine;
  std::int64_t warmup = 0;
  BatchScaling batch_lr_scaling = BatchScaling::none;
  std::int64_t reference_batch_size = 16;

  // The run.
  std::string expdir = "/logs";
  std::int64_t log_every = 10;
  std::int64_t validate_every = 0;
  std::int64_t checkpoint_every = 0;
  std::int64_t keep_checkpoints = 3;

  // Keys of the tutorial that are read and kept but change nothing here.
  bool enable_fused = false;
  bool enable_jit = false;
  LoaderKind data_loader_config = LoaderKind::pytorch;
  std::string wireup_info = "env";
  std::string wireup_store = "tcp";
};

// Calls visit(key, member, sentence) for every key, and heading(title) before each group; Config may be const.
template <class ConfigOrConst, class Visit, class Heading>
void for_each_key(ConfigOrConst& c, Visit&& visit, Heading&& heading) {
  heading("The model");
  visit("embed_dim", c.embed_dim, "width of a token");
  visit("depth", c.depth, "number of transformer blocks");
  visit("num_heads", c.num_heads, "attention heads; embed_dim / num_heads must be a multiple of 8, at most 128");
  visit("patch_size", c.patch_size,
        "side of the square of grid points that makes a token; null: the largest of 8, 4, 2 that divides both sides "
        "and leaves at least 100 tokens, else 1");
  visit("img_size", c.img_size, "rows and columns of the grid; larger fields are cropped to them; null: the data's");
  visit("n_in_channels", c.n_in_channels, "variables that the model reads; null: the data's");
  visit("n_out_channels", c.n_out_channels,
        "variables that it forecasts, the first of those it reads; null: n_in_channels");
  visit("dropout", c.dropout, "dropout and attention dropout, and the drop-path rate of the last block");
  visit("predict_change", c.predict_change, "the output is added to the input, and the head starts at zero");
  visit("time_features", c.time_features,
        "four input planes more, sin and cos of the hour of day and of the day of year; not counted in n_in_channels; "
        "null: where the data tell the time");
  visit("channel_names", c.channel_names,
        "names of the variables; null: the data's, else the tutorial's twenty, else c0, c1, ...");
  heading("The data");
  visit("train_data_path", c.train_data_path, "folder of .h5 files, or a file, to train on");
  visit("valid_data_path", c.valid_data_path,
        "the same to validate with; where it is train_data_path, see train_range");
  visit("inf_data_path", c.inf_data_path, "kept for the tutorial's files; isobar forecast takes --data");
  visit("global_means_path", c.global_means_path,
        "mean of each variable, .npy of shape (1, C, 1, 1); where none of the three files exists, they are made from "
        "the training steps and kept in the run folder");
  visit("global_stds_path", c.global_stds_path, "standard deviation of each variable, likewise");
  visit("time_means_path", c.time_means_path, "mean over time, (1, C, H, W), for the anomaly correlation of forecasts");
  visit("dt", c.dt, "steps from input to target");
  visit("train_range", c.train_range,
        "steps [first, end) to train on, counted over the files in order; null: all, or, where train_data_path and "
        "valid_data_path are one, what valid_range leaves");
  visit("valid_range", c.valid_range,
        "steps [first, end) to validate with; null: all, or, where the paths are one, what train_range leaves, or the "
        "last fifth");
  visit("allow_overlap", c.allow_overlap, "steps may be in both the training and the validation set");
  visit("limit_nsamples", c.limit_nsamples, "only the first N training samples");
  visit("limit_nsamples_val", c.limit_nsamples_val, "only the first N validation samples");
  visit("sampler", c.sampler, "all_pairs: every pair of steps once an epoch; tutorial: the tutorial's index rule");
  visit("shuffle", c.shuffle, "the order of the training samples is random, by seed and epoch");
  visit("num_data_workers", c.num_data_workers, "threads that read ahead; 0: the training thread reads");
  heading("The arithmetic");
  visit("amp_mode", c.amp_mode,
        "16-bit arithmetic for the model's activations and products; weights and optimizer stay in 32 bits");
  visit("dtype", c.dtype, "arithmetic when amp_mode is none; fp64 on a CPU only");
  visit("tf32", c.tf32, "fp32 products on a GPU may round their inputs to TF32");
  visit("recompute", c.recompute, "blocks run again in the backward pass instead of keeping their activations");
  visit("cuda_graph", c.cuda_graph, "the whole step is captured once and replayed, on a GPU");
  visit("seed", c.seed, "decides initial weights, order of samples and dropout");
  heading("The loss and the optimizer");
  visit("loss", c.loss,
        "relative_l2 is the tutorial's; weighted_mse: mean squared error with latitude and channel weights; "
        "relative_l2_weighted: both");
  visit("channel_weights", c.channel_weights, "weight of each forecast variable in the weighted losses; null: 1 each");
  visit("optimizer", c.optimizer, "adamw decays weight matrices only");
  visit("betas", c.betas, "decay of Adam's two moments");
  visit("eps", c.eps, "added to the root of Adam's second moment");
  visit("weight_decay", c.weight_decay,
        "of the weight matrices: by adamw from the weights, by adam from their gradients");
  visit("grad_clip", c.grad_clip, "largest norm of all gradients together; 0: no clipping");
  visit("global_batch_size", c.global_batch_size, "samples of one update");
  visit("grad_accumulation", c.grad_accumulation,
        "parts that global_batch_size is split into, one after the other, to save memory");
  visit("num_iters", c.num_iters, "updates of the whole run");
  visit("lr", c.lr, "largest learning rate");
  visit("lr_schedule", c.lr_schedule, "how the rate goes on after the warmup: cosine falls to 0 at num_iters");
  visit("warmup", c.warmup, "iterations over which the rate grows from 0");
  visit("batch_lr_scaling", c.batch_lr_scaling,
        "multiplies lr by (the root of) global_batch_size / reference_batch_size");
  visit("reference_batch_size", c.reference_batch_size, "see batch_lr_scaling");
  heading("The run");
  visit("expdir", c.expdir, "where run folders go without --run-dir: expdir/CONFIG/DEVICES/RUN-NUM");
  visit("log_every", c.log_every, "iterations between train lines in metrics.jsonl");
  visit("validate_every", c.validate_every, "iterations between validations; 0: at epoch ends");
  visit("checkpoint_every", c.checkpoint_every, "iterations between checkpoints; 0: at epoch ends");
  visit("keep_checkpoints", c.keep_checkpoints, "the newest that are kept; 0: all");
  heading("Keys of the tutorial that change nothing here");
  visit("enable_fused", c.enable_fused, "isobar's Adam is always fused");
  visit("enable_jit", c.enable_jit, "isobar's kernels are compiled ahead");
  visit("data_loader_config", c.data_loader_config, "isobar has one loader");
  visit("wireup_info", c.wireup_info, "how ranks find each other");
  visit("wireup_store", c.wireup_store, "where they meet");
}
template <class ConfigOrConst, class Visit>
void for_each_key(ConfigOrConst& c, Visit&& visit) {
  for_each_key(c, visit, [](const char*) {});
}

std::vector<std::string> config_keys();

// The key that a name which is none may mean: lr for learning_rate; "" where none is near.
std::string suggested_key(const std::string& name);

// A page of Markdown, docs/config.md: every key with its default, what it takes, and its sentence.
std::string describe_keys();

// Throws Error naming key and origin for unknown keys, wrong types, values out of range and keys that contradict each
// other (embed_dim not a multiple of num_heads, img_size not a multiple of patch_size, ...).
Config config_from(const ConfigEntries& entries);

// Every key in the order above; config_from of it gives the same Config.
nlohmann::ordered_json to_json(const Config& config);

// The entries of to_json's result, or of any flat object; origin is told in messages.
ConfigEntries entries_from(const nlohmann::ordered_json& object, const std::string& origin);

}  // namespace isobar
