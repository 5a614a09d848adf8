// Order between streams: work on the same memory must be ordered by a stream, an event or a wait of the host.
#include <algorithm>

#include "lab/stand_ins/cuda/driver.h"

namespace isobar::virtual_gpu {
namespace {

bool is_before(const Moment& first, const Moment& second) {
  const bool same_launch = first.stream == second.stream && first.number == second.number;
  if (same_launch) return first.node == second.node || (*second.order)[second.node][first.node];
  const auto followed = second.follows->find(first.stream);
  return followed != second.follows->end() && followed->second >= first.number;
}

void check_order(const Touch& touch, const Moment& now, const Moment& before, bool wrote) {
  if (is_before(before, now)) return;
  throw_error(touch.writes ? "writes" : "reads", " memory that ", before.what, wrote ? " writes" : " reads",
              ", and neither waits for the other: ", describe(*touch.allocation));
}

}  // namespace

void merge(Clock& into, const Clock& other) {
  for (const auto& [stream, number] : other) {
    std::uint64_t& own = into[stream];
    own = std::max(own, number);
  }
}

void note_touches(const std::vector<Touch>& touches, const std::shared_ptr<const Moment>& when) {
  for (const Touch& touch : touches) {
    Page& page = touch.allocation->pages[touch.page];
    if (page.written != nullptr) check_order(touch, *when, *page.written, true);
    if (touch.writes) {
      for (const auto& reader : page.read) check_order(touch, *when, *reader, false);
      page = {when, {}};
    } else {
      std::erase_if(page.read, [&](const auto& reader) { return is_before(*reader, *when); });
      page.read.push_back(when);
    }
  }
}

}  // namespace isobar::virtual_gpu
