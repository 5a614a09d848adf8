// libcublasLt.so.13 for the virtual GPU: products by plain loops. It refuses what cuBLASLt would refuse, and calls by
// which cuBLASLt would compute something other than intended. The rules are those in the comments of NVIDIA's
// cublasLt.h.
#include <cublasLt.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>

#include "kernels/common/dtype.h"
#include "lab/stand_ins/cuda/library.h"
#include "tests/harness/tensor_core.h"

struct cublasLtContext {};
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  void* aux = nullptr;
  std::int64_t aux_ld = 0;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  std::uint64_t rows, columns;
  std::int64_t ld;
  friend bool operator==(const cublasLtMatrixLayoutOpaque_t&, const cublasLtMatrixLayoutOpaque_t&) = default;
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace = 0;
  std::uint32_t reduction = ~0u;
  std::uint32_t alignment_a = 256, alignment_b = 256, alignment_c = 256, alignment_d = 256;
};

namespace isobar::virtual_gpu {
namespace {

using Product = cublasLtMatmulDescOpaque_t;
using Layout = cublasLtMatrixLayoutOpaque_t;

constexpr std::uint32_t kMaxAlignment = 16;  // required by a kernel
constexpr int kVariants = 3;                 // of an algorithm: the number of partial sums over k

Driver& loaded_driver() {
  return virtual_gpu::loaded_driver("libcublasLt");
}

thread_local std::string answer;

cublasStatus_t status_of(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return CUBLAS_STATUS_SUCCESS;
    case cudaErrorInvalidValue:
      return CUBLAS_STATUS_INVALID_VALUE;
    case cudaErrorMemoryAllocation:
      return CUBLAS_STATUS_ALLOC_FAILED;
    case cudaErrorNotSupported:
      return CUBLAS_STATUS_NOT_SUPPORTED;
    default:
      return CUBLAS_STATUS_INTERNAL_ERROR;
  }
}

cublasStatus_t answer_to(const char* function, const std::function<void()>& body) {
  return status_of(loaded_driver().call(function, body));
}

// ---- The product that an algorithm was chosen for -------------------------------------------------------------------

bool has_bias(cublasLtEpilogue_t epilogue) {
  return (epilogue & CUBLASLT_EPILOGUE_BIAS) == CUBLASLT_EPILOGUE_BIAS;
}
bool has_gelu(cublasLtEpilogue_t epilogue) {
  return (epilogue & CUBLASLT_EPILOGUE_GELU) != 0;
}
// The bias is then an output: the sums over k of op(B)'s columns.
bool has_bias_gradient(cublasLtEpilogue_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_BGRADB;
}
bool has_aux(cublasLtEpilogue_t epilogue) {
  return (epilogue & 128) != 0;
}

// Hashes the shapes and types of a product.
std::uint64_t shape_of(const Product& product, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  std::uint64_t sum = mix(mix(mix(product.compute, product.transpose_a), product.transpose_b), product.epilogue);
  for (const Layout* layout : {&a, &b, &c, &d})
    sum = mix(mix(mix(mix(sum, layout->type), layout->rows), layout->columns), static_cast<std::uint64_t>(layout->ld));
  return mix(sum, static_cast<std::uint64_t>(product.aux_ld));
}

std::uint32_t alignment_of(const void* data) {
  std::uint32_t bytes = kMaxAlignment;
  while (reinterpret_cast<std::uintptr_t>(data) % bytes != 0) bytes /= 2;
  return bytes;
}

// The contents of cublasLtMatmulAlgo_t::data, which is opaque to the program.
struct Algorithm {
  std::uint64_t shape;
  std::uint32_t a, b, c, d, bias, aux;  // minimum alignments
  std::uint64_t workspace;
  std::uint64_t variant;  // k is summed in variant + 1 interleaved parts, which are added at the end
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

// Simulated: at least 10 microseconds.
double milliseconds_of(const Algorithm& algorithm) {
  const std::uint64_t seed = environment_number("ISOBAR_VIRTUAL_GPU_DURATIONS", 0);
  const std::uint64_t drawn = mix(mix(mix(seed, algorithm.shape), algorithm.variant), 0) >> 40;
  return 0.01 * static_cast<double>(1 + drawn % 100);
}

// ---- Which products are allowed -------------------------------------------------------------------------------------

std::size_t size_of(cudaDataType_t type) {
  return type == CUDA_R_32F ? 4 : 2;
}

std::uint64_t bytes_of(const Layout& layout) {
  return layout.columns == 0
             ? 0
             : ((layout.columns - 1) * static_cast<std::uint64_t>(layout.ld) + layout.rows) * size_of(layout.type);
}

void check_product(const Product& product, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  const auto wrong = [](const auto&... parts) { misuse(cudaErrorInvalidValue, "a product: ", parts...); };
  const bool ta = product.transpose_a == CUBLAS_OP_T, tb = product.transpose_b == CUBLAS_OP_T;
  const std::uint64_t m = ta ? a.columns : a.rows, k = ta ? a.rows : a.columns;
  const std::uint64_t n = tb ? b.rows : b.columns, k_of_b = tb ? b.columns : b.rows;
  if (k != k_of_b) wrong("op(A) has ", k, " columns, op(B) ", k_of_b, " rows");
  if (d.rows != m || d.columns != n) wrong("D is ", d.rows, " x ", d.columns, ", should be ", m, " x ", n);
  if (!(c == d)) wrong("C and D have different layouts");
  for (const Layout* layout : {&a, &b, &d})
    if (layout->ld < static_cast<std::int64_t>(layout->rows))
      wrong("a matrix of ", layout->rows, " rows has a leading dimension of ", layout->ld);
  if (a.type != b.type) wrong("A and B have different types");
  if (d.type != a.type && d.type != CUDA_R_32F) wrong("D has neither the type of A nor fp32");
  if (product.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a.type != CUDA_R_32F)
    wrong("TF32 is asked for operands that are not fp32");
  if (has_bias(product.epilogue) && product.bias == nullptr) wrong("the epilogue adds a bias that nobody has given");
  if (has_bias_gradient(product.epilogue) && product.bias == nullptr)
    wrong("the epilogue writes the gradient of a bias to memory that nobody has given");
  if (has_aux(product.epilogue) && product.aux == nullptr)
    wrong("the epilogue writes to a buffer that nobody has given");
}

// Whether cuBLASLt has kernels for it. (The real one has the gradient of a bias in fp32 too. It is missing here to test
// that case.)
bool is_supported(const Product& product, const Layout& a, const Layout& d) {
  if (has_bias_gradient(product.epilogue)) return a.type != CUDA_R_32F;
  if (!has_aux(product.epilogue)) return true;
  return d.type != CUDA_R_32F && product.aux_ld % 8 == 0 && product.aux_ld >= static_cast<std::int64_t>(d.rows);
}

// ---- The numbers ----------------------------------------------------------------------------------------------------

DType dtype_of(cudaDataType_t type) {
  return type == CUDA_R_32F ? DType::fp32 : type == CUDA_R_16BF ? DType::bf16 : DType::fp16;
}

float load(const std::byte* data, std::uint64_t i, cudaDataType_t type) {
  return virtual_gpu::load(data, i, dtype_of(type));
}

void store(std::byte* data, std::uint64_t i, cudaDataType_t type, float value) {
  virtual_gpu::store(data, i, dtype_of(type), value);
}

// op(matrix) as an array: row i, column j is at [i * columns + j].
std::vector<float> read(const std::byte* data, const Layout& layout, bool transpose, bool tf32) {
  const std::uint64_t rows = transpose ? layout.columns : layout.rows,
                      columns = transpose ? layout.rows : layout.columns;
  const auto ld = static_cast<std::uint64_t>(layout.ld);
  std::vector<float> values(rows * columns);
  for (std::uint64_t i = 0; i < rows; ++i)
    for (std::uint64_t j = 0; j < columns; ++j) {
      const float value = load(data, transpose ? i * ld + j : j * ld + i, layout.type);
      values[i * columns + j] = tf32 ? round_to_tf32(value) : value;
    }
  return values;
}

// The tanh of an epilogue errs by up to 2^-11 of its value (as measured on an H100): this one is cut off behind as many
// bits.
float tanh_approx(float x) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(std::tanh(x)) & 0xfffff000u);
}

float gelu_tanh(float x) {
  constexpr float kRootOf2ByPi = 0.7978845608028654f;
  return 0.5f * x * (1 + tanh_approx(kRootOf2ByPi * (x + 0.044715f * x * x * x)));
}

// The operands of a product, by value: the descriptors are destroyed before it runs.
struct Task {
  Product product;
  Layout a, b, d;
  float alpha, beta;
  const void *a_data, *b_data, *c_data;
  void* d_data;
  std::uint64_t variant = 0;
};

// Row i of op(A) times column j of op(B), over a part of k in ascending order: every parts-th term from `first` on.
struct Dot {
  const std::vector<float>&a, &b;
  std::uint64_t n, k, parts;
  bool on_tensor_cores;

  float of(std::uint64_t i, std::uint64_t j, std::uint64_t first) const {
    float plain = 0;
    testing::TensorCoreSum cut;
    for (std::uint64_t p = first; p < k; p += parts) {
      if (on_tensor_cores)
        cut.add_product(a[i * k + p], b[p * n + j]);
      else
        plain += a[i * k + p] * b[p * n + j];
    }
    return on_tensor_cores ? cut.sum() : plain;
  }
};

// D = alpha * op(A) * op(B) + beta * C in the parts of its variant, in fp32 or as tensor cores add; then the epilogue.
void multiply(const Task& t, Driver& driver) {
  const bool tf32 = t.product.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const std::vector<float> a = read(driver.view(t.a_data), t.a, t.product.transpose_a == CUBLAS_OP_T, tf32);
  const std::vector<float> b = read(driver.view(t.b_data), t.b, t.product.transpose_b == CUBLAS_OP_T, tf32);
  const std::uint64_t m = t.d.rows, n = t.d.columns, k = m == 0 ? 0 : a.size() / m;
  const auto ld = static_cast<std::uint64_t>(t.d.ld);
  std::byte* d = driver.view(t.d_data);
  const Dot dot{a, b, n, k, /*parts=*/t.variant + 1, /*on_tensor_cores=*/tf32 || t.a.type != CUDA_R_32F};
  for (std::uint64_t i = 0; i < m; ++i)
    for (std::uint64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (std::uint64_t first = 0; first < dot.parts; ++first) sum += dot.of(i, j, first);
      float value = t.alpha * sum;
      if (t.beta != 0) value += t.beta * load(driver.view(t.c_data), j * ld + i, t.d.type);
      if (has_bias(t.product.epilogue)) value += load(driver.view(t.product.bias), i, t.d.type);
      if (has_aux(t.product.epilogue))
        store(driver.view(t.product.aux), j * static_cast<std::uint64_t>(t.product.aux_ld) + i, t.d.type, value);
      store(d, j * ld + i, t.d.type, has_gelu(t.product.epilogue) ? gelu_tanh(value) : value);
    }
  if (!has_bias_gradient(t.product.epilogue)) return;
  for (std::uint64_t j = 0; j < n; ++j) {
    float sum = 0;
    for (std::uint64_t p = 0; p < k; ++p) sum += b[p * n + j];
    store(driver.view(t.product.bias), j, t.d.type, sum);
  }
}

// ---- Attributes -----------------------------------------------------------------------------------------------------

template <class Value>
void take(Value& to, const void* value, std::size_t bytes, const char* name) {
  if (bytes != sizeof(Value))
    misuse(cudaErrorInvalidValue, name, " has ", sizeof(Value), " bytes and was given ", bytes);
  std::memcpy(&to, value, sizeof to);
}

// An algorithm may be used if everything is at least as it was when the algorithm was requested.
void check_algorithm(const Algorithm& algorithm, const Task& t, const Layout& c, std::size_t workspace_bytes) {
  if (algorithm.shape != shape_of(t.product, t.a, t.b, c, t.d))
    misuse(cudaErrorNotSupported, "an algorithm is used for another product than it was chosen for");
  const auto check = [](const char* name, const void* data, std::uint32_t min_alignment) {
    if (alignment_of(data) < min_alignment)
      misuse(cudaErrorNotSupported, "an algorithm is used with ", name, " aligned to ", alignment_of(data),
             " bytes that was chosen for ", min_alignment);
  };
  check("A", t.a_data, algorithm.a);
  check("B", t.b_data, algorithm.b);
  check("C", t.c_data, algorithm.c);
  check("D", t.d_data, algorithm.d);
  if (has_bias(t.product.epilogue) || has_bias_gradient(t.product.epilogue))
    check("a bias", t.product.bias, algorithm.bias);
  if (has_aux(t.product.epilogue)) check("an auxiliary output", t.product.aux, algorithm.aux);
  if (algorithm.variant >= kVariants) misuse(cudaErrorInvalidValue, "an algorithm that cuBLASLt has not made is used");
  if (workspace_bytes < algorithm.workspace)
    misuse(cudaErrorInvalidValue, "an algorithm wants a workspace of ", algorithm.workspace, " bytes and is given ",
           workspace_bytes);
}

std::vector<Operand> operands_of(const Task& t, const void* workspace, std::size_t workspace_bytes) {
  std::vector<Operand> operands{{t.a_data, bytes_of(t.a), "A"},
                                {t.b_data, bytes_of(t.b), "B"},
                                {t.d_data, bytes_of(t.d), "D", true},
                                {workspace, workspace_bytes, "the workspace", true}};
  if (t.beta != 0) operands.push_back({t.c_data, bytes_of(t.d), "C"});
  if (has_bias(t.product.epilogue)) operands.push_back({t.product.bias, t.d.rows * size_of(t.d.type), "the bias"});
  if (has_bias_gradient(t.product.epilogue))
    operands.push_back({t.product.bias, t.d.columns * size_of(t.d.type), "the gradient of a bias", true});
  if (has_aux(t.product.epilogue)) {
    const Layout aux{t.d.type, t.d.rows, t.d.columns, t.product.aux_ld};
    operands.push_back({t.product.aux, bytes_of(aux), "the auxiliary output", true});
  }
  return operands;
}

cublasLtMatmulHeuristicResult_t result_of(Algorithm algorithm, int variant) {
  algorithm.variant = static_cast<std::uint64_t>(variant);
  cublasLtMatmulHeuristicResult_t result{.algo = {},
                                         .workspaceSize = algorithm.workspace,
                                         .state = CUBLAS_STATUS_SUCCESS,
                                         .wavesCount = 1,
                                         .reserved = {}};
  std::memcpy(&result.algo, &algorithm, sizeof algorithm);
  return result;
}

// For D = op(A) op(B): m x n elements, each a sum over k. Row-major programs call cuBLASLt with A and B exchanged.
std::string facts_of(const Task& t) {
  const bool transposes_a = t.product.transpose_a == CUBLAS_OP_T;
  return concat("\"m\": ", t.d.rows, ", \"n\": ", t.d.columns, ", \"k\": ", transposes_a ? t.a.rows : t.a.columns,
                ", \"bytes_of_a\": ", size_of(t.a.type), ", \"bytes_of_d\": ", size_of(t.d.type),
                ", \"reads_c\": ", t.beta != 0 ? "true" : "false",
                ", \"epilogue\": ", static_cast<int>(t.product.epilogue));
}

}  // namespace
}  // namespace isobar::virtual_gpu

using namespace isobar::virtual_gpu;
using isobar::concat;

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return answer_to("cublasLtCreate", [&] { *handle = new cublasLtContext; });
}

std::size_t cublasLtGetVersion() {
  return environment_number("ISOBAR_VIRTUAL_GPU_CUBLASLT", 130000);
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  answer = status == CUBLAS_STATUS_SUCCESS ? "success" : loaded_driver().explain(cudaErrorUnknown);
  return answer.c_str();
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return answer_to("cublasLtMatmulDescCreate", [&] {
    if (scale != CUDA_R_32F) misuse(cudaErrorInvalidValue, "products in fp32 have fp32 factors");
    *product = new Product{.compute = compute};
  });
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  return answer_to("cublasLtMatmulDescDestroy", [&] { delete product; });
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  return answer_to("cublasLtMatmulDescSetAttribute", [&] {
    switch (attribute) {
      case CUBLASLT_MATMUL_DESC_TRANSA:
        return take(product->transpose_a, value, bytes, "TRANSA");
      case CUBLASLT_MATMUL_DESC_TRANSB:
        return take(product->transpose_b, value, bytes, "TRANSB");
      case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return take(product->epilogue, value, bytes, "EPILOGUE");
      case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return take(product->bias, value, bytes, "BIAS_POINTER");
      case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return take(product->aux, value, bytes, "EPILOGUE_AUX_POINTER");
      case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return take(product->aux_ld, value, bytes, "EPILOGUE_AUX_LD");
    }
    misuse(cudaErrorInvalidValue, "an attribute of a product that does not exist: ", static_cast<int>(attribute));
  });
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* matrix, cudaDataType_t type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t ld) {
  return answer_to("cublasLtMatrixLayoutCreate", [&] { *matrix = new Layout{type, rows, columns, ld}; });
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matrix) {
  return answer_to("cublasLtMatrixLayoutDestroy", [&] { delete matrix; });
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return answer_to("cublasLtMatmulPreferenceCreate", [&] { *preference = new cublasLtMatmulPreferenceOpaque_t; });
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return answer_to("cublasLtMatmulPreferenceDestroy", [&] { delete preference; });
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  return answer_to("cublasLtMatmulPreferenceSetAttribute", [&] {
    switch (attribute) {
      case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return take(preference->workspace, value, bytes, "MAX_WORKSPACE_BYTES");
      case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return take(preference->reduction, value, bytes, "REDUCTION_SCHEME_MASK");
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return take(preference->alignment_a, value, bytes, "MIN_ALIGNMENT_A_BYTES");
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return take(preference->alignment_b, value, bytes, "MIN_ALIGNMENT_B_BYTES");
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return take(preference->alignment_c, value, bytes, "MIN_ALIGNMENT_C_BYTES");
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return take(preference->alignment_d, value, bytes, "MIN_ALIGNMENT_D_BYTES");
    }
    misuse(cudaErrorInvalidValue, "a preference that does not exist: ", static_cast<int>(attribute));
  });
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
                                              int wanted, cublasLtMatmulHeuristicResult_t results[], int* found) {
  return answer_to("cublasLtMatmulAlgoGetHeuristic", [&] {
    *found = 0;
    check_product(*product, *a, *b, *c, *d);
    if (wanted < 1) misuse(cudaErrorInvalidValue, "no result is asked for");
    if (!is_supported(*product, *a, *d)) refuse(cudaErrorNotSupported, "cuBLASLt has no such product");
    const auto min_alignment = [](std::uint32_t alignment) { return std::min(alignment, kMaxAlignment); };
    const Algorithm algorithm{.shape = shape_of(*product, *a, *b, *c, *d),
                              .a = min_alignment(preference->alignment_a),
                              .b = min_alignment(preference->alignment_b),
                              .c = min_alignment(preference->alignment_c),
                              .d = min_alignment(preference->alignment_d),
                              .bias = alignment_of(product->bias),
                              .aux = alignment_of(product->aux),
                              .workspace = preference->workspace,
                              .variant = 0};
    for (; *found < std::min(wanted, kVariants); ++*found) results[*found] = result_of(algorithm, *found);
  });
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
  return answer_to("cublasLtMatmulAlgoCheck", [&] {
    check_product(*product, *a, *b, *c, *d);
    Algorithm checked{};
    std::memcpy(&checked, algorithm, sizeof checked);
    if (!is_supported(*product, *a, *d) || checked.shape != shape_of(*product, *a, *b, *c, *d) ||
        checked.variant >= kVariants)
      refuse(cudaErrorNotSupported, "the algorithm is not for this product");
    *result = result_of(checked, static_cast<int>(checked.variant));
  });
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  return answer_to("cublasLtMatmul", [&] {
    check_product(*product, *a_layout, *b_layout, *c_layout, *d_layout);
    Task task{.product = *product,
              .a = *a_layout,
              .b = *b_layout,
              .d = *d_layout,
              .alpha = *static_cast<const float*>(alpha),
              .beta = *static_cast<const float*>(beta),
              .a_data = a,
              .b_data = b,
              .c_data = c,
              .d_data = d};
    Algorithm chosen{};
    std::memcpy(&chosen, algorithm, sizeof chosen);
    check_algorithm(chosen, task, *c_layout, workspace_bytes);
    task.variant = chosen.variant;
    if (chosen.variant == environment_number("ISOBAR_VIRTUAL_GPU_BAD_CANDIDATE", kVariants))
      refuse(cudaErrorNotSupported, "the algorithm cannot be run");
    if (reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0)
      misuse(cudaErrorInvalidValue, "the workspace is not aligned to 256 bytes");
    Driver& driver = loaded_driver();
    driver.queue(stream, {.name = concat("product of ", task.d.rows, " x ", task.d.columns),
                          .run = [task, &driver] { multiply(task, driver); },
                          .operands = operands_of(task, workspace, workspace_bytes),
                          .facts = facts_of(task),
                          .milliseconds = milliseconds_of(chosen)});
  });
}
