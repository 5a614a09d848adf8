#include "engine/keys.h"

#include <array>
#include <map>

#include "kernels/common/check.h"
#include "kernels/common/number_text.h"

namespace isobar {
namespace {

// Calls visit(number) for every number of a value, in its own type.
template <class Visit>
struct Numbers {
  const Visit& visit;

  void of(bool) const {}
  void of(const std::string&) const {}
  void of(const TextMap&) const {}
  void of(const NumbersOrWords&) const {}  // bounds are for numbers that are the value itself
  void of(const PathList&) const {}        // so are those of weights: whoever reads the paths has them
  void of(std::int64_t value) const { visit(value); }
  void of(double value) const { visit(value); }
  template <class T>
  void of(const std::optional<T>& value) const {
    if (value) of(*value);
  }
  template <class T, std::size_t N>
  void of(const std::array<T, N>& values) const {
    for (const T& value : values) of(value);
  }
  template <class... Ts>
  void of(const std::variant<Ts...>& value) const {
    std::visit([this](const auto& numbers) { of(numbers); }, value);
  }
  template <class T>
  void of(const std::vector<T>& values) const {
    for (const T& value : values) of(value);
  }
  void of(const std::map<std::string, double>& values) const {
    for (const auto& [name, value] : values) of(value);
  }

  void operator()(const Choice&) const {}
  template <class T>
  void operator()(T* place) const {
    of(*place);
  }
};

// A bound as text in the key's own type: 1048576, not 1.04858e+06.
template <class T>
T bound_as(double bound, T /*like*/) {
  return static_cast<T>(bound);
}

}  // namespace

Key& Key::at_least(double bound) {
  min = bound;
  return *this;
}
Key& Key::within(double lowest, double highest) {
  min = lowest;
  max = highest;
  return *this;
}
Key& Key::greater_than(double bound) {
  above = bound;
  return *this;
}
Key& Key::fraction() {
  min = 0;
  below = 1;
  return *this;
}
Key& Key::free_on_resume() {
  may_change_on_resume = true;
  return *this;
}
Key& Key::in_older_runs(std::string json) {
  older_value = std::move(json);
  return *this;
}
Key& Key::path() {
  is_path = true;
  return *this;
}
Key& Key::also_called(std::vector<std::string> names) {
  other_names = std::move(names);
  return *this;
}

Key& Key::in_yaml(std::vector<std::string> names) {
  yaml_names = std::move(names);
  return *this;
}

std::string KeyOrigins::where(const std::string& key) const {
  const auto origin = origins_.find(key);
  return "config key " + key + (origin == origins_.end() ? "" : " in " + origin->second);
}

std::string KeyFiller::shown(const std::array<std::int64_t, 2>& value) {
  return concat("[", value[0], ",", value[1], "]");
}

std::string KeyFiller::shown(const RangeValue& value) {
  if (const auto* const steps = std::get_if<0>(&value)) return shown(*steps);
  const std::array<std::string, 2>& texts = std::get<1>(value);
  return concat("[", texts[0], ",", texts[1], "]");
}

void KeyFiller::note(const char* key, const std::string& value) {
  origins_.set(key, "the data");
  summary_ += concat(summary_.empty() ? "" : ", ", key, " ", value);
}

void check_filled(const char* key, bool has_value, const KeyOrigins& origins) {
  ISOBAR_CHECK(has_value, origins.where(key), " is null where no data can fill it");
}

void check_bounds(const Key& key, const KeyOrigins& origins) {
  const auto check = [&](auto value) {
    const auto number = static_cast<double>(value);
    if (key.min && key.below) {
      ISOBAR_CHECK(number >= *key.min && number < *key.below, origins.where(key.name), " must be at least ", *key.min,
                   " and below ", *key.below, ", not ", value);
      return;
    }
    ISOBAR_CHECK(!key.min || number >= *key.min, origins.where(key.name), " must be at least ",
                 bound_as(*key.min, value), ", not ", value);
    ISOBAR_CHECK(!key.max || number <= *key.max, origins.where(key.name), " must be at most ",
                 bound_as(*key.max, value), ", not ", value);
    ISOBAR_CHECK(!key.above || number > *key.above, origins.where(key.name), " must be above ", *key.above, ", not ",
                 value);
  };
  std::visit(Numbers<decltype(check)>{check}, key.place);
}

std::string bounds_text(const Key& key) {
  std::string text;
  const auto add = [&](const char* words, const std::optional<double>& bound) {
    if (!bound) return;
    std::array<char, 32> number{};
    const auto end = std::to_chars(number.begin(), number.end(), *bound).ptr;  // as short as can be, and exact
    text += concat(text.empty() ? "" : ", ", words, ' ', std::string(number.begin(), end));
  };
  add("at least", key.min);
  add("at most", key.max);
  add("above", key.above);
  add("below", key.below);
  return text;
}

void check_keys(const std::vector<KeyTable>& tables, const KeyOrigins& origins) {
  for (const Key* key : all_keys(tables)) check_bounds(*key, origins);
  for (const KeyTable& table : tables)
    if (table.check) table.check(origins);
}

std::vector<const Key*> all_keys(const std::vector<KeyTable>& tables) {
  std::vector<const Key*> keys;
  std::map<std::string, const KeyTable*> owner;
  for (const KeyTable& table : tables) {
    for (const Key& key : table.keys) {
      const auto [other, is_new] = owner.try_emplace(key.name, &table);
      ISOBAR_CHECK(is_new, "the config key ", key.name, " is claimed by \"", other->second->heading, "\" and by \"",
                   table.heading, "\"");
      keys.push_back(&key);
    }
  }
  return keys;
}

bool is_number(const std::string& word) {
  return number_from<double>(word).has_value();
}

std::vector<std::string*> paths_of(const std::vector<KeyTable>& tables) {
  std::vector<std::string*> paths;
  for (const Key* key : all_keys(tables)) {
    if (!key->is_path) continue;
    if (auto* const* const path = std::get_if<std::string*>(&key->place)) paths.push_back(*path);
    if (auto* const* const list = std::get_if<PathList*>(&key->place))
      for (std::string& word : (*list)->words)
        if (!is_number(word)) paths.push_back(&word);
    if (auto* const* const map = std::get_if<std::optional<TextMap>*>(&key->place); map != nullptr && **map)
      for (auto& [name, path] : ***map) paths.push_back(&path);
  }
  return paths;
}

}  // namespace isobar
