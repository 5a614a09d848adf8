#include "data/text/json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "engine/files/json.h"
#include "kernels/common/check.h"
#include "kernels/common/comma_list.h"

namespace isobar {
namespace {

using nlohmann::json;

// Keeps the texts of the outermost object's wanted keys. A fault ends the walk.
class TextFinder : public nlohmann::json_sax<json> {
 public:
  explicit TextFinder(std::span<const std::string> keys) : keys_(keys), texts_(keys.size()) {}

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("true or false"); }
  bool number_integer(number_integer_t) override { return other("a number"); }
  bool number_unsigned(number_unsigned_t) override { return other("a number"); }
  bool number_float(number_float_t, const string_t&) override { return other("a number"); }
  bool binary(binary_t&) override { return other("binary"); }
  bool string(string_t& text) override {
    if (depth_ == 0) return other("a text");
    if (depth_ == 1 && wanted_) texts_[*wanted_] = std::move(text);
    return true;
  }
  bool start_object(std::size_t) override {
    if (depth_ > 0 && !other("an object")) return false;
    return deeper();
  }
  bool start_array(std::size_t) override { return other("a list") && deeper(); }
  bool end_object() override { return --depth_ >= 0; }
  bool end_array() override { return --depth_ >= 0; }
  bool key(string_t& name) override {
    if (depth_ != 1) return true;
    const auto place = std::ranges::find(keys_, name);
    wanted_.reset();
    if (place == keys_.end()) {
      if (others_.size() < kMaxShownKeys) others_.push_back(name);
      return true;
    }
    wanted_ = static_cast<std::size_t>(place - keys_.begin());
    return !texts_[*wanted_] || fault("key " + in_quotes(name) + " is there twice");
  }
  bool parse_error(std::size_t position, const std::string&, const json::exception& error) override {
    const std::string what = error.what();
    if (what.find("surrogate") != std::string::npos)
      return fault(concat("half of a surrogate pair stands alone at column ", position));
    return fault(concat("is not valid JSON at column ", position));
  }

  std::vector<std::string> result() {
    ISOBAR_CHECK(fault_.empty(), fault_);
    for (std::size_t i = 0; i < keys_.size(); ++i)
      ISOBAR_CHECK(texts_[i], "key ", in_quotes(keys_[i]), " is missing; keys that exist: ", existing());
    std::vector<std::string> texts;
    for (auto& text : texts_) texts.push_back(std::move(*text));
    return texts;
  }

 private:
  static constexpr std::size_t kMaxShownKeys = 20;

  // A value that is no text, where a text is wanted.
  bool other(const char* what) {
    if (depth_ == 0) return fault(concat("is ", what, ", not an object"));
    if (depth_ == 1 && wanted_) return fault(concat("key ", in_quotes(keys_[*wanted_]), " is ", what, ", no text"));
    return true;
  }
  bool deeper() {
    return ++depth_ <= kMaxJsonDepth || fault(concat("is nested deeper than ", kMaxJsonDepth, " levels"));
  }
  bool fault(std::string what) {
    fault_ = std::move(what);
    return false;
  }
  std::string existing() const {
    std::vector<std::string> names = others_;
    for (std::size_t i = 0; i < keys_.size(); ++i)
      if (texts_[i]) names.push_back(keys_[i]);
    return names.empty() ? "none" : comma_list(names, in_quotes);
  }

  std::span<const std::string> keys_;
  std::vector<std::optional<std::string>> texts_;
  std::vector<std::string> others_;
  std::optional<std::size_t> wanted_;  // of the outermost object: the key that comes next
  int depth_ = 0;
  std::string fault_;
};

}  // namespace

std::vector<std::string> json_texts(std::string_view line, std::span<const std::string> keys) {
  TextFinder finder(keys);
  json::sax_parse(line.begin(), line.end(), &finder);
  return finder.result();
}

}  // namespace isobar
