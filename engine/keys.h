// Config keys: the options that people set by name. A component declares its keys beside its options, each once: name,
// member (its initialiser is the default), one sentence, bounds, and whether a resumed run may change it.
//
//     KeyTable ScheduleOptions::keys() {
//       return {"The learning rate", {key("lr", lr, "largest learning rate").at_least(0), ...}};
//     }
//
// apps/train/config.h reads and writes configs from these tables, checks them, and lists the keys for people. No JSON
// here.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace isobar {

// static constexpr std::array names: the enum's values in order, as written in a config (matched without case).
template <class E>
struct EnumNames;

template <class E>
const char* name_of_enum(E value) {
  return EnumNames<E>::names[static_cast<std::size_t>(value)];
}

// The value with this name, as it is written in a list of names; none for another name.
template <class E>
std::optional<E> enum_named(const std::string& name) {
  const auto& names = EnumNames<E>::names;
  const auto found = std::ranges::find(names, name);
  return found == names.end() ? std::nullopt : std::optional(static_cast<E>(found - names.begin()));
}

// A member of an enum type, with the names of its values.
struct Choice {
  std::vector<const char*> names;
  std::function<std::size_t()> get;
  std::function<void(std::size_t)> set;
};

// One number for all three axes, or one for each.
using PerAxis = std::variant<std::int64_t, std::array<std::int64_t, 3>>;

// [first, end) of numbered things, or the texts that stand for the two: dates for steps.
using RangeValue = std::variant<std::array<std::int64_t, 2>, std::array<std::string, 2>>;

// One number from the first iteration on, or several, each {from iteration, number}.
using StagedNumber = std::variant<std::int64_t, std::vector<std::array<std::int64_t, 2>>>;

// A word that stands for numbers, or the numbers.
using WordOrNumbers = std::variant<std::string, std::vector<double>>;

// Numbers in order or by name, or words that stand for numbers.
using WeightsByName =
    std::variant<std::vector<double>, std::map<std::string, double>, std::string, std::vector<std::string>>;

// Texts by name.
using TextMap = std::map<std::string, std::string>;

// Paths; each may have a number before it, its weight.
struct PathList {
  std::vector<std::string> words;

  bool empty() const { return words.empty(); }
};
bool is_number(const std::string& word);

// Numbers or words by name.
using NumberOrWord = std::variant<double, std::string>;
using NumbersOrWords = std::map<std::string, NumberOrWord>;

// Where a key's value is stored. An optional without a value is null.
using KeyPlace = std::variant<bool*, std::int64_t*, double*, std::string*, Choice, std::array<std::int64_t, 2>*,
                              std::array<double, 2>*, std::optional<bool>*, std::optional<std::int64_t>*,
                              std::optional<std::array<std::int64_t, 2>>*, std::optional<std::vector<std::string>>*,
                              std::optional<std::vector<double>>*, PerAxis*, std::optional<std::string>*,
                              std::optional<RangeValue>*, std::optional<TextMap>*, std::optional<NumbersOrWords>*,
                              StagedNumber*, WordOrNumbers*, std::optional<WeightsByName>*, PathList*>;

struct Key {
  std::string name;
  KeyPlace place;
  std::string sentence;  // what the key does, for the page of keys

  // Bounds of every number in the value.
  std::optional<double> min = {}, max = {}, above = {}, below = {};
  bool may_change_on_resume = false;
  bool is_path = false;  // made absolute, so that a run can be repeated from any folder
  // JSON: the value that runs made before this key existed had; empty: the default.
  std::string older_value = {};
  // The key's names in other programs: letters and digits only, in lower case.
  std::vector<std::string> other_names = {};
  // The key's names in the YAML files of the reference programs, as they are spelled there. They are read in YAML only.
  std::vector<std::string> yaml_names = {};

  Key& at_least(double bound);
  Key& within(double lowest, double highest);
  Key& greater_than(double bound);
  Key& fraction();  // [0, 1)
  Key& free_on_resume();
  Key& in_older_runs(std::string json);
  Key& path();
  Key& also_called(std::vector<std::string> names);
  Key& in_yaml(std::vector<std::string> names);
};

template <class T>
Key key(const char* name, T& member, std::string sentence) {
  if constexpr (std::is_enum_v<T>) {
    Choice choice{{EnumNames<T>::names.begin(), EnumNames<T>::names.end()},
                  [&member] { return static_cast<std::size_t>(member); },
                  [&member](std::size_t value) { member = static_cast<T>(value); }};
    return {name, std::move(choice), std::move(sentence)};
  } else {
    return {name, &member, std::move(sentence)};
  }
}

// Who set which key, for messages: "config key lr in --set".
class KeyOrigins {
 public:
  void set(const std::string& key, std::string origin) { origins_[key] = std::move(origin); }
  std::string where(const std::string& key) const;

 private:
  std::map<std::string, std::string> origins_;
};

// Gives null keys their values, which follow from the data, and remembers them.
class KeyFiller {
 public:
  explicit KeyFiller(KeyOrigins& origins) : origins_(origins) {}

  template <class T>
  void fill(const char* key, std::optional<T>& value, const T& from_data) {
    if (value) return;
    value = from_data;
    note(key, shown(from_data));
  }
  // "img_size [30,44], patch_size 2"; empty if no key was null.
  const std::string& summary() const { return summary_; }

 private:
  static std::string shown(bool value) { return value ? "true" : "false"; }
  static std::string shown(std::int64_t value) { return std::to_string(value); }
  static std::string shown(const std::array<std::int64_t, 2>& value);
  static std::string shown(const RangeValue& value);
  void note(const char* key, const std::string& value);

  KeyOrigins& origins_;
  std::string summary_;
};

// A value that opened data give to a key. The options stay as they were declared.
struct FoundKey {
  std::string key;
  std::variant<std::int64_t, std::string, std::vector<std::string>> value;
};

// The keys of one component, bound to the object that holds its options.
struct KeyTable {
  std::string heading;
  std::vector<Key> keys;
  // Throws Error for values that contradict each other. The bounds of single keys cannot find these.
  std::function<void(const KeyOrigins&)> check = nullptr;
};

// Throws Error if a number of the key's value is out of bounds: "config key lr in --set must be above 0, not -1".
void check_bounds(const Key& key, const KeyOrigins& origins);

// The bounds as people read them: "at least 0, below 1"; empty if there are none.
std::string bounds_text(const Key& key);

// Throws Error if a key that the data fill when it is null has no value: "config key patch_size in X is null where no
// data can fill it".
void check_filled(const char* key, bool has_value, const KeyOrigins& origins);

// Calls check_bounds for every key, then the check of every table.
void check_keys(const std::vector<KeyTable>& tables, const KeyOrigins& origins);

// Every key of the tables. Throws Error if two keys have the same name.
std::vector<const Key*> all_keys(const std::vector<KeyTable>& tables);
// The values of those that are paths; empty ones too.
std::vector<std::string*> paths_of(const std::vector<KeyTable>& tables);

}  // namespace isobar
