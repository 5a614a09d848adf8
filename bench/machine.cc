#include "bench/machine.h"

#include <omp.h>

#include <fstream>

#include "kernels/cpu/isa.h"

namespace isobar::bench {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string instruction_set() {
  const cpu::Amx amx = cpu::amx();
  return std::string(cpu::name_of(cpu::best_isa())) + (amx == cpu::Amx::present    ? " + amx_bf16"
                                                       : amx == cpu::Amx::emulated ? " + emulated amx_bf16"
                                                                                   : "");
}

}  // namespace

Machine this_machine() {
  return {cpu_model(), instruction_set(), omp_get_max_threads(), kCommit};
}

}  // namespace isobar::bench
