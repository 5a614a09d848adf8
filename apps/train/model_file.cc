#include "apps/train/model_file.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/files/json.h"

namespace isobar {
namespace {

constexpr const char* kFormat = "isobar.format";
constexpr const char* kConfig = "isobar.config";
constexpr const char* kGrid = "isobar.grid";
constexpr const char* kUnits = "isobar.units";           // a list, one a channel
constexpr const char* kLeadHours = "isobar.lead_hours";  // from input to forecast

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

template <class T>
bool all_finite(const T* values, std::int64_t n) {
  return std::all_of(values, values + n, [](T value) { return std::isfinite(value); });
}

// A tensor of the file, in the dtype of the buffer it is for.
Tensor read_tensor(const SafetensorsFile& file, const std::string& name, const Shape& shape, DType dtype) {
  Tensor host = Tensor::empty(shape, dtype, Device{});
  copy_elements(file.at(name), dtype, static_cast<std::byte*>(host.data()));
  return host;
}

// What a grid must be for this config; the sentence about the file is the caller's.
void check_grid(const Grid& grid, const Config& config) {
  const auto count = [](const char* what, std::size_t found, std::int64_t wanted, const char* key) {
    ISOBAR_CHECK(static_cast<std::int64_t>(found) == wanted, what, " are ", found, " and not ", wanted, ", as ", key);
  };
  const auto finite = [](const char* what, const std::vector<double>& values) {
    ISOBAR_CHECK(all_finite(values.data(), std::ssize(values)), what, " are not all finite");
  };
  const Statistics& statistics = grid.statistics;
  count("channels", grid.channel_names.size(), config.n_in_channels, "n_in_channels");
  count("means", statistics.means.size(), config.n_in_channels, "n_in_channels");
  count("stds", statistics.stds.size(), config.n_in_channels, "n_in_channels");
  count("row_weights", grid.row_weights.size(), config.img_size[0], "the rows of img_size");
  if (!grid.latitudes.empty()) count("latitudes", grid.latitudes.size(), config.img_size[0], "the rows of img_size");
  if (!grid.longitudes.empty())
    count("longitudes", grid.longitudes.size(), config.img_size[1], "the columns of img_size");
  finite("means", statistics.means);
  finite("stds", statistics.stds);
  finite("row_weights", grid.row_weights);
  finite("latitudes", grid.latitudes);
  finite("longitudes", grid.longitudes);
  std::set<std::string> names;
  for (const std::string& name : grid.channel_names)
    ISOBAR_CHECK(!name.empty() && names.insert(name).second, "channels holds ",
                 name.empty() ? "an empty name" : "a name twice");
  ISOBAR_CHECK(std::ranges::all_of(statistics.stds, [](double std) { return std > 0; }), "stds are not all above 0");
}

// What the metadata say of units and time step; nothing in files of before they did.
void read_labels(const Metadata& metadata, ModelDescription& description) {
  Grid& grid = description.grid;
  if (const auto units = metadata.find(kUnits); units != metadata.end()) {
    parse_json<nlohmann::json>(units->second, kUnits).get_to(grid.units);
    ISOBAR_CHECK(grid.units.size() == grid.channel_names.size(), kUnits, " has ", grid.units.size(), " entries for ",
                 grid.channel_names.size(), " channels");
  }
  if (const auto hours = metadata.find(kLeadHours); hours != metadata.end()) {
    const auto lead = parse_json<nlohmann::json>(hours->second, kLeadHours).get<double>();
    ISOBAR_CHECK(std::isfinite(lead) && lead > 0, kLeadHours, " is ", hours->second);
    grid.step_hours = lead / static_cast<double>(description.config.dt);
  }
}

}  // namespace

bool is_finite(const Tensor& values) {
  const Tensor host = values.to(Device{});
  return host.dtype() == DType::fp64 ? all_finite(host.data_as<double>(), host.numel())
                                     : all_finite(host.data_as<float>(), host.numel());
}

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
      ISOBAR_CHECK(is_finite(read_tensor(file, prefix + p.name, p.shape, buffer.dtype())), path.string(), ": tensor ",
                   prefix + p.name, " holds numbers that are not finite");
      unknown.erase(tensor->info.name);
    }
  }
  ISOBAR_CHECK(unknown.empty(), path.string(), ": tensor ", in_quotes(*unknown.begin()), " is unknown to this model");
  for (const auto& [prefix, buffer] : buffers) {
    for (const NamedParameter& p : parameters.named()) {
      buffer.slice(p.offset, p.shape).copy_from(read_tensor(file, prefix + p.name, p.shape, buffer.dtype()));
    }
  }
}

void write_model(const std::filesystem::path& path, const Forecaster& forecaster) {
  Metadata metadata{{"format", "pt"},  // what other readers of safetensors look for
                    {kFormat, "1"},
                    {kConfig, to_json(forecaster.config()).dump()},
                    {kGrid, to_json(forecaster.grid()).dump()}};
  const Grid& grid = forecaster.grid();
  if (!std::ranges::all_of(grid.units, &std::string::empty)) metadata[kUnits] = nlohmann::json(grid.units).dump();
  if (grid.step_hours > 0)
    metadata[kLeadHours] = nlohmann::json(grid.step_hours * static_cast<double>(forecaster.config().dt)).dump();
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
    const auto config = parse_json<nlohmann::ordered_json>(file.metadata().at(kConfig), kConfig);
    ISOBAR_CHECK(config.is_object(), "the description of the model in its metadata is damaged");
    ModelDescription description{config_from(entries_from(config, "its metadata")),
                                 grid_from(parse_json<nlohmann::json>(file.metadata().at(kGrid), kGrid))};
    check_grid(description.grid, description.config);
    read_labels(file.metadata(), description);
    return description;
  } catch (const Error& error) {
    fail(file.path().string(), ": ", error.what());
  } catch (const nlohmann::json::exception&) {
    fail(file.path().string(), ": the description of the model in its metadata is damaged");
  } catch (const std::out_of_range&) {
    fail(file.path().string(), ": has no description of its model");
  }
}

}  // namespace isobar
