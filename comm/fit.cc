#include "comm/fit.h"

#include <algorithm>
#include <utility>

#include "kernels/common/check.h"

namespace isobar {
namespace {

bool alike(const Call& a, const Call& b) {
  if (a.verb != b.verb) return false;
  if (a.verb == Verb::send_receive) return true;  // each pair is compared on its own
  if (a.dtype != b.dtype || a.reduce != b.reduce || a.root != b.root) return false;
  if (a.verb == Verb::all_to_all) return true;
  // All ranks must use the same parts. all_gather and reduce_scatter list all parts on every rank.
  return a.verb == Verb::all_gather ? std::ranges::equal(a.receives, b.receives) : std::ranges::equal(a.sends, b.sends);
}

// Elements from rank `from` to rank `to`: as the sender sends them, and as the receiver expects them.
std::pair<std::int64_t, std::int64_t> sent_and_expected(const Call& sender, int from, const Call& receiver, int to) {
  if (sender.verb == Verb::all_to_all) return {sender.sends[to], receiver.receives[from]};
  return {sender.to == to ? sender.sends[0] : 0, receiver.from == from ? receiver.receives[0] : 0};
}

}  // namespace

std::string find_mismatch(const std::vector<const Call*>& calls, const std::vector<int>& members,
                          const std::string& what) {
  const auto n = static_cast<int>(calls.size());
  for (int r = 1; r < n; ++r) {
    if (!alike(*calls[0], *calls[r]))
      return concat(what, ": rank ", members[0], " comes to ", to_text(*calls[0]), ", rank ", members[r], " to ",
                    to_text(*calls[r]));
  }
  const Verb verb = calls[0]->verb;
  if (verb == Verb::all_gather) {
    for (int r = 0; r < n; ++r)
      if (calls[r]->sent() != calls[0]->receives[r])
        return concat(what, ": rank ", members[r], " hands in ", calls[r]->sent(), " elements, the others expect ",
                      calls[0]->receives[r]);
  }
  if (verb != Verb::all_to_all && verb != Verb::send_receive) return {};
  for (int from = 0; from < n; ++from) {
    for (int to = 0; to < n; ++to) {
      const auto [sent, expected] = sent_and_expected(*calls[from], from, *calls[to], to);
      if (sent != expected || (sent > 0 && calls[from]->dtype != calls[to]->dtype))
        return concat(what, ": rank ", members[from], " sends ", sent, " elements to rank ", members[to],
                      ", which expects ", expected, sent == expected ? " of another dtype" : "");
    }
  }
  return {};
}

}  // namespace isobar
