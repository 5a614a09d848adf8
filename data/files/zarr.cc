#include "data/files/zarr.h"

#include <algorithm>
#include <map>
#include <utility>

#include "data/files/zarr_metadata.h"
#include "engine/files/json.h"
#include "kernels/common/check.h"

namespace isobar::zarr {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxArrays = 1 << 16;
constexpr int kMaxDepth = 32;  // of groups

bool has_file(const fs::path& file) {
  std::error_code ignored;
  return fs::exists(file, ignored);
}

// What a store holds, as its files or its consolidated metadata tell.
struct Contents {
  std::vector<Array> arrays;
  Attributes attributes;
};

void add(Contents& contents, Array array, const fs::path& root, const std::string& name) {
  ISOBAR_CHECK(contents.arrays.size() < kMaxArrays, root.string(), " has more than ", kMaxArrays, " arrays");
  array.info.has_numbers = array.info.format.has_value();
  array.folder = name.empty() ? root : root / name;
  array.info.name = name.empty() ? (root.has_filename() ? root : root.parent_path()).filename().string() : name;
  contents.arrays.push_back(std::move(array));
}

// A path below the store, and nothing that leads out of it.
void check_name(const std::string& name, const std::string& where) {
  const fs::path path(name);
  const bool leads_out = path.is_absolute() || name.empty() || std::ranges::find(path, "..") != path.end();
  ISOBAR_CHECK(!leads_out, where, " is damaged: it names ", in_quotes(name), ", which is no place within the store");
}

std::string joined(const std::string& group, const std::string& name) {
  return group.empty() ? name : group + "/" + name;
}

// ---- version 2 ------------------------------------------------------------------------------------------------------

Contents consolidated_of_version_2(const fs::path& root) {
  const std::string where = (root / ".zmetadata").string();
  const Json file = read_metadata(where);
  const Json& entries = member(file, "metadata", where);
  ISOBAR_CHECK(entries.is_object(), where, " is damaged: its 'metadata' are ", shown(entries));
  Contents contents;
  if (const Json* attributes = find(entries, ".zattrs")) contents.attributes = attributes_of(*attributes);
  for (const auto& [key, value] : entries.items()) {
    const std::string ending = ".zarray";
    if (!key.ends_with(ending)) continue;
    std::string name = key.substr(0, key.size() - ending.size());
    if (name.ends_with('/')) name.pop_back();
    if (key != ending) check_name(name, where);
    const Json* attributes = find(entries, joined(name, ".zattrs").c_str());
    add(contents, array_of_version_2(value, attributes, where + ", '" + key + "',"), root, name);
  }
  return contents;
}

// ---- version 3 ------------------------------------------------------------------------------------------------------

bool is_array(const Json& metadata, const std::string& where) {
  const Json& version = member(metadata, "zarr_format", where);
  ISOBAR_CHECK(version == 3, where, " has 'zarr_format' ", shown(version), "; expected 3");
  const std::string type = text_member(metadata, "node_type", where);
  ISOBAR_CHECK(type == "array" || type == "group", where, " is damaged: its 'node_type' is ", in_quotes(type));
  return type == "array";
}

// Where a group tells of all that is below it.
const Json* consolidated_of_version_3(const Json& group, const std::string& where) {
  const Json* consolidated = find(group, "consolidated_metadata");
  if (consolidated == nullptr) return nullptr;
  const Json* kind = find(*consolidated, "kind");
  if (kind != nullptr && *kind != "inline") return nullptr;
  const Json& entries = member(*consolidated, "metadata", where);
  ISOBAR_CHECK(entries.is_object(), where, " is damaged: its consolidated metadata are ", shown(entries));
  return &entries;
}

// ---- both -----------------------------------------------------------------------------------------------------------

void walk_store(const fs::path& root, const std::string& name, int depth, Contents& contents);

// Groups and arrays lie in folders that have metadata; folders of chunks have none.
void walk_group(const fs::path& root, const std::string& name, int depth, Contents& contents) {
  ISOBAR_CHECK(depth < kMaxDepth, (root / name).string(), " lies deeper than ", kMaxDepth, " groups");
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(root / name))
    if (entry.is_directory()) names.push_back(joined(name, entry.path().filename().string()));
  for (const std::string& below : names) walk_store(root, below, depth + 1, contents);
}

void walk_store(const fs::path& root, const std::string& name, int depth, Contents& contents) {
  const fs::path folder = root / name;
  const std::string of_3 = (folder / "zarr.json").string(), of_2 = (folder / ".zarray").string();
  const fs::path zattrs = folder / ".zattrs";
  if (has_file(of_3)) {
    const Json metadata = read_metadata(of_3);
    if (is_array(metadata, of_3)) return add(contents, array_of_version_3(metadata, of_3), root, name);
    if (const Json* attributes = find(metadata, "attributes"); attributes != nullptr && depth == 0)
      contents.attributes = attributes_of(*attributes);
    const Json* entries = consolidated_of_version_3(metadata, of_3);
    if (entries == nullptr) return walk_group(root, name, depth, contents);
    for (const auto& [key, value] : entries->items()) {
      const std::string where = of_3 + ", '" + key + "',";
      check_name(key, of_3);
      if (is_array(value, where)) add(contents, array_of_version_3(value, where), root, joined(name, key));
    }
  } else if (has_file(of_2)) {
    const Json zarray = read_metadata(of_2), attributes = has_file(zattrs) ? read_metadata(zattrs) : Json();
    add(contents, array_of_version_2(zarray, &attributes, of_2), root, name);
  } else if (has_file(folder / ".zgroup")) {
    if (depth == 0 && has_file(zattrs)) contents.attributes = attributes_of(read_metadata(zattrs));
    walk_group(root, name, depth, contents);
  }
}

}  // namespace

bool is_store(const fs::path& folder) {
  return std::ranges::any_of(std::vector{"zarr.json", ".zmetadata", ".zgroup", ".zarray"},
                             [&](const char* name) { return has_file(folder / name); });
}

Store Store::open(const fs::path& folder) {
  ISOBAR_CHECK(is_store(folder), folder.string(),
               " is no Zarr store: it has no zarr.json, .zmetadata, .zgroup or .zarray");
  Contents contents;
  if (!has_file(folder / "zarr.json") && has_file(folder / ".zmetadata"))
    contents = consolidated_of_version_2(folder);
  else
    walk_store(folder, "", 0, contents);
  std::ranges::sort(contents.arrays, {}, [](const Array& array) -> const std::string& { return array.info.name; });
  Store store;
  store.path_ = folder;
  store.arrays_ = std::move(contents.arrays);
  store.attributes_ = std::move(contents.attributes);
  return store;
}

}  // namespace isobar::zarr
