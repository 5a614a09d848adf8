// The subcommands of `isobar`. Each register_x adds one to the parser; its callback runs once the command line has been
// read. A callback that fails throws Error; one that ends with another exit status throws CLI::RuntimeError(status).
#pragma once

#include <CLI/CLI.hpp>

namespace isobar {

void register_train(CLI::App& app);
void register_forecast(CLI::App& app);
void register_evaluate(CLI::App& app);
void register_info(CLI::App& app);
void register_mesh(CLI::App& app);
void register_check(CLI::App& app);
void register_data(CLI::App& app);

inline constexpr const char* kVersion = ISOBAR_VERSION;
extern const char kBuildId[];  // differs between builds that may compute other numbers (apps/build_id.cmake)

}  // namespace isobar
