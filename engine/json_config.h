// Named JSON configs that extend each other.
//
// A config is a flat JSON object of keys and values; "extends": "NAME" takes every key that it does not set itself from
// NAME. A file holds either one config, named after the file, or several: an object of objects by name. Comments (//
// and /* */) are allowed. Every value remembers where it was set, so that a wrong one can be told with key and file.
#pragma once

#include <array>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/files/json.h"
#include "kernels/common/check.h"

namespace isobar {

struct ConfigEntry {
  nlohmann::json value;
  std::string origin;  // "configs/vit.json (short)", "--set", "--num-iters"
};
using ConfigEntries = std::map<std::string, ConfigEntry>;

struct NamedConfig {
  std::string name;
  ConfigEntries entries;  // inherited ones included
};

// Where configs are looked for by name: the folders of ISOBAR_CONFIG_PATH (separated by ':'), then
// share/isobar/configs of the tree that this binary was installed in, then the configs/ beside the sources it was
// built from. Throws Error when ISOBAR_CONFIG_PATH names something that is no folder.
std::vector<std::filesystem::path> config_search_path();

// reference: a NAME, looked for in every *.json of the folders in turn, or FILE.json[:NAME]. "extends" takes the same
// forms; a NAME is then looked for in the same file first, and a FILE is relative to the file that names it.
// Throws Error for a missing or malformed file, an unknown name (telling the nearest) and a cycle. A folder that cannot
// be read is passed over.
NamedConfig load_config(const std::string& reference, const std::vector<std::filesystem::path>& folders);

// The configs that load_config finds by name in these folders, each with the file it stands in.
struct ListedConfig {
  std::string name;
  std::filesystem::path file;
};
std::vector<ListedConfig> list_configs(const std::vector<std::filesystem::path>& folders);

// Sets a key from "KEY=VALUE". VALUE is JSON where it parses as JSON, else a string.
void set_from_assignment(ConfigEntries& entries, const std::string& assignment);

// How a C++ type is read from and written to JSON. `read` returns whether the value fits; `expected` completes "must
// be ...". An enum takes part by a specialisation of EnumNames.
template <class T>
struct JsonType;

// static constexpr std::array names: the enum's values in order, as written in a config (matched without case).
template <class E>
struct EnumNames;

template <class E>
const char* name_of_enum(E value) {
  return EnumNames<E>::names[static_cast<std::size_t>(value)];
}

template <>
struct JsonType<bool> {
  static bool read(const nlohmann::json& json, bool& out);
  static nlohmann::json write(bool value) { return value; }
  static std::string expected() { return "true or false"; }
};

template <>
struct JsonType<std::int64_t> {
  static bool read(const nlohmann::json& json, std::int64_t& out);  // 3e4 fits, 0.5 does not
  static nlohmann::json write(std::int64_t value) { return value; }
  static std::string expected() { return "an integer"; }
};

template <>
struct JsonType<double> {
  static bool read(const nlohmann::json& json, double& out);
  static nlohmann::json write(double value) { return value; }
  static std::string expected() { return "a number"; }
};

template <>
struct JsonType<std::string> {
  static bool read(const nlohmann::json& json, std::string& out);
  static nlohmann::json write(const std::string& value) { return value; }
  static std::string expected() { return "a string in UTF-8"; }
};

template <class E>
requires std::is_enum_v<E>
struct JsonType<E> {
  static bool read(const nlohmann::json& json, E& out) {
    std::string name;
    if (!JsonType<std::string>::read(json, name)) return false;
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    for (std::size_t i = 0; i < EnumNames<E>::names.size(); ++i) {
      if (name == EnumNames<E>::names[i]) {
        out = static_cast<E>(i);
        return true;
      }
    }
    return false;
  }
  static nlohmann::json write(E value) { return name_of_enum(value); }
  static std::string expected() {
    std::string list = "one of";
    for (const char* name : EnumNames<E>::names) list += (list.size() > 6 ? ", " : " ") + std::string(name);
    return list;
  }
};

template <class T>
struct JsonType<std::vector<T>> {
  static bool read(const nlohmann::json& json, std::vector<T>& out) {
    if (!json.is_array()) return false;
    out.assign(json.size(), T{});
    for (std::size_t i = 0; i < json.size(); ++i) {
      if (!JsonType<T>::read(json[i], out[i])) return false;
    }
    return true;
  }
  static nlohmann::json write(const std::vector<T>& value) {
    nlohmann::json list = nlohmann::json::array();
    for (const T& item : value) list.push_back(JsonType<T>::write(item));
    return list;
  }
  static std::string expected() { return "a list, each " + JsonType<T>::expected(); }
};

template <class T, std::size_t N>
struct JsonType<std::array<T, N>> {
  static bool read(const nlohmann::json& json, std::array<T, N>& out) {
    std::vector<T> list;
    if (!JsonType<std::vector<T>>::read(json, list) || list.size() != N) return false;
    std::copy(list.begin(), list.end(), out.begin());
    return true;
  }
  static nlohmann::json write(const std::array<T, N>& value) {
    return JsonType<std::vector<T>>::write({value.begin(), value.end()});
  }
  static std::string expected() { return "a list of " + std::to_string(N) + ", each " + JsonType<T>::expected(); }
};

// null, or the string "None" of a YAML file, is no value.
template <class T>
struct JsonType<std::optional<T>> {
  static bool read(const nlohmann::json& json, std::optional<T>& out) {
    out.reset();
    if (json.is_null() || json == "None") return true;
    return JsonType<T>::read(json, out.emplace());
  }
  static nlohmann::json write(const std::optional<T>& value) {
    return value ? JsonType<T>::write(*value) : nlohmann::json();
  }
  static std::string expected() { return JsonType<T>::expected() + ", or null"; }
};

// Overwrites `out` with the entry of that key, if there is one. Throws Error naming key and origin if it does not fit.
template <class T>
void read_entry(const ConfigEntries& entries, const std::string& key, T& out) {
  const auto found = entries.find(key);
  if (found == entries.end()) return;
  const ConfigEntry& entry = found->second;
  ISOBAR_CHECK(JsonType<T>::read(entry.value, out), "config key ", key, " in ", entry.origin, " must be ",
               JsonType<T>::expected(), ", not ", shown(entry.value));
}

}  // namespace isobar
