// What kernels on the device meta would cost: each adds its cost model's figures here instead of being run.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "kernels/common/cost.h"
#include "kernels/common/kernel.h"

namespace isobar {

// Calls of a kernel, and their costs added up.
struct KernelUse {
  std::int64_t calls = 0;
  Cost cost = {};
};

// As long as it lives, what this thread runs on meta is added to it; an inner account takes all for itself.
class CostAccount {
 public:
  CostAccount();
  ~CostAccount();
  CostAccount(const CostAccount&) = delete;
  CostAccount& operator=(const CostAccount&) = delete;

  const std::map<std::string, KernelUse>& kernels() const { return kernels_; }  // by name
  Cost total() const;

 private:
  friend void account_for(const char* kernel, const Cost& cost);

  CostAccount* const previous_;
  std::map<std::string, KernelUse> kernels_;
};

}  // namespace isobar
