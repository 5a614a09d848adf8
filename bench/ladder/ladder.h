// A ladder is one kernel written several times, from naive to fast. Every rung computes the same function; each changes
// one thing. There are four: layer norm (layernorm.h), the matrix product (product.h), attention (attention.h) and, for
// a CPU only, a convolution (conv.h). Of each subject NAME, NAME_cpu.cc holds the rungs for a CPU, NAME.cu those for a
// GPU and for the emulator, and NAME.cc the list of them and how their results are judged. `isobar-bench --ladder NAME`
// shows one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/common/cost.h"
#include "kernels/common/device.h"
#include "kernels/common/stream.h"

namespace isobar {

// What a rung may lose. fp32: the rounding of fp32. tf32: its products round their operands to 10 bits. cancels: a
// formula that can lose all digits, which a test shows.
enum class Accuracy : std::uint8_t { fp32, tf32, cancels };

// Of fp32 numbers, all in memory of one device.
struct LadderArray {
  std::int64_t size;
  double low = -1, high = 1;  // of an input's numbers
  bool is_output = false;
};
using LadderPointers = std::vector<float*>;  // of a ladder's arrays, in their order

struct Rung {
  std::string name;
  DeviceKind device;
  std::function<void(const LadderPointers&)> run;  // asynchronous on a GPU, on the default stream
  Accuracy accuracy = Accuracy::fp32;
  std::int64_t multiple = 1;  // the shape's last two sizes must be multiples of it: else run() throws Error
};

// The exact result, computed in fp64, and how far a result may be from it.
struct Expected {
  double value, bound;
};

class Ladder {
 public:
  virtual ~Ladder() = default;
  virtual std::string title() const = 0;
  virtual Cost cost() const = 0;                        // of the function itself, the same for every rung
  virtual double exponentials() const { return 0; }     // that it needs besides
  virtual std::vector<LadderArray> arrays() const = 0;  // inputs first
  // Those for the emulator and for CUDA only where this build has them; those of a device in the order of the ladder.
  virtual std::vector<Rung> rungs() const = 0;
  virtual std::string kernel_name() const = 0;  // of the project's own kernel, which the ladder leads to
  virtual void run_kernel(Device device, const LadderPointers& arrays) const = 0;
  // For each output array, from inputs in host memory.
  virtual std::vector<std::vector<Expected>> expected(const LadderPointers& arrays, Accuracy accuracy) const = 0;
};

// How far outputs are from the expected ones: the greatest error of the first output array, NaN where one is NaN; and
// the greatest error of all as a part of its bound, infinite where one is NaN.
struct LadderError {
  double greatest = 0, of_bound = 0;
};
LadderError ladder_error(const Ladder& ladder, const std::vector<std::vector<Expected>>& expected,
                         const LadderPointers& arrays);

std::unique_ptr<Ladder> layernorm_ladder(std::int64_t rows, std::int64_t cols, double mean = 0, double spread = 1);
std::unique_ptr<Ladder> product_ladder(std::int64_t m, std::int64_t n, std::int64_t k);
std::unique_ptr<Ladder> attention_ladder(std::int64_t heads, std::int64_t tokens);
std::unique_ptr<Ladder> conv_ladder(std::int64_t batch, std::int64_t side, std::int64_t in, std::int64_t out);

// The rounding of one operation in fp32 and of an operand in tf32, relative.
inline constexpr double kRoundingFp32 = 0x1p-24, kRoundingTf32 = 0x1p-11;

// How the rounding errors of a sum of n rounded terms grow, relative to the sum of their absolute values: they have
// both signs, so that √n is what they reach, and n what they could.
double sum_rounding(std::int64_t n);

// One rung of a subject whose arguments are Args, and the rungs of a Ladder made of a list of them. `bind` makes the
// arguments of the arrays.
template <class Args>
struct RungOf {
  const char* name;
  DeviceKind device;
  void (*run)(const Args&, Stream);
  Accuracy accuracy = Accuracy::fp32;
  std::int64_t multiple = 1;
};
template <class Args, class Bind>
std::vector<Rung> bound_rungs(const std::vector<RungOf<Args>>& rungs, const Bind& bind) {
  std::vector<Rung> bound;
  for (const RungOf<Args>& rung : rungs) {
    const auto run = [run = rung.run, bind](const LadderPointers& arrays) { run(bind(arrays), nullptr); };
    bound.push_back({rung.name, rung.device, run, rung.accuracy, rung.multiple});
  }
  return bound;
}

}  // namespace isobar
