// The subcommands of `isobar`. Each register_x adds one to the parser; its callback runs after the command line is
// parsed. A callback throws Error on failure, and CLI::RuntimeError(status) to exit with another status.
#pragma once

#include <CLI/CLI.hpp>

namespace isobar {

void register_train(CLI::App& app);
void register_pretrain_gpt(CLI::App& app);
void register_sweep(CLI::App& app);
void register_forecast(CLI::App& app);
void register_score(CLI::App& app);
void register_evaluate(CLI::App& app);
void register_predict(CLI::App& app);
void register_generate(CLI::App& app);
void register_info(CLI::App& app);
void register_mesh(CLI::App& app);
void register_check(CLI::App& app);
void register_data(CLI::App& app);
void register_weights(CLI::App& app);

inline constexpr const char* kVersion = ISOBAR_VERSION;
// Differs between builds that may compute different numbers (apps/build_id.cmake)
extern const char kBuildId[];

}  // namespace isobar
