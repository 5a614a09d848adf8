// A folder in which Hugging Face's libraries keep a model: config.json, and model.safetensors or an index of its parts.
#pragma once

#include <filesystem>
#include <set>
#include <string>

namespace isobar {

inline constexpr const char* kHuggingFaceConfig = "config.json";
inline constexpr const char* kHuggingFaceWeights = "model.safetensors";

// Whether a folder holds config.json and weights, of any model.
bool is_huggingface_folder(const std::filesystem::path& path);

// The names of its files of weights. Error naming the index where that names none, or what is no file's name.
std::set<std::string> weight_files_of(const std::filesystem::path& folder);

}  // namespace isobar
