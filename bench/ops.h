// The list of what isobar-bench can time: every kernel of kernels/*.h with the shapes of the base ViT (embed_dim 384,
// depth 12, 8 heads, patches of 8, fields of 20 x 360 x 720); cross_entropy with GPT-2's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/arithmetic.h"
#include "bench/memory.h"
#include "kernels/cases/operands.h"
#include "kernels/common/cost.h"

namespace isobar::bench {

using Shape = std::vector<std::int64_t>;

// The operands of a kernel's case: numbers of their ranges, always the same; contents of outputs are undefined.
class BenchOperands final : public cases::Operands {
 public:
  BenchOperands(Memory& memory, std::vector<cases::Given> given) : Operands(std::move(given)), memory_(memory) {}

 private:
  void* allocate(const cases::Operand& operand) override;

  Memory& memory_;
};

struct Problem {
  Memory& memory;  // owns the operands
  Arithmetic dtype;
  Shape shape;

  BenchOperands operands(std::vector<cases::Given> given = {}) const { return {memory, std::move(given)}; }
};

// A kernel to time, and its cost.
struct Call {
  Cost cost;
  std::function<void()> run;
};

// Something to compare an op with; `cost` is the op's.
struct Baseline {
  std::string name;
  std::function<std::function<void()>(const Problem&, const Cost& cost)> prepare;
};

// A copy of as many bytes as the op has to move: the yardstick of whatever is bound by memory.
Baseline memcpy_baseline();

struct Op {
  std::string name;
  std::function<Call(const Problem&)> prepare;
  std::string dims;  // what the numbers of a shape mean: "rows cols"
  std::function<Shape(std::int64_t batch)> base_shape;
  Shape small_shape;  // and ragged: what tests time
  bool fp32_only = false, has_tf32 = false;
  std::vector<Baseline> baselines = {memcpy_baseline()};
};

// All that are linked into the program. Returns true: an op is listed before main() by a variable that it starts.
const std::vector<Op>& ops();
bool add_op(Op op);

}  // namespace isobar::bench

// One op: begins the function that prepares it and lists it, with the members of Op that follow `prepare`. The kernel
// of the same name is declared in kernels/; nothing else has to be edited.
#define ISOBAR_BENCH(op, ...)                                                                             \
  Call bench_##op(const Problem&);                                                                        \
  [[maybe_unused]] const bool op##_is_listed = add_op({.name = #op, .prepare = bench_##op, __VA_ARGS__}); \
  Call bench_##op(const Problem& p)
