#include "apps/train/comm_report.h"

#include <iomanip>
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

PipelineTimeline predicted_timeline(const PipelineCut& cut, std::int64_t ranks, std::int64_t parts) {
  const auto chunks = static_cast<int>(std::ssize(cut.pieces) / ranks);
  std::vector<Moves> moves;
  for (int rank = 0; rank < ranks; ++rank)
    moves.push_back(pipeline_moves(rank, static_cast<int>(ranks), static_cast<int>(parts), chunks));
  return run_through(moves, cut.work);
}

std::string report_pipeline(const PipelineCut& cut, std::int64_t parts, const Parallel& parallel, double waited) {
  const std::vector<double> all = of_all(waited, parallel.world);
  const PipelineTimeline timeline = predicted_timeline(cut, parallel.pp.size(), parts);
  std::ostringstream out;
  out << "Pipeline, " << to_text(parallel.pipeline) << ", " << parts << (parts == 1 ? " part" : " parts")
      << " a step:" << std::fixed << std::setprecision(1);
  for (std::size_t place = 0; place < timeline.ranks.size(); ++place) {
    double sum = 0, ranks = 0;
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      if (parallel.mesh.coordinate("pp", static_cast<std::int64_t>(rank)) == static_cast<std::int64_t>(place))
        sum += all[rank], ++ranks;
    out << "\nplace " << place << ": idle for " << 100 * timeline.idle(place) << " % of a step by its work, waited for "
        << 100 * sum / ranks << " % of the time in exchanges";
  }
  return out.str();
}

}  // namespace isobar
