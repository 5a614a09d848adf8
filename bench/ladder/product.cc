// The list of the product's rungs, and their bounds: a sum of k products may err by the rounding of such a sum, and in
// tf32 by the rounding of both operands of each product besides.
#include "bench/ladder/product.h"

#include <cmath>

#include "bench/ladder/ladder.h"
#include "kernels/common/check.h"
#include "kernels/common/run.h"
#include "kernels/gemm/gemm.h"

namespace isobar {
namespace {

std::vector<RungOf<ProductArgs>> product_rungs() {
  std::vector<RungOf<ProductArgs>> rungs = {{"naive", DeviceKind::cpu, cpu::product_naive},
                                            {"ordered", DeviceKind::cpu, cpu::product_ordered},
                                            {"tiled", DeviceKind::cpu, cpu::product_tiled},
                                            {"packed", DeviceKind::cpu, cpu::product_packed},
                                            {"threaded", DeviceKind::cpu, cpu::product_threaded}};
  if constexpr (ISOBAR_HAS_EMULATOR) {
    rungs.push_back({"naive", DeviceKind::emulator, emulator::product_naive});
    rungs.push_back({"shared", DeviceKind::emulator, emulator::product_shared});
    rungs.push_back({"registers", DeviceKind::emulator, emulator::product_registers});
    rungs.push_back({"async", DeviceKind::emulator, emulator::product_async, Accuracy::fp32, 4});
    rungs.push_back({"tensor", DeviceKind::emulator, emulator::product_tensor, Accuracy::tf32, 4});
  }
  if constexpr (ISOBAR_HAS_CUDA) {
    rungs.push_back({"naive", DeviceKind::cuda, cuda::product_naive});
    rungs.push_back({"shared", DeviceKind::cuda, cuda::product_shared});
    rungs.push_back({"registers", DeviceKind::cuda, cuda::product_registers});
    rungs.push_back({"async", DeviceKind::cuda, cuda::product_async, Accuracy::fp32, 4});
    rungs.push_back({"tensor", DeviceKind::cuda, cuda::product_tensor, Accuracy::tf32, 4});
  }
  return rungs;
}

class ProductLadder : public Ladder {
 public:
  ProductLadder(std::int64_t m, std::int64_t n, std::int64_t k) : m_(m), n_(n), k_(k) {}

  std::string title() const override { return concat("matrix product, ", m_, " x ", n_, " x ", k_, " fp32"); }
  Cost cost() const override { return gemm_cost({.m = m_, .n = n_, .k = k_}); }
  std::vector<LadderArray> arrays() const override {
    return {{m_ * k_}, {k_ * n_}, {.size = m_ * n_, .is_output = true}};
  }
  std::vector<Rung> rungs() const override {
    return bound_rungs(product_rungs(), [ladder = *this](const LadderPointers& arrays) { return ladder.bind(arrays); });
  }

  std::string kernel_name() const override { return "kernels/gemm"; }
  void run_kernel(Device device, const LadderPointers& arrays) const override {
    const GemmArgs kernel = {.m = m_, .n = n_, .k = k_, .a = arrays[0], .b = arrays[1], .c = arrays[2]};
    ISOBAR_RUN(device, gemm, kernel);
  }

  std::vector<std::vector<Expected>> expected(const LadderPointers& arrays, Accuracy accuracy) const override {
    const ProductArgs p = bind(arrays);
    const double of_term = sum_rounding(k_) + (accuracy == Accuracy::tf32 ? 2.01 * kRoundingTf32 : 0);
    std::vector<Expected> c(static_cast<std::size_t>(m_ * n_));
    for (std::int64_t i = 0; i < m_; ++i) {
      Expected* const row = c.data() + i * n_;
      for (std::int64_t k = 0; k < k_; ++k) {
        for (std::int64_t j = 0; j < n_; ++j) {
          const double term = static_cast<double>(p.a[i * k_ + k]) * p.b[k * n_ + j];
          row[j].value += term;
          row[j].bound += std::abs(term) * of_term;
        }
      }
    }
    return {c};
  }

 private:
  ProductArgs bind(const LadderPointers& arrays) const {
    return {.m = m_, .n = n_, .k = k_, .a = arrays[0], .b = arrays[1], .c = arrays[2]};
  }

  std::int64_t m_, n_, k_;
};

}  // namespace

std::unique_ptr<Ladder> product_ladder(std::int64_t m, std::int64_t n, std::int64_t k) {
  return std::make_unique<ProductLadder>(m, n, k);
}

}  // namespace isobar
