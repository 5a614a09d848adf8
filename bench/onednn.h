// The ops that oneDNN has too, as baselines: what a library does with the same operands on the CPU, in fp32 and bf16.
#pragma once

#include <functional>

#include "bench/ops.h"

namespace isobar::bench {

std::function<void()> onednn_gelu_fwd(const Problem&, const Cost&);
std::function<void()> onednn_gelu_bwd(const Problem&, const Cost&);
// With the residual add, as isobar's own: the sum, then layer norm; layer norm's backward pass, then the sum. All of it
// in the op's dtype, where isobar keeps the stream in fp32.
std::function<void()> onednn_layernorm_fwd(const Problem&, const Cost&);
std::function<void()> onednn_layernorm_bwd(const Problem&, const Cost&);

}  // namespace isobar::bench
