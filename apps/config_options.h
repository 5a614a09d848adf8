// The options that train and forecast share: which config, which keys, which device, how many threads.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "apps/train/config_file.h"
#include "comm/launch.h"
#include "kernels/common/device.h"

namespace isobar {

struct ConfigOptions {
  std::string config;                    // empty: not given
  std::vector<std::string> assignments;  // of --set
  std::string device = "auto";
  int threads = 0;  // 0: as many as the machine has

  // The device asked for, with the number of threads set: of a process of a launcher the GPU of its number on this host
  // (or the only one that it sees), and its share of the cores. Throws Error where there is no such device.
  Device use_device(const Launch& launch = {}) const;

  // Of the device that use_device would take, if all is well; nothing is touched.
  DeviceKind device_kind() const;
  // Whether that is a GPU.
  bool wants_cuda() const;

  // Threads of each of so many ranks on this machine: as asked for, else a fair share, at least one.
  int threads_of(int ranks) const;
};

// Every thread that computes on a device calls it: CUDA knows a current device per thread.
void use_in_this_thread(Device device);

// For CLI11's check(): a whole number that is not below `least`.
CLI::Validator whole_number_from(std::int64_t least);

void add_config_options(CLI::App& command, ConfigOptions& options);  // --config, and the two below
void add_set_option(CLI::App& command, ConfigOptions& options);      // --set
void add_device_options(CLI::App& command, ConfigOptions& options);  // --device, --threads

}  // namespace isobar
