// What `isobar data info` says of a file that is a text: which of its beginnings are JSON lines, text, or neither.
#include "data/text/describe_text.h"

#include <optional>
#include <string>

#include "kernels/common/check.h"
#include "tests/data/files/idx_files.h"
#include "tests/harness/data_files.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;

namespace {

constexpr std::size_t kSeen = std::size_t{1} << 16;  // bytes that are looked at

// "JSON lines", "text in UTF-8, compressed"; "not UTF-8"; "none" of what is no text.
std::string kind_of_text(const std::string& contents) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "f";
  testing::write_text(path, contents);
  std::optional<std::string> told;
  try {
    told = describe_text(path);
  } catch (const Error& error) {
    return std::string_view(error.what()).find(" is not UTF-8: ") != std::string_view::npos ? "not UTF-8"
                                                                                            : error.what();
  }
  if (!told) return "none";
  const std::string begin = path + ": ";
  REQUIRE(told->starts_with(begin));
  const std::size_t end = told->find(concat(", ", contents.size(), " bytes\n"));
  REQUIRE(end != std::string::npos);
  return told->substr(begin.size(), end - begin.size());
}

}  // namespace

TEST_CASE("a described text: JSON lines begin with a whole object, or with one that goes on behind what is seen") {
  const std::string json = "JSON lines", text = "text in UTF-8";
  CHECK(kind_of_text("{\"text\": \"a\"}") == json);
  CHECK(kind_of_text(" \t\r\n\n{\"text\": \"a\"}\nno JSON") == json);
  CHECK(kind_of_text("{}") == json);
  CHECK(kind_of_text("{no JSON") == text);  // whole, and without an end of its line
  CHECK(kind_of_text("{no JSON}\n" + std::string(kSeen, 'a')) == text);
  CHECK(kind_of_text("{\"text\": \"" + std::string(kSeen, 'a')) == json);
  CHECK(kind_of_text("{" + std::string(kSeen - 2, 'a')) == text);  // all of it is seen
  CHECK(kind_of_text("[{\"text\": \"a\"}]\n") == text);
  CHECK(kind_of_text("{\"a\": 1} x\n") == text);
  CHECK(kind_of_text("a {\"text\": \"a\"}\n") == text);
  CHECK(kind_of_text(" \n ") == text);
}

TEST_CASE("a described text: a code point may be cut where the look ends, and nowhere else") {
  const std::string text = "text in UTF-8", face = "\U0001f600";
  for (std::size_t before = kSeen - 5; before <= kSeen + 1; ++before)
    CHECK(kind_of_text(std::string(before, 'a') + face + "bcd") == text);
  CHECK(kind_of_text(std::string(kSeen - 4, 'a') + "\xff" + "bcde") == "not UTF-8");
  CHECK(kind_of_text(std::string(kSeen, 'a') + "\xff") == text);  // behind what is seen
  CHECK(kind_of_text("a" + face.substr(0, 3)) == "not UTF-8");    // the file ends there
}

TEST_CASE("a described text: which control characters stand in one") {
  for (const char c : {'\t', '\n', '\f', '\r', ' ', '~'}) CHECK(kind_of_text(std::string("a") + c) == "text in UTF-8");
  for (const char c : {'\0', '\a', '\b', '\v', '\x1b', '\x1f', '\x7f'})
    CHECK(kind_of_text(std::string("a") + c) == "none");
}

TEST_CASE("a described text: what it is good for, of each kind") {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "f";
  const auto told = [&](const std::string& contents) {
    testing::write_text(path, contents);
    return describe_text(path).value_or("none");
  };
  const std::string preprocess = " by: isobar data preprocess --input " + path,
                    bytes = " --tokenizer-type bytes --append-eod --output-prefix P\n";
  CHECK(told("abc") == path + ": text in UTF-8, 3 bytes\na language model is trained on it by: isobar train --config " +
                           "shakespeare --data " + path + "\ntoken files are made of it" + preprocess +
                           " --text --separator \"\"" + bytes);
  CHECK(told("{}\n") == path + ": JSON lines, 3 bytes\ntoken files are made of its texts" + preprocess + bytes);
  const std::string packed = testing::gzipped("{\"text\": 1}\n");
  CHECK(told(packed) == concat(path, ": JSON lines, compressed, ", packed.size(),
                               " bytes\ntoken files are made of its texts", preprocess, bytes));
  CHECK(told("") == path + ": the file is empty\n");
  for (const auto& [contents, place] :
       {std::pair("\xe9t\xe9", ", line 1, byte 1"), {"a\nb\n\ncd\xff", ", line 4, byte 3"}})
    CHECK_THROWS_WITH(told(contents), path + place +
                                          " is not UTF-8: a text must be; isobar data preprocess --invalid replace "
                                          "takes such a text");
  CHECK(told("a\xff\x01") == "none");  // another format's, not a text's
  CHECK(told("\x89HDF\r\n") == "none");
}
