// The command line of Megatron-LM's pretrain_gpt.py: one row a flag, which says what isobar does with it. The rows are
// those of the version of 2022 that NVIDIA's course uses, and the later ones that speak of GPT.
//
//   mapped    sets a config key or a flag of isobar train
//   accepted  changes nothing here; a line says what isobar does instead
//   refused   an Error that names it
//   own       isobar's own, which Megatron-LM lacks
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace isobar {

struct MegatronFlag {
  enum class Fate : std::uint8_t { mapped, accepted, refused, own };
  // nothing: a switch. words: as many as follow.
  enum class Takes : std::uint8_t { nothing, integer, number, text, words };

  const char* name;  // without its dashes; with a * at its end: all flags that begin so
  Takes takes;
  Fate fate;
  const char* key;       // the config key that gets its value; null: none
  const char* means;     // what it does here, for people
  const char* usual;     // its value where it is not given, as Python prints it
  const char* argument;  // its name in the list of arguments; null: the flag's, with underscores
};

const std::vector<MegatronFlag>& megatron_flags();

// The row of a flag, which may be written with dashes or underscores; null: there is none.
const MegatronFlag* find_megatron_flag(std::string_view name);

// A command line that has been read.
class MegatronArguments {
 public:
  // Error that names the flag, for one that is refused, with the nearest one for one that is unknown, and for a value
  // that is none. A flag that is given twice has its last value.
  explicit MegatronArguments(const std::vector<std::string>& words);

  bool has(const char* flag) const { return given_.contains(flag); }
  // What was given, or the usual value; none where that is None.
  std::optional<std::int64_t> integer(const char* flag) const;
  std::optional<double> number(const char* flag) const;
  std::optional<std::string> text(const char* flag) const;
  std::vector<std::string> words(const char* flag) const;  // empty: not given
  bool is_on(const char* flag) const { return has(flag); }

  // Error if the flag is missing.
  void require(const char* flag) const;
  // A line for each flag that was given and changes nothing.
  std::vector<std::string> accepted() const;
  // Every argument of Megatron-LM with its value as Python prints it.
  std::vector<std::pair<std::string, std::string>> listed() const;

 private:
  std::optional<std::string> one(const char* flag) const;

  std::map<std::string, std::vector<std::string>> given_;  // by the rows' names
};

// Markdown: docs/megatron.md and --list-flags.
std::string describe_megatron_flags();

}  // namespace isobar
