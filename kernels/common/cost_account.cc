#include "kernels/common/cost_account.h"

namespace isobar {
namespace {

thread_local CostAccount* innermost = nullptr;

void add_to(Cost& sum, const Cost& cost) {
  sum.bytes += cost.bytes;
  sum.flops += cost.flops;
}

}  // namespace

CostAccount::CostAccount() : previous_(innermost) {
  innermost = this;
}

CostAccount::~CostAccount() {
  innermost = previous_;
}

Cost CostAccount::total() const {
  Cost sum;
  for (const auto& [name, use] : kernels_) add_to(sum, use.cost);
  return sum;
}

void account_for(const char* kernel, const Cost& cost) {
  if (innermost == nullptr) return;
  KernelUse& use = innermost->kernels_[kernel];
  ++use.calls;
  add_to(use.cost, cost);
}

}  // namespace isobar
