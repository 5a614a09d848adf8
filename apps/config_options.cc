#include "apps/config_options.h"

#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "kernels/common/check.h"
#include "kernels/cuda/runtime.h"

namespace isobar {

namespace {

// OpenMP counts the cores that the process may use. If the launcher binds the process to its cores, that count is
// right. Otherwise it counts all cores of the host, which the host's processes share.
int threads_of_process(const Launch& launch) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  if (launch.local_ranks == 1 || std::getenv("OMP_NUM_THREADS") != nullptr) return omp_get_max_threads();
  return std::min(omp_get_max_threads(), std::max(1, cores / launch.local_ranks));
}

int gpu_of(const Launch& launch) {
  const int devices = gpu::device_count();
  if (devices == 1) return 0;
  ISOBAR_CHECK(launch.local_rank < devices, "rank ", launch.rank, " is number ", launch.local_rank,
               " of its host, where ", devices, " GPUs can be seen");
  return launch.local_rank;
}

}  // namespace

Device ConfigOptions::use_device(const Launch& launch) const {
  omp_set_num_threads(threads > 0 ? threads : threads_of_process(launch));
  if (device == "emulator") return {DeviceKind::emulator, 0};
  if (!uses_cuda()) return {DeviceKind::cpu, 0};
  ISOBAR_CHECK(ISOBAR_HAS_CUDA, "--device cuda: this isobar was built without CUDA");
  ISOBAR_CHECK(gpu::device_count() > 0, "--device cuda: there is no NVIDIA GPU, or no driver for it");
  const Device chosen{DeviceKind::cuda, gpu_of(launch)};
  use_in_this_thread(chosen);
  return chosen;
}

DeviceKind ConfigOptions::device_kind() const {
  return device == "emulator" ? DeviceKind::emulator : uses_cuda() ? DeviceKind::cuda : DeviceKind::cpu;
}

bool ConfigOptions::uses_cuda() const {
  return device == "cuda" || (device == "auto" && gpu::device_count() > 0);
}

int ConfigOptions::threads_of(int ranks) const {
  return threads > 0 ? threads : std::max(1, omp_get_max_threads() / ranks);
}

void use_in_this_thread(Device device) {
  if (device.kind == DeviceKind::cuda) gpu::set_device(device.index);
}

CLI::Validator whole_number_from(std::int64_t min) {
  const auto check = [min](const std::string& value) {
    std::int64_t number = 0;
    const bool fits = CLI::detail::lexical_cast(value, number) && number >= min;
    return fits ? std::string() : concat(value, " is not a whole number from ", min, " on");
  };
  return {check, ""};
}

CLI::Validator number_above(double bound) {
  const auto check = [bound](const std::string& value) {
    double number = 0;
    const bool fits = CLI::detail::lexical_cast(value, number) && !(number <= bound);
    return fits ? std::string() : concat("must be a number above ", bound, ", not ", value);
  };
  return {check, ""};
}

CLI::Validator number_between(double least, double most) {
  const auto check = [=](const std::string& value) {
    double number = 0;
    const bool fits = CLI::detail::lexical_cast(value, number) && !(number < least || number > most);
    return fits ? std::string() : concat("must be a number from ", least, " to ", most, ", not ", value);
  };
  return {check, ""};
}

void add_config_options(CLI::App& command, ConfigOptions& options) {
  command.add_option("--config", options.config, "a config's NAME, or FILE.json[:NAME]");
  add_set_option(command, options);
  add_device_options(command, options);
}

void add_set_option(CLI::App& command, ConfigOptions& options) {
  command.add_option("--set", options.assignments, "sets a config key; wins over the file; again for each further key")
      ->allow_extra_args(false)
      ->option_text("KEY=VALUE");
}

void add_device_options(CLI::App& command, ConfigOptions& options) {
  std::vector<std::string> devices{"auto", "cpu", "cuda"};
  if (ISOBAR_HAS_EMULATOR) devices.emplace_back("emulator");
  command.add_option("--device", options.device, "where to compute")
      ->check(CLI::IsMember(devices))
      ->capture_default_str();
  command.add_option("--threads", options.threads, "threads on the CPU (0: all cores)")->check(whole_number_from(0));
}

}  // namespace isobar
