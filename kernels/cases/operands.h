// What cases of kernels are made of. A kernel x has a function beside it in kernels/cases/:
//
//   XArgs cases::x(XArgs a, Operands&& operands)
//
// `a` has the sizes, the dtypes and the options of a case. The function returns it with a pointer to each operand: it
// says how many elements of which dtype the kernel reads and writes, and which numbers an input may hold. Tests judge
// the kernel on such a case, isobar-bench times it, and isobar-accesses counts its accesses of memory. Each of them has
// memory of its own kind, a class derived from Operands.
//
// A case includes headers of kernels/ only, and no file of the product includes a case (tools/check_layers.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/common/check.h"
#include "kernels/common/dtype.h"
#include "kernels/common/grad.h"

namespace isobar::cases {

// A device pointer that converts to the pointer type the argument wants.
struct Pointer {
  void* raw = nullptr;
  template <class T>
  operator T*() const {
    return static_cast<T*>(raw);
  }
};

// The numbers that an input may hold: spread over [low, high), or all `low` where both are equal. Of i32: integers.
struct Range {
  double low = -1, high = 1;
};

// in_out: read, and written over.
enum class Role : std::uint8_t { input, output, in_out, workspace };

struct Operand {
  const char* name;  // as in the struct of arguments
  Role role;
  std::int64_t n;  // elements; of a workspace bytes
  DType dtype = DType::fp32;
  Range range = {};

  bool is_read() const { return role == Role::input || role == Role::in_out; }
  std::size_t bytes() const { return static_cast<std::size_t>(n) * (role == Role::workspace ? 1 : size_of(dtype)); }
};

// What the user of a case says of one operand, by its name: whether it is wanted, if the kernel can do without it, or
// where it lies.
struct Given {
  Given(const char* operand, bool wanted = true) : name(operand), is_wanted(wanted) {}  // NOLINT: a name is enough
  Given(const char* operand, const void* where)                                         // null: not wanted
      : name(operand), is_wanted(where != nullptr), memory(const_cast<void*>(where)) {}
  Given(const char* operand, Pointer where) : Given(operand, static_cast<const void*>(where.raw)) {}

  std::string name;
  bool is_wanted, is_used = false;
  void* memory = nullptr;  // null: memory of the kind that the Operands have
};

// The memory of one case's operands; each case has an object of its own.
class Operands {
 public:
  explicit Operands(std::vector<Given> given) : given_(std::move(given)) {}
  virtual ~Operands() = default;
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  Pointer input(const char* name, std::int64_t n, DType dtype, Range range = {}) {
    return required({name, Role::input, n, dtype, range});
  }
  Pointer output(const char* name, std::int64_t n, DType dtype) { return required({name, Role::output, n, dtype}); }
  Pointer in_out(const char* name, std::int64_t n, DType dtype, Range range = {}) {
    return required({name, Role::in_out, n, dtype, range});
  }
  // Written or added to.
  Pointer gradient(const char* name, std::int64_t n, DType dtype, Grad mode) {
    return required({name, mode == Grad::accumulate ? Role::in_out : Role::output, n, dtype});
  }
  Pointer workspace(std::size_t bytes) {
    return required({"workspace", Role::workspace, static_cast<std::int64_t>(bytes)});
  }

  // Of operands that the kernel can do without: null unless they are given.
  Pointer optional_input(const char* name, std::int64_t n, DType dtype, Range range = {}) {
    return optional({name, Role::input, n, dtype, range});
  }
  Pointer optional_output(const char* name, std::int64_t n, DType dtype) {
    return optional({name, Role::output, n, dtype});
  }
  Pointer optional_in_out(const char* name, std::int64_t n, DType dtype, Range range = {}) {
    return optional({name, Role::in_out, n, dtype, range});
  }

  // The arguments, all of whose operands have been asked for; throws an Error where more were given.
  template <class Arguments>
  Arguments complete(const Arguments& arguments) const {
    for (const Given& given : given_)
      ISOBAR_CHECK(given.is_used, "a case is given ", given.name, ", and its kernel has no such operand");
    return arguments;
  }

 private:
  // Memory for an operand that was given none. An input, or what is written over, has numbers of its range.
  virtual void* allocate(const Operand& operand) = 0;

  Given* find(const Operand& operand) {
    for (Given& given : given_)
      if (given.name == operand.name) return &given;
    return nullptr;
  }
  Pointer place(const Operand& operand, bool is_optional) {
    Given* const given = find(operand);
    if (given != nullptr) given->is_used = true;
    if (is_optional && (given == nullptr || !given->is_wanted)) return {};
    return {given != nullptr && given->memory != nullptr ? given->memory : allocate(operand)};
  }
  Pointer required(const Operand& operand) { return place(operand, false); }
  Pointer optional(const Operand& operand) { return place(operand, true); }

  std::vector<Given> given_;
};

}  // namespace isobar::cases
