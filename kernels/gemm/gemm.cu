// gemm on a GPU goes through cuBLASLt; the emulator uses the CPU's, since there is no kernel of ours to run.
//
// cuBLASLt is column-major. A row-major matrix is the transpose of a column-major one, so C = A·B is computed as
// Cᵀ = Bᵀ·Aᵀ: B comes first, m and n change places, and a bias along n runs along rows, as its epilogue wants it.
//
// The algorithm of a product is one that was given, else the fastest of the library's candidates, where they may be
// timed, else its first guess (algorithms.h).
#include "kernels/gemm/gemm.h"

#if defined(ISOBAR_EMULATE) && !defined(ISOBAR_VIRTUAL_GPU)

#include "kernels/emulator/streams.h"

namespace isobar::emulator {

void gemm(const Gemm& g, Stream stream) {
  submit(stream, [g] { cpu::gemm(g); });
}

}  // namespace isobar::emulator

#else

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/column_sum.h"
#include "kernels/common/check.h"
#include "kernels/common/math.h"
#include "kernels/cuda/library.h"
#include "kernels/cuda/runtime.h"
#include "kernels/elementwise.h"
#include "kernels/gelu.h"
#include "kernels/gemm/algorithms.h"

namespace isobar::cuda {

namespace {

// ---- The library ----------------------------------------------------------------------------------------------------

struct CublasLt {
#define ISOBAR_CUBLASLT(function) \
  decltype(&cublasLt##function) function = library.get<decltype(&cublasLt##function)>("cublasLt" #function)
  gpu::Library library{"libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR)};
  ISOBAR_CUBLASLT(Create);
  ISOBAR_CUBLASLT(GetStatusString);
  ISOBAR_CUBLASLT(GetVersion);
  ISOBAR_CUBLASLT(Matmul);
  ISOBAR_CUBLASLT(MatmulAlgoCheck);
  ISOBAR_CUBLASLT(MatmulAlgoGetHeuristic);
  ISOBAR_CUBLASLT(MatmulDescCreate);
  ISOBAR_CUBLASLT(MatmulDescDestroy);
  ISOBAR_CUBLASLT(MatmulDescSetAttribute);
  ISOBAR_CUBLASLT(MatmulPreferenceCreate);
  ISOBAR_CUBLASLT(MatmulPreferenceDestroy);
  ISOBAR_CUBLASLT(MatmulPreferenceSetAttribute);
  ISOBAR_CUBLASLT(MatrixLayoutCreate);
  ISOBAR_CUBLASLT(MatrixLayoutDestroy);
#undef ISOBAR_CUBLASLT
};

const CublasLt& lt() {
  static const CublasLt functions;
  return functions;
}

void check(cublasStatus_t status, const char* what) {
  ISOBAR_CHECK(status == CUBLAS_STATUS_SUCCESS, "gemm: cuBLASLt could not ", what, ": ", lt().GetStatusString(status));
}

void check(cudaError_t status, const char* what) {
  ISOBAR_CHECK(status == cudaSuccess, "gemm: CUDA could not ", what, ": ", cudaGetErrorString(status));
}

// One of the library's descriptors, destroyed with its owner.
template <class Handle>
class Owned {
 public:
  using Destroy = cublasStatus_t (*)(Handle);
  explicit Owned(Destroy destroy) : destroy_(destroy) {}
  ~Owned() {
    if (handle_ != nullptr) destroy_(handle_);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  Handle* out() { return &handle_; }
  Handle get() const { return handle_; }

 private:
  Destroy destroy_;
  Handle handle_ = nullptr;
};

// ---- What is asked of it --------------------------------------------------------------------------------------------

constexpr std::size_t kWorkspaceBytes = 32 << 20;  // what its Hopper kernels want

// Everything that the choice of an algorithm may depend on.
struct Problem {
  int device = 0;
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false, tf32 = false, accumulate = false;
  DType in_dtype = DType::fp32, out_dtype = DType::fp32;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::uint32_t a_alignment = 0, b_alignment = 0, c_alignment = 0, bias_alignment = 0, pre_alignment = 0;
  std::size_t workspace_bytes = 0;
  auto operator<=>(const Problem&) const = default;
};

// As files have it, for any device: whoever changes it changes kForm too.
constexpr int kForm = 1;
std::string in_words(const Problem& p) {
  return concat(p.m, " x ", p.n, " x ", p.k, p.transpose_a ? ", A transposed" : "",
                p.transpose_b ? ", B transposed" : "", ", ", name_of(p.in_dtype), " to ", name_of(p.out_dtype),
                p.tf32 ? ", tf32" : "", p.accumulate ? ", added" : "", ", epilogue ", static_cast<int>(p.epilogue),
                ", aligned to ", p.a_alignment, ' ', p.b_alignment, ' ', p.c_alignment, ' ', p.bias_alignment, ' ',
                p.pre_alignment, ", workspace ", p.workspace_bytes);
}

std::uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  std::uint32_t bytes = 256;
  while (address % bytes != 0) bytes /= 2;
  return bytes;
}

cudaDataType_t native(DType dtype) {
  return dtype == DType::bf16 ? CUDA_R_16BF : dtype == DType::fp16 ? CUDA_R_16F : CUDA_R_32F;
}

// The operands as cuBLASLt sees them: its first is our B, its second our A, its result our Cᵀ.
struct Descriptors {
  Owned<cublasLtMatmulDesc_t> product{lt().MatmulDescDestroy};
  Owned<cublasLtMatrixLayout_t> first{lt().MatrixLayoutDestroy}, second{lt().MatrixLayoutDestroy},
      result{lt().MatrixLayoutDestroy};

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check(lt().MatmulDescSetAttribute(product.get(), attribute, &value, sizeof value), "describe a product");
  }

  explicit Descriptors(const Problem& p) {
    const auto compute = p.in_dtype == DType::fp32 && p.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    check(lt().MatmulDescCreate(product.out(), compute, CUDA_R_32F), "describe a product");
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue);
    layout(first, p.in_dtype, p.transpose_b ? p.k : p.n, p.transpose_b ? p.n : p.k);
    layout(second, p.in_dtype, p.transpose_a ? p.m : p.k, p.transpose_a ? p.k : p.m);
    layout(result, p.out_dtype, p.n, p.m);
  }

 private:
  static void layout(Owned<cublasLtMatrixLayout_t>& matrix, DType dtype, std::int64_t rows, std::int64_t columns) {
    check(lt().MatrixLayoutCreate(matrix.out(), native(dtype), static_cast<std::uint64_t>(rows),
                                  static_cast<std::uint64_t>(columns), rows),
          "describe a matrix");
  }
};

// ---- What is kept between calls -------------------------------------------------------------------------------------

struct Algorithm {
  bool found = false;      // false: cuBLASLt has none for the problem
  bool is_chosen = false;  // given or timed; else it is the library's first guess
  cublasLtMatmulAlgo_t choice = {};
};

// Of one device.
struct Algorithms {
  std::map<Problem, Algorithm> met;
  GemmAlgorithms given;
  int timings = 0;  // GemmTiming that live
};

struct Cache {
  std::mutex mutex;
  std::map<int, cublasLtHandle_t> handles;  // of each device
  std::map<int, Algorithms> algorithms;
};

Cache& cache() {
  static Cache instance;
  return instance;
}

cublasLtHandle_t handle_of(int device) {
  cublasLtHandle_t& handle = cache().handles[device];
  if (handle == nullptr) check(lt().Create(&handle), "start");
  return handle;
}

// ---- The choice of an algorithm -------------------------------------------------------------------------------------

constexpr int kCandidates = 16;           // that are timed at most
constexpr int kRuns = 3;                  // of each, behind one that nobody counts
constexpr double kMostMilliseconds = 30;  // that timing takes; then the rest of the candidates are left out

std::string to_hex(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text;
  for (const std::uint64_t word : algorithm.data) {
    std::array<char, 17> digits;
    std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(word));
    text += digits.data();
  }
  return text;
}

std::optional<cublasLtMatmulAlgo_t> from_hex(const std::string& text) {
  constexpr std::size_t kDigits = 16;  // of a word
  cublasLtMatmulAlgo_t algorithm{};
  if (text.size() != kDigits * std::size(algorithm.data)) return std::nullopt;
  if (text.find_first_not_of("0123456789abcdef") != std::string::npos) return std::nullopt;
  for (std::size_t i = 0; i < std::size(algorithm.data); ++i)
    algorithm.data[i] = std::stoull(text.substr(i * kDigits, kDigits), nullptr, 16);
  return algorithm;
}

// The library's candidates, its first guess first. It looks at the alignment of the bias and of `pre` in the
// descriptor.
std::vector<Algorithm> ask_heuristic(const Problem& p, const Descriptors& d, int most) {
  Owned<cublasLtMatmulPreference_t> preference{lt().MatmulPreferenceDestroy};
  check(lt().MatmulPreferenceCreate(preference.out()), "state a preference");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check(lt().MatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value), "state a preference");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{p.workspace_bytes});
  // Partial sums of split k are kept in fp32 and added in a fixed order.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.b_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.a_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.c_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.c_alignment);
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results = {};  // no vector: nvcc 13 cannot compile one
  int found = 0;
  const cublasStatus_t status =
      lt().MatmulAlgoGetHeuristic(handle_of(p.device), d.product.get(), d.first.get(), d.second.get(), d.result.get(),
                                  d.result.get(), preference.get(), most, results.data(), &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  check(status, "choose an algorithm");
  std::vector<Algorithm> candidates;
  for (int i = 0; i < found; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = results[static_cast<std::size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) candidates.push_back({.found = true, .choice = result.algo});
  }
  return candidates;
}

// One that was given for the problem; not found where none was, or where the library refuses it: it may come from
// anybody's file.
Algorithm ask_given(const Problem& p, const Descriptors& d) {
  const GemmAlgorithms& given = cache().algorithms[p.device].given;
  const auto text = given.find(in_words(p));
  const auto choice = text == given.end() ? std::nullopt : from_hex(text->second);
  if (!choice) return {};
  cublasLtMatmulHeuristicResult_t result = {};
  const cublasStatus_t status = lt().MatmulAlgoCheck(handle_of(p.device), d.product.get(), d.first.get(),
                                                     d.second.get(), d.result.get(), d.result.get(), &*choice, &result);
  constexpr std::array kRefusals{CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_ARCH_MISMATCH};
  if (std::find(kRefusals.begin(), kRefusals.end(), status) != kRefusals.end()) return {};
  check(status, "check an algorithm");
  return {.found = result.workspaceSize <= p.workspace_bytes, .is_chosen = true, .choice = *choice};
}

using Multiply = std::function<void(const cublasLtMatmulAlgo_t& algorithm, void* c)>;

// The candidate whose fastest run is the shortest; of equal ones the first. They run into `c`.
Algorithm fastest_of(const std::vector<Algorithm>& candidates, const Multiply& multiply, void* c, Stream stream) {
  if (candidates.size() < 2) return candidates.empty() ? Algorithm() : candidates[0];
  gpu::Timer timer;
  double least = std::numeric_limits<double>::max(), spent = 0;
  const Algorithm* fastest = nullptr;
  for (const Algorithm& candidate : candidates) {
    if (spent > kMostMilliseconds) break;
    for (int run = 0; run <= kRuns; ++run) {
      timer.start(stream);
      multiply(candidate.choice, c);
      const double milliseconds = timer.stop(stream);
      spent += milliseconds;
      if (run == 0 || milliseconds >= least) continue;
      least = milliseconds;
      fastest = &candidate;
    }
  }
  return *fastest;
}

// Memory that is allocated and freed in the order of a stream.
class Scratch {
 public:
  Scratch(std::size_t bytes, int device, Stream stream)
      : stream_(stream), data_(gpu::allocate(bytes, device, stream)) {}
  ~Scratch() { gpu::free(data_, stream_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* data() const { return data_; }

 private:
  Stream stream_;
  void* data_;
};

// What the candidates write, the product writes again. Only where it adds to C they have a copy of it.
Algorithm time_candidates(const Problem& p, const Descriptors& d, const Multiply& multiply, void* c, Stream stream) {
  const std::vector<Algorithm> candidates = ask_heuristic(p, d, kCandidates);
  Algorithm chosen;
  if (p.accumulate) {
    const std::size_t bytes = static_cast<std::size_t>(p.m * p.n) * size_of(p.out_dtype);
    const Scratch copy(bytes, p.device, stream);
    gpu::copy(copy.data(), c, bytes, {DeviceKind::cuda, p.device}, stream);
    chosen = fastest_of(candidates, multiply, copy.data(), stream);
  } else {
    chosen = fastest_of(candidates, multiply, c, stream);
  }
  chosen.is_chosen = chosen.found;
  return chosen;
}

Algorithm choose(const Problem& p, const Descriptors& d, bool times, const Multiply& multiply, void* c, Stream stream) {
  if (const Algorithm given = ask_given(p, d); given.found) return given;
  if (times) return time_candidates(p, d, multiply, c, stream);
  const std::vector<Algorithm> candidates = ask_heuristic(p, d, 1);
  return candidates.empty() ? Algorithm() : candidates[0];
}

// Chosen when the problem is met for the first time; a first guess once more when candidates may be timed.
const Algorithm& algorithm_for(const Problem& p, const Descriptors& d, const Multiply& multiply, void* c,
                               Stream stream) {
  Algorithms& algorithms = cache().algorithms[p.device];
  const auto known = algorithms.met.find(p);
  const bool is_guess = known == algorithms.met.end() || (known->second.found && !known->second.is_chosen);
  const bool times = algorithms.timings > 0 && is_guess && !gpu::is_captured(stream);
  if (known != algorithms.met.end() && !times) return known->second;
  return algorithms.met[p] = choose(p, d, times, multiply, c, stream);
}

// ---- One product ----------------------------------------------------------------------------------------------------

struct Outputs {
  void* c;
  void* pre;         // for an epilogue that stores it
  const void* bias;  // in out_dtype; with the epilogue BGRADB it is written: a_sums
};

Problem problem_of(const Gemm& g, int device, cublasLtEpilogue_t epilogue, const Outputs& out,
                   std::size_t workspace_bytes) {
  return {.device = device,
          .m = g.m,
          .n = g.n,
          .k = g.k,
          .transpose_a = g.transpose_a,
          .transpose_b = g.transpose_b,
          .tf32 = g.tf32,
          .accumulate = g.mode == Grad::accumulate,
          .in_dtype = g.in_dtype,
          .out_dtype = g.out_dtype,
          .epilogue = epilogue,
          .a_alignment = alignment_of(g.a),
          .b_alignment = alignment_of(g.b),
          .c_alignment = alignment_of(out.c),
          .bias_alignment = alignment_of(out.bias),
          .pre_alignment = alignment_of(out.pre),
          .workspace_bytes = workspace_bytes};
}

// False when cuBLASLt has no algorithm for the problem, with this epilogue.
bool multiply(const Gemm& g, int device, cublasLtEpilogue_t epilogue, const Outputs& out, char* workspace,
              std::size_t workspace_bytes, Stream stream) {
  const Problem problem = problem_of(g, device, epilogue, out, workspace_bytes);
  Descriptors d(problem);
  if (out.bias != nullptr) d.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, out.bias);
  if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
    d.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, out.pre);
    d.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, g.n);
  }
  const float alpha = 1, beta = g.mode == Grad::accumulate ? 1 : 0;
  const Multiply run = [&](const cublasLtMatmulAlgo_t& algorithm, void* c) {
    check(lt().Matmul(handle_of(device), d.product.get(), &alpha, g.b, d.first.get(), g.a, d.second.get(), &beta, c,
                      d.result.get(), c, d.result.get(), &algorithm, workspace, workspace_bytes,
                      static_cast<cudaStream_t>(stream)),
          "multiply");
  };
  const Algorithm& algorithm = algorithm_for(problem, d, run, out.c, stream);
  if (algorithm.found) run(algorithm.choice, out.c);
  return algorithm.found;
}

void require(bool has_multiplied, const Gemm& g) {
  ISOBAR_CHECK(has_multiplied, "gemm: cuBLASLt has no algorithm for m=", g.m, " n=", g.n, " k=", g.k, " in ",
               name_of(g.in_dtype));
}

// The bias in the type of the output, the only one cuBLASLt adds; a 16-bit copy is made at the start of the workspace.
const void* bias_for(const Gemm& g, char*& workspace, std::size_t& bytes, Stream stream) {
  if (g.bias == nullptr || g.bias_dtype == g.out_dtype) return g.bias;
  constexpr std::size_t kAlignment = 256;
  const std::size_t used = round_up(static_cast<std::size_t>(g.n) * size_of(g.out_dtype), kAlignment);
  ISOBAR_CHECK(used <= bytes, "gemm: a bias of ", g.n, " elements is longer than the workspace");
  void* copy = workspace;
  cast({.n = g.n, .x_dtype = g.bias_dtype, .y_dtype = g.out_dtype, .x = g.bias, .y = copy}, stream);
  workspace += used;
  bytes -= used;
  return copy;
}

void check(const Gemm& g) {
  ISOBAR_CHECK(g.in_dtype != DType::i32 && g.in_dtype != DType::fp64 &&
                   (g.out_dtype == g.in_dtype || g.out_dtype == DType::fp32),
               "gemm: a GPU cannot multiply ", name_of(g.in_dtype), " into ", name_of(g.out_dtype));
  ISOBAR_CHECK(g.m >= 0 && g.n >= 0 && g.k >= 1, "gemm: bad sizes m=", g.m, " n=", g.n, " k=", g.k);
  ISOBAR_CHECK(g.mode == Grad::overwrite || (g.bias == nullptr && g.pre == nullptr && g.activation == Activation::none),
               "gemm: bias and activation cannot be combined with accumulation");
  ISOBAR_CHECK(g.bias == nullptr || g.bias_dtype == DType::fp32 || g.bias_dtype == g.out_dtype, "gemm: cannot add a ",
               name_of(g.bias_dtype), " bias to ", name_of(g.out_dtype));
  ISOBAR_CHECK(g.a_sums == nullptr || (g.transpose_a && g.out_dtype == DType::fp32 && g.bias == nullptr &&
                                       g.pre == nullptr && g.activation == Activation::none),
               "gemm: sums of A on the way need a transposed A, an output in fp32, no bias and no activation");
}

// Where no algorithm makes the sums on the way, they take a pass of their own.
void multiply_and_sum(const Gemm& g, int device, char* workspace, std::size_t bytes, Stream stream) {
  if (multiply(g, device, CUBLASLT_EPILOGUE_BGRADB, {g.c, nullptr, g.a_sums}, workspace, bytes, stream)) return;
  require(multiply(g, device, CUBLASLT_EPILOGUE_DEFAULT, {g.c, nullptr, nullptr}, workspace, bytes, stream), g);
  ISOBAR_CHECK(column_sum_workspace(g.k, g.m, g.in_dtype) <= bytes, "gemm: ", g.m, " sums are more than the workspace");
  column_sum({.rows = g.k, .cols = g.m, .dtype = g.in_dtype, .x = g.a, .out = g.a_sums, .workspace = workspace},
             stream);
}

}  // namespace

std::string gemm_platform(Device device) {
  return concat(gpu::describe(device.index).name, ", cuBLASLt ", lt().GetVersion(), ", form ", kForm);
}

void use_gemm_algorithms(Device device, GemmAlgorithms algorithms) {
  const std::lock_guard lock(cache().mutex);
  cache().algorithms[device.index].given = std::move(algorithms);
  cache().algorithms[device.index].met.clear();
}

GemmTiming::GemmTiming(Device device) : device_(device) {
  const std::lock_guard lock(cache().mutex);
  ++cache().algorithms[device.index].timings;
}

GemmTiming::~GemmTiming() {
  const std::lock_guard lock(cache().mutex);
  --cache().algorithms[device_.index].timings;
}

GemmAlgorithms gemm_algorithms_in_use(Device device) {
  const std::lock_guard lock(cache().mutex);
  GemmAlgorithms in_use;
  for (const auto& [problem, algorithm] : cache().algorithms[device.index].met)
    if (algorithm.is_chosen) in_use[in_words(problem)] = to_hex(algorithm.choice);
  return in_use;
}

void gemm(const Gemm& g, Stream stream) {
  check(g);
  if (g.m == 0 || g.n == 0) return;
  const std::lock_guard lock(cache().mutex);
  int device = 0;
  check(cudaGetDevice(&device), "name the current device");
  // Products on one stream follow each other, so they can share it.
  char* workspace = static_cast<char*>(gpu::workspace(kWorkspaceBytes, device, stream));
  std::size_t bytes = kWorkspaceBytes;
  if (g.a_sums != nullptr) return multiply_and_sum(g, device, workspace, bytes, stream);
  const void* bias = bias_for(g, workspace, bytes, stream);

  // tanh GELU is an epilogue; it stores `pre` only when its rows are 16-byte multiples.
  constexpr std::int64_t kAuxAlignment = 8;
  if (g.activation == Activation::gelu_tanh && (g.pre == nullptr || g.n % kAuxAlignment == 0)) {
    const auto epilogue = g.pre != nullptr
                              ? (bias != nullptr ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX)
                              : (bias != nullptr ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU);
    if (multiply(g, device, epilogue, {g.c, g.pre, bias}, workspace, bytes, stream)) return;
  }

  // Otherwise the product goes to `pre`, or to C where nobody wants `pre`, and the activation follows.
  void* product = g.pre != nullptr ? g.pre : g.c;
  const auto epilogue = bias != nullptr ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  require(multiply(g, device, epilogue, {product, nullptr, bias}, workspace, bytes, stream), g);
  if (g.activation != Activation::none) {
    gelu_fwd({.n = g.m * g.n, .dtype = g.out_dtype, .kind = g.activation, .x = product, .y = g.c}, stream);
  } else if (product != g.c) {
    check(cudaMemcpyAsync(g.c, product, static_cast<std::size_t>(g.m * g.n) * size_of(g.out_dtype),
                          cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(stream)),
          "copy a product");
  }
}

}  // namespace isobar::cuda

#endif
