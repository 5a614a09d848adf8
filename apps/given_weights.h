// The weights that a command applies or judges: the config stored with them, and where they come from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apps/train/config.h"
#include "apps/train/model_file.h"

namespace isobar {

// As describe_model. A folder of Hugging Face is a language model, described by its config.json and its tokenizer's
// files: Error naming what makes it another.
ModelDescription describe_given(const std::filesystem::path& path);

// The config stored with the weights, with the paths of --data (may be empty) and the values of --set; the keys that
// these leave out are printed. `weights`: as the user named them. Error if they have no config.
RunConfig config_of_weights(const std::string& weights, ModelDescription& description, const std::string& data,
                            const std::vector<std::string>& assignments);

// The files and folders that the config's keys name for its task: what no output may replace.
std::vector<std::filesystem::path> data_of(const RunConfig& config);

// The number of samples that one rank of the weights' run computed at once: what fitted into memory there fits here.
std::int64_t samples_at_once(const BatchOptions& batch, const std::filesystem::path& weights);

// The iteration of a checkpoint's weights; none if its state.json does not lie beside them.
std::optional<std::int64_t> iteration_of_weights(const std::filesystem::path& file);
// Prints which weights these are, if a checkpoint's state.json lies beside them.
void print_weights_origin(const std::filesystem::path& file);

}  // namespace isobar
