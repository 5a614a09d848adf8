// Every key of a training config: the tutorial's YAML (same names, defaults and meaning) and isobar's own.
//
// The member's name is the key, its initialiser the default. for_each_key lists them once; reading, writing and the
// names an unknown key is compared with all come from that list.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/era5.h"
#include "data/sampler.h"
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
  std::array<std::int64_t, 2> img_size{360, 720};  // rows, columns; stored fields may be larger and are cropped
  std::int64_t n_in_channels = 20;
  std::int64_t n_out_channels = 20;  // the first of the input channels are forecast
  double dropout = 0.0;              // dropout, attention dropout and the last block's drop-path rate
  bool predict_change = false;       // output = input + network, whose head starts at zero
  bool time_features = false;        // four input planes more: sin and cos of hour of day and of day of year
  std::optional<std::vector<std::string>> channel_names;  // null: the data's, else the tutorial's twenty or c0 ...

  // The data.
  std::string train_data_path = "/data/train";
  std::string valid_data_path = "/data/valid";
  std::string inf_data_path = "/data/test";
  std::string global_means_path = "/data/stats/global_means.npy";
  std::string global_stds_path = "/data/stats/global_stds.npy";
  std::string time_means_path = "/data/stats/time_means.npy";
  std::int64_t dt = 1;  // steps from input to target
  std::optional<StepRange> train_range;
  std::optional<StepRange> valid_range;
  std::optional<std::int64_t> limit_nsamples;      // the first N of the training set
  std::optional<std::int64_t> limit_nsamples_val;  // the first N of the validation set
  SamplerKind sampler = SamplerKind::all_pairs;
  bool shuffle = true;
  std::int64_t num_data_workers = 0;

  // The arithmetic.
  AmpMode amp_mode = AmpMode::none;
  ArithmeticType dtype = ArithmeticType::fp32;  // when amp_mode is none
  bool tf32 = true;
  bool recompute = false;   // blocks run again in the backward pass instead of keeping their activations
  bool cuda_graph = false;  // the whole step is captured once and replayed
  std::int64_t seed = 0;

  // The loss and the optimizer.
  LossKind loss = LossKind::relative_l2;
  std::optional<std::vector<double>> channel_weights;
  OptimizerKind optimizer = OptimizerKind::adam;
  std::array<double, 2> betas{0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.0;
  double grad_clip = 0.0;  // largest norm of all gradients together; 0: no clipping
  std::int64_t global_batch_size = 16;
  std::int64_t grad_accumulation = 1;  // splits global_batch_size into that many parts
  std::int64_t num_iters = 30000;
  double lr = 5e-4;
  ScheduleKind lr_schedule = ScheduleKind::cosine;
  std::int64_t warmup = 0;  // iterations
  BatchScaling batch_lr_scaling = BatchScaling::none;
  std::int64_t reference_batch_size = 16;

  // The run.
  std::string expdir = "/logs";
  std::int64_t log_every = 10;        // iterations, as the next two
  std::int64_t validate_every = 0;    // 0: at epoch ends
  std::int64_t checkpoint_every = 0;  // 0: at epoch ends
  std::int64_t keep_checkpoints = 3;  // 0: all

  // Keys of the tutorial that are read and kept but change nothing here.
  bool enable_fused = false;
  bool enable_jit = false;
  LoaderKind data_loader_config = LoaderKind::pytorch;
  std::string wireup_info = "env";
  std::string wireup_store = "tcp";
};

// Calls visit(key, member) for every key; Config may be const.
template <class ConfigOrConst, class Visit>
void for_each_key(ConfigOrConst& c, Visit&& visit) {
  visit("embed_dim", c.embed_dim);
  visit("depth", c.depth);
  visit("num_heads", c.num_heads);
  visit("patch_size", c.patch_size);
  visit("img_size", c.img_size);
  visit("n_in_channels", c.n_in_channels);
  visit("n_out_channels", c.n_out_channels);
  visit("dropout", c.dropout);
  visit("predict_change", c.predict_change);
  visit("time_features", c.time_features);
  visit("channel_names", c.channel_names);
  visit("train_data_path", c.train_data_path);
  visit("valid_data_path", c.valid_data_path);
  visit("inf_data_path", c.inf_data_path);
  visit("global_means_path", c.global_means_path);
  visit("global_stds_path", c.global_stds_path);
  visit("time_means_path", c.time_means_path);
  visit("dt", c.dt);
  visit("train_range", c.train_range);
  visit("valid_range", c.valid_range);
  visit("limit_nsamples", c.limit_nsamples);
  visit("limit_nsamples_val", c.limit_nsamples_val);
  visit("sampler", c.sampler);
  visit("shuffle", c.shuffle);
  visit("num_data_workers", c.num_data_workers);
  visit("amp_mode", c.amp_mode);
  visit("dtype", c.dtype);
  visit("tf32", c.tf32);
  visit("recompute", c.recompute);
  visit("cuda_graph", c.cuda_graph);
  visit("seed", c.seed);
  visit("loss", c.loss);
  visit("channel_weights", c.channel_weights);
  visit("optimizer", c.optimizer);
  visit("betas", c.betas);
  visit("eps", c.eps);
  visit("weight_decay", c.weight_decay);
  visit("grad_clip", c.grad_clip);
  visit("global_batch_size", c.global_batch_size);
  visit("grad_accumulation", c.grad_accumulation);
  visit("num_iters", c.num_iters);
  visit("lr", c.lr);
  visit("lr_schedule", c.lr_schedule);
  visit("warmup", c.warmup);
  visit("batch_lr_scaling", c.batch_lr_scaling);
  visit("reference_batch_size", c.reference_batch_size);
  visit("expdir", c.expdir);
  visit("log_every", c.log_every);
  visit("validate_every", c.validate_every);
  visit("checkpoint_every", c.checkpoint_every);
  visit("keep_checkpoints", c.keep_checkpoints);
  visit("enable_fused", c.enable_fused);
  visit("enable_jit", c.enable_jit);
  visit("data_loader_config", c.data_loader_config);
  visit("wireup_info", c.wireup_info);
  visit("wireup_store", c.wireup_store);
}

std::vector<std::string> config_keys();

// Throws Error naming key and origin for unknown keys, wrong types, values out of range and keys that contradict each
// other (embed_dim not a multiple of num_heads, img_size not a multiple of patch_size, ...).
Config config_from(const ConfigEntries& entries);

// Every key in the order above; config_from of it gives the same Config.
nlohmann::ordered_json to_json(const Config& config);

// The entries of to_json's result, or of any flat object; origin is told in messages.
ConfigEntries entries_from(const nlohmann::ordered_json& object, const std::string& origin);

}  // namespace isobar
