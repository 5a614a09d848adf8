#include "comm/call.h"

#include <algorithm>

#include "kernels/common/check.h"

namespace isobar {

const char* name_of(Verb verb) {
  constexpr std::array<const char*, kVerbs> names{"all_reduce", "all_gather",   "reduce_scatter", "broadcast",
                                                  "all_to_all", "send_receive", "barrier"};
  return names[static_cast<std::size_t>(verb)];
}

std::int64_t Call::payload() const {
  const std::int64_t elements = verb == Verb::all_gather ? received() : sent();
  return elements * static_cast<std::int64_t>(element_size());
}

std::string to_text(const Call& call) {
  if (call.verb == Verb::barrier) return name_of(call.verb);
  const std::int64_t elements = call.verb == Verb::all_gather ? call.received() : call.sent();
  const char* operation = call.reduce == Reduce::max ? " (max)" : "";
  return concat(name_of(call.verb), operation, " of ", elements, ' ', call.dtype ? name_of(*call.dtype) : "bytes");
}

}  // namespace isobar
