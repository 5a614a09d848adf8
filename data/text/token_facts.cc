#include "data/text/token_facts.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/files/atomic_file.h"
#include "engine/files/json.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

using nlohmann::ordered_json;

// Reads the keys of an object, and refuses what it does not know.
class FactReader {
 public:
  FactReader(const ordered_json& object, std::string file) : object_(object), file_(std::move(file)) {
    ISOBAR_CHECK(object.is_object(), file_, " does not hold the facts of a token file");
  }
  void read(const char* key, std::string& value) const {
    const ordered_json& found = at(key);
    ISOBAR_CHECK(found.is_string(), file_, ": ", key, " is ", shown(found), "; expected a text");
    value = found.get<std::string>();
  }
  void read(const char* key, std::int64_t& value) const {
    const ordered_json& found = at(key);
    ISOBAR_CHECK(found.is_number_integer(), file_, ": ", key, " is ", shown(found), "; expected a whole number");
    value = found.get<std::int64_t>();
  }
  void read(const char* key, bool& value) const {
    const ordered_json& found = at(key);
    ISOBAR_CHECK(found.is_boolean(), file_, ": ", key, " is ", shown(found), "; expected true or false");
    value = found.get<bool>();
  }

 private:
  const ordered_json& at(const char* key) const {
    const auto found = object_.find(key);
    ISOBAR_CHECK(found != object_.end(), file_, ": ", key, " is missing");
    return *found;
  }
  const ordered_json& object_;
  std::string file_;
};

// Calls f for each key and its member.
template <class Facts, class F>
void for_each_fact(Facts& facts, const F& f) {
  f("tokenizer", facts.tokenizer);
  f("fingerprint", facts.fingerprint);
  f("vocabulary", facts.vocabulary);
  f("eod", facts.eod);
  f("has_eod", facts.has_eod);
  f("documents", facts.documents);
  f("tokens", facts.tokens);
  f("empty_documents", facts.empty_documents);
  f("text_bytes", facts.text_bytes);
}

}  // namespace

std::optional<TokenFacts> read_token_facts(const std::string& prefix) {
  const std::string file = prefix + ".json";
  if (!std::filesystem::exists(file)) return std::nullopt;
  constexpr std::size_t kMaxBytes = 1 << 20;
  const auto object = read_json<ordered_json>(file, JsonComments::refused, kMaxBytes);
  const FactReader reader(object, file);
  TokenFacts facts;
  for_each_fact(facts, [&](const char* key, auto& value) { reader.read(key, value); });
  return facts;
}

void write_token_facts(const std::string& prefix, const TokenFacts& facts) {
  ordered_json object;
  for_each_fact(facts, [&](const char* key, const auto& value) { object[key] = value; });
  write_file_atomically(prefix + ".json", object.dump(2) + "\n");
}

void check_same_tokenizer(const std::string& a, const TokenFacts& of_a, const std::string& b, const TokenFacts& of_b) {
  if (of_a.fingerprint.empty() || of_b.fingerprint.empty()) return;
  ISOBAR_CHECK(of_a.fingerprint == of_b.fingerprint, a, " and ", b,
               " have tokens of different tokenizers: ", of_a.tokenizer, ' ', of_a.fingerprint, " and ", of_b.tokenizer,
               ' ', of_b.fingerprint);
}

}  // namespace isobar
