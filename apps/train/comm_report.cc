#include "apps/train/comm_report.h"

#include <span>
#include <sstream>

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

std::string report_traffic(const CommLedger& predicted, const CommLedger& counted, std::int64_t steps,
                           const RankHolds& holds, const Communicator& world) {
  CommLedger expected;
  for (std::int64_t step = 0; step < steps; ++step) expected += predicted;
  const std::vector<char> differs = of_all(static_cast<char>(expected == counted ? 0 : 1), world);
  const std::vector<RankHolds> all = of_all(holds, world);
  std::ostringstream out;
  out << "Communication of rank 0 in " << steps << " steps, bytes of payload:\n" << compare(expected, counted);
  std::string ranks;
  for (std::size_t r = 0; r < differs.size(); ++r)
    if (differs[r] != 0) ranks += concat(" ", r);
  out << (ranks.empty() ? "on every rank the prediction is what was counted"
                        : "the prediction is not what was counted on rank" + ranks)
      << "\nBytes held:\n";
  for (std::size_t r = 0; r < all.size(); ++r)
    out << "rank " << r << ": weights " << text_of(all[r].weights) << ", gradients " << text_of(all[r].gradients)
        << ", moments " << text_of(all[r].moments) << '\n';
  std::string text = out.str();
  text.pop_back();
  return text;
}

}  // namespace isobar
