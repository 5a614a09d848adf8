#include "lab/accesses/cases.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "kernels/cases/adam.h"
#include "kernels/cases/attention.h"
#include "kernels/cases/column_sum.h"
#include "kernels/cases/conv.h"
#include "kernels/cases/elementwise.h"
#include "kernels/cases/forecast_loss.h"
#include "kernels/cases/gelu.h"
#include "kernels/cases/grad_norm.h"
#include "kernels/cases/layernorm.h"
#include "kernels/cases/normalize.h"
#include "kernels/cases/patchify.h"
#include "kernels/common/check.h"
#include "kernels/emulator/devices.h"

namespace isobar::accesses {
namespace {

constexpr DType kBf16 = DType::bf16, kFp32 = DType::fp32;

// Arrays, each at a multiple of 256 bytes as CUDA's allocations are, until the case has run.
class Arrays {
 public:
  void* add(std::size_t bytes) {  // of zeros
    constexpr std::size_t kAlignment = 256;
    std::vector<std::byte>& room = rooms_.emplace_back(bytes + kAlignment);
    void* begin = room.data();
    std::size_t space = room.size();
    std::align(kAlignment, bytes, begin, space);
    all_.emplace_back(static_cast<const std::byte*>(begin), bytes);
    return begin;
  }
  std::span<const std::span<const std::byte>> all() const { return all_; }

  // The operands of a kernel's case: zeros, or the number of their range that is closest to zero.
  class Operands final : public cases::Operands {
   public:
    Operands(Arrays& arrays, std::vector<cases::Given> given) : cases::Operands(std::move(given)), arrays_(arrays) {}

   private:
    void* allocate(const cases::Operand& operand) override {
      void* const begin = arrays_.add(operand.bytes());
      const auto value = static_cast<float>(std::clamp(0.0, operand.range.low, operand.range.high));
      if (operand.is_read())
        visit_any(operand.dtype, [&]<class T>(Type<T>) { std::fill_n(static_cast<T*>(begin), operand.n, T(value)); });
      return begin;
    }

    Arrays& arrays_;
  };
  Operands operands(std::vector<cases::Given> given = {}) { return {*this, std::move(given)}; }

 private:
  std::vector<std::vector<std::byte>> rooms_;
  std::vector<std::span<const std::byte>> all_;
};

// Which kernel of the report a launch is.
struct Named {
  std::string launch, kernel;
};

class Report {
 public:
  void run(const Arrays& arrays, const std::vector<Named>& kernels, const std::function<void()>& launches) {
    std::map<std::string, Costs> found = count(arrays.all(), launches);
    for (const auto& [launch, kernel] : kernels) {
      const auto costs = found.find(launch);
      ISOBAR_CHECK(costs != found.end(), "counting ", kernel, ": nothing was launched as ", launch);
      counted_.push_back({kernel, std::move(costs->second)});
    }
  }
  std::vector<Counted>& counted() { return counted_; }

 private:
  std::vector<Counted> counted_;
};

struct Model {
  std::string name;
  std::int64_t width, head;
};

// ---- attention ------------------------------------------------------------------------------------------------------

// As many tokens over whole tiles of 64, 128 and 192 as 4050 are, which the pictures have.
constexpr std::int64_t kTokens = 210, kHeads = 2;

// Of the emulated GPU, while it lives.
class Capability {
 public:
  explicit Capability(int capability) : before_(emulator::capability()) { emulator::set_capability(capability); }
  ~Capability() { emulator::set_capability(before_); }
  Capability(const Capability&) = delete;
  Capability& operator=(const Capability&) = delete;

 private:
  int before_;
};

// Products of fp32 are in TF32.
std::string of_head(const std::string& kernel, const Model& model, DType dtype) {
  const char* const in = dtype == kBf16 ? "" : kernel == "attention_delta" ? " in fp32" : " in TF32";
  const char* const by = dtype == kBf16 && emulator::capability() == emulator::kHopper ? " by wgmma" : "";
  return kernel + in + by + " (" + model.name + ", head " + std::to_string(model.head) + ")";
}

AttentionShape shape_of(const Model& model) {
  return {1, kHeads, kTokens, kTokens, model.head};
}

// The names of three operands that are a fused product [T, 3, NH, HS], and where they lie in it.
std::vector<cases::Given> fused(Arrays& arrays, const Model& model, DType dtype, std::array<const char*, 3> names) {
  const std::size_t row = static_cast<std::size_t>(kHeads * model.head) * size_of(dtype);
  auto* const begin = static_cast<std::byte*>(arrays.add(kTokens * 3 * row));
  return {{names[0], begin}, {names[1], begin + row}, {names[2], begin + 2 * row}};
}

void attention_forward(Report& report, const Model& model, DType dtype) {
  Arrays arrays;
  const AttentionShape shape = shape_of(model);
  const std::int64_t stride = 3 * cases::attention_stride(shape);
  const AttentionFwdArgs a = cases::attention_fwd({.shape = shape,
                                                   .dtype = dtype,
                                                   .scale = cases::attention_scale(shape),
                                                   .tf32 = dtype == kFp32,
                                                   .dropout = {},
                                                   .q_stride = stride,
                                                   .k_stride = stride,
                                                   .v_stride = stride},
                                                  arrays.operands(fused(arrays, model, dtype, {"q", "k", "v"})));
  report.run(arrays, {{"attention_fwd", of_head("attention_fwd", model, dtype)}}, [&] { emulator::attention_fwd(a); });
}

void attention_backward(Report& report, const Model& model, DType dtype) {
  Arrays arrays;
  const AttentionShape shape = shape_of(model);
  const std::int64_t stride = 3 * cases::attention_stride(shape);
  std::vector<cases::Given> given = fused(arrays, model, dtype, {"q", "k", "v"});
  const std::vector<cases::Given> gradients = fused(arrays, model, dtype, {"dq", "dk", "dv"});
  given.insert(given.end(), gradients.begin(), gradients.end());
  const AttentionBwdArgs a = cases::attention_bwd({.shape = shape,
                                                   .dtype = dtype,
                                                   .scale = cases::attention_scale(shape),
                                                   .tf32 = dtype == kFp32,
                                                   .dropout = {},
                                                   .q_stride = stride,
                                                   .k_stride = stride,
                                                   .v_stride = stride,
                                                   .dq_stride = stride,
                                                   .dk_stride = stride,
                                                   .dv_stride = stride},
                                                  arrays.operands(given));
  std::vector<Named> kernels = {{"attention_dkdv", of_head("attention_dkdv", model, dtype)},
                                {"attention_dq", of_head("attention_dq", model, dtype)}};
  if (emulator::capability() == emulator::kAmpere)  // GPUs of 9.0 have the same
    kernels.push_back({"attention_delta", of_head("attention_delta", model, dtype)});
  report.run(arrays, kernels, [&] { emulator::attention_bwd(a); });
}

// ---- kernels that memory binds --------------------------------------------------------------------------------------

constexpr std::int64_t kRows = 130;

std::string of_columns(const std::string& kernel, const Model& model) {
  return kernel + " (" + model.name + ", " + std::to_string(model.width) + " columns)";
}

// Counts a kernel, which the report names `title`, on its case of arguments without operands: {.n = 3, ...}. `operands`
// belongs to `arrays`.
#define ISOBAR_COUNT(kernel, title, operands, ...)                                \
  do {                                                                            \
    const auto arguments = cases::kernel(__VA_ARGS__, operands);                  \
    report.run(arrays, {{#kernel, title}}, [&] { emulator::kernel(arguments); }); \
  } while (0)

void layernorm(Report& report, const Model& model) {
  Arrays arrays;
  ISOBAR_COUNT(layernorm_fwd, of_columns("layernorm_fwd", model), arrays.operands({"branch", "sum"}),
               {.rows = kRows, .cols = model.width, .dtype = kBf16});
  ISOBAR_COUNT(layernorm_bwd, of_columns("layernorm_bwd", model), arrays.operands({"dsum", "dbranch"}),
               {.rows = kRows, .cols = model.width, .dtype = kBf16});
}

void column_sum(Report& report, const Model& model) {
  Arrays arrays;
  ISOBAR_COUNT(column_sum, of_columns("column_sum", model), arrays.operands(),
               {.rows = 8 * kRows, .cols = model.width});
}

void gelu(Report& report, const Model& model) {
  Arrays arrays;
  const std::int64_t n = 4 * kRows * model.width;
  ISOBAR_COUNT(gelu_fwd, "gelu_fwd (" + model.name + ")", arrays.operands(), {.n = n, .dtype = kBf16});
  ISOBAR_COUNT(gelu_bwd, "gelu_bwd (" + model.name + ")", arrays.operands(), {.n = n, .dtype = kBf16});
}

void adam(Report& report, const Model& model) {
  Arrays arrays;
  const std::int64_t n = kRows * model.width;
  ISOBAR_COUNT(adam, "adam (" + model.name + ")", arrays.operands({"compute"}), {.n = n, .decay_end = n, .lr = 1e-3});
}

// ---- kernels around the transformer of `base` -----------------------------------------------------------------------

constexpr std::int64_t kBatch = 2, kChannels = 20, kHeight = 16, kWidth = 720, kPatch = 8;

void fields(Report& report) {
  Arrays arrays;
  ISOBAR_COUNT(normalize, "normalize (base)", arrays.operands(),
               {.batch = kBatch, .channels = kChannels, .height = kHeight, .width = kWidth});
  ISOBAR_COUNT(patchify, "patchify (base)", arrays.operands(),
               {.batch = kBatch,
                .channels = kChannels,
                .height = kHeight,
                .width = kWidth,
                .patch = kPatch,
                .token_dtype = kBf16});
  ISOBAR_COUNT(forecast_loss_sums, "forecast_loss_sums (base)", arrays.operands(),
               {.batch = kBatch, .channels = kChannels, .height = kHeight, .width = kWidth, .patch = kPatch});
  ISOBAR_COUNT(forecast_loss_bwd, "forecast_loss_bwd (base)", arrays.operands({"upstream"}),
               {.batch = kBatch,
                .channels = kChannels,
                .height = kHeight,
                .width = kWidth,
                .sample_size = kChannels * kHeight * kWidth,
                .patch = kPatch,
                .dpred_dtype = kBf16});
}

void passes(Report& report) {
  Arrays arrays;
  const std::int64_t n = kRows * 384;
  ISOBAR_COUNT(add_row, "add_row (base)", arrays.operands(), {.groups = kBatch, .n = n});
  ISOBAR_COUNT(cast, "cast (base)", arrays.operands(), {.n = n, .y_dtype = kBf16});
  ISOBAR_COUNT(sum_of_squares, "sum_of_squares (base)", arrays.operands(), {.n = n});
}

// ---- convolutions ---------------------------------------------------------------------------------------------------

// Two tiles of columns or more, and a few of rows.
void convolutions(Report& report) {
  Arrays arrays;
  const ConvShape shape{1, 128, 256, {{8, 8}, {8, 8, 3, 1, 1}, {8, 8, 3, 1, 1}}};
  const auto title = [](const std::string& kernel) { return kernel + " (256 to 512 channels)"; };
  ISOBAR_COUNT(conv_fwd, title("conv_fwd"), arrays.operands({"bias"}),
               {.shape = shape, .dtype = kBf16, .out_dtype = kBf16, .activation = Pointwise::leaky_relu});
  ISOBAR_COUNT(conv_bwd_data, title("conv_bwd_data"), arrays.operands(),
               {.shape = shape, .dtype = kBf16, .out_dtype = kBf16});
  ISOBAR_COUNT(conv_bwd_weight, title("conv_bwd_weight"), arrays.operands(), {.shape = shape, .dtype = kBf16});
}

}  // namespace

std::vector<Counted> count_kernels() {
  Report report;
  const Model base = {"base", 384, 48}, mp = {"mp", 1024, 128};
  for (const Model& model : {base, mp}) {
    for (const int capability : {emulator::kAmpere, emulator::kHopper}) {
      const Capability scope(capability);
      attention_forward(report, model, kBf16);
      attention_backward(report, model, kBf16);
    }
    layernorm(report, model);
    column_sum(report, model);
    gelu(report, model);
    adam(report, model);
  }
  attention_forward(report, base, kFp32);
  attention_backward(report, base, kFp32);
  fields(report);
  passes(report);
  convolutions(report);
  return std::move(report.counted());
}

}  // namespace isobar::accesses
