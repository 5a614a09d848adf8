// The one reader of JSON: every fault is told by one sentence that names the file, the place and the key.
#include "engine/files/json.h"

#include <nlohmann/json.hpp>
#include <string>

#include "engine/files/atomic_file.h"
#include "kernels/common/check.h"
#include "kernels/common/printable.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using testing::ContainsSubstring;

std::string nested(std::size_t depth, char open = '[', char close = ']') {
  return std::string(depth, open) + std::string(depth, close);
}

TEST_CASE("JSON is read, comments where they are allowed", "[json]") {
  CHECK(parse_json<json>(R"({"a": [1, 2.5, "x", null, true]})", "f") == json{{"a", {1, 2.5, "x", nullptr, true}}});
  CHECK(parse_json<ordered_json>(R"({"b": 1, "a": 2})", "f").dump() == R"({"b":1,"a":2})");
  CHECK(parse_json<json>("{} // a comment", "f", JsonComments::allowed) == json::object());
  CHECK_THROWS_WITH(parse_json<json>("{} // a comment", "f"), ContainsSubstring("f: is not valid JSON"));
  CHECK_FALSE(parse_json_if_valid<json>("cosine", "f"));
  CHECK(parse_json_if_valid<json>("3e4", "f") == json(3e4));
}

TEST_CASE("what is wrong with JSON is told with line, column and key", "[json]") {
  const auto [text, sentence] = GENERATE(table<std::string, std::string>({
      {"", "f: is not valid JSON: it ends too early"},
      {"{\"a\": [1, 2", "f: is not valid JSON: it ends too early (at key \"a\")"},
      {"{\n  \"lr\": x\n}", "f: is not valid JSON at line 2, column 9 (at key \"lr\")"},
      {"{} {}", "f: is not valid JSON at line 1, column 4"},
      {"{\"a\": {\"b\": 1, \"b\": 2}}", "f: key \"a.b\" is there twice"},
      {"{\"a\": 1, \"c\": 3, \"a\": 1}", "f: key \"a\" is there twice"},
      {"{\"lr\": 1e999}", "f: number 1e999 is too large (at key \"lr\")"},
      {"{\"lr\": \"\xff\"}", "f: is not valid JSON at line 1, column 9 (at key \"lr\")"},
      {nested(65), "f: is not valid JSON: nested deeper than 64 levels"},
      {nested(400000), "f: is not valid JSON: nested deeper than 64 levels"},
  }));
  CHECK_THROWS_WITH(parse_json<json>(text, "f"), sentence);
  CHECK_THROWS_WITH(parse_json<ordered_json>(text, "f"), sentence);
}

TEST_CASE("JSON may be nested 64 levels deep", "[json]") {
  CHECK(parse_json<json>(nested(64), "f").is_array());
  CHECK_THROWS_WITH(parse_json_if_valid<json>(std::string(60000, '['), "--set lr"),
                    "--set lr: is not valid JSON: nested deeper than 64 levels");
}

TEST_CASE("a JSON file is named and bounded", "[json]") {
  const testing::TemporaryFolder folder;
  const std::filesystem::path file = folder / "a.json";
  write_file_atomically(file, "{\"a\": 1}");
  CHECK(read_json<json>(file) == json{{"a", 1}});
  CHECK_THROWS_WITH(read_json<json>(file, JsonComments::refused, 4), ContainsSubstring("more than 4 bytes"));
  CHECK_THROWS_WITH(read_json<json>(folder / "none"), ContainsSubstring((folder / "none").string()));
}

TEST_CASE("values in sentences are one short line of valid text", "[json]") {
  CHECK(shown(json{{"a", "\n\xff"}}) == "{\"a\":\"\\n\xef\xbf\xbd\"}");
  CHECK(shown(json(std::string(1000, 'x'))).size() < 210);
  CHECK(shown(json(std::string(198, 'x'))) == '"' + std::string(198, 'x') + '"');  // 200 characters
  CHECK(shown(json(std::string(199, 'x'))) == '"' + std::string(199, 'x') + " ...");
  CHECK(shown(json(std::string(198, 'x') + "\xc3\xa9")) == '"' + std::string(198, 'x') + " ...");  // no half a letter
  CHECK(shown(ordered_json{{"b", 1}, {"a", 2}}) == "{\"b\":1,\"a\":2}");
  CHECK(in_quotes("a\x1b[31m\xc3\xa9") == "\"a\\u001b[31m\\u00e9\"");
  CHECK(printable("a\x1b[31m\n\x7f\xc2\x9b\xc3\xa9 b") == "a\\x1b[31m\\x0a\\x7f\\x9b\xc3\xa9 b");
  CHECK(is_utf8("\xc3\xa9"));
  CHECK_FALSE(is_utf8("\xff"));
}

}  // namespace
}  // namespace isobar
