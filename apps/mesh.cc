// isobar mesh: prints which rank stands where for given data-, tensor- and context-parallel sizes.
#include <iostream>
#include <memory>
#include <string>

#include "apps/commands.h"
#include "comm/mesh.h"

namespace isobar {

void register_mesh(CLI::App& app) {
  struct Options {
    MeshSizes sizes;
    std::string order = "tp-cp-dp";
  };
  auto options = std::make_shared<Options>();
  CLI::App* mesh = app.add_subcommand("mesh", "Print the ranks' places for given parallel sizes");
  mesh->add_option("--dp", options->sizes.dp, "data-parallel size")->capture_default_str();
  mesh->add_option("--tp", options->sizes.tp, "tensor-parallel size")->capture_default_str();
  mesh->add_option("--cp", options->sizes.cp, "context-parallel size")->capture_default_str();
  mesh->add_option("--order", options->order, "which varies fastest, first to last")->capture_default_str();
  mesh->callback([options] { std::cout << to_text(Mesh(options->sizes, options->order)); });
}

}  // namespace isobar
