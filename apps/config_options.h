// The options that train and forecast share: config, keys, device, number of threads.
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
  std::vector<std::string> assignments;  // values of --set
  std::string device = "auto";
  int threads = 0;  // 0: as many as the machine has cores

  // Returns the requested device and sets the number of threads. A process of a launcher gets the GPU of its local rank
  // (or the only GPU that it sees) and its share of the cores. Throws Error if the device does not exist.
  Device use_device(const Launch& launch = {}) const;

  // The kind of device that use_device would return if it succeeds; changes nothing.
  DeviceKind device_kind() const;
  // Whether device_kind() is a GPU.
  bool uses_cuda() const;

  // Threads of each of `ranks` ranks on this machine: the requested number, else an equal share, 1 or more.
  int threads_of(int ranks) const;
};

// Every thread that computes on a device calls it: CUDA's current device is per thread.
void use_in_this_thread(Device device);

// For CLI11's check(): a whole number >= `least`.
CLI::Validator whole_number_from(std::int64_t min);
// The same for any number: above one, or between two that it may be. CLI11's own write out all 309 digits of a bound.
// NaN passes; apps/finite_numbers.h has a sentence for it.
CLI::Validator number_above(double bound);
CLI::Validator number_between(double least, double most);

void add_config_options(CLI::App& command, ConfigOptions& options);  // --config, --set, --device and --threads
void add_set_option(CLI::App& command, ConfigOptions& options);      // --set
void add_device_options(CLI::App& command, ConfigOptions& options);  // --device, --threads

}  // namespace isobar
