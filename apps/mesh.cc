// isobar mesh: prints which rank stands where for given data-, tensor-, context- and pipeline-parallel sizes; with a
// config what each rank holds, and what a step of training needs; the schedule of a pipeline; and which layouts fit a
// device.
#include <cstdint>
#include <iomanip>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/config_options.h"
#include "apps/train/config.h"
#include "apps/train/dry_run.h"
#include "apps/train/fit.h"
#include "apps/train/pipeline.h"
#include "apps/train/rank_map.h"
#include "apps/train_flags.h"
#include "comm/mesh.h"
#include "comm/pipeline.h"
#include "engine/storage.h"
#include "models/staged_task.h"

namespace isobar {

namespace {

struct MeshOptions {
  PlannedRank layout;
  std::string shard_optimizer;
  std::int64_t chunks = 1, parts = 0;
  std::string split = "balanced";
  bool draws_pipeline = false;
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
    config.recipe->fill_without_data(config.origins);
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
    const std::string note = shaped.source->note_on_cost();
    return concat("A step of rank 0 on ", options.device, ", predicted:\n", to_text(step), note,
                  note.empty() ? "" : "\n");
  } catch (const Error& error) {
    return concat("No step on ", options.device, ": ", error.what(), "\n");
  }
}

std::string text_with_holdings(const MeshOptions& options) {
  const ShapedConfig shaped(options.config);
  const PlannedRank& layout = options.layout;
  return describe_ranks(*shaped.source, shaped.config.compute, shaped.config.optimizer, layout.sizes, layout.order,
                        layout.exchange.shards, layout.pipeline) +
         text_of_step(shaped, options);
}

// Parts of an update: as many as asked for, as the config has, or two rounds.
std::int64_t parts_of(const MeshOptions& options) {
  if (options.parts > 0) return options.parts;
  if (options.config.config.empty()) return 2 * options.layout.sizes.pp;
  return ShapedConfig::checked(options.config).batch.grad_accumulation;
}

std::string percent(double share) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << 100 * share << " %";
  return out.str();
}

// How the work of a forward move is spread over the pieces of the config's network.
std::string text_of_work(const MeshOptions& options) {
  const ShapedConfig shaped(options.config);
  const PlannedRank& layout = options.layout;
  Parallel parallel = Parallel::imagined(0, layout.sizes, layout.order);
  parallel.sequence = layout.sequence;
  parallel.pipeline = layout.pipeline;
  const std::unique_ptr<Task> task =
      shaped.source->make_task(shaped.config.compute, meta_like(device_of(options)), parallel);
  check_pipeline(*task, {.global_batch_size = 0, .grad_accumulation = parts_of(options)}, parallel);
  const PipelineCut& cut = task->staged()->staged_network().share()->cut();
  const PipelineTimeline timeline = predicted_timeline(cut, layout.sizes.pp, parts_of(options));
  std::string text = "The pieces of the network, and their work, predicted:\n" + to_text(cut, layout.sizes.pp);
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank)
    text += concat("  place ", rank, ": idle for ", percent(timeline.idle(rank)), " of a step by this work, holds ",
                   timeline.held(rank), timeline.held(rank) == 1 ? " part" : " parts", " at most\n");
  return text;
}

// Of one pipeline: all others do the same.
std::string text_of_pipeline(const MeshOptions& options) {
  const int ranks = static_cast<int>(options.layout.sizes.pp);
  const auto parts = static_cast<int>(parts_of(options)), chunks = static_cast<int>(options.chunks);
  std::vector<Moves> moves;
  for (int rank = 0; rank < ranks; ++rank) moves.push_back(pipeline_moves(rank, ranks, parts, chunks));
  const PipelineTimeline timeline = run_through(moves);
  const std::string text =
      concat("A pipeline of ", ranks, " places, ", to_text(options.layout.pipeline), ", ", parts,
             parts == 1 ? " part" : " parts", "; F: forward, B: backward, of a part\n", draw(timeline),
             "idle: ", percent(timeline.idle()), " of the time if all pieces take the same\n");
  return options.config.config.empty() ? text : text + text_of_work(options);
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
  ISOBAR_CHECK(o.layout.sizes.pp >= 1 && o.chunks >= 1, "--pp ", o.layout.sizes.pp, " and --pipeline-chunks ", o.chunks,
               ": at least one of each is needed");
  ISOBAR_CHECK(o.chunks == 1 || o.layout.sizes.pp > 1, "--pipeline-chunks: goes with --pp of 2 ranks at least");
  ISOBAR_CHECK(o.parts == 0 || o.draws_pipeline, "--parts: goes with --pipeline");
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
  mesh->add_option("--pp", layout.sizes.pp, "pipeline-parallel size")->capture_default_str();
  add_pipeline_options(*mesh, options->chunks, options->split);
  mesh->add_flag("--pipeline", options->draws_pipeline,
                 "the schedule of the pipeline, and with --config the work of its pieces, instead of the places");
  mesh->add_option("--parts", options->parts, "with --pipeline: parts of an update; default the config's")
      ->check(whole_number_from(1));
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
      ->check(number_above(0))
      ->option_text("BYTES");
  mesh->add_option("--ranks", options->ranks, "ranks of the layouts of --fit")->check(whole_number_from(1));
  mesh->callback([options] {
    MeshOptions& o = *options;
    o.layout.exchange.shards = shards_named(o.shard_optimizer);
    o.layout.pipeline = pipeline_options(o.chunks, o.split);
    check_options(o);
    std::cout << (o.fit_bytes > 0           ? text_of_fitting(o)
                  : o.draws_pipeline        ? text_of_pipeline(o)
                  : o.config.config.empty() ? to_text(Mesh(o.layout.sizes, o.layout.order))
                                            : text_with_holdings(o));
  });
}

}  // namespace isobar
