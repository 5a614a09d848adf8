#include "engine/files/huggingface_folder.h"

#include <nlohmann/json.hpp>

#include "engine/files/json.h"
#include "kernels/common/check.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

constexpr const char* kIndex = "model.safetensors.index.json";

}  // namespace

bool is_huggingface_folder(const fs::path& path) {
  return fs::is_regular_file(path / kHuggingFaceConfig) &&
         (fs::is_regular_file(path / kHuggingFaceWeights) || fs::is_regular_file(path / kIndex));
}

std::set<std::string> weight_files_of(const fs::path& folder) {
  const fs::path index = folder / kIndex;
  if (!fs::exists(index)) return {kHuggingFaceWeights};
  const auto json = read_json<nlohmann::json>(index);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  ISOBAR_CHECK(map != json.end() && map->is_object() && !map->empty(), index.string(), " names no files of weights");
  std::set<std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    const bool is_name = file.is_string() && file.get<std::string>().find('/') == std::string::npos;
    ISOBAR_CHECK(is_name, index.string(), ": the file of ", tensor, " is ", shown(file), ", which is no file's name");
    files.insert(file.get<std::string>());
  }
  return files;
}

}  // namespace isobar
