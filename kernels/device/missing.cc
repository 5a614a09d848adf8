// Weak stand-ins for emulated kernels whose .cu file has not been written yet: a program that names them links, and
// calling one says so. The real definition, a strong one, takes its place. Delete this file when the last has come.
#include "kernels/adam.h"
#include "kernels/attention.h"
#include "kernels/column_sum.h"
#include "kernels/common/check.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/forecast_loss.h"
#include "kernels/forecast_scores.h"
#include "kernels/gelu.h"
#include "kernels/gemm.h"
#include "kernels/grad_norm.h"
#include "kernels/layernorm.h"
#include "kernels/normalize.h"
#include "kernels/patchify.h"

namespace isobar::emulator {

#define ISOBAR_MISSING(name, Arguments) \
  __attribute__((weak)) void name(const Arguments&, Stream) { fail("the kernel " #name " has no emulated version"); }

ISOBAR_MISSING(adam, Adam)
ISOBAR_MISSING(add, Add)
ISOBAR_MISSING(add_row, AddRow)
ISOBAR_MISSING(attention_bwd, AttentionBwd)
ISOBAR_MISSING(attention_fwd, AttentionFwd)
ISOBAR_MISSING(cast, Cast)
ISOBAR_MISSING(clip_coefficient, ClipCoefficient)
ISOBAR_MISSING(column_sum, ColumnSum)
ISOBAR_MISSING(denormalize, Denormalize)
ISOBAR_MISSING(drop_path, DropPath)
ISOBAR_MISSING(dropout, Dropout)
ISOBAR_MISSING(fill, Fill)
ISOBAR_MISSING(forecast_loss_bwd, ForecastLossBwd)
ISOBAR_MISSING(forecast_loss_fwd, ForecastLossFwd)
ISOBAR_MISSING(forecast_scores, ForecastScores)
ISOBAR_MISSING(gelu_bwd, GeluBwd)
ISOBAR_MISSING(gelu_fwd, GeluFwd)
ISOBAR_MISSING(gemm, Gemm)
ISOBAR_MISSING(grad_norm, GradNorm)
ISOBAR_MISSING(layernorm_bwd, LayernormBwd)
ISOBAR_MISSING(layernorm_fwd, LayernormFwd)
ISOBAR_MISSING(normalize, Normalize)
ISOBAR_MISSING(patchify, Patchify)
ISOBAR_MISSING(scale, Scale)
ISOBAR_MISSING(unpatchify, Unpatchify)

}  // namespace isobar::emulator
