// model.safetensors: the weights under the names of the PyTorch model's state_dict, with the config and the task's
// settings as metadata: enough to build the model again.
#pragma once

#include <filesystem>
#include <optional>

#include "apps/train/config.h"
#include "comm/communicator.h"
#include "engine/files/checkpoint.h"
#include "models/task.h"

namespace isobar {

// config: of the run, see config.json. Collective over `world`; the first rank writes.
void write_model(const std::filesystem::path& path, const Task& task, const nlohmann::ordered_json& config,
                 const Communicator& world = {});

// Reads this rank's part of every tensor, once. Error naming a tensor that is missing, unknown, of a wrong shape or not
// finite; the task is then of no use.
void read_model(const std::filesystem::path& path, Task& task);

// The config that write_model stored with the weights, unparsed; an empty object if there is none.
nlohmann::ordered_json stored_config(const std::filesystem::path& path);

// What write_model stored with the weights; no config: another program wrote them, as those of a folder of Hugging
// Face. Error naming the file if the config is damaged or has keys or values that a config file may not have.
struct ModelDescription {
  GivenWeights weights;
  std::optional<RunConfig> config;
};
ModelDescription describe_model(const std::filesystem::path& path);

}  // namespace isobar
