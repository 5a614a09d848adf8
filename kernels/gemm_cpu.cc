#include "kernels/gemm.h"
