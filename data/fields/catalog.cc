#include "data/fields/catalog.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "data/fields/field_series.h"
#include "kernels/common/check.h"

namespace isobar {

const std::vector<std::string>& FieldCatalog::files_at(const std::string& path) {
  const auto known = files_.find(path);
  return known != files_.end() ? known->second : files_.emplace(path, find_field_files(path)).first->second;
}

std::shared_ptr<const FieldFacts> FieldCatalog::find(const std::string& file) const {
  const auto known = facts_.find(file);
  return known != facts_.end() ? known->second : nullptr;
}

// CBOR keeps every bit of a number, and names in any encoding.
std::string FieldCatalog::pack() const {
  nlohmann::json facts = nlohmann::json::object();
  for (const auto& [file, file_facts] : facts_) facts[file] = to_json(*file_facts);
  std::string packed;
  nlohmann::json::to_cbor(nlohmann::json{{"files", files_}, {"facts", std::move(facts)}}, packed);
  return packed;
}

FieldCatalog FieldCatalog::unpack(const std::string& packed) {
  FieldCatalog catalog;
  try {
    const nlohmann::json json = nlohmann::json::from_cbor(packed);
    json.at("files").get_to(catalog.files_);
    for (const auto& [file, facts] : json.at("facts").items())
      catalog.add(file, std::make_shared<FieldFacts>(facts_from_json(facts)));
  } catch (const nlohmann::json::exception& error) {
    throw_error("what another process found in the data cannot be read: ", error.what());
  }
  return catalog;
}

}  // namespace isobar
