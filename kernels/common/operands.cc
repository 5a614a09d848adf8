#include "kernels/common/operands.h"

namespace isobar {

constinit thread_local CallOperands* operands_asked_for = nullptr;

}  // namespace isobar
