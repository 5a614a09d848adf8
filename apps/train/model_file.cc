#include "apps/train/model_file.h"

#include <nlohmann/json.hpp>

#include "comm/whole_tensors.h"
#include "engine/files/flat_tensors.h"
#include "engine/files/huggingface_folder.h"
#include "engine/files/json.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr const char* kFormat = "isobar.format";
constexpr const char* kConfig = "isobar.config";

RunConfig config_from(const std::string& stored) {
  const auto json = parse_json<nlohmann::ordered_json>(stored, kConfig);
  ISOBAR_CHECK(json.is_object(), "the description of the model in its metadata is damaged");
  RunConfig config = read_config(entries_from(json, "its metadata"));
  config.check();
  return config;
}

}  // namespace

void write_model(const std::filesystem::path& path, const Task& task, const nlohmann::ordered_json& config,
                 const Communicator& world) {
  Metadata metadata = task.settings();
  metadata["format"] = "pt";  // other readers of safetensors look for it
  metadata[kFormat] = "1";
  metadata[kConfig] = config.dump();
  write_whole(path, task.parameters(), {{"", task.parameters().weights(), {}}}, metadata, world);
}

void read_model(const std::filesystem::path& path, Task& task) {
  Parameters& parameters = task.parameters();
  read_flat(*task.open_weights(path), parameters, {{"", parameters.weights(), {}}});
  parameters.round_to_compute();
}

nlohmann::ordered_json stored_config(const std::filesystem::path& path) {
  const Metadata metadata = SafetensorsReader(path).metadata();
  const auto stored = metadata.find(kConfig);
  if (stored == metadata.end()) return nlohmann::ordered_json::object();
  auto config = parse_json<nlohmann::ordered_json>(stored->second, concat(path.string(), ": ", kConfig));
  ISOBAR_CHECK(config.is_object(), path.string(), ": the description of the model in its metadata is damaged");
  return config;
}

ModelDescription describe_model(const std::filesystem::path& path) {
  if (is_huggingface_folder(path)) return {{path, {}}, std::nullopt};
  const SafetensorsReader file(path);
  ModelDescription description{{path, file.metadata()}, std::nullopt};
  const auto stored = file.metadata().find(kConfig);
  if (stored == file.metadata().end()) return description;
  try {
    description.config = config_from(stored->second);
  } catch (const Error& error) {
    throw_error(path.string(), ": ", error.what());
  }
  return description;
}

}  // namespace isobar
