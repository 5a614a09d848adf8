#include "models/weights.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace isobar {
namespace {

constexpr const char* kFormat = "isobar.format";
constexpr const char* kConfig = "isobar.config";
constexpr const char* kGrid = "isobar.grid";

std::span<const std::byte> bytes_of_tensor(const Tensor& host) {
  return {static_cast<const std::byte*>(host.data()), host.bytes()};
}

nlohmann::ordered_json to_json(const Grid& grid) {
  return {{"channels", grid.channel_names},  {"means", grid.statistics.means}, {"stds", grid.statistics.stds},
          {"row_weights", grid.row_weights}, {"latitudes", grid.latitudes},    {"longitudes", grid.longitudes}};
}

Grid grid_from(const nlohmann::json& json) {
  Grid grid;
  json.at("channels").get_to(grid.channel_names);
  json.at("means").get_to(grid.statistics.means);
  json.at("stds").get_to(grid.statistics.stds);
  json.at("row_weights").get_to(grid.row_weights);
  json.at("latitudes").get_to(grid.latitudes);
  json.at("longitudes").get_to(grid.longitudes);
  return grid;
}

}  // namespace

void write_flat(const std::filesystem::path& path, const Parameters& parameters, const FlatBuffers& buffers,
                const Metadata& metadata) {
  std::vector<TensorInfo> infos;
  for (const auto& [prefix, buffer] : buffers)
    for (const NamedParameter& p : parameters.named()) infos.push_back({prefix + p.name, buffer.dtype(), p.shape});
  SafetensorsWriter writer(path, infos, metadata);
  for (const auto& [prefix, buffer] : buffers)
    for (const NamedParameter& p : parameters.named())
      writer.append(prefix + p.name, bytes_of_tensor(buffer.slice(p.offset, p.shape).to(Device{})));
  writer.commit();
}

void read_flat(const std::filesystem::path& path, const Parameters& parameters, const FlatBuffers& buffers) {
  const SafetensorsFile file(path);
  std::set<std::string> unknown;
  for (const TensorBytes& tensor : file.tensors()) unknown.insert(tensor.info.name);
  for (const auto& [prefix, buffer] : buffers) {
    for (const NamedParameter& p : parameters.named()) {
      const TensorBytes* tensor = file.find(prefix + p.name);
      ISOBAR_CHECK(tensor != nullptr, path.string(), ": tensor ", prefix + p.name, " is missing");
      ISOBAR_CHECK(tensor->info.shape == p.shape, path.string(), ": tensor ", prefix + p.name, " has shape ",
                   to_string(tensor->info.shape), ", not ", to_string(p.shape));
      unknown.erase(tensor->info.name);
    }
  }
  ISOBAR_CHECK(unknown.empty(), path.string(), ": tensor ", *unknown.begin(), " is unknown to this model");
  for (const auto& [prefix, buffer] : buffers) {
    for (const NamedParameter& p : parameters.named()) {
      const Tensor host = Tensor::empty(p.shape, buffer.dtype(), Device{});
      copy_elements(file.at(prefix + p.name), buffer.dtype(), static_cast<std::byte*>(host.data()));
      buffer.slice(p.offset, p.shape).copy_from(host);
    }
  }
}

void write_model(const std::filesystem::path& path, const Forecaster& forecaster) {
  const Metadata metadata{{"format", "pt"},  // what other readers of safetensors look for
                          {kFormat, "1"},
                          {kConfig, to_json(forecaster.config()).dump()},
                          {kGrid, to_json(forecaster.grid()).dump()}};
  write_flat(path, forecaster.parameters(), {{"", forecaster.parameters().weights()}}, metadata);
}

void read_model(const std::filesystem::path& path, Forecaster& forecaster) {
  Parameters& parameters = forecaster.parameters();
  read_flat(path, parameters, {{"", parameters.weights()}});
  parameters.round_to_compute();
}

bool has_description(const SafetensorsFile& file) {
  return file.metadata().contains(kConfig) && file.metadata().contains(kGrid);
}

ModelDescription description_of(const SafetensorsFile& file) {
  try {
    const auto config = nlohmann::ordered_json::parse(file.metadata().at(kConfig));
    return {config_from(entries_from(config, file.path().string())),
            grid_from(nlohmann::json::parse(file.metadata().at(kGrid)))};
  } catch (const nlohmann::json::exception&) {
    fail(file.path().string(), ": the description of the model in its metadata is damaged");
  } catch (const std::out_of_range&) {
    fail(file.path().string(), ": has no description of its model");
  }
}

}  // namespace isobar
