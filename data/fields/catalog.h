// A cache of what opening data finds: the files at each path, and the facts of each file. One process looks, and
// thousands use its catalog: the file system answers one request instead of one from each process.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/fields/field_facts.h"

namespace isobar {

class FieldCatalog {
 public:
  // The result of find_field_files (data/fields/field_series.h) at the first request for this path.
  const std::vector<std::string>& files_at(const std::string& path);

  // Null if the file is not in the catalog.
  std::shared_ptr<const FieldFacts> find(const std::string& file) const;
  void add(const std::string& file, std::shared_ptr<const FieldFacts> facts) { facts_[file] = std::move(facts); }

  // The whole catalog as bytes, for other processes.
  std::string pack() const;
  // The inverse of pack(); Error for any other bytes.
  static FieldCatalog unpack(const std::string& packed);

 private:
  std::map<std::string, std::vector<std::string>> files_;  // by the requested path
  std::map<std::string, std::shared_ptr<const FieldFacts>> facts_;
};

}  // namespace isobar
