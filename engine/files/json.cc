#include "engine/files/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "engine/files/reader.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::size_t kMaxShownLength = 200;
constexpr int kNumberTooLarge = 406;  // the library's number of this error

std::string cut(std::string text) {
  if (text.size() <= kMaxShownLength) return text;
  std::size_t end = kMaxShownLength;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // only whole UTF-8 characters
  return text.substr(0, end) + " ...";
}

// Checks a text without building anything, and keeps the first error. The library's parser does not recurse, so a text
// of any depth is safe here.
class Checker : public nlohmann::json_sax<json> {
 public:
  explicit Checker(std::string_view text) : text_(text) {}

  bool is_grammatical() const { return grammatical_; }
  const std::string& fault() const { return fault_; }  // empty: no error

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }

  bool start_object(std::size_t) override { return open(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    levels_.back().key = name;
    if (levels_.back().keys.insert(name).second) return true;
    return found(concat("key ", path(), " is there twice"));
  }

  bool parse_error(std::size_t position, const std::string& token, const json::exception& error) override {
    if (error.id == kNumberTooLarge) return found(concat("number ", cut(token), " is too large", at_key()));
    grammatical_ = false;
    if (position > text_.size()) return found(concat("is not valid JSON: it ends too early", at_key()));
    const std::string_view before = text_.substr(0, position > 0 ? position - 1 : 0);
    const std::size_t line_start = before.rfind('\n') + 1;  // 0 if there is none
    return found(concat("is not valid JSON at line ", 1 + std::count(before.begin(), before.end(), '\n'), ", column ",
                        before.size() - line_start + 1, at_key()));
  }

 private:
  struct Level {
    std::string key;  // the last one
    std::set<std::string> keys;
  };

  bool open() {
    if (levels_.size() == kMaxJsonDepth)
      return found(concat("is not valid JSON: nested deeper than ", kMaxJsonDepth, " levels", at_key()));
    levels_.emplace_back();
    return true;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }
  bool found(std::string fault) {
    fault_ = std::move(fault);
    return false;
  }
  // "blocks.weights" in quotes: the innermost key and those that contain it.
  std::string path() const {
    std::string keys;
    for (const Level& level : levels_) keys += (keys.empty() || level.key.empty() ? "" : ".") + level.key;
    return keys.empty() ? keys : in_quotes(keys);
  }
  std::string at_key() const {
    const std::string keys = path();
    return keys.empty() ? keys : " (at key " + keys + ")";
  }

  std::string_view text_;
  std::vector<Level> levels_;
  std::string fault_;
  bool grammatical_ = true;
};

Checker checked(std::string_view text, JsonComments comments) {
  Checker checker(text);
  json::sax_parse(text.begin(), text.end(), &checker, json::input_format_t::json, /*strict=*/true,
                  comments == JsonComments::allowed);
  return checker;
}

template <class Json>
Json parse_checked(std::string_view text, JsonComments comments) {
  return Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/true, comments == JsonComments::allowed);
}

template <class Json>
std::string dumped(const Json& value, bool ensure_ascii) {
  return value.dump(-1, ' ', ensure_ascii, Json::error_handler_t::replace);
}

}  // namespace

template <class Json>
Json parse_json(std::string_view text, const std::string& where, JsonComments comments) {
  const Checker checker = checked(text, comments);
  ISOBAR_CHECK(checker.fault().empty(), where, ": ", checker.fault());
  return parse_checked<Json>(text, comments);
}

template <class Json>
Json read_json(const std::filesystem::path& file, JsonComments comments, std::size_t max_bytes) {
  return parse_json<Json>(read_file(file, max_bytes), file.string(), comments);
}

template <class Json>
std::optional<Json> parse_json_if_valid(std::string_view text, const std::string& where) {
  const Checker checker = checked(text, JsonComments::refused);
  if (!checker.is_grammatical()) return std::nullopt;
  ISOBAR_CHECK(checker.fault().empty(), where, ": ", checker.fault());
  return parse_checked<Json>(text, JsonComments::refused);
}

template json parse_json(std::string_view, const std::string&, JsonComments);
template ordered_json parse_json(std::string_view, const std::string&, JsonComments);
template json read_json(const std::filesystem::path&, JsonComments, std::size_t);
template ordered_json read_json(const std::filesystem::path&, JsonComments, std::size_t);
template std::optional<json> parse_json_if_valid(std::string_view, const std::string&);
template std::optional<ordered_json> parse_json_if_valid(std::string_view, const std::string&);

std::string shown(const json& value) {
  return cut(dumped(value, /*ensure_ascii=*/false));
}

std::string shown(const ordered_json& value) {
  return cut(dumped(value, /*ensure_ascii=*/false));
}

bool is_utf8(const std::string& text) {
  try {
    (void)json(text).dump();
    return true;
  } catch (const json::type_error&) {
    return false;
  }
}

std::string in_quotes(const std::string& name) {
  return cut(dumped(json(name), /*ensure_ascii=*/true));
}

}  // namespace isobar
