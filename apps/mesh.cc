// isobar mesh: prints which rank stands where for given data-, tensor- and context-parallel sizes; with a config what
// each rank holds, and what a step of training needs; and which layouts fit a device.
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/config_options.h"
#include "apps/train/config.h"
#include "apps/train/dry_run.h"
#include "apps/train/fit.h"
#include "apps/train/rank_map.h"
#include "apps/train_flags.h"
#include "comm/mesh.h"
#include "engine/storage.h"

namespace isobar {

namespace {

struct MeshOptions {
  PlannedRank layout;
  std::string shard_optimizer;
  ConfigOptions config;
  std::string device = "cuda";
  std::int64_t ranks = 0;
  std::uint64_t fit_bytes = 0;
};

// A config of which all sizes are known, and its task.
struct ShapedConfig {
  explicit ShapedConfig(const ConfigOptions& options) : config(checked(options)), source(config.recipe->on_shapes()) {}

  static RunConfig checked(const ConfigOptions& options) {
    NamedConfig named = load_config(options.config, config_search_path());
    for (const std::string& assignment : options.assignments) set_from_assignment(named.entries, assignment);
    RunConfig config = read_config(named.entries);
    print_left_out(config);
    config.check();
    return config;
  }

  const RunConfig config;
  const std::unique_ptr<TaskSource> source;
};

DeviceKind device_of(const MeshOptions& options) {
  return options.device == "cpu" ? DeviceKind::cpu : DeviceKind::cuda;
}

// The map is of every layout that the model can be split in; a step may still be impossible, as of a batch of fewer
// samples than there are ranks.
std::string text_of_step(const ShapedConfig& shaped, const MeshOptions& options) {
  try {
    const StepPrediction step =
        predict_step(*shaped.source, shaped.config.trainer_options(), options.layout, device_of(options));
    return concat("A step of rank 0 on ", options.device, ", predicted:\n", to_text(step));
  } catch (const Error& error) {
    return concat("No step on ", options.device, ": ", error.what(), "\n");
  }
}

std::string text_with_holdings(const MeshOptions& options) {
  const ShapedConfig shaped(options.config);
  const PlannedRank& layout = options.layout;
  return describe_ranks(*shaped.source, shaped.config.compute, shaped.config.optimizer, layout.sizes, layout.order,
                        layout.exchange.shards) +
         text_of_step(shaped, options);
}

std::string text_of_fitting(const MeshOptions& options) {
  const ShapedConfig shaped(options.config);
  const std::vector<FittingLayout> layouts = fitting_layouts(*shaped.source, shaped.config.trainer_options(),
                                                             options.ranks, options.fit_bytes, device_of(options));
  const std::string room = text_of_bytes(options.fit_bytes);
  ISOBAR_CHECK(!layouts.empty(), "--fit: no layout of ", options.ranks, options.ranks == 1 ? " rank" : " ranks",
               " fits ", room, " on ", options.device);
  return concat("Layouts of ", options.ranks, options.ranks == 1 ? " rank" : " ranks", " that fit ", room, " on ",
                options.device, ", by the bytes that rank 0 exchanges in a step:\n", to_text(layouts));
}

void check_options(const MeshOptions& o) {
  const bool has_config = !o.config.config.empty();
  ISOBAR_CHECK(o.config.assignments.empty() || has_config, "--set: goes with --config");
  ISOBAR_CHECK(o.fit_bytes == 0 || has_config, "--fit: goes with --config");
  ISOBAR_CHECK((o.fit_bytes > 0) == (o.ranks > 0),
               o.ranks > 0 ? "--ranks: goes with --fit" : "--fit: goes with --ranks");
  const std::int64_t shards = o.layout.exchange.shards, sharing = o.layout.sizes.dp * o.layout.sizes.cp;
  ISOBAR_CHECK(shards == ExchangeOptions::kAll || sharing % shards == 0, "--shard-optimizer ", shards, ": the ",
               sharing, " ranks that share the optimizer are no groups of ", shards);
}

}  // namespace

void register_mesh(CLI::App& app) {
  auto options = std::make_shared<MeshOptions>();
  PlannedRank& layout = options->layout;
  CLI::App* mesh = app.add_subcommand("mesh", "Print the ranks' places for given parallel sizes");
  mesh->add_option("--dp", layout.sizes.dp, "data-parallel size")->capture_default_str();
  mesh->add_option("--tp", layout.sizes.tp, "tensor-parallel size")->capture_default_str();
  mesh->add_option("--cp", layout.sizes.cp, "context-parallel size")->capture_default_str();
  mesh->add_option("--order", layout.order, "which varies fastest, first to last")->capture_default_str();
  mesh->add_option("--config", options->config.config,
                   "a config's NAME, or FILE.json[:NAME]: what each rank holds, and what a step needs");
  add_set_option(*mesh, options->config);
  add_shard_option(*mesh, options->shard_optimizer);
  mesh->add_flag("--sequence-parallel", layout.sequence, "tensor-parallel ranks split the rows between the branches");
  mesh->add_option("--device", options->device, "where the step would run")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  mesh->add_option("--fit", options->fit_bytes, "with --config and --ranks: the layouts that fit so much, \"40GiB\"")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->check(CLI::PositiveNumber)
      ->option_text("BYTES");
  mesh->add_option("--ranks", options->ranks, "ranks of the layouts of --fit")->check(whole_number_from(1));
  mesh->callback([options] {
    MeshOptions& o = *options;
    o.layout.exchange.shards = shards_named(o.shard_optimizer);
    check_options(o);
    std::cout << (o.fit_bytes > 0           ? text_of_fitting(o)
                  : o.config.config.empty() ? to_text(Mesh(o.layout.sizes, o.layout.order))
                                            : text_with_holdings(o));
  });
}

}  // namespace isobar
