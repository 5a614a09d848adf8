// model.safetensors: the weights under the names of the PyTorch model's state_dict and, as metadata, the config and the
// task's settings: enough to build the model again.
#pragma once

#include <filesystem>
#include <optional>

#include "apps/train/config.h"
#include "comm/communicator.h"
#include "engine/files/checkpoint.h"
#include "models/task.h"

namespace isobar {

// config: of the run, as config.json has it. Every rank of `world` calls it, and the first one writes.
void write_model(const std::filesystem::path& path, const Task& task, const nlohmann::ordered_json& config,
                 const Communicator& world = {});

// Reads what this rank holds of every tensor. Error naming the tensor that is missing, unknown, misshaped or not
// finite; the weights are then as they were.
void read_model(const std::filesystem::path& path, Task& task);

// The config that write_model stored beside the weights, as it stands there; an empty object where there is none.
nlohmann::ordered_json stored_config(const std::filesystem::path& path);

// What write_model stored beside the weights. Without a config the weights are from elsewhere. Error naming the file
// where the config is damaged or has keys or values that no config file may have.
struct ModelDescription {
  GivenWeights weights;
  std::optional<RunConfig> config;
};
ModelDescription describe_model(const std::filesystem::path& path);

}  // namespace isobar
