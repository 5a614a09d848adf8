// isobar info: version, build options, devices.
#include <omp.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/commands.h"
#include "kernels/common/device.h"
#include "kernels/common/isa.h"

namespace isobar {

namespace {

nlohmann::ordered_json collect_info() {
  return {{"version", kVersion},
          {"build",
           {{"compiler", __VERSION__}, {"type", ISOBAR_BUILD_TYPE}, {"cuda", kHasCuda}, {"emulator", kHasEmulator}}},
          {"devices",
           {{{"kind", "cpu"},
             {"threads", omp_get_max_threads()},
             {"instruction_set", cpu::name_of(cpu::best_isa())},
             {"amx_bf16", cpu::has_amx_bf16()}}}}};
}

std::string plain(const nlohmann::ordered_json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void print_fields(const nlohmann::ordered_json& fields) {
  for (const auto& [name, value] : fields.items()) std::cout << "  " << name << ": " << plain(value) << '\n';
}

void print_info(const nlohmann::ordered_json& info) {
  std::cout << "isobar " << plain(info["version"]) << "\nbuild\n";
  print_fields(info["build"]);
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
    const nlohmann::ordered_json collected = collect_info();
    if (*as_json) {
      std::cout << collected.dump(2) << '\n';
    } else {
      print_info(collected);
    }
  });
}

}  // namespace isobar
