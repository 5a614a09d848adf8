// gemm on a GPU uses cuBLASLt. The emulator uses the CPU's gemm, since there is no CUDA kernel of our own.
//
// cuBLASLt is column-major. A row-major matrix is the transpose of a column-major one, so C = A·B is computed as Cᵀ =
// Bᵀ·Aᵀ: B comes first, m and n are exchanged, and a bias along n is along rows, as its epilogue requires.
//
// The algorithm of a product is the given one, else the fastest of the library's candidates if timing is allowed, else
// its first guess (algorithms.h). Sums of A (a_sums) are computed by the product, or by a separate kernel after it:
// this is part of the choice.
#include "kernels/gemm/gemm.h"

#if defined(ISOBAR_EMULATE) && !defined(ISOBAR_VIRTUAL_GPU)

#include "kernels/emulator/streams.h"

namespace isobar::emulator {

void gemm(const GemmArgs& g, Stream stream) {
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
#include "kernels/cuda/timing.h"
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

// ---- A problem for the library --------------------------------------------------------------------------------------

constexpr std::size_t kWorkspaceBytes = 32 << 20;  // as NVIDIA recommends for Hopper

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

// The text of a problem in files, for any device. If you change it, change kForm too.
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

// ---- State between calls --------------------------------------------------------------------------------------------

struct Algorithm {
  bool found = false;      // false: cuBLASLt has none for the problem
  bool is_chosen = false;  // given or timed; else it is the library's first guess
  // For a product with the epilogue BGRADB: sums_apart: a separate pass makes the sums (`choice` is empty then);
  // sums_are_chosen: this was given or timed.
  bool sums_apart = false, sums_are_chosen = false;
  cublasLtMatmulAlgo_t choice = {};
};

// State of one device.
struct Algorithms {
  std::map<Problem, Algorithm> met;
  GemmAlgorithms given;
  std::mutex choosing;  // one thread at a time chooses an algorithm: all threads use the same one
};

// No thread waits for the device, or launches, while it holds the mutex.
struct Cache {
  std::mutex mutex;
  std::map<int, cublasLtHandle_t> handles;  // by device
  std::map<int, Algorithms> algorithms;     // by device; elements never move

  Algorithms& of(int device) {
    const std::lock_guard lock(mutex);
    return algorithms[device];
  }
};

Cache& cache() {
  static Cache instance;
  return instance;
}

cublasLtHandle_t handle_of(int device) {
  const std::lock_guard lock(cache().mutex);
  cublasLtHandle_t& handle = cache().handles[device];
  if (handle == nullptr) check(lt().Create(&handle), "start");
  return handle;
}

// ---- The choice of an algorithm -------------------------------------------------------------------------------------

// In GemmAlgorithms, instead of an algorithm.
constexpr const char* kSumsApart = "sums apart";

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

// The library's candidates, its first guess first. It reads the alignment of the bias and of `pre` from the descriptor.
std::vector<Algorithm> ask_heuristic(const Problem& p, const Descriptors& d, int max_candidates) {
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
  // No vector: nvcc 13 cannot compile one.
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results = {};
  int found = 0;
  const cublasStatus_t status =
      lt().MatmulAlgoGetHeuristic(handle_of(p.device), d.product.get(), d.first.get(), d.second.get(), d.result.get(),
                                  d.result.get(), preference.get(), max_candidates, results.data(), &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  check(status, "choose an algorithm");
  std::vector<Algorithm> candidates;
  for (int i = 0; i < found; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = results[static_cast<std::size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) candidates.push_back({.found = true, .choice = result.algo});
  }
  return candidates;
}

std::string given_for(const Problem& p) {
  const std::string words = in_words(p);
  const std::lock_guard lock(cache().mutex);
  const GemmAlgorithms& given = cache().algorithms[p.device].given;
  const auto found = given.find(words);
  return found == given.end() ? "" : found->second;
}

// The algorithm given for the problem; not found if there is none, or if the library refuses it: it may come from any
// file.
Algorithm ask_given(const Problem& p, const Descriptors& d) {
  const std::string given = given_for(p);
  if (given == kSumsApart && p.epilogue == CUBLASLT_EPILOGUE_BGRADB)
    return {.found = true, .is_chosen = true, .sums_apart = true, .sums_are_chosen = true};
  const auto choice = from_hex(given);
  if (!choice) return {};
  cublasLtMatmulHeuristicResult_t result = {};
  const cublasStatus_t status = lt().MatmulAlgoCheck(handle_of(p.device), d.product.get(), d.first.get(),
                                                     d.second.get(), d.result.get(), d.result.get(), &*choice, &result);
  constexpr std::array kRefusals{CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_ARCH_MISMATCH};
  if (std::find(kRefusals.begin(), kRefusals.end(), status) != kRefusals.end()) return {};
  check(status, "check an algorithm");
  return {.found = result.workspaceSize <= p.workspace_bytes,
          .is_chosen = true,
          .sums_are_chosen = true,
          .choice = *choice};
}

// ---- One product ----------------------------------------------------------------------------------------------------

struct Outputs {
  void* c;
  void* pre;  // for an epilogue that stores it
  // In out_dtype. With the epilogue BGRADB it is an output: a_sums.
  const void* bias;
};

struct Workspace {
  char* data;
  std::size_t bytes;
};

Problem problem_of(const GemmArgs& g, int device, cublasLtEpilogue_t epilogue, const Outputs& out,
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

// A product as a call of cuBLASLt.
class Product {
 public:
  Product(const GemmArgs& g, int device, cublasLtEpilogue_t epilogue, const Outputs& out, const Workspace& workspace,
          Stream stream)
      : problem(problem_of(g, device, epilogue, out, workspace.bytes)),
        descriptors(problem),
        stream(stream),
        c(out.c),
        a_(g.a),
        b_(g.b),
        workspace_(workspace.data) {
    if (out.bias != nullptr) descriptors.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, out.bias);
    if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
      descriptors.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, out.pre);
      descriptors.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, g.n);
    }
  }

  // Writes to `to`, which is C or has C's layout.
  cublasStatus_t start(const Algorithm& algorithm, void* to) const {
    const float alpha = 1, beta = problem.accumulate ? 1 : 0;
    return lt().Matmul(handle_of(problem.device), descriptors.product.get(), &alpha, b_, descriptors.first.get(), a_,
                       descriptors.second.get(), &beta, to, descriptors.result.get(), to, descriptors.result.get(),
                       &algorithm.choice, workspace_, problem.workspace_bytes, static_cast<cudaStream_t>(stream));
  }
  void run(const Algorithm& algorithm) const { check(start(algorithm, c), "multiply"); }

  const Problem problem;
  Descriptors descriptors;
  const Stream stream;
  void* const c;

 private:
  const void *a_, *b_;
  char* workspace_;
};

// A timed product writes to C, which the real product overwrites. If that adds to C, timing writes to a copy.
template <class F>
auto with_an_output(const Product& product, const F& f) {
  const Problem& p = product.problem;
  if (!p.accumulate) return f(product.c);
  const std::size_t bytes = static_cast<std::size_t>(p.m * p.n) * size_of(p.out_dtype);
  const Scratch copy(bytes, p.device, product.stream);
  gpu::copy(copy.data(), product.c, bytes, {DeviceKind::cuda, p.device}, product.stream);
  return f(copy.data());
}

// The candidate with the shortest burst; the first one of a tie. A candidate that cannot run is skipped.
Algorithm fastest_of(const std::vector<Algorithm>& candidates, const Product& product, void* c) {
  Stopwatch stopwatch(product.stream);
  double min_so_far = std::numeric_limits<double>::infinity();
  Algorithm fastest;
  for (const Algorithm& candidate : candidates) {
    if (stopwatch.spent() > kMaxMilliseconds && fastest.found) break;
    const double milliseconds =
        stopwatch.best_of([&] { return product.start(candidate, c) == CUBLAS_STATUS_SUCCESS; }, min_so_far);
    if (milliseconds >= min_so_far) continue;
    min_so_far = milliseconds;
    fastest = candidate;
  }
  fastest.is_chosen = fastest.found;
  return fastest;
}

Algorithm choose(const Product& product, bool times) {
  const Problem& p = product.problem;
  if (const Algorithm given = ask_given(p, product.descriptors); given.found) return given;
  const std::vector<Algorithm> candidates = ask_heuristic(p, product.descriptors, times ? kCandidates : 1);
  if (candidates.empty()) return {};
  if (!times) return candidates[0];
  return with_an_output(product, [&](void* c) { return fastest_of(candidates, product, c); });
}

bool may_time(const Product& product) {
  return cuda::may_time(product.problem.device, product.stream);
}

std::optional<Algorithm> met(const Problem& p) {
  const std::lock_guard lock(cache().mutex);
  const auto& known = cache().algorithms[p.device].met;
  const auto found = known.find(p);
  return found == known.end() ? std::nullopt : std::optional(found->second);
}

Algorithm remember(const Problem& p, const Algorithm& algorithm) {
  const std::lock_guard lock(cache().mutex);
  return cache().algorithms[p.device].met[p] = algorithm;
}

// Chosen when the problem first occurs; a first guess is chosen again once candidates may be timed. The caller holds
// `choosing`.
Algorithm algorithm_for(const Product& product) {
  const auto known = met(product.problem);
  const bool is_guess = !known || (known->found && !known->is_chosen);
  const bool times = is_guess && may_time(product);
  if (known && !times) return *known;
  return remember(product.problem, choose(product, times));
}

// False if cuBLASLt has no algorithm for the problem with this epilogue.
bool multiply(const GemmArgs& g, int device, cublasLtEpilogue_t epilogue, const Outputs& out,
              const Workspace& workspace, Stream stream) {
  const Product product(g, device, epilogue, out, workspace, stream);
  const Algorithm algorithm = [&] {
    const std::lock_guard lock(cache().of(device).choosing);
    return algorithm_for(product);
  }();
  if (algorithm.found) product.run(algorithm);
  return algorithm.found;
}

void require(bool has_multiplied, const GemmArgs& g) {
  ISOBAR_CHECK(has_multiplied, "gemm: cuBLASLt has no algorithm for m=", g.m, " n=", g.n, " k=", g.k, " in ",
               name_of(g.in_dtype));
}

// The bias in the output's type, the only one that cuBLASLt adds; a 16-bit copy is made at the start of the workspace.
const void* bias_for(const GemmArgs& g, Workspace& workspace, Stream stream) {
  if (g.bias == nullptr || g.bias_dtype == g.out_dtype) return g.bias;
  constexpr std::size_t kAlignment = 256;
  const std::size_t used = round_up(static_cast<std::size_t>(g.n) * size_of(g.out_dtype), kAlignment);
  ISOBAR_CHECK(used <= workspace.bytes, "gemm: a bias of ", g.n, " elements is longer than the workspace");
  void* copy = workspace.data;
  cast({.n = g.n, .x_dtype = g.bias_dtype, .y_dtype = g.out_dtype, .x = g.bias, .y = copy}, stream);
  workspace.data += used;
  workspace.bytes -= used;
  return copy;
}

void check(const GemmArgs& g) {
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

void sum_apart(const GemmArgs& g, const Workspace& workspace, Stream stream) {
  ISOBAR_CHECK(column_sum_workspace(g.k, g.m, g.in_dtype) <= workspace.bytes, "gemm: ", g.m,
               " sums are more than the workspace");
  column_sum({.rows = g.k, .cols = g.m, .dtype = g.in_dtype, .x = g.a, .out = g.a_sums, .workspace = workspace.data},
             stream);
}

// Whether the product with sums is slower than a plain one and a pass for the sums. A plain product has more
// algorithms, such as split k, without which a product of few tiles leaves most of the GPU idle.
bool is_slower(const Product& with_sums, const Algorithm& of_sums, const Product& plain, const Algorithm& of_plain,
               const std::function<void()>& sum) {
  return with_an_output(plain, [&](void* c) {
    Stopwatch stopwatch(plain.stream);
    const double together = stopwatch.best_of([&] { return with_sums.start(of_sums, c) == CUBLAS_STATUS_SUCCESS; });
    const double apart = stopwatch.best_of([&] {
      const bool has_run = plain.start(of_plain, c) == CUBLAS_STATUS_SUCCESS;
      if (has_run) sum();
      return has_run;
    });
    return apart < together;
  });
}

// The product computes the sums if it can and is not slower; else they have their own pass.
void multiply_and_sum(const GemmArgs& g, int device, const Workspace& workspace, Stream stream) {
  const Product with_sums(g, device, CUBLASLT_EPILOGUE_BGRADB, {g.c, nullptr, g.a_sums}, workspace, stream);
  const Product plain(g, device, CUBLASLT_EPILOGUE_DEFAULT, {g.c, nullptr, nullptr}, workspace, stream);
  Algorithm algorithm, of_plain;
  {
    const std::lock_guard lock(cache().of(device).choosing);
    algorithm = algorithm_for(with_sums);
    const bool compares = algorithm.is_chosen && !algorithm.sums_are_chosen && may_time(with_sums);
    if (!algorithm.found || algorithm.sums_apart || compares) of_plain = algorithm_for(plain);
    if (compares) {
      const auto sum = [&] { sum_apart(g, workspace, stream); };
      algorithm.sums_apart = of_plain.found && is_slower(with_sums, algorithm, plain, of_plain, sum);
      algorithm.sums_are_chosen = true;
      remember(with_sums.problem, algorithm);
    }
  }
  if (algorithm.found && !algorithm.sums_apart) return with_sums.run(algorithm);
  require(of_plain.found, g);
  plain.run(of_plain);
  sum_apart(g, workspace, stream);
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

GemmAlgorithms gemm_algorithms_in_use(Device device) {
  const std::lock_guard lock(cache().mutex);
  GemmAlgorithms in_use;
  for (const auto& [problem, algorithm] : cache().algorithms[device.index].met)
    if (algorithm.is_chosen) in_use[in_words(problem)] = algorithm.sums_apart ? kSumsApart : to_hex(algorithm.choice);
  return in_use;
}

void gemm(const GemmArgs& g, Stream stream) {
  check(g);
  if (g.m == 0 || g.n == 0) return;
  int device = 0;
  check(cudaGetDevice(&device), "name the current device");
  // Products on one stream run one after another, so they can share it.
  Workspace workspace{static_cast<char*>(gpu::workspace(kWorkspaceBytes, device, stream)), kWorkspaceBytes};
  if (g.a_sums != nullptr) return multiply_and_sum(g, device, workspace, stream);
  const void* bias = bias_for(g, workspace, stream);

  // tanh GELU is an epilogue, whose tanh errs by up to 2^-11 of its value (tanh.approx of the PTX ISA, as measured on
  // an H100): exact enough for bf16. It stores `pre` only if its rows are multiples of 16 bytes.
  constexpr std::int64_t kAuxAlignment = 8;
  if (g.activation == Activation::gelu_tanh && g.out_dtype == DType::bf16 &&
      (g.pre == nullptr || g.n % kAuxAlignment == 0)) {
    const auto epilogue = g.pre != nullptr
                              ? (bias != nullptr ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX)
                              : (bias != nullptr ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU);
    if (multiply(g, device, epilogue, {g.c, g.pre, bias}, workspace, stream)) return;
  }

  // Otherwise the product goes to `pre`, or to C if `pre` is not wanted, and the activation follows.
  void* product = g.pre != nullptr ? g.pre : g.c;
  const auto epilogue = bias != nullptr ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  require(multiply(g, device, epilogue, {product, nullptr, bias}, workspace, stream), g);
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
