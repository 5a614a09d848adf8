// isobar mesh: prints which rank stands where for given data-, tensor- and context-parallel sizes.
#include <iostream>
#include <memory>
#include <string>

#include "apps/commands.h"
#include "apps/config_options.h"
#include "apps/train/config.h"
#include "apps/train/rank_map.h"
#include "apps/train_flags.h"
#include "comm/mesh.h"

namespace isobar {

namespace {

std::string text_with_holdings(const ConfigOptions& options, const MeshSizes& sizes, const std::string& order,
                               std::int64_t shards) {
  NamedConfig named = load_config(options.config, config_search_path());
  for (const std::string& assignment : options.assignments) set_from_assignment(named.entries, assignment);
  RunConfig config = read_config(named.entries);
  config.check();
  const auto holding_of = [&](const ComputeOptions& compute, const Parallel& parallel) {
    return config.recipe->holding(compute, parallel);
  };
  return describe_ranks(holding_of, config.compute, config.optimizer, sizes, order, shards);
}

}  // namespace

void register_mesh(CLI::App& app) {
  struct Options {
    MeshSizes sizes;
    std::string order = "tp-cp-dp", shard_optimizer;
    ConfigOptions config;
  };
  auto options = std::make_shared<Options>();
  CLI::App* mesh = app.add_subcommand("mesh", "Print the ranks' places for given parallel sizes");
  mesh->add_option("--dp", options->sizes.dp, "data-parallel size")->capture_default_str();
  mesh->add_option("--tp", options->sizes.tp, "tensor-parallel size")->capture_default_str();
  mesh->add_option("--cp", options->sizes.cp, "context-parallel size")->capture_default_str();
  mesh->add_option("--order", options->order, "which varies fastest, first to last")->capture_default_str();
  mesh->add_option("--config", options->config.config, "a config's NAME, or FILE.json[:NAME]: what each rank holds");
  add_set_option(*mesh, options->config);
  add_shard_option(*mesh, options->shard_optimizer);
  mesh->callback([options] {
    const Options& o = *options;
    ISOBAR_CHECK(o.config.assignments.empty() || !o.config.config.empty(), "--set: goes with --config");
    const std::int64_t shards = shards_named(o.shard_optimizer), sharing = o.sizes.dp * o.sizes.cp;
    ISOBAR_CHECK(shards == ExchangeOptions::kAll || sharing % shards == 0, "--shard-optimizer ", shards, ": the ",
                 sharing, " ranks that share the optimizer are no groups of ", shards);
    std::cout << (o.config.config.empty() ? to_text(Mesh(o.sizes, o.order))
                                          : text_with_holdings(o.config, o.sizes, o.order, shards));
  });
}

}  // namespace isobar
