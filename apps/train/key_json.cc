#include "apps/train/key_json.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/files/json.h"

namespace isobar {

using nlohmann::json;

namespace {

// How a C++ type is read from and written to JSON. `read` returns whether the value fits; `expected` completes the
// sentence "must be ...".
template <class T>
struct JsonType;

template <>
struct JsonType<bool> {
  static bool read(const json& json, bool& out);
  static json write(bool value) { return value; }
  static std::string expected() { return "true or false"; }
};

template <>
struct JsonType<std::int64_t> {
  static bool read(const json& json, std::int64_t& out);  // 3e4 fits, 0.5 does not
  static json write(std::int64_t value) { return value; }
  static std::string expected() { return "an integer"; }
};

template <>
struct JsonType<double> {
  static bool read(const json& json, double& out);
  static json write(double value) { return value; }
  static std::string expected() { return "a number"; }
};

template <>
struct JsonType<std::string> {
  static bool read(const json& json, std::string& out);
  static json write(const std::string& value) { return value; }
  static std::string expected() { return "a string in UTF-8"; }
};

// Enums are read and written by name; case is ignored. true and false may be among the names.
template <>
struct JsonType<Choice> {
  static bool read(const json& json, Choice& out) {
    std::string name = json.is_boolean() ? json.dump() : "";
    if (name.empty() && !JsonType<std::string>::read(json, name)) return false;
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    const auto found = std::ranges::find(out.names, name);
    if (found == out.names.end()) return false;
    out.set(static_cast<std::size_t>(found - out.names.begin()));
    return true;
  }
  static json write(const Choice& value) { return value.names[value.get()]; }
  static std::string expected(const Choice& value) {
    std::string list = "one of";
    for (const char* name : value.names) list += (name == value.names.front() ? " " : ", ") + std::string(name);
    return list;
  }
};

template <class T>
struct JsonType<std::vector<T>> {
  static bool read(const json& json, std::vector<T>& out) {
    if (!json.is_array()) return false;
    out.assign(json.size(), T{});
    for (std::size_t i = 0; i < json.size(); ++i) {
      if (!JsonType<T>::read(json[i], out[i])) return false;
    }
    return true;
  }
  static json write(const std::vector<T>& value) {
    json list = json::array();
    for (const T& item : value) list.push_back(JsonType<T>::write(item));
    return list;
  }
  static std::string expected() { return "a list, each " + JsonType<T>::expected(); }
};

template <class T, std::size_t N>
struct JsonType<std::array<T, N>> {
  static bool read(const json& json, std::array<T, N>& out) {
    std::vector<T> list;
    if (!JsonType<std::vector<T>>::read(json, list) || list.size() != N) return false;
    std::copy(list.begin(), list.end(), out.begin());
    return true;
  }
  static json write(const std::array<T, N>& value) {
    return JsonType<std::vector<T>>::write({value.begin(), value.end()});
  }
  static std::string expected() { return "a list of " + std::to_string(N) + ", each " + JsonType<T>::expected(); }
};

// The first of the types that fits.
template <class First, class... Others>
struct JsonType<std::variant<First, Others...>> {
  using Variant = std::variant<First, Others...>;

  static bool read(const json& json, Variant& out) {
    return JsonType<First>::read(json, out.template emplace<First>()) ||
           (... || JsonType<Others>::read(json, out.template emplace<Others>()));
  }
  static json write(const Variant& value) {
    return std::visit([]<class V>(const V& held) { return JsonType<V>::write(held); }, value);
  }
  static std::string expected() {
    return JsonType<First>::expected() + (... + (", or " + JsonType<Others>::expected()));
  }
};

template <class T>
struct JsonType<std::map<std::string, T>> {
  static bool read(const json& json, std::map<std::string, T>& out) {
    if (!json.is_object()) return false;
    out.clear();
    for (const auto& [name, value] : json.items())
      if (!JsonType<T>::read(value, out[name])) return false;
    return true;
  }
  static json write(const std::map<std::string, T>& value) {
    json object = json::object();
    for (const auto& [name, item] : value) object[name] = JsonType<T>::write(item);
    return object;
  }
  static std::string expected() { return "an object, each of whose values is " + JsonType<T>::expected(); }
};

// null, or the string "None" of a YAML file, means no value.
template <class T>
struct JsonType<std::optional<T>> {
  static bool read(const json& json, std::optional<T>& out) {
    out.reset();
    if (json.is_null() || json == "None") return true;
    return JsonType<T>::read(json, out.emplace());
  }
  static json write(const std::optional<T>& value) { return value ? JsonType<T>::write(*value) : json(); }
  static std::string expected() { return JsonType<T>::expected() + ", or null"; }
};

// One path is a text; several are a list, in which numbers are weights.
template <>
struct JsonType<PathList> {
  static bool read(const json& json, PathList& out) {
    out.words.clear();
    if (json.is_null()) return true;
    if (json.is_string()) {
      if (!JsonType<std::string>::read(json, out.words.emplace_back())) return false;
      if (out.words[0].empty()) out.words.clear();
      return true;
    }
    if (!json.is_array()) return false;
    for (const auto& item : json) {
      std::string& word = out.words.emplace_back();
      if (item.is_number())
        word = item.dump();
      else if (!JsonType<std::string>::read(item, word) || word.empty())
        return false;
    }
    return true;
  }
  static json write(const PathList& value) {
    if (value.empty()) return "";
    if (value.words.size() == 1) return value.words[0];
    return value.words;
  }
  static std::string expected() { return "a path, or a list of paths, each with or without a number before it"; }
};

bool JsonType<bool>::read(const json& json, bool& out) {
  if (!json.is_boolean()) return false;
  out = json.get<bool>();
  return true;
}

bool JsonType<std::int64_t>::read(const json& json, std::int64_t& out) {
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > INT64_MAX) return false;
  if (json.is_number_float()) {
    const double value = json.get<double>();
    if (!(std::abs(value) < 0x1p53) || value != std::floor(value)) return false;
  } else if (!json.is_number_integer()) {
    return false;
  }
  out = json.get<std::int64_t>();
  return true;
}

bool JsonType<double>::read(const json& json, double& out) {
  if (!json.is_number()) return false;
  out = json.get<double>();
  return std::isfinite(out);
}

bool JsonType<std::string>::read(const json& json, std::string& out) {
  if (!json.is_string()) return false;
  out = json.get<std::string>();
  return is_utf8(out);
}

// The value at a place: what the pointer points to, or the choice itself.
template <class T>
T& value_at(T* place) {
  return *place;
}
const Choice& value_at(const Choice& choice) {
  return choice;
}

}  // namespace

bool read_value(const Key& key, const json& json) {
  return std::visit(
      [&](auto place) {
        if constexpr (std::is_same_v<decltype(place), Choice>)
          return JsonType<Choice>::read(json, place);
        else
          return JsonType<std::remove_pointer_t<decltype(place)>>::read(json, *place);
      },
      key.place);
}

json write_value(const Key& key) {
  return std::visit(
      [](const auto& place) -> json {
        const auto& value = value_at(place);
        return JsonType<std::remove_cvref_t<decltype(value)>>::write(value);
      },
      key.place);
}

std::string expected_value(const Key& key) {
  return std::visit(
      [](const auto& place) {
        using Type = std::remove_cvref_t<decltype(value_at(place))>;
        if constexpr (std::is_same_v<Type, Choice>)
          return JsonType<Choice>::expected(place);
        else
          return JsonType<Type>::expected();
      },
      key.place);
}

}  // namespace isobar
