#include "models/config.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <type_traits>

#include "engine/suggestions.h"
#include "kernels/common/check.h"

namespace isobar {

namespace {

// Far above any model, and low enough that products of these sizes can be counted and a list of the layers be held.
constexpr std::int64_t kLargestExtent = std::int64_t{1} << 20;
constexpr std::int64_t kMostLayers = 10000;
constexpr std::int64_t kMostWorkers = 256;  // threads that read; more only wait for each other

// Collects the checks of single values; "config key lr in --set must be above 0, not -1".
class Checks {
 public:
  explicit Checks(const ConfigEntries& entries) : entries_(entries) {}

  template <class T>
  void at_least(const char* key, T value, T least) const {
    ISOBAR_CHECK(value >= least, where(key), " must be at least ", least, ", not ", value);
  }
  template <class T>
  void within(const char* key, T value, T least, T most) const {
    at_least(key, value, least);
    ISOBAR_CHECK(value <= most, where(key), " must be at most ", most, ", not ", value);
  }
  void above(const char* key, double value, double bound) const {
    ISOBAR_CHECK(value > bound, where(key), " must be above ", bound, ", not ", value);
  }
  void fraction(const char* key, double value) const {
    ISOBAR_CHECK(value >= 0 && value < 1, where(key), " must be at least 0 and below 1, not ", value);
  }
  void fits_fp32(const char* key, double value) const {
    const bool fits = value <= std::numeric_limits<float>::max() && (value == 0 || static_cast<float>(value) > 0);
    ISOBAR_CHECK(fits, where(key), " must be a number of fp32, not ", value);
  }
  void range(const char* key, const std::optional<StepRange>& range) const {
    ISOBAR_CHECK(!range || (0 <= (*range)[0] && (*range)[0] < (*range)[1]), where(key),
                 " must be [first, end) with 0 <= first < end");
  }
  std::string where(const std::string& key) const {
    const auto entry = entries_.find(key);
    return "config key " + key + (entry == entries_.end() ? "" : " in " + entry->second.origin);
  }

 private:
  const ConfigEntries& entries_;
};

void check_model(const Config& c, const Checks& check) {
  check.within<std::int64_t>("embed_dim", c.embed_dim, 1, kLargestExtent);
  check.within<std::int64_t>("depth", c.depth, 1, kMostLayers);
  check.within<std::int64_t>("num_heads", c.num_heads, 1, kLargestExtent);
  check.within<std::int64_t>("patch_size", c.patch_size, 1, kLargestExtent);
  check.within<std::int64_t>("n_in_channels", c.n_in_channels, 1, kLargestExtent);
  check.fraction("dropout", c.dropout);
  check.at_least<std::int64_t>("n_out_channels", c.n_out_channels, 1);
  ISOBAR_CHECK(c.n_out_channels <= c.n_in_channels, check.where("n_out_channels"), " must be at most n_in_channels (",
               c.n_in_channels, "), not ", c.n_out_channels);
  ISOBAR_CHECK(c.embed_dim % c.num_heads == 0, check.where("embed_dim"), " must be a multiple of num_heads (",
               c.num_heads, "), not ", c.embed_dim);
  const std::int64_t head_dim = c.embed_dim / c.num_heads;
  ISOBAR_CHECK(head_dim % 8 == 0 && head_dim <= 128, check.where("embed_dim"),
               " divided by num_heads must be a multiple of 8 up to 128, not ", head_dim);
  for (const std::int64_t extent : c.img_size) {
    check.within("img_size", extent, std::int64_t{0}, kLargestExtent);
    ISOBAR_CHECK(extent >= c.patch_size && extent % c.patch_size == 0, check.where("img_size"),
                 " must be a multiple of patch_size (", c.patch_size, "), not ", extent);
  }
}

void check_data(const Config& c, const Checks& check) {
  check.at_least<std::int64_t>("dt", c.dt, 1);
  check.within<std::int64_t>("num_data_workers", c.num_data_workers, 0, kMostWorkers);
  check.range("train_range", c.train_range);
  check.range("valid_range", c.valid_range);
  if (c.limit_nsamples) check.at_least<std::int64_t>("limit_nsamples", *c.limit_nsamples, 1);
  if (c.limit_nsamples_val) check.at_least<std::int64_t>("limit_nsamples_val", *c.limit_nsamples_val, 1);
  if (c.channel_names) {
    ISOBAR_CHECK(std::ssize(*c.channel_names) == c.n_in_channels, check.where("channel_names"), " must name ",
                 c.n_in_channels, " channels (n_in_channels), not ", c.channel_names->size());
    std::set<std::string> names;
    for (const std::string& name : *c.channel_names)
      ISOBAR_CHECK(!name.empty() && names.insert(name).second, check.where("channel_names"), " holds ",
                   name.empty() ? "an empty name" : name + " twice");
  }
  if (c.channel_weights) {
    ISOBAR_CHECK(std::ssize(*c.channel_weights) == c.n_out_channels, check.where("channel_weights"), " must hold ",
                 c.n_out_channels, " weights (n_out_channels), not ", c.channel_weights->size());
    double sum = 0;
    for (const double weight : *c.channel_weights) {
      check.at_least("channel_weights", weight, 0.0);
      sum += weight;
    }
    ISOBAR_CHECK(sum > 0, check.where("channel_weights"), " must have a weight above 0");
  }
}

void check_training(const Config& c, const Checks& check) {
  ISOBAR_CHECK(c.dtype == ArithmeticType::fp32 || c.amp_mode == AmpMode::none, check.where("amp_mode"),
               " must be none when dtype is fp64, not ", name_of_enum(c.amp_mode));
  check.at_least<std::int64_t>("seed", c.seed, 0);
  for (const double beta : c.betas) check.fraction("betas", beta);
  check.above("eps", c.eps, 0);
  check.at_least("weight_decay", c.weight_decay, 0.0);
  check.at_least("grad_clip", c.grad_clip, 0.0);
  check.at_least("lr", c.lr, 0.0);
  if (c.dtype == ArithmeticType::fp32) {
    for (const auto& [key, value] : {std::pair("eps", c.eps), std::pair("weight_decay", c.weight_decay),
                                     std::pair("grad_clip", c.grad_clip), std::pair("lr", c.lr)})
      check.fits_fp32(key, value);
  }
  check.at_least<std::int64_t>("global_batch_size", c.global_batch_size, 1);
  check.at_least<std::int64_t>("reference_batch_size", c.reference_batch_size, 1);
  check.at_least<std::int64_t>("grad_accumulation", c.grad_accumulation, 1);
  ISOBAR_CHECK(c.global_batch_size % c.grad_accumulation == 0, check.where("global_batch_size"),
               " must be a multiple of grad_accumulation (", c.grad_accumulation, "), not ", c.global_batch_size);
  check.at_least<std::int64_t>("num_iters", c.num_iters, 1);
  check.at_least<std::int64_t>("warmup", c.warmup, 0);
  check.at_least<std::int64_t>("log_every", c.log_every, 1);
  check.at_least<std::int64_t>("validate_every", c.validate_every, 0);
  check.at_least<std::int64_t>("checkpoint_every", c.checkpoint_every, 0);
  check.at_least<std::int64_t>("keep_checkpoints", c.keep_checkpoints, 0);
}

// What others call these keys, by their letters alone.
const std::map<std::string, std::string>& other_names() {
  static const std::map<std::string, std::string> names{{"learningrate", "lr"},
                                                        {"maxlr", "lr"},
                                                        {"lrscheduler", "lr_schedule"},
                                                        {"scheduler", "lr_schedule"},
                                                        {"warmupsteps", "warmup"},
                                                        {"epochs", "num_iters"},
                                                        {"numepochs", "num_iters"},
                                                        {"maxepochs", "num_iters"},
                                                        {"steps", "num_iters"},
                                                        {"maxsteps", "num_iters"},
                                                        {"iterations", "num_iters"},
                                                        {"batchsize", "global_batch_size"},
                                                        {"bs", "global_batch_size"},
                                                        {"batch", "global_batch_size"},
                                                        {"heads", "num_heads"},
                                                        {"nhead", "num_heads"},
                                                        {"nheads", "num_heads"},
                                                        {"layers", "depth"},
                                                        {"numlayers", "depth"},
                                                        {"nlayers", "depth"},
                                                        {"blocks", "depth"},
                                                        {"hiddensize", "embed_dim"},
                                                        {"hiddendim", "embed_dim"},
                                                        {"dmodel", "embed_dim"},
                                                        {"width", "embed_dim"},
                                                        {"patch", "patch_size"},
                                                        {"imagesize", "img_size"},
                                                        {"grid", "img_size"},
                                                        {"channels", "n_in_channels"},
                                                        {"inchannels", "n_in_channels"},
                                                        {"inchans", "n_in_channels"},
                                                        {"outchannels", "n_out_channels"},
                                                        {"outchans", "n_out_channels"},
                                                        {"variables", "channel_names"},
                                                        {"mixedprecision", "amp_mode"},
                                                        {"precision", "amp_mode"},
                                                        {"amp", "amp_mode"},
                                                        {"fp16", "amp_mode"},
                                                        {"bf16", "amp_mode"},
                                                        {"checkpointing", "recompute"},
                                                        {"gradientcheckpointing", "recompute"},
                                                        {"activationcheckpointing", "recompute"},
                                                        {"gradientaccumulation", "grad_accumulation"},
                                                        {"accumulategradbatches", "grad_accumulation"},
                                                        {"gradientclipval", "grad_clip"},
                                                        {"maxgradnorm", "grad_clip"},
                                                        {"clip", "grad_clip"},
                                                        {"wd", "weight_decay"},
                                                        {"droprate", "dropout"},
                                                        {"criterion", "loss"},
                                                        {"lossfn", "loss"},
                                                        {"opt", "optimizer"},
                                                        {"randomseed", "seed"},
                                                        {"workers", "num_data_workers"},
                                                        {"numworkers", "num_data_workers"},
                                                        {"traindata", "train_data_path"},
                                                        {"validdata", "valid_data_path"},
                                                        {"valdata", "valid_data_path"},
                                                        {"outputdir", "expdir"},
                                                        {"logdir", "expdir"},
                                                        {"loginterval", "log_every"},
                                                        {"evalinterval", "validate_every"},
                                                        {"valinterval", "validate_every"},
                                                        {"saveinterval", "checkpoint_every"},
                                                        {"leadtime", "dt"},
                                                        {"timestep", "dt"}};
  return names;
}

void refuse_unknown_keys(const ConfigEntries& entries) {
  const std::vector<std::string> keys = config_keys();
  for (const auto& [key, entry] : entries)
    ISOBAR_CHECK(std::find(keys.begin(), keys.end(), key) != keys.end(), "unknown config key ", key, " in ",
                 entry.origin, did_you_mean(suggested_key(key)), " (isobar train --list-keys names all)");
}

}  // namespace

std::string suggested_key(const std::string& name) {
  return suggestion(name, config_keys(), other_names());
}

std::string describe_keys() {
  std::string page = R"(# Config keys

Every key of a training config, as `KEY`: default (what it takes). `isobar train --list-keys` prints this page. A config is a
JSON file (`configs/`), or the tutorial's YAML; `--set KEY=VALUE` wins over it, and over the flags that set a key.
)";
  const Config defaults;
  for_each_key(
      defaults,
      [&](const char* key, const auto& member, const char* sentence) {
        using Type = JsonType<std::remove_cvref_t<decltype(member)>>;
        page += text("- `", key, "`: `", nlohmann::json(Type::write(member)).dump(), "` (", Type::expected(),
                     "): ", sentence, "\n");
      },
      [&](const char* title) { page += text("\n## ", title, "\n\n"); });
  return page;
}

std::vector<std::string> config_keys() {
  std::vector<std::string> keys;
  const Config config;
  for_each_key(config, [&](const char* key, const auto&, const char*) { keys.emplace_back(key); });
  return keys;
}

Config config_from(const ConfigEntries& entries) {
  refuse_unknown_keys(entries);
  Config config;
  for_each_key(config, [&](const char* key, auto& member, const char*) { read_entry(entries, key, member); });
  const Checks check(entries);
  check_model(config, check);
  check_data(config, check);
  check_training(config, check);
  return config;
}

nlohmann::ordered_json to_json(const Config& config) {
  nlohmann::ordered_json object;
  for_each_key(config, [&](const char* key, const auto& member, const char*) {
    object[key] = JsonType<std::remove_cvref_t<decltype(member)>>::write(member);
  });
  return object;
}

ConfigEntries entries_from(const nlohmann::ordered_json& object, const std::string& origin) {
  ConfigEntries entries;
  for (const auto& [key, value] : object.items()) entries[key] = {value, origin};
  return entries;
}

}  // namespace isobar
