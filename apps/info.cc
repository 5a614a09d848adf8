// isobar info: version, build options, devices; for weights, their description.
#include <omp.h>

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/commands.h"
#include "apps/train/model_file.h"
#include "apps/train/run_folder.h"
#include "engine/files/json.h"
#include "engine/files/safetensors.h"
#include "engine/tensor.h"
#include "kernels/common/check.h"
#include "kernels/cpu/isa.h"
#include "kernels/cuda/runtime.h"

namespace isobar {

using nlohmann::ordered_json;

namespace {

std::string cuda_version(int number) {  // 13000 -> "13.0"
  return number == 0 ? "none" : concat(number / 1000, '.', number % 1000 / 10);
}

ordered_json describe_gpu(int index) {
  const gpu::Description gpu = gpu::describe(index);
  return {{"kind", "cuda"},
          {"index", index},
          {"name", gpu.name},
          {"compute_capability", concat(gpu.major, '.', gpu.minor)},
          {"memory_bytes", gpu.memory_bytes}};
}

ordered_json collect_info() {
  ordered_json info{{"version", kVersion},
                    {"build",
                     {{"compiler", __VERSION__},
                      {"type", ISOBAR_BUILD_TYPE},
                      {"cuda", ISOBAR_HAS_CUDA == 1},
                      {"cuda_runtime", cuda_version(gpu::runtime_version())},
                      {"emulator", ISOBAR_HAS_EMULATOR == 1}}},
                    {"cuda_driver", cuda_version(gpu::driver_version())},
                    {"devices", ordered_json::array()}};
  info["devices"].push_back({{"kind", "cpu"},
                             {"threads", omp_get_max_threads()},
                             {"instruction_set", cpu::name_of(cpu::best_isa())},
                             {"bf16_products", cpu::name_of(cpu::bf16_products())},
                             {"amx_bf16", cpu::bf16_products() == cpu::Bf16Products::tiles}});
  try {
    for (int index = 0; index < gpu::device_count(); ++index) info["devices"].push_back(describe_gpu(index));
  } catch (const Error& error) {
    info["devices"].push_back({{"kind", "cuda"}, {"problem", error.what()}});
  }
  return info;
}

// Texts within it that nobody reads (the values of constants) become their lengths.
void shorten(ordered_json& value) {
  constexpr std::size_t kLongest = 1000;
  if (value.is_string() && value.get_ref<const std::string&>().size() > kLongest)
    value = concat(value.get_ref<const std::string&>().size(), " characters");
  if (value.is_structured())
    for (ordered_json& part : value) shorten(part);
}

// The value as JSON if it parses, else as text.
ordered_json value_of(const std::string& text, const std::string& where) {
  ordered_json value = parse_json_if_valid<ordered_json>(text, where).value_or(ordered_json(text));
  if (value.is_structured()) shorten(value);
  return value;
}

ordered_json collect_weights(const std::filesystem::path& path) {
  const SafetensorsReader file(weights_at(path));
  std::int64_t parameters = 0;
  ordered_json tensors = ordered_json::array(), metadata = ordered_json::object();
  for (const TensorInfo& tensor : file.tensors()) {
    parameters += numel_of(tensor.shape);
    tensors.push_back({{"name", tensor.name}, {"dtype", name_of(tensor.dtype)}, {"shape", tensor.shape}});
  }
  for (const auto& [key, text] : file.metadata())
    metadata[key] = value_of(text, concat(file.path().string(), ": ", key));
  return {{"file", file.path().string()}, {"parameters", parameters}, {"metadata", metadata}, {"tensors", tensors}};
}

std::string plain(const ordered_json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void print_fields(const ordered_json& fields) {
  for (const auto& [name, value] : fields.items()) std::cout << "  " << name << ": " << plain(value) << '\n';
}

void print_info(const ordered_json& info) {
  std::cout << "isobar " << plain(info["version"]) << "\nbuild\n";
  print_fields(info["build"]);
  std::cout << "CUDA driver: " << plain(info["cuda_driver"]) << '\n';
  for (const auto& device : info["devices"]) {
    std::cout << "device\n";
    print_fields(device);
  }
}

void print_weights(const ordered_json& weights) {
  std::cout << plain(weights["file"]) << ": " << plain(weights["parameters"]) << " parameters in "
            << weights["tensors"].size() << " tensors\n";
  for (const auto& [key, value] : weights["metadata"].items()) {
    std::cout << key << (value.is_object() ? "\n" : ": " + plain(value) + "\n");
    if (value.is_object()) print_fields(value);
  }
  std::cout << "tensors\n";
  for (const auto& tensor : weights["tensors"])
    std::cout << "  " << plain(tensor["name"]) << ": " << plain(tensor["dtype"]) << ' ' << plain(tensor["shape"])
              << '\n';
}

}  // namespace

void register_info(CLI::App& app) {
  struct Settings {
    bool as_json = false;
    std::string weights;
  };
  auto settings = std::make_shared<Settings>();
  CLI::App* info = app.add_subcommand("info", "Print version, build options and devices, or what weights say");
  info->add_flag("--json", settings->as_json, "one JSON object instead of text");
  info->add_option("WEIGHTS", settings->weights, "a safetensors file, or a run's folder (its best weights)");
  info->callback([settings] {
    const bool of_weights = !settings->weights.empty();
    const ordered_json collected = of_weights ? collect_weights(settings->weights) : collect_info();
    if (settings->as_json) {
      std::cout << collected.dump(2) << '\n';
    } else {
      of_weights ? print_weights(collected) : print_info(collected);
    }
  });
}

}  // namespace isobar
