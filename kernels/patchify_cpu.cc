// patchify and unpatchify on the CPU: one index map for both directions, one row of patches at a time.
#include "kernels/patchify.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace isobar::cpu::ISOBAR_ISA {
namespace {

// Calls copy(image_begin, token_begin, token_step) for every run of P contiguous image pixels in a patch. Their
// elements in the tokens are token_begin + s·token_step.
template <class Arguments, class F>
void for_each_run(const Arguments& a, const F& copy) {
  const std::int64_t p = a.patch, rows = a.height / p, cols = a.width / p, features = a.channels * p * p;
  const bool channels_first = a.order == PatchOrder::channels_first;
  const std::int64_t token_step = channels_first ? 1 : a.channels;
  const std::int64_t channel_step = channels_first ? p * p : 1;
  const std::int64_t line_step = channels_first ? p : p * a.channels;
  // One part: the patches in one row of one image.
  parallel_for(a.batch * rows, kGrain / (cols * features + 1) + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      const std::int64_t b = part / rows, i = part % rows;
      for (std::int64_t c = 0; c < a.channels; ++c)
        for (std::int64_t r = 0; r < p; ++r) {
          const std::int64_t image = ((b * a.channels + c) * a.height + i * p + r) * a.width;
          const std::int64_t token = part * cols * features + c * channel_step + r * line_step;
          for (std::int64_t j = 0; j < cols; ++j) copy(image + j * p, token + j * features, token_step);
        }
    }
  });
}

template <class F>
void visit_two(DType first, DType second, const F& f) {
  visit_floating(first, [&](auto x) { visit_floating(second, [&](auto y) { f(x, y); }); });
}

}  // namespace

void patchify(const PatchifyArgs& a) {
  visit_two(a.image_dtype, a.token_dtype, [&]<class Image, class Token>(Type<Image>, Type<Token>) {
    const Image* image = static_cast<const Image*>(a.image);
    Token* tokens = static_cast<Token*>(a.tokens);
    for_each_run(a, [=, p = a.patch](std::int64_t from, std::int64_t to, std::int64_t step) {
      for (std::int64_t s = 0; s < p; ++s) tokens[to + s * step] = convert<Token>(image[from + s]);
    });
  });
}

void unpatchify(const UnpatchifyArgs& a) {
  visit_two(a.image_dtype, a.token_dtype, [&]<class Image, class Token>(Type<Image>, Type<Token>) {
    const Token* tokens = static_cast<const Token*>(a.tokens);
    Image* image = static_cast<Image*>(a.image);
    for_each_run(a, [=, p = a.patch](std::int64_t to, std::int64_t from, std::int64_t step) {
      for (std::int64_t s = 0; s < p; ++s) image[to + s] = convert<Image>(tokens[from + s * step]);
    });
  });
}

}  // namespace isobar::cpu::ISOBAR_ISA

ISOBAR_CPU_KERNEL(patchify, PatchifyArgs)
ISOBAR_CPU_KERNEL(unpatchify, UnpatchifyArgs)
