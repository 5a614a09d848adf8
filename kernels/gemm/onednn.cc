#include "kernels/gemm/onednn.h"

#include <omp.h>

#include <dnnl.hpp>
#include <map>
#include <mutex>
#include <tuple>
#include <unordered_map>

#include "kernels/common/check.h"
#include "kernels/cpu/scratch.h"
#include "kernels/elementwise.h"
#include "kernels/gelu.h"

namespace isobar::cpu {
namespace {

dnnl::engine& engine() {
  static dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

// Row-major [rows, cols], or stored [cols, rows].
dnnl::memory::desc matrix(std::int64_t rows, std::int64_t cols, bool transposed, DType dtype) {
  const auto type = dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  return transposed ? dnnl::memory::desc({rows, cols}, type, dnnl::memory::dims{1, rows})
                    : dnnl::memory::desc({rows, cols}, type, dnnl::memory::dims{cols, 1});
}

// One call of oneDNN: the product, bias, and addition to C. Its GELU is not used: some versions make NaN of infinity.
struct Product {
  dnnl::memory::desc a, b, bias, c, scratchpad;
  dnnl::matmul primitive;
};

Product make_product(const GemmArgs& g) {
  Product product;
  product.a = matrix(g.m, g.k, g.transpose_a, g.in_dtype);
  product.b = matrix(g.k, g.n, g.transpose_b, g.in_dtype);
  product.c = matrix(g.m, g.n, false, g.out_dtype);
  if (g.bias != nullptr) product.bias = matrix(1, g.n, false, DType::fp32);

  dnnl::post_ops after;
  if (g.mode == Grad::accumulate) after.append_sum(1.0f);
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(after);
  // With a scratchpad from the caller, several threads can run one primitive.
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc description(engine(), product.a, product.b, product.bias, product.c, attributes);
#else
  const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(product.a, product.b, product.bias, product.c),
                                                 attributes, engine());
#endif
  product.scratchpad = description.scratchpad_desc();
  product.primitive = dnnl::matmul(description);
  return product;
}

// Products are made once per shape and number of threads (ranks in one process may have different numbers): making one
// compiles its kernel and splits its work.
const Product& product_for(const GemmArgs& g) {
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, bool, bool, DType, bool, Grad, int>;
  static std::mutex mutex;
  static std::map<Key, Product> products;
  const Key key{
      g.m, g.n, g.k, g.transpose_a, g.transpose_b, g.out_dtype, g.bias != nullptr, g.mode, omp_get_max_threads()};
  const std::lock_guard lock(mutex);
  auto found = products.find(key);
  if (found == products.end()) found = products.emplace(key, make_product(g)).first;
  return found->second;  // elements of a map never move
}

}  // namespace

void gemm_onednn(const GemmArgs& g) {
  ISOBAR_CHECK(g.in_dtype == DType::bf16, "gemm_onednn: takes bf16, not ", name_of(g.in_dtype));
  if (g.m == 0 || g.n == 0) return;
  void* result = g.pre != nullptr ? g.pre : g.c;  // before the activation
  try {
    const Product& product = product_for(g);
    const auto memory = [](const dnnl::memory::desc& desc, const void* data) {
      return dnnl::memory(desc, engine(), const_cast<void*>(data));
    };
    std::unordered_map<int, dnnl::memory> arguments = {
        {DNNL_ARG_SRC, memory(product.a, g.a)},
        {DNNL_ARG_WEIGHTS, memory(product.b, g.b)},
        {DNNL_ARG_DST, memory(product.c, result)},
        {DNNL_ARG_SCRATCHPAD, memory(product.scratchpad, scratch(Scratch::gemm_b, product.scratchpad.get_size() + 1))}};
    if (g.bias != nullptr) arguments.emplace(DNNL_ARG_BIAS, memory(product.bias, g.bias));
    dnnl::stream stream(engine());
    product.primitive.execute(stream, arguments);
    stream.wait();
  } catch (const dnnl::error& error) {
    throw_error("gemm: oneDNN cannot multiply ", g.m, " x ", g.n, " x ", g.k, ": ", error.what());
  }
  if (g.activation != Activation::none)
    gelu_fwd({.n = g.m * g.n, .dtype = g.out_dtype, .kind = g.activation, .x = result, .y = g.c});
  else if (g.pre != nullptr)
    cast({.n = g.m * g.n, .x_dtype = g.out_dtype, .y_dtype = g.out_dtype, .x = g.pre, .y = g.c});
}

}  // namespace isobar::cpu
