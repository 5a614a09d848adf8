#include "engine/ops/operands.h"

#include "kernels/common/check.h"

namespace isobar {
namespace {

std::string place_of(Device device) {
  return device.kind == DeviceKind::cuda ? concat(name_of(device.kind), " ", device.index) : name_of(device.kind);
}

void check_rank(const char* op, const Operand& operand) {
  const auto rank = static_cast<int>(operand.tensor.shape().size());
  ISOBAR_CHECK(operand.rank == Operand::kAnyRank || rank == operand.rank, op, ": ", operand.name, " ",
               to_string(operand.tensor.shape()), " has ", rank, rank == 1 ? " dimension" : " dimensions", ", not ",
               operand.rank);
}

}  // namespace

void check_operands(const char* op, std::initializer_list<Operand> operands) {
  const Operand* first = nullptr;
  for (const Operand& operand : operands) {
    if (!operand.tensor.defined()) {
      ISOBAR_CHECK(operand.is_optional, op, ": ", operand.name, " is not there");
      continue;
    }
    check_rank(op, operand);
    if (first == nullptr) first = &operand;
    ISOBAR_CHECK(operand.tensor.device() == first->tensor.device(), op, ": ", operand.name, " is on ",
                 place_of(operand.tensor.device()), ", and ", first->name, " on ", place_of(first->tensor.device()));
  }
}

}  // namespace isobar
