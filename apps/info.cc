// isobar info: version, build options, devices.
#include <omp.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/commands.h"
#include "kernels/common/check.h"
#include "kernels/common/device.h"
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

}  // namespace

void register_info(CLI::App& app) {
  auto as_json = std::make_shared<bool>(false);
  CLI::App* info = app.add_subcommand("info", "Print version, build options and devices");
  info->add_flag("--json", *as_json, "one JSON object instead of text");
  info->callback([as_json] {
    const ordered_json collected = collect_info();
    if (*as_json) {
      std::cout << collected.dump(2) << '\n';
    } else {
      print_info(collected);
    }
  });
}

}  // namespace isobar
