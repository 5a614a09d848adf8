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
  const std::string isa = cpu::name_of(cpu::best_isa());
  const cpu::Bf16Products products = cpu::bf16_products();
  return products == cpu::Bf16Products::widened ? isa : isa + " + " + cpu::name_of(products);
}

}  // namespace

Machine this_machine() {
  return {cpu_model(), instruction_set(), omp_get_max_threads(), kCommit};
}

}  // namespace isobar::bench
