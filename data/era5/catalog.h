// What was found out by looking at data: the files behind paths, and what each says of itself. One process looks, and
// thousands can go by what it has found: a file system answers one question instead of one from each.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/era5/field_facts.h"

namespace isobar {

class FieldCatalog {
 public:
  // As find_h5_files (data/era5/era5.h) returned it when the path was first asked for.
  const std::vector<std::string>& files_at(const std::string& path);

  // Null where nobody has looked into the file.
  std::shared_ptr<const FieldFacts> find(const std::string& file) const;
  void add(const std::string& file, std::shared_ptr<const FieldFacts> facts) { facts_[file] = std::move(facts); }

  // All of it as bytes, for other processes.
  std::string pack() const;
  // Of what pack() has made; Error for anything else.
  static FieldCatalog unpack(const std::string& packed);

 private:
  std::map<std::string, std::vector<std::string>> files_;  // by the path that was asked for
  std::map<std::string, std::shared_ptr<const FieldFacts>> facts_;
};

}  // namespace isobar
