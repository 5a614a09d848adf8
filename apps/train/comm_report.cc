#include "apps/train/comm_report.h"

#include <map>
#include <span>
#include <sstream>
#include <utility>

#include "comm/mesh.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

// One value of every rank, in their order.
template <class T>
std::vector<T> of_all(const T& mine, const Communicator& world) {
  std::vector<T> all(static_cast<std::size_t>(world.size()), mine);
  if (world.size() > 1)
    world.all_gather_bytes(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

std::string text_of(const HeldBytes& held) {
  return concat(held.counted, " (", held.predicted, " predicted, ", held.counted - held.predicted, " of padding)");
}

}  // namespace

std::string report_traffic(const CommLedger& expected, const CommLedger& counted, std::int64_t steps,
                           const RankHolds& holds, const Communicator& world) {
  const std::vector<char> differs = of_all(static_cast<char>(expected == counted ? 0 : 1), world);
  const std::vector<RankHolds> all = of_all(holds, world);
  std::ostringstream out;
  out << "Communication of rank 0 in " << steps << " steps, bytes of payload:\n" << compare(expected, counted);
  std::vector<std::int64_t> wrong;
  for (std::size_t r = 0; r < differs.size(); ++r)
    if (differs[r] != 0) wrong.push_back(static_cast<std::int64_t>(r));
  out << (wrong.empty() ? "on every rank the prediction is what was counted"
                        : "the prediction is not what was counted on " + to_text(wrong))
      << "\nBytes held:\n";
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> held;  // by what ranks hold, in the order of ranks
  std::map<std::string, std::size_t> place;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const std::string text = concat("weights ", text_of(all[r].weights), ", gradients ", text_of(all[r].gradients),
                                    ", moments ", text_of(all[r].moments));
    const auto [found, is_new] = place.try_emplace(text, held.size());
    if (is_new) held.push_back({text, {}});
    held[found->second].second.push_back(static_cast<std::int64_t>(r));
  }
  for (const auto& [text, ranks] : held) out << to_text(ranks) << ": " << text << '\n';
  std::string text = out.str();
  text.pop_back();
  return text;
}

}  // namespace isobar
