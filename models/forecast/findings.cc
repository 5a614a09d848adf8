#include "models/forecast/findings.h"

#include <nlohmann/json.hpp>

#include "data/fields/field_labels.h"
#include "kernels/common/check.h"

namespace isobar {

std::string ForecastFindings::pack() const {
  nlohmann::json json{{"catalog", catalog->pack()}};
  if (statistics)
    json["statistics"] = {{"means", statistics->means},
                          {"stds", statistics->stds},
                          {"time_diff_stds", statistics->time_diff_stds},
                          {"never_there", nlohmann::json::binary(statistics->never_there)},
                          {"labels", nullptr}};
  if (statistics && statistics->labels) json["statistics"]["labels"] = to_json(*statistics->labels);
  std::string packed;
  nlohmann::json::to_cbor(json, packed);
  return packed;
}

ForecastFindings ForecastFindings::unpack(const std::string& packed) {
  ForecastFindings found;
  if (packed.empty()) return found;
  found.of_another_process = true;
  try {
    const nlohmann::json json = nlohmann::json::from_cbor(packed);
    *found.catalog = FieldCatalog::unpack(json.at("catalog"));
    if (!json.contains("statistics")) return found;
    const nlohmann::json& statistics = json.at("statistics");
    ComputedStatistics& made = found.statistics.emplace();
    statistics.at("means").get_to(made.means);
    statistics.at("stds").get_to(made.stds);
    statistics.at("time_diff_stds").get_to(made.time_diff_stds);
    made.never_there = statistics.at("never_there").get_binary();
    if (!statistics.at("labels").is_null()) made.labels = labels_from_json(statistics.at("labels"), "the statistics");
  } catch (const nlohmann::json::exception& error) {
    throw_error("what the first process found in the data cannot be read: ", error.what());
  }
  return found;
}

}  // namespace isobar
